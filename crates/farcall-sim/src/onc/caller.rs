//! The clients of the ONC RPC model: each makes calls to one address, over datagrams or streams, and reports
//! their outcomes.

use std::net::SocketAddr;

use farcall_onc::model::{Calls, Line};
use farcall_proto::{Kind, Ran};

use super::{Ended, Event, Link, Model, Rule, records};
use crate::net::{MILLIS, Nanos, SECS};
use crate::rng::Rng;

/// A client.
pub(super) struct Caller {
    host: u8,
    ports: u16,
    stream: bool,
    xid: u32,
    /// The link by which the client makes calls.
    pub(super) link: Option<usize>,
    pub(super) open: Vec<Open>,
    /// How often the client sends a call once more on another connection, as other implementations do, in
    /// parts per million.
    stubborn: u32,
    pause: Nanos,
}

/// A call under way.
pub(super) struct Open {
    id: usize,
    xid: u32,
    link: usize,
    /// Whether an earlier copy of the call, on another connection, may have reached the server.
    may_have_run: bool,
}

/// The most outstanding calls of a client.
const MAX_OPEN: usize = 16;

impl Caller {
    pub(super) fn new(number: u64, rng: &mut Rng) -> Caller {
        Caller {
            // Some clients share a host.
            host: 1 + (number / 2) as u8,
            ports: 1000 * (1 + number as u16),
            stream: rng.chance(500_000),
            xid: rng.next() as u32,
            link: None,
            open: Vec::new(),
            stubborn: rng.pick(&[0, 500_000, 1_000_000]),
            pause: rng.spread(MILLIS, 5 * SECS),
        }
    }
}

impl Model {
    /// Lets a client act, and plans its next action.
    pub(super) fn act(&mut self, client: usize) {
        if self.budget == 0 {
            return;
        }
        if self.chance(self.faults.chaos) {
            let soon = self.rng.spread(1, SECS);
            self.after(soon, Event::Chaos);
        }
        for _ in 0..self.rng.within(1, 3).min(self.budget) {
            if self.callers[client].open.len() < MAX_OPEN {
                self.budget -= 1;
                self.call(client);
            }
        }
        let pause = match self.rng.chance(5_000) {
            true => self.rng.spread(SECS, 300 * SECS),
            false => self.rng.spread(1, self.callers[client].pause),
        };
        self.after(pause, Event::Act(client));
    }

    fn call(&mut self, client: usize) {
        let len = if self.rng.chance(20_000) { self.rng.spread(8, 20_000) } else { self.rng.within(8, 64) }
            as usize;
        let id = self.report.begin(len.next_multiple_of(4));
        self.runs.push(Vec::new());
        let xid = self.callers[client].xid;
        self.callers[client].xid = xid.wrapping_add(1);
        self.send(client, id, xid, false);
    }

    /// Sends a call by the client's link, or by a new one.
    fn send(&mut self, client: usize, id: usize, xid: u32, again: bool) {
        let failed = if again { Ran::Maybe } else { Ran::No };
        let Some(link) = self.link(client) else { return self.report.ended(id, Ended::Failed(failed)) };
        let stream = self.links[link].stream;
        let message = self.message(id, xid, stream);
        let (now, pause) = (self.time(), std::time::Duration::from_millis(self.rng.within(250, 2_000)));
        let deadline = now + std::time::Duration::from_nanos(self.rng.spread(200 * MILLIS, 25 * SECS));
        if let Err(ran) = self.links[link].calls.start(now, xid, &message, deadline, pause) {
            return self.report.ended(id, Ended::Failed(if again { Ran::Maybe } else { ran }));
        }
        self.callers[client].open.push(Open { id, xid, link, may_have_run: again });
        match stream {
            true => self.flush(link),
            false => self.datagram(|copied| Event::Asked { link, message: message.clone(), copied }),
        }
        self.set_timer(link);
    }

    /// Returns the link by which a client calls. Returns `None` if the connection is refused.
    fn link(&mut self, client: usize) -> Option<usize> {
        let usable = |link: &Link| !(link.silent || link.calls.is_broken() || link.closed[0]);
        let stream = self.callers[client].stream;
        if let Some(link) = self.callers[client].link.filter(|link| usable(&self.links[*link])) {
            return Some(link);
        }
        if stream && !self.callee.up {
            return None;
        }
        let caller = &mut self.callers[client];
        caller.ports = caller.ports.wrapping_add(1);
        let from = SocketAddr::from(([10, 0, 0, caller.host], caller.ports));
        let calls = if stream { Calls::stream() } else { Calls::datagrams() };
        caller.link = Some(self.links.len());
        self.links.push(Link {
            client,
            from,
            stream,
            calls,
            line: Line::open(),
            life: self.callee.life,
            records: records(),
            closed: [false; 2],
            known: false,
            cut: false,
            silent: false,
            last: [0; 2],
        });
        caller.link
    }

    /// Gives the bytes that wait on a stream to the simulated system. The system takes all or some of them,
    /// or breaks the stream.
    pub(super) fn flush(&mut self, link: usize) {
        if self.links[link].calls.is_broken() {
            return;
        }
        let bytes = self.links[link].calls.hand_over();
        let sent = match self.chance(50_000) {
            true if self.rng.chance(100_000) => None,
            true => Some(self.rng.index(bytes.len() + 1)),
            false => Some(bytes.len()),
        };
        self.links[link].calls.took(&bytes, sent);
        match sent {
            None => {
                self.report.tally.broken += 1;
                self.links[link].closed[0] = true;
                let soon = self.rng.spread(1, self.faults.delay);
                self.after(soon, Event::Over { link, up: true });
                self.collect(link);
            }
            Some(sent) => {
                self.stream(link, true, &bytes[..sent]);
                if sent < bytes.len() {
                    let soon = self.rng.spread(1, 2 * SECS);
                    self.after(soon, Event::Flush(link));
                }
            }
        }
    }

    /// Delivers a message to a client.
    pub(super) fn hear(&mut self, link: usize, bytes: &[u8]) {
        let known = &mut self.links[link];
        if known.closed[0] || known.cut {
            return;
        }
        let mut bytes = bytes.to_vec();
        let oldest = self.callers[known.client].open.iter().find(|open| open.link == link);
        let at = if known.stream { 4 } else { 0 };
        if self.broken == Some(Rule::RepliesMixed)
            && let Some(oldest) = oldest
            && let Some(xid) = bytes.get_mut(at..at + 4)
        {
            xid.copy_from_slice(&oldest.xid.to_be_bytes());
        }
        known.calls.receive(&bytes);
        self.collect(link);
    }

    pub(super) fn hear_refusal(&mut self, link: usize) {
        let now = self.time();
        self.links[link].calls.refused(now);
        self.collect(link);
        self.set_timer(link);
    }

    /// Closes a client's end of a stream.
    pub(super) fn close_client_end(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].closed[0], true) {
            self.links[link].calls.fail();
            self.collect(link);
        }
    }

    pub(super) fn timer(&mut self, link: usize) {
        let now = self.time();
        let repeats = self.links[link].calls.run_timers(now);
        for message in repeats {
            self.datagram(|copied| Event::Asked { link, message: message.clone(), copied });
        }
        self.collect(link);
        self.set_timer(link);
    }

    fn set_timer(&mut self, link: usize) {
        let Some(timer) = self.links[link].calls.timer() else { return };
        let at = timer.as_nanos();
        self.at(at.max(self.report.now + 1), Event::Timer(link));
    }

    /// Takes out the calls of a link that have ended.
    fn collect(&mut self, link: usize) {
        let (client, once) = (self.links[link].client, self.breaks(Rule::RepeatedSaysNo));
        let mut place = 0;
        while let Some(open) = self.callers[client].open.get(place) {
            let left = if open.link == link { self.links[link].calls.fetch(open.xid, once) } else { None };
            match left {
                None => place += 1,
                Some(left) => {
                    let open = self.callers[client].open.remove(place);
                    self.finish(client, &open, left);
                }
            }
        }
    }

    /// Reports the outcome of a call, unless the client sends the call once more.
    fn finish(&mut self, client: usize, open: &Open, left: Result<Vec<u8>, (Kind, Ran)>) {
        let (kind, mut ran) = match left {
            Ok(result) => return self.returned(open.id, &result),
            Err(failed) => failed,
        };
        let stream = self.links[open.link].stream;
        if kind == Kind::Deadline {
            self.links[open.link].silent = stream;
        }
        if kind == Kind::Unreachable {
            let says_no = if stream { Rule::BrokenSaysNo } else { Rule::RefusedSaysNo };
            if self.breaks(says_no) {
                ran = Ran::No;
            }
            let again = ran == Ran::Maybe && stream && !self.settling;
            if again && self.rng.chance(self.callers[client].stubborn) {
                return self.send(client, open.id, open.xid, true);
            }
        }
        // Whatever happened to the last copy of the call, an earlier copy may have run.
        self.report.ended(open.id, Ended::Failed(if open.may_have_run { Ran::Maybe } else { ran }));
    }

    fn returned(&mut self, id: usize, result: &[u8]) {
        let right = (!self.runs[id].is_empty()).then(|| self.report.arguments(id));
        self.report.returned(id, result, right.as_deref());
    }

    pub(super) fn kill_client(&mut self, client: usize) {
        self.report.tally.deaths += 1;
        self.report.trace(1, 1_000 + client);
        for open in std::mem::take(&mut self.callers[client].open) {
            self.report.ended(open.id, Ended::Abandoned);
        }
        // The next life of the client uses new ports and identifiers.
        self.callers[client].xid = self.rng.next() as u32;
        let Some(link) = self.callers[client].link.take() else { return };
        self.links[link].closed[0] = true;
        if self.links[link].stream {
            let at = self.in_order(link, true);
            self.at(at, Event::Over { link, up: true });
        }
    }
}
