//! Accesses to memory: calls that the receiving worker executes itself. It executes them at once, and queues
//! them only if too many came together.
//!
//! As in Thekkath, Levy & Lazowska 1994, section 3, the exporter's process schedules no thread for them.
//! Accesses are short, never wait, and are executed even while every worker is busy.

use std::borrow::Cow;
use std::net::SocketAddr;

use farcall_proto::server::{CallKey, Finish, Incoming, Reading, SHORT, Transmit};
use farcall_proto::{Failure, Kind, READINGS, Ran, Time};

use super::caller::Caller;
use super::finish::finish;
use super::{Core, counter_segment};
use crate::CallFailed;
use crate::fair::{FairQueue, Waits};
use crate::host::Host;
use crate::stub::Dispatched;
use crate::xdr::{Decoder, Encoder};

/// A waiting access.
struct Waiting {
    from: SocketAddr,
    incoming: Incoming<'static>,
    /// The length of the access's result in bytes, if the access waits for room for the result; otherwise 0.
    result: usize,
}

impl Waits for Waiting {
    type Caller = Caller;
    type Key = CallKey;

    fn key(&self) -> CallKey {
        self.incoming.key
    }

    fn payer(&self) -> Host {
        Host::at(self.from.ip())
    }

    fn caller(&self) -> Caller {
        Caller::Conversation(self.incoming.key.conversation)
    }

    fn bytes(&self) -> usize {
        self.incoming.args.len()
    }
}

/// The waiting accesses. The backlog is bounded, because one datagram can ask for a thousand results of 1 MiB
/// that its client never fetches. Networks take turns, then their hosts, then the conversations of a host.
pub(super) struct Backlog {
    /// Accesses that wait for their turn.
    turn: FairQueue<Waiting>,
    /// Accesses that wait until the results of other accesses have been fetched and leave room for theirs.
    room: FairQueue<Waiting>,
    /// Set if, at the last search, no access in `room` could run yet.
    blocked: bool,
    /// The bytes that accesses have copied since the worker last turned to another datagram.
    bytes_done: usize,
    /// Whether a worker is draining the backlog.
    is_draining: bool,
}

impl Default for Backlog {
    fn default() -> Backlog {
        let [turn, room] =
            [(); 2].map(|()| FairQueue::new(Backlog::MAX_WAITING, Backlog::MAX_ARGUMENT_BYTES));
        Backlog { turn, room, blocked: false, bytes_done: 0, is_draining: false }
    }
}

impl Backlog {
    /// The most accesses in either queue.
    const MAX_WAITING: usize = 4096;
    /// The most bytes of arguments in either queue.
    const MAX_ARGUMENT_BYTES: usize = 64 << 20;
    /// Accesses are executed at once until they have copied this many bytes; the access that exceeds it is
    /// the last.
    const MAX_BYTES_AT_ONCE: usize = 1 << 20;
    /// The fixed cost of an access, expressed in bytes. It is added to the bytes that the access copies.
    const BYTES_PER_ACCESS: usize = 256;
    /// The most hosts that one search looks at for an access that has room.
    const MAX_HOSTS_LOOKED_AT: usize = 8;

    /// Begins to count anew towards [`Backlog::MAX_BYTES_AT_ONCE`], because the worker turns to another
    /// datagram.
    pub(super) fn begin(&mut self) {
        self.bytes_done = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turn.is_empty() && self.room.is_empty()
    }

    /// Returns whether this worker is to drain the backlog. `did` says whether this worker has been the
    /// draining worker so far. One worker drains at a time, and none drains while there is no room for any of
    /// the results.
    #[inline]
    pub(super) fn may_drain(&mut self, did: bool) -> bool {
        if did || !self.is_draining {
            self.is_draining = !self.turn.is_empty() || !self.room.is_empty() && !self.blocked;
            return self.is_draining;
        }
        false
    }

    /// Returns whether an access may be executed now.
    fn may_go_on(&self) -> bool {
        self.bytes_done < Backlog::MAX_BYTES_AT_ONCE
    }

    /// Counts an access that copied `bytes` bytes.
    fn did(&mut self, bytes: usize) {
        self.bytes_done += Backlog::BYTES_PER_ACCESS + bytes;
    }

    /// Queues an access for its turn or, if `result` is not 0, for room for a result of that many bytes.
    /// Returns the accesses for which the queue has no room.
    fn add(&mut self, from: SocketAddr, incoming: Incoming<'static>, result: usize) -> Vec<Waiting> {
        let queue = if result == 0 { &mut self.turn } else { &mut self.room };
        queue.push(Waiting { from, incoming, result }, false)
    }

    /// Takes out the next access that may be executed now.
    fn next(&mut self, has_room: impl FnMut(&SocketAddr, usize) -> bool) -> Option<Waiting> {
        if !self.may_go_on() {
            // The next call of this function searches again.
            self.blocked = false;
            return None;
        }
        self.blocked = !self.room.is_empty() && !self.finds_room(has_room);
        if self.blocked { None } else { self.room.pop() }.or_else(|| self.turn.pop())
    }

    /// Finds a host whose first access in `room` has room now, and gives it the turn. Returns whether there
    /// is one.
    fn finds_room(&mut self, mut has_room: impl FnMut(&SocketAddr, usize) -> bool) -> bool {
        self.room.turn_to(Backlog::MAX_HOSTS_LOOKED_AT, |first| has_room(&first.from, first.result))
    }

    fn remove(&mut self, key: CallKey) -> Option<Incoming<'static>> {
        let caller = Caller::Conversation(key.conversation);
        let removed = self.turn.remove(caller, key).or_else(|| self.room.remove(caller, key))?;
        Some(removed.incoming)
    }
}

impl Core {
    /// Executes an arriving access, or queues it if other accesses of its host wait or if enough were
    /// executed at once. A result that fits `out` is written into it.
    pub(super) fn access_in_turn(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if !self.backlog.turn.has_any_of(Host::at(from.ip())) && self.backlog.may_go_on() {
            return self.access_if_room(now, from, incoming, out, reply);
        }
        self.put_off(now, from, incoming.into_owned(), 0);
        None
    }

    /// Queues an access for its turn or, if `result` is not 0, until a result of that many bytes may be kept.
    /// Refuses accesses for which the queue has no room.
    fn put_off(&mut self, now: Time, from: SocketAddr, incoming: Incoming<'static>, result: usize) {
        for lacking in self.backlog.add(from, incoming, result) {
            let full = Failure::new(Kind::Overloaded, Ran::No).with_detail("too many accesses wait");
            self.end_access(now, lacking.incoming, full);
        }
    }

    /// Executes as many waiting accesses as may run before other calls are served.
    pub(super) fn catch_up(&mut self, now: Time, reply: &mut Vec<u8>) {
        while let Some(Waiting { from, incoming, result }) =
            self.backlog.next(|from, result| self.protocol.has_room(now, from, result))
        {
            match result {
                0 => self.access_if_room(now, from, incoming, &mut [], reply),
                _ => self.access(now, from, incoming, &mut [], reply),
            };
        }
    }

    /// Returns whether an access that waited for room has it now. If not, the protocol has set a timer, at
    /// which the watchdog calls this again.
    pub(super) fn has_room_again(&mut self, now: Time) -> bool {
        self.backlog.finds_room(|from, result| self.protocol.has_room(now, from, result))
    }

    /// Executes an access whose turn it is, or queues it until there is room for its result: a long result is
    /// kept until its caller has fetched it, which may never happen.
    fn access_if_room(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let exported = self
            .exports
            .find(incoming.export)
            .or_else(|| counter_segment::find(&self.counter_segment, incoming.export));
        let memory = exported.and_then(|exported| exported.memory());
        let result = memory.map_or(0, |memory| memory.result_bytes(incoming.procedure, &incoming.args));
        if result > SHORT
            && (self.backlog.room.has_any_of(Host::at(from.ip()))
                || !self.protocol.has_room(now, &from, result))
        {
            self.put_off(now, from, incoming.into_owned(), result);
            return None;
        }
        self.access(now, from, incoming, out, reply)
    }

    /// Ends a waiting access that its caller has given up. Returns whether it was waiting; then it never
    /// runs.
    pub(super) fn give_up_access(&mut self, now: Time, key: CallKey) -> bool {
        let Some(incoming) = self.backlog.remove(key) else { return false };
        self.end_access(now, incoming, Failure::new(Kind::Cancelled, Ran::No));
        true
    }

    #[cold]
    pub(super) fn end_access(&mut self, now: Time, incoming: Incoming<'static>, why: Failure) {
        let ran = if incoming.again { Ran::Yes } else { why.ran };
        self.protocol.finish(now, incoming.key, Failure { ran, ..why }.into(), &mut Vec::new(), &mut []);
        if let Cow::Owned(arguments) = incoming.args {
            self.protocol.recycle(arguments);
        }
    }

    /// Executes a reading: an access that changes nothing, and whose result is not kept
    /// (docs/memory-protocol.md, 3). Writes the datagram that answers it into `out`.
    /// Returns `None` if the reading is to be executed as an ordinary call, or if the datagram is no reading.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        now: Time,
        from: &SocketAddr,
        reading: Reading<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let exports = &self.exports;
        self.protocol.answer_reading(now, from, reading, out, |reading, room| {
            let exported = exports.find(reading.export)?;
            exported.check_access(reading.principal.as_deref(), None, reading.procedure).ok()?;
            let principal = reading.principal.as_deref();
            let len = exported.memory()?.read(principal, reading.procedure, reading.args, room)?;
            exported.count_access();
            Some(len)
        })
    }

    /// Executes an access in the ordinary way: its result is kept until the client acknowledges it. The
    /// result's datagram is written into `out`, to be sent at once; if `out` has no room, it leaves with the
    /// next datagrams.
    #[inline(never)]
    pub(super) fn access(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Incoming { key, export, procedure, principal, again, args, .. } = incoming;
        reply.clear();
        let exported = match self.exports.find(export) {
            None => {
                if procedure >= READINGS {
                    self.write_down(now, export);
                }
                counter_segment::find(&self.counter_segment, export)
            }
            exported => exported,
        };
        let finish: Finish = match exported.map(|exported| (exported, exported.memory())) {
            Some((exported, Some(_)))
                if let Err(why) = exported.check_access(principal.as_deref(), None, procedure) =>
            {
                let ran = if again { Ran::Yes } else { Ran::No };
                finish(Dispatched::Failed(CallFailed::new(why.kind(), ran).because(why.detail().to_owned())))
            }
            Some((exported, Some(memory))) => {
                exported.count_access();
                (self.accessor.from, self.accessor.principal) = (Some(from), principal);
                let by = &mut self.accessor;
                finish(memory.access(by, procedure, &mut Decoder::new(&args), &mut Encoder::new(reply)))
            }
            Some((_, None)) => finish(Dispatched::NoSuchProcedure),
            // The export was withdrawn while the access waited.
            None => {
                Failure::new(self.protocol.why_not_exported(export), if again { Ran::Yes } else { Ran::No })
                    .into()
            }
        };
        self.backlog.did(args.len() + reply.len());
        let answer = self.protocol.finish(now, key, finish, reply, out);
        if let Cow::Owned(arguments) = args {
            self.protocol.recycle(arguments);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use farcall_proto::client::{Call, CallId, Conversation, Event, Outcome};
    use farcall_proto::{BASE_DATAGRAM, ClientConfig, fuzzing};

    use super::*;
    use crate::Runtime;
    use crate::memory::{Rights, Segment, Settings};

    fn access(sequence: u64, bytes: usize) -> (SocketAddr, Incoming<'static>) {
        let key = CallKey { conversation: 1, activity: 2, sequence };
        let args = Cow::Owned(vec![0; bytes]);
        let incoming = Incoming {
            key,
            export: 3,
            procedure: READINGS,
            deadline: None,
            trace: None,
            principal: None,
            again: false,
            args,
        };
        (SocketAddr::from(([127, 0, 0, 1], 1)), incoming)
    }

    #[test]
    fn waiting_accesses_are_bounded_in_number_and_bytes() {
        for result in [0, 1 << 20] {
            let mut backlog = Backlog::default();
            let add = |backlog: &mut Backlog, sequence, bytes| {
                let (from, incoming) = access(sequence, bytes);
                backlog.add(from, incoming, result).is_empty()
            };
            assert!(add(&mut backlog, 0, Backlog::MAX_ARGUMENT_BYTES));
            assert!(!add(&mut backlog, 1, 4));
            assert!(backlog.remove(access(0, 0).1.key).is_some() && backlog.is_empty());
            let added = (0..2 * Backlog::MAX_WAITING as u64)
                .filter(|sequence| add(&mut backlog, *sequence, 4))
                .count();
            assert_eq!(added, Backlog::MAX_WAITING);
            assert!(
                backlog.remove(access(7, 0).1.key).is_some() && backlog.remove(access(7, 0).1.key).is_none()
            );
            let next = |backlog: &mut Backlog| Some(backlog.next(|_, _| true)?.incoming.key.sequence);
            let order: Vec<u64> = std::iter::from_fn(|| next(&mut backlog)).collect();
            assert!(order.is_sorted() && order.len() == Backlog::MAX_WAITING - 1);
            assert_eq!((backlog.turn.bytes(), backlog.room.bytes(), backlog.is_empty()), (0, 0, true));
        }
    }

    #[test]
    fn a_host_with_many_conversations_leaves_others_their_turn_and_their_place() {
        for result in [0, 1 << 20] {
            let mut backlog = Backlog::default();
            for conversation in 0..Backlog::MAX_WAITING as u64 {
                let (from, mut incoming) = access(conversation, 4);
                incoming.key.conversation = conversation;
                assert!(backlog.add(from, incoming, result).is_empty());
            }
            let (_, mut other) = access(9999, 4);
            other.key.conversation = 9999;
            let lacking = backlog.add(SocketAddr::from(([127, 0, 0, 2], 1)), other, result);
            let lacking: Vec<u64> = lacking.iter().map(|lacking| lacking.incoming.key.sequence).collect();
            assert_eq!(
                lacking,
                [Backlog::MAX_WAITING as u64 - 1],
                "the newest access of the host that has most"
            );
            let first_two = [(); 2].map(|()| backlog.next(|_, _| true).unwrap().incoming.key.sequence);
            assert!(first_two.contains(&9999), "{first_two:?}");
        }
    }

    #[test]
    fn a_network_with_many_hosts_leaves_others_their_turn_and_their_place() {
        for result in [0, 1 << 20] {
            let mut backlog = Backlog::default();
            let mut add = |from: [u8; 4], number: u64| {
                let (_, mut incoming) = access(number, 4);
                incoming.key.conversation = number;
                let lacking = backlog.add(SocketAddr::from((from, 1)), incoming, result);
                lacking.iter().map(|lacking| lacking.incoming.key.sequence).collect::<Vec<u64>>()
            };
            let most = Backlog::MAX_WAITING as u64;
            for number in 0..most {
                assert!(add([10, 0, (number >> 8) as u8, number as u8], number).is_empty());
            }
            assert_eq!(add([10, 1, 0, 1], 9999), [most - 1], "the newest of the network that has most");
            assert_eq!(add([10, 0, 99, 99], 8888), [8888], "a further host takes no place of others");
            let first_two = [(); 2].map(|()| backlog.next(|_, _| true).unwrap().incoming.key.sequence);
            assert!(first_two.contains(&9999), "{first_two:?}");
        }
    }

    #[test]
    fn a_host_for_whose_results_there_is_no_room_holds_up_no_other() {
        let at = |host| SocketAddr::from(([10, 0, 0, host], 1));
        let mut backlog = Backlog::default();
        for (host, sequence) in [(6, 1), (6, 2), (1, 3), (6, 4)] {
            let (_, mut incoming) = access(sequence, 4);
            incoming.key.conversation = host.into();
            assert!(backlog.add(at(host), incoming, 1 << 20).is_empty());
        }
        let mut next = || Some(backlog.next(|from, _| *from == at(1))?.incoming.key.sequence);
        assert_eq!((next(), next()), (Some(3), None));
        assert!(!backlog.may_drain(false) && !backlog.is_empty());
    }

    #[test]
    fn an_access_without_room_holds_up_no_other_and_no_worker() {
        let mut backlog = Backlog::default();
        for (sequence, result) in [(1, 1 << 20), (2, 0), (3, 1 << 20)] {
            let (from, incoming) = access(sequence, 4);
            assert!(backlog.add(from, incoming, result).is_empty());
        }
        let next = |backlog: &mut Backlog, room| Some(backlog.next(|_, _| room)?.incoming.key.sequence);
        assert_eq!((next(&mut backlog, false), next(&mut backlog, false)), (Some(2), None));
        assert!(!backlog.may_drain(false) && !backlog.is_empty());
        assert_eq!(next(&mut backlog, true), Some(1));
        assert!(backlog.may_drain(false));
        assert_eq!((next(&mut backlog, true), next(&mut backlog, true)), (Some(3), None));
        assert!(!backlog.may_drain(true) && backlog.is_empty());
    }

    #[test]
    fn one_mebibyte_and_one_access_are_done_before_others_are_served() {
        let mut backlog = Backlog::default();
        let done_at_once = |backlog: &mut Backlog, bytes| {
            backlog.begin();
            (0..2000)
                .map(|sequence| access(sequence, 0))
                .for_each(|(from, incoming)| drop(backlog.add(from, incoming, 0)));
            let each = |backlog: &mut Backlog| backlog.next(|_, _| true).map(|_| backlog.did(bytes));
            std::iter::from_fn(|| each(backlog)).count()
        };
        assert_eq!(done_at_once(&mut backlog, 1 << 20), 1);
        assert_eq!(done_at_once(&mut backlog, (1 << 20) - Backlog::BYTES_PER_ACCESS - 1), 2);
        assert_eq!(done_at_once(&mut backlog, (64 << 10) - Backlog::BYTES_PER_ACCESS), 16);
        assert!(backlog.may_drain(false) && !backlog.may_drain(false), "by one");
        assert!(backlog.may_drain(true));
        while backlog.turn.pop().is_some() {}
        assert!(!backlog.may_drain(true) && !backlog.may_drain(false));
    }

    /// A client made of the protocol core and a plain socket, so that it can send any frames. It has bound to
    /// a segment of 1 MiB.
    struct Stranger {
        socket: UdpSocket,
        conversation: Conversation,
        export: u64,
        /// Arguments of a reading of the whole segment.
        arguments: Vec<u8>,
        /// The number of the next datagram that is sealed by hand.
        number: u64,
    }

    const SEGMENT_BYTES: usize = 1 << 20;

    impl Stranger {
        fn new(segment: &Segment) -> Stranger {
            let url = segment.url();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(url["udp://".len()..].split('/').next().unwrap()).unwrap();
            let config =
                ClientConfig { max_datagram: BASE_DATAGRAM, loopback: true, ..ClientConfig::default() };
            let conversation = Conversation::new(config, 7);
            let mut stranger =
                Stranger { socket, conversation, export: 0, arguments: Vec::new(), number: 1 << 32 };
            stranger.bind();
            let describes = stranger.start(READINGS + 1);
            stranger.transmit().iter().for_each(|datagram| stranger.send(datagram));
            let generation = stranger.end_of(describes).unwrap();
            stranger.arguments = [&generation[..8], &[0; 8], &(SEGMENT_BYTES as u32).to_be_bytes()].concat();
            stranger
        }

        /// Binds to the export. When the answer is here, the server has received all that was sent before.
        fn bind(&mut self) {
            self.conversation.bind(Time::default(), "Memory/Long", 1);
            self.transmit().iter().for_each(|datagram| self.send(datagram));
            let mut export = None;
            while export.is_none() {
                self.receive(&mut |event| {
                    if let Event::Bound { answer, .. } = event {
                        export = Some(answer.unwrap().export);
                    }
                });
            }
            self.export = export.unwrap();
        }

        fn send(&self, datagram: &[u8]) {
            self.socket.send(datagram).unwrap();
        }

        fn key(&self, CallId { activity, sequence }: CallId) -> CallKey {
            let (holder, _) = self.conversation.expected_proof(&[]).unwrap();
            CallKey { conversation: holder.conversation, activity, sequence }
        }

        fn start(&mut self, procedure: u32) -> CallId {
            let call = Call { export: self.export, procedure, ..Call::default() };
            self.conversation.start(Time::default, &call, &mut self.arguments.clone()).unwrap()
        }

        fn transmit(&mut self) -> Vec<Vec<u8>> {
            let (out, mut datagrams) = (&mut [0; BASE_DATAGRAM], Vec::new());
            while let Some(len) = self.conversation.transmit(Time::default(), out) {
                datagrams.push(out[..len].to_vec());
            }
            datagrams
        }

        fn receive(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
            let datagram = &mut [0; BASE_DATAGRAM];
            let len = self.socket.recv(datagram).unwrap();
            self.conversation.receive(Time::default(), &datagram[..len], sink);
        }

        /// Receives until a call has ended, and returns its outcome.
        fn end_of(&mut self, call: CallId) -> Result<Vec<u8>, Failure> {
            let mut end = None;
            while end.is_none() {
                self.receive(&mut |event| match event {
                    Event::Ended { id, outcome: Outcome::Failed(failure), .. } if id == call => {
                        end = Some(Err(failure));
                    }
                    Event::Ended { id, outcome: Outcome::Result(bytes), .. } if id == call => {
                        end = Some(Ok(bytes.into_owned()));
                    }
                    _ => {}
                });
            }
            end.unwrap()
        }

        /// Sends the frames of several datagrams in one datagram.
        fn send_in_one(&mut self, datagrams: &[Vec<u8>]) {
            let frames: Vec<u8> = datagrams.iter().flat_map(|one| fuzzing::frames(one)).copied().collect();
            let (holder, _) = self.conversation.expected_proof(&[]).unwrap();
            self.number += 1;
            self.send(&fuzzing::seal(holder.conversation, self.number, &frames));
        }
    }

    fn exporter() -> (Runtime, Segment) {
        let runtime = Runtime::builder().registry(crate::names::Memory::new()).shared_memory(false).open();
        let runtime = runtime.build().unwrap();
        let settings = Settings::new(SEGMENT_BYTES).anyone(Rights::ALL);
        let segment = runtime.export_segment("Long", settings).unwrap();
        (runtime, segment)
    }

    #[test]
    fn an_access_and_its_cancel_in_one_datagram_leave_nothing_at_the_server() {
        let (runtime, segment) = exporter();
        let server = runtime.0.server().unwrap();
        let mut stranger = Stranger::new(&segment);
        let access = stranger.start(READINGS);
        let mut datagrams = stranger.transmit();
        stranger.conversation.cancel(Time::default(), access);
        datagrams.extend(stranger.transmit());
        assert_eq!(datagrams.len(), 2, "the call, and its cancel");
        stranger.send_in_one(&datagrams);
        assert_eq!(stranger.end_of(access).unwrap_err().kind, Kind::Cancelled);
        let core = server.lock();
        assert!(core.cancelled.is_empty() && !server.any_cancelled());
        assert_eq!((core.protocol.unfinished(), core.backlog.is_empty()), (0, true));
    }

    #[test]
    fn accesses_that_are_given_up_make_room_for_those_of_the_same_datagram() {
        let (runtime, segment) = exporter();
        let server = runtime.0.server().unwrap();
        let [mut stranger, mut other] = [(); 2].map(|()| Stranger::new(&segment));
        // No client fetches the results, so most accesses wait for room. The last of them find the queue
        // full.
        let accesses: Vec<CallId> =
            (0..Backlog::MAX_WAITING + 512).map(|_| stranger.start(READINGS)).collect();
        for datagrams in stranger.transmit().chunks(32) {
            datagrams.iter().for_each(|datagram| stranger.send(datagram));
            other.bind();
        }
        while !server.lock().backlog.turn.is_empty() {
            other.bind();
        }
        let refused = |kind: Kind| server.lock().protocol.stats().refused[usize::from(kind.code())];
        assert!(refused(Kind::Overloaded) > 0, "the queue is full");
        let before = refused(Kind::Overloaded);
        let new = stranger.start(READINGS);
        let mut datagrams = stranger.transmit();
        let given_up = accesses[Backlog::MAX_WAITING / 2];
        stranger.conversation.cancel(Time::default(), given_up);
        datagrams.extend(stranger.transmit());
        stranger.send_in_one(&datagrams);
        other.bind();
        let waits = |call| server.lock().backlog.remove(stranger.key(call)).is_some();
        assert_eq!((waits(given_up), waits(new), refused(Kind::Overloaded)), (false, true, before));
    }
}
