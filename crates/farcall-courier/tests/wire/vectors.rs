//! Messages that programs of others exchanged: 4.4BSD's client and server of PasswordLookup, a client
//! written to capture them, and the dodo server. Each is parsed, and printed again exactly.

use farcall_courier::wire::message::{Call, Courier, Message, Rejection, Versions};

use crate::bytes;

/// Checks that a message is parsed as this, and printed exactly.
fn check(words: &str, message: Message<'_>) {
    let bytes = bytes(words);
    assert_eq!(Message::parse(&bytes, Courier::Three), Ok(message), "{words}");
    let mut out = Vec::new();
    message.write(Courier::Three, &mut out);
    assert_eq!(out, bytes, "{words}");
}

/// Checks the versions before a first message, and returns the words after them.
fn versions(words: &str, versions: Versions) -> &str {
    let (head, rest) = words.split_at("0003 0003".len());
    assert_eq!(bytes(head), versions.to_bytes());
    assert_eq!(Versions::from_bytes(bytes(head).try_into().unwrap()), versions);
    rest
}

fn call<'a>(id: u16, (program, version): (u32, u16), procedure: u16, arguments: &'a [u8]) -> Message<'a> {
    Message::Call(Call { id, program, version, procedure, arguments })
}

const LOOKUP: (u32, u16) = (754, 1);
const USER: &str = "0004 726f 6f74 0001 7800 0000 0000 0000 0000 0001 1170 0000 0003 6f64 6400 0005 2f68 6f6d \
                    6500 0007 2f62 696e 2f73 6800";
const USER_3: &str = "0004 726f 6f74 0001 7800 0000 0003 0000 0003 0001 1170 0000 0003 6f64 6400 0005 2f68 \
                      6f6d 6500 0007 2f62 696e 2f73 6800";

#[test]
fn calls_of_4_4bsd() {
    let first = versions("0003 0003 0000 1234 0000 02f2 0001 0001 0004 726f 6f74", Versions::THREE);
    check(first, call(0x1234, LOOKUP, 1, b"\0\x04root"));
    check("0000 1235 0000 02f2 0001 0001 0006 6e6f 626f 6479", call(0x1235, LOOKUP, 1, b"\0\x06nobody"));
    check("0000 1236 0000 02f2 0001 0001 0004 6f6f 7073", call(0x1236, LOOKUP, 1, b"\0\x04oops"));
    let first = versions("0003 0003 0000 0007 0000 02f2 0001 0000 0003", Versions::THREE);
    check(first, call(7, LOOKUP, 0, &[0, 3]));
    let first = versions("0003 0003 0000 0008 0000 02f2 0001 0063", Versions::THREE);
    check(first, call(8, LOOKUP, 99, &[]));
    let first = versions("0003 0003 0000 0009 0000 02f2 0001 0000 0003", Versions::THREE);
    check(first, call(9, LOOKUP, 0, &[0, 3]));
    check("0000 000a 0000 03e7 0001 0000", call(10, (999, 1), 0, &[]));
    check("0000 000a 0000 02f2 0007 0000", call(10, (754, 7), 0, &[]));
    let first = versions("0005 0006 0000 000b 0000 02f2 0001 0000 0003", Versions { lowest: 5, highest: 6 });
    check(first, call(11, LOOKUP, 0, &[0, 3]));
    check("0000 000c 0000 02f2 0001 0000 0003", call(12, LOOKUP, 0, &[0, 3]));
}

#[test]
fn replies_of_4_4bsd() {
    check(&format!("0002 1234 {USER}"), Message::Return(0x1234, &bytes(USER)));
    for id in [7, 9, 0xb, 0xc] {
        check(&format!("0002 {id:04x} {USER_3}"), Message::Return(id, &bytes(USER_3)));
    }
    check("0003 1235 0000", Message::Abort(0x1235, &[0, 0]));
    check("0003 1236 0001 0004 626f 6f6d", Message::Abort(0x1236, b"\0\x01\0\x04boom"));
    check("0001 0008 0002", Message::Reject(8, Rejection::NoSuchProcedure));
    check("0001 0009 0000", Message::Reject(9, Rejection::NoSuchProgram));
}

#[test]
fn calls_and_replies_of_dodo() {
    let both = Versions { lowest: 2, highest: 3 };
    let first = versions("0002 0003 0000 0001 0000 0002 0002 0000", both);
    check(first, call(1, (2, 2), 0, &[]));
    versions("0003 0003", Versions::THREE);
    check(
        "0002 0001 0001 0000 041a 1000 bb10 1101 0000",
        Message::Return(1, &bytes("0001 0000 041a 1000 bb10 1101 0000")),
    );
    check("0000 0077 0000 0002 0002 03e7", call(0x77, (2, 2), 999, &[]));
    check("0000 0003 0000 0002 004d 0000", call(3, (2, 77), 0, &[]));
    check("0001 0003 0001 0002 0003", Message::Reject(3, Rejection::NoSuchVersion(Some(both))));
    check("0000 0004 0000 1092 0001 0000", call(4, (0x1092, 1), 0, &[]));
    check("0001 0004 0000", Message::Reject(4, Rejection::NoSuchProgram));
    check("0000 0005 0000 000f 0002 0000", call(5, (15, 2), 0, &[]));
    check("0001 0005 0000", Message::Reject(5, Rejection::NoSuchProgram));
    check("0000 0006 0000 000a 0006 0000 0000 0000", call(6, (10, 6), 0, &[0; 4]));
    check("0001 0006 0003", Message::Reject(6, Rejection::InvalidArguments));
}

#[test]
fn version_2_has_short_program_numbers_and_rejects_versions_without_a_range() {
    let mut out = Vec::new();
    let message = call(7, (754, 1), 2, &[0, 9]);
    message.write(Courier::Two, &mut out);
    assert_eq!(out, bytes("0000 0007 02f2 0001 0002 0009"));
    assert_eq!(Message::parse(&out, Courier::Two), Ok(message));
    out.clear();
    Message::Reject(7, Rejection::NoSuchVersion(Some(Versions::ALL))).write(Courier::Two, &mut out);
    assert_eq!(out, bytes("0001 0007 0001"));
    let reject = Message::Reject(7, Rejection::NoSuchVersion(None));
    assert_eq!(Message::parse(&out, Courier::Two), Ok(reject));
}

#[test]
fn the_highest_common_version_is_used() {
    let range = |lowest, highest| Versions { lowest, highest };
    for (other, common) in [
        (range(3, 3), Some(Courier::Three)),
        (range(2, 3), Some(Courier::Three)),
        (range(1, 2), Some(Courier::Two)),
        (range(0, 9), Some(Courier::Three)),
        (range(5, 6), None),
        (range(0, 1), None),
        (range(3, 2), None),
    ] {
        assert_eq!(Versions::ALL.common(other), common, "{other}");
    }
    assert_eq!(Versions::THREE.common(range(2, 2)), None);
}
