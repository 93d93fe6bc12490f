//! The actions of a simulated client's user in the exchanges of its calls.

use std::collections::BTreeMap;

use farcall::Bytes;
use farcall_proto::client::{CallId, Conversation, Event as Told, Outcome};
use farcall_proto::{News, Tail};

use super::{ClientNode, Talk, end};
use crate::exchange_user::{HEAD, User, Verbs};
use crate::exchanging::{End, Habits, RETRY, halt};
use crate::ground::{Event, Ground};
use crate::net::{Nanos, SECS};
use crate::oracle::Oracle;

/// The user's state of a call with exchanges.
pub struct Called {
    /// The state of each exchange, by its number.
    users: BTreeMap<u32, User>,
    /// The number of exchanges that the user still has to open.
    opens: u32,
    /// The time that the user waits before it acts again.
    pause: Nanos,
    /// The time before which the user does nothing.
    stalls_until: Nanos,
    /// How many steps the user has yet to make before it does nothing for long, and how long, if it will.
    halts: Option<(u32, Nanos)>,
    /// The time at which the user acts next; [`Nanos::MAX`] if it waits for news.
    wake_at: Nanos,
}

/// The client's end of a call, in which its user acts.
struct AtClient<'a> {
    core: &'a mut Conversation,
    id: CallId,
    /// The outcomes of the calls that end during the user's actions. A call ends when its user has taken all
    /// bytes that the server sent before the outcome.
    told: &'a mut Vec<(u64, Outcome<'static>)>,
}

/// Adds the outcome of a call that has ended to `told`.
fn keep(told: &mut Vec<(u64, Outcome<'static>)>, event: Told<'_>) {
    if let Told::Ended { token, outcome, .. } = event {
        told.push((token, outcome.into_owned()));
    }
}

impl Verbs for AtClient<'_> {
    const END: End = End::Client;

    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        let (head, long) = bytes.split_at(bytes.len().min(HEAD));
        self.core.send_long_in(self.id, exchange, (head, &Bytes::copy_from_slice(long)), tail)
    }

    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.core.take_from(self.id, exchange, into, most, &mut |event| keep(self.told, event))
    }

    fn stop(&mut self, exchange: u32, reason: u32) {
        self.core.stop_exchange(self.id, exchange, reason, &mut |event| keep(self.told, event));
    }

    fn awaits_credit(&mut self, _: u32) -> bool {
        false
    }
}

impl ClientNode {
    /// Passes the news of each exchange to its user.
    pub(super) fn hear_inside(&mut self, g: &mut Ground) {
        let (now, index) = (g.now(), self.index);
        for talk in self.conversations.iter_mut().flatten() {
            while let Some((_, token, exchange, news)) = talk.core.next_news() {
                let call = token as usize;
                let Some(called) = talk.inside.get_mut(&call) else {
                    g.oracle.violate("news-of-an-exchange", now, || format!("{news:?} of call {call}"));
                    return;
                };
                if matches!(news, News::Stopped(_)) {
                    g.oracle.touched(call);
                }
                let key = g.oracle.token(call);
                let user = called.users.entry(exchange);
                let wrong =
                    user.or_insert_with(|| User::new(key, exchange, End::Client)).hear(news, exchange);
                if let Some(wrong) = wrong {
                    g.oracle.violate("stops-are-told", now, || {
                        format!("call {call}, exchange {exchange}: {wrong}")
                    });
                }
                called.wake(g, (index, call), called.pause);
            }
        }
    }

    /// Lets the user act in the exchanges of a call.
    pub fn act_inside(&mut self, g: &mut Ground, call: usize) {
        if self.stopped {
            return g.net.after(SECS, Event::Inside { client: self.index, call });
        }
        let now = g.now();
        let has = |talk: &Option<Talk>| talk.as_ref().is_some_and(|talk| talk.inside.contains_key(&call));
        let Some(server) = self.conversations.iter().position(has) else { return };
        let Some(talk) = &mut self.conversations[server] else { return };
        let Some(called) = talk.inside.get_mut(&call).filter(|called| now >= called.wake_at) else { return };
        called.wake_at = Nanos::MAX;
        let Some((_, id)) = talk.open.iter().find(|(open, _)| *open == call) else { return };
        let (mut told, heard) = (Vec::new(), talk.heard);
        let at = AtClient { core: &mut talk.core, id: *id, told: &mut told };
        if called.step(at, &mut g.oracle, (now, call)) {
            let pause = if called.opens > 0 { called.pause.max(RETRY) } else { called.pause };
            called.wake(g, (self.index, call), pause);
        }
        g.last_done = now;
        for (token, outcome) in told {
            end(&mut g.oracle, &mut self.ended, (now, heard), token as usize, outcome);
        }
        self.after_events(g, server);
        self.settle(g);
    }
}

impl Called {
    /// Plans the user's next action after `pause`, unless an earlier one is planned.
    fn wake(&mut self, g: &mut Ground, (client, call): (usize, usize), pause: Nanos) {
        let at = (g.now() + pause).max(self.stalls_until);
        if at < self.wake_at {
            self.wake_at = at;
            g.net.at(at, Event::Inside { client, call });
        }
    }

    /// Opens exchanges and acts in each of them, as far as that is possible now. Returns whether the user has
    /// more to do without waiting for news.
    fn step(&mut self, mut at: AtClient<'_>, oracle: &mut Oracle, now: (Nanos, usize)) -> bool {
        let key = oracle.token(now.1);
        self.stalls_until = self.stalls_until.max(halt(&mut self.halts, now.0));
        while self.opens > 0
            && let Some(exchange) = at.core.open_exchange(at.id)
        {
            self.opens -= 1;
            self.users.insert(exchange, User::new(key, exchange, End::Client));
        }
        let mut more = self.opens > 0;
        for (exchange, user) in &mut self.users {
            more |= user.step(&mut at, oracle, now, *exchange);
        }
        more
    }
}

impl Talk {
    /// Prepares the user of a call that is about to be started, if the call has exchanges. Returns whether
    /// the client's user opens any of them.
    pub(super) fn begin_inside(&mut self, g: &mut Ground, client: usize, call: usize) -> bool {
        if !g.oracle.calls[call].inside {
            return false;
        }
        let habits = Habits::of(g.oracle.token(call));
        let opens = habits.opens[End::Client as usize];
        let at = g.now() + habits.stalls[End::Client as usize];
        let called = Called {
            users: BTreeMap::new(),
            opens,
            pause: habits.pauses[End::Client as usize],
            stalls_until: at,
            halts: habits.halts[End::Client as usize].filter(|_| g.plan.is_unhurried()),
            wake_at: at,
        };
        g.net.at(at, Event::Inside { client, call });
        self.inside.insert(call, called);
        opens > 0
    }

    /// Removes the user's state of a call that has ended, and checks that the conversation does not open
    /// another exchange in that call.
    pub(super) fn end_inside(&mut self, g: &mut Ground, call: usize) {
        if self.inside.remove(&call).is_none() {
            return;
        }
        let id = self.open.iter().find(|(open, _)| *open == call).map(|(_, id)| *id);
        if id.is_some_and(|id| self.core.open_exchange(id).is_some()) {
            let now = g.now();
            g.oracle.violate("exchanges-end-with-their-call", now, || format!("call {call} at its client"));
        }
    }
}
