//! A connection's replies in the order of its requests, whatever order they arrive in.
//!
//! Every request has a slot, named by its token; tokens count up. A slot is filled once, and leaves when it is filled
//! and first in line. The size of what waits here is known, so that a connection can stop reading in time.

use millpond_core::Reply;
use millpond_resp::Protocol;
use std::collections::VecDeque;

/// A reply that is due.
struct Slot {
    /// What the connection spoke when the request came.
    protocol: Protocol,
    /// How many keys the request has.
    keys: u32,
    /// The reply, once it is there.
    reply: Option<Reply>,
}

/// Replies that are due or not yet sent.
#[derive(Default)]
pub struct Replies {
    slots: VecDeque<Slot>,
    /// The first slot's token.
    first: u64,
    /// Keys of requests without a reply.
    keys: usize,
    /// Roughly the memory of the replies in the slots, in bytes.
    bytes: usize,
}

impl Replies {
    /// Whether nothing is due.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Keys of requests that wait for their reply.
    pub fn waiting_keys(&self) -> usize {
        self.keys
    }

    /// Roughly the memory of the replies that are held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for a reply that comes later, to a request for so many keys; returns its token.
    pub fn reserve(&mut self, protocol: Protocol, keys: u32) -> u64 {
        self.keys += keys as usize;
        self.slots.push_back(Slot { protocol, keys, reply: None });
        self.first + self.slots.len() as u64 - 1
    }

    /// Adds a reply that is there already.
    pub fn push(&mut self, protocol: Protocol, reply: Reply) {
        self.bytes += weight(&reply);
        self.slots.push_back(Slot { protocol, keys: 0, reply: Some(reply) });
    }

    /// A reply has come. One for an unknown token, or a second one, is dropped.
    pub fn fill(&mut self, token: u64, reply: Reply) {
        let index = token.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.slots.get_mut(index)) else { return };
        if slot.reply.is_none() {
            self.bytes += weight(&reply);
            self.keys -= slot.keys as usize;
            slot.reply = Some(reply);
        }
    }

    /// The next reply in order, if it is there.
    pub fn next_ready(&mut self) -> Option<(Protocol, Reply)> {
        let reply = self.slots.front_mut()?.reply.take()?;
        let protocol = self.slots.pop_front()?.protocol;
        self.first += 1;
        self.bytes -= weight(&reply);
        Some((protocol, reply))
    }
}

/// Roughly the memory of a reply, in bytes.
fn weight(reply: &Reply) -> usize {
    size_of::<Reply>()
        + match reply {
            Reply::Simple(text) | Reply::Error(text) => text.len(),
            Reply::Bulk(bytes) | Reply::Verbatim(bytes) => bytes.len(),
            Reply::Array(items) | Reply::Set(items) => items.iter().map(weight).sum(),
            Reply::Map(items) => items.iter().map(|(key, value)| weight(key) + weight(value)).sum(),
            Reply::Integer(_) | Reply::Double(_) | Reply::Boolean(_) | Reply::Null | Reply::NullArray => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(replies: &mut Replies) -> Vec<Reply> {
        std::iter::from_fn(|| replies.next_ready().map(|(_, reply)| reply)).collect()
    }

    #[test]
    fn replies_leave_in_the_order_of_requests() {
        let mut replies = Replies::default();
        let a = replies.reserve(Protocol::Resp2, 1);
        replies.push(Protocol::Resp3, Reply::OK);
        let b = replies.reserve(Protocol::Resp3, 3);
        assert_eq!(replies.waiting_keys(), 4);
        replies.fill(b, Reply::Integer(2));
        assert_eq!(drain(&mut replies), []);
        assert!(replies.held_bytes() > 0);
        replies.fill(a, Reply::Integer(1));
        assert!(matches!(replies.next_ready(), Some((Protocol::Resp2, Reply::Integer(1)))));
        assert!(matches!(replies.next_ready(), Some((Protocol::Resp3, Reply::Simple(_)))));
        assert_eq!(drain(&mut replies), [Reply::Integer(2)]);
        assert!(replies.is_empty());
        assert_eq!((replies.waiting_keys(), replies.held_bytes()), (0, 0));
    }

    #[test]
    fn strange_tokens_are_dropped() {
        let mut replies = Replies::default();
        let a = replies.reserve(Protocol::Resp2, 1);
        replies.fill(a, Reply::Integer(1));
        replies.fill(a, Reply::Integer(2));
        assert_eq!(drain(&mut replies), [Reply::Integer(1)]);
        for token in [a, a + 1, u64::MAX] {
            replies.fill(token, Reply::Integer(3));
        }
        assert_eq!(drain(&mut replies), []);
        let b = replies.reserve(Protocol::Resp2, 1);
        assert_eq!(b, a + 1);
    }

    #[test]
    fn any_order_of_arrival_gives_the_same_stream() {
        for stride in [1, 3, 7, 37, 99] {
            let mut replies = Replies::default();
            let tokens: Vec<u64> = (0..100).map(|_| replies.reserve(Protocol::Resp2, 1)).collect();
            let mut seen = Vec::new();
            for i in 0..100 {
                let token = tokens[i * stride % 100];
                replies.fill(token, Reply::Integer(token.cast_signed()));
                seen.extend(drain(&mut replies));
            }
            assert_eq!(seen, tokens.iter().map(|token| Reply::Integer(token.cast_signed())).collect::<Vec<_>>());
            assert_eq!((replies.waiting_keys(), replies.held_bytes()), (0, 0));
        }
    }
}
