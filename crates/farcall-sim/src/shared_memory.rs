//! A model of calls through shared memory: the two ends of `farcall-shm`, interleaved by a seed.
//!
//! Both ends run the driver's own code, over one memory. The rest of the driver (threads, Unix sockets, the
//! notice of a closed connection) is modelled. Each step of a thread is an event. Either process may die or
//! be cut off between two events. The model checks what docs/shared-memory.md ("What is true") promises about
//! each call.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::{Kind, Ran};
use farcall_shm::{
    ArgumentRing, BulkConsumer, CallMemory, Caller, FETCH_PARTS, PART_BYTES, RING_COUNT, Request,
    RequestCursor, RequestId, SLOT_BODY_BYTES, Server, Status,
};

pub use crate::model::Rule;
use crate::model::{Ended, Report, content};
use crate::rng::{Rng, mix};

/// Runs `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, broken: Option<Rule>) -> Report {
    let mut model = Model::new(seed, broken);
    // Each round is one step of a thread; a call needs about six.
    for _ in 0..calls.saturating_mul(40) {
        if model.report.tally.calls >= calls {
            break;
        }
        model.step();
    }
    model.settle();
    model.report
}

/// The code in a server's refusal of a call: the call did not run.
const REFUSED: u8 = 0;

/// The executions of one call: their number, and the length of the last one's result in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Executed {
    times: u32,
    result: usize,
}

/// A call that its caller waits for.
#[derive(Clone, Copy)]
struct Waiting {
    id: usize,
    slot: usize,
    cancelled: bool,
}

/// The stage of a call at its caller.
enum Stage {
    /// The caller writes arguments into the ring.
    Filling(ArgumentRing, Vec<u8>),
    /// The request was made. The call keeps its ring until the answer, as in the driver.
    Asked(RequestId, Option<ArgumentRing>),
    /// The caller fetches a result that is too long for the slot, part by part.
    Fetching { request: RequestId, ring: ArgumentRing, body: Vec<u8>, len: usize, expected: usize },
}

/// A call at the server.
struct Work {
    id: usize,
    slot: usize,
    number: u64,
    running: bool,
    /// Whether the server has found that its caller gave it up.
    told: bool,
}

/// One connection: both ends, and the state of each process.
struct Connection {
    caller: Arc<Caller>,
    waiting: Vec<(Waiting, Stage)>,
    server: Server,
    cursor: RequestCursor,
    consumers: [BulkConsumer; RING_COUNT],
    /// Arguments that arrived by each ring.
    emptied: Vec<Vec<u8>>,
    work: VecDeque<Work>,
    /// The whole results of slots whose results are long.
    kept: Vec<(usize, Vec<u8>)>,
    server_lives: bool,
    /// Whether the caller has seen that the server closed the connection.
    closed: bool,
}

impl Connection {
    fn new() -> Connection {
        let page = CallMemory::alone();
        let server = Server::new(page.clone());
        Connection {
            caller: Arc::new(Caller::new(page)),
            waiting: Vec::new(),
            consumers: server.consumers(),
            server,
            cursor: RequestCursor::new(),
            emptied: vec![Vec::new(); RING_COUNT],
            work: VecDeque::new(),
            kept: Vec::new(),
            server_lives: true,
            closed: false,
        }
    }
}

struct Model {
    rng: Rng,
    broken: Option<Rule>,
    connection: Connection,
    executed: Vec<Executed>,
    /// Calls that their callers gave up.
    given_up: HashSet<usize>,
    /// A slot of which the server has found that its request was given up, and has not acted on that: only if
    /// it breaks [`Rule::CancelLooksLater`].
    cancels_later: Option<usize>,
    /// Chances in parts per million, which the seed draws.
    death: u32,
    cancel: u32,
    withdrawal: u32,
    long: u32,
    /// The most calls that one caller makes at once.
    open: usize,
    settling: bool,
    report: Report,
}

impl Model {
    fn new(seed: u64, broken: Option<Rule>) -> Model {
        let mut rng = Rng::new(mix(seed ^ 0x73_686d));
        Model {
            death: rng.pick(&[0, 500, 5_000, 20_000]),
            cancel: rng.pick(&[0, 10_000, 200_000]),
            withdrawal: rng.pick(&[0, 10_000, 200_000]),
            long: rng.pick(&[0, 10_000, 200_000]),
            open: rng.spread(1, 300) as usize,
            rng,
            broken,
            connection: Connection::new(),
            executed: Vec::new(),
            given_up: HashSet::new(),
            cancels_later: None,
            settling: false,
            report: Report::default(),
        }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    /// Runs one step of one thread.
    fn step(&mut self) {
        if !self.settling && self.rng.chance(self.death) {
            return if self.rng.chance(500_000) { self.server_dies() } else { self.caller_dies() };
        }
        match self.rng.below(8) {
            0 => self.start(),
            1..5 => self.caller_goes_on(),
            _ => self.server_goes_on(),
        }
    }

    // The caller

    fn start(&mut self) {
        let closed = self.connection.closed || !self.connection.server_lives;
        if self.settling || closed || self.connection.waiting.len() >= self.open {
            return;
        }
        let Some(slot) = self.connection.caller.claim() else { return };
        let server_has_it = self.connection.work.iter().any(|work| work.slot == slot);
        if server_has_it {
            self.report.violated(
                "slot-is-free",
                format!("slot {slot} is used again while its last request is served"),
            );
        }
        let len = if self.rng.chance(self.long) {
            self.rng.spread(SLOT_BODY_BYTES as u64, 3 * PART_BYTES as u64)
        } else {
            64
        } as usize;
        let id = self.report.begin(len);
        // The time of this model is the number of calls made.
        self.report.now = self.report.tally.calls;
        self.executed.push(Executed::default());
        let arguments = self.report.arguments(id);
        let ring =
            if len > SLOT_BODY_BYTES { self.connection.caller.argument_ring(Duration::ZERO) } else { None };
        let stage = match ring {
            Some(ring) => Stage::Filling(ring, arguments),
            None if len > SLOT_BODY_BYTES => {
                self.connection.caller.release(slot);
                return self.report.ended(id, Ended::Failed(Ran::No));
            }
            None => Stage::Asked(self.connection.caller.call(slot, &call(), &arguments, None), None),
        };
        self.connection.waiting.push((Waiting { id, slot, cancelled: false }, stage));
    }

    fn caller_goes_on(&mut self) {
        if self.connection.waiting.is_empty() {
            self.reconnect();
            return;
        }
        if !self.connection.server_lives && self.rng.chance(300_000) {
            self.connection.closed = true;
        }
        let place = self.rng.index(self.connection.waiting.len());
        let (mut waiting, stage) = self.connection.waiting.swap_remove(place);
        let next = match stage {
            Stage::Filling(ring, rest) => self.fill(waiting, ring, rest),
            Stage::Asked(request, ring) => self.ask(&mut waiting, request, ring),
            Stage::Fetching { request, ring, body, len, expected } => {
                self.take_part(waiting, request, ring, (body, len, expected))
            }
        };
        if let Some(stage) = next {
            self.connection.waiting.push((waiting, stage));
        }
    }

    // Each of these functions is a step of a call at its caller. It returns the next stage, or `None` when
    // the call has ended.

    fn fill(
        &mut self,
        Waiting { id, slot, .. }: Waiting,
        mut ring: ArgumentRing,
        mut rest: Vec<u8>,
    ) -> Option<Stage> {
        // A deadline may pass before the call is made; then the bytes in the ring belong to no call.
        if self.connection.closed || self.rng.chance(self.cancel) {
            self.connection.caller.release(slot);
            self.report.ended(id, Ended::Failed(Ran::No));
            return None;
        }
        let most = self.rng.within(1, PART_BYTES as u64) as usize;
        let taken = ring.put(&rest[..rest.len().min(most)]);
        rest.drain(..taken);
        if rest.len() > SLOT_BODY_BYTES {
            return Some(Stage::Filling(ring, rest));
        }
        let request = self.connection.caller.call(slot, &call(), &rest, Some(&mut ring));
        Some(Stage::Asked(request, Some(ring)))
    }

    fn ask(
        &mut self,
        waiting: &mut Waiting,
        request: RequestId,
        ring: Option<ArgumentRing>,
    ) -> Option<Stage> {
        if self.connection.caller.is_answered(request) {
            return self.answered(*waiting, request);
        }
        if self.connection.closed {
            let taken = self.connection.caller.is_taken(request) && !self.breaks(Rule::TakenIgnored);
            self.report.ended(waiting.id, Ended::Failed(if taken { Ran::Maybe } else { Ran::No }));
            return None;
        }
        if !waiting.cancelled && self.rng.chance(self.withdrawal) && self.connection.caller.withdraw(request)
        {
            self.connection.caller.abandon(request);
            self.report.ended(waiting.id, Ended::Failed(Ran::No));
            return None;
        }
        if !waiting.cancelled && self.rng.chance(self.cancel) {
            waiting.cancelled = true;
            self.given_up.insert(waiting.id);
            self.connection.caller.give_up(request);
            // After a cancel, some callers wait for the server's answer, and some do not.
            if self.rng.chance(500_000) {
                self.leave(waiting.slot, request);
                self.report.ended(waiting.id, Ended::Failed(Ran::Maybe));
                return None;
            }
        }
        Some(Stage::Asked(request, ring))
    }

    fn take_part(
        &mut self,
        Waiting { id, slot, .. }: Waiting,
        request: RequestId,
        mut ring: ArgumentRing,
        (mut body, len, expected): (Vec<u8>, usize, usize),
    ) -> Option<Stage> {
        if !self.connection.caller.is_answered(request) {
            if self.connection.closed {
                self.report.ended(id, Ended::Failed(Ran::Yes));
                return None;
            }
            return Some(Stage::Fetching { request, ring, body, len, expected });
        }
        if !self.connection.caller.is_part(request) {
            self.report.violated("result-is-the-executions", format!("of call {id} a part is lacking"));
        }
        ring.drain(part_of(&body), expected, &mut body);
        ring.fetched();
        if body.len() >= len {
            self.connection.caller.release(slot);
            self.returned(id, &body);
            return None;
        }
        Some(self.fetch(slot, ring, body, len))
    }

    /// Gives a call up for its caller. The call's slot is used again once the call is answered.
    fn leave(&mut self, slot: usize, request: RequestId) {
        if self.breaks(Rule::SlotUsedAgain) {
            self.connection.caller.release(slot);
        } else {
            self.connection.caller.abandon(request);
        }
    }

    fn answered(&mut self, waiting: Waiting, request: RequestId) -> Option<Stage> {
        let mut body = Vec::new();
        let (status, len) = self.connection.caller.answer(request, &mut body);
        let (id, slot, len) = (waiting.id, waiting.slot, len as usize);
        if let Status::Failed { ran, .. } = status {
            self.connection.caller.release(slot);
            self.report.ended(id, Ended::Failed(if ran == REFUSED { Ran::No } else { Ran::Maybe }));
            return None;
        }
        if waiting.cancelled && !self.breaks(Rule::LateResult) {
            self.connection.caller.release(slot);
            self.report.ended(id, Ended::Failed(Ran::Maybe));
            return None;
        }
        if waiting.cancelled {
            self.report.violated("cancelled-gets-nothing", format!("call {id} was cancelled and returned"));
        }
        if len <= SLOT_BODY_BYTES {
            self.connection.caller.release(slot);
            self.returned(id, &body);
            return None;
        }
        match self.connection.caller.argument_ring(Duration::ZERO) {
            Some(ring) => Some(self.fetch(slot, ring, body, len)),
            None => Some(Stage::Asked(request, None)),
        }
    }

    fn fetch(&mut self, slot: usize, mut ring: ArgumentRing, body: Vec<u8>, len: usize) -> Stage {
        let expected = (len - body.len()).min(PART_BYTES);
        let request = self.connection.caller.fetch(slot, &mut ring, part_of(&body), body.len() as u64);
        Stage::Fetching { request, ring, body, len, expected }
    }

    fn returned(&mut self, id: usize, body: &[u8]) {
        let Executed { times, result } = self.executed[id];
        self.report.returned(id, body, (times == 1).then(|| content(id, result)).as_deref());
    }

    // The server

    fn server_goes_on(&mut self) {
        let late = self.connection.closed && self.breaks(Rule::TakesAfterClose);
        if !self.connection.server_lives && !late {
            return;
        }
        match self.rng.below(4) {
            0 => self.empty_lanes(),
            1 => self.take(),
            2 => self.look_for_cancels(),
            _ => self.work(),
        }
    }

    fn empty_lanes(&mut self) {
        let not_renewed = self.breaks(Rule::LaneNotRenewed);
        let Connection { server, cursor, consumers, emptied, .. } = &mut self.connection;
        if !server.has_parts(cursor) {
            return;
        }
        for (consumer, emptied) in consumers.iter_mut().zip(emptied) {
            if consumer.renew() && !not_renewed {
                emptied.clear();
            }
            while consumer.has_part() {
                consumer.take(Some(emptied));
            }
        }
    }

    fn take(&mut self) {
        let not_renewed = self.breaks(Rule::LaneNotRenewed);
        let withdrawn_runs = self.breaks(Rule::WithdrawnRuns);
        let Connection { server, cursor, consumers, emptied, kept, .. } = &mut self.connection;
        let Some((slot, number)) = server.take(cursor) else { return };
        server.tell_taken(cursor, slot);
        match server.request(slot) {
            Request::Call { len, bulk, .. } => {
                let mut arguments = Vec::new();
                if let Some(bulk) = bulk {
                    let (consumer, emptied) = (&mut consumers[bulk.ring], &mut emptied[bulk.ring]);
                    if consumer.renew() && !not_renewed {
                        emptied.clear();
                    }
                    consumer.finish(bulk.len, Some(emptied));
                    arguments = std::mem::take(emptied);
                }
                server.arguments(slot, len, &mut arguments);
                kept.retain(|(of, _)| *of != slot);
                if server.is_withdrawn(slot) && !withdrawn_runs {
                    let refused = Status::Failed { kind: Kind::Cancelled.code(), ran: REFUSED };
                    return server.answer(slot, number, refused, &[]);
                }
                self.taken(slot, number, &arguments);
            }
            Request::Fetch { ring, part, offset } => {
                let whole = kept.iter().find(|(of, _)| *of == slot).map_or(&[][..], |(_, whole)| whole);
                let from = whole.get(offset as usize..).unwrap_or_default();
                server.fill(ring, part, &from[..from.len().min(PART_BYTES)]);
                server.answer(slot, number, Status::Part, &[]);
            }
            Request::Forget => {
                kept.retain(|(of, _)| *of != slot);
                server.answer(slot, number, Status::Part, &[]);
            }
            Request::Nonsense => {
                self.report.violated("arguments-intact", "an honest caller wrote nonsense".into())
            }
        }
    }

    fn taken(&mut self, slot: usize, number: u64, arguments: &[u8]) {
        let Some(id) = self.report.called(arguments) else { return };
        self.report.trace(8, id);
        self.connection.work.push_back(Work { id, slot, number, running: false, told: false });
    }

    fn look_for_cancels(&mut self) {
        let looks_later = self.breaks(Rule::CancelLooksLater);
        let Connection { server, cursor, work, .. } = &mut self.connection;
        let found = server.given_up(cursor);
        if found.is_none() && !looks_later && !server.has_work(&cursor.seen()) {
            let untold = work.iter().find(|work| self.given_up.contains(&work.id) && !work.told);
            if let Some(Work { id, .. }) = untold {
                self.report.violated("cancels-arrive", format!("call {id} was given up, and is not told"));
            }
        }
        let found = if looks_later { std::mem::replace(&mut self.cancels_later, found) } else { found };
        let Some(place) = found.and_then(|slot| work.iter().position(|work| work.slot == slot)) else {
            return;
        };
        let Work { id, slot, number, running, .. } = work[place];
        if !self.given_up.contains(&id) {
            self.report.violated("cancels-are-their-own", format!("call {id} is told that it was given up"));
        }
        work[place].told = true;
        // A call that executes is told of its cancel, and will be answered later.
        if !running {
            work.remove(place);
            server.answer(slot, number, Status::Failed { kind: Kind::Cancelled.code(), ran: REFUSED }, &[]);
        }
    }

    fn work(&mut self) {
        if self.connection.work.is_empty() {
            return;
        }
        let place = self.rng.index(self.connection.work.len());
        let work = &mut self.connection.work[place];
        let (id, slot, number) = (work.id, work.slot, work.number);
        if !work.running {
            work.running = true;
            self.report.trace(9, id);
            self.report.tally.executed += 1;
            self.executed[id].times += 1;
            if self.executed[id].times > 1 {
                self.report.violated("at-most-once", format!("call {id} was executed again"));
            }
            return;
        }
        self.connection.work.remove(place);
        let long = self.rng.chance(self.long);
        let len =
            if long { self.rng.spread(SLOT_BODY_BYTES as u64, 3 * PART_BYTES as u64) as usize } else { 32 };
        self.executed[id].result = len;
        let result = content(id, len);
        self.connection.server.answer(slot, number, Status::Result, &result);
        if len > SLOT_BODY_BYTES {
            self.connection.kept.push((slot, result));
        }
    }

    // Deaths

    fn server_dies(&mut self) {
        self.report.tally.deaths += u64::from(self.connection.server_lives);
        self.connection.server_lives = false;
        if !self.breaks(Rule::TakesAfterClose) {
            self.connection.work.clear();
        }
    }

    fn caller_dies(&mut self) {
        self.report.tally.deaths += 1;
        for (waiting, _) in std::mem::take(&mut self.connection.waiting) {
            self.report.ended(waiting.id, Ended::Abandoned);
        }
        self.connection = Connection::new();
        self.cancels_later = None;
    }

    /// Connects the caller to the server's next life, after the server died. No call is outstanding any more.
    fn reconnect(&mut self) {
        let late = self.breaks(Rule::TakesAfterClose) && self.rng.chance(900_000);
        if !self.connection.server_lives && !late {
            self.connection = Connection::new();
        }
    }

    /// Ends the faults, and lets every call end.
    fn settle(&mut self) {
        self.settling = true;
        for _ in 0..200_000 {
            let connection = &self.connection;
            if connection.waiting.is_empty() && connection.work.is_empty() {
                break;
            }
            self.step();
        }
        while self.connection.server_lives && !self.connection.waiting.is_empty() {
            let (waiting, _) = self.connection.waiting.remove(0);
            self.report.violated("every-call-ends", format!("call {} has not ended", waiting.id));
        }
        if self.connection.server_lives {
            // The server answers requests that were given up, and their slots become free. First the server
            // is told that a long answer is not wanted.
            for _ in 0..2 {
                for _ in 0..10_000 {
                    self.server_goes_on();
                }
                self.connection.caller.reclaim();
            }
            let left = self.connection.caller.outstanding();
            if left > 0 {
                self.report.violated("memory-returns", format!("{left} slots are not free in the end"));
            }
        }
        self.report.judge(|id| self.executed[id].times > 0);
    }
}

fn call() -> farcall_shm::Call {
    farcall_shm::Call { export: 1, procedure: 2, within: None, trace: None }
}

/// Returns the number, within the ring, of the part that follows the bytes in `body`.
fn part_of(body: &[u8]) -> usize {
    body.len() / PART_BYTES % FETCH_PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tally;

    #[test]
    fn calls_through_shared_memory_keep_their_promises_under_deaths_and_cancels() {
        let mut total = Tally::default();
        for seed in 0..100 {
            let report = run(seed, 200, None);
            assert_eq!(report.violation, None, "seed {seed}");
            total.add(&report.tally);
        }
        println!("{total:?}");
        assert!(total.calls >= 15_000 && total.returned > total.calls / 4);
        assert!(total.no > 0 && total.maybe > 0 && total.deaths > 0);
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        assert_eq!(run(7, 300, None).trace_hash, run(7, 300, None).trace_hash);
    }

    #[test]
    fn every_broken_rule_of_shared_memory_is_noticed() {
        for (rule, name) in Rule::all().filter(|(_, name)| name.starts_with("shm-")) {
            let caught = (0..300).any(|seed| run(seed, 200, Some(rule)).violation.is_some());
            assert!(caught, "{name} is not noticed");
        }
    }
}
