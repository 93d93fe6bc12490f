//! What is found in DNS, under which names, and how changes are seen.

use farcall_names::{Error, Owner, Registry, open, suite};

use crate::server::{
    LONG, Reply, Server, address, alias, authority, encode, label, local_registry, shown, srv, store, until,
};

fn stores(server: &Server) -> Vec<String> {
    shown(&server.registry().instances(&label("Store")).unwrap())
}

#[test]
fn targets_are_instances_at_the_addresses_of_their_hosts() {
    let server = Server::of(vec![
        store(0, "Ebbets.Example.org", 7000),
        address("Ebbets.Example.org", "10.0.0.7"),
        store(0, "luther.example.org", 7001),
        address("luther.example.org", "fd00::8"),
    ]);
    let registry = server.registry();
    let found = registry.instances(&label("Store")).unwrap();
    assert_eq!(shown(&found), ["ebbets udp://10.0.0.7:7000", "luther udp://[fd00::8]:7001"]);
    assert!(found.iter().all(|entry| entry.by_type && entry.owner == Owner::NONE && entry.export == 0));
    assert_eq!(found[0].asked_name(), "Store");
    assert_eq!(registry.lookup(&label("Store"), &label("luther")).unwrap().as_ref(), Some(&found[1]));
    assert_eq!(registry.lookup(&label("Store"), &label("Luther")).unwrap(), None);
    assert_eq!(server.asked(), 1, "the addresses came with the answer, and the answer is kept");
}

#[test]
fn addresses_that_do_not_come_with_the_answer_are_asked_for() {
    let records = vec![
        store(0, "ebbets.example.org", 7000),
        address("ebbets.example.org", "10.0.0.7"),
        address("ebbets.example.org", "fd00::7"),
        store(0, "luther.example.org", 7000),
        alias("luther.example.org", "host.example.net"),
        address("host.example.net", "fd00::8"),
        store(0, "gone.example.org", 7000),
    ];
    let server = Server::new(move |query| {
        let whole = crate::server::answer(query, &records);
        let mut packet = simple_dns::Packet::parse(&whole).unwrap();
        packet.additional_records.clear();
        vec![Reply::Message(encode(query, &packet))]
    });
    assert_eq!(stores(&server), ["ebbets udp://10.0.0.7:7000", "luther udp://[fd00::8]:7000"]);
    assert_eq!(server.asked(), 1 + 3 * 2, "each host is asked for both families");
}

#[test]
fn instances_of_hosts_with_several_ports_or_like_names_have_names_of_their_own() {
    let mut records = Vec::new();
    for (host, ip) in [("a.one.org", "10.0.0.1"), ("a.two.org", "10.0.0.2"), ("b.one.org", "10.0.0.3")] {
        records.extend([store(0, host, 7000), address(host, ip)]);
    }
    records.push(store(0, "b.one.org", 7001));
    let expected = [
        "a.one.org udp://10.0.0.1:7000",
        "a.two.org udp://10.0.0.2:7000",
        "b-7000 udp://10.0.0.3:7000",
        "b-7001 udp://10.0.0.3:7001",
    ];
    assert_eq!(stores(&Server::of(records)), expected);
}

#[test]
fn only_the_lowest_priority_that_has_addresses_counts() {
    let server = Server::of(vec![
        store(5, "gone.example.org", 7000),
        store(10, "b.example.org", 7000),
        address("b.example.org", "10.0.0.2"),
        store(10, "a.example.org", 7000),
        address("a.example.org", "10.0.0.1"),
        store(20, "backup.example.org", 7000),
        address("backup.example.org", "10.0.0.3"),
    ]);
    assert_eq!(stores(&server), ["a udp://10.0.0.1:7000", "b udp://10.0.0.2:7000"]);
}

#[test]
fn aliases_are_followed_within_an_answer_and_by_further_questions() {
    let aliases = [
        alias("_store._udp.example.org", "one.example.org"),
        alias("one.example.org", "two.example.org"),
        srv("two.example.org", LONG, 0, "a.example.org", 7000),
        address("a.example.org", "10.0.0.1"),
    ];
    let server = Server::of(aliases.to_vec());
    assert_eq!(stores(&server), ["a udp://10.0.0.1:7000"]);
    assert_eq!(server.asked(), 1);
    // This server tells one step at a time.
    server.behave(move |query| {
        let own: Vec<_> = aliases.iter().filter(|r| r.name.to_string() == query.name).cloned().collect();
        vec![Reply::Message(encode(query, &query.answer(&own, &aliases[3..])))]
    });
    assert_eq!(stores(&server), ["a udp://10.0.0.1:7000"]);
    assert_eq!(server.asked(), 1 + 3);
}

#[test]
fn what_cannot_be_called_is_not_listed() {
    let server = Server::of(vec![
        store(0, ".", 7000),
        store(0, "a.example.org", 0),
        address("a.example.org", "10.0.0.1"),
        store(0, "b.example.org", 7000),
        address("b.example.org", "0.0.0.0"),
        address("b.example.org", "224.0.0.1"),
        address("b.example.org", "::"),
        address("b.example.org", "fe80::1"),
    ]);
    assert_eq!(stores(&server), [""; 0]);
}

#[test]
fn loopback_and_link_local_addresses_count_for_localhost_alone_unless_asked_for() {
    const LOCAL: [&str; 5] = ["127.0.0.1", "127.9.9.9", "169.254.169.254", "::1", "::ffff:127.0.0.1"];
    for local in LOCAL {
        let lies = vec![store(0, "a.example.org", 7000), address("a.example.org", local)];
        let server = Server::of(lies.clone());
        let why = server.registry().instances(&label("Store")).unwrap_err().to_string();
        for said in ["a.example.org has the address", "set FARCALL_DNS_LOCAL_ADDRESSES=1"] {
            assert!(why.contains(said), "{local}: {why}");
        }
        assert_eq!(shown(&local_registry(&server).instances(&label("Store")).unwrap()).len(), 1, "{local}");
        let place = format!("dns://example.org?server={}", server.address);
        let set = |value: &'static str| {
            move |name: &str| (name == "FARCALL_DNS_LOCAL_ADDRESSES").then(|| value.to_owned())
        };
        let accepting = open(&place, set("1")).unwrap();
        assert_eq!(accepting.instances(&label("Store")).unwrap().len(), 1, "{local}");
        assert!(open(&place, set("0")).unwrap().instances(&label("Store")).is_err(), "{local}");
        assert!(open(&place, set("ture")).err().unwrap().to_string().contains("write 1 or 0"));
        // A host's other addresses count, and so do other hosts, also those of a greater number.
        server.know([lies.clone(), vec![address("a.example.org", "10.0.0.1")]].concat());
        assert_eq!(stores(&server), ["a udp://10.0.0.1:7000"], "{local}");
        let backup = vec![store(9, "b.example.org", 7000), address("b.example.org", "10.0.0.2")];
        server.know([lies, backup].concat());
        assert_eq!(stores(&server), ["b udp://10.0.0.2:7000"], "{local}");
    }
    for host in ["localhost", "a.Localhost"] {
        let server = Server::of(vec![store(0, host, 7000), address(host, "127.0.0.1")]);
        assert_eq!(stores(&server).len(), 1, "{host}");
    }
    let server = Server::of(vec![store(0, "nolocalhost", 7000), address("nolocalhost", "127.0.0.1")]);
    assert!(server.registry().instances(&label("Store")).is_err());
}

#[test]
fn an_answer_that_is_refused_changes_nothing_of_what_is_known() {
    let record = srv("_store._udp.example.org", 0, 0, "a.example.org", 7000);
    let server = Server::of(vec![record.clone(), address("a.example.org", "10.0.0.1")]);
    let registry = server.registry();
    assert_eq!(shown(&registry.instances(&label("Store")).unwrap()), ["a udp://10.0.0.1:7000"]);
    let version = registry.version().unwrap();
    server.know(vec![record, address("a.example.org", "127.0.0.1")]);
    let before = server.asked();
    until("the answer that is refused", || {
        assert_eq!(registry.version().unwrap(), version);
        (server.asked() >= before + 2).then_some(())
    });
    assert_eq!(shown(&registry.list().unwrap().entries), ["a udp://10.0.0.1:7000"]);
}

#[test]
fn types_that_dns_cannot_hold_are_not_asked_for() {
    let server = Server::of(Vec::new());
    for type_name in ["Store.Old", &"x".repeat(63), "x-"] {
        assert_eq!(server.registry().instances(&label(type_name)).unwrap(), []);
    }
    assert_eq!(server.asked(), 0);
    assert_eq!(server.registry().instances(&label("Store")).unwrap(), []);
    assert_eq!(server.asked(), 1);
}

#[test]
fn dns_keeps_the_rules_of_a_registry_that_is_read_only() {
    let server = Server::of(vec![
        store(0, "a.example.org", 7000),
        address("a.example.org", "10.0.0.1"),
        store(0, "b.example.org", 7000),
        address("b.example.org", "10.0.0.2"),
        srv("_mail._udp.example.org", LONG, 0, "a.example.org", 7001),
    ]);
    let mut entries = server.registry().instances(&label("Store")).unwrap();
    entries.extend(server.registry().instances(&label("Mail")).unwrap());
    assert_eq!(entries.len(), 3);
    suite::check_read_only(server.registry(), &entries);
    let place = format!("dns://example.org?server={}", server.address);
    suite::check_read_only(open(&place, |_| None).unwrap(), &entries);
    let given = |name| (name == "FARCALL_DNS_SERVER").then(|| server.address.to_string());
    suite::check_read_only(open("dns://example.org", given).unwrap(), &entries);
    let refused = server.registry().publish(&entries[0]).unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { registry, .. } if registry == place));
}

#[test]
fn a_changed_set_is_seen_when_its_time_to_live_has_ended() {
    let record = |port| srv("_store._udp.example.org", 0, 0, "a.example.org", port);
    let host = address("a.example.org", "10.0.0.1");
    let server = Server::of(vec![record(7000), host.clone()]);
    let registry = server.registry();
    assert_eq!(registry.version().unwrap(), 0);
    assert_eq!(shown(&registry.instances(&label("Store")).unwrap()), ["a udp://10.0.0.1:7000"]);
    let before = registry.version().unwrap();
    until("an answer that is the same", || {
        assert_eq!(registry.version().unwrap(), before);
        (server.asked() == 2).then_some(())
    });
    server.know(vec![record(7001), host]);
    until("the change", || (registry.version().unwrap() != before).then_some(()));
    assert_eq!(shown(&registry.list().unwrap().entries), ["a udp://10.0.0.1:7001"]);
    server.know(Vec::new());
    let before = registry.version().unwrap();
    until("the end", || (registry.version().unwrap() != before).then_some(()));
    assert_eq!(registry.instances(&label("Store")).unwrap(), []);
}

#[test]
fn that_a_name_does_not_exist_is_kept_as_long_as_its_zone_says() {
    let server = Server::new(|query| {
        let mut packet = query.answer(&[], &[]);
        *packet.rcode_mut() = simple_dns::RCODE::NameError;
        packet.name_servers = vec![authority(1)];
        vec![Reply::Message(encode(query, &packet))]
    });
    let registry = server.registry();
    assert_eq!(registry.instances(&label("Store")).unwrap(), []);
    assert_eq!(registry.instances(&label("Store")).unwrap(), []);
    assert_eq!(server.asked(), 1);
    until("the next question", || {
        registry.version().unwrap();
        (server.asked() == 2).then_some(())
    });
}
