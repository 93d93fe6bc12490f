//! Replies, also of peers that number them wrongly.

use farcall_courier::wire::message::{Courier, Malformed, Message, Rejection};
use farcall_courier::wire::reply::{BadReply, Reply};

use crate::bytes;

fn parse(words: &str) -> Result<Rejection, BadReply> {
    let bytes = bytes(words);
    let reply = Reply::parse(&bytes, Courier::Three, 0x20a, Some(0x209))?;
    let Reply::Reject(rejection) = reply else { panic!("{reply:?} is no rejection") };
    Ok(rejection)
}

#[test]
fn wrong_identifiers_of_known_peers_are_understood() {
    assert_eq!(parse("0001 020a 0000"), Ok(Rejection::NoSuchProgram));
    assert_eq!(parse("0001 0000 0003"), Ok(Rejection::InvalidArguments), "some send 0");
    assert_eq!(parse("0001 0209 0000"), Ok(Rejection::NoSuchProgram), "4.4BSD repeats the former");
    assert_eq!(parse("020a 0001 0002"), Ok(Rejection::NoSuchProcedure), "dodo exchanges two words");
    let result = bytes("0002 0000 0007");
    assert_eq!(Reply::parse(&result, Courier::Three, 0x20a, None), Ok(Reply::Return(&[0, 7])));
}

#[test]
fn other_identifiers_are_refused() {
    let other = |found| Err(BadReply::OtherCall { expected: 0x20a, found });
    assert_eq!(parse("0001 0208 0000"), other(0x208));
    assert_eq!(parse("0002 0209 0000"), other(0x209), "only rejections repeat the former");
    assert_eq!(parse("0003 0209 0000"), other(0x209));
    let first = bytes("0001 0209 0000");
    assert!(Reply::parse(&first, Courier::Three, 0x20a, None).is_err(), "there was no call before");
}

#[test]
fn messages_that_are_no_replies_are_refused() {
    assert_eq!(parse("0000 020a 0000 02f2 0001 0000"), Err(BadReply::Call));
    let malformed = |why| Err(BadReply::Malformed(why));
    assert_eq!(parse("0004 020a 0000"), malformed(Malformed::UnknownKind(4)));
    let truncated = Malformed::Truncated { call: None };
    for words in ["", "0001", "0002", "0001 020a", "0003 020a", "020a 0001"] {
        assert!(parse(words).is_err(), "{words}");
    }
    assert_eq!(parse("0003 020a"), malformed(truncated));
}

#[test]
fn every_truncation_of_a_message_is_an_error_or_a_shorter_message() {
    let call = bytes("0000 1234 0000 02f2 0001 0001 0004 726f 6f74");
    for end in 0..call.len() {
        let parsed = Message::parse(&call[..end], Courier::Three);
        assert_eq!(parsed.is_ok(), end >= 12, "{end} bytes");
        if (4..12).contains(&end) {
            assert_eq!(parsed, Err(Malformed::Truncated { call: Some(0x1234) }));
        }
    }
}
