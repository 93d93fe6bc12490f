//! A model of calls through shared memory: the two halves of `farcall-shm`, interleaved by a seed.
//!
//! The halves are the very code that the driver uses, over one memory. What stands around them in the driver
//! (threads, Unix sockets, the word that a connection closed) is modelled here: each step of a caller's or a
//! server's thread is an event, either process may die or be cut off between two of them, and what a caller
//! says of a call follows docs/shared-memory.md ("What is true").

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::{Kind, Ran};
use farcall_shm::{
    Caller, Emptier, FETCHED, INLINE, LANES, Lane, PART, Page, Request, Server, Status, Taker, Ticket,
};

use crate::oracle::Violation;
use crate::rng::{Rng, mix};

/// A rule of shared memory that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A caller says `No` of a request that was taken when its server died.
    TakenIgnored,
    /// A slot whose request was given up is used again before it is answered.
    SlotUsedAgain,
    /// A cancelled call gives its caller the result that comes later.
    LateResult,
    /// A server goes on taking requests when its caller has seen it close the connection.
    TakesAfterClose,
    /// A server does not notice that a lane has a new use.
    LaneNotRenewed,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 5] = [
        Rule::TakenIgnored,
        Rule::SlotUsedAgain,
        Rule::LateResult,
        Rule::TakesAfterClose,
        Rule::LaneNotRenewed,
    ];

    /// What `--break` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::TakenIgnored => "shm-taken-ignored",
            Rule::SlotUsedAgain => "shm-slot-used-again",
            Rule::LateResult => "shm-late-result",
            Rule::TakesAfterClose => "shm-takes-after-close",
            Rule::LaneNotRenewed => "shm-lane-not-renewed",
        }
    }
}

/// What is known of a run when it has ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Calls made.
    pub calls: u64,
    /// Executions.
    pub executed: u64,
    /// Calls that returned.
    pub returned: u64,
    /// Calls that failed and were said not to have run.
    pub no: u64,
    /// Calls that failed and may have run.
    pub maybe: u64,
    /// Processes that died.
    pub deaths: u64,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// A hash of everything that happened.
    pub trace_hash: u64,
}

/// Runs `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, broken: Option<Rule>) -> Report {
    let mut model = Model::new(seed, broken);
    // Each step of a thread takes one; a call needs about six.
    for _ in 0..calls.saturating_mul(40) {
        if model.records.len() as u64 >= calls {
            break;
        }
        model.step();
    }
    model.settle();
    model.report()
}

/// What a server says of a call that it refuses: it did not run.
const REFUSED: u8 = 0;

/// One call, as everybody together knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    len: usize,
    executed: u32,
    /// Bytes of the result.
    result: usize,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Returned,
    Failed(Ran),
    /// Its caller died.
    Abandoned,
}

/// A call that its caller waits for.
#[derive(Clone, Copy)]
struct Waiting {
    id: usize,
    slot: usize,
    cancelled: bool,
}

/// How far a call is at its caller.
enum Stage {
    /// Arguments go into the lane.
    Filling(Lane, Vec<u8>),
    /// The request was made. (Its lane is kept until it is answered, as the driver does.)
    Asked(Ticket, Option<Lane>),
    /// The result is long, and what the slot does not hold is fetched by parts.
    Fetching { ticket: Ticket, lane: Lane, body: Vec<u8>, len: usize, expected: usize },
}

/// What a server does with a call.
struct Work {
    id: usize,
    slot: usize,
    number: u64,
    running: bool,
}

/// One connection: both halves, and what each process keeps.
struct Connection {
    caller: Arc<Caller>,
    waiting: Vec<(Waiting, Stage)>,
    server: Server,
    taker: Taker,
    emptiers: [Emptier; LANES],
    /// Arguments that came by each lane.
    emptied: Vec<Vec<u8>>,
    work: VecDeque<Work>,
    /// The whole results of slots whose results are long.
    kept: Vec<(usize, Vec<u8>)>,
    server_lives: bool,
    /// The caller has seen that the server closed it.
    closed: bool,
}

impl Connection {
    fn new() -> Connection {
        let page = Page::alone();
        let server = Server::new(page.clone());
        Connection {
            caller: Arc::new(Caller::new(page)),
            waiting: Vec::new(),
            emptiers: server.emptiers(),
            server,
            taker: Taker::new(),
            emptied: vec![Vec::new(); LANES],
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
    records: Vec<Record>,
    /// Chances in a million, drawn for the seed.
    death: u32,
    cancel: u32,
    long: u32,
    /// Calls that one caller makes at once, at most.
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
            long: rng.pick(&[0, 10_000, 200_000]),
            open: rng.spread(1, 300) as usize,
            rng,
            broken,
            connection: Connection::new(),
            records: Vec::new(),
            settling: false,
            report: Report::default(),
        }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        let at = self.records.len() as u64;
        self.report.violation.get_or_insert(Violation { rule, at, what });
    }

    fn trace(&mut self, what: u64, id: usize) {
        self.report.trace_hash = mix(self.report.trace_hash ^ mix(what << 32 ^ id as u64));
    }

    /// One thread of one process goes one step on.
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
            self.violated(
                "slot-is-free",
                format!("slot {slot} is used again while its last request is served"),
            );
        }
        let len =
            if self.rng.chance(self.long) { self.rng.spread(INLINE as u64, 3 * PART as u64) } else { 64 }
                as usize;
        let id = self.records.len();
        let arguments = content(id, len);
        self.trace(1, id);
        self.records.push(Record { len, ..Record::default() });
        let lane = if len > INLINE { self.connection.caller.lane(Duration::ZERO) } else { None };
        let stage = match lane {
            Some(lane) => Stage::Filling(lane, arguments),
            None if len > INLINE => {
                self.connection.caller.release(slot);
                return self.ended(id, Ended::Failed(Ran::No));
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
            Stage::Filling(lane, rest) => self.fill(waiting, lane, rest),
            Stage::Asked(ticket, lane) => self.ask(&mut waiting, ticket, lane),
            Stage::Fetching { ticket, lane, body, len, expected } => {
                self.take_part(waiting, ticket, lane, (body, len, expected))
            }
        };
        if let Some(stage) = next {
            self.connection.waiting.push((waiting, stage));
        }
    }

    // Each of these is a step of a call at its caller, and gives the next stage; nothing when the call has
    // ended.

    fn fill(
        &mut self,
        Waiting { id, slot, .. }: Waiting,
        mut lane: Lane,
        mut rest: Vec<u8>,
    ) -> Option<Stage> {
        // (A deadline may pass before the call is made; what is in the lane is of no call then.)
        if self.connection.closed || self.rng.chance(self.cancel) {
            self.connection.caller.release(slot);
            self.ended(id, Ended::Failed(Ran::No));
            return None;
        }
        let most = self.rng.within(1, PART as u64) as usize;
        let taken = lane.put(&rest[..rest.len().min(most)]);
        rest.drain(..taken);
        if rest.len() > INLINE {
            return Some(Stage::Filling(lane, rest));
        }
        let ticket = self.connection.caller.call(slot, &call(), &rest, Some(&mut lane));
        Some(Stage::Asked(ticket, Some(lane)))
    }

    fn ask(&mut self, waiting: &mut Waiting, ticket: Ticket, lane: Option<Lane>) -> Option<Stage> {
        if self.connection.caller.is_answered(ticket) {
            return self.answered(*waiting, ticket);
        }
        if self.connection.closed {
            let taken = self.connection.caller.is_taken(ticket) && !self.breaks(Rule::TakenIgnored);
            self.ended(waiting.id, Ended::Failed(if taken { Ran::Maybe } else { Ran::No }));
            return None;
        }
        if !waiting.cancelled && self.rng.chance(self.cancel) {
            waiting.cancelled = true;
            self.connection.caller.give_up(ticket);
            // A caller waits for the server's word, or does not.
            if self.rng.chance(500_000) {
                self.leave(waiting.slot, ticket);
                self.ended(waiting.id, Ended::Failed(Ran::Maybe));
                return None;
            }
        }
        Some(Stage::Asked(ticket, lane))
    }

    fn take_part(
        &mut self,
        Waiting { id, slot, .. }: Waiting,
        ticket: Ticket,
        mut lane: Lane,
        (mut body, len, expected): (Vec<u8>, usize, usize),
    ) -> Option<Stage> {
        if !self.connection.caller.is_answered(ticket) {
            if self.connection.closed {
                self.ended(id, Ended::Failed(Ran::Yes));
                return None;
            }
            return Some(Stage::Fetching { ticket, lane, body, len, expected });
        }
        if !self.connection.caller.is_part(ticket) {
            self.violated("result-is-the-executions", format!("of call {id} a part is lacking"));
        }
        lane.drain(part_of(&body), expected, &mut body);
        lane.fetched();
        if body.len() >= len {
            self.connection.caller.release(slot);
            self.returned(id, &body);
            return None;
        }
        Some(self.fetch(slot, lane, body, len))
    }

    /// A call was given up by its caller: its slot is used again when it is answered.
    fn leave(&mut self, slot: usize, ticket: Ticket) {
        if self.breaks(Rule::SlotUsedAgain) {
            self.connection.caller.release(slot);
        } else {
            self.connection.caller.abandon(ticket);
        }
    }

    fn answered(&mut self, waiting: Waiting, ticket: Ticket) -> Option<Stage> {
        let mut body = Vec::new();
        let (status, len) = self.connection.caller.answer(ticket, &mut body);
        let (id, slot, len) = (waiting.id, waiting.slot, len as usize);
        if let Status::Failed { ran, .. } = status {
            self.connection.caller.release(slot);
            self.ended(id, Ended::Failed(if ran == REFUSED { Ran::No } else { Ran::Maybe }));
            return None;
        }
        if waiting.cancelled && !self.breaks(Rule::LateResult) {
            self.connection.caller.release(slot);
            self.ended(id, Ended::Failed(Ran::Maybe));
            return None;
        }
        if waiting.cancelled {
            self.violated("cancelled-gets-nothing", format!("call {id} was cancelled and returned"));
        }
        if len <= INLINE {
            self.connection.caller.release(slot);
            self.returned(id, &body);
            return None;
        }
        match self.connection.caller.lane(Duration::ZERO) {
            Some(lane) => Some(self.fetch(slot, lane, body, len)),
            None => Some(Stage::Asked(ticket, None)),
        }
    }

    fn fetch(&mut self, slot: usize, mut lane: Lane, body: Vec<u8>, len: usize) -> Stage {
        let expected = (len - body.len()).min(PART);
        let ticket = self.connection.caller.fetch(slot, &mut lane, part_of(&body), body.len() as u64);
        Stage::Fetching { ticket, lane, body, len, expected }
    }

    fn returned(&mut self, id: usize, body: &[u8]) {
        let record = self.records[id];
        if record.executed != 1 {
            self.violated(
                "returned-ran-once",
                format!("call {id} returned and was executed {} times", record.executed),
            );
        }
        if body != content(id, record.result) {
            self.violated(
                "result-is-the-executions",
                format!("call {id} has {} bytes that are not its own", body.len()),
            );
        }
        self.ended(id, Ended::Returned);
    }

    fn ended(&mut self, id: usize, ended: Ended) {
        self.trace(2 + ended_code(ended), id);
        match ended {
            Ended::Returned => self.report.returned += 1,
            Ended::Failed(Ran::No) => self.report.no += 1,
            Ended::Failed(_) => self.report.maybe += 1,
            Ended::Abandoned => {}
        }
        if self.records[id].ended.replace(ended).is_some() {
            self.violated("ends-once", format!("call {id} ended twice"));
        }
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
        let Connection { server, taker, emptiers, emptied, .. } = &mut self.connection;
        if !server.has_parts(taker) {
            return;
        }
        for (emptier, emptied) in emptiers.iter_mut().zip(emptied) {
            if emptier.renew() && !not_renewed {
                emptied.clear();
            }
            while emptier.has_part() {
                emptier.take(Some(emptied));
            }
        }
    }

    fn take(&mut self) {
        let not_renewed = self.breaks(Rule::LaneNotRenewed);
        let Connection { server, taker, emptiers, emptied, kept, .. } = &mut self.connection;
        let Some((slot, number)) = server.take(taker) else { return };
        match server.request(slot) {
            Request::Call { len, added, .. } => {
                let mut arguments = Vec::new();
                if let Some(added) = added {
                    let (emptier, emptied) = (&mut emptiers[added.lane], &mut emptied[added.lane]);
                    if emptier.renew() && !not_renewed {
                        emptied.clear();
                    }
                    emptier.finish(added.len, Some(emptied));
                    arguments = std::mem::take(emptied);
                }
                server.arguments(slot, len, &mut arguments);
                kept.retain(|(of, _)| *of != slot);
                self.taken(slot, number, &arguments);
            }
            Request::Fetch { lane, part, offset } => {
                let whole = kept.iter().find(|(of, _)| *of == slot).map_or(&[][..], |(_, whole)| whole);
                let from = whole.get(offset as usize..).unwrap_or_default();
                server.fill(lane, part, &from[..from.len().min(PART)]);
                server.answer(slot, number, Status::Part, &[]);
            }
            Request::Forget => {
                kept.retain(|(of, _)| *of != slot);
                server.answer(slot, number, Status::Part, &[]);
            }
            Request::Nonsense => self.violated("arguments-intact", "an honest caller wrote nonsense".into()),
        }
    }

    fn taken(&mut self, slot: usize, number: u64, arguments: &[u8]) {
        let id = arguments.first_chunk().map_or(usize::MAX, |id| u64::from_be_bytes(*id) as usize);
        if self.records.get(id).is_none_or(|record| arguments != content(id, record.len)) {
            return self.violated(
                "arguments-intact",
                format!("{} bytes of arguments are no call's", arguments.len()),
            );
        }
        self.trace(8, id);
        self.connection.work.push_back(Work { id, slot, number, running: false });
    }

    fn look_for_cancels(&mut self) {
        let Connection { server, taker, work, .. } = &mut self.connection;
        let Some(slot) = server.given_up(taker) else { return };
        // One that is executed is told so, and answers some time.
        let Some(place) = work.iter().position(|work| work.slot == slot && !work.running) else { return };
        let Some(Work { slot, number, .. }) = work.remove(place) else { return };
        server.answer(slot, number, Status::Failed { kind: Kind::Cancelled.code(), ran: REFUSED }, &[]);
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
            self.trace(9, id);
            self.report.executed += 1;
            self.records[id].executed += 1;
            if self.records[id].executed > 1 {
                self.violated("at-most-once", format!("call {id} was executed again"));
            }
            return;
        }
        self.connection.work.remove(place);
        let long = self.rng.chance(self.long);
        let len = if long { self.rng.spread(INLINE as u64, 3 * PART as u64) as usize } else { 32 };
        self.records[id].result = len;
        let result = content(id, len);
        self.connection.server.answer(slot, number, Status::Result, &result);
        if len > INLINE {
            self.connection.kept.push((slot, result));
        }
    }

    // Deaths

    fn server_dies(&mut self) {
        self.report.deaths += u64::from(self.connection.server_lives);
        self.connection.server_lives = false;
        if !self.breaks(Rule::TakesAfterClose) {
            self.connection.work.clear();
        }
    }

    fn caller_dies(&mut self) {
        self.report.deaths += 1;
        for (waiting, _) in std::mem::take(&mut self.connection.waiting) {
            self.ended(waiting.id, Ended::Abandoned);
        }
        self.connection = Connection::new();
    }

    /// The caller whose server died has nothing outstanding any more, and meets its next life.
    fn reconnect(&mut self) {
        let late = self.breaks(Rule::TakesAfterClose) && self.rng.chance(900_000);
        if !self.connection.server_lives && !late {
            self.connection = Connection::new();
        }
    }

    /// No more faults: every call ends.
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
            self.violated("every-call-ends", format!("call {} has not ended", waiting.id));
        }
        if self.connection.server_lives {
            // Requests that were given up are answered, and their slots come back.
            // (Of a long answer the server is told first that nobody wants it.)
            for _ in 0..2 {
                for _ in 0..10_000 {
                    self.server_goes_on();
                }
                self.connection.caller.reclaim();
            }
            let left = self.connection.caller.outstanding();
            if left > 0 {
                self.violated("memory-returns", format!("{left} slots are not free in the end"));
            }
        }
        for (id, record) in self.records.clone().into_iter().enumerate() {
            if record.ended == Some(Ended::Failed(Ran::No)) && record.executed > 0 {
                self.violated("no-means-never", format!("call {id} was said not to have run, and did"));
            }
        }
    }

    fn report(mut self) -> Report {
        self.report.calls = self.records.len() as u64;
        self.report
    }
}

fn call() -> farcall_shm::Call {
    farcall_shm::Call { export: 1, procedure: 2, within: None, trace: None }
}

/// The part of a lane by which what comes after these bytes of a result is fetched.
fn part_of(body: &[u8]) -> usize {
    body.len() / PART % FETCHED
}

/// Bytes that belong to one call alone; they begin with its number.
fn content(id: usize, len: usize) -> Vec<u8> {
    let mut bytes = (id as u64).to_be_bytes().to_vec();
    bytes.extend((8..len.max(8)).map(|at| (at ^ at >> 8 ^ id.wrapping_mul(31)) as u8));
    bytes
}

fn ended_code(ended: Ended) -> u64 {
    match ended {
        Ended::Returned => 0,
        Ended::Failed(Ran::No) => 1,
        Ended::Failed(_) => 2,
        Ended::Abandoned => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_through_shared_memory_keep_their_promises_under_deaths_and_cancels() {
        let mut total = Report::default();
        for seed in 0..100 {
            let report = run(seed, 200, None);
            assert_eq!(report.violation, None, "seed {seed}");
            total.calls += report.calls;
            total.returned += report.returned;
            total.no += report.no;
            total.maybe += report.maybe;
            total.deaths += report.deaths;
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
        for rule in Rule::ALL {
            let caught = (0..300).any(|seed| run(seed, 200, Some(rule)).violation.is_some());
            assert!(caught, "{} is not noticed", rule.name());
        }
    }
}
