//! Which connection a server ends to make room for a new one. All servers of streams decide it here, so that
//! nobody keeps others out by connections that say nothing, or half of something.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::host::Host;

/// How long a connection must be idle, or its message be on its way, before it is ended for a new one of a
/// host that has as many connections.
pub const MIN_SILENCE: Duration = Duration::from_secs(5);

/// What a connection is used for, and for how long it has been. The later ones are ended before the earlier
/// ones, and among equals the one with the longest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    /// A call is executed or answered.
    Call(Duration),
    /// A call has come in part, or the client takes its reply or bulk data in part. The time counts from
    /// when that began.
    PartialCall(Duration),
    /// The client says nothing.
    Idle(Duration),
}

/// A connection of a server.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Whose it is.
    pub host: Host,
    /// What it is used for, or `None` if it may not be ended.
    pub usage: Option<Usage>,
}

/// Returns the position of the connection that is ended for a new one. `connections` are all that the server
/// has. `newcomer` is the host of the new one; it is `None` if the system has no room for the new one,
/// whoever it comes from. Returns `None` if no connection is ended: the new one must wait, or is refused.
///
/// The network with most connections pays, and in it the host with most. One machine can have all addresses
/// of an IPv6 network, so to count hosts alone would let it keep all others out.
///
/// 1. If the network has more than the newcomer's will have, it loses a connection that executes no call.
/// 2. If the host has more than the newcomer's host will have, it loses a connection whatever that is used
///    for.
/// 3. Otherwise only one goes that has been idle, or whose message has been on its way, for [`MIN_SILENCE`].
pub fn victim(connections: &[Candidate], newcomer: Option<Host>) -> Option<usize> {
    let (mut hosts, mut networks) = (HashMap::new(), HashMap::new());
    for Candidate { host, .. } in connections {
        *hosts.entry(*host).or_insert(0_usize) += 1;
        *networks.entry(host.network()).or_insert(0_usize) += 1;
    }
    let of_host = |host: &Host| hosts.get(host).copied().unwrap_or(0);
    let of_network = |host: &Host| networks.get(&host.network()).copied().unwrap_or(0);
    let has_more = |many: &dyn Fn(&Host) -> usize, host: &Host| {
        many(host) > 1 && newcomer.is_none_or(|newcomer| many(&newcomer) + 1 < many(host))
    };
    let usable = |is_chosen: &dyn Fn(&Host, Usage) -> bool| {
        let all = connections.iter().enumerate();
        let all = all.filter_map(|(place, one)| Some((one.host, one.usage?, place)));
        let chosen = all.filter(|(host, usage, _)| is_chosen(host, *usage));
        chosen.max_by_key(|(host, usage, place)| (of_network(host), of_host(host), *usage, Reverse(*place)))
    };
    let of_network_with_more =
        usable(&|host, usage| !matches!(usage, Usage::Call(_)) && has_more(&of_network, host));
    let of_host_with_more = || usable(&|_, _| true).filter(|(host, ..)| has_more(&of_host, host));
    let is_silent = |usage| match usage {
        Usage::Call(_) => false,
        Usage::PartialCall(time) | Usage::Idle(time) => time >= MIN_SILENCE,
    };
    let silent = || usable(&|_, usage| is_silent(usage));
    of_network_with_more.or_else(of_host_with_more).or_else(silent).map(|(.., place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = MIN_SILENCE;
    const SHORT: Duration = Duration::from_millis(4_999);

    /// Returns the connections of one network: of each host so many, all used in one way.
    fn connections(network: u8, hosts: &[(u8, usize, Option<Usage>)]) -> Vec<Candidate> {
        let of_host = |(host, many, usage): &(u8, usize, Option<Usage>)| {
            vec![Candidate { host: host_of(network, *host), usage: *usage }; *many]
        };
        hosts.iter().flat_map(of_host).collect()
    }

    fn host_of(network: u8, host: u8) -> Host {
        Host::at([10, network, 0, host].into())
    }

    fn chosen(all: &[Candidate], newcomer: Option<Host>) -> Option<Host> {
        victim(all, newcomer).map(|place| all[place].host)
    }

    const CALL: Option<Usage> = Some(Usage::Call(LONG));
    const FRESH: Option<Usage> = Some(Usage::PartialCall(SHORT));
    const SILENT: Option<Usage> = Some(Usage::Idle(LONG));

    #[test]
    fn the_host_with_most_connections_pays_whatever_they_are_used_for() {
        let [one, two, new] = [1, 2, 3].map(|host| host_of(0, host));
        let all = connections(0, &[(1, 1, SILENT), (2, 3, FRESH)]);
        assert_eq!(chosen(&all, Some(new)), Some(two));
        assert_eq!(chosen(&all, None), Some(two));
        assert_eq!(chosen(&connections(0, &[(1, 1, SILENT), (2, 3, CALL)]), Some(new)), Some(two));
        // Of a host's connections the one goes first that says nothing, then that with half a call.
        let usages = [CALL, FRESH, Some(Usage::Idle(SHORT)), SILENT];
        let mut all: Vec<_> = usages.map(|usage| Candidate { host: two, usage }).into();
        for left in (0..usages.len()).rev() {
            assert_eq!(victim(&all, None), (left > 0).then_some(left), "a host's only connection stays");
            all.pop();
        }
        assert_eq!(chosen(&connections(0, &[(1, 1, SILENT)]), Some(two)), Some(one));
        assert_eq!(chosen(&[], None), None);
    }

    #[test]
    fn among_hosts_with_as_many_only_who_says_nothing_for_long_pays() {
        let one = host_of(0, 1);
        for newcomer in [one, host_of(0, 2)] {
            let most = if newcomer == one { 3 } else { 1 };
            let with = |usage| connections(0, &[(1, most, CALL), (2, most, usage)]);
            assert_eq!(chosen(&with(FRESH), Some(newcomer)), None);
            assert_eq!(chosen(&with(CALL), Some(newcomer)), None);
            assert_eq!(chosen(&with(SILENT), Some(newcomer)), Some(host_of(0, 2)));
        }
    }

    #[test]
    fn many_addresses_of_one_network_keep_no_other_network_out() {
        let many: Vec<_> = (0..100).map(|host| (host, 1, FRESH)).collect();
        let honest = host_of(1, 1);
        let newcomer = chosen(&connections(0, &many), Some(honest)).expect("a network has more");
        assert_eq!(newcomer.network(), host_of(0, 0).network());
        // The network's further connections take no place of others, however these use theirs.
        for usage in [SILENT, CALL, FRESH] {
            let all = [connections(0, &many), connections(1, &[(1, 3, usage)])].concat();
            let expected = if usage == SILENT { Some(honest) } else { None };
            assert_eq!(chosen(&all, Some(host_of(0, 200))), expected, "{usage:?}");
        }
    }

    #[test]
    fn a_call_ends_for_its_host_s_sake_alone() {
        let many: Vec<_> = (0..100).map(|host| (host, 1, CALL)).collect();
        assert_eq!(chosen(&connections(0, &many), Some(host_of(1, 1))), None);
        let all = [connections(0, &many), connections(0, &[(200, 2, CALL)])].concat();
        assert_eq!(chosen(&all, Some(host_of(1, 1))), Some(host_of(0, 200)));
    }

    #[test]
    fn a_connection_that_stays_counts_for_its_host() {
        // The newcomer's host has most connections, so nobody else pays for it.
        let all = connections(0, &[(1, 3, None), (2, 2, FRESH)]);
        assert_eq!(chosen(&all, Some(host_of(0, 1))), None);
        assert_eq!(chosen(&all, Some(host_of(0, 3))), Some(host_of(0, 2)));
    }
}
