//! Tests the bytes of each header and status, and bytes that are not messages.

use super::*;
use crate::wire::auth::{Credential, Flavor, Sys};

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn a_call_without_credentials_is_ten_words() {
    let call = Call {
        xid: 7,
        program: 100_003,
        version: 3,
        procedure: 1,
        credential: OpaqueAuth::NONE,
        verifier: OpaqueAuth::NONE,
    };
    let mut out = Vec::new();
    call.write(&mut out);
    assert_eq!(out, bytes(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]));
    assert_eq!(out.len(), SHORTEST_CALL);
    out.extend_from_slice(b"args");
    assert_eq!(Call::parse(&out), Ok((call, &b"args"[..])));
    assert_eq!(peek(&out), Ok((7, Direction::Call)));
}

#[test]
fn credentials_of_auth_sys_cross() {
    let sys = Sys::new(9, b"ebbets", 1000, 100, &[4, 24, 27]).unwrap();
    let mut body = Vec::new();
    sys.write(&mut body);
    let credential = OpaqueAuth::new(Flavor::SYS.0, &body).unwrap();
    let call = Call { xid: 1, program: 2, version: 3, procedure: 4, credential, verifier: OpaqueAuth::NONE };
    let mut out = Vec::new();
    call.write(&mut out);
    let (parsed, arguments) = Call::parse(&out).unwrap();
    assert!(arguments.is_empty());
    assert_eq!(parsed.credential.credential(), Ok(Credential::Sys(sys)));
    assert_eq!((sys.machine(), sys.gids()), (&b"ebbets"[..], &[4, 24, 27][..]));
}

#[test]
fn every_cut_of_a_call_is_unreadable() {
    let whole = bytes(&[7, 0, 2, 100_003, 3, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0]);
    assert!(Call::parse(&whole).is_ok());
    for len in 0..whole.len() {
        let cut = Call::parse(&whole[..len]);
        let Err(BadCall::Unreadable(why)) = cut else { panic!("{len} bytes: {cut:?}") };
        assert!(why.offset <= len && why.problem == Problem::Truncated);
    }
}

#[test]
fn what_is_no_call_is_not_answered() {
    let reply = bytes(&[7, 1, 0, 0, 0, 0]);
    let why = Unreadable { offset: 4, problem: Problem::NotACall(1) };
    assert_eq!(Call::parse(&reply), Err(BadCall::Unreadable(why)));
    assert_eq!(peek(&bytes(&[7, 2])).unwrap_err().problem, Problem::NotAMessage(2));
}

#[test]
fn another_version_of_rpc_is_refused_even_if_cut() {
    let why = Rejected::RpcMismatch { low: 2, high: 2 };
    assert_eq!(Call::parse(&bytes(&[7, 0, 3])), Err(BadCall::Refused { xid: 7, why }));
}

#[test]
fn bodies_over_400_bytes_are_refused_whether_they_follow_or_not() {
    let refused = |stat| Err(BadCall::Refused { xid: 7, why: Rejected::AuthError(stat) });
    let mut credential = bytes(&[7, 0, 2, 1, 1, 1, 1, 404]);
    assert_eq!(Call::parse(&credential), refused(AuthStat::BADCRED));
    credential.resize(credential.len() + 404 + 8, 0);
    assert_eq!(Call::parse(&credential), refused(AuthStat::BADCRED));
    let verifier = bytes(&[7, 0, 2, 1, 1, 1, 0, 0, 0, u32::MAX]);
    assert_eq!(Call::parse(&verifier), refused(AuthStat::BADVERF));
    let mut longest = bytes(&[7, 0, 2, 1, 1, 1, 9, 400]);
    longest.resize(longest.len() + 400 + 8, 0);
    assert_eq!(Call::parse(&longest).unwrap().0.credential.body().len(), 400);
}

#[test]
fn auth_sys_is_exactly_its_fields() {
    let bad = Err(AuthStat::BADCRED);
    let fields = |name: u32, gids: u32| {
        let mut body = bytes(&[0, name]);
        body.resize(body.len() + (name as usize).next_multiple_of(4), b'x');
        body.extend(bytes(&[1, 2, gids]));
        body.resize(body.len() + 4 * gids as usize, 0);
        body
    };
    assert_eq!(Sys::parse(&fields(255, 16)).unwrap().gids().len(), 16);
    assert_eq!(fields(255, 16).len(), Sys::LONGEST);
    assert_eq!(Sys::parse(&fields(256, 0)), bad);
    assert_eq!(Sys::parse(&fields(3, 17)), bad);
    let whole = fields(3, 2);
    (0..whole.len()).for_each(|len| assert_eq!(Sys::parse(&whole[..len]), bad));
    assert_eq!(Sys::parse(&[&whole[..], &[0; 4]].concat()), bad);
    // These have wrong lengths, first of the name and then of the list.
    assert_eq!(Sys::parse(&bytes(&[0, u32::MAX, 0, 0, 0])), bad);
    assert_eq!(Sys::parse(&bytes(&[0, 0, 1, 2, u32::MAX])), bad);
    assert_eq!(Sys::parse(&bytes(&[0, 0, 1, 2, 0x4000_0000])), bad);
    assert!(Sys::new(0, &[0; 256], 0, 0, &[]).is_none() && Sys::new(0, &[], 0, 0, &[0; 17]).is_none());
}

#[test]
fn every_status_is_written_and_understood() {
    let accepted = |tail: &[u32]| bytes(&[&[7, 1, 0, 0, 0], tail].concat());
    let denied = |tail: &[u32]| bytes(&[&[7, 1, 1], tail].concat());
    let result = [1, 2, 3, 4];
    let ok = |outcome| Reply::accepted(7, outcome);
    let no = |why| Reply::rejected(7, why);
    let all = [
        (ok(Accepted::Success(&result)), accepted(&[0, 0x0102_0304])),
        (ok(Accepted::ProgUnavail), accepted(&[1])),
        (ok(Accepted::ProgMismatch { low: 2, high: 4 }), accepted(&[2, 2, 4])),
        (ok(Accepted::ProcUnavail), accepted(&[3])),
        (ok(Accepted::GarbageArgs), accepted(&[4])),
        (ok(Accepted::SystemErr), accepted(&[5])),
        (no(Rejected::RpcMismatch { low: 2, high: 2 }), denied(&[0, 2, 2])),
        (no(Rejected::AuthError(AuthStat::TOOWEAK)), denied(&[1, 5])),
        (no(Rejected::AuthError(AuthStat(99))), denied(&[1, 99])),
    ];
    for (reply, bytes) in all {
        let mut out = Vec::new();
        reply.write(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(Reply::parse(&bytes), Ok(reply));
        let header = if let Answer::Accepted { outcome: Accepted::Success(_), .. } = reply.answer {
            24
        } else {
            out.len()
        };
        (0..header)
            .for_each(|len| assert_eq!(Reply::parse(&bytes[..len]).unwrap_err().problem, Problem::Truncated));
    }
}

#[test]
fn an_unknown_status_is_named_with_its_byte() {
    let error = |words: &[u32]| Reply::parse(&bytes(words)).unwrap_err().to_string();
    assert_eq!(error(&[7, 1, 2]), "at byte 8: there is no status 2");
    assert_eq!(error(&[7, 1, 0, 0, 0, 6]), "at byte 20: there is no status 6");
    assert_eq!(error(&[7, 1, 1, 2]), "at byte 12: there is no status 2");
    assert_eq!(error(&[7, 0]), "at byte 4: 0 where a reply has 1");
    assert_eq!(
        error(&[7, 1, 0, 0, 404]),
        "at byte 16: a credential of 404 bytes, where at most 400 are allowed"
    );
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    // Parses pseudo-random short messages. Whatever they contain, nothing may panic.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100_000 {
        let mut message = Vec::new();
        for _ in 0..state % 24 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = if state >> 63 == 0 { (state >> 33) as u32 % 8 } else { (state >> 32) as u32 };
            message.extend_from_slice(&word.to_be_bytes());
        }
        state = state.rotate_left(7).wrapping_add(1);
        if let Ok((call, _)) = Call::parse(&message) {
            let _ = call.credential.credential();
        }
        let _ = Reply::parse(&message);
    }
}
