//! Tests of datagrams as text: the line of each frame, and the reason why bytes are no datagram.

mod common;

use common::*;
use farcall_proto::dump::{dump, from_hex};

const WELCOME: u8 = 0x02;
const TICKET: u8 = 0x05;
const USER_PROOF: u8 = 0x81;
const DRAIN: u8 = 0x82;
const WANTED: u8 = 0x83;
const MTU_ECHO: u8 = 0x17;
const POST: u8 = 0x18;
const DATA: u8 = 0x20;
const CREDIT: u8 = 0x21;
const STOP: u8 = 0x22;

/// Returns a WELCOME with this refusal, or 0 for none, and with this reason why a ticket has ended, or 0 if
/// the ticket has not ended.
fn welcome(refused: u32, ended: u32, more: &[u32]) -> Vec<u8> {
    let ticket = [0, 7, 0, 6, 0, 5, 1, 2, 3, 4, 0];
    let address = [0, 0, 0xffff, 0x0a00_0001, 1000 << 16];
    let granted = [0x0001_0001, refused << 16 | 1, 0, EXPORT as u32];
    let head = [&[0, 9, 0, 8][..], &ticket, &granted, &address];
    frame(WELCOME, 0, &[&head.concat()[..], &[ended, 0, 0, 1_500_000_000], more].concat())
}

fn of_servers_words() -> Vec<(Vec<u8>, String)> {
    vec![
        (
            frame(DRAIN, 0, &[0, 9, 0, 0, 0, 7]),
            "DRAIN of all exports in conversation 0000000000000009, after call 7".into(),
        ),
        (
            frame(DRAIN, 0, &[0, 9, 0, EXPORT as u32, 0, 7]),
            "DRAIN of export 000000000000004d in conversation 0000000000000009, after call 7".into(),
        ),
        (frame_about(WANTED, 0, 1, 9, &[]), "WANTED 1.9: is it?".into()),
    ]
}

/// Returns the frames of exchanges, with their lines.
fn of_exchanges() -> Vec<(Vec<u8>, String)> {
    vec![
        (frame_about(RESULT, 8, 1, 9, &[0, 3, 5]), "RESULT 1.9 Result, after 3 directions: 4 bytes".into()),
        (frame(DATA, 0, &[1, 5, 0, 9, 0, 8, 7]), "DATA 1.9/5 4 bytes from 8".into()),
        (frame(DATA, 7, &[1, 5, 0, 9, 0, 8]), "DATA 1.9/5 0 bytes from 8, the last, has all, asks".into()),
        (
            frame(CREDIT, 0, &[1, 5, 0, 9, 0, 8, 0, 100, 0, 3, 4, 8]),
            "CREDIT 1.9/5 through 8, limit 100, beyond [(12, 16)]".into(),
        ),
        (
            frame(CREDIT, 2, &[1, 5, 0, 9, 0, 8, 0, 8, 0, 3]),
            "CREDIT 1.9/5 through 8, limit 8, beyond [], needs no more".into(),
        ),
        (frame(STOP, 0, &[1, 5, 0, 9, 7]), "STOP 1.9/5, reason 7".into()),
    ]
}

#[test]
fn every_frame_is_a_line() {
    let bind = |words: &[u32]| frame(BIND, 0, &[&[0, 7, 0, 9, 0x0001_0001, 3, 2, 0][..], words].concat());
    let head = [1, 0, 0, 9, 0, EXPORT as u32, 3];
    let call = |flags, more: &[u32]| frame(CALL, flags, &[&head[..], more].concat());
    let asked = "BIND \"\" from client 0000000000000007, nonce 9, schemes 3, procedures from 2";
    let seen = "WELCOME conversation 0000000000000008, nonce 9, scheme 1, export 000000000000004d";
    let stopping = "WELCOME refused: the server drains, nonce 9";
    let (to, called) = ("conversation 0000000000000008", "CALL 1.9 export 000000000000004d procedure 3");
    let range = "bytes 40 to 44 of 100";
    let procedure = [0, 0, 0, 0, 2, 1, 0, 1, 0, 2];
    let cases = [
        (bind(&[0, 0, 0, 0]), asked.to_string()),
        (bind(&[300, 8, 20, 4, 5]), format!("{asked}, handshake 8 to 12 of 300, has 20")),
        (welcome(0, 0, &procedure[..5]), format!("{seen}, 0 of 2 procedures, you are 10.0.0.1:1000")),
        (welcome(0, 0, &procedure), format!("{seen}, 1 of 2 procedures, you are 10.0.0.1:1000")),
        (
            welcome(0, 2, &[4, 0, 1, 4, 5, 2]),
            format!(
                "{seen}, 0 of 2 procedures, you are 10.0.0.1:1000, the ticket has ended: Horizon, age 1.5s, \
                 handshake 0 to 4 of 4, has 1"
            ),
        ),
        (welcome(9, 0, &procedure), "WELCOME refused: the interfaces differ, nonce 9".into()),
        (welcome(16, 1, &procedure), format!("{stopping}, the ticket has ended: Incarnation, age 1.5s")),
        (frame(CHALLENGE, 0, &[0, 8, 0, 3]), format!("CHALLENGE {to}: show your ticket")),
        (frame(STALE, 0, &[0, 8, 0, 3, 4, 0]), format!("STALE {to}: Full")),
        (
            frame(TICKET, 0, &[0, 7, 0, 6, 0, 5, 1, 2, 3, 4, 0]),
            "TICKET client 0000000000000007, incarnation 0000000000000006, issued 5".into(),
        ),
        (call(0, &[5]), "CALL 1.9 export 000000000000004d procedure 3: 4 bytes".into()),
        (call(8, &[]), "CALL 1.9 export 000000000000004d procedure 3, detached: 0 bytes".into()),
        (
            call(1, &[24, 0x0001_0008, 0, 2_000_000, 0x0003_0008, 0, 3_000_000_000, 5]),
            "CALL 1.9 export 000000000000004d procedure 3, deadline in 2ms, patience 3s: 4 bytes".into(),
        ),
        (call(1, &[12, 0x0004_0008, 1, 0]), format!("{called}, may be silent for 4.294967296s: 0 bytes")),
        (
            call(1, &[28, 0x0002_0018, 1, 2, 3, 4, 5, 6]),
            format!("{called}, trace 00000001000000020000000300000004: 0 bytes"),
        ),
        (call(2, &[100, 40, 5]), format!("{called}: {range}")),
        (frame(RESULT, 0, &[1, 5, 0, 9, 0x0100_0000, 5, 6]), "RESULT 1.9/5 Exception: 8 bytes".into()),
        (frame_about(RESULT, 6, 1, 9, &[0, 100, 40, 5]), format!("RESULT 1.9 Result: {range}, asks")),
        (
            frame_about(SELECT, 1, 1, 9, &[4, 100, 0, 3, 8, 12]),
            "SELECT 1.9 through 4, limit 100, beyond [(8, 12)], waited in vain".into(),
        ),
        (frame_about(SELECT, 0, 1, 9, &[4, 100, 0, 3]), "SELECT 1.9 through 4, limit 100, beyond []".into()),
        (frame_about(CANCEL, 0, 1, 9, &[]), "CANCEL 1.9".into()),
        (frame_about(PROBE, 0, 1, 9, &[]), "PROBE 1.9".into()),
        (frame_about(PROBE, 1, 1, 9, &[]), "PROBE 1.9, detached".into()),
        (frame_about(STATE, 0, 1, 9, &[2]), "STATE 1.9 Running".into()),
        (frame(MTU_PROBE, 0, &[1452]), "MTU-PROBE 1452".into()),
        (frame(MTU_ECHO, 0, &[1452]), "MTU-ECHO 1452".into()),
        (frame(POST, 0, &[0, EXPORT as u32, 5, 6]), "POST export 000000000000004d: 8 bytes".into()),
        (frame(ACK, 0, &[0, 9, 1200]), "ACK below 9, datagrams of 1200".into()),
        (frame(USER_PROOF, 0, &[0, 9, 1, 2, 3, 4]), "USER-PROOF by the secret 0000000000000009".into()),
    ];
    let cases: Vec<_> = cases.into_iter().chain(of_exchanges()).chain(of_servers_words()).collect();
    let mut all = vec![frame(PADDING, 0, &[1])];
    for (frame, line) in &cases {
        all.push(frame.clone());
        let datagram = forged(0x11, 12, &[frame.clone(), self::frame(PADDING, 0, &[])]);
        let dump = dump(&datagram).unwrap();
        assert_eq!(dump.frames(), [&line[..]]);
        assert_eq!((dump.conversation(), dump.number()), (0x11, 12));
        let text = format!("to 0000000000000011 number 12 ({} bytes)\n  {line}", datagram.len());
        assert_eq!(dump.to_string(), text);
    }
    all.push(frame(0x7f, 0, &[]));
    all.push(frame(ACK, 0, &[0, 9, 1200]));
    let dump = dump(&forged(0x11, 12, &all)).unwrap();
    let lines: Vec<String> = cases.into_iter().map(|(_, line): (_, String)| line).collect();
    assert_eq!(dump.frames(), lines);
    assert!(dump.to_string().ends_with("\n  malformed from here on"));
}

#[test]
fn dump_says_why_bytes_are_no_datagram() {
    let datagram = forged(0x11, 12, &[]);
    assert_eq!(dump(&datagram).unwrap().to_string(), "to 0000000000000011 number 12 (28 bytes)");
    let why = |datagram: &[u8]| dump(datagram).unwrap_err().to_string();
    assert_eq!(why(&[]), "0 bytes: too short for a header and a tag");
    assert_eq!(why(&datagram[..27]), "27 bytes: too short for a header and a tag");
    let with = |at: usize, byte: u8| {
        let mut other = datagram.clone();
        other[at] = byte;
        why(&other)
    };
    assert_eq!(with(0, 2), "wire version 2, not 1");
    assert_eq!([with(1, 2), with(1, 3)], [2, 3].map(|n| format!("security scheme {n}, which needs keys")));
    assert_eq!(with(27, datagram[27] ^ 1), "no tag of 8 bytes that fits the 20 before it");
    let mut local = datagram.clone();
    local[1] = 1;
    local[20..].copy_from_slice(&28u64.to_be_bytes());
    assert_eq!(dump(&local).unwrap().to_string(), "to 0000000000000011 number 12 (28 bytes, local)");
}

#[test]
fn from_hex_reads_pairs_of_digits_and_names_any_other_character() {
    assert_eq!(from_hex(" 01 fF\n\t90 a\u{a0}b ").unwrap(), [0x01, 0xff, 0x90, 0xab]);
    assert_eq!(from_hex("").unwrap(), []);
    assert_eq!(from_hex("01 0").unwrap_err().to_string(), "an odd number of hexadecimal digits");
    assert_eq!(from_hex("01 0g").unwrap_err().to_string(), "character 5 is 'g', not a hexadecimal digit");
}
