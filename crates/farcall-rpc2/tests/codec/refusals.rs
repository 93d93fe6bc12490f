//! What RPC2 cannot say, and values that are none.

use farcall::idl::Interface as Description;
use farcall::stub::Interface;
use farcall::xdr::{ByteString, Schema};
use farcall_rpc2::codec::{ErrorKind, Layout, Part};

use crate::{covering, layout, procedure};

fn refused<T: Schema>() -> String {
    let mut description = Description::new("Store");
    description.procedure(1, "put").argument::<T>("value");
    Layout::new(&description).unwrap_err().to_string()
}

#[derive(Debug, farcall::Xdr)]
struct Nested {
    flag: bool,
}

#[derive(Debug, farcall::Xdr)]
enum Shape {
    Circle { radius: u32 },
}

#[test]
fn types_that_rpc2_lacks_are_refused_with_their_place() {
    let head = "RPC2 cannot carry the calls of Store.";
    let cases = [
        (refused::<bool>(), "put, argument value: RPC2 has no booleans; an enum can say it"),
        (refused::<u64>(), "put, argument value: a number of 64 bits; the largest ones have 32"),
        (refused::<u16>(), "put, argument value: numbers of RPC2 have 32 bits; u8 is an RPC2_Byte"),
        (refused::<f32>(), "put, argument value: RPC2 has floating-point numbers of 64 bits only"),
        (refused::<Option<u32>>(), "put, argument value: RPC2 has no optional data; a list can say it"),
        (refused::<Vec<u32>>(), "put, argument value: RPC2 has lists of structs only"),
        (refused::<[u32; 2]>(), "put, argument value: RPC2 has arrays of bytes only"),
        (refused::<(u32, u32)>(), "put, argument value: RPC2 has no tuples; a struct can say it"),
        (refused::<Nested>(), "Nested.flag: RPC2 has no booleans; an enum can say it"),
        (refused::<Shape>(), "Shape.Circle: enums of RPC2 have no fields"),
    ];
    for (said, expected) in cases {
        assert_eq!(said, format!("{head}{expected}"));
    }
}

#[test]
fn an_exception_is_a_return_code_and_the_result() {
    #[derive(Debug, farcall::Xdr)]
    struct Code {
        code: i32,
    }
    #[derive(Debug, farcall::Xdr)]
    struct Both {
        code: i32,
        number: u32,
    }
    let accepted = |make: fn(&mut Description)| {
        let mut description = Description::new("Store");
        make(&mut description);
        Layout::new(&description).is_ok()
    };
    assert!(accepted(|all| {
        all.procedure(1, "a").exception::<Code>();
    }));
    assert!(accepted(|all| {
        all.procedure(1, "a").result::<u32>().exception::<Both>();
    }));
    assert!(accepted(|all| {
        all.procedure(1, "a").result::<Code>();
    }));
    assert!(!accepted(|all| {
        all.procedure(1, "a").exception::<Both>();
    }));
    assert!(!accepted(|all| {
        all.procedure(1, "a").result::<u32>().exception::<Code>();
    }));
    assert!(!accepted(|all| {
        all.procedure(1, "a").exception::<i32>();
    }));
    assert!(!accepted(|all| {
        all.procedure(1, "a").oneway();
    }));
    assert!(!accepted(|all| {
        all.signal("a");
    }));
}

#[test]
fn procedures_with_bulk_data_are_told_apart() {
    let (layout, described) = (layout(), <dyn covering::Covering>::interface());
    let has_bulk = |name: &str| layout.procedure(described.by_name(name).unwrap().number).unwrap().has_bulk();
    assert!(has_bulk("store") && has_bulk("fetch") && !has_bulk("arrays"));
}

#[test]
fn values_that_are_none_are_refused() {
    let layout = layout();
    let names = procedure(&layout, "Names");
    let unpacked = |packed: &[u8]| {
        let mut out = vec![7];
        let why = layout.unpack(names, Part::Arguments, packed, &mut out).unwrap_err();
        assert_eq!(out, [7], "nothing is left of a value that is refused");
        (why.kind().clone(), why.to_string())
    };
    let (kind, said) = unpacked(&[0, 0, 0, 1, b'a', b'b', 0, 0]);
    assert_eq!(
        (kind, said.as_str()),
        (ErrorKind::NoZeroByte, "arguments.first: no zero byte ends the string")
    );
    assert_eq!(unpacked(&[0, 0, 0, 2, b'a', 0, 0, 0]).0, ErrorKind::ZeroByte);
    assert_eq!(unpacked(&[255; 4]).0, ErrorKind::Truncated { needed: 1 << 32, left: 0 });
    let given = procedure(&layout, "Arrays");
    let why = layout.unpack(given, Part::Arguments, &[0, 0, 0, 3, 0, 0, 0, 0], &mut Vec::new()).unwrap_err();
    assert_eq!(why.kind(), &ErrorKind::Count { count: 3, left: 4 });
    // A string with a zero byte would arrive shorter.
    let mut xdr = farcall::xdr::to_vec(&(ByteString::from("a\0"), ByteString::from(""))).unwrap();
    let why = layout.pack(names, Part::Arguments, &xdr, &mut Vec::new()).unwrap_err();
    assert_eq!(why.kind(), &ErrorKind::ZeroByte);
    xdr.pop();
    assert!(layout.pack(names, Part::Arguments, &xdr, &mut Vec::new()).is_err());
}

#[test]
fn an_empty_result_can_be_unpacked() {
    let layout = layout();
    for name in ["AllOut", "AllBoth", "Arrays", "Names", "Count"] {
        let procedure = procedure(&layout, name);
        let packed = layout.empty_result(procedure);
        layout.unpack(procedure, Part::Result, &packed, &mut Vec::new()).unwrap();
    }
}
