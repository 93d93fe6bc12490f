//! Tests the model: its fingerprints, and its own encoding.

use farcall_idl::{Builder, Interface};
use farcall_macros::Xdr;
use farcall_xdr::schema::Type;
use farcall_xdr::{Schema, from_slice, to_vec};

#[derive(Xdr)]
#[xdr(crate = farcall_xdr)]
#[allow(dead_code)]
struct Node {
    name: String,
    next: Option<Box<Node>>,
}

/// Drops a procedure's builder.
fn done(_: Builder<'_>) {}

fn tree() -> Interface {
    let mut tree = Interface::new("Tree").docs("A tree.");
    tree.procedure(1, "get")
        .docs("One node.")
        .argument::<Vec<u32>>("path")
        .result::<Node>()
        .exception::<String>();
    tree.procedure(9, "put")
        .argument::<Node>("node")
        .argument::<u8>("at")
        .idempotent()
        .blocking()
        .deadline_ms(5);
    tree
}

#[test]
fn survives_the_wire() {
    let packet = to_vec(&tree()).unwrap();
    assert_eq!(from_slice::<Interface>(&packet).unwrap(), tree());
    assert_eq!(
        tree().to_string(),
        "/// A tree.\ninterface Tree {\n    /// One node.\n      1  get(path: u32<>) -> Node raises string<>\n      \
         9  put(node: Node, at: u8), idempotent, within 5 ms\n}"
    );
}

#[test]
fn an_interface_with_signals_has_a_version_of_its_own() {
    let version = |interface: &Interface| to_vec(interface).unwrap()[..4].to_vec();
    assert_eq!(version(&tree()), [0, 0, 0, 1]);
    let mut asking = tree();
    asking.signal("full").docs("No room.").argument::<Node>("node").argument::<u64>("bytes").result::<u64>();
    asking.signal("note").argument::<String>("text");
    assert_eq!(version(&asking), [0, 0, 0, 2]);
    let packet = to_vec(&asking).unwrap();
    assert_eq!(from_slice::<Interface>(&packet).unwrap(), asking);
    for length in 0..packet.len() {
        assert!(from_slice::<Interface>(&packet[..length]).is_err(), "{length}");
    }
    // A program that does not know signals cannot be told of them.
    let mut old = packet.clone();
    old[3] = 1;
    assert!(from_slice::<Interface>(&old).is_err());
    // A signal may not refer to a type that the table does not have.
    asking.types = farcall_xdr::schema::Types::new();
    asking.procedures.clear();
    assert!(from_slice::<Interface>(&to_vec(&asking).unwrap()).is_err());
}

/// A stream, as `farcall::Stream` describes itself.
struct Stream;

impl Schema for Stream {
    fn schema(types: &mut farcall_xdr::schema::Types) -> Type {
        Type::Tuple(vec![Type::Opaque { size: 0 }, Node::schema(types)])
    }
}

#[test]
fn signals_and_streams_are_shown_and_found() {
    let mut interface = Interface::new("Log");
    interface.procedure(1, "entries").argument::<u64>("from").result::<Stream>();
    interface
        .procedure(2, "append")
        .argument::<String>("topic")
        .argument::<Stream>("entries")
        .result::<u64>();
    interface.procedure(3, "null");
    interface.signal("full").docs("No room.").argument::<u64>("bytes").result::<u64>();
    assert_eq!(
        interface.to_string(),
        "interface Log {\n      1  entries(from: u64) -> stream<Node>\n      \
         2  append(topic: string<>, entries: stream<Node>) -> u64\n      3  null()\n    \
         /// No room.\n    signal full(bytes: u64) -> u64\n}"
    );
    let [entries, append, null] = &interface.procedures[..] else { unreachable!() };
    assert!(matches!(entries.result_stream(), Some(Type::Named(_))) && entries.argument_stream().is_none());
    assert!(
        matches!(append.argument_stream(), Some((1, Type::Named(_)))) && append.result_stream().is_none()
    );
    assert!(entries.has_streams() && append.has_streams() && !null.has_streams());
    assert!(interface.has_exchanges(null) && interface.signal_by_name("full").is_some());
    interface.signals.clear();
    assert!(!interface.has_exchanges(null) && interface.has_exchanges(append));
}

#[test]
fn signals_are_not_compared_with_procedures() {
    let mut asking = tree();
    asking.signal("get").argument::<u64>("bytes");
    assert_eq!(asking.fingerprints(), tree().fingerprints());
    assert_eq!(asking.by_name("get").unwrap().number, 1);
    assert_eq!(asking.signals[0].name_hash(), asking.procedures[0].name_hash());
}

#[test]
fn a_fingerprint_has_the_name_and_whether_the_number_is_pinned() {
    let mut interface = Interface::new("Store");
    interface.procedure(1, "get");
    interface.procedure(2, "get").pinned();
    interface.procedure(3, "put").pinned();
    let [get, pinned, put] = interface.fingerprints()[..] else { unreachable!() };
    assert_eq!((get.is_pinned(), pinned.is_pinned(), put.is_pinned()), (false, true, true));
    assert_eq!(get.name_hash(), pinned.name_hash());
    assert_ne!(pinned.name_hash(), put.name_hash());
}

#[test]
fn types_are_compared_by_their_wire_form_alone() {
    let tree = tree();
    let mut renamed = Interface::new("Other");
    renamed.procedure(9, "set").docs("Docs.").argument::<Node>("a").argument::<u8>("b");
    assert_eq!(tree.fingerprints()[1].types, renamed.fingerprints()[0].types);

    let print = |build: fn(&mut Interface)| {
        let mut interface = Interface::new("X");
        build(&mut interface);
        interface.fingerprints()[0].types
    };
    let all = [
        print(|x| done(x.procedure(1, "p"))),
        print(|x| done(x.procedure(1, "p").argument::<u32>("a"))),
        print(|x| done(x.procedure(1, "p").result::<u32>())),
        print(|x| done(x.procedure(1, "p").exception::<u32>())),
        print(|x| done(x.procedure(1, "p").argument::<u64>("a"))),
        print(|x| done(x.procedure(1, "p").argument::<u32>("a").argument::<u32>("b"))),
        print(|x| done(x.procedure(1, "p").argument::<(u32, u32)>("a"))),
    ];
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            assert_ne!(one, other, "{index}");
        }
    }
}

#[test]
fn any_bytes_give_an_interface_or_an_error() {
    let packet = to_vec(&tree()).unwrap();
    for length in 0..packet.len() {
        assert!(from_slice::<Interface>(&packet[..length]).is_err(), "{length}");
    }
    for at in 0..packet.len() {
        for bit in 0..8 {
            let mut packet = packet.clone();
            packet[at] ^= 1 << bit;
            if let Ok(interface) = from_slice::<Interface>(&packet) {
                let _ = (interface.fingerprints(), interface.to_string());
                let _ = farcall_idl::check(&tree(), &interface);
            }
        }
    }
}

#[test]
fn a_later_version_may_say_more_of_a_procedure() {
    let mut one = Interface::new("One");
    one.procedure(1, "p");
    let mut packet = to_vec(&one).unwrap();
    // The procedure comes last. Its length comes before its ten fields.
    let start = packet.len() - 4 - 44;
    assert_eq!(packet[start..start + 4], 44u32.to_be_bytes());
    // The eleventh says that callers do not wait, and a twelfth is unknown.
    packet.extend([0, 0, 0, 1, 0, 0, 0, 9]);
    packet[start..start + 4].copy_from_slice(&52u32.to_be_bytes());
    one.procedures[0].oneway = true;
    assert_eq!(from_slice::<Interface>(&packet).unwrap(), one);
    assert_eq!(from_slice::<Interface>(&to_vec(&one).unwrap()).unwrap(), one);
    packet[3] = 3;
    let why = from_slice::<Interface>(&packet).unwrap_err();
    assert!(why.to_string().contains("version 3"), "{why}");
}

#[test]
fn a_description_that_is_too_large_is_refused_and_says_how_large_it_is() {
    let mut large = Interface::new("Large");
    for number in 0..20_000 {
        done(large.procedure(number, format!("procedure{number}")));
    }
    let why = from_slice::<Interface>(&to_vec(&large).unwrap()).unwrap_err().to_string();
    assert!(why.contains("20000 procedures and 0 types") && why.contains("at most 1048576 bytes"), "{why}");
    let mut long = Interface::new("Long");
    done(long.procedure(1, "p".repeat(1025)));
    let why = from_slice::<Interface>(&to_vec(&long).unwrap()).unwrap_err().to_string();
    assert!(why.contains("a name of 1025 bytes; it may have at most 1024"), "{why}");
}
