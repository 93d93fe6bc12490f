//! Tests the judgement of keyrings: who may answer, who may call, what ends that, and what refusals say.

use farcall_keys::{
    Action, Grant, Keyring, Presentation, Principal, PublicKey, Refusal, RefusalKind, RevocationList,
    Revoked, Right, Rights, Terms,
};

use crate::common::{AUTHORITY, CLIENT, DAY, NOW, OTHER, SERVER, grant, identity, key, terms};

fn known(lines: &[String]) -> Keyring {
    let keyring = Keyring::new(identity(CLIENT)).with_authority(key(AUTHORITY));
    lines.iter().fold(keyring, |keyring, line| keyring.with_known_server(line.parse().unwrap()))
}

fn authorized(lines: &[String]) -> Keyring {
    let keyring = Keyring::new(identity(SERVER)).with_authority(key(AUTHORITY));
    lines.iter().fold(keyring, |keyring, line| keyring.with_authorized_key(line.parse().unwrap()).unwrap())
}

fn shown(who: u8, grants: impl IntoIterator<Item = Grant>) -> Vec<u8> {
    Presentation::new(key(who), grants).encode()
}

fn client_at(server: &Keyring, grants: impl IntoIterator<Item = Grant>) -> Result<Principal, Refusal> {
    server.check_client(&key(CLIENT).exchange_key(), &shown(CLIENT, grants), NOW)
}

fn list(serial: u64, keys: &[PublicKey], grants: &[u64]) -> RevocationList {
    let revoked = Revoked::new(keys.iter().copied(), grants.iter().copied()).unwrap();
    identity(AUTHORITY).revoke(serial, NOW, DAY, revoked)
}

fn signed(by: u8, terms: Terms) -> Grant {
    identity(by).grant(terms).unwrap()
}

fn export(principal: &str, scope: &str) -> Grant {
    grant(SERVER, principal, Rights::EXPORT, scope)
}

fn import(scope: &str) -> Grant {
    grant(CLIENT, "alice", Rights::IMPORT, scope)
}

#[test]
fn a_known_server_answers_for_its_names_only() {
    let keyring = known(&[
        format!("Store/main {} # the main store", key(SERVER)),
        format!("Files {}", key(SERVER)),
        format!("Logs/replica-* {}", key(SERVER)),
    ]);
    let may = |type_name: &str, instance: &str, who: u8| {
        keyring.check_server(type_name, instance, &shown(who, []), NOW).is_ok()
    };
    for (name, allowed) in [
        (("Store", "main"), true),
        (("Store", "other"), false),
        (("Store", ""), true),
        (("Files", "any"), true),
        (("Files", ""), true),
        (("Logs", "replica-1"), true),
        (("Logs", "main"), false),
        (("Other", ""), false),
        (("", ""), true),
    ] {
        assert_eq!(may(name.0, name.1, SERVER), allowed, "{name:?}");
        assert!(!may(name.0, name.1, OTHER), "{name:?}");
    }
    let found = keyring.check_server("Store", "main", &shown(SERVER, []), NOW).unwrap();
    assert_eq!(
        (&*found.name, found.key, found.grant, found.expires),
        ("Store/main", key(SERVER), None, None)
    );
    assert_eq!(found.right(), Right::Export);
    let any = known(&[format!("* {}", key(SERVER))]);
    assert!(any.check_server("Store", "main", &shown(SERVER, []), NOW).is_ok());
}

#[test]
fn a_granted_server_answers_for_the_names_of_its_grant() {
    let keyring = known(&[]);
    let may = |scope: &str, type_name: &str, instance: &str| {
        let presentation = shown(SERVER, [export("stored", scope)]);
        keyring.check_server(type_name, instance, &presentation, NOW).map_err(|why| why.kind())
    };
    for (scope, type_name, instance) in [
        ("Store/main", "Store", "main"),
        ("Store/main", "Store", ""),
        ("Store/main", "", ""),
        ("Store/m*", "Store", "main"),
        ("Store", "Store", "main"),
        ("*", "Store", "main"),
        ("*/main", "Store", "main"),
    ] {
        let found = may(scope, type_name, instance).unwrap();
        assert_eq!((&*found.name, found.grant), ("stored", Some((key(AUTHORITY), 7))), "{scope}");
        assert_eq!(found.expires, Some(NOW + 90 * DAY));
    }
    for (scope, type_name, instance) in [
        ("Store/main", "Store", "other"),
        ("Store/x*", "Store", "main"),
        ("Store", "Stores", ""),
        ("*/x", "S", "y"),
    ] {
        assert_eq!(may(scope, type_name, instance).unwrap_err(), RefusalKind::WrongName, "{scope}");
    }
}

#[test]
fn a_name_with_a_known_key_takes_no_other_key_unless_its_lines_say_so() {
    let granted = shown(SERVER, [export("stored", "Store")]);
    let main = shown(SERVER, [export("stored", "Store/main")]);
    let check = |lines: &[String], presentation: &[u8], instance: &str| {
        known(lines).check_server("Store", instance, presentation, NOW).map(drop).map_err(|why| why.kind())
    };
    let pinned = [format!("Store/main {}", key(OTHER))];
    assert_eq!(check(&pinned, &granted, "main"), Err(RefusalKind::Pinned));
    assert_eq!(check(&pinned, &granted, "other"), Ok(()));
    assert_eq!(check(&pinned, &granted, ""), Ok(()), "any store was asked for");
    assert_eq!(check(&pinned, &main, ""), Err(RefusalKind::Pinned), "it could only be the pinned one");
    assert_eq!(check(&pinned, &shown(SERVER, []), "main"), Err(RefusalKind::Pinned));
    for line in ["Store", "*"] {
        let all = [format!("{line} {}", key(OTHER))];
        assert_eq!(check(&all, &granted, "main"), Err(RefusalKind::Pinned), "{line}");
        assert_eq!(check(&all, &granted, ""), Err(RefusalKind::Pinned), "{line}");
    }
    let all = known(&[format!("* {}", key(OTHER))]);
    assert!(all.check_server("", "", &granted, NOW).is_ok(), "any acceptable key was asked for");
    let open = [format!("Store/main {} or-granted", key(OTHER))];
    assert_eq!(check(&open, &granted, "main"), Ok(()));
    let half = [format!("Store/main {} or-granted", key(OTHER)), format!("* {}", key(OTHER))];
    assert_eq!(check(&half, &granted, "main"), Err(RefusalKind::Pinned));
    let both = [format!("Store/main {}", key(OTHER)), format!("Store/main {}", key(SERVER))];
    assert_eq!(check(&both, &shown(SERVER, []), "main"), Ok(()), "a name may have several keys");
}

#[test]
fn a_client_is_known_by_its_key_or_by_a_grant() {
    let listed = authorized(&[format!("{} alice type=Store instance=main # her laptop", key(CLIENT))]);
    let alice = client_at(&listed, []).unwrap();
    assert_eq!((&*alice.name, alice.key, alice.grant, alice.expires), ("alice", key(CLIENT), None, None));
    assert_eq!(alice.right(), Right::Import);
    assert!(listed.admit(&alice, "Store", "main", NOW).unwrap().allows(Action::Counters));
    assert_eq!(listed.admit(&alice, "Store", "other", NOW).unwrap_err().kind(), RefusalKind::WrongName);

    let granting = authorized(&[]);
    let alice = client_at(&granting, [import("Store/main"), import("Files")]).unwrap();
    assert_eq!((&*alice.name, alice.grant), ("alice", Some((key(AUTHORITY), 7))));
    for (type_name, instance, allowed) in [
        ("Store", "main", true),
        ("Files", "x", true),
        ("Store", "x", false),
        ("Other", "x", false),
        ("", "", false),
    ] {
        assert_eq!(
            granting.admit(&alice, type_name, instance, NOW).is_ok(),
            allowed,
            "{type_name}/{instance}"
        );
    }
    // A grant widens what a line allows, if it names the same principal.
    let alice = client_at(&listed, [import("Files")]).unwrap();
    assert!(listed.admit(&alice, "Files", "x", NOW).is_ok());
    let bob = grant(CLIENT, "bob", Rights::IMPORT, "Files");
    let alice = client_at(&listed, [bob.clone()]).unwrap();
    assert!(&*alice.name == "alice" && listed.admit(&alice, "Files", "x", NOW).is_err());
    let alice = client_at(&granting, [import("Store"), bob]).unwrap();
    assert!(&*alice.name == "alice" && granting.admit(&alice, "Files", "x", NOW).is_err());
}

#[test]
fn a_presentation_counts_for_the_key_that_made_the_handshake() {
    let server = authorized(&[format!("{} alice", key(CLIENT))]);
    let why = server.check_client(&key(OTHER).exchange_key(), &shown(CLIENT, []), NOW).unwrap_err();
    assert_eq!(why.kind(), RefusalKind::OtherKey);
    let why = server.check_client(&key(CLIENT).exchange_key(), b"hello", NOW).unwrap_err();
    assert_eq!(
        why.to_string(),
        "expected a presentation of a key and its grants; found not a presentation: at byte 1: version 104 \
         is unknown; this farcall reads version 1; use a version of farcall at the other end that this one \
         understands"
    );
}

#[test]
fn each_fault_of_a_grant_is_refused_with_its_reason() {
    let base = || terms(CLIENT, "alice", Rights::IMPORT, "Store");
    let mut forged = import("Store").encode();
    *forged.last_mut().unwrap() ^= 1;
    let revoking = authorized(&[]).with_revocations(list(1, &[], &[9])).unwrap();
    let (alice, authority) = (key(CLIENT), key(AUTHORITY));
    for (server, grant, kind, text) in [
        (
            authorized(&[]),
            signed(OTHER, base()),
            RefusalKind::UntrustedAuthority,
            format!(
                "expected a grant of a trusted authority; found a grant of {} for \"alice\" ({alice}); add \
                 the authority to authorities if you trust it",
                key(OTHER)
            ),
        ),
        (
            authorized(&[]),
            signed(AUTHORITY, Terms { rights: Rights::EXPORT, ..base() }),
            RefusalKind::WrongRight,
            "expected a grant with the right to import; found a grant for \"alice\" to export Store; sign a \
             grant with --import (`farcall keys grant`)"
                .to_owned(),
        ),
        (
            authorized(&[]),
            signed(AUTHORITY, Terms { expires: NOW, ..base() }),
            RefusalKind::Expired,
            "expected a grant that has not expired; found a grant for \"alice\" that expired 0 s ago; sign \
             a new grant (`farcall keys grant`)"
                .to_owned(),
        ),
        (
            authorized(&[]),
            Grant::decode(&forged).unwrap(),
            RefusalKind::Forged,
            format!(
                "expected a grant that {authority} signed; found a grant for \"alice\" with another \
                 signature; sign a new grant (`farcall keys grant`)"
            ),
        ),
        (
            revoking,
            signed(AUTHORITY, Terms { serial: 9, ..base() }),
            RefusalKind::Revoked,
            format!(
                "expected a grant that is not revoked; found the grant 9 for \"alice\", which {authority} \
                 has revoked; sign a new grant (`farcall keys grant`)"
            ),
        ),
    ] {
        let why = client_at(&server, [grant]).unwrap_err();
        assert_eq!((why.kind(), why.to_string()), (kind, text));
    }
}

#[test]
fn refusals_of_keys_say_what_to_do() {
    let (alice, server) = (key(CLIENT), key(SERVER));
    let why = client_at(&authorized(&[]), []).unwrap_err();
    assert_eq!(
        why.to_string(),
        format!(
            "expected a key that authorized_keys has, or that shows a grant of a trusted authority; found \
             the key {alice}, which is not listed and shows no grant; add \"{alice} PRINCIPAL\" to \
             authorized_keys, or sign a grant (`farcall keys grant`)"
        )
    );
    let ask = |lines: &[String], grants: &[Grant]| {
        let presentation = shown(SERVER, grants.iter().cloned());
        known(lines).check_server("Store", "main", &presentation, NOW).unwrap_err().to_string()
    };
    assert_eq!(
        ask(&[], &[]),
        format!(
            "expected a key that known_servers has for Store/main, or that shows a grant of a trusted \
             authority; found the key {server}, which is not listed and shows no grant; if you know that \
             this is the server's key, add \"Store/main {server}\" to known_servers"
        )
    );
    let pin = [format!("Store {}", key(OTHER))];
    let expected = format!("expected a key that known_servers has for Store, such as {}; found ", key(OTHER));
    assert_eq!(
        ask(&pin, &[]),
        format!(
            "{expected}the key {server}, which is not listed and shows no grant; if the server has a new \
             key, put it into known_servers; else somebody imitates the server"
        )
    );
    assert_eq!(
        ask(&pin, &[export("stored", "Store")]),
        format!(
            "{expected}the key {server}, which shows a grant; write or-granted behind the key if grants are \
             to count for this name, too"
        )
    );
    assert_eq!(
        ask(&[], &[export("stored", "Files")]),
        "expected a grant to export Store/main; found a grant for \"stored\" to export Files; sign a grant \
         for this name (`farcall keys grant`)"
    );
    let listed = authorized(&[format!("{alice} alice type=Files")]);
    let principal = client_at(&listed, [import("Logs/x*")]).unwrap();
    assert_eq!(
        listed.admit(&principal, "Store", "main", NOW).unwrap_err().to_string(),
        "expected the right to import Store/main; found that \"alice\" may import Files, Logs/x*; add a \
         line to authorized_keys, or sign a grant for this name (`farcall keys grant`)"
    );
}

#[test]
fn the_second_grant_counts_if_the_first_does_not() {
    let expired = signed(AUTHORITY, Terms { expires: NOW - 1, ..terms(CLIENT, "bob", Rights::IMPORT, "*") });
    let alice = client_at(&authorized(&[]), [expired, import("Store")]).unwrap();
    assert_eq!(&*alice.name, "alice");
}

#[test]
fn a_revoked_key_counts_for_nothing_even_where_it_is_listed() {
    let revoked = list(1, &[key(CLIENT)], &[]);
    let server = authorized(&[format!("{} alice", key(CLIENT))]).with_revocations(revoked).unwrap();
    let why = client_at(&server, [import("Store")]).unwrap_err();
    assert_eq!(
        why.to_string(),
        format!(
            "expected a key that is not revoked; found the key {}, which {} has revoked; make a new \
             identity (`farcall keys make`), and a grant for it",
            key(CLIENT),
            key(AUTHORITY)
        )
    );
    // An authority that revokes itself takes all of its grants back.
    let server = authorized(&[]).with_revocations(list(1, &[key(AUTHORITY)], &[])).unwrap();
    assert_eq!(client_at(&server, [import("Store")]).unwrap_err().kind(), RefusalKind::Revoked);
}

#[test]
fn a_stale_list_stops_new_bindings_by_grants_of_its_authority_and_nothing_else() {
    let server = authorized(&[format!("{} bob", key(OTHER))]).with_authority(key(SERVER));
    let server = server.with_revocations(list(1, &[], &[])).unwrap();
    let check = |presentation: &[u8], who: u8, now: u64| {
        server.check_client(&key(who).exchange_key(), presentation, now)
    };
    let presentation = shown(CLIENT, [import("Store")]);
    let alice = check(&presentation, CLIENT, NOW + DAY).unwrap();
    let why = check(&presentation, CLIENT, NOW + DAY + 1).unwrap_err();
    assert_eq!(why.kind(), RefusalKind::StaleRevocations);
    assert_eq!(
        why.to_string(),
        format!(
            "expected a revocation list of {} that is at most 86400 s old; found one that was issued 86401 \
             s ago; get the authority's newest list (`farcall keys revoke`): until then its grants do not \
                 count",
            key(AUTHORITY)
        )
    );
    let later = NOW + 2 * DAY;
    assert_eq!(
        server.admit(&alice, "Store", "main", later).unwrap_err().kind(),
        RefusalKind::StaleRevocations
    );
    assert!(
        server.still_stands(&alice, later).is_ok()
            && server.still_admits(&alice, "Store", "main", later).is_ok()
    );
    assert!(check(&shown(OTHER, []), OTHER, later).is_ok(), "a listed key needs no list");
    let other_authority = signed(SERVER, terms(CLIENT, "alice", Rights::IMPORT, "Store"));
    assert!(check(&shown(CLIENT, [other_authority]), CLIENT, later).is_ok());
}

/// A call may be under way by the part that does not hold any more.
#[test]
fn a_client_stands_while_all_of_its_lines_and_grants_do_or_the_rest_lets_it_as_much() {
    let line = |scope: &str| format!("{} alice type={scope}", key(CLIENT));
    let two = client_at(&authorized(&[line("Store"), line("Clock")]), []).unwrap();
    let stands = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|scope| line(scope)).collect();
        authorized(&lines).still_stands(&two, NOW).map_err(|why| why.kind())
    };
    assert_eq!(stands(&["Clock", "Store"]), Ok(()));
    assert_eq!(stands(&["*"]), Ok(()));
    assert_eq!(stands(&["Clock"]), Err(RefusalKind::WrongName));
    assert_eq!(stands(&["Clock", "Stor"]), Err(RefusalKind::WrongName));

    let long = |scope: &str| {
        let terms = terms(CLIENT, "alice", Rights::IMPORT, scope);
        signed(AUTHORITY, Terms { serial: 8, expires: terms.expires + DAY, ..terms })
    };
    let at_expiry = |other: &str| {
        let client = client_at(&authorized(&[]), [import("Store/a"), long(other)]).unwrap();
        authorized(&[]).still_stands(&client, NOW + 90 * DAY).map_err(|why| why.kind())
    };
    assert_eq!(at_expiry("Store/a"), Ok(()), "it was renewed");
    assert_eq!(at_expiry("Store"), Ok(()));
    assert_eq!(at_expiry("Store/b"), Err(RefusalKind::WrongName));
    assert_eq!(at_expiry("Clock"), Err(RefusalKind::WrongName));
}

#[test]
fn what_no_longer_holds_ends_what_stands() {
    let line = [format!("{} alice", key(CLIENT))];
    let listed = client_at(&authorized(&line), []).unwrap();
    assert!(authorized(&line).still_stands(&listed, u64::MAX).is_ok(), "it does not expire");
    let removed = authorized(&[]).still_stands(&listed, NOW).unwrap_err();
    assert_eq!(removed.kind(), RefusalKind::UnknownKey);
    let renamed = authorized(&[format!("{} bob", key(CLIENT))]).still_stands(&listed, NOW).unwrap_err();
    assert_eq!(
        renamed.to_string(),
        format!(
            "expected the principal \"alice\"; found \"bob\", who the key {} is now; bind again",
            key(CLIENT)
        )
    );
    assert_eq!(renamed.kind(), RefusalKind::OtherPrincipal);

    let granted = client_at(&authorized(&[]), [import("Store")]).unwrap();
    let keyring = authorized(&[]);
    assert!(keyring.still_stands(&granted, NOW + 90 * DAY - 1).is_ok());
    assert_eq!(keyring.still_stands(&granted, NOW + 90 * DAY).unwrap_err().kind(), RefusalKind::Expired);
    let revoking = authorized(&[]).with_revocations(list(2, &[], &[7])).unwrap();
    assert_eq!(revoking.still_stands(&granted, NOW).unwrap_err().kind(), RefusalKind::Revoked);
    let distrusting = Keyring::new(identity(SERVER));
    assert_eq!(distrusting.still_stands(&granted, NOW).unwrap_err().kind(), RefusalKind::UntrustedAuthority);

    let pins = [format!("Store/main {}", key(SERVER))];
    let server = known(&pins).check_server("Store", "main", &shown(SERVER, []), NOW).unwrap();
    assert!(known(&pins).still_stands(&server, NOW).is_ok());
    let other_pin = known(&[format!("Store/main {}", key(OTHER))]);
    assert_eq!(other_pin.still_stands(&server, NOW).unwrap_err().kind(), RefusalKind::Pinned);
    assert_eq!(known(&pins).admit(&server, "Store", "main", NOW).unwrap_err().kind(), RefusalKind::WrongName);
    let exporter = known(&[]).check_server("Store", "main", &shown(SERVER, [export("s", "*")]), NOW).unwrap();
    let as_client = known(&[]).admit(&exporter, "Store", "main", NOW);
    assert_eq!(
        as_client.unwrap_err().kind(),
        RefusalKind::WrongName,
        "the right to export is not that to import"
    );
}

#[test]
fn the_longest_of_several_grants_says_when_a_principal_expires() {
    let longer =
        signed(AUTHORITY, Terms { expires: NOW + 100 * DAY, serial: 8, ..import("Files").terms().clone() });
    let alice = client_at(&authorized(&[]), [import("Store"), longer]).unwrap();
    assert_eq!((alice.grant, alice.expires), (Some((key(AUTHORITY), 7)), Some(NOW + 100 * DAY)));
    let keyring = authorized(&[]);
    assert!(keyring.still_admits(&alice, "Files", "x", NOW + 95 * DAY).is_ok());
    assert!(keyring.still_admits(&alice, "Store", "x", NOW + 95 * DAY).is_err());
}

#[test]
fn an_end_shows_the_grants_that_fit_and_last() {
    let with = |days: u64, scope: &str, by: u8, serial: u64| {
        let expires = NOW + days * DAY;
        signed(by, Terms { expires, serial, ..terms(CLIENT, "alice", Rights::IMPORT, scope) })
    };
    let keyring = [
        with(10, "Store", AUTHORITY, 1),
        with(30, "Store/main", AUTHORITY, 2),
        with(20, "*", AUTHORITY, 3),
        with(5, "Store", OTHER, 4),
        with(99, "Files", AUTHORITY, 5),
        grant(CLIENT, "stored", Rights::EXPORT, "Store"),
    ]
    .into_iter()
    .fold(Keyring::new(identity(CLIENT)), |keyring, grant| keyring.with_grant(grant).unwrap());
    let serials = |type_name: &str, instance: &str, right: Right| -> Vec<u64> {
        let shown = Presentation::decode(&keyring.presentation(type_name, instance, right)).unwrap();
        assert_eq!(shown.key(), key(CLIENT));
        shown.grants().iter().map(|grant| grant.terms().serial).collect()
    };
    assert_eq!(
        serials("Store", "main", Right::Import),
        [2, 4],
        "the last to expire, and another authority's"
    );
    assert_eq!(serials("Store", "other", Right::Import), [3, 4]);
    assert_eq!(serials("Store", "", Right::Import), [2, 4]);
    assert_eq!(serials("Files", "x", Right::Import), [5, 3]);
    assert_eq!(serials("", "", Right::Import), [5, 4]);
    assert_eq!(serials("Store", "main", Right::Export), [7]);
    assert_eq!(serials("Other", "main", Right::Export), [0; 0]);
    assert_eq!(keyring.grants().len(), 6);
}

#[test]
fn a_keyring_takes_only_what_is_sound() {
    let keyring = || Keyring::new(identity(SERVER)).with_authority(key(AUTHORITY));
    let why = keyring().with_grant(import("Store")).unwrap_err().to_string();
    assert_eq!(
        why,
        format!(
            "expected a grant for {}; found a grant for {}; remove it here, and give it to the owner of \
             that key",
            key(SERVER),
            key(CLIENT)
        )
    );
    let mut forged = export("stored", "Store").encode();
    *forged.last_mut().unwrap() ^= 1;
    let why = keyring().with_grant(Grant::decode(&forged).unwrap()).unwrap_err().to_string();
    assert!(why.starts_with("expected a grant with its authority's signature; found a grant that"), "{why}");

    let alice = format!("{} alice", key(CLIENT)).parse().unwrap();
    let bob = format!("{} bob", key(CLIENT)).parse().unwrap();
    let why = keyring().with_authorized_key(alice).unwrap().with_authorized_key(bob).unwrap_err().to_string();
    assert_eq!(
        why,
        format!(
            "expected one principal for a key; {} is \"alice\"; found \"bob\" for the same key; give both \
             lines the same principal, or remove one",
            key(CLIENT)
        )
    );

    let strange = identity(OTHER).revoke(1, NOW, DAY, Revoked::default());
    let why = keyring().with_revocations(strange).unwrap_err().to_string();
    assert!(why.starts_with("expected a revocation list of a trusted authority; found a list of"), "{why}");
    let mut forged = list(1, &[], &[]).encode();
    *forged.last_mut().unwrap() ^= 1;
    let forged = RevocationList::decode(&forged).unwrap();
    let why = keyring().with_revocations(forged).unwrap_err().to_string();
    assert!(why.starts_with("expected a revocation list with its authority's signature; found"), "{why}");
    let newer = keyring().with_revocations(list(5, &[], &[])).unwrap();
    let newer = newer.with_revocations(list(6, &[], &[7])).unwrap();
    let why = newer.with_revocations(list(4, &[], &[])).unwrap_err().to_string();
    assert_eq!(
        why,
        format!(
            "expected a revocation list of {} with a serial of at least 6, which was loaded before; found \
             serial 4; ask the authority for its newest list: an old one would let revoked keys in again",
            key(AUTHORITY)
        )
    );
}

#[test]
fn the_policy_decides_about_what_the_scope_covers() {
    let server = authorized(&[format!("{} alice type=Store", key(CLIENT))])
        .with_policy("allow alice Store/main get\nallow alice Files".parse().unwrap());
    let alice = client_at(&server, []).unwrap();
    let main = server.admit(&alice, "Store", "main", NOW).unwrap();
    assert!(main.allows_procedure("get") && !main.allows_procedure("put") && !main.allows(Action::Describe));
    assert!(server.admit(&alice, "Store", "other", NOW).unwrap().denies_everything());
    assert!(server.admit(&alice, "Files", "x", NOW).is_err(), "the policy does not widen the scope");
    assert_eq!(server.policy().map(|policy| policy.len()), Some(2));
}

#[test]
fn the_own_key_is_believed_for_the_names_of_clerks_alone_until_it_is_revoked() {
    let shown = shown(CLIENT, []);
    let exchange = key(CLIENT).exchange_key();
    let pinned: Vec<String> = ["*", "Memory/clerk"].map(|name| format!("{name} {}", key(OTHER))).into();
    for keyring in [known(&[]), known(&pinned)] {
        let keyring = keyring.with_policy("deny * * *".parse().unwrap());
        let answers =
            |type_name: &str, instance: &str| keyring.check_server(type_name, instance, &shown, NOW);
        for clerk in ["clerk", "clerk-names", "clerk-post", "clerk-0123456789abcdef.127.0.0.1"] {
            assert!(answers("Memory", clerk).is_ok(), "{clerk}");
        }
        for (type_name, instance) in
            [("Memory", "Load"), ("Memory", ""), ("Store", "clerk"), ("", ""), ("Memory", "counters")]
        {
            assert!(answers(type_name, instance).is_err(), "{type_name}/{instance}");
        }
        // As a client it may use the clerk, whatever the policy says, and learn what segments there are.
        let own = keyring.check_client(&exchange, &shown, NOW).unwrap();
        let may = keyring.admit(&own, "Memory", "clerk-names", NOW).unwrap();
        assert!(may.allows_every_procedure() && may.allows(Action::MemoryRead) && !may.shows_others());
        let facts = keyring.admit(&own, "Memory", "Load", NOW).unwrap();
        assert!(
            facts.allows_facts() && !facts.allows(Action::MemoryRead) && !facts.allows(Action::MemoryWrite)
        );
        assert!(!facts.allows_procedure("read") && !facts.allows(Action::Describe));
        assert_eq!(keyring.admit(&own, "Store", "main", NOW).unwrap_err().kind(), RefusalKind::WrongName);
        let keyring = keyring.with_revocations(list(1, &[key(CLIENT)], &[])).unwrap();
        let refused = keyring.check_server("Memory", "clerk", &shown, NOW).unwrap_err();
        assert_eq!(refused.kind(), RefusalKind::Revoked);
        assert_eq!(keyring.still_stands(&own, NOW).unwrap_err().kind(), RefusalKind::Revoked);
    }
}

#[test]
fn a_segments_entry_counts_by_the_name_of_the_segment_or_by_the_name_with_its_machine() {
    let entry = |scope: &str, instance: &str| {
        let exporter = Keyring::new(identity(SERVER)).with_grant(export("server", scope)).unwrap();
        let proof = exporter.prove_entry("Memory", instance, b"", NOW);
        let proof = farcall_keys::EntryProof::verify("Memory", instance, b"", &proof).unwrap();
        known(&[]).check_entry(&proof, NOW).map(|_| ()).map_err(|why| why.kind())
    };
    for scope in ["Memory/Load", "Memory/Load*", "Memory/Load.127.0.0.1", "Memory"] {
        assert_eq!(entry(scope, "Load.127.0.0.1"), Ok(()), "{scope}");
    }
    assert!(entry("Memory/Load", "Loads.127.0.0.1").is_err());
    assert!(entry("Memory/Load", "Load.main").is_err());
}

/// A conversation that has several names shows a grant for each, while there is room.
#[test]
fn for_several_names_each_has_a_grant_of_its_own_if_there_is_room() {
    let granted = |scope: &str, serial, days| {
        let terms = terms(CLIENT, "c", Rights::IMPORT, scope);
        identity(AUTHORITY).grant(Terms { serial, expires: NOW + days * DAY, ..terms }).unwrap()
    };
    let grants = [("Bank", 1, 1), ("Store", 2, 2), ("Store/main", 3, 3), ("Files", 4, 4), ("Files", 5, 5)];
    let keyring = Keyring::new(identity(CLIENT));
    let with = |keyring: Keyring, (scope, serial, days)| keyring.with_grant(granted(scope, serial, days));
    let keyring = grants.into_iter().fold(keyring, |keyring, grant| with(keyring, grant).unwrap());
    let shown = |names: &[(&str, &str)]| {
        let shown = Presentation::decode(&keyring.presentation_for(names, Right::Import)).unwrap();
        shown.grants().iter().map(|grant| grant.terms().serial).collect::<Vec<_>>()
    };
    assert_eq!(shown(&[("Store", "main")]), [3, 2]);
    assert_eq!(shown(&[("Bank", "main"), ("Store", "main")]), [1, 3]);
    assert_eq!(shown(&[("Store", "main"), ("Bank", "main")]), [3, 1]);
    assert_eq!(shown(&[("Store", "main"), ("Store", "other")]), [3, 2]);
    assert_eq!(shown(&[("Store", "other"), ("Store", "main")]), [2, 3]);
    assert_eq!(shown(&[("Files", ""), ("Files", "a"), ("Bank", "a"), ("Store", "a")]), [5, 1]);
    assert_eq!(shown(&[("", "")]), [5, 4]);
}
