//! Tests of the registry file's text: it round-trips, and any bytes give a table or a fault.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const GOOD: &str = "\
farcall-names 1 57
A/b udp://127.0.0.1:7000 export=00000000000000ff owner=4711,99,00000000000000aa,5 revision=57 fingerprints=0:000000000000000a:000000000000000c,1:000000000000000b:000000000000000d proof=0aff
A/c udp://[::1]:7000 export=0000000000000000 owner=1,0,0000000000000000,0 revision=3
end 2
";

/// Returns the text of a table as earlier versions of farcall have written it.
fn render(table: &Table) -> String {
    let mut text = format!("{MAGIC} {VERSION} {}\n", table.version());
    table.held().for_each(|held| text += &format!("{}\n", line(held)));
    text + &format!("end {}\n", table.len())
}

fn fault(text: &str) -> (usize, String) {
    match parse(text.as_bytes()) {
        Err(Fault::Line(line, why)) => (line, why),
        other => panic!("{text:?} gave {other:?}"),
    }
}

fn with(line: &str) -> String {
    format!("farcall-names 1 1\n{line}\nend 1\n")
}

#[test]
fn the_documented_form_reads_and_renders_the_same() {
    let table = parse(GOOD.as_bytes()).unwrap();
    assert_eq!(table.version(), 57);
    let first = table.find(&"A".parse().unwrap(), &"b".parse().unwrap()).unwrap();
    let expected =
        [(0, 10, 12), (1, 11, 13)].map(|(number, types, name)| Fingerprint { number, types, name });
    assert_eq!(first.fingerprints, expected);
    assert_eq!(first.proof, [0x0a, 0xff]);
    assert_eq!((first.export, first.owner.pid, first.owner.boot), (0xff, 4711, 0xaa));
    assert_eq!(render(&table), GOOD);
}

#[test]
fn a_file_cut_short_anywhere_is_noticed() {
    for length in 0..GOOD.len() {
        assert!(parse(&GOOD.as_bytes()[..length]).is_err(), "the first {length} bytes read as a whole");
    }
}

#[test]
fn a_fault_says_which_line_and_what() {
    let entry = GOOD.lines().nth(1).unwrap();
    let cases = [
        ("".to_owned(), 1, "a registry begins with"),
        ("hello\n".to_owned(), 1, "a registry begins with"),
        ("farcall-names 1\n".to_owned(), 1, "a registry begins with"),
        ("farcall-names 1 +1\nend 0\n".to_owned(), 1, "a registry begins with"),
        ("farcall-names 1 1\n".to_owned(), 2, "\"end\" is missing"),
        ("farcall-names 1 1\nend 1\n".to_owned(), 2, "announces 1 entries, but the file has 0"),
        ("farcall-names 1 1\nend x\n".to_owned(), 2, "a number must follow"),
        ("farcall-names 1 1\nend 0\nA/b".to_owned(), 3, "nothing may follow"),
        (with(""), 2, "TYPE/INSTANCE"),
        (with("A"), 2, "TYPE/INSTANCE"),
        (with("A/b"), 2, "the address is missing"),
        (with("A/b/c"), 2, "'/' may not stand in a type or an instance"),
        (with("A/b tcp://1.2.3.4:5"), 2, "no carrier for \"tcp\""),
        (with("A/b udp://1.2.3.4:5"), 2, "\"export\" is missing"),
        (with(&format!("{entry} colour=red")), 2, "unknown field"),
        (with(&format!("{entry} red")), 2, "not FIELD=VALUE"),
        (with(&format!("{entry} revision=1")), 2, "occurs twice"),
        (with(&entry.replace("proof=0aff", "proof=0af")), 2, "\"proof\" has a bad value"),
        (with(&entry.replace("proof=0aff", "proof=")), 2, "\"proof\" has a bad value"),
        (with(&entry.replace("proof=0aff", "proof=é")), 2, "\"proof\" has a bad value"),
        (with(&entry.replace("00000000000000ff", "+0000000000000ff")), 2, "\"export\" has a bad value"),
        (with(&entry.replace("00000000000000ff", "ff")), 2, "\"export\" has a bad value"),
        (with(&entry.replace("4711", "-1")), 2, "\"owner\" has a bad value"),
        (with(&entry.replace("4711", "4294967296")), 2, "\"owner\" has a bad value"),
        (with(&format!("{entry}\n{entry}")), 3, "an earlier line has the same name"),
    ];
    for (text, line, what) in cases {
        let (at, why) = fault(&text);
        assert_eq!(at, line, "{text:?}: {why}");
        assert!(why.contains(what), "{text:?}: {why}");
    }
}

#[test]
fn another_version_of_the_format_is_named() {
    assert_eq!(parse(b"farcall-names 2 1\n"), Err(Fault::Version("2".to_owned())));
}

#[test]
fn what_is_not_text_and_what_is_too_long_are_refused() {
    let (line, why) = match parse(b"farcall-names 1 1\n\xff\nend 1\n") {
        Err(Fault::Line(line, why)) => (line, why),
        other => panic!("{other:?}"),
    };
    assert_eq!((line, why.as_str()), (2, "it is not UTF-8 text"));
    assert!(parse(&vec![b' '; MAX_FILE + 1]).is_err());
}

#[test]
fn an_entry_at_its_bounds_is_read_and_one_beyond_is_not() {
    let mut entry =
        Entry::new("A".parse().unwrap(), "b".parse().unwrap(), "udp://[::1]:1".parse().unwrap(), 1);
    let fingerprint = Fingerprint { number: u32::MAX, types: u64::MAX, name: u64::MAX };
    let address = entry.address;
    for (addresses, fingerprints, bytes, reads) in
        [(0, 0, 0, true), (1, 0, 0, false), (0, 1, 0, false), (0, 0, 1, false)]
    {
        entry.other_addresses = vec![address; MAX_ADDRESSES - 1 + addresses];
        entry.fingerprints = vec![fingerprint; MAX_FINGERPRINTS + fingerprints];
        entry.proof = vec![0xff; MAX_PROOF + bytes];
        assert_eq!(entry.check().is_ok(), reads);
        let mut table = Table::default();
        table.put(entry.clone());
        assert_eq!(parse(render(&table).as_bytes()).is_ok(), reads);
    }
}

prop_compose! {
    pub(crate) fn any_entry()(
        type_name in "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
        instance in "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
        (ip, other_ips) in any::<(std::net::IpAddr, [std::net::IpAddr; 2])>(),
        others in 0usize..3,
        port in 1u16..,
        export: u64,
        fingerprints in vec(any::<(u32, u64, u64)>(), 0..6),
        proof in vec(any::<u8>(), 0..40),
        (pid, started, boot, namespace) in any::<(u32, u64, u64, u64)>(),
    ) -> Entry {
        Entry {
            type_name: type_name.parse().unwrap(),
            instance: instance.parse().unwrap(),
            address: Address::Udp((ip, port).into()),
            other_addresses: other_ips.iter().take(others).map(|&ip| Address::Udp((ip, port).into())).collect(),
            export,
            fingerprints: fingerprints.into_iter().map(|(number, types, name)| Fingerprint { number, types, name }).collect(),
            proof,
            owner: Owner { pid, started, boot, namespace },
            by_type: false,
        }
    }
}

fn any_table() -> impl Strategy<Value = Table> {
    (0..=MAX_VERSION, vec(any_entry(), 0..5)).prop_map(|(version, entries)| {
        let mut table = Table::at_version(version);
        for entry in entries {
            table.put(entry);
        }
        table
    })
}

proptest! {
    #[test]
    fn any_table_reads_back(table in any_table()) {
        prop_assert_eq!(parse(render(&table).as_bytes()), Ok(table));
    }

    #[test]
    fn any_bytes_are_a_table_or_a_fault(bytes in vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_spoilt_file_is_a_table_or_a_fault(
        table in any_table(),
        spoil in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = render(&table).into_bytes();
        for (at, byte) in spoil {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(table) = parse(&bytes) {
            prop_assert_eq!(parse(render(&table).as_bytes()), Ok(table));
        }
    }
}
