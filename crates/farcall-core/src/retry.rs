//! Decides what to do after a failed attempt of a call. The same rules serve blocking, started and grouped
//! calls, by UDP, through shared memory and by ONC RPC.

use std::net::SocketAddr;

use crate::{CallFailed, Kind, Ran};

/// The most attempts of one call after its first.
const MAX_REPEATS: usize = 8;
/// The most attempts of one call after its first, if only one server can execute the call.
const MAX_REPEATS_AT_SAME_SERVER: usize = 1;

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call has failed. The binding is kept.
    Fail,
    /// The call has failed. The binding is dropped, so that the next call binds again.
    FailAndUnbind,
    /// Bind again, and make the call again.
    Repeat,
}

/// The attempts of one call so far.
#[derive(Debug)]
pub struct Retry {
    /// The servers that must not be called again for this call.
    avoid: Vec<SocketAddr>,
    repeats: usize,
    was_silent: bool,
    /// Whether any attempt ran.
    ran: Ran,
    /// The failure of the first attempt. It explains more than a later failure to bind.
    first: Option<CallFailed>,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { avoid: Vec::new(), repeats: 0, was_silent: false, ran: Ran::No, first: None }
    }
}

impl Retry {
    /// Decides what follows an attempt at `address` that failed with `kind`. A call that may have run is made
    /// again only if it is `idempotent`. `has_other` says whether another server exports the name.
    pub fn next(
        &mut self,
        (kind, ran): (Kind, Ran),
        idempotent: bool,
        address: SocketAddr,
        has_other: impl FnOnce() -> bool,
    ) -> Step {
        self.ran = either_ran(self.ran, ran);
        self.was_silent = kind == Kind::Unreachable;
        match where_to(kind) {
            // The server ended the call when it ceased to accept this client. It says more when it is bound.
            None if kind == Kind::NotPermitted && ran == Ran::Maybe => return Step::FailAndUnbind,
            None => return Step::Fail,
            Some(Place::Anywhere) => {}
            Some(Place::Elsewhere) if self.avoid.contains(&address) => return Step::Fail,
            // A server that is merely busy stays bound unless there is another.
            Some(Place::Elsewhere) if kind == Kind::Overloaded && !has_other() => return Step::Fail,
            Some(Place::Elsewhere) => self.avoid.push(address),
        }
        if self.may_repeat(ran, idempotent, MAX_REPEATS) { Step::Repeat } else { Step::FailAndUnbind }
    }

    /// Decides what follows an attempt at the only server that can execute the call. `can_renew` says whether
    /// the cause of the failure can be replaced: the connection if the server was unreachable, or the
    /// credential if the call was not permitted.
    pub fn next_at_same_server(
        &mut self,
        (kind, ran): (Kind, Ran),
        idempotent: bool,
        can_renew: bool,
    ) -> Step {
        self.ran = either_ran(self.ran, ran);
        let helps = can_renew && matches!(kind, Kind::Unreachable | Kind::NotPermitted);
        match helps && self.may_repeat(ran, idempotent, MAX_REPEATS_AT_SAME_SERVER) {
            true => Step::Repeat,
            false => Step::Fail,
        }
    }

    /// Counts another attempt, and returns whether it may be made.
    fn may_repeat(&mut self, ran: Ran, idempotent: bool, most: usize) -> bool {
        self.repeats += 1;
        (ran == Ran::No || idempotent) && self.repeats <= most
    }

    /// Returns whether the server of the last attempt was silent, for as long as its caller waits.
    pub fn was_silent(&self) -> bool {
        self.was_silent
    }

    /// Returns the servers that must not be called again for this call.
    pub fn avoid(&self) -> &[SocketAddr] {
        &self.avoid
    }

    /// Keeps the failure of the first attempt.
    pub fn note_first(&mut self, why: impl FnOnce() -> CallFailed) {
        self.first.get_or_insert_with(why);
    }

    /// Returns the failure of a call for which no server was found: the failure of its first attempt, or
    /// `why` if it made none, or if the servers that are there are not accepted. A server that has forgotten
    /// the client, and drains, says the latter when it is asked.
    pub fn no_server_found(&mut self, why: CallFailed) -> CallFailed {
        let is_broken = |kind| {
            matches!(kind, Kind::NotExported | Kind::Forgotten | Kind::ServerRestarted | Kind::ResultLost)
        };
        match self.first.take() {
            Some(first) if is_broken(first.kind()) && why.kind() == Kind::Draining => why,
            Some(first) if why.kind() != Kind::NotPermitted => first,
            _ => why,
        }
    }

    /// Returns the failure that the caller gets. It says whether any of the attempts ran.
    pub fn of_all(&self, why: CallFailed) -> CallFailed {
        let ran = either_ran(self.ran, why.ran());
        why.but_ran(ran)
    }
}

/// Where a call that failed can be made again.
enum Place {
    /// At any server, including the same one, because only the binding is broken.
    Anywhere,
    /// Only at another address.
    Elsewhere,
}

fn where_to(kind: Kind) -> Option<Place> {
    match kind {
        // By now another server, or another export, may be at the address of one that drained. One that still
        // drains refuses to be bound.
        Kind::ServerRestarted | Kind::NotExported | Kind::Forgotten | Kind::ResultLost | Kind::Draining => {
            Some(Place::Anywhere)
        }
        Kind::Unreachable | Kind::Overloaded => Some(Place::Elsewhere),
        _ => None,
    }
}

/// Returns whether a call that was attempted twice ran, given whether each attempt ran.
pub(crate) fn either_ran(a: Ran, b: Ran) -> Ran {
    match (a, b) {
        (Ran::Yes, _) | (_, Ran::Yes) => Ran::Yes,
        (Ran::No, Ran::No) => Ran::No,
        _ => Ran::Maybe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

    /// The step after one failed attempt. Rows: `Ran::No`, `Maybe`, `Yes`. Columns: not idempotent,
    /// idempotent.
    fn steps(kind: Kind, has_other: bool) -> [[Step; 2]; 3] {
        let step =
            |ran, idempotent| Retry::default().next((kind, ran), idempotent, HERE.into(), || has_other);
        [Ran::No, Ran::Maybe, Ran::Yes].map(|ran| [false, true].map(|idempotent| step(ran, idempotent)))
    }

    #[test]
    fn a_drain_is_named_as_the_cause() {
        let failed = |kind| CallFailed::new(kind, Ran::No);
        for (first, then, told) in [
            (Kind::NotExported, Kind::Draining, Kind::Draining),
            (Kind::Forgotten, Kind::Draining, Kind::Draining),
            (Kind::Draining, Kind::NoSuchName, Kind::Draining),
            (Kind::Draining, Kind::NotExported, Kind::Draining),
            (Kind::NotExported, Kind::NoSuchName, Kind::NotExported),
            (Kind::Unreachable, Kind::Draining, Kind::Unreachable),
            (Kind::NotExported, Kind::NotPermitted, Kind::NotPermitted),
        ] {
            let mut retry = Retry::default();
            retry.note_first(|| failed(first));
            assert_eq!(retry.no_server_found(failed(then)).kind(), told, "{first:?}, then {then:?}");
        }
    }

    #[test]
    fn each_kind_of_failure_has_its_step() {
        use Step::{Fail, FailAndUnbind, Repeat};
        let harmless = [[Repeat, Repeat], [FailAndUnbind, Repeat], [FailAndUnbind, Repeat]];
        let never = [[Fail; 2]; 3];
        let revoked = [[Fail; 2], [FailAndUnbind; 2], [Fail; 2]];
        for kind in Kind::ALL {
            let (with_another, alone) = match kind {
                Kind::ServerRestarted | Kind::NotExported | Kind::Forgotten | Kind::ResultLost => {
                    (harmless, harmless)
                }
                Kind::Unreachable | Kind::Draining => (harmless, harmless),
                Kind::Overloaded => (harmless, never),
                Kind::NotPermitted => (revoked, revoked),
                _ => (never, never),
            };
            assert_eq!((steps(*kind, true), steps(*kind, false)), (with_another, alone), "{kind:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_once_and_one_that_restarts_a_bounded_number_of_times() {
        let mut retry = Retry::default();
        let mut next = |kind| retry.next((kind, Ran::No), false, HERE.into(), || true);
        assert_eq!(next(Kind::Unreachable), Step::Repeat);
        assert_eq!(next(Kind::Unreachable), Step::Fail);
        let repeats = (0..100).take_while(|_| next(Kind::ServerRestarted) == Step::Repeat).count();
        assert_eq!(repeats, MAX_REPEATS - 1);
        assert_eq!(retry.avoid(), [SocketAddr::from(HERE)]);
    }

    #[test]
    fn at_the_same_server_a_call_is_made_again_once_with_a_new_connection_or_credential() {
        use Step::{Fail, Repeat};
        for kind in Kind::ALL {
            let step = |ran, idempotent, can_renew| {
                Retry::default().next_at_same_server((*kind, ran), idempotent, can_renew)
            };
            let steps = [Ran::No, Ran::Maybe, Ran::Yes].map(|ran| [false, true].map(|i| step(ran, i, true)));
            let expected = match kind {
                Kind::Unreachable | Kind::NotPermitted => [[Repeat, Repeat], [Fail, Repeat], [Fail, Repeat]],
                _ => [[Fail; 2]; 3],
            };
            assert_eq!(steps, expected, "{kind:?}");
            assert_eq!(step(Ran::No, true, false), Fail, "{kind:?}, and nothing can be renewed");
        }
        let mut retry = Retry::default();
        let mut next = |kind| retry.next_at_same_server((kind, Ran::No), true, true);
        assert_eq!([next(Kind::NotPermitted), next(Kind::Unreachable)], [Repeat, Fail]);
    }

    #[test]
    fn a_failure_says_whether_any_attempt_ran() {
        for (attempts, all) in [
            ([Ran::No, Ran::No], Ran::No),
            ([Ran::Maybe, Ran::No], Ran::Maybe),
            ([Ran::No, Ran::Maybe], Ran::Maybe),
            ([Ran::Yes, Ran::Maybe], Ran::Yes),
        ] {
            let mut retry = Retry::default();
            retry.next((Kind::Forgotten, attempts[0]), true, HERE.into(), || true);
            assert_eq!(retry.of_all(CallFailed::new(Kind::Deadline, attempts[1])).ran(), all, "{attempts:?}");
        }
    }
}
