//! Tests of results at the server: which results it accepts, and what it does with their buffers.

mod common;

use common::*;
use farcall_proto::server::Finish;
use farcall_proto::{Kind, Ran};

#[test]
fn a_result_that_is_not_xdr_fails_its_call() {
    for finish in [Finish::Result, Finish::Exception] {
        let (mut pair, _, key) = Pair::executing(b"fail");
        let answers = pair.finish(key, finish, b"seven77");
        pair.hear(&answers);
        assert_eq!(pair.told, [(1, Told::Failed(Kind::BadResult, Ran::Yes))]);
        pair.server.audit();
    }
}

#[test]
fn a_result_that_fits_a_datagram_is_returned_and_a_longer_one_is_not() {
    let mut pair = Pair::acquainted();
    let mut finish = |len: usize| {
        let key = pair.execute(1, b"argument");
        let mut out = [0; 1200];
        let sent = pair.server.finish(pair.now, key, Finish::Result, &mut vec![7; len], &mut out);
        sent.map(|sent| sent.len)
    };
    // Besides the result, a datagram has its header, the heads of the frame and of the result, and the tag.
    let most = 1200 - 20 - 4 - 20 - 8;
    assert_eq!([finish(most), finish(most + 4), finish(most)], [Some(1200), None, Some(1200)]);
}

#[test]
fn the_buffer_of_a_short_result_stays_with_its_activity_and_a_long_one_is_shared() {
    let mut pair = Pair::acquainted();
    let mut call = |token, len, room| {
        pair.start(token, b"args");
        let call = pair.sent();
        pair.receive(&call);
        let (key, _) = pair.asked.pop().unwrap();
        let other = pair.server.buffer(pair.now, 0).capacity();
        let mut payload = Vec::with_capacity(room);
        payload.resize(len, 7);
        let mut out = vec![0; 1200];
        let sent = pair.server.finish(pair.now, key, Finish::Result, &mut payload, &mut out);
        let sent = sent.expect("the result is short");
        pair.hear(&[out[..sent.len].to_vec()]);
        (payload.capacity(), other)
    };
    call(1, 4, 200);
    assert_eq!(call(2, 4, 210), (200, 0), "the server returns the buffer of the former result");
    assert_eq!(call(3, 4, 600), (600, 0), "the server keeps a copy in the former buffer");
    assert_eq!(call(4, 400, 700), (210, 0), "the buffer is no longer than twice the result");
    assert_eq!(call(5, 4, 220), (0, 700), "the server keeps the long buffer for other calls");
    assert_eq!(call(6, 4, 230), (220, 0));
}
