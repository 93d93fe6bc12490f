//! Tests of which calls count as sent again, and for how long.

use super::table::{ENTRY_BYTES, HOST_BYTES};
use super::*;

fn peer(transport: Transport, address: &str) -> Peer {
    Peer::at(transport, Some(address.parse().unwrap()))
}

fn call(xid: u32, credential: &[u8]) -> Call<'_> {
    let credential = OpaqueAuth::new(1, credential).unwrap();
    Call { xid, program: 9, version: 1, procedure: 3, credential, verifier: OpaqueAuth::NONE }
}

fn result(len: usize) -> Outcome {
    Outcome::Result(vec![0; len].into(), None)
}

fn key(peer: &Peer, call: &Call<'_>, arguments: &[u8]) -> Key {
    Key::of(7, peer, call, call.credential, arguments).unwrap()
}

fn begin(duplicates: &Duplicates, xid: u32, fate: Option<&Arc<PeerFate>>) -> Seen {
    let transport = if fate.is_some() { Transport::Tcp } else { Transport::Udp };
    duplicates.look_up(key(&peer(transport, "10.0.0.1:700"), &call(xid, b""), b""), fate)
}

/// Answers a call that was found to be new.
fn answer(duplicates: &Duplicates, seen: Seen, outcome: Outcome) {
    let Seen::Never(Some(ticket)) = seen else { panic!("it was seen before") };
    duplicates.end(ticket, outcome);
}

#[test]
fn the_same_call_is_one_from_the_same_place_with_the_same_words() {
    let udp = peer(Transport::Udp, "10.0.0.1:700");
    let first = key(&udp, &call(1, b"me"), b"args");
    assert_eq!(key(&udp, &call(1, b"me"), b"args"), first);
    let others = [
        key(&udp, &call(2, b"me"), b"args"),
        key(&udp, &call(1, b"you"), b"args"),
        key(&udp, &call(1, b"me"), b"arg2"),
        key(&udp, &Call { procedure: 4, ..call(1, b"me") }, b"args"),
        key(&udp, &Call { program: 8, ..call(1, b"me") }, b"args"),
        key(&udp, &Call { version: 2, ..call(1, b"me") }, b"args"),
        key(&peer(Transport::Udp, "10.0.0.2:700"), &call(1, b"me"), b"args"),
        key(&peer(Transport::Udp, "10.0.0.1:701"), &call(1, b"me"), b"args"),
        key(&peer(Transport::Tcp, "10.0.0.1:700"), &call(1, b"me"), b"args"),
    ];
    others.iter().for_each(|other| assert_ne!(other, &first));
    let tcp = |port| key(&peer(Transport::Tcp, &format!("10.0.0.1:{port}")), &call(1, b"me"), b"args");
    assert_eq!(tcp(700), tcp(701));
}

#[test]
fn a_call_is_running_then_answered() {
    let duplicates = Duplicates::new(Retention::default());
    let seen = begin(&duplicates, 1, None);
    assert!(matches!(begin(&duplicates, 1, None), Seen::Running));
    answer(&duplicates, seen, result(8));
    let Seen::Answered(Outcome::Result(bytes, None)) = begin(&duplicates, 1, None) else {
        panic!("it is forgotten")
    };
    assert_eq!(bytes, [0; 8][..]);
}

#[test]
fn a_call_on_another_connection_is_the_same_if_the_first_did_not_end_in_order() {
    let duplicates = Duplicates::new(Retention::default());
    let [broken, ended, third, fourth] = [(); 4].map(|()| Arc::new(PeerFate::default()));
    let seen = begin(&duplicates, 1, Some(&broken));
    assert!(matches!(begin(&duplicates, 1, Some(&third)), Seen::Running));
    answer(&duplicates, seen, result(8));
    assert!(matches!(begin(&duplicates, 1, Some(&broken)), Seen::Answered(_)));
    assert!(matches!(begin(&duplicates, 1, Some(&third)), Seen::Answered(_)));

    let seen = begin(&duplicates, 2, Some(&ended));
    answer(&duplicates, seen, result(8));
    ended.end_in_order();
    // The client's own calls are still known. An equal call of another client is entered as a further call.
    assert!(matches!(begin(&duplicates, 2, Some(&ended)), Seen::Answered(_)));
    let seen = begin(&duplicates, 2, Some(&third));
    assert!(matches!(begin(&duplicates, 2, Some(&fourth)), Seen::Running));
    answer(&duplicates, seen, Outcome::Silence);
    assert!(matches!(begin(&duplicates, 2, Some(&fourth)), Seen::Answered(Outcome::Silence)));
    assert_eq!(duplicates.kept(), (3, HOST_BYTES + 3 * ENTRY_BYTES + 16));
}

#[test]
fn clients_that_come_and_go_with_the_same_call_are_not_all_looked_through() {
    let duplicates = Duplicates::new(Retention::default());
    for _ in 0..1000 {
        let fate = Arc::new(PeerFate::default());
        let seen = begin(&duplicates, 1, Some(&fate));
        answer(&duplicates, seen, result(8));
        fate.end_in_order();
    }
    let places = duplicates.lock().places();
    assert!(places <= 2, "{places} of one call");
}

#[test]
fn one_that_is_too_old_does_not_hide_one_that_is_being_served() {
    let duplicates = Duplicates::new(Retention { time: Duration::ZERO, ..Retention::default() });
    let [first, second, third] = [(); 3].map(|()| Arc::new(PeerFate::default()));
    let seen = begin(&duplicates, 1, Some(&first));
    answer(&duplicates, seen, result(8));
    // As long as both connections exist, they belong to two clients. Then both are broken off.
    first.end_in_order();
    let _served = begin(&duplicates, 1, Some(&second));
    first.break_off();
    assert!(matches!(begin(&duplicates, 1, Some(&third)), Seen::Running));
}

#[test]
fn replies_go_by_age_and_by_bytes() {
    let serve = |duplicates: &Duplicates, xid| {
        let seen = begin(duplicates, xid, None);
        let new = matches!(seen, Seen::Never(_));
        if new {
            answer(duplicates, seen, result(1000));
            duplicates.forget();
        }
        new
    };
    let small = Duplicates::new(Retention { bytes: 10_000, ..Retention::default() });
    (0..1000).for_each(|xid| assert!(serve(&small, xid)));
    let (calls, bytes) = small.kept();
    assert!(bytes <= 10_000 && calls == 7, "{calls} calls of {bytes} bytes");
    assert!(!serve(&small, 999) && serve(&small, 0));
    let brief = Duplicates::new(Retention { time: Duration::ZERO, ..Retention::default() });
    assert!(serve(&brief, 1) && serve(&brief, 1));
    assert_eq!(brief.kept(), (0, 0));
}

#[test]
fn calls_that_are_being_served_outlast_those_that_came_after_them() {
    /// More calls than one search moves.
    const LONG: u32 = 20;
    /// About as many calls as are kept.
    const MANY: u32 = 70;
    let duplicates = Duplicates::new(Retention { bytes: 100_000, ..Retention::default() });
    let serve = |calls: std::ops::Range<u32>| {
        for xid in calls {
            let seen = begin(&duplicates, xid, None);
            answer(&duplicates, seen, result(1000));
            duplicates.forget();
        }
    };
    let mut long: Vec<Seen> = (0..LONG).map(|xid| begin(&duplicates, xid, None)).collect();
    serve(LONG..1000);
    let (calls, bytes) = duplicates.kept();
    assert!(bytes <= 100_000 && calls == (LONG + 79) as usize, "{calls} calls of {bytes} bytes");
    assert!((0..LONG).all(|xid| matches!(begin(&duplicates, xid, None), Seen::Running)));
    // Once answered, such a call is kept as long as any other.
    long.drain(..).take(1).for_each(|seen| answer(&duplicates, seen, result(8)));
    serve(1000..1000 + MANY);
    assert!(matches!(begin(&duplicates, 0, None), Seen::Answered(_)));
    serve(2000..2000 + MANY);
    assert!(matches!(begin(&duplicates, 0, None), Seen::Never(_)));
}

#[test]
fn what_is_not_forgotten_in_time_is_bounded_all_the_same() {
    let duplicates = Duplicates::new(Retention { bytes: 10_000, ..Retention::default() });
    for xid in 0..1000 {
        let seen = begin(&duplicates, xid, None);
        answer(&duplicates, seen, result(1000));
    }
    let (_, bytes) = duplicates.kept();
    assert!(bytes <= 10_000 + SLACK_BYTES, "{bytes} bytes");
}

/// Serves these calls of a host, and answers each of them with `bytes` bytes.
fn serve_at(duplicates: &Duplicates, host: &str, calls: std::ops::Range<u32>, bytes: usize) {
    for xid in calls {
        let seen = duplicates.look_up(key(&peer(Transport::Udp, host), &call(xid, b""), b""), None);
        if let Seen::Never(Some(ticket)) = seen {
            duplicates.end(ticket, result(bytes));
            duplicates.forget();
        }
    }
}

/// Returns how many of these calls of a host are remembered.
fn remembered(duplicates: &Duplicates, host: &str, calls: std::ops::Range<u32>) -> usize {
    let seen = |xid| duplicates.look_up(key(&peer(Transport::Udp, host), &call(xid, b""), b""), None);
    calls.filter(|xid| matches!(seen(*xid), Seen::Answered(_))).count()
}

#[test]
fn a_host_that_has_many_calls_answered_shortens_its_own_memory_and_nobody_elses() {
    let duplicates = Duplicates::new(Retention { bytes: 100_000, ..Retention::default() });
    serve_at(&duplicates, "10.0.0.1:700", 0..20, 100);
    // The attacker uses many ports and identifiers.
    for port in 1..50 {
        serve_at(&duplicates, &format!("10.0.0.2:{port}"), 0..100, 1000);
    }
    assert_eq!(remembered(&duplicates, "10.0.0.1:700", 0..20), 20);
    assert_eq!(remembered(&duplicates, "10.0.0.2:49", 90..100), 10, "its latest");
    let (_, bytes) = duplicates.kept();
    assert!((90_000..=100_000).contains(&bytes), "{bytes} bytes");
}

#[test]
fn many_hosts_of_one_network_shorten_their_own_memory_and_that_of_no_other_network() {
    let duplicates = Duplicates::new(Retention { bytes: 100_000, ..Retention::default() });
    serve_at(&duplicates, "10.0.0.1:700", 0..20, 1000);
    for host in 0..1000 {
        serve_at(&duplicates, &format!("10.1.{}.{}:700", host / 256, host % 256), 0..1, 100);
    }
    assert_eq!(remembered(&duplicates, "10.0.0.1:700", 0..20), 20);
    assert_eq!(remembered(&duplicates, "10.1.3.231:700", 0..1), 1, "the latest one");
    let (_, bytes) = duplicates.kept();
    assert!((90_000..=100_000).contains(&bytes), "{bytes} bytes");
    // While they are alone, they have all of it.
    duplicates.lock().expire(Duration::MAX, duplicates.retention);
    (0..2000).for_each(|_| duplicates.lock().expire(Duration::MAX, duplicates.retention));
    assert_eq!(duplicates.kept(), (0, 0));
}

#[test]
fn hosts_that_have_as_much_share_what_there_is() {
    let duplicates = Duplicates::new(Retention { bytes: 200_000, ..Retention::default() });
    let hosts: Vec<String> = (0..4).map(|host| format!("10.0.0.{host}:700")).collect();
    for xid in 0..500 {
        hosts.iter().for_each(|host| serve_at(&duplicates, host, xid..xid + 1, 1000));
    }
    let shares: Vec<usize> = hosts.iter().map(|host| remembered(&duplicates, host, 400..500)).collect();
    assert!(shares.iter().all(|share| (37..=40).contains(share)), "{shares:?}");
}

#[test]
fn hosts_of_which_nothing_is_kept_are_forgotten() {
    let duplicates = Duplicates::new(Retention { bytes: 10_000, ..Retention::default() });
    for host in 0..10_000u32 {
        serve_at(&duplicates, &format!("10.1.{}.{}:700", host >> 8, host & 255), 0..1, 100);
    }
    let (calls, bytes) = duplicates.kept();
    assert!(calls <= 10 && bytes <= 10_000, "{calls} calls of {bytes} bytes");
    let duplicates = Duplicates::new(Retention { time: Duration::ZERO, ..Retention::default() });
    for host in 0..100 {
        serve_at(&duplicates, &format!("10.0.0.{host}:700"), 0..1, 100);
    }
    (0..100).for_each(|_| duplicates.lock().expire((duplicates.clock)(), duplicates.retention));
    assert_eq!(duplicates.kept(), (0, 0));
}
