//! Tests what counts while a key file has a fault: what was taken away is away, and nothing new is given.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use farcall_keys::{
    Action, Decision, Identity, KeyFiles, KeyLine, Keyring, Presentation, RefusalKind, Revoked, Right, Rights,
};

use crate::common::{AUTHORITY, CLIENT, DAY, NOW, OTHER, SERVER, grant, identity, key};
use crate::files::{Place, list};

/// What a client without a grant may do with `Store/main`, or why it may do nothing.
fn admitted(keyring: &Keyring, client: u8) -> Result<Decision, RefusalKind> {
    let shown = Keyring::new(identity(client)).presentation("Store", "main", Right::Import);
    admitted_with(keyring, client, &shown)
}

fn admitted_with(keyring: &Keyring, client: u8, shown: &[u8]) -> Result<Decision, RefusalKind> {
    let known = keyring.check_client(&key(client).exchange_key(), shown, NOW).map_err(|why| why.kind())?;
    keyring.admit(&known, "Store", "main", NOW).map_err(|why| why.kind())
}

/// Returns what a client shows that has a grant of the authority.
fn granted(client: u8, principal: &str) -> Vec<u8> {
    Presentation::new(key(client), [grant(client, principal, Rights::IMPORT, "Store")]).encode()
}

#[test]
fn a_word_that_nobody_understands_gives_nothing() {
    let line = format!("{} alice", key(CLIENT));
    for (word, column) in [
        ("Type=Store", 52),
        ("types=Store", 52),
        ("type =Store", 52),
        ("TYPE=Store", 52),
        ("type=Store/main", 57),
        ("type=Sto*", 57),
        ("type=", 57),
        ("instance=", 61),
        ("type=Store type=Files", 68),
        ("type=Store her laptop", 63),
        ("=Store", 52),
        ("\u{2003}scope=Store", 53),
        ("expires=1", 52),
    ] {
        let place = Place::new();
        place.put("authorized_keys", format!("# clients\n{line} {word}\n"));
        let fault = KeyFiles::open(place.0.path()).unwrap_err();
        assert_eq!((fault.line(), fault.column()), (Some(2), Some(column)), "{word}: {fault}");
        assert!(
            fault.path().ends_with("authorized_keys") && fault.to_string().contains("expected"),
            "{fault}"
        );
    }
    for (file, text) in [
        ("authorities", format!("{} our own", key(AUTHORITY))),
        ("authorities", format!("{} principal=alice", key(AUTHORITY))),
        ("authorities", format!("{} principals=al*ce", key(AUTHORITY))),
        ("authorities", format!("{0} principals=alice\n{0}", key(AUTHORITY))),
        ("known_servers", format!("Store {} or-grantd", key(OTHER))),
        ("known_servers", format!("Store {} or-granted or-granted", key(OTHER))),
        ("known_servers", format!("Store {} the main store", key(OTHER))),
        ("grants", format!("{} ours", grant(SERVER, "s", Rights::EXPORT, "Store").to_text())),
        ("policy", "deny eve Store get, put".to_owned()),
        ("policy", "Deny eve *".to_owned()),
        ("policy", "deny eve * # get\ndeny eve * @Memory".to_owned()),
        ("revoked", "all of them".to_owned()),
    ] {
        let place = Place::new();
        place.put(file, &text);
        let fault = KeyFiles::open(place.0.path()).expect_err(&text);
        assert!(fault.path().ends_with(file) && fault.line().is_some(), "{text}: {fault}");
    }
}

#[test]
fn each_line_says_what_it_gives() {
    let place = Place::new();
    place.put("authorities", format!("{} principals=team-*,alice # ours\n", key(AUTHORITY)));
    place.put("authorized_keys", format!("\n{} bob type=Store\n{} carol # all\n", key(CLIENT), key(OTHER)));
    place.put("known_servers", format!("Store {}\n* {} or-granted\n", key(OTHER), key(CLIENT)));
    place.put("policy", "deny  eve *\nallow * Store get,@health\nallow ops @counters\n");
    let (files, _) = KeyFiles::open(place.0.path()).unwrap();
    let said: Vec<String> =
        files.lines().map(|(file, line, says)| format!("{file} {line}: {says}")).collect();
    assert_eq!(
        said,
        [
            format!("authorities 1: grants of {} count, for the principals team-*, alice", key(AUTHORITY)),
            format!("authorized_keys 2: {} is bob and may import Store", key(CLIENT)),
            format!("authorized_keys 3: {} is carol and may import every name", key(OTHER)),
            format!("known_servers 1: {} may answer for Store; no grant lets others", key(OTHER)),
            format!("known_servers 2: {} may answer for every name; so may keys with a grant", key(CLIENT)),
            "policy 1: denies eve everything of every name".to_owned(),
            "policy 2: allows everybody get, @health of Store".to_owned(),
            "policy 3: allows ops @counters of every name".to_owned(),
        ]
    );
    assert!(matches!(files.lines().next(), Some((_, _, KeyLine::Authority(_)))));
}

#[test]
fn a_revocation_beside_a_typo_takes_effect() {
    for (file, typo) in [
        ("policy", "allwo bob Store\n".to_owned()),
        ("known_servers", "Store\n".to_owned()),
        ("authorized_keys", format!("{} alice Type=Store\n", key(OTHER))),
        ("authorities", format!("{}\nnobody's key\n", key(AUTHORITY))),
        // The line of the authority itself is broken, and its list still counts.
        ("authorities", format!("{} principal=alice\n", key(AUTHORITY))),
        ("grants", "none\n".to_owned()),
        ("identity", "none\n".to_owned()),
    ] {
        let place = Place::new();
        place.put("authorities", format!("{}\n", key(AUTHORITY)));
        place.put("authorized_keys", format!("{} bob\n", key(CLIENT)));
        KeyFiles::write_revocations(&place.path("revoked"), &[list(1, &[])]).unwrap();
        let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
        assert!(admitted(&keyring, CLIENT).is_ok());
        place.put(file, &typo);
        let revoked = Revoked::new([key(CLIENT)], []).unwrap();
        let newer = identity(AUTHORITY).revoke(2, NOW, DAY, revoked);
        KeyFiles::write_revocations(&place.path("revoked"), &[newer]).unwrap();
        let keyring = files.reload().unwrap();
        assert_eq!(admitted(&keyring, CLIENT), Err(RefusalKind::Revoked), "{file}: {typo}");
        assert!(files.faults().iter().any(|fault| fault.path().ends_with(file)), "{file}");
        assert!(files.reload().is_none() && !files.faults().is_empty(), "the fault stays");
    }
}

#[test]
fn a_broken_list_leaves_the_others_and_takes_nothing_back() {
    let place = Place::new();
    place.put("authorities", format!("{}\n{}\n", key(AUTHORITY), key(OTHER)));
    place.put("authorized_keys", format!("{} bob\n", key(CLIENT)));
    let empty = |serial| identity(OTHER).revoke(serial, NOW, DAY, Revoked::default());
    KeyFiles::write_revocations(&place.path("revoked"), &[list(1, &[9]), empty(1)]).unwrap();
    let (mut files, _) = KeyFiles::open(place.0.path()).unwrap();
    let revoking = identity(OTHER).revoke(2, NOW, DAY, Revoked::new([key(CLIENT)], []).unwrap());
    KeyFiles::write_revocations(&place.path("revoked"), &[list(2, &[9, 10]), revoking]).unwrap();
    let text = fs::read_to_string(place.path("revoked")).unwrap();
    // One character of the first list changes.
    let at = text.find("LIST-----\n").unwrap() + 20;
    let mut broken = text.clone();
    broken.replace_range(at..=at, if text.as_bytes()[at] == b'A' { "B" } else { "A" });
    place.put("revoked", broken);
    let keyring = files.reload().unwrap();
    assert_eq!(admitted(&keyring, CLIENT), Err(RefusalKind::Revoked));
    let of_first = keyring.revocations().find(|list| list.authority() == key(AUTHORITY)).unwrap();
    assert!(of_first.serial() == 1 && of_first.has_grant(9), "the list that was known stays");
    assert_eq!(files.faults().len(), 2, "{:?}", files.faults());
    place.put("revoked", text);
    assert_eq!(files.reload().unwrap().revocations().map(|list| list.serial()).collect::<Vec<_>>(), [2, 2]);
    assert!(files.faults().is_empty());
}

#[test]
fn of_a_file_with_a_typo_what_is_gone_is_gone_and_what_is_new_waits() {
    let place = Place::new();
    let [alice, bob, carol] = [(CLIENT, "alice"), (OTHER, "bob"), (9, "carol")];
    let line = |(number, name): (u8, &str)| format!("{} {name}\n", key(number));
    place.put("authorized_keys", line(alice) + &line(bob));
    let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    assert!([alice, bob].iter().all(|(who, _)| admitted(&keyring, *who).is_ok()));
    let now = |files: &mut KeyFiles, text: String| {
        place.put("authorized_keys", text);
        let keyring = files.reload().unwrap();
        [alice, bob, carol].map(|(who, _)| admitted(&keyring, who).is_ok())
    };
    assert_eq!(now(&mut files, line(alice) + &line(carol) + "typo\n"), [true, false, false]);
    assert_eq!(now(&mut files, "typo\n".to_owned() + &line(bob) + "# put back\n"), [false, true, false]);
    // A line with a typo gives nothing, not even what it gave before it had one.
    let narrowed = line(alice).trim().to_owned() + " Type=Files\n";
    assert_eq!(now(&mut files, narrowed + &line(bob)), [false, true, false]);
    assert_eq!(now(&mut files, line(carol)), [false, false, true]);
    assert!(files.faults().is_empty());
    // Of two principals for a key, none that is new counts.
    assert_eq!(now(&mut files, line(carol) + &line((9, "ops"))), [false, false, true]);
    assert_eq!(now(&mut files, line((9, "ops")) + &line(carol)), [false, false, false]);
    // A file that cannot be read counts as before: nobody has taken anything away.
    assert_eq!(now(&mut files, line(alice)), [true, false, false]);
    place.mode("authorized_keys", 0o666);
    let keyring = files.reload().unwrap();
    assert!(admitted(&keyring, CLIENT).is_ok() && files.faults()[0].to_string().contains("chmod go-w"));
    // A file that is gone has no line.
    fs::remove_file(place.path("authorized_keys")).unwrap();
    assert!(admitted(&files.reload().unwrap(), CLIENT).is_err() && files.faults().is_empty());
}

/// A change of a file that cannot be read at that moment is not lost: nothing but reading the file tells when
/// it can be read again. Here it cannot be read while others can write in a folder on the way to it. A
/// process that is short of descriptors cannot read it either.
#[test]
fn a_file_that_could_not_be_read_once_counts_as_soon_as_it_can_be() {
    let elsewhere = tempfile::tempdir().unwrap();
    let others_may_write = |may| {
        let mode = if may { 0o777 } else { 0o755 };
        fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    let place = Place::new();
    symlink(elsewhere.path().join("revoked"), place.path("revoked")).unwrap();
    place.put("authorities", format!("{}\n", key(AUTHORITY)));
    place.put("authorized_keys", format!("{} bob\n", key(CLIENT)));
    KeyFiles::write_revocations(&elsewhere.path().join("revoked"), &[list(1, &[])]).unwrap();
    let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    assert!(admitted(&keyring, CLIENT).is_ok());
    let newer = identity(AUTHORITY).revoke(2, NOW, DAY, Revoked::new([key(CLIENT)], []).unwrap());
    KeyFiles::write_revocations(&elsewhere.path().join("revoked"), &[newer]).unwrap();
    others_may_write(true);
    assert!(admitted(&files.reload().unwrap(), CLIENT).is_ok() && files.faults().len() == 1);
    assert!(files.reload().is_none() && files.faults().len() == 1, "it still cannot be read");
    others_may_write(false);
    let keyring = files.reload().expect("it can be read");
    assert_eq!(admitted(&keyring, CLIENT), Err(RefusalKind::Revoked));
    assert!(files.faults().is_empty() && files.reload().is_none());
    // A private key that cannot be read at that moment is not lost either.
    fs::rename(place.path("identity"), elsewhere.path().join("identity")).unwrap();
    symlink(elsewhere.path().join("identity"), place.path("identity")).unwrap();
    others_may_write(true);
    assert!(files.reload().is_some() && files.faults().len() == 2 && files.reload().is_none());
    others_may_write(false);
    assert!(files.reload().is_some() && files.faults().is_empty() && files.reload().is_none());
}

#[test]
fn a_policy_with_a_typo_allows_what_both_its_texts_allow() {
    let place = Place::new();
    place.put("authorized_keys", format!("{} alice\n{} eve\n", key(CLIENT), key(OTHER)));
    place.put("policy", "deny eve *\nallow alice Store get\nallow alice Store put\nallow * *\n");
    let (mut files, _) = KeyFiles::open(place.0.path()).unwrap();
    let mut now = |text: &str| {
        place.put("policy", text);
        files.reload().unwrap()
    };
    // The rule that keeps eve out is not understood; the former one still does. Alice's rule for put is gone.
    let keyring =
        now("dney eve *\nallow alice Store get\ndeny alice *\nallow * *\nallow alice Store extra\n");
    let alice = admitted(&keyring, CLIENT).unwrap();
    assert!(alice.allows_procedure("get") && !alice.allows_procedure("put"));
    assert!(!alice.allows(Action::Counters) && !alice.shows_others());
    let eve = admitted(&keyring, OTHER).unwrap();
    assert!(eve.denies_everything() && !eve.allows_procedure("get") && !eve.allows_every_procedure());
    // What is new waits, also a rule that allows everything.
    let eve = admitted(&now("allow * *\ntypo\n"), OTHER).unwrap();
    assert!(!eve.allows_procedure("get") && !eve.allows(Action::Health));
    let eve = admitted(&now("allow * *\n"), OTHER).unwrap();
    assert!(eve.allows_procedure("get") && eve.shows_others());
    // A first policy with a typo denies what it does not allow.
    fs::remove_file(place.path("policy")).unwrap();
    let (mut files, _) = KeyFiles::open(place.0.path()).unwrap();
    place.put("policy", "allow alice Store get\nalow eve Store get\n");
    let keyring = files.reload().unwrap();
    assert!(admitted(&keyring, CLIENT).unwrap().allows_procedure("get"));
    assert!(admitted(&keyring, OTHER).unwrap().denies_everything());
}

/// Without a policy nobody sees the conversations of others. So the first one gives that only when it has no
/// fault.
#[test]
fn a_first_policy_with_a_typo_lets_nobody_see_the_conversations_of_others() {
    let place = Place::new();
    place.put("authorized_keys", format!("{} alice\n{} eve\n", key(CLIENT), key(OTHER)));
    let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    assert!(!admitted(&keyring, OTHER).unwrap().shows_others());
    let mut now = |text: &str| {
        place.put("policy", text);
        files.reload().unwrap()
    };
    for text in ["dney eve *\nallow * *\n", "dney eve *\nallow * @counters\nallow * * get\n"] {
        let keyring = now(text);
        for client in [CLIENT, OTHER] {
            let may = admitted(&keyring, client).unwrap();
            assert!(!may.shows_others() && may.allows(Action::Counters) && may.allows_procedure("get"));
        }
    }
    let keyring = now("deny eve *\nallow * *\n");
    assert!(admitted(&keyring, CLIENT).unwrap().shows_others());
    assert!(!admitted(&keyring, OTHER).unwrap().shows_others());
}

#[test]
fn a_server_s_line_with_a_typo_goes_on_to_exclude_other_keys() {
    let place = Place::new();
    place.put("authorities", format!("{}\n", key(AUTHORITY)));
    place.put("known_servers", format!("Store/main {}\n", key(OTHER)));
    let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    let imitator = Presentation::new(key(CLIENT), [grant(CLIENT, "x", Rights::EXPORT, "Store")]).encode();
    let known = Presentation::new(key(OTHER), []).encode();
    let judged = |keyring: &Keyring, instance: &str, shown: &[u8]| {
        keyring.check_server("Store", instance, shown, NOW).map(drop).map_err(|why| why.kind())
    };
    assert_eq!(judged(&keyring, "main", &imitator), Err(RefusalKind::Pinned));
    assert_eq!(judged(&keyring, "main", &known), Ok(()));
    place.put("known_servers", format!("Store/main {}x\nStore/new {}\n", key(OTHER), key(OTHER)));
    let keyring = files.reload().unwrap();
    assert_eq!(judged(&keyring, "main", &imitator), Err(RefusalKind::Pinned), "the former line");
    assert_eq!(judged(&keyring, "main", &known), Err(RefusalKind::Pinned), "which lets nobody answer");
    assert_eq!(judged(&keyring, "new", &imitator), Err(RefusalKind::Pinned), "a new line excludes, too");
    assert!(judged(&keyring, "new", &known).is_err(), "and waits for the rest");
    assert_eq!(judged(&keyring, "other", &imitator), Ok(()));
}

#[test]
fn an_authority_is_believed_about_the_principals_of_its_line_alone() {
    let place = Place::new();
    place.put("authorities", format!("{} principals=team-*,alice\n", key(AUTHORITY)));
    let (mut files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    for (principal, expected) in [
        ("alice", None),
        ("team-7", None),
        ("ops", Some(RefusalKind::WrongPrincipal)),
        ("alice2", Some(RefusalKind::WrongPrincipal)),
    ] {
        let shown = granted(CLIENT, principal);
        assert_eq!(admitted_with(&keyring, CLIENT, &shown).err(), expected, "{principal}");
    }
    // Servers' grants are limited in the same way.
    let shown = Presentation::new(key(OTHER), [grant(OTHER, "ops", Rights::EXPORT, "Store")]).encode();
    let refused = keyring.check_server("Store", "main", &shown, NOW).unwrap_err();
    assert_eq!(refused.kind(), RefusalKind::WrongPrincipal);
    assert!(refused.to_string().contains("widen principals="), "{refused}");
    // A limit that becomes narrower ends what stood on it.
    let shown = granted(CLIENT, "team-7");
    let team = keyring.check_client(&key(CLIENT).exchange_key(), &shown, NOW).unwrap();
    place.put("authorities", format!("{} principals=alice\n", key(AUTHORITY)));
    let keyring = files.reload().unwrap();
    assert_eq!(keyring.still_stands(&team, NOW).unwrap_err().kind(), RefusalKind::WrongPrincipal);
    assert_eq!(
        keyring.authorities().next().unwrap().to_string(),
        format!("{} principals=alice", key(AUTHORITY))
    );
}

/// A Kubernetes volume: the files are links into a folder to which the link `..data` leads, and a new set of
/// files comes by a new link.
#[test]
fn a_whole_set_of_files_is_swapped_by_one_link() {
    let volume = tempfile::tempdir().unwrap();
    let write = |set: &str, clients: &str, policy: &str| {
        let folder = volume.path().join(set);
        fs::create_dir(&folder).unwrap();
        KeyFiles::write_identity(&folder.join("identity"), &Identity::from_entropy([SERVER; 32])).unwrap();
        fs::write(folder.join("authorized_keys"), clients).unwrap();
        fs::write(folder.join("policy"), policy).unwrap();
        symlink(set, volume.path().join("..data_tmp")).unwrap();
        fs::rename(volume.path().join("..data_tmp"), volume.path().join("..data")).unwrap();
    };
    let line = |who: u8, name: &str| format!("{} {name}\n", key(who));
    write("..2026_a", &line(CLIENT, "alice"), "allow alice Store get\n");
    for file in ["identity", "authorized_keys", "policy"] {
        symlink(format!("..data/{file}"), volume.path().join(file)).unwrap();
    }
    let (mut files, keyring) = KeyFiles::open(volume.path()).unwrap();
    assert!(admitted(&keyring, CLIENT).unwrap().allows_procedure("get") && files.reload().is_none());
    // The same sizes, and all at once.
    write("..2026_b", &line(OTHER, "carol"), "allow carol Store put\n");
    fs::remove_dir_all(volume.path().join("..2026_a")).unwrap();
    let keyring = files.reload().unwrap();
    assert!(admitted(&keyring, CLIENT).is_err());
    assert!(admitted(&keyring, OTHER).unwrap().allows_procedure("put") && files.faults().is_empty());
    assert!(files.reload().is_none());
}
