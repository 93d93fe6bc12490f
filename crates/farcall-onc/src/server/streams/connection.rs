//! A client's connection: records in, replies out, in any order.
//!
//! One thread at a time reads: the one that has the *turn*. It serves what it reads, and collects short replies, so that
//! many leave by one system call. If one of the procedures takes long the turn is passed on: what was read and not served
//! stays with the connection, and the thread that lost its turn only sends its reply.

mod callback;

use std::array;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farcall::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, Shutdown, recv, sendmsg, shutdown, sockopt};

use super::Streams;
use super::ready::Interest;
use crate::Client;
use crate::client::carrier::SEND;
use crate::server::crew::{Held, Seat};
use crate::server::fate::{Lasting, PeerFate};
use crate::server::hosts::Account;
use crate::server::outgoing::Outgoing;
use crate::server::peer::{Peer, PeerConnection};
use crate::server::programs::Verdict;
use crate::wire::message::{Direction, peek};
use crate::wire::record::{Records, mark};
use callback::{Callback, Delivered};

/// Replies that nobody takes are a reason to read no further calls.
const MOST_UNSENT: usize = 1 << 20;
/// A reply of so many bytes leaves by itself.
const LONG: usize = 8 << 10;
/// A record of so many bytes is lent to who decodes it rather than copied.
const WORTH_SHARING: usize = 4 << 10;

/// A connection.
pub(crate) struct Connection {
    pub(super) id: u64,
    socket: OwnedFd,
    peer: Peer,
    streams: Arc<Streams>,
    /// What is held for it, which its host's is a part of.
    account: Account,
    /// It waits until its host may have one more call under way.
    parked: AtomicBool,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    /// Some bytes are unsent.
    crowded: AtomicBool,
    /// Something has come that is not answered yet.
    owing: AtomicBool,
    /// Calls whose turn was passed on, and whose replies are not sent yet.
    running: AtomicUsize,
    fate: Arc<PeerFate>,
    callback: Callback,
}

/// What has come.
struct Inbox {
    records: Records,
    /// Changes when somebody else begins to read.
    turn: u64,
    /// Replies, each with its mark, that leave together.
    batch: Vec<u8>,
    /// How many.
    batched: usize,
    /// Look whether more has come.
    eager: bool,
    /// Reads may wait, but not for long.
    lingers: bool,
    /// When something last came.
    heard: Instant,
    /// How many bytes of the account are held here.
    charged: usize,
}

/// What is to leave.
#[derive(Default)]
struct Outbox {
    /// What the socket had no room for. Each part has its length from before some of it was sent, which is
    /// the memory that it holds.
    unsent: VecDeque<(Bytes, usize)>,
    /// How many bytes that is.
    len: usize,
    /// Nobody reads: the socket is armed, or nothing more will come.
    resting: bool,
    /// The peer sends no more.
    ended: bool,
    closed: bool,
}

/// A thread that waits for connections keeps these from one to the next.
#[derive(Default)]
pub(super) struct Desk {
    record: Vec<u8>,
    reply: Outgoing,
    /// The reply is to be sent.
    answered: bool,
}

impl Connection {
    pub(super) fn new(id: u64, socket: OwnedFd, peer: Peer, streams: Arc<Streams>) -> Connection {
        let inbox = Inbox {
            records: Records::new(streams.limits.records),
            turn: 0,
            batch: Vec::new(),
            batched: 0,
            eager: true,
            lingers: false,
            heard: Instant::now(),
            charged: 0,
        };
        Connection {
            id,
            socket,
            account: streams.hosts.open(&peer),
            parked: AtomicBool::new(false),
            peer,
            streams,
            inbox: Mutex::new(inbox),
            outbox: Mutex::new(Outbox { resting: true, ..Outbox::default() }),
            crowded: AtomicBool::new(false),
            owing: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            fate: Arc::default(),
            callback: Callback::default(),
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The socket is ready.
    #[inline]
    pub(super) fn ready(self: &Arc<Self>, interest: Interest, seat: &Seat, desk: &mut Desk) {
        let resume = {
            let mut outbox = lock(&self.outbox);
            if interest.write && !self.flush(&mut outbox) {
                drop(outbox);
                return self.close();
            }
            // Also when there is only room again: calls may have been left unserved for the lack of it.
            let resume = outbox.resting && !outbox.ended && outbox.len < MOST_UNSENT;
            outbox.resting &= !resume;
            if !resume && !self.arm(&outbox) {
                outbox.ended = true;
            }
            resume
        };
        if resume {
            self.serve(seat, desk);
        } else {
            self.close_if_done();
        }
    }

    /// Serves what comes, until nothing does or the turn is passed on.
    pub(super) fn serve(self: &Arc<Self>, seat: &Seat, desk: &mut Desk) {
        let turn = {
            let mut inbox = lock(&self.inbox);
            inbox.turn += 1;
            inbox.eager = true;
            inbox.turn
        };
        seat.hold(Some((self.clone(), turn)));
        self.streams.crew.guard();
        let peer = Peer { connection: Some(self.clone()), ..self.peer.clone() };
        while let Some(record) = self.next(turn, desk) {
            let (message, packet) = match &record {
                Record::Shared(packet) => (&packet[..], Some(packet)),
                Record::Copied => (&desk.record[..], None),
            };
            desk.answered = self.serve_one(message, packet, turn, &peer, seat, &mut desk.reply);
        }
        seat.hold(None);
    }

    /// Serves a message; true if a reply is to be sent.
    #[inline]
    fn serve_one(
        self: &Arc<Self>,
        message: &[u8],
        packet: Option<&Bytes>,
        turn: u64,
        peer: &Peer,
        seat: &Seat,
        reply: &mut Outgoing,
    ) -> bool {
        match self.streams.programs.examine(message, peer, reply) {
            Verdict::Answered => true,
            Verdict::Drop => false,
            Verdict::Unreadable => {
                if let Ok((_, Direction::Reply)) = peek(message) {
                    match self.callback.deliver(message, &self.account) {
                        Delivered::InFull => {}
                        Delivered::TooMany => self.streams.relieve(),
                        Delivered::Not => self.close(),
                    }
                }
                false
            }
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    self.pass(turn);
                    self.streams.crew.relieve(&self.streams.list);
                }
                let pace = admitted.pace();
                let (wanted, relieved) =
                    seat.run(|| self.streams.programs.run(admitted, peer, packet, reply));
                if relieved {
                    pace.overdue();
                }
                wanted
            }
        }
    }

    /// Takes the reply to the last message, and gives the next record for as long as it is our turn.
    #[inline]
    fn next(self: &Arc<Self>, turn: u64, desk: &mut Desk) -> Option<Record> {
        let answered = mem::take(&mut desk.answered);
        let mut inbox = lock(&self.inbox);
        if inbox.turn != turn {
            drop(inbox);
            self.finish(answered, &desk.reply);
            desk.reply.clear();
            return None;
        }
        let inbox = &mut *inbox;
        if answered && !self.collect(inbox, &desk.reply) {
            self.close();
            return None;
        }
        desk.reply.clear();
        loop {
            if !self.may_run() {
                self.park(inbox);
                return None;
            }
            if self.crowded.load(Ordering::Relaxed) && lock(&self.outbox).len >= MOST_UNSENT {
                self.wait_for_room(inbox);
                return None;
            }
            match inbox.records.next() {
                Ok(Some(Cow::Owned(record))) => return Some(Record::Shared(record.into())),
                Ok(Some(Cow::Borrowed(record))) if record.len() >= WORTH_SHARING => {
                    return Some(Record::Shared(Bytes::copy_from_slice(record)));
                }
                Ok(Some(Cow::Borrowed(record))) => {
                    desk.record.clear();
                    desk.record.extend_from_slice(record);
                    return Some(Record::Copied);
                }
                Ok(None) => {}
                Err(_) => {
                    self.close();
                    return None;
                }
            }
            if !self.read(inbox) {
                return None;
            }
        }
    }

    /// Sends what was collected, and reads; false if there is nothing to serve now.
    fn read(self: &Arc<Self>, inbox: &mut Inbox) -> bool {
        // Who sent many will have sent more; who sent one waits for its reply.
        let many = mem::take(&mut inbox.batched) > 1;
        self.charge(inbox);
        let mut look = mem::take(&mut inbox.eager) || many;
        if !self.send_batch(inbox) {
            self.close();
            return false;
        }
        self.owing.store(false, Ordering::Release);
        self.streams.programs.forget();
        let spin = self.streams.limits.spin;
        let began = (!spin.is_zero()).then(Instant::now);
        while look || began.is_some_and(|began| began.elapsed() < spin) {
            look = false;
            match self.receive(inbox, RecvFlags::DONTWAIT) {
                Received::Nothing => {}
                Received::Bytes => return true,
                Received::Over => return false,
            }
        }
        // A record that comes slowly is not waited for here: its time is limited.
        if !inbox.records.is_partial()
            && let Some(_lingering) = self.streams.linger()
        {
            inbox.lingers = inbox.lingers || set_patience(&self.socket);
            match self.receive(inbox, RecvFlags::empty()) {
                Received::Nothing => {}
                Received::Bytes => return true,
                Received::Over => return false,
            }
        }
        self.rest(inbox);
        false
    }

    /// Receives once, and ends the connection if that is what came.
    #[inline]
    fn receive(self: &Arc<Self>, inbox: &mut Inbox, flags: RecvFlags) -> Received {
        match recv(&self.socket, inbox.records.space(), flags) {
            Ok((_, 0)) => self.end(),
            Ok((_, len)) => {
                self.owing.store(true, Ordering::Release);
                inbox.records.filled(len);
                // A long record comes in pieces.
                inbox.eager = len >= LONG;
                return Received::Bytes;
            }
            Err(Errno::INTR | Errno::AGAIN) => return Received::Nothing,
            Err(_) => self.close(),
        }
        Received::Over
    }

    /// Has the socket watched for more.
    fn rest(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.heard = Instant::now();
        // The keeper may still hold this turn, and pass it on too late.
        inbox.turn += 1;
        let slow = inbox.records.is_partial() && inbox.records.check(inbox.heard).is_err();
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

    /// Reads no more until the peer has taken replies. What was read already is served then, though nothing more may come:
    /// also if there has been room again since that was seen.
    #[cold]
    fn wait_for_room(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.heard = Instant::now();
        inbox.turn += 1;
        if !self.offer() {
            self.close();
        }
    }

    /// Has somebody else go on with what was read and with what comes. The thread of that turn will only send its reply.
    fn pass(&self, turn: u64) {
        let sent = {
            let mut inbox = lock(&self.inbox);
            if inbox.turn != turn {
                return;
            }
            inbox.turn += 1;
            self.running.fetch_add(1, Ordering::SeqCst);
            self.account.begin();
            self.send_batch(&mut inbox) && self.offer()
        };
        if !sent {
            self.close();
        }
    }

    /// Whether one more call may be under way.
    #[inline]
    pub(super) fn may_run(&self) -> bool {
        self.account.may_run(self.streams.crew.limit())
    }

    /// Reads no more until the host's calls under way are fewer.
    #[cold]
    fn park(self: &Arc<Self>, inbox: &mut Inbox) {
        inbox.heard = Instant::now();
        inbox.turn += 1;
        if !self.send_batch(inbox) {
            return self.close();
        }
        lock(&self.outbox).resting = true;
        if !self.parked.swap(true, Ordering::SeqCst) {
            self.streams.park(self.clone());
        }
        // One may have ended meanwhile.
        self.streams.unpark();
    }

    /// Goes on.
    pub(super) fn unpark(&self) {
        self.parked.store(false, Ordering::SeqCst);
        if !self.offer() {
            self.close();
        }
    }

    /// Gives up the replies that nobody has taken, of a connection that has ended.
    pub(super) fn forget_replies(&self) {
        self.callback.forget(&self.account);
    }

    /// What is held for it, and for its host.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Has the account say what the inbox holds.
    #[inline]
    fn charge(&self, inbox: &mut Inbox) {
        if inbox.held() != inbox.charged && self.recharge(inbox) {
            self.streams.relieve();
        }
    }

    /// True: all connections together hold too much.
    fn recharge(&self, inbox: &mut Inbox) -> bool {
        let held = inbox.held();
        let before = mem::replace(&mut inbox.charged, held);
        if held < before {
            self.account.subtract(before - held);
            return false;
        }
        self.account.add(held - before)
    }

    /// Gives back what an idle connection does not need.
    pub(super) fn give_back(&self) {
        let Ok(mut inbox) = self.inbox.try_lock() else { return };
        if inbox.batch.is_empty() {
            inbox.batch = Vec::new();
        }
        inbox.records.rest();
        // Too much is somebody else's affair: this may be on its behalf.
        self.recharge(&mut inbox);
    }

    /// Has whoever waits for connections take this one at once: there may be something to serve that was read already.
    fn offer(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        outbox.resting = true;
        // It is writable, or it has to wait for that anyway.
        let at_once = Interest { read: !outbox.ended, write: true };
        self.streams.ready.arm(&self.socket, self.id, at_once).is_ok()
    }

    /// The end of a call whose turn was passed on.
    fn finish(self: &Arc<Self>, answered: bool, reply: &Outgoing) {
        let sent = !answered || self.send_reply(&[], reply);
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.account.end();
        self.streams.unpark();
        if sent { self.close_if_done() } else { self.close() }
    }

    /// Takes a reply that leaves with others, or now if it is long.
    #[inline]
    fn collect(&self, inbox: &mut Inbox, reply: &Outgoing) -> bool {
        inbox.batched += 1;
        if reply.len() >= LONG || inbox.batch.len() >= 8 * LONG {
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

    fn send_batch(&self, inbox: &mut Inbox) -> bool {
        let sent = inbox.batch.is_empty() || self.send(&[&inbox.batch]);
        inbox.batch.clear();
        sent
    }

    fn send_reply(&self, before: &[u8], reply: &Outgoing) -> bool {
        let [a, b, c] = reply.parts();
        self.send(&[before, &mark(reply.len()), a, b, c])
    }

    /// Sends these, all of them before anything that is sent later; false if the connection is broken.
    pub(super) fn send(&self, parts: &[&[u8]]) -> bool {
        let mut outbox = lock(&self.outbox);
        if outbox.closed {
            return false;
        }
        let mut sent = 0;
        if outbox.unsent.is_empty() {
            let all: [_; MOST_PARTS] =
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
        self.crowded.store(true, Ordering::Relaxed);
        let left = all - sent;
        for part in parts {
            let skip = sent.min(part.len());
            sent -= skip;
            if skip < part.len() {
                outbox.unsent.push_back((Bytes::copy_from_slice(&part[skip..]), part.len() - skip));
            }
        }
        outbox.len += left;
        let (armed, too_many) = (self.arm(&outbox), self.account.add(left));
        drop(outbox);
        if too_many {
            self.streams.relieve();
        }
        armed
    }

    /// How many bytes the peer has not taken.
    pub(super) fn unsent(&self) -> usize {
        lock(&self.outbox).len
    }

    /// Sends what there was no room for; false if the connection is broken.
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
        self.crowded.store(false, Ordering::Relaxed);
        true
    }

    /// Sends as much as the socket has room for.
    fn transmit(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), SEND) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                sent => return Ok(sent?),
            }
        }
    }

    /// Has the socket watched for what it is wanted for; false if it cannot be.
    fn arm(&self, outbox: &Outbox) -> bool {
        let read = outbox.resting && !outbox.ended && outbox.len < MOST_UNSENT;
        let interest = Interest { read, write: !outbox.unsent.is_empty() };
        interest == Interest::default() || self.streams.ready.arm(&self.socket, self.id, interest).is_ok()
    }

    /// The peer has sent all that it will.
    fn end(self: &Arc<Self>) {
        lock(&self.outbox).ended = true;
        if self.owes_nothing() {
            self.fate.end_in_order();
        }
        self.close_if_done();
    }

    /// Whether all that came was answered, and the answers have left.
    fn owes_nothing(&self) -> bool {
        let answered = !self.owing.load(Ordering::Acquire) && self.running.load(Ordering::SeqCst) == 0;
        answered && lock(&self.outbox).unsent.is_empty()
    }

    fn close_if_done(self: &Arc<Self>) {
        let done = {
            let outbox = lock(&self.outbox);
            outbox.ended && outbox.unsent.is_empty()
        };
        if done && self.running.load(Ordering::SeqCst) == 0 {
            self.close();
        }
    }

    /// Ends the connection, whatever is under way.
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
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.callback.end();
    }

    /// How long nothing has come, if the connection could be closed for that.
    pub(super) fn idle(&self, now: Instant) -> Option<Duration> {
        let served = self.running.load(Ordering::SeqCst) > 0 || self.parked.load(Ordering::SeqCst);
        if served || !lock(&self.outbox).resting {
            return None;
        }
        let Ok(inbox) = self.inbox.try_lock() else { return None };
        Some(now.saturating_duration_since(inbox.heard))
    }

    /// How long nothing has come, whatever is under way; not at all if somebody reads.
    pub(super) fn silent(&self, now: Instant) -> Duration {
        let heard = self.inbox.try_lock().map_or(now, |inbox| inbox.heard);
        now.saturating_duration_since(heard)
    }

    /// Whether a record has been on its way for too long. Memory that an idle connection does not need is given back.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.give_back();
        let Ok(mut inbox) = self.inbox.try_lock() else { return false };
        inbox.records.check(now).is_err()
    }
}

impl Held for Connection {
    fn pass(&self, turn: u64) {
        self.pass(turn);
    }
}

impl PeerConnection for Connection {
    fn fate(&self) -> &Arc<PeerFate> {
        &self.fate
    }

    fn client(self: Arc<Self>) -> Option<Client> {
        self.callback.client(&self)
    }

    fn count_waiting(&self, begins: bool) {
        if !begins {
            return self.account.begin();
        }
        self.account.end();
        self.streams.unpark();
    }
}

impl Lasting for Connection {
    fn is_broken_off(&self) -> bool {
        let mut place = [PollFd::new(&self.socket, GONE)];
        if !matches!(poll(&mut place, Some(&NOW)), Ok(1)) {
            return false;
        }
        // A reset is looked for without reading. Linux tells the error to one reader only, even if that one
        // peeks; the next reader would find an orderly end.
        if place[0].revents().intersects(RESET) {
            return true;
        }
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => !self.owes_nothing(),
            // Systems whose flags do not distinguish an end from data: the client is taken to be there.
            Ok(_) => GONE != PollFlags::IN,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }
}

impl Inbox {
    /// How many bytes of memory it holds.
    #[inline]
    fn held(&self) -> usize {
        self.records.held() + self.batch.capacity()
    }
}

/// What came of receiving once.
enum Received {
    Bytes,
    Nothing,
    /// Nothing more will come.
    Over,
}

/// A thread that has served a connection stays with it for so long, if others wait for the rest: a call that follows soon
/// is spared two system calls.
const LINGER: Duration = Duration::from_millis(20);

/// Has a read that waits end after [`LINGER`].
fn set_patience(socket: &OwnedFd) -> bool {
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(LINGER)).is_ok()
}

/// A record to be served.
enum Record {
    /// Those who decode it may keep parts of it.
    Shared(Bytes),
    /// It stands on the desk.
    Copied,
}

/// The other side has closed, or broken off; where the system does not tell that from what has come, either.
#[cfg(target_os = "linux")]
const GONE: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const GONE: PollFlags = PollFlags::IN;
/// Flags that show that the other side has broken the connection off. Linux reports a hang-up of a TCP socket
/// after a reset, or when both sides have closed, and this side closes last. Other systems report it when the
/// other side has closed.
#[cfg(target_os = "linux")]
const RESET: PollFlags = PollFlags::ERR.union(PollFlags::HUP);
#[cfg(not(target_os = "linux"))]
const RESET: PollFlags = PollFlags::ERR;
/// To look and not to wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// So many parts leave together at most: others, a mark, and the three of a reply.
const MOST_PARTS: usize = 5;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
