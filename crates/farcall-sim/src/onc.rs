//! A model of ONC RPC (RFC 5531) over UDP and TCP: what decides in `farcall-onc`'s clients and servers, in a
//! seeded network.
//!
//! The model runs the drivers' own code. Of a client it runs the part that knows which calls are under way,
//! whose reply a message is, what is sent again, and what follows from a stream that ended or a port that is
//! refused. Of a server it runs the memory of earlier calls. Of both it runs record marking and the messages.
//! The rest is modelled: datagrams that are lost, duplicated, late and refused; streams that are cut into
//! parts, reset, closed from one side, or silently dead; servers that die and come back with an empty memory,
//! and sometimes without the program; clients that die, and clients that send a call once more on another
//! connection. What must be true follows docs/onc.md ("What is promised").

mod callee;
mod caller;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use farcall::env::Time;
use farcall_onc::model::{Calls, Line, Remembered};
use farcall_onc::wire::record::{Limits, Records};

use crate::model::{Ended, Report, content};
use crate::net::{MILLIS, Nanos, SECS};
use crate::rng::Rng;
use callee::Callee;
use caller::Caller;

/// A rule of ONC RPC that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A server executes a call that it remembers.
    DuplicateRuns,
    /// A server takes a call that is repeated on another connection for a new call, whatever became of the
    /// first connection.
    ConnectionForgets,
    /// A client takes any reply for that to its oldest call.
    RepliesMixed,
    /// That nobody takes its datagrams says that calls did not run.
    RefusedSaysNo,
    /// That a stream has ended says that its calls did not run.
    BrokenSaysNo,
    /// What one of several copies of a call met says that it did not run.
    RepeatedSaysNo,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 6] = [
        Rule::DuplicateRuns,
        Rule::ConnectionForgets,
        Rule::RepliesMixed,
        Rule::RefusedSaysNo,
        Rule::BrokenSaysNo,
        Rule::RepeatedSaysNo,
    ];

    /// What `--break` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::DuplicateRuns => "onc-duplicate-runs",
            Rule::ConnectionForgets => "onc-connection-forgets",
            Rule::RepliesMixed => "onc-replies-mixed",
            Rule::RefusedSaysNo => "onc-refused-says-no",
            Rule::BrokenSaysNo => "onc-broken-says-no",
            Rule::RepeatedSaysNo => "onc-repeated-says-no",
        }
    }
}

/// Runs `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, broken: Option<Rule>) -> Report {
    let mut model = Model::new(seed, calls, broken);
    model.play();
    model.report
}

thread_local! {
    /// The server's clock: one run is one thread's.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The program that is called, its version and its procedure.
const CALLED: [u32; 3] = [0x2000_0077, 1, 1];

/// Something that happens at its time.
enum Event {
    /// A client does something.
    Act(usize),
    /// A timer of a link's calls.
    Timer(usize),
    /// A datagram arrives at the server, perhaps one of two that the network made of it.
    Asked { link: usize, message: Vec<u8>, copied: bool },
    /// A datagram arrives at the client.
    Answered { link: usize, message: Vec<u8> },
    /// A client hears that nobody took its datagram.
    Refused(usize),
    /// A part of a stream arrives, at the server (`up`) or at the client.
    Bytes { link: usize, up: bool, bytes: Vec<u8> },
    /// An end of a stream hears that it is over; in order, as far as the server's system can tell.
    Over { link: usize, up: bool },
    /// A client's system takes more.
    Flush(usize),
    /// A procedure has ended, in that life of the server.
    Done { life: u64, job: u64 },
    /// Something happens to a process or a stream.
    Chaos,
    /// The server is back.
    Restart,
}

/// One call, as everybody together knows it.
#[derive(Default)]
struct Record {
    /// Bytes of its arguments, and of its result.
    len: usize,
    runs: Vec<Run>,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Run {
    /// Of the server.
    life: u64,
    link: usize,
    /// By one of two datagrams that the network made of one.
    copied: bool,
    /// When it was answered, and how many bytes the server had been given to remember then.
    answered: Option<(Nanos, usize)>,
}

/// A connection of a client, or the socket from which it sends datagrams.
struct Link {
    client: usize,
    from: SocketAddr,
    stream: bool,
    calls: Calls,
    /// The server's end of a stream, in which life of it, and what came by it.
    line: Line,
    life: u64,
    records: Records,
    /// The client's end is gone, or the server's: nothing is taken there any more.
    closed: [bool; 2],
    /// The server knows that the stream has ended, and not in order.
    known: bool,
    /// Nothing passes, and nobody hears of that.
    cut: bool,
    /// A deadline passed in silence: calls are made elsewhere.
    silent: bool,
    /// When the last part arrives, at the server and at the client.
    last: [Nanos; 2],
}

/// The faults of a run.
struct Faults {
    loss: u32,
    duplicate: u32,
    late: u32,
    refusals: u32,
    chaos: u32,
    delay: Nanos,
}

struct Model {
    rng: Rng,
    broken: Option<Rule>,
    report: Report,
    now: Nanos,
    events: BTreeMap<(Nanos, u64), Event>,
    numbers: u64,
    faults: Faults,
    budget: u64,
    records: Vec<Record>,
    callers: Vec<Caller>,
    callee: Callee,
    links: Vec<Link>,
    settling: bool,
}

impl Model {
    fn new(seed: u64, calls: u64, broken: Option<Rule>) -> Model {
        let mut rng = Rng::new(seed ^ 0x6f6e_6372_7063);
        let faults = Faults {
            loss: rng.pick(&[0, 20_000, 200_000]),
            duplicate: rng.pick(&[0, 20_000, 200_000]),
            late: rng.pick(&[0, 10_000, 50_000]),
            refusals: rng.pick(&[0, 500_000, 1_000_000]),
            chaos: rng.pick(&[0, 20_000, 100_000, 300_000]),
            delay: rng.spread(MILLIS / 10, 100 * MILLIS),
        };
        let callers = (0..rng.within(1, 4)).map(|n| Caller::new(n, &mut rng)).collect();
        let callee = Callee::new(&mut rng);
        Model {
            rng,
            broken,
            report: Report::default(),
            now: 1,
            events: BTreeMap::new(),
            numbers: 0,
            faults,
            budget: calls,
            records: Vec::new(),
            callers,
            callee,
            links: Vec::new(),
            settling: false,
        }
    }

    fn play(&mut self) {
        CLOCK.set(Duration::ZERO);
        (0..self.callers.len()).for_each(|client| self.after(0, Event::Act(client)));
        let most = 100_000 + self.budget * 1_000;
        for step in 0.. {
            let Some(((at, _), event)) = self.events.pop_first() else { break };
            self.now = at;
            CLOCK.set(Duration::from_nanos(at));
            self.happen(event);
            if self.budget == 0 && !self.settling {
                self.settle();
            }
            if step > most {
                self.violated("progress", "it goes on without end".into());
            }
            if self.report.violation.is_some() {
                return;
            }
        }
        self.judge();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(client) => self.act(client),
            Event::Timer(link) => self.timer(link),
            Event::Asked { link, message, copied } => self.asked(link, &message, copied),
            Event::Answered { link, message } => self.hear(link, &message),
            Event::Refused(link) => self.hear_refusal(link),
            Event::Bytes { link, up: true, bytes } => self.read(link, &bytes),
            Event::Bytes { link, up: false, bytes } => self.hear(link, &bytes),
            Event::Over { link, up: true } => self.close_server_end(link),
            Event::Over { link, up: false } => self.close_client_end(link),
            Event::Flush(link) => self.flush(link),
            Event::Done { life, job } => self.done(life, job),
            Event::Chaos => self.chaos(),
            Event::Restart => self.restart(),
        }
    }

    fn after(&mut self, delay: Nanos, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    fn chance(&mut self, per_million: u32) -> bool {
        !self.settling && self.rng.chance(per_million)
    }

    /// How long something is under way.
    fn delay(&mut self) -> Nanos {
        let delay = self.rng.spread(1, self.faults.delay);
        if !self.chance(self.faults.late) {
            return delay;
        }
        // Some outlive the server's memory.
        delay + self.rng.spread(MILLIS, 200 * SECS)
    }

    /// A datagram is under way, to the server or to a client, once or twice or not at all.
    fn datagram(&mut self, event: impl Fn(bool) -> Event) {
        let twice = self.chance(self.faults.duplicate);
        for _ in 0..1 + u32::from(twice) {
            if !self.chance(self.faults.loss) {
                let delay = self.delay();
                self.after(delay, event(twice));
            }
        }
    }

    /// A part of a stream is under way, in pieces.
    fn stream(&mut self, link: usize, up: bool, bytes: &[u8]) {
        if self.links[link].cut || self.links[link].closed != [false; 2] {
            return;
        }
        let piece = match self.chance(100_000) {
            true => self.rng.within(1, 200) as usize,
            false => bytes.len().max(1),
        };
        for bytes in bytes.chunks(piece) {
            let at = self.in_order(link, up);
            self.at(at, Event::Bytes { link, up, bytes: bytes.to_vec() });
        }
    }

    /// When what is sent on a stream now arrives: behind what was sent before.
    fn in_order(&mut self, link: usize, up: bool) -> Nanos {
        let at = self.now + self.rng.spread(1, self.faults.delay);
        let last = &mut self.links[link].last[usize::from(up)];
        *last = at.max(*last);
        *last
    }

    // What happens to processes and streams

    fn chaos(&mut self) {
        if self.settling {
            return;
        }
        match self.rng.below(100) {
            0..20 => self.kill_server(),
            20..40 => {
                let client = self.rng.index(self.callers.len());
                self.kill_client(client);
            }
            _ => self.disturb(),
        }
    }

    /// Something happens to a stream that lasts.
    fn disturb(&mut self) {
        let live = |link: &Link| link.stream && link.closed == [false; 2] && !link.cut;
        let Some(link) =
            self.callers.iter().filter_map(|caller| caller.link).find(|link| live(&self.links[*link]))
        else {
            return;
        };
        self.report.tally.broken += 1;
        let soon = self.rng.spread(1, self.faults.delay);
        match self.rng.below(4) {
            // Nobody hears of it. (Keep-alives would end it in a minute.)
            0 => self.links[link].cut = true,
            // The server closes it: what it had sent arrives before.
            1 => {
                self.close_server_end(link);
                let at = self.in_order(link, false);
                self.at(at, Event::Over { link, up: false });
            }
            // It is reset, which one end hears of before the other: what was under way is lost.
            first => {
                self.links[link].cut = true;
                self.after(soon, Event::Over { link, up: first == 2 });
                let later = soon + self.rng.spread(1, SECS);
                self.after(later, Event::Over { link, up: first != 2 });
            }
        }
    }

    // What must be true

    /// A call is executed.
    fn ran(&mut self, id: usize, link: usize, copied: bool) {
        self.report.tally.executed += 1;
        self.trace(3, id);
        let life = self.callee.life;
        let former = self.records[id].runs.iter().rev().find(|run| run.life == life).copied();
        if let Some(former) = former.filter(|former| self.must_be_remembered(former, link)) {
            let former = former.answered.map(|(at, _)| at);
            self.violated("at-most-once", format!("call {id} runs again; it was answered {former:?}"));
        }
        self.records[id].runs.push(Run { life, link, copied, answered: None });
    }

    /// Whether the server promises to know a call that ran, when it comes again by a link.
    fn must_be_remembered(&self, former: &Run, link: usize) -> bool {
        // If a connection has ended and the server did not hear of it, the client's next connection counts as
        // a new client's (docs/onc.md).
        if former.link != link && !self.links[former.link].known {
            return false;
        }
        let Some((at, bytes)) = former.answered else { return true };
        let retention = self.callee.retention;
        self.now - at < retention.time.as_nanos() as Nanos && self.callee.given - bytes < retention.bytes / 4
    }

    fn ended(&mut self, id: usize, ended: Ended) {
        self.report.ended(self.now, id, ended, &mut self.records[id].ended);
    }

    /// No more faults: the server is there, and has the program.
    fn settle(&mut self) {
        self.settling = true;
        self.callee.exported = true;
        if !self.callee.up {
            self.restart();
        }
    }

    /// Everything has happened.
    fn judge(&mut self) {
        let open: usize = self.callers.iter().map(|caller| caller.open.len()).sum();
        if open > 0 {
            self.violated("every-call-ends", format!("{open} calls have not ended"));
        }
        // The network may have made two datagrams of one: a server without the program refused one of them,
        // and its next life, which has it, executed the other. RFC 5531 gives a client no means to know
        // (docs/onc.md).
        let calls = self.records.iter().map(|call| (call.ended, call.runs.iter().any(|run| !run.copied)));
        self.report.judge(self.now, calls);
    }

    fn trace(&mut self, what: u64, which: usize) {
        self.report.trace(self.now, what, which);
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        self.report.violated(self.now, rule, what);
    }
}

fn records() -> Records {
    Records::new(Limits::default())
}

/// Whose bytes they are.
fn id_of(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(usize::MAX, |id| u64::from_be_bytes(*id) as usize)
}

/// A server's memory with the model's clock.
fn remembered(retention: farcall_onc::server::Retention) -> Remembered {
    Remembered::new(retention, || CLOCK.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tally;

    #[test]
    fn calls_of_onc_rpc_keep_their_promises_under_losses_and_deaths() {
        let mut total = Tally::default();
        for seed in 0..200 {
            let report = run(seed, 200, None);
            assert_eq!(report.violation, None, "seed {seed}");
            total.add(&report.tally);
        }
        println!("{total:?}");
        assert!(total.calls >= 30_000 && total.returned > total.calls / 3);
        assert!(
            total.no > 0 && total.maybe > 0 && total.deaths > 0 && total.broken > 0 && total.remembered > 0
        );
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        assert_eq!(run(7, 300, None).trace_hash, run(7, 300, None).trace_hash);
    }

    #[test]
    fn every_broken_rule_of_onc_rpc_is_noticed() {
        for rule in Rule::ALL {
            let caught = (0..300).any(|seed| run(seed, 200, Some(rule)).violation.is_some());
            assert!(caught, "{} is not noticed", rule.name());
        }
    }
}
