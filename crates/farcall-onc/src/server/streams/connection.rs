//! One connection of a client. The server reads calls from it and sends replies, in any order.
//!
//! One thread at a time reads: the one that has the *turn*. It serves what it reads, and collects short
//! replies so that many are sent by one system call. If a procedure takes long, its thread loses the turn and
//! another thread reads on. Records that were read and not served stay with the connection. The thread that
//! lost the turn only sends its reply.

mod callback;

use std::array;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Interest, PeerState, Source, Stream, Time, Wait};
use farcall::eviction::Usage;
use farcall::{Bytes, room};

use super::{LINGER_TIME, Streams};
use crate::Client;
use crate::server::fate::{Lasting, PeerFate};
use crate::server::hosts::Account;
use crate::server::outgoing::Outgoing;
use crate::server::peer::{Peer, PeerConnection};
use crate::server::pool::{Held, ServingThread};
use crate::server::programs::Verdict;
use crate::wire::message::{Direction, peek};
use crate::wire::record::{Records, mark};
use callback::{Callback, Delivered};

/// No further calls are read while the client leaves this many bytes of replies untaken.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// A reply of at least this many bytes is sent at once, without waiting for others. After a read of at least
/// this many bytes, the thread reads again before it waits.
const LONG_BYTES: usize = 8 << 10;
/// A record of at least this many bytes is put into reference-counted [`Bytes`], so that the decoder can keep
/// parts of it without copying them.
const SHARED_RECORD_BYTES: usize = 4 << 10;

/// One connection of a client.
pub(crate) struct Connection {
    /// The connection's number, which is its key in the poller.
    pub(super) id: u64,
    socket: Arc<dyn Stream>,
    peer: Peer,
    streams: Arc<Streams>,
    /// The account of what is held for the connection and its host.
    account: Account,
    /// Whether the connection waits until its host can have one more call under way.
    parked: AtomicBool,
    /// The number of the current turn. It changes when a turn ends or begins. Written only under the lock of
    /// `inbox`.
    turn: AtomicU64,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    /// Whether `outbox` has unsent bytes.
    has_unsent: AtomicBool,
    /// Whether the client has sent something that is not answered yet.
    owes_reply: AtomicBool,
    /// The number of calls whose threads have lost the turn, and whose replies are not sent yet.
    running: AtomicUsize,
    /// Whether the last bytes [came late](Connection::comes_late). Calls in these bytes are not served.
    is_late: AtomicBool,
    fate: Arc<PeerFate>,
    callback: Callback,
}

/// What the connection has received, and the replies that are collected for one send.
struct Inbox {
    records: Records,
    /// Replies with their record marks, which are sent together.
    batch: Vec<u8>,
    /// The number of replies in the batch.
    batched: usize,
    /// Whether to read once more without waiting.
    read_again: bool,
    /// When the connection last received something.
    last_read: Time,
    /// How many bytes the account counts for the inbox.
    charged: usize,
}

/// What is to be sent.
#[derive(Default)]
struct Outbox {
    /// The bytes for which the socket had no room. Each part is kept with its original length: it holds that
    /// much memory even when some of it was sent.
    unsent: VecDeque<(Bytes, usize)>,
    /// The number of unsent bytes.
    len: usize,
    /// Whether no thread reads: the poller watches the socket, or nothing more will come.
    resting: bool,
    /// Whether the peer sends no more.
    ended: bool,
    closed: bool,
}

/// The buffers of a thread, which it uses for one connection after the other.
#[derive(Default)]
pub(super) struct Scratch {
    record: Vec<u8>,
    reply: Outgoing,
    /// Whether `reply` is to be sent.
    answered: bool,
}

impl Connection {
    pub(super) fn new(id: u64, socket: Arc<dyn Stream>, peer: Peer, streams: Arc<Streams>) -> Connection {
        let inbox = Inbox {
            records: Records::new(streams.limits.records),
            batch: Vec::new(),
            batched: 0,
            read_again: true,
            last_read: streams.env.now(),
            charged: 0,
        };
        Connection {
            id,
            socket,
            account: streams.hosts.open(&peer),
            parked: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            peer,
            streams,
            inbox: Mutex::new(inbox),
            outbox: Mutex::new(Outbox { resting: true, ..Outbox::default() }),
            has_unsent: AtomicBool::new(false),
            owes_reply: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            is_late: AtomicBool::new(false),
            fate: Arc::default(),
            callback: Callback::default(),
        }
    }

    pub(super) fn source(&self) -> Source<'_> {
        self.socket.source()
    }

    /// Acts on the socket's readiness: sends unsent replies, and serves calls.
    #[inline]
    pub(super) fn ready(self: &Arc<Self>, interest: Interest, thread: &ServingThread, scratch: &mut Scratch) {
        let resume = {
            let mut outbox = lock(&self.outbox);
            if interest.write && !self.flush(&mut outbox) {
                drop(outbox);
                return self.close();
            }
            // Serves calls even if the socket is only writable: calls that were read may be unserved because
            // replies had no room.
            let resume = outbox.resting && !outbox.ended && outbox.len < MAX_UNSENT_BYTES;
            outbox.resting &= !resume;
            if !resume && !self.arm(&outbox) {
                outbox.ended = true;
            }
            resume
        };
        if resume {
            self.serve(thread, scratch);
        } else {
            self.close_if_done();
        }
    }

    /// Serves calls until none comes, or the turn goes to another thread.
    pub(super) fn serve(self: &Arc<Self>, thread: &ServingThread, scratch: &mut Scratch) {
        let turn = {
            let mut inbox = lock(&self.inbox);
            inbox.read_again = true;
            self.next_turn()
        };
        thread.hold(Some((self.clone(), turn)));
        let peer = Peer { connection: Some(self.clone()), ..self.peer.clone() };
        while let Some(record) = self.next(turn, thread, scratch) {
            let (message, packet) = match &record {
                Record::Shared(packet) => (&packet[..], Some(packet)),
                Record::Copied => (&scratch.record[..], None),
            };
            scratch.answered = self.serve_one(message, packet, turn, &peer, thread, &mut scratch.reply);
        }
        thread.hold(None);
    }

    /// Serves a message. Returns true if a reply is to be sent.
    #[inline]
    fn serve_one(
        self: &Arc<Self>,
        message: &[u8],
        packet: Option<&Bytes>,
        turn: u64,
        peer: &Peer,
        thread: &ServingThread,
        reply: &mut Outgoing,
    ) -> bool {
        // Replies still count, because a procedure that runs may wait for one.
        if self.is_late.load(Ordering::Relaxed) && matches!(peek(message), Ok((_, Direction::Call))) {
            return false;
        }
        match self.streams.programs.examine(message, peer, reply) {
            Verdict::Answered => true,
            Verdict::Drop => false,
            Verdict::Unreadable => {
                if let Ok((_, Direction::Reply)) = peek(message) {
                    match self.callback.deliver(message, &self.account) {
                        Delivered::InFull => {}
                        Delivered::TooMany => self.streams.free_bytes(),
                        Delivered::Not => self.close(),
                    }
                }
                false
            }
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    self.pass(turn);
                    thread.replace_receiver();
                }
                let known = admitted.known();
                let wanted = thread.run(|| self.streams.programs.run(admitted, peer, packet, reply));
                if thread.is_long() {
                    known.overdue();
                }
                wanted
            }
        }
    }

    /// Takes the reply to the last message. Returns the next record, or `None` if there is none or the turn
    /// has ended.
    #[inline]
    fn next(self: &Arc<Self>, turn: u64, thread: &ServingThread, scratch: &mut Scratch) -> Option<Record> {
        let answered = mem::take(&mut scratch.answered);
        // Checked without the lock of the inbox first: the thread that has the turn can hold that lock while
        // it waits for data.
        if self.turn.load(Ordering::Acquire) != turn {
            return self.leave(answered, scratch);
        }
        let mut inbox = lock(&self.inbox);
        if self.turn.load(Ordering::Relaxed) != turn {
            drop(inbox);
            return self.leave(answered, scratch);
        }
        let inbox = &mut *inbox;
        if answered && !self.collect(inbox, &scratch.reply) {
            self.close();
            return None;
        }
        scratch.reply.clear();
        loop {
            if !self.may_run() {
                self.park(inbox);
                return None;
            }
            if self.has_unsent.load(Ordering::Relaxed) && lock(&self.outbox).len >= MAX_UNSENT_BYTES {
                self.wait_for_room(inbox);
                return None;
            }
            match inbox.records.next() {
                Ok(Some(Cow::Owned(record))) => return Some(Record::Shared(record.into())),
                Ok(Some(Cow::Borrowed(record))) if record.len() >= SHARED_RECORD_BYTES => {
                    // Without memory for a call, its connection cannot go on.
                    let Ok(copy) = room::copied(record) else {
                        self.close();
                        return None;
                    };
                    return Some(Record::Shared(copy.into()));
                }
                Ok(Some(Cow::Borrowed(record))) => {
                    scratch.record.clear();
                    scratch.record.extend_from_slice(record);
                    return Some(Record::Copied);
                }
                Ok(None) => {}
                Err(_) => {
                    self.close();
                    return None;
                }
            }
            if !self.read(inbox, thread) {
                return None;
            }
        }
    }

    /// Sends the reply to the last message, after the thread has lost the turn.
    fn leave(self: &Arc<Self>, answered: bool, scratch: &mut Scratch) -> Option<Record> {
        self.finish(answered, &scratch.reply);
        scratch.reply.clear();
        None
    }

    /// Ends the turn, and returns the number of the next one. The inbox must be locked.
    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Release) + 1
    }

    /// Sends the collected replies, and reads. Returns false if there is nothing to serve now.
    fn read(self: &Arc<Self>, inbox: &mut Inbox, thread: &ServingThread) -> bool {
        // A client that sent several calls has probably sent more. A client that sent a single call probably
        // waits for its reply.
        let many = mem::take(&mut inbox.batched) > 1;
        self.charge(inbox);
        let mut look = mem::take(&mut inbox.read_again) || many;
        if !self.send_batch(inbox) {
            self.close();
            return false;
        }
        self.owes_reply.store(false, Ordering::Release);
        self.streams.programs.forget();
        if self.streams.is_draining() && self.running.load(Ordering::Acquire) == 0 {
            self.end();
            return false;
        }
        let spin = self.streams.limits.spin;
        let began = (!spin.is_zero()).then(|| self.streams.env.now());
        while look || began.is_some_and(|began| self.streams.env.now().since(began) < spin) {
            look = false;
            match self.receive(inbox, Wait::No) {
                Received::Nothing => {}
                Received::Bytes => return true,
                Received::Over => return false,
            }
        }
        // A partly received record is not waited for here, because the watchdog limits its time.
        if !inbox.records.is_partial()
            && let Some(_lingering) = self.streams.linger(thread)
        {
            match self.receive(inbox, Wait::Nanos(LINGER_TIME.as_nanos() as u64)) {
                Received::Nothing => {}
                Received::Bytes => return true,
                Received::Over => return false,
            }
        }
        self.rest(inbox);
        false
    }

    /// Receives once. Ends the connection if the peer has ended it or it is broken.
    #[inline]
    fn receive(self: &Arc<Self>, inbox: &mut Inbox, wait: Wait) -> Received {
        match self.socket.read(inbox.records.space(), wait) {
            Ok(0) => self.end(),
            Ok(len) => {
                self.owes_reply.store(true, Ordering::Release);
                self.is_late.store(self.comes_late(), Ordering::Relaxed);
                inbox.records.filled(len);
                // A long record arrives in several pieces.
                inbox.read_again = len >= LONG_BYTES;
                return Received::Bytes;
            }
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Received::Nothing;
            }
            Err(_) => self.close(),
        }
        Received::Over
    }

    /// Returns whether calls that come now have come too late, because the server drains and the connection
    /// stays open only for calls that run. While one of these calls the client, the client's procedure may
    /// call the server, and both would wait in vain if such a call were dropped.
    fn comes_late(&self) -> bool {
        self.streams.is_draining()
            && self.running.load(Ordering::Acquire) > 0
            && !self.callback.awaits_replies()
    }

    /// Ends the turn, and lets the poller watch the socket.
    fn rest(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.last_read = self.streams.env.now();
        // The turn ends first: the watchdog may be about to pass it on.
        self.next_turn();
        let slow = inbox.records.is_partial() && inbox.records.check(inbox.last_read).is_err();
        inbox.records.settle();
        self.charge(inbox);
        self.streams.unpark();
        let mut outbox = lock(&self.outbox);
        outbox.resting = true;
        if slow || !self.arm(&outbox) {
            drop(outbox);
            self.close();
        }
    }

    /// Ends the turn, and reads no more until the peer has taken replies. The poller then reports the
    /// connection as writable, so that records that were read already are served even if nothing more comes.
    /// It reports that also if the peer has made room since this thread checked.
    #[cold]
    fn wait_for_room(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.last_read = self.streams.env.now();
        self.next_turn();
        if !self.offer() {
            self.close();
        }
    }

    /// Ends the turn with this number, if it has not ended: another thread continues with the records that
    /// were read, and reads on. The thread that had the turn will only send its reply.
    fn pass(&self, turn: u64) {
        // Checked without the lock of the inbox first, as in `next`.
        if self.turn.load(Ordering::Acquire) != turn {
            return;
        }
        let sent = {
            let mut inbox = lock(&self.inbox);
            if self.turn.load(Ordering::Relaxed) != turn {
                return;
            }
            // The call is counted before its thread can see that the turn has ended, because that thread then
            // counts the call as ended.
            self.running.fetch_add(1, Ordering::AcqRel);
            self.account.begin();
            self.next_turn();
            self.send_batch(&mut inbox) && self.offer()
        };
        if !sent {
            self.close();
        }
    }

    /// Returns whether the host can have one more call under way.
    #[inline]
    pub(super) fn may_run(&self) -> bool {
        self.account.may_run(self.streams.workers.limit())
    }

    /// Ends the turn, and reads no more until the host has fewer calls under way.
    #[cold]
    fn park(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.last_read = self.streams.env.now();
        self.next_turn();
        if !self.send_batch(inbox) {
            return self.close();
        }
        lock(&self.outbox).resting = true;
        if !self.parked.swap(true, Ordering::AcqRel) {
            self.streams.park(self.clone());
        }
        // A call may have ended meanwhile.
        self.streams.unpark();
    }

    /// Lets a parked connection continue.
    pub(super) fn unpark(&self) {
        self.parked.store(false, Ordering::Release);
        if !self.offer() {
            self.close();
        }
    }

    /// Drops the replies that the peer has sent to the server's own calls and that no caller has read. The
    /// connection must have ended.
    pub(super) fn forget_replies(&self) {
        self.callback.forget(&self.account);
    }

    /// Returns the account of what is held for the connection and its host.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Updates the account to what the inbox holds, and frees bytes if all connections hold too many.
    #[inline]
    fn charge(&self, inbox: &mut Inbox) {
        if inbox.held() != inbox.charged && self.recharge(inbox) {
            self.streams.free_bytes();
        }
    }

    /// Updates the account to what the inbox holds. Returns true if all connections together hold too many
    /// bytes.
    fn recharge(&self, inbox: &mut Inbox) -> bool {
        let held = inbox.held();
        let before = mem::replace(&mut inbox.charged, held);
        if held < before {
            self.account.subtract(before - held);
            return false;
        }
        self.account.add(held - before)
    }

    /// Frees the memory that an idle connection does not need.
    pub(super) fn give_back(&self) {
        let Ok(mut inbox) = self.inbox.try_lock() else { return };
        if inbox.batch.is_empty() {
            inbox.batch = Vec::new();
        }
        inbox.records.rest();
        // The result is ignored: `Streams::free_bytes` may be the caller.
        self.recharge(&mut inbox);
    }

    /// Lets another thread serve this connection at once, because records may have been read already. Returns
    /// false if the connection is broken.
    fn offer(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        outbox.resting = true;
        // If the socket is writable, the poller reports it at once. If not, the connection has to wait for
        // that anyway.
        let at_once = Interest { read: !outbox.ended, write: true };
        self.streams.ready.arm(self.source(), self.id, at_once).is_ok()
    }

    /// Ends a call whose thread has lost the turn, and sends its reply.
    fn finish(self: &Arc<Self>, answered: bool, reply: &Outgoing) {
        let sent = !answered || self.send_reply(&[], reply);
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.account.end();
        self.streams.unpark();
        if sent { self.close_if_done() } else { self.close() }
    }

    /// Adds a reply to the batch, or sends it now together with the batch if it is long. Returns false if the
    /// connection is broken.
    #[inline]
    fn collect(&self, inbox: &mut Inbox, reply: &Outgoing) -> bool {
        inbox.batched += 1;
        if reply.len() >= LONG_BYTES || inbox.batch.len() >= 8 * LONG_BYTES {
            let batch = mem::take(&mut inbox.batch);
            let sent = self.send_reply(&batch, reply);
            inbox.batch = batch;
            inbox.batch.clear();
            return sent;
        }
        inbox.batch.extend_from_slice(&mark(reply.len()));
        reply.parts().iter().for_each(|part| inbox.batch.extend_from_slice(part));
        true
    }

    /// Sends the collected replies. Returns false if the connection is broken.
    fn send_batch(&self, inbox: &mut Inbox) -> bool {
        let sent = inbox.batch.is_empty() || self.send(&[&inbox.batch]);
        inbox.batch.clear();
        sent
    }

    /// Sends `before`, which are complete replies, and a reply. Returns false if the connection is broken.
    fn send_reply(&self, before: &[u8], reply: &Outgoing) -> bool {
        let [a, b, c] = reply.parts();
        self.send(&[before, &mark(reply.len()), a, b, c])
    }

    /// Sends these parts. Queues the bytes for which the socket has no room, ahead of bytes that are sent
    /// later. Returns false if the connection is broken.
    pub(super) fn send(&self, parts: &[&[u8]]) -> bool {
        let mut outbox = lock(&self.outbox);
        if outbox.closed {
            return false;
        }
        let mut sent = 0;
        if outbox.unsent.is_empty() {
            let all: [_; MAX_PARTS] =
                array::from_fn(|place| IoSlice::new(parts.get(place).copied().unwrap_or_default()));
            match self.transmit(&all) {
                Ok(len) => sent = len,
                Err(_) => return false,
            }
        }
        let all: usize = parts.iter().map(|part| part.len()).sum();
        if sent == all {
            return true;
        }
        let left = all - sent;
        let rest = parts.iter().map(|part| {
            let skip = sent.min(part.len());
            sent -= skip;
            room::copied(&part[skip..])
        });
        // Without memory for the rest of a reply, its connection cannot go on.
        let Ok(rest) = rest.collect::<Result<Vec<_>, _>>() else { return false };
        self.has_unsent.store(true, Ordering::Relaxed);
        let rest = rest.into_iter().filter(|part| !part.is_empty());
        outbox.unsent.extend(rest.map(|part| {
            let len = part.len();
            (Bytes::from(part), len)
        }));
        outbox.len += left;
        let (armed, too_many) = (self.arm(&outbox), self.account.add(left));
        drop(outbox);
        if too_many {
            self.streams.free_bytes();
        }
        armed
    }

    /// Returns how many bytes the peer has not taken.
    pub(super) fn unsent(&self) -> usize {
        lock(&self.outbox).len
    }

    /// Sends queued bytes until the socket has no more room. Returns false if the connection is broken.
    fn flush(&self, outbox: &mut Outbox) -> bool {
        while let Some((first, whole)) = outbox.unsent.front_mut() {
            let sent = match self.transmit(&[IoSlice::new(first)]) {
                Ok(0) => return true,
                Ok(sent) => sent,
                Err(_) => return false,
            };
            if sent < first.len() {
                let _ = first.split_to(sent);
            } else {
                self.account.subtract(*whole);
                outbox.unsent.pop_front();
            }
            outbox.len = outbox.len.saturating_sub(sent);
        }
        self.has_unsent.store(false, Ordering::Relaxed);
        true
    }

    /// Sends as much as the socket has room for. Returns how many bytes that was.
    fn transmit(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.socket.write(parts) {
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Lets the poller watch the socket for what the connection waits for. Returns false if the poller
    /// cannot.
    fn arm(&self, outbox: &Outbox) -> bool {
        let read = outbox.resting && !outbox.ended && outbox.len < MAX_UNSENT_BYTES;
        let interest = Interest { read, write: !outbox.unsent.is_empty() };
        interest == Interest::default() || self.streams.ready.arm(self.source(), self.id, interest).is_ok()
    }

    /// Notes that the peer will send no more. Closes the connection unless replies are still to be sent.
    fn end(self: &Arc<Self>) {
        let goes_on = {
            let mut outbox = lock(&self.outbox);
            outbox.ended = true;
            // No thread will rest, so this one lets the poller watch for room for the rest of the replies.
            self.arm(&outbox)
        };
        if !goes_on {
            return self.close();
        }
        if self.owes_nothing() {
            self.fate.end_in_order();
        }
        self.close_if_done();
    }

    /// Returns whether every call that the client has sent was answered, and the answers were sent.
    fn owes_nothing(&self) -> bool {
        let answered = !self.owes_reply.load(Ordering::Acquire) && self.running.load(Ordering::Acquire) == 0;
        answered && lock(&self.outbox).unsent.is_empty()
    }

    /// Closes the connection if the peer sends no more, no call is under way, and all replies were sent.
    fn close_if_done(self: &Arc<Self>) {
        let done = {
            let outbox = lock(&self.outbox);
            outbox.ended && outbox.unsent.is_empty()
        };
        if done && self.running.load(Ordering::Acquire) == 0 {
            self.close();
        }
    }

    /// Closes the connection, even if calls are under way.
    pub(super) fn close(&self) {
        {
            let mut outbox = lock(&self.outbox);
            if mem::replace(&mut outbox.closed, true) {
                return;
            }
            let held: usize = mem::take(&mut outbox.unsent).iter().map(|(_, whole)| whole).sum();
            self.account.subtract(held);
            outbox.len = 0;
        }
        self.fate.end();
        self.streams.forget(self);
        self.socket.shutdown(Shutdown::Both);
        self.callback.end();
    }

    /// Reads nothing more than what has come. The thread that serves the connection then finds that the
    /// client sends no more, and closes the connection.
    pub(super) fn read_no_more(&self) {
        self.socket.shutdown(Shutdown::Read);
    }

    /// Returns for how long the client has sent nothing, or `None` if the connection is in use and must not
    /// be closed for silence.
    pub(super) fn idle(&self, now: Time) -> Option<Duration> {
        let served = self.running.load(Ordering::Acquire) > 0 || self.parked.load(Ordering::Acquire);
        if served || !lock(&self.outbox).resting {
            return None;
        }
        let Ok(inbox) = self.inbox.try_lock() else { return None };
        Some(now.since(inbox.last_read))
    }

    /// Returns what the connection is used for.
    pub(super) fn usage(&self, now: Time) -> Usage {
        // A thread that has the inbox reads or serves.
        let Ok(inbox) = self.inbox.try_lock() else { return Usage::Call(Duration::ZERO) };
        let silent = now.since(inbox.last_read);
        if self.running.load(Ordering::Acquire) > 0 || self.parked.load(Ordering::Acquire) {
            return Usage::Call(silent);
        }
        let outbox = lock(&self.outbox);
        match inbox.records.unfinished_since() {
            // A client that sends byte after byte is no busier than one that sends nothing.
            Some(since) => Usage::PartialCall(now.since(since)),
            None if outbox.len > 0 => Usage::PartialCall(silent),
            None if outbox.resting => Usage::Idle(silent),
            None => Usage::Call(silent),
        }
    }

    /// Returns for how long the client has sent nothing, even if calls are under way. Returns zero if a
    /// thread reads.
    pub(super) fn silent(&self, now: Time) -> Duration {
        let last_read = self.inbox.try_lock().map_or(now, |inbox| inbox.last_read);
        now.since(last_read)
    }

    /// Frees memory that an idle connection does not need. Returns whether a record has been partly received
    /// for too long.
    pub(super) fn is_stuck(&self, now: Time) -> bool {
        self.give_back();
        let Ok(mut inbox) = self.inbox.try_lock() else { return false };
        inbox.records.check(now).is_err()
    }
}

impl Held for Connection {
    fn pass(&self, turn: u64) {
        self.pass(turn);
    }

    fn count_waiting(&self, begins: bool) {
        if !begins {
            return self.account.begin();
        }
        self.account.end();
        self.streams.unpark();
    }
}

impl PeerConnection for Connection {
    fn fate(&self) -> &Arc<PeerFate> {
        &self.fate
    }

    fn client(self: Arc<Self>) -> Option<Client> {
        self.callback.client(&self)
    }
}

impl Lasting for Connection {
    fn is_broken_off(&self) -> bool {
        match self.socket.peer_state() {
            PeerState::Open => false,
            PeerState::Ended => !self.owes_nothing(),
            PeerState::Gone => true,
        }
    }
}

impl Inbox {
    /// Returns how many bytes of memory the inbox holds.
    #[inline]
    fn held(&self) -> usize {
        self.records.held() + self.batch.capacity()
    }
}

/// The result of [`Connection::receive`].
enum Received {
    Bytes,
    Nothing,
    /// The connection has ended, or was closed.
    Over,
}

/// A record that is to be served.
enum Record {
    /// The decoder can keep parts of it.
    Shared(Bytes),
    /// The record was copied to [`Scratch::record`].
    Copied,
}

/// The most parts of one send: a batch, a record mark, and the three parts of a reply.
const MAX_PARTS: usize = 5;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
