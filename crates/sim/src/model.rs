//! What a store must do: a plain map, and every state it may be in after a crash whose outcome nobody knows.

use bytes::Bytes;
use millpond_core::{Body, Change, Group, Item, Key, Record, Reply};
use std::collections::BTreeMap;

/// An operation that both the model and a scheme carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// The value, or null.
    Get(u8),
    /// Replaces the value.
    Set(u8, Bytes),
    /// Appends to the value; the new length.
    Append(u8, Bytes),
    /// 1 if there was one.
    Delete(u8),
    /// All of them together.
    Many(Vec<Op>),
    /// Removes everything.
    Flush,
}

/// The name of the model's `n`th key.
pub fn key(n: u8) -> Key {
    Key::new(format!("key:{n}"))
}

fn record(data: Bytes) -> Record {
    Record { kind: 1, expires_at_ms: None, data }
}

impl Op {
    fn item(&self) -> Option<Item> {
        let op = self.clone();
        let (n, blind) = match &op {
            Self::Get(n) | Self::Append(n, _) | Self::Delete(n) => (*n, false),
            Self::Set(n, _) => (*n, true),
            Self::Many(_) | Self::Flush => return None,
        };
        let apply = Box::new(move |view: millpond_core::View<'_>| {
            let mut value = view.record.map(|r| r.data.clone());
            let before = value.clone();
            let reply = op.on(&mut value);
            let change = match value {
                _ if value == before => Change::Keep,
                Some(data) => Change::Put(record(data)),
                None => Change::Delete,
            };
            (reply, change)
        });
        Some(Item { key: key(n), apply, blind })
    }

    /// The request for a scheme.
    pub fn body(&self) -> Body {
        match self {
            Self::Flush => Body::Flush,
            Self::Many(ops) => {
                let items = ops.iter().filter_map(Self::item).collect();
                Body::Group(Group { items, combine: Some(Box::new(Reply::Array)) })
            }
            single => Body::Group(Group { items: single.item().into_iter().collect(), combine: None }),
        }
    }

    /// The operation on one key's value.
    fn on(&self, value: &mut Option<Bytes>) -> Reply {
        match self {
            Self::Get(_) => value.clone().map_or(Reply::Null, Reply::Bulk),
            Self::Set(_, new) => {
                *value = Some(new.clone());
                Reply::OK
            }
            Self::Append(_, more) => {
                let old = value.take().unwrap_or_default();
                let new: Bytes = [&old[..], more].concat().into();
                let len = new.len() as i64;
                *value = Some(new);
                Reply::Integer(len)
            }
            Self::Delete(_) => Reply::Integer(i64::from(value.take().is_some())),
            Self::Many(_) | Self::Flush => Reply::OK,
        }
    }

    fn key(&self) -> Option<u8> {
        match self {
            Self::Get(n) | Self::Set(n, _) | Self::Append(n, _) | Self::Delete(n) => Some(*n),
            Self::Many(_) | Self::Flush => None,
        }
    }
}

/// A store's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    values: BTreeMap<u8, Bytes>,
}

/// What a store's size allows.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Keys below this number are named by the distribution.
    pub named: u8,
    /// The capacity.
    pub capacity: u32,
}

impl Model {
    /// Carries out an operation.
    pub fn apply(&mut self, op: &Op, limits: Limits) -> Reply {
        let ops = match op {
            Op::Flush => {
                self.values.clear();
                return Reply::OK;
            }
            Op::Many(ops) => &ops[..],
            single => std::slice::from_ref(single),
        };
        let mut after = self.clone();
        let mut replies = Vec::new();
        for op in ops {
            let Some(n) = op.key() else { continue };
            let mut value = after.values.remove(&n);
            replies.push(op.on(&mut value));
            value.map(|v| after.values.insert(n, v));
        }
        let others = |m: &Self| m.values.keys().filter(|&&n| n >= limits.named).count() as u32;
        let grows = after.values.keys().any(|n| *n >= limits.named && !self.values.contains_key(n));
        // The scheme counts newcomers on top of what is live before the request.
        let newcomers =
            after.values.keys().filter(|n| **n >= limits.named && !self.values.contains_key(n)).count() as u32;
        if grows && u32::from(limits.named) + others(self) + newcomers > limits.capacity {
            return Reply::error("OOM");
        }
        *self = after;
        if matches!(op, Op::Many(_)) { Reply::Array(replies) } else { replies.pop().unwrap_or(Reply::OK) }
    }
}

/// Every state the store may be in.
pub struct Candidates {
    states: Vec<Model>,
    limits: Limits,
}

impl Candidates {
    /// An empty store.
    pub fn new(limits: Limits) -> Self {
        Self { states: vec![Model::default()], limits }
    }

    /// An operation was answered. Fails if no possible state answers so.
    pub fn answered(&mut self, op: &Op, reply: &Reply) -> Result<(), String> {
        let before = self.states.clone();
        let limits = self.limits;
        self.states.retain_mut(|state| match (state.apply(op, limits), reply) {
            (Reply::Error(_), Reply::Error(got)) => got.starts_with("OOM"),
            (expected, got) => expected == *got,
        });
        self.states.dedup();
        if self.states.is_empty() {
            Err(format!("{op:?} was answered {reply:?}; possible were {before:?}"))
        } else {
            Ok(())
        }
    }

    /// The store stopped with these operations under way: any number of them, in order, took effect.
    pub fn crashed(&mut self, under_way: &[Op]) {
        let mut possible = Vec::new();
        for state in &self.states {
            let mut state = state.clone();
            possible.push(state.clone());
            for op in under_way {
                state.apply(op, self.limits);
                if !possible.contains(&state) {
                    possible.push(state.clone());
                }
            }
        }
        self.states = possible;
    }
}
