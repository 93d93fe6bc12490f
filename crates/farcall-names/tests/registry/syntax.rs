//! Tests which names are accepted, and the errors for names that are not.

use std::net::{IpAddr, SocketAddr};

use farcall_names::{Address, Fault, Label, MAX_EXPORT, MAX_LABEL, MAX_NAME, Name};
use proptest::prelude::*;

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn socket(text: &str) -> Address {
    Address::Udp(text.parse().unwrap())
}

#[test]
fn a_type_an_instance_and_an_address() {
    let cases = [
        ("FileAccess", Name::Type(label("FileAccess"))),
        ("_x-1.0", Name::Type(label("_x-1.0"))),
        (
            "FileAccess.Alpine/Ebbets.Alpine",
            Name::Instance { type_name: label("FileAccess.Alpine"), instance: label("Ebbets.Alpine") },
        ),
        (
            "udp://10.0.0.7:7000/FileAccess",
            Name::At { address: socket("10.0.0.7:7000"), type_name: label("FileAccess"), instance: None },
        ),
        (
            "udp://[::1]:7000/FileAccess/ebbets",
            Name::At {
                address: socket("[::1]:7000"),
                type_name: label("FileAccess"),
                instance: Some(label("ebbets")),
            },
        ),
    ];
    for (text, name) in cases {
        assert_eq!(text.parse::<Name>().unwrap(), name);
        assert_eq!(name.to_string(), text);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_address_may_name_its_network_interface() {
    for (text, number) in [
        ("udp://[fe80::1%lo]:7/A", "udp://[fe80::1%1]:7/A"),
        ("shm://[fe80::1%lo]:7/A", "shm://[fe80::1%1]:7/A"),
    ] {
        assert_eq!(text.parse::<Name>().unwrap().to_string(), number);
    }
    assert_eq!("udp://[fe80::1%lo]:7".parse::<Address>().unwrap().to_string(), "udp://[fe80::1%1]:7");
}

#[test]
fn a_service_of_dns() {
    for (text, instance) in [
        ("farcall://_store._udp.example.org/Store", None),
        ("farcall://_store-2._UDP.org/Store/ebbets", Some(label("ebbets"))),
    ] {
        let name: Name = text.parse().unwrap();
        assert_eq!(name.to_string(), text);
        let Name::AtService { type_name, instance: found, .. } = name else { panic!("{name:?}") };
        assert_eq!((type_name, found), (label("Store"), instance));
    }
    assert!("farcall://_store._udp.example.org".parse::<Address>().is_err());
}

#[test]
fn a_fault_says_what_is_wrong_and_where() {
    let ty = "a type";
    let instance = "an instance";
    let cases = [
        ("", 0, Fault::Empty { part: ty }),
        ("/", 0, Fault::Empty { part: ty }),
        ("/ebbets", 0, Fault::Empty { part: ty }),
        ("FileAccess/", 11, Fault::Empty { part: instance }),
        ("FileAccess/ebbets/", 17, Fault::TooManyParts),
        ("FileAccess/ebbets/luther", 17, Fault::TooManyParts),
        ("File Access", 4, Fault::Character { part: ty, found: ' ' }),
        ("Fileé", 4, Fault::Character { part: ty, found: 'é' }),
        ("FileAccess/a:b", 12, Fault::Character { part: instance, found: ':' }),
        ("../etc", 0, Fault::Start { part: ty, found: '.' }),
        ("FileAccess/-x", 11, Fault::Start { part: instance, found: '-' }),
        ("http://x/Y", 0, Fault::UnknownScheme("http".to_owned())),
        ("UDP://10.0.0.7:7000/A", 0, Fault::UnknownScheme("UDP".to_owned())),
        ("10.0.0.7:7000/A", 0, Fault::UnknownScheme("10.0.0.7".to_owned())),
        ("://A", 0, Fault::UnknownScheme(String::new())),
        ("tcp://10.0.0.7:7000/A", 0, Fault::ReservedScheme("tcp")),
        ("tcp:store/A", 0, Fault::ReservedScheme("tcp")),
        ("inproc:A", 0, Fault::ReservedScheme("inproc")),
        ("udp:10.0.0.7:7000/A", 4, Fault::NoSlashes),
        ("udp:", 4, Fault::NoSlashes),
        ("udp://", 6, Fault::Empty { part: "an address" }),
        ("udp:///A", 6, Fault::Empty { part: "an address" }),
        ("udp://10.0.0.7/A", 14, Fault::NoPort),
        ("udp://10.0.0.7:/A", 15, Fault::NoPort),
        ("udp://[::1]/A", 11, Fault::NoPort),
        ("udp://::1/A", 9, Fault::NoPort),
        ("udp://10.0.0.7:0/A", 6, Fault::PortZero),
        ("udp://[fe80::1%2]/A", 17, Fault::NoPort),
        ("udp://[fe80::1%no-such-if]:7/A", 6, Fault::Interface),
        ("udp://[fe80::1%no-such-if]:70000/A", 6, Fault::Address),
        ("udp://10.0.0.7:70000/A", 6, Fault::Address),
        ("udp://ebbets:70000/A", 6, Fault::Address),
        ("udp://ebbets:+7/A", 6, Fault::Address),
        ("udp://ebbets:0/A", 6, Fault::PortZero),
        ("udp://ebbets/A", 12, Fault::NoPort),
        ("udp://ebbets:/A", 13, Fault::NoPort),
        ("udp://ebbets..org:7/A", 6, Fault::Address),
        ("udp://-ebbets:7/A", 6, Fault::Address),
        ("udp://eb bets:7/A", 6, Fault::Address),
        ("udp://[ebbets]:7/A", 6, Fault::Address),
        ("udp://10.0.0.300:7/A", 6, Fault::Address),
        ("udp://127.1:7/A", 6, Fault::Address),
        ("udp://0x7f000001:7/A", 6, Fault::Address),
        ("shm://ebbets:7000/A", 6, Fault::Address),
        ("udp://10.0.0.7:7000", 19, Fault::Empty { part: ty }),
        ("udp://10.0.0.7:7000/", 20, Fault::Empty { part: ty }),
        ("udp://10.0.0.7:7000/A/", 22, Fault::Empty { part: instance }),
        ("udp://10.0.0.7:7000/A/b/c", 23, Fault::TooManyParts),
        ("farcall:_store._udp.example.org/A", 8, Fault::NoSlashes),
        ("farcall://", 10, Fault::Service),
        ("farcall://_store._udp/A", 10, Fault::Service),
        ("farcall://_store._tcp.example.org/A", 10, Fault::Service),
        ("farcall://_._udp.example.org/A", 10, Fault::Service),
        ("farcall://store.example.org/A", 10, Fault::Service),
        ("farcall://_store._udp.example.org:7000/A", 10, Fault::Service),
        ("farcall://_store._udp.example.org", 33, Fault::Empty { part: ty }),
        ("farcall://_store._udp.example.org/A/b/c", 37, Fault::TooManyParts),
    ];
    for (text, at, fault) in cases {
        let error = text.parse::<Name>().expect_err(text);
        assert_eq!((error.at(), error.fault()), (at, &fault), "{text:?}: {error}");
    }
}

#[test]
fn lengths_are_bounded() {
    let longest = "a".repeat(MAX_LABEL);
    assert!(longest.parse::<Label>().is_ok());
    let beside = "a".repeat(MAX_EXPORT - 1 - MAX_LABEL);
    for address in ["", "udp://127.0.0.1:7000/"] {
        assert!(format!("{address}{longest}/{beside}").parse::<Name>().is_ok());
        let error = format!("{address}{longest}/{beside}a").parse::<Name>().unwrap_err();
        let fault = Fault::TooLong { part: "a type with its instance", limit: MAX_EXPORT };
        assert_eq!((error.at(), error.fault()), (address.len() + MAX_EXPORT, &fault));
    }

    let error = format!("A/{longest}a").parse::<Name>().unwrap_err();
    assert_eq!(
        (error.at(), error.fault()),
        (2 + MAX_LABEL, &Fault::TooLong { part: "an instance", limit: MAX_LABEL })
    );

    let host = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(53)].join(".");
    for (more, is_name) in [("", true), ("d", false)] {
        let text = format!("udp://{host}{more}:7000/{longest}/{beside}");
        let (fits, parses) = (text.len() <= MAX_NAME, text.parse::<Name>().is_ok());
        assert_eq!((fits, parses), (is_name, is_name), "{} bytes", text.len());
    }
    let error = "é".repeat(MAX_NAME).parse::<Name>().unwrap_err();
    assert_eq!(error.fault(), &Fault::TooLong { part: "a name", limit: MAX_NAME });
    assert!(error.to_string().len() < 400, "the error repeats the whole name: {error}");
}

#[test]
fn an_error_shows_the_name_escaped() {
    let error = "a\u{1b}[31m".parse::<Name>().unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
    assert!(
        error.starts_with(r#"in the name "a\u{1b}[31m", at byte 1: '\u{1b}' may not stand in a type"#),
        "{error}"
    );
}

#[test]
fn a_host_may_stand_by_its_name() {
    let longest = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".");
    for host in ["localhost", "ebbets.example.org", "3com", "10.0.0.7a", "_x.a-b", &longest] {
        let text = format!("udp://{host}:7000/FileAccess/ebbets");
        let name = text.parse::<Name>().unwrap();
        let Name::AtHost { host: read, port, .. } = &name else { panic!("{name:?}") };
        assert_eq!((read.as_str(), *port, name.to_string()), (host, 7000, text));
    }
    assert!(format!("udp://{longest}d:7000/A").parse::<Name>().is_err());
    assert!("udp://localhost:7000".parse::<Address>().is_err(), "a registry has numbers only");
}

#[test]
fn an_address_keeps_its_text_and_its_socket_address_is_canonical() {
    for (text, canonical) in [
        ("udp://127.0.0.1:7000", "127.0.0.1:7000"),
        ("shm://127.0.0.1:7000", "127.0.0.1:7000"),
        ("udp://[::ffff:10.0.0.7]:7000", "10.0.0.7:7000"),
        ("udp://[::1]:7000", "[::1]:7000"),
    ] {
        let address: Address = text.parse().unwrap();
        assert_eq!((address.to_string(), address.socket()), (text.to_owned(), canonical.parse().ok()));
    }
    assert_eq!(label("ebbets").as_ref(), "ebbets");
}

proptest! {
    #[test]
    fn any_text_is_a_name_that_prints_the_same_or_a_fault_within_it(text in any::<String>()) {
        match text.parse::<Name>() {
            Ok(name) => prop_assert_eq!(name.to_string(), text),
            Err(error) => prop_assert!(error.at() <= text.len()),
        }
    }

    #[test]
    fn text_that_is_nearly_a_name_reads_back(text in "(udp:/{0,2})?[]\\[a-fx0-9_.:-]{0,12}(/[a-b._-]{0,3}){0,3}") {
        if let Ok(name) = text.parse::<Name>() {
            prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name));
        }
    }

    #[test]
    fn any_address_and_labels_are_a_name(
        ip: IpAddr,
        port in 1u16..,
        type_name in "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
        instance in proptest::option::of("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"),
    ) {
        prop_assume!(type_name.len() + 1 + instance.as_ref().map_or(0, String::len) <= MAX_EXPORT);
        let name = Name::At {
            address: SocketAddr::new(ip, port).into(),
            type_name: label(&type_name),
            instance: instance.map(|i| label(&i)),
        };
        prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name));
    }
}
