//! Servers that send what is no reply: the call fails truthfully, and the next one is made on a new
//! connection.

use farcall::{Error, Kind, Ran};
use farcall_courier::wire::message::Message;

use crate::common::{Peer, Work, bytes, raw, scripted, work};

/// Returns how a call of `next` fails when the server's first connection does this. The second connection
/// serves well.
fn failed(mut script: impl FnMut(&mut Peer, u16) + Send + 'static) -> (Kind, Ran, String) {
    let address = scripted(move |number, mut peer| {
        if number == 0 {
            let (id, ..) = peer.receive_call().unwrap();
            return script(&mut peer, id);
        }
        while peer.answer_next().is_some() {}
    });
    let work = work(&address);
    let result = work.next(1);
    let Err(Error::CallFailed(why)) = result else { panic!("{result:?}") };
    assert_eq!(work.next(2), Ok(3), "after {why}");
    (why.kind(), why.ran(), why.detail().rsplit_once("tcp://").unwrap().1.split_once(": ").unwrap().1.into())
}

#[test]
fn half_a_reply_leaves_open_whether_the_call_ran() {
    // Half of a packet; a whole packet that does not end the message; nothing.
    let (kind, ran, _) = failed(|peer, _| peer.raw(&[0, 18, 0x10, 0, 0]));
    assert_eq!((kind, ran), (Kind::Unreachable, Ran::Maybe));
    let half = failed(|peer, _| peer.send(&[0, 2, 1], false));
    assert_eq!(half, (Kind::Unreachable, Ran::Maybe, "the server ended the connection".into()));
}

#[test]
fn bytes_that_are_no_packets_are_refused() {
    let (kind, ran, why) = failed(|peer, _| peer.raw(&[0, 3, 1, 2, 3]));
    assert_eq!((kind, ran), (Kind::BadResult, Ran::Maybe));
    assert_eq!(why, "the server sent a packet of 3 bytes: it has 12 to 546");
    let (_, _, why) = failed(|peer, _| peer.raw(&[0, 12, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(why, "the server sent no datastream has the number 9");
}

#[test]
fn messages_that_are_no_reply_are_refused() {
    for (words, why) in [
        ("0009 0100", "9 is no kind of message: they are 0 to 3"),
        ("0002", "the message ends within its header"),
        ("0003 0100", "the message ends within its header"),
        ("0000 0100 0000 0384 0003 0001", "the server sent a call where a reply was expected"),
        ("0002 0777 0008", "the reply is to call 1911, and call 256 was made"),
    ] {
        let bytes = bytes(words);
        let failed = failed(move |peer, _| peer.send(&bytes, true));
        assert_eq!(failed, (Kind::BadResult, Ran::Maybe, why.into()), "{words}");
    }
    let bulk = failed(|peer, _| peer.send_bulk(&[1, 2], true));
    assert_eq!(
        bulk,
        (Kind::BadResult, Ran::Maybe, "the server sent bulk data, and the procedure has none".into())
    );
}

#[test]
fn results_that_are_not_the_procedures_are_refused_and_the_connection_stays() {
    let address = scripted(|number, mut peer| {
        assert_eq!(number, 0, "there is one connection");
        for result in [&[][..], &[0], &[0, 1, 2], &[0, 1, 0, 2]] {
            let (id, ..) = peer.receive_call().unwrap();
            peer.message(Message::Return(id, result));
        }
        while peer.answer_next().is_some() {}
    });
    let work = work(&address);
    for why in [
        "result: the message ends here: 2 bytes are needed, 0 are left",
        "result: the message ends here: 2 bytes are needed, 1 are left",
        "result: 1 bytes follow the value",
        "result: 2 bytes follow the value",
    ] {
        let Err(Error::CallFailed(failed)) = work.next(1) else { panic!("it was accepted") };
        assert_eq!((failed.kind(), failed.ran()), (Kind::BadResult, Ran::Yes));
        assert!(failed.detail().ends_with(why), "{failed}");
    }
    assert_eq!(work.next(1), Ok(2));
}

#[test]
fn replies_of_peers_that_number_them_wrongly_are_understood() {
    let address = scripted(|_, mut peer| {
        for reply in ["0002 0000 0008", "0001 0100 0000", "0102 0001 0002", "0002 0103 0009"] {
            peer.receive_call().unwrap();
            peer.send(&bytes(reply), true);
        }
        let _ = peer.receive_call();
    });
    let work = work(&address);
    let kind = |result: farcall::Result<u16>| result.unwrap_err().call_failed().unwrap().kind();
    assert_eq!(work.next(7), Ok(8), "the identifier 0");
    assert_eq!(kind(work.next(7)), Kind::NotExported, "the identifier before, in a rejection");
    assert_eq!(kind(work.next(7)), Kind::NoSuchProcedure, "kind and identifier exchanged");
    assert_eq!(work.next(8), Ok(9));
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let address = raw(|_, mut peer| {
        peer.send(&bytes("0003 0003"), false);
        while let Some((id, ..)) = peer.receive_call() {
            peer.message(Message::Return(id, &[0; 2000]));
        }
    });
    let small = farcall_courier::Builder::default().messages(1000).import::<dyn Work>(&address).unwrap();
    let Err(Error::CallFailed(why)) = small.next(1) else { panic!("it was accepted") };
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe));
    assert!(why.detail().ends_with("the server sent a message of more than 1000 bytes"), "{why}");
}
