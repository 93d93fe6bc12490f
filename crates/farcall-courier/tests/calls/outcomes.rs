//! Returns, errors and rejections, as the caller learns of them.

use std::error::Error as _;

use farcall::{Kind, Ran};
use farcall_courier::client::OtherVersions;
use farcall_courier::wire::message::{Message, Rejection, Versions};

use crate::common::{
    LookupUidError, LookupUserError, PasswordLookup, PasswordLookupClient, Peer, Work, bytes, root, scripted,
    server, work,
};

fn lookup(address: &str) -> PasswordLookupClient {
    farcall_courier::import::<dyn PasswordLookup>(address).unwrap()
}

#[test]
fn a_procedure_returns_or_reports_an_error_with_or_without_arguments() {
    let (_server, address) = server();
    let lookup = lookup(&address);
    assert_eq!(lookup.lookup_user("root"), Ok(root(0)));
    assert_eq!(lookup.lookup_uid(3), Ok(root(3)));
    assert_eq!(lookup.lookup_user("nobody"), Err(LookupUserError::NoSuchUser.into()));
    let other = LookupUserError::OtherError { errorstring: "boom".into() };
    assert_eq!(lookup.lookup_user("oops").unwrap_err().declared(), Some(&other));
    assert_eq!(lookup.lookup_uid(100).unwrap_err().declared(), Some(&LookupUidError::NoSuchUser));
    let work = work(&address);
    assert_eq!(work.nothing(), Ok(()));
    assert_eq!(work.words(vec![7; 2000]).unwrap(), [7; 2000]);
}

#[test]
fn the_server_answers_4_4bsds_calls_word_for_word_as_4_4bsds_server_does() {
    let (_server, address) = server();
    let mut peer = Peer::connect(&address, Versions::THREE);
    let user = "0000 0001 1170 0000 0003 6f64 6400 0005 2f68 6f6d 6500 0007 2f62 696e 2f73 6800";
    for (call, reply) in [
        (
            "0000 1234 0000 02f2 0001 0001 0004 726f 6f74",
            format!("0002 1234 0004 726f 6f74 0001 7800 0000 0000 0000 {user}"),
        ),
        (
            "0000 0007 0000 02f2 0001 0000 0003",
            format!("0002 0007 0004 726f 6f74 0001 7800 0000 0003 0000 {}", user.replacen("0000", "0003", 1)),
        ),
        ("0000 1235 0000 02f2 0001 0001 0006 6e6f 626f 6479", "0003 1235 0000".into()),
        ("0000 1236 0000 02f2 0001 0001 0004 6f6f 7073", "0003 1236 0001 0004 626f 6f6d".into()),
        ("0000 0008 0000 02f2 0001 0063", "0001 0008 0002".into()),
        // 4.4BSD repeats the identifier before, here and with the wrong version of a program.
        ("0000 000a 0000 03e7 0001 0000", "0001 000a 0000".into()),
        ("0000 000b 0000 02f2 0007 0000", "0001 000b 0001 0001 0001".into()),
        ("0000 000c 0000 02f2 0001 0001 0009 726f", "0001 000c 0003".into()),
    ] {
        peer.send(&bytes(call), true);
        assert_eq!(peer.receive().unwrap(), bytes(&reply), "{call}");
    }
}

/// Returns the failure of a call of `next` that is answered by this rejection, and the server's address.
fn failure(rejection: Rejection) -> (farcall::CallFailed, String) {
    let address = scripted(move |_, mut peer| {
        while let Some((id, ..)) = peer.receive_call() {
            peer.message(Message::Reject(id, rejection));
        }
    });
    (work(&address).next(1).unwrap_err().call_failed().unwrap().clone(), address)
}

#[test]
fn each_rejection_has_its_kind_and_says_whether_the_call_ran() {
    let versions = Versions { lowest: 4, highest: 6 };
    let of = "next of Work (program 900, version 3) at";
    for (rejection, kind, ran, why) in [
        (Rejection::NoSuchProgram, Kind::NotExported, Ran::No, "the server does not have the program"),
        (
            Rejection::NoSuchVersion(Some(versions)),
            Kind::Mismatch,
            Ran::No,
            "the server has versions 4 to 6 of the program",
        ),
        (
            Rejection::NoSuchVersion(None),
            Kind::Mismatch,
            Ran::No,
            "the server does not have this version of the program",
        ),
        (
            Rejection::NoSuchProcedure,
            Kind::NoSuchProcedure,
            Ran::No,
            "the server's program does not have the procedure",
        ),
        (Rejection::InvalidArguments, Kind::BadArguments, Ran::No, "the server cannot read the arguments"),
        (
            Rejection::Unspecified(65_535),
            Kind::Other,
            Ran::Maybe,
            "the server rejects the call for an unspecified reason (65535)",
        ),
        (
            Rejection::Unspecified(9),
            Kind::Other,
            Ran::Maybe,
            "the server rejects the call for an unspecified reason (9)",
        ),
    ] {
        let (failed, address) = failure(rejection);
        assert_eq!((failed.kind(), failed.ran()), (kind, ran), "{rejection:?}");
        assert_eq!(failed.detail(), format!("{of} {address}: {why}"));
        let source = failed.source().and_then(|source| source.downcast_ref::<OtherVersions>());
        assert_eq!(source.is_some(), matches!(rejection, Rejection::NoSuchVersion(Some(_))));
    }
}

/// A version of the program of [`Work`] that the server does not have.
#[farcall::interface(program = 900, version = 9)]
pub trait LaterWork {
    #[procedure(1)]
    fn next(&self, number: u16) -> farcall::Result<u16>;
}

/// An interface with a procedure that the server lacks, and one with other arguments.
#[farcall::interface(program = 900, version = 3)]
pub trait OtherWork {
    #[procedure(77)]
    fn missing(&self) -> farcall::Result<u16>;
    #[procedure(1)]
    fn next(&self, number: u32) -> farcall::Result<u16>;
}

/// A program that the server lacks.
#[farcall::interface(program = 901, version = 1)]
pub trait OtherProgram {
    #[procedure(1)]
    fn next(&self, number: u16) -> farcall::Result<u16>;
}

#[test]
fn our_server_rejects_what_it_cannot_execute_and_the_connection_stays() {
    let (server, address) = server();
    let failed = |result: farcall::Result<u16>| {
        let error = result.unwrap_err();
        let why = error.call_failed().unwrap();
        (why.kind(), why.ran())
    };
    let later = farcall_courier::import::<dyn LaterWork>(&address).unwrap();
    assert_eq!(failed(later.next(1)), (Kind::Mismatch, Ran::No));
    assert!(later.next(1).unwrap_err().to_string().ends_with("the server has version 3 of the program"));
    let other = farcall_courier::import::<dyn OtherWork>(&address).unwrap();
    assert_eq!(failed(other.missing()), (Kind::NoSuchProcedure, Ran::No));
    assert_eq!(failed(other.next(1)), (Kind::BadArguments, Ran::No));
    let program = farcall_courier::import::<dyn OtherProgram>(&address).unwrap();
    assert_eq!(failed(program.next(1)), (Kind::NotExported, Ran::No));
    let work = work(&address);
    assert_eq!(failed(work.panic()), (Kind::Other, Ran::Maybe));
    assert_eq!(failed(work.too_long().map(|_| 0)), (Kind::Other, Ran::Maybe));
    assert_eq!(work.next(1), Ok(2));
    assert_eq!(server.connections(), 4, "no connection was ended");
}

#[test]
fn an_error_that_is_not_declared_is_a_failure_with_its_number() {
    let address = scripted(|_, mut peer| {
        while let Some((id, procedure, _)) = peer.receive_call() {
            let error: &[u8] = if procedure == 0 { &[0, 1, 0, 0] } else { &[0, 9] };
            peer.message(Message::Abort(id, error));
        }
    });
    // The server serves one connection after the other.
    let uid = lookup(&address).lookup_uid(1).unwrap_err().call_failed().cloned();
    let user = lookup(&address).lookup_user("x").unwrap_err().call_failed().cloned();
    let next = work(&address).next(1).unwrap_err().call_failed().cloned();
    for (error, number) in [(uid, 1), (user, 9), (next, 9)] {
        let error = error.unwrap();
        assert_eq!((error.kind(), error.ran()), (Kind::BadResult, Ran::Yes));
        let why = format!("it reports error {number}, which it does not declare");
        assert!(error.detail().ends_with(&why), "{error}");
    }
}

#[test]
fn what_courier_cannot_say_is_refused_when_the_stub_or_the_server_is_made() {
    #[farcall::interface(program = 902, version = 1)]
    pub trait Bytes {
        #[procedure(1)]
        fn put(&self, key: u16, data: &[u8]) -> farcall::Result<()>;
    }
    struct Here;
    impl Bytes for Here {
        fn put(&self, _: u16, _: &[u8]) -> farcall::Result<()> {
            Ok(())
        }
    }
    let expected = "Courier cannot carry the calls of Bytes.put, argument data: Courier has no opaque data; \
                    a list of u16 is a SEQUENCE OF UNSPECIFIED";
    let (_server, address) = server();
    let refused = farcall_courier::import::<dyn Bytes>(&address).err().unwrap();
    assert_eq!((refused.kind(), refused.ran(), refused.detail()), (Kind::Local, Ran::No, expected));
    let builder = farcall_courier::Server::builder().program::<dyn Bytes>(std::sync::Arc::new(Here));
    let refused = builder.tcp(crate::common::ANY.parse().unwrap()).start().unwrap_err();
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn arguments_that_courier_cannot_say_fail_before_anything_is_sent() {
    let (_server, address) = server();
    let work = work(&address);
    let why = work.words(vec![0; 65_536]).unwrap_err();
    let failed = why.call_failed().unwrap();
    assert_eq!((failed.kind(), failed.ran()), (Kind::BadArguments, Ran::No));
    let text = "arguments.words: the length is 65536, and 65535 is allowed";
    assert!(failed.detail().ends_with(text), "{failed}");
    assert_eq!(work.words(vec![0; 65_535]).unwrap().len(), 65_535);
    let small = farcall_courier::Builder::default().messages(1000).import::<dyn Work>(&address).unwrap();
    let why = small.words(vec![0; 500]).unwrap_err();
    let failed = why.call_failed().unwrap();
    assert_eq!((failed.kind(), failed.ran()), (Kind::TooLarge, Ran::No));
    assert_eq!(small.words(vec![0; 400]).unwrap().len(), 400);
}
