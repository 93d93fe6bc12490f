//! The user of one end of an exchange in a run: it does its part, and tells the oracle.

use farcall_proto::{News, Tail};

use crate::exchanging::{CHUNK, End, Part, content, is_signal, parts};
use crate::net::Nanos;
use crate::oracle::Oracle;

/// The reason that a user gives for taking no more of an exchange.
const STOPS: u32 = 0x5a5a;

/// How many bytes are copied of those that are added to a direction at once. The others are added as long
/// ones, which an end need not copy.
pub const HEAD: usize = 8;

/// What the user of one end does with its end of the call.
pub trait Verbs {
    /// The end.
    const END: End;
    /// Adds bytes to a direction.
    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize>;
    /// Takes bytes that have come.
    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool>;
    /// Takes no more.
    fn stop(&mut self, exchange: u32, reason: u32);
    /// Returns whether some of the added bytes are not known to have arrived. If so, [`News::Room`] comes
    /// when they have.
    fn awaits_credit(&mut self, exchange: u32) -> bool;
}

/// What the user of one end knows of an exchange.
#[derive(Clone, Debug)]
pub struct User {
    part: Part,
    /// The bytes that the other end sends, if it sends any.
    comes: Option<u64>,
    is_signal: bool,
    sent: u64,
    taken: u64,
    /// Its own direction has ended, or is not to be sent.
    ended: bool,
    /// The other end's direction has ended, and all of it was taken.
    all: bool,
    /// It takes no more.
    stopped: bool,
    was_stopped: bool,
    can_take: bool,
    can_send: bool,
}

impl User {
    /// Makes the user of one end, who knows of the exchange and has done nothing.
    pub fn new(key: u64, exchange: u32, end: End) -> User {
        let [client, server] = parts(key, exchange);
        let (part, other) = if end == End::Client { (client, server) } else { (server, client) };
        User {
            comes: other.sends,
            is_signal: is_signal(key, exchange),
            sent: 0,
            taken: 0,
            ended: part.sends.is_none(),
            all: false,
            stopped: false,
            was_stopped: false,
            can_take: false,
            can_send: true,
            part,
        }
    }

    /// Acts on news about the exchange. Returns what is wrong with it, if anything is.
    pub fn hear(&mut self, news: News, exchange: u32) -> Option<&'static str> {
        match news {
            News::Came => self.can_take = true,
            News::Room => self.can_send = true,
            News::Stopped(reason) => {
                let again = std::mem::replace(&mut self.was_stopped, true);
                self.ended = true;
                return (again || reason != exchange ^ STOPS)
                    .then_some("a stop is told once, with its reason");
            }
        }
        None
    }

    /// Returns whether the user has done all that it does in the exchange.
    pub fn is_done(&self) -> bool {
        let sent =
            self.ended || self.part.sends == Some(self.sent) && !self.part.ends && !self.part.until_stopped;
        let taken = self.all || self.stopped || self.comes.is_none_or(|comes| self.taken >= comes);
        sent && taken
    }

    /// Returns whether the user has taken all of the other end's direction.
    pub fn has_all(&self) -> bool {
        self.all
    }

    /// Does what can be done now. Returns whether there is more to do at once.
    pub fn step<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) -> bool {
        if self.has_enough() {
            self.stopped = true;
            oracle.stops(call, exchange, V::END);
            verbs.stop(exchange, exchange ^ STOPS);
        }
        if self.can_take && !self.stopped {
            self.take(verbs, oracle, (now, call), exchange);
        }
        self.send(verbs, oracle, (now, call), exchange);
        self.can_take && !self.stopped || self.has_enough() || self.may_send()
    }

    /// Returns whether the user is about to say that it takes no more.
    fn has_enough(&self) -> bool {
        self.part.stops_at.is_some_and(|at| self.taken >= at) && !self.stopped && !self.all
    }

    fn take<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) {
        let (mut into, most) = (Vec::new(), self.part.takes.min(1 << 30) as usize);
        let Some(all) = verbs.take_from(exchange, &mut into, most) else {
            // The call has ended or was given up.
            (self.can_take, self.all) = (false, true);
            return;
        };
        self.can_take = into.len() == most;
        oracle.takes(now, call, (exchange, V::END.other()), self.taken, &into);
        self.taken += into.len() as u64;
        if all && !std::mem::replace(&mut self.all, true) {
            (self.can_take, self.can_send) = (false, true);
            if self.is_signal {
                oracle.handles(now, call, exchange, V::END);
            }
        }
    }

    fn may_send(&self) -> bool {
        let comes_later = self.part.answers && !self.all && !self.stopped;
        let sent = self.part.sends == Some(self.sent) && !self.part.ends;
        self.can_send && !self.ended && !sent && !comes_later
    }

    fn send<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) {
        if self.was_stopped && std::mem::take(&mut self.can_send) {
            if verbs.send_in(exchange, &[0; 4], Tail::More).is_some() {
                oracle.violate("a-stop-is-obeyed", now, || format!("call {call}, exchange {exchange}"));
            }
            return;
        }
        let Some(len) = self.part.sends.filter(|_| self.may_send()) else { return };
        let more = (len - self.sent).min(self.part.adds);
        let mut bytes = Vec::with_capacity(more as usize);
        content((oracle.token(call), exchange, V::END), self.sent, more, &mut bytes);
        let last = self.sent + more == len;
        let tail = if last { self.part.tail(self.is_signal) } else { Tail::More };
        let Some(added) = verbs.send_in(exchange, &bytes, tail) else {
            self.ended = true;
            return;
        };
        self.sent += added as u64;
        self.can_send = added == bytes.len();
        self.ended = last && self.can_send && self.part.ends;
        oracle.sends(now, call, (exchange, V::END), self.sent);
        if self.can_send && !self.ended && self.part.adds < CHUNK {
            self.can_send = !verbs.awaits_credit(exchange);
        }
    }
}
