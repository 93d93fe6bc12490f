//! What a simulated server's procedures do inside their calls.

use std::collections::BTreeMap;

use farcall::Bytes;
use farcall_proto::server::{CallKey, Server};
use farcall_proto::{Failure, Kind, News, Ran, Tail};

use super::{Job, ServerNode};
use crate::exchange_user::{HEAD, User, Verbs};
use crate::exchanging::{End, Habits, RETRY, halt, unwinds};
use crate::ground::{Event, Ground};
use crate::net::{MILLIS, Nanos, SECS};
use crate::oracle::Oracle;

/// A call with exchanges, as its procedure knows it.
pub struct Doing {
    users: BTreeMap<u32, User>,
    /// How many exchanges the procedure has yet to open, and how many of the client it waits for.
    opens: u32,
    awaits: u32,
    pause: Nanos,
    /// Until when the procedure does nothing.
    stalls_until: Nanos,
    /// How many steps it has yet to make before it does nothing for long, and how long, if it will.
    halts: Option<(u32, Nanos)>,
    /// When it acts next.
    pub wake_at: Nanos,
    /// When it ends at the latest, whatever its exchanges do.
    latest: Nanos,
    given_up: bool,
    unwound: bool,
    says_no: bool,
}

struct AtServer<'a> {
    core: &'a mut Server,
    key: CallKey,
}

impl Verbs for AtServer<'_> {
    const END: End = End::Server;

    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        let (head, long) = bytes.split_at(bytes.len().min(HEAD));
        self.core.send_long_in(self.key, exchange, (head, &Bytes::copy_from_slice(long)), tail)
    }

    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.core.take_from(self.key, exchange, into, most)
    }

    fn stop(&mut self, exchange: u32, reason: u32) {
        self.core.stop_exchange(self.key, exchange, reason);
    }

    fn awaits_credit(&mut self, exchange: u32) -> bool {
        self.core.awaits_credit(self.key, exchange)
    }
}

impl ServerNode {
    /// Begins a procedure in whose call something passes.
    pub(super) fn begin_inside(&mut self, g: &mut Ground, number: u64, mut job: Job) {
        g.oracle.begin_inside(job.call);
        let habits = Habits::of(g.oracle.token(job.call));
        let at = g.now() + habits.stalls[End::Server as usize];
        // Most procedures have no time limit, so that the run notices a procedure that waits for ever. Two
        // kinds of runs need a limit. A restored server may wait for bytes that it received before the
        // snapshot, and that its client does not send again. With a small memory budget, calls of one host
        // wait for one another's memory.
        let patient = g.plan.restorations == 0 && g.plan.server.held_budget > 10 << 20;
        let waits = g.plan.calm || patient && g.rng.chance(700_000);
        let latest = if waits { Nanos::MAX } else { g.now() + g.rng.spread(500 * MILLIS, 30 * SECS) };
        let mut doing = Doing {
            users: BTreeMap::new(),
            opens: habits.opens[End::Server as usize],
            awaits: if habits.awaits { habits.opens[End::Client as usize] } else { 0 },
            pause: habits.pauses[End::Server as usize],
            stalls_until: at,
            halts: habits.halts[End::Server as usize].filter(|_| g.plan.is_unhurried()),
            wake_at: at,
            latest,
            given_up: false,
            unwound: false,
            says_no: habits.says_no,
        };
        for (exchange, news) in std::mem::take(&mut job.early) {
            doing.hear(g, job.call, exchange, news);
        }
        job.doing = Some(Box::new(doing));
        self.jobs.push((number, job));
        g.net.at(at, Event::Done { server: self.index, job: number });
    }

    /// Returns whether a job is being executed and has exchanges.
    pub(super) fn is_doing(&self, number: u64) -> bool {
        self.jobs.iter().any(|(n, job)| *n == number && job.doing.is_some())
    }

    /// Tells the procedures the news of their exchanges.
    pub(super) fn hear_inside(&mut self, g: &mut Ground) {
        let (now, index) = (g.now(), self.index);
        let Some(core) = &mut self.core else { return };
        while let Some((key, exchange, news)) = core.next_news() {
            let Some((number, job)) = self.jobs.iter_mut().find(|(_, job)| job.key == key) else { continue };
            let (call, number) = (job.call, *number);
            if !g.oracle.calls[call].inside {
                g.oracle.violate("news-of-an-exchange", now, || format!("{news:?} of call {call}"));
            }
            let Some(doing) = &mut job.doing else {
                job.early.push((exchange, news));
                continue;
            };
            doing.hear(g, call, exchange, news);
            doing.wake(g, (index, number), doing.pause);
        }
    }

    /// Tells a procedure that its caller has given the call up.
    pub(super) fn give_up_inside(&mut self, g: &mut Ground, number: u64) {
        let index = self.index;
        let job = self.jobs.iter_mut().find(|(n, _)| *n == number);
        if let Some(doing) = job.and_then(|(_, job)| job.doing.as_mut()) {
            doing.given_up = true;
            doing.wake(g, (index, number), doing.pause);
        }
    }

    /// Acts in the exchanges of a call, and ends its procedure if all is done.
    pub(super) fn act_inside(&mut self, g: &mut Ground, number: u64) {
        let (now, index) = (g.now(), self.index);
        let Some(core) = &mut self.core else { return };
        let Some((_, job)) = self.jobs.iter_mut().find(|(n, _)| *n == number) else { return };
        let (key, call) = (job.key, job.call);
        let Some(doing) = job.doing.as_mut().filter(|doing| now >= doing.wake_at) else { return };
        doing.wake_at = Nanos::MAX;
        let more = doing.step(AtServer { core: &mut *core, key }, &mut g.oracle, (now, call));
        g.last_done = now;
        if !doing.is_over(now) {
            let pause = match (doing.opens, more) {
                (0, true) => doing.pause,
                (0, false) => doing.latest.saturating_sub(now),
                _ => doing.pause.max(RETRY),
            };
            return doing.wake(g, (index, number), pause);
        }
        if doing.failure().is_some_and(|failure| failure.ran == Ran::No) {
            g.oracle.says_no(call);
        }
        let Some(job) = self.remove(number) else { return };
        self.finish_executed(g, job);
        let mut into = Vec::new();
        let Some(core) = &mut self.core else { return };
        let left = (core.open_exchange(key), core.take_from(key, 2, &mut into, 1));
        if left != (None, None) {
            g.oracle.violate("exchanges-end-with-their-call", now, || format!("call {call}: {left:?}"));
        }
    }
}

impl Doing {
    fn hear(&mut self, g: &mut Ground, call: usize, exchange: u32, news: News) {
        let (now, token) = (g.now(), g.oracle.token(call));
        let user = self.users.entry(exchange);
        let wrong = user.or_insert_with(|| User::new(token, exchange, End::Server)).hear(news, exchange);
        if let Some(wrong) = wrong {
            g.oracle.violate("stops-are-told", now, || format!("call {call}, {exchange}: {wrong}"));
        }
    }

    fn wake(&mut self, g: &mut Ground, (server, job): (usize, u64), pause: Nanos) {
        let at = g.now().saturating_add(pause).max(self.stalls_until).min(self.latest);
        if at < self.wake_at {
            self.wake_at = at;
            g.net.at(at, Event::Done { server, job });
        }
    }

    /// Does what can be done now. Returns whether there is more to do at once.
    fn step(&mut self, mut at: AtServer<'_>, oracle: &mut Oracle, now: (Nanos, usize)) -> bool {
        let token = oracle.token(now.1);
        self.stalls_until = self.stalls_until.max(halt(&mut self.halts, now.0));
        while self.opens > 0
            && let Some(exchange) = at.core.open_exchange(at.key)
        {
            self.opens -= 1;
            self.users.insert(exchange, User::new(token, exchange, End::Server));
        }
        if let Some(last) =
            self.awaits.checked_sub(1).map(|last| 2 * last + 1).filter(|last| !self.users.contains_key(last))
        {
            // It reads from an argument of which nothing has come yet.
            let _ = at.core.take_from(at.key, last, &mut Vec::new(), 1);
        }
        let mut more = false;
        for (exchange, user) in &mut self.users {
            more |= user.step(&mut at, oracle, now, *exchange);
            self.unwound |= user.has_all() && unwinds(token, *exchange);
        }
        more
    }

    fn is_over(&self, now: Nanos) -> bool {
        let heard = self.users.keys().filter(|exchange| *exchange % 2 == 1).count() as u32;
        let done = self.opens == 0 && heard >= self.awaits && self.users.values().all(User::is_done);
        done || self.given_up || self.unwound || self.latest <= now
    }

    /// Returns the failure in which the procedure ends, if it ends in one.
    pub fn failure(&self) -> Option<Failure> {
        if self.unwound && !self.given_up {
            return Some(Failure::new(Kind::Unwound, Ran::Yes));
        }
        self.says_no.then(|| Failure::new(Kind::Overloaded, Ran::No))
    }
}
