//! Which connection a server ends to make room for a new one. All servers of streams decide it here, so that
//! nobody keeps others out by connections that say nothing, or half of something.

use std::time::Duration;

/// How long a connection must be idle, or its message be on its way, before it is ended for a new one of a
/// host that has as many connections.
pub const MIN_SILENCE: Duration = Duration::from_secs(5);

/// What a connection is used for, and for how long it has been. The later ones are ended before the earlier
/// ones, and among equals the one with the longest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// A call is executed or answered.
    Call(Duration),
    /// A call has come in part.
    PartialCall(Duration),
    /// The client says nothing.
    Idle(Duration),
}

/// A connection that may be ended.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// How many connections its host has.
    pub of_host: usize,
    /// What it is used for.
    pub usage: Usage,
}

/// Returns the position of the connection that is ended for a new one. `own` is how many connections the
/// host of the new one has; it is `None` if the system has no room for the new one, whoever it comes from.
/// Returns `None` if no connection is ended: the new one must wait, or is refused.
///
/// The host with most connections pays. If that has more than the newcomer's host will have, it loses a
/// connection whatever that is used for. Otherwise only one goes that has been idle, or whose message has
/// been on its way, for [`MIN_SILENCE`].
pub fn victim(candidates: impl IntoIterator<Item = Candidate>, own: Option<usize>) -> Option<usize> {
    let mut most = 0;
    let (mut longest, mut place) = (None, None);
    for (position, Candidate { of_host, usage }) in candidates.into_iter().enumerate() {
        if of_host > most {
            (most, longest) = (of_host, None);
        }
        if of_host == most && longest.is_none_or(|longest| usage > longest) {
            (longest, place) = (Some(usage), Some(position));
        }
    }
    let has_more = most > 1 && own.is_none_or(|own| own + 1 < most);
    let is_silent = match longest? {
        Usage::Call(_) => false,
        Usage::PartialCall(time) | Usage::Idle(time) => time >= MIN_SILENCE,
    };
    place.filter(|_| has_more || is_silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = MIN_SILENCE;
    const SHORT: Duration = Duration::from_millis(4_999);

    fn chosen(candidates: &[(usize, Usage)], own: Option<usize>) -> Option<usize> {
        victim(candidates.iter().map(|(of_host, usage)| Candidate { of_host: *of_host, usage: *usage }), own)
    }

    #[test]
    fn the_host_with_most_connections_pays_whatever_they_are_used_for() {
        let all = [(1, Usage::Idle(LONG)), (3, Usage::PartialCall(SHORT)), (3, Usage::Call(LONG))];
        assert_eq!(chosen(&all, Some(0)), Some(1));
        assert_eq!(chosen(&all, None), Some(1));
        assert_eq!(chosen(&all[2..], Some(0)), Some(0));
        assert_eq!(chosen(&[(3, Usage::Idle(SHORT)), (3, Usage::PartialCall(LONG))], Some(1)), Some(0));
        assert_eq!(chosen(&[(3, Usage::Idle(SHORT)), (3, Usage::Idle(LONG))], Some(1)), Some(1));
    }

    #[test]
    fn among_hosts_with_as_many_only_who_says_nothing_for_long_pays() {
        for own in [2, 3, 9] {
            assert_eq!(chosen(&[(3, Usage::Idle(SHORT)), (3, Usage::PartialCall(SHORT))], Some(own)), None);
            assert_eq!(chosen(&[(3, Usage::Call(LONG)), (3, Usage::PartialCall(LONG))], Some(own)), Some(1));
            assert_eq!(chosen(&[(3, Usage::Call(LONG))], Some(own)), None);
        }
        assert_eq!(chosen(&[(1, Usage::Idle(SHORT))], None), None, "a host's only connection stays");
        assert_eq!(chosen(&[(1, Usage::Idle(LONG))], Some(0)), Some(0));
        assert_eq!(chosen(&[], None), None);
    }
}
