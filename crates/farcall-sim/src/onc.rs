//! A model of ONC RPC (RFC 5531) over UDP and TCP. It runs the decisive parts of `farcall-onc`'s clients and
//! servers in a seeded network.
//!
//! The model runs some of `farcall-onc`'s own code. On the client's side this is the code that decides which
//! calls are outstanding, which call a reply belongs to, what is sent again, and what follows from the end of
//! a stream or a refused port. On the server's side it is the memory of earlier calls. On both sides it is
//! record marking and the encoding of messages. The rest is modelled. Datagrams are lost, duplicated, late
//! and refused. Streams are cut into parts, reset, closed from one side, or silently dead. Servers die and
//! come back with an empty memory, and sometimes without the program. Clients die, and some send a call once
//! more on another connection. docs/onc.md ("What is promised") says what must be true.

mod callee;
mod caller;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use farcall::env::Time;
use farcall_onc::model::{Calls, Line, Remembered};
use farcall_onc::wire::record::{Limits, Records};

pub use crate::model::Rule;
use crate::model::{Ended, Report};
use crate::net::{MILLIS, Nanos, SECS};
use crate::rng::Rng;
use callee::Callee;
use caller::Caller;

/// Runs `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, broken: Option<Rule>) -> Report {
    let mut model = Model::new(seed, calls, broken);
    model.play();
    model.report
}

thread_local! {
    /// The server's clock. A run has one thread.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The program that is called, its version and its procedure.
const CALLED: [u32; 3] = [0x2000_0077, 1, 1];

/// An event at its time.
enum Event {
    /// It is a client's turn to act.
    Act(usize),
    /// A timer of a link's calls is due.
    Timer(usize),
    /// A datagram arrives at the server, perhaps one of two that the network made of it.
    Asked { link: usize, message: Vec<u8>, copied: bool },
    /// A datagram arrives at the client.
    Answered { link: usize, message: Vec<u8> },
    /// A client is told that its datagram was refused.
    Refused(usize),
    /// A part of a stream arrives, at the server (`up`) or at the client.
    Bytes { link: usize, up: bool, bytes: Vec<u8> },
    /// One end of a stream learns that the stream is over. To the server's system this looks like an orderly
    /// end.
    Over { link: usize, up: bool },
    /// A client's system accepts more bytes.
    Flush(usize),
    /// A procedure has ended, which began in life `life` of the server.
    Done { life: u64, job: u64 },
    /// A fault of a process or a stream happens.
    Chaos,
    /// The server is back.
    Restart,
}

/// One execution of a call.
#[derive(Clone, Copy)]
struct Run {
    /// The life of the server.
    life: u64,
    link: usize,
    /// Whether this run came from one of two datagrams that the network made of one.
    copied: bool,
    /// When the execution was answered, and how many bytes the server had been given to remember by then.
    answered: Option<(Nanos, usize)>,
}

/// A connection of a client, or the socket from which it sends datagrams.
struct Link {
    client: usize,
    from: SocketAddr,
    stream: bool,
    calls: Calls,
    /// The server's end of a stream.
    line: Line,
    /// The life of the server to which `line` belongs.
    life: u64,
    records: Records,
    /// Whether the client's end and the server's end are gone. A closed end takes nothing.
    closed: [bool; 2],
    /// Whether the server knows that the stream was broken off.
    known: bool,
    /// Whether nothing passes any more, and neither end was told.
    cut: bool,
    /// Whether a call's deadline passed without any word from the server, so that the client makes its next
    /// calls on another connection.
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
    events: BTreeMap<(Nanos, u64), Event>,
    numbers: u64,
    faults: Faults,
    budget: u64,
    /// The executions of each call.
    runs: Vec<Vec<Run>>,
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
            report: Report { now: 1, ..Report::default() },
            events: BTreeMap::new(),
            numbers: 0,
            faults,
            budget: calls,
            runs: Vec::new(),
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
            self.report.now = at;
            CLOCK.set(Duration::from_nanos(at));
            self.happen(event);
            if self.budget == 0 && !self.settling {
                self.settle();
            }
            if step > most {
                self.report.violated("progress", "it goes on without end".into());
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
        self.at(self.report.now + delay, event);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.report.now)
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    fn chance(&mut self, per_million: u32) -> bool {
        !self.settling && self.rng.chance(per_million)
    }

    /// Draws how long a message is on its way.
    fn delay(&mut self) -> Nanos {
        let delay = self.rng.spread(1, self.faults.delay);
        if !self.chance(self.faults.late) {
            return delay;
        }
        // Some messages outlive the server's memory.
        delay + self.rng.spread(MILLIS, 200 * SECS)
    }

    /// Sends a datagram to the server or to a client. It arrives once, twice or not at all.
    fn datagram(&mut self, event: impl Fn(bool) -> Event) {
        let twice = self.chance(self.faults.duplicate);
        for _ in 0..1 + u32::from(twice) {
            if !self.chance(self.faults.loss) {
                let delay = self.delay();
                self.after(delay, event(twice));
            }
        }
    }

    /// Sends a part of a stream, in pieces.
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

    /// Returns when the bytes that are sent on a stream now arrive, after the bytes sent before.
    fn in_order(&mut self, link: usize, up: bool) -> Nanos {
        let at = self.report.now + self.rng.spread(1, self.faults.delay);
        let last = &mut self.links[link].last[usize::from(up)];
        *last = at.max(*last);
        *last
    }

    // Faults of processes and streams

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

    /// Disturbs a living stream.
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
            // Neither end is told. Keep-alives would end the stream after a minute.
            0 => self.links[link].cut = true,
            // The server closes the stream; the bytes that it had sent arrive before the end.
            1 => {
                self.close_server_end(link);
                let at = self.in_order(link, false);
                self.at(at, Event::Over { link, up: false });
            }
            // The stream is reset. One end learns of it before the other, and bytes on their way are lost.
            first => {
                self.links[link].cut = true;
                self.after(soon, Event::Over { link, up: first == 2 });
                let later = soon + self.rng.spread(1, SECS);
                self.after(later, Event::Over { link, up: first != 2 });
            }
        }
    }

    // The promises

    /// Notes and checks the execution of a call.
    fn ran(&mut self, id: usize, link: usize, copied: bool) {
        self.report.tally.executed += 1;
        self.report.trace(3, id);
        let life = self.callee.life;
        let former = self.runs[id].iter().rev().find(|run| run.life == life).copied();
        if let Some(former) = former.filter(|former| self.must_be_remembered(former, link)) {
            let former = former.answered.map(|(at, _)| at);
            self.report.violated("at-most-once", format!("call {id} runs again; it was answered {former:?}"));
        }
        self.runs[id].push(Run { life, link, copied, answered: None });
    }

    /// Returns whether the server must remember a call that ran, if the call comes again by `link`.
    fn must_be_remembered(&self, former: &Run, link: usize) -> bool {
        // If a connection has ended without the server's knowledge, the client's next connection counts as a
        // new client's (docs/onc.md).
        if former.link != link && !self.links[former.link].known {
            return false;
        }
        let Some((at, bytes)) = former.answered else { return true };
        let retention = self.callee.retention;
        self.report.now - at < retention.time.as_nanos() as Nanos
            && self.callee.given - bytes < retention.bytes / 4
    }

    /// Ends the faults: the server runs, and has the program.
    fn settle(&mut self) {
        self.settling = true;
        self.callee.exported = true;
        if !self.callee.up {
            self.restart();
        }
    }

    /// Checks the promises after the last event.
    fn judge(&mut self) {
        let open: usize = self.callers.iter().map(|caller| caller.open.len()).sum();
        if open > 0 {
            self.report.violated("every-call-ends", format!("{open} calls have not ended"));
        }
        // Executions of datagrams that the network duplicated are left out. A server without the program may
        // have refused one copy, and the server's next life, which has the program, executed the other. RFC
        // 5531 gives a client no means to know that (docs/onc.md).
        self.report.judge(|id| self.runs[id].iter().any(|run| !run.copied));
    }
}

fn records() -> Records {
    Records::new(Limits::default())
}

/// Makes a server's memory with the model's clock.
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
        for (rule, name) in Rule::all().filter(|(_, name)| name.starts_with("onc-")) {
            let caught = (0..300).any(|seed| run(seed, 200, Some(rule)).violation.is_some());
            assert!(caught, "{name} is not noticed");
        }
    }
}
