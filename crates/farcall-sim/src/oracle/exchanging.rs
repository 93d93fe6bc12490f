//! The invariants of what passes inside calls.

use std::collections::{BTreeMap, HashMap};

use super::{Call, Oracle};
use crate::exchanging::{End, content, unwinds};
use crate::net::Nanos;

/// The credit with which each direction begins, in bytes.
const FIRST_CREDIT: u64 = 12_000;

/// What truly passed inside a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Inside {
    /// By exchange, and by the end that sends.
    directions: BTreeMap<(u32, End), Direction>,
    /// The client heard something of the server in an exchange.
    touched: bool,
    /// The client's answer to a signal unwinds the procedure.
    unwound: bool,
    /// The procedure ended with a failure that says that it did not run.
    says_no: bool,
    /// The server was restored during the call's execution or after it. The restored server sends again what
    /// it had sent, and has lost what it had received.
    restored: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    sent: u64,
    taken: u64,
    /// The most that the receiver had lent before its user took the first byte: it lends as much to each
    /// direction of which nothing has come.
    loan: u64,
    /// The receiver's user takes no more.
    stopped: bool,
    /// How often a signal's question or answer was given to the receiver's user.
    handled: u32,
}

/// The most that clients and servers have lent one another, in bytes: by the client, the server whose address
/// it calls, and the end that may send.
pub(super) type Loans = HashMap<(usize, usize, End), u64>;

/// Returns how many bytes beyond those that its user has taken a receiver may allow, unless it has lent more.
fn credit(taken: u64) -> u64 {
    (4 * taken).max(FIRST_CREDIT)
}

impl Oracle {
    /// Returns the most that the other end of a call may have lent this one by now. An end lends what it
    /// allows in any direction of the conversation.
    fn loan(&mut self, call: usize, to: End) -> &mut u64 {
        let Call { client, called, .. } = self.calls[call];
        self.loans.entry((client, called, to)).or_default()
    }

    /// Notes that a server begins to execute a call with exchanges.
    pub fn begin_inside(&mut self, call: usize) {
        self.counts.exchanging += 1;
        self.inside.entry(call).or_default();
    }

    /// Notes how many bytes the user of one end has added to its direction.
    pub fn sends(&mut self, now: Nanos, call: usize, which: (u32, End), sent: u64) {
        let unwinding = which.1 == End::Client && unwinds(self.token(call), which.0);
        let lent = *self.loan(call, which.1);
        let inside = self.inside.entry(call).or_default();
        inside.unwound |= unwinding;
        let direction = inside.directions.entry(which).or_default();
        self.counts.carried += sent.saturating_sub(direction.sent);
        if direction.taken == 0 {
            direction.loan = lent;
        }
        direction.sent = direction.sent.max(sent);
        let most = direction.loan.max(direction.taken + credit(direction.taken));
        let truth = *direction;
        if sent > most && !inside.restored {
            self.violate("credit-is-kept", now, || format!("call {call}, {which:?}: {truth:?}"));
        }
    }

    /// Checks bytes that one end's user has taken, which are those from `start` on.
    pub fn takes(&mut self, now: Nanos, call: usize, which: (u32, End), start: u64, bytes: &[u8]) {
        let mut expected = Vec::with_capacity(bytes.len());
        content((self.token(call), which.0, which.1), start, bytes.len() as u64, &mut expected);
        let lent = *self.loan(call, which.1);
        let inside = self.inside.entry(call).or_default();
        inside.touched |= which.1 == End::Server;
        let direction = inside.directions.entry(which).or_default();
        if direction.taken == 0 {
            direction.loan = lent;
        }
        direction.taken = direction.taken.max(start + bytes.len() as u64);
        let truth = *direction;
        *self.loan(call, which.1) = lent.max(credit(truth.taken));
        if bytes != expected || truth.taken > truth.sent {
            self.violate("bytes-in-order-and-once", now, || {
                format!("call {call}, {which:?}: {} bytes from {start} on: {truth:?}", bytes.len())
            });
        }
    }

    /// Notes that the user of one end takes no more of an exchange.
    pub fn stops(&mut self, call: usize, exchange: u32, end: End) {
        let inside = self.inside.entry(call).or_default();
        inside.directions.entry((exchange, end.other())).or_default().stopped = true;
    }

    /// Notes that the user of the client was told that the server takes no more.
    pub fn touched(&mut self, call: usize) {
        self.inside.entry(call).or_default().touched = true;
    }

    /// Notes that a signal's question reached the client's user, or its answer the procedure.
    pub fn handles(&mut self, now: Nanos, call: usize, exchange: u32, end: End) {
        let inside = self.inside.entry(call).or_default();
        let direction = inside.directions.entry((exchange, end.other())).or_default();
        direction.handled += 1;
        self.counts.handled += u64::from(end == End::Client);
        let (truth, most) = (*direction, if inside.restored { 2 } else { 1 });
        if truth.handled > most || truth.handled > 1 && end == End::Client {
            self.violate("handled-at-most-once", now, || {
                format!("call {call}, exchange {exchange}, at the {end:?}: {truth:?}")
            });
        }
    }

    /// Notes that a procedure that has run ends with a failure that says that it did not.
    pub fn says_no(&mut self, call: usize) {
        self.inside.entry(call).or_default().says_no = true;
    }

    /// Notes that the server of a call goes back in time.
    pub(super) fn restore_inside(&mut self, server: usize) {
        for (call, inside) in &mut self.inside {
            inside.restored |= self.calls[*call].server == server;
        }
    }

    /// Returns whether a failure may say that the call did not run: its procedure says so, and the client has
    /// received nothing in an exchange.
    pub(super) fn denies(&self, call: usize) -> bool {
        self.inside.get(&call).is_some_and(|inside| inside.says_no && !inside.touched)
    }

    /// Returns whether the client's answer to a signal unwinds the procedure.
    pub(super) fn is_unwound(&self, call: usize) -> bool {
        self.inside.get(&call).is_some_and(|inside| inside.unwound)
    }

    /// Checks that the caller has taken, before the procedure's outcome, all that was sent before it.
    pub(super) fn comes_last(&mut self, now: Nanos, call: usize, truth: &Call) {
        let Some(inside) = self.inside.get(&call).filter(|inside| !inside.restored) else { return };
        if truth.cancelled {
            return;
        }
        let is_early = |((_, from), direction): &(&(u32, End), &Direction)| {
            *from == End::Server && direction.taken < direction.sent && !direction.stopped
        };
        if let Some((which, direction)) = inside.directions.iter().find(is_early) {
            let what = format!("call {call}, {which:?}: {direction:?}");
            self.violate("the-outcome-comes-last", now, || what);
        }
    }
}
