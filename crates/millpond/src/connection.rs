//! One client's connection: bytes to requests, requests to stores, replies back in order.
//!
//! A single task does everything, so nothing is locked but the mailbox. Memory is bounded: while too many keys are under
//! way, or too much output waits for a client that does not read, no request is taken off the input and nothing more is
//! read. What has been handed to a store is always finished, whether or not its client is still there.

use crate::info;
use crate::proxy::Proxy;
use crate::replies::Replies;
use crate::server::stopping;
use bytes::{Bytes, BytesMut};
use millpond_core::{Body, Reply};
use millpond_engine::Mailbox;
use millpond_resp::{Outcome, RequestDecoder, Session, encode};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Replies that wait in order, and encoded ones that wait for the client to read, in bytes.
const HELD_LIMIT: usize = 1 << 20;
/// Room for each read.
const READ_BYTES: usize = 16 << 10;

/// Whether there will be more requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Yes.
    Open,
    /// The client has said all it will say; what is buffered still counts.
    Ended,
    /// No more: the protocol was broken, the client quit, or the server stops.
    Closed,
}

/// A connection's state.
pub struct Connection {
    proxy: Arc<Proxy>,
    session: Session,
    decoder: RequestDecoder,
    input: BytesMut,
    input_state: Input,
    replies: Replies,
    output: BytesMut,
    mailbox: Arc<Mailbox>,
    /// Scratch: replies just taken from the mailbox.
    arrived: Vec<(u64, Reply)>,
    /// Scratch: requests for each store, by its position.
    outgoing: Vec<Vec<(u64, Body)>>,
}

impl Connection {
    /// A new connection.
    pub fn new(proxy: Arc<Proxy>, session: Session) -> Self {
        let mut decoder = RequestDecoder::new(proxy.limits());
        decoder.set_authenticated(session.is_authenticated());
        let outgoing = proxy.stores().iter().map(|_| Vec::new()).collect();
        Self {
            proxy,
            session,
            decoder,
            input: BytesMut::new(),
            input_state: Input::Open,
            replies: Replies::default(),
            output: BytesMut::new(),
            mailbox: Mailbox::new(),
            arrived: Vec::new(),
            outgoing,
        }
    }

    /// Serves until the client or the server has had enough.
    pub async fn run(mut self, mut stream: TcpStream, mut draining: watch::Receiver<bool>) {
        let (mut reader, mut writer) = stream.split();
        loop {
            self.advance();
            if self.is_finished() {
                break;
            }
            let reading = self.input_state == Input::Open && !self.is_full();
            if reading && self.input.capacity() - self.input.len() < READ_BYTES / 4 {
                self.input.reserve(READ_BYTES);
            }
            tokio::select! {
                biased;
                written = writer.write_buf(&mut self.output), if !self.output.is_empty() => {
                    if !matches!(written, Ok(1..)) {
                        return;
                    }
                }
                () = self.mailbox.ready(), if !self.replies.is_empty() => {}
                read = reader.read_buf(&mut self.input), if reading => match read {
                    Ok(0) => self.input_state = Input::Ended,
                    Ok(_) => {}
                    Err(_) => return,
                },
                () = stopping(&mut draining), if self.input_state != Input::Closed => self.input_state = Input::Closed,
            }
        }
        // Closing with unread input would reset the connection, and the client might lose the last replies.
        if self.input_state == Input::Closed && writer.shutdown().await.is_ok() {
            let discard = async {
                let mut waste = [0; 4096];
                while matches!(reader.read(&mut waste).await, Ok(1..)) {}
            };
            tokio::time::timeout(Duration::from_millis(250), discard).await.ok();
        }
    }

    /// Does all that can be done without waiting.
    fn advance(&mut self) {
        self.mailbox.take(&mut self.arrived);
        for (token, reply) in self.arrived.drain(..) {
            self.replies.fill(token, reply);
        }
        self.encode_ready();
        self.take_requests();
        self.encode_ready();
    }

    fn is_finished(&self) -> bool {
        self.input_state != Input::Open && self.replies.is_empty() && self.output.is_empty()
    }

    fn is_full(&self) -> bool {
        self.replies.waiting_keys() >= self.proxy.waiting_keys_limit()
            || self.replies.held_bytes() + self.output.len() >= HELD_LIMIT
    }

    fn encode_ready(&mut self) {
        while let Some((protocol, reply)) = self.replies.next_ready() {
            encode(&reply, protocol, &mut self.output);
        }
    }

    /// Takes requests off the input, and hands them to their stores, one batch for each.
    fn take_requests(&mut self) {
        while self.input_state != Input::Closed && !self.is_full() {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(args)) => self.handle(&args),
                Ok(None) => break,
                Err(error) => {
                    self.replies.push(self.session.protocol(), Reply::error(error.line()));
                    self.input_state = Input::Closed;
                }
            }
        }
        for (store, requests) in self.proxy.stores().iter().zip(&mut self.outgoing) {
            if !requests.is_empty() {
                store.handle.submit(&self.mailbox, std::mem::take(requests));
            }
        }
    }

    fn handle(&mut self, args: &[Bytes]) {
        let reply = match self.session.handle(args) {
            Outcome::Data { store, body } => return self.hand_over(store, args, body),
            Outcome::Reply(reply) => reply,
            Outcome::Close(reply) => {
                self.input_state = Input::Closed;
                reply
            }
            Outcome::Info => info::reply(&self.proxy),
            Outcome::DbSize(store) => {
                let keys = self.proxy.stores().get(store).map_or(0, |store| store.handle.stats().scheme.keys);
                Reply::Integer(i64::try_from(keys).unwrap_or(i64::MAX))
            }
        };
        self.decoder.set_authenticated(self.session.is_authenticated());
        self.replies.push(self.session.protocol(), reply);
    }

    /// Puts a request among those that leave for its store together.
    fn hand_over(&mut self, store: usize, args: &[Bytes], body: Body) {
        let token = self.replies.reserve(self.session.protocol(), body.cost());
        match (self.proxy.stores().get(store), self.outgoing.get_mut(store)) {
            (Some(served), Some(requests)) => {
                served.count(args.first().map_or(&[], |name| name));
                requests.push((token, body));
            }
            _ => self.replies.fill(token, Reply::error("ERR this database has no store")),
        }
    }
}
