//! Tests of an authentication flavour that numbers each message that it seals, as RPCSEC_GSS does: each copy
//! of a call has a different number (RFC 2203 section 5.3.3.1).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Asked, Datagrams, Echo, udp};
use farcall::{CallFailed, Kind, Ran};
use farcall_onc::Client;
use farcall_onc::client::auth::{Authenticator, Seal, not_believed};
use farcall_onc::wire::auth::{AuthStat, OpaqueAuth};
use farcall_onc::wire::message::{Accepted, Answer, Rejected};

const FLAVOR: u32 = 0x7777_0001;

/// An authenticator whose credential is a unique number, which also changes each byte of the arguments. The
/// verifier of a reply is the number of the copy that the reply answers. That number also changes each byte
/// of the result.
#[derive(Default)]
struct Numbered {
    /// The last number that was used.
    last: AtomicU64,
    /// Whether each copy of a call is sealed again, with another number.
    numbered: bool,
    /// Whether sealing any message but the first panics.
    breaks: bool,
}

impl Authenticator for Numbered {
    fn is_numbered(&self) -> bool {
        self.numbered
    }

    fn seal(&self, message: &mut Vec<u8>, _: usize, _: bool) -> Result<Seal, CallFailed> {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(!self.breaks || number == 1, "only the first message can be sealed");
        OpaqueAuth::new(FLAVOR, &number.to_be_bytes()).unwrap().write(message);
        OpaqueAuth::NONE.write(message);
        Ok(Seal(number))
    }

    fn protect(&self, message: &mut Vec<u8>, arguments: usize, seal: Seal) -> Result<(), CallFailed> {
        message[arguments..].iter_mut().for_each(|byte| *byte ^= seal.0 as u8);
        Ok(())
    }

    fn open<'a>(
        &self,
        verifier: &OpaqueAuth<'_>,
        result: &'a [u8],
        seal: Seal,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        if verifier.body() != seal.0.to_be_bytes() {
            return Err(not_believed("the reply has another number"));
        }
        Ok(result.iter().map(|byte| byte ^ seal.0 as u8).collect())
    }

    /// Says that another credential may help, so that the client repeats a call that did not run.
    fn rejected(&self, _: AuthStat, _: Seal) -> bool {
        true
    }
}

/// Returns the number of a copy of a call, and the call's arguments.
fn read(asked: &Asked) -> (u64, Vec<u8>) {
    let number = u64::from_be_bytes(asked.credential.1[..].try_into().unwrap());
    (number, asked.arguments.iter().map(|byte| byte ^ number as u8).collect())
}

/// Sends a reply for the copy with this number. The result is the call's arguments.
fn answer(socket: &Datagrams, to: &(Asked, SocketAddr), number: u64) {
    let (asked, from) = to;
    let result: Vec<u8> = read(asked).1.iter().map(|byte| byte ^ number as u8).collect();
    let body = number.to_be_bytes();
    let verifier = OpaqueAuth::new(FLAVOR, &body).unwrap();
    let answer = Answer::Accepted { verifier, outcome: Accepted::Success(&result) };
    socket.0.send_to(&asked.answer(answer), from).unwrap();
}

fn client(address: &str, auth: Numbered) -> Client {
    Client::builder().auth(auth).retransmit(Duration::from_millis(5)).connect(address).unwrap()
}

#[test]
fn each_copy_has_its_own_number_and_a_reply_to_any_copy_is_accepted() {
    // Tests a blocking call, and then a call that is started and waited for later.
    for started in [false, true] {
        let (address, server) = udp(|socket| {
            let all: Vec<_> = (0..4).map(|_| socket.next()).collect();
            // The server answers the second copy after it has received the fourth. The client does not accept
            // a number that no copy has.
            answer(socket, &all[1], read(&all[1].0).0);
            all.into_iter().map(|(asked, _)| (asked.xid, read(&asked))).collect::<Vec<_>>()
        });
        let client = client(&address, Numbered { numbered: true, ..Numbered::default() });
        let echo = client.bind::<dyn Echo>();
        let result = if started { echo.start().echo(b"four").wait() } else { echo.echo(b"four") };
        assert_eq!(result.unwrap(), b"four");
        let copies = server.join().unwrap();
        let numbers: BTreeSet<u64> = copies.iter().map(|(_, (number, _))| *number).collect();
        assert_eq!(numbers.len(), 4, "each copy has its own number: {copies:?}");
        let calls: BTreeSet<_> =
            copies.iter().map(|(xid, (_, arguments))| (*xid, arguments.clone())).collect();
        assert_eq!(calls.len(), 1, "all copies belong to one call: {copies:?}");
    }
}

#[test]
fn a_reply_with_the_number_of_no_copy_is_not_accepted() {
    let (address, _server) = udp(|socket| {
        let all: Vec<_> = (0..2).map(|_| socket.next()).collect();
        answer(socket, &all[1], 1_000_000);
    });
    let client = client(&address, Numbered { numbered: true, ..Numbered::default() });
    let why: CallFailed = client.bind::<dyn Echo>().again(7).unwrap_err().into();
    assert_eq!(why.kind(), Kind::NotPermitted);
    assert!(why.detail().contains("the reply has another number"), "{why}");
}

// The first copy may have run, so the client must not repeat the call under another identifier.
#[test]
fn a_rejection_of_the_second_copy_does_not_repeat_a_call_that_may_have_run() {
    let (address, _server) = udp(|socket| {
        socket.next();
        let (asked, from) = socket.next();
        let rejected = Answer::Rejected(Rejected::AuthError(AuthStat::BADCRED));
        socket.0.send_to(&asked.answer(rejected), from).unwrap();
        loop {
            let next = socket.next();
            if next.0.xid != asked.xid {
                answer(socket, &next, read(&next.0).0);
            }
        }
    });
    let client = client(&address, Numbered { numbered: true, ..Numbered::default() });
    let result = client.bind::<dyn Echo>().echo(b"four");
    let why: CallFailed = result.expect_err("the client must not repeat the call").into();
    assert_eq!((why.kind(), why.ran()), (Kind::NotPermitted, Ran::Maybe));
}

#[test]
fn all_copies_have_the_same_bytes_if_the_flavour_does_not_number_them() {
    let (address, server) = udp(|socket| {
        let all: Vec<_> = (0..3).map(|_| socket.next()).collect();
        answer(socket, &all[2], 1);
        all.into_iter().map(|(asked, _)| asked.credential.1).collect::<BTreeSet<_>>()
    });
    assert_eq!(client(&address, Numbered::default()).bind::<dyn Echo>().again(7).unwrap(), 7);
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_panic_while_a_copy_is_sealed_loses_only_that_copy() {
    let sealed = Arc::new(Numbered { numbered: true, breaks: true, ..Numbered::default() });
    let (address, _server) = udp({
        let sealed = sealed.clone();
        move |socket| {
            let first = socket.next();
            // Waits until the client has tried to seal the second copy, which panics.
            while sealed.last.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            answer(socket, &first, 1);
        }
    });
    let client = Client::builder()
        .auth(Shared(sealed))
        .retransmit(Duration::from_millis(5))
        .connect(&address)
        .unwrap();
    assert_eq!(client.bind::<dyn Echo>().again(7).unwrap(), 7);
}

/// An authenticator that the test keeps a reference to.
struct Shared(Arc<Numbered>);

impl Authenticator for Shared {
    fn is_numbered(&self) -> bool {
        self.0.is_numbered()
    }

    fn seal(&self, message: &mut Vec<u8>, header: usize, again: bool) -> Result<Seal, CallFailed> {
        self.0.seal(message, header, again)
    }

    fn protect(&self, message: &mut Vec<u8>, arguments: usize, seal: Seal) -> Result<(), CallFailed> {
        self.0.protect(message, arguments, seal)
    }

    fn open<'a>(
        &self,
        verifier: &OpaqueAuth<'_>,
        result: &'a [u8],
        seal: Seal,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        self.0.open(verifier, result, seal)
    }
}
