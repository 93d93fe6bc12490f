//! The streams of a simulated world: connections whose bytes come in parts, late, or never. No code here
//! waits.
//!
//! Written bytes become segments of sizes that the seed draws. They arrive in order. A lost one arrives
//! later, by the sender's retransmission, or breaks the connection. When a process crashes, its connections
//! are reset, or fall silent. The other end of a silent connection notices after about a minute, or when it
//! sends to the restarted process.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;

use farcall::env::{Interest, PeerState};

use super::{Due, State, Ticket, enlist};
use crate::net::{MILLIS, Nanos, SECS, host};

/// The index of a source in [`Sources::all`].
pub(in crate::sim) type SourceId = usize;

/// All streams, listeners and alarms.
#[derive(Default)]
pub(super) struct Sources {
    all: Vec<Source>,
    listeners: HashMap<SocketAddr, SourceId>,
}

/// An object that a thread can wait for together with others.
struct Source {
    process: usize,
    kind: Kind,
    waiters: Vec<Ticket>,
}

enum Kind {
    Stream(Box<End>),
    Listener {
        at: SocketAddr,
        backlog: VecDeque<SourceId>,
    },
    /// An alarm, and whether it is set.
    Alarm(bool),
    Closed,
}

/// One end of a connection.
struct End {
    local: SocketAddr,
    remote: SocketAddr,
    peer: Option<SourceId>,
    state: Connection,
    /// Bytes that have arrived and were not read.
    incoming: Vec<u8>,
    /// Whether the peer sends no more.
    ended: bool,
    /// Whether this end sends no more.
    write_closed: bool,
    /// Whether this end reads no more.
    read_closed: bool,
    /// Segments that were sent and have not arrived.
    outgoing: VecDeque<Segment>,
    /// The number of bytes that were sent and that the peer has not read.
    unread: usize,
    /// The maximum of `unread`.
    window: usize,
    /// How often this end has sent its first segment, or the handshake, while the peer was unreachable.
    tries: u32,
}

impl End {
    /// Returns whether this end accepts bytes to send. It does only if half of the window is free, so that
    /// bytes are not sent one by one.
    fn has_room(&self) -> bool {
        self.unread <= self.window / 2
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Connecting,
    Open,
    Broken(ErrorKind),
}

struct Segment {
    /// The earliest time at which the segment arrives.
    at: Nanos,
    what: What,
}

enum What {
    Bytes(Vec<u8>),
    /// The sender sends no more.
    End,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum StreamEvent {
    /// The request for a connection arrives.
    Request,
    /// The answer to a request arrives: whether there is a connection.
    Answer(bool),
    /// The first segment that this end sent arrives.
    Arrival,
    /// This end learns that the connection is broken.
    Reset(ErrorKind),
}

/// The longest segment, in bytes.
const LONGEST_SEGMENT: u64 = 1460;
/// The pause before a lost segment is first sent again. Each further pause is twice the last.
const RETRANSMIT_AFTER: Nanos = 200 * MILLIS;
/// How often a segment is sent again before the connection is given up, which is after about a minute.
const MAX_TRIES: u32 = 9;
/// One in this many losses breaks the connection instead.
const LOSSES_PER_RESET: u32 = 20;

impl State {
    fn add_source(&mut self, process: usize, kind: Kind) -> SourceId {
        self.sources.all.push(Source { process, kind, waiters: Vec::new() });
        self.sources.all.len() - 1
    }

    fn add_end(&mut self, process: usize, local: SocketAddr, remote: SocketAddr) -> SourceId {
        let end = End {
            local,
            remote,
            peer: None,
            state: Connection::Connecting,
            incoming: Vec::new(),
            ended: false,
            write_closed: false,
            read_closed: false,
            outgoing: VecDeque::new(),
            unread: 0,
            window: self.rng.spread(1 << 10, 1 << 18) as usize,
            tries: 0,
        };
        self.add_source(process, Kind::Stream(Box::new(end)))
    }

    fn end_of(&mut self, id: SourceId) -> Option<&mut End> {
        match &mut self.sources.all[id].kind {
            Kind::Stream(end) => Some(end),
            Kind::Listener { .. } | Kind::Alarm(_) | Kind::Closed => None,
        }
    }

    /// Begins to connect.
    pub(in crate::sim) fn connect(&mut self, process: usize, to: SocketAddr) -> SourceId {
        let local = self.free_address(process);
        let id = self.add_end(process, local, to);
        let takes = self.transit(local, to);
        self.net.after(takes, Due::Stream(id, StreamEvent::Request));
        id
    }

    /// Listens at a port. Port 0 asks for any port. Returns `None` if the port is taken.
    pub(in crate::sim) fn listen(&mut self, process: usize, port: u16) -> Option<(SourceId, SocketAddr)> {
        let at = match port {
            0 => self.free_address(process),
            port => crate::net::address(process, port),
        };
        if self.sources.listeners.contains_key(&at) {
            return None;
        }
        let id = self.add_source(process, Kind::Listener { at, backlog: VecDeque::new() });
        self.sources.listeners.insert(at, id);
        Some((id, at))
    }

    pub(in crate::sim) fn alarm(&mut self, process: usize) -> SourceId {
        self.add_source(process, Kind::Alarm(false))
    }

    pub(in crate::sim) fn set_alarm(&mut self, id: SourceId, set: bool) {
        if let Kind::Alarm(is_set) = &mut self.sources.all[id].kind {
            *is_set = set;
            self.wake_source(id);
        }
    }

    /// Takes a connection that a client has made.
    pub(in crate::sim) fn accept(&mut self, id: SourceId) -> Option<(SourceId, SocketAddr)> {
        let Kind::Listener { backlog, .. } = &mut self.sources.all[id].kind else { return None };
        let accepted = backlog.pop_front()?;
        let remote = self.end_of(accepted)?.remote;
        Some((accepted, remote))
    }

    /// Takes bytes that have arrived, perhaps not all of them.
    pub(in crate::sim) fn read(&mut self, id: SourceId, buffer: &mut [u8]) -> Result<usize, ErrorKind> {
        let partial = self.rng.chance(250_000);
        let drawn = self.rng.next() as usize;
        let Some(end) = self.end_of(id) else { return Ok(0) };
        if end.read_closed {
            return Ok(0);
        }
        if end.incoming.is_empty() {
            return match end.state {
                Connection::Broken(why) => Err(why),
                _ if end.ended => Ok(0),
                _ => Err(ErrorKind::WouldBlock),
            };
        }
        let most = end.incoming.len().min(buffer.len());
        let len = if partial { 1 + drawn % most.max(1) } else { most }.min(most);
        buffer[..len].copy_from_slice(&end.incoming[..len]);
        end.incoming.drain(..len);
        // The peer learns of the free window at once. Learning later would only slow the connection down.
        if let Some(peer) = end.peer {
            if let Some(peer) = self.end_of(peer) {
                peer.unread = peer.unread.saturating_sub(len);
            }
            self.wake_source(peer);
        }
        Ok(len)
    }

    /// Accepts as many bytes as there is room for, or fewer.
    pub(in crate::sim) fn write(&mut self, id: SourceId, bytes: &[u8]) -> Result<usize, ErrorKind> {
        let partial = self.rng.chance(250_000);
        let drawn = self.rng.next() as usize;
        let Some(end) = self.end_of(id) else { return Err(ErrorKind::BrokenPipe) };
        match end.state {
            Connection::Broken(_) => return Err(ErrorKind::BrokenPipe),
            _ if end.write_closed => return Err(ErrorKind::BrokenPipe),
            Connection::Connecting => return Err(ErrorKind::WouldBlock),
            Connection::Open => {}
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        if !end.has_room() {
            return Err(ErrorKind::WouldBlock);
        }
        let room = end.window.saturating_sub(end.unread).min(bytes.len());
        let len = if partial { 1 + drawn % room } else { room };
        end.unread += len;
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let size = self.rng.spread(1, LONGEST_SEGMENT) as usize;
            let (segment, more) = rest.split_at(size.max(len / 16).min(rest.len()));
            self.send_segment(id, What::Bytes(segment.to_vec()));
            rest = more;
        }
        Ok(len)
    }

    fn send_segment(&mut self, id: SourceId, what: What) {
        let Some(end) = self.end_of(id) else { return };
        if end.state != Connection::Open {
            // An earlier segment of the same write broke the connection. Nothing may arrive after the gap.
            return;
        }
        let (local, remote) = (end.local, end.remote);
        let loss = self.net.path(host(local), host(remote)).loss;
        let at = self.net.now() + self.transit(local, remote);
        if self.rng.chance(loss / LOSSES_PER_RESET) {
            self.break_off(id, ErrorKind::ConnectionReset);
            return self.break_peer(id);
        }
        let Some(end) = self.end_of(id) else { return };
        let at = end.outgoing.back().map_or(at, |last| last.at.max(at));
        let first = end.outgoing.is_empty();
        end.outgoing.push_back(Segment { at, what });
        if first {
            self.net.at(at, Due::Stream(id, StreamEvent::Arrival));
        }
    }

    /// Draws how long a segment takes, including the times that it is lost and sent again.
    fn transit(&mut self, from: SocketAddr, to: SocketAddr) -> Nanos {
        let path = *self.net.path(host(from), host(to));
        let mut takes = path.delay + self.rng.below(path.jitter);
        let mut pause = RETRANSMIT_AFTER;
        while self.rng.chance(path.loss) && pause < 30 * SECS {
            takes += pause;
            pause *= 2;
        }
        takes
    }

    /// Ends one direction or both.
    pub(in crate::sim) fn shut_down(&mut self, id: SourceId, read: bool, write: bool) {
        let Some(end) = self.end_of(id) else { return };
        end.read_closed |= read;
        let ends = write && !std::mem::replace(&mut end.write_closed, true);
        let (unread, open) = (!end.incoming.is_empty(), end.state == Connection::Open);
        if ends && open {
            match read && unread {
                // The peer has sent bytes that this end will never read.
                true => self.break_peer(id),
                false => self.send_segment(id, What::End),
            }
        }
        self.wake_source(id);
    }

    /// Releases a source that no process has any more.
    pub(in crate::sim) fn release(&mut self, id: SourceId) {
        match &mut self.sources.all[id].kind {
            Kind::Stream(_) => self.shut_down(id, true, true),
            Kind::Listener { .. } => self.close_listener(id),
            Kind::Alarm(_) | Kind::Closed => {}
        }
    }

    pub(in crate::sim) fn close_listener(&mut self, id: SourceId) {
        let Kind::Listener { at, backlog } = &mut self.sources.all[id].kind else { return };
        let (at, backlog) = (*at, std::mem::take(backlog));
        self.sources.all[id].kind = Kind::Closed;
        self.sources.listeners.remove(&at);
        backlog.into_iter().for_each(|end| self.break_peer(end));
        self.wake_source(id);
    }

    /// Resets the connections of a crashed process, or makes them silent.
    pub(super) fn close_sources(&mut self, process: usize) {
        for id in 0..self.sources.all.len() {
            if self.sources.all[id].process != process {
                continue;
            }
            self.close_listener(id);
            let Some(end) = self.end_of(id) else { continue };
            if end.read_closed && end.write_closed {
                // Bytes that were sent before the process closed the connection still arrive.
                continue;
            }
            let peer = end.peer.filter(|_| end.state == Connection::Open);
            end.outgoing.clear();
            self.sources.all[id].kind = Kind::Closed;
            let Some(peer) = peer else { continue };
            match self.rng.chance(500_000) {
                true => self.reset_later(peer, 0, ErrorKind::ConnectionReset),
                false => self.reset_later(peer, 60 * SECS, ErrorKind::TimedOut),
            }
        }
    }

    /// Tells the other end that the connection is broken, after the time of a segment.
    fn break_peer(&mut self, id: SourceId) {
        if let Some(peer) = self.end_of(id).and_then(|end| end.peer) {
            self.reset_later(peer, 0, ErrorKind::ConnectionReset);
        }
    }

    fn reset_later(&mut self, id: SourceId, after: Nanos, why: ErrorKind) {
        let Some(end) = self.end_of(id) else { return };
        let (local, remote) = (end.local, end.remote);
        let takes = after + self.transit(remote, local);
        self.net.after(takes, Due::Stream(id, StreamEvent::Reset(why)));
    }

    fn break_off(&mut self, id: SourceId, why: ErrorKind) {
        let Some(end) = self.end_of(id) else { return };
        if !matches!(end.state, Connection::Broken(_)) {
            end.state = Connection::Broken(why);
            end.outgoing.clear();
            end.incoming.clear();
        }
        self.wake_source(id);
    }

    /// Acts on an event of a stream.
    pub(super) fn happen_to(&mut self, id: SourceId, event: StreamEvent) {
        self.note(&[15, id as u64], || format!("stream {id}: {event:?}"));
        match event {
            StreamEvent::Request => self.requested(id),
            StreamEvent::Answer(made) => self.answered(id, made),
            StreamEvent::Arrival => self.arrived(id),
            StreamEvent::Reset(why) => self.break_off(id, why),
        }
    }

    /// Returns whether nothing passes between the ends now. If so, tries `event` again later, unless it was
    /// tried too often already.
    fn is_cut(&mut self, id: SourceId, event: StreamEvent) -> bool {
        let now = self.net.now();
        let Some(end) = self.end_of(id) else { return true };
        let (local, remote) = (end.local, end.remote);
        let cut = self.net.path(host(local), host(remote)).cut_until > now;
        let paused = self.processes.get(host(remote)).is_none_or(|machine| !machine.alive);
        if !cut && !paused {
            return false;
        }
        self.try_again(id, event);
        true
    }

    fn try_again(&mut self, id: SourceId, event: StreamEvent) {
        let Some(end) = self.end_of(id) else { return };
        end.tries += 1;
        let tries = end.tries;
        if tries > MAX_TRIES {
            return self.break_off(id, ErrorKind::TimedOut);
        }
        self.net.after(RETRANSMIT_AFTER << tries.min(7), Due::Stream(id, event));
    }

    fn requested(&mut self, id: SourceId) {
        let Some(End { local, remote, state: Connection::Connecting, .. }) = self.end_of(id) else { return };
        let (local, remote) = (*local, *remote);
        if self.is_cut(id, StreamEvent::Request) {
            return;
        }
        let takes = self.transit(remote, local);
        let Some(listener) = self.sources.listeners.get(&remote).copied() else {
            return self.net.after(takes, Due::Stream(id, StreamEvent::Answer(false)));
        };
        let process = self.sources.all[listener].process;
        let accepted = self.add_end(process, remote, local);
        if let Some(end) = self.end_of(accepted) {
            (end.peer, end.state) = (Some(id), Connection::Open);
        }
        if let Some(end) = self.end_of(id) {
            end.peer = Some(accepted);
        }
        if let Kind::Listener { backlog, .. } = &mut self.sources.all[listener].kind {
            backlog.push_back(accepted);
        }
        self.wake_source(listener);
        self.net.after(takes, Due::Stream(id, StreamEvent::Answer(true)));
    }

    fn answered(&mut self, id: SourceId, made: bool) {
        if !made {
            return self.break_off(id, ErrorKind::ConnectionRefused);
        }
        let Some(end) = self.end_of(id) else { return };
        if end.state == Connection::Connecting {
            (end.state, end.tries) = (Connection::Open, 0);
        }
        let closed = end.write_closed;
        self.wake_source(id);
        if closed {
            self.break_peer(id);
        }
    }

    /// Delivers the first segment that `id` sent to its peer.
    fn arrived(&mut self, id: SourceId) {
        let Some(End { peer: Some(peer), outgoing, .. }) = self.end_of(id) else { return };
        let peer = *peer;
        if outgoing.is_empty() || self.is_cut(id, StreamEvent::Arrival) {
            return;
        }
        let Some(end) = self.end_of(id) else { return };
        end.tries = 0;
        let Some(segment) = end.outgoing.pop_front() else { return };
        if let Some(next) = end.outgoing.front().map(|next| next.at) {
            self.net.at(next, Due::Stream(id, StreamEvent::Arrival));
        }
        let Some(other) = self.end_of(peer) else {
            // The process was restarted, and knows nothing of the connection.
            return self.reset_later(id, 0, ErrorKind::ConnectionReset);
        };
        if other.state == Connection::Connecting {
            other.state = Connection::Open;
        }
        match segment.what {
            What::End => other.ended = true,
            What::Bytes(_) if other.read_closed => {
                return self.reset_later(id, 0, ErrorKind::ConnectionReset);
            }
            What::Bytes(bytes) => other.incoming.extend_from_slice(&bytes),
        }
        self.wake_source(peer);
    }

    pub(in crate::sim) fn error_of(&mut self, id: SourceId) -> Option<ErrorKind> {
        match self.end_of(id)?.state {
            Connection::Broken(why) => Some(why),
            Connection::Connecting | Connection::Open => None,
        }
    }

    pub(in crate::sim) fn peer_state(&mut self, id: SourceId) -> PeerState {
        let Some(end) = self.end_of(id) else { return PeerState::Gone };
        match end.state {
            Connection::Broken(_) => PeerState::Gone,
            _ if !end.ended => PeerState::Open,
            _ if end.incoming.is_empty() => PeerState::Ended,
            _ => PeerState::Gone,
        }
    }

    /// Returns what a source is ready for.
    pub(in crate::sim) fn readiness(&mut self, id: SourceId) -> Interest {
        let both = Interest { read: true, write: true };
        match &self.sources.all[id].kind {
            Kind::Alarm(set) => Interest { read: *set, write: true },
            Kind::Listener { backlog, .. } => Interest { read: !backlog.is_empty(), write: false },
            Kind::Closed => both,
            Kind::Stream(end) => match end.state {
                Connection::Connecting => Interest::default(),
                Connection::Broken(_) => both,
                Connection::Open => Interest {
                    read: !end.incoming.is_empty() || end.ended || end.read_closed,
                    write: end.has_room() || end.write_closed,
                },
            },
        }
    }

    /// Adds a waiting thread to a source.
    pub(in crate::sim) fn await_source(&mut self, id: SourceId, ticket: Ticket) {
        enlist(&self.threads, &mut self.sources.all[id].waiters, ticket);
    }

    fn wake_source(&mut self, id: SourceId) {
        let waiters = std::mem::take(&mut self.sources.all[id].waiters);
        self.wake_all(waiters);
    }
}
