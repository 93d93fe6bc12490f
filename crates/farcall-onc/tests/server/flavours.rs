//! Tests of flavours of authentication that the user adds, of their panics, and of AUTH_SHORT.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use farcall::CallFailed;
use farcall_onc::client::auth::{Authenticator, Seal as Sealed};
use farcall_onc::server::{Admission, Flavour, Seal, Server};
use farcall_onc::wire::auth::{AuthStat, Flavor, OpaqueAuth, Sys};
use farcall_onc::wire::message::{Accepted, Answer, Call, Rejected, Reply};
use farcall_onc::{AuthSys, Client};

use crate::calc::*;

/// Transforms messages as RPCSEC_GSS does, but without cryptography. The credential is a caller and a number
/// that differs each time, also when a call is sent again. The reply's verifier and its result contain the
/// number.
struct Numbered;

const NUMBERED: Flavor = Flavor(300_001);

impl Flavour for Numbered {
    fn admit<'a>(&self, call: &Call<'a>, header: &'a [u8], arguments: &'a [u8]) -> Admission<'a> {
        let Some((who, number)) = call.credential.body().split_at_checked(4) else {
            return Admission::Refuse(AuthStat::BADCRED);
        };
        assert_eq!(header.len(), 40);
        let verifier = (NUMBERED, number.to_vec());
        match who {
            b"drop" => Admission::Drop,
            b"self" => Admission::Answer { verifier, result: b"mine".to_vec() },
            b"boom" => panic!("as it should"),
            b"long" => Admission::Serve {
                arguments: arguments.into(),
                verifier,
                seal: None,
                caller: Some((Flavor::SYS, [0; 401].into())),
            },
            _ => Admission::Serve {
                // The arguments are reversed.
                arguments: Cow::Owned(arguments.iter().rev().copied().collect()),
                verifier,
                seal: Some(Box::new(Append(number.to_vec(), who == b"bang"))),
                caller: Some((NUMBERED, who.into())),
            },
        }
    }
}

struct Append(Vec<u8>, bool);

impl Seal for Append {
    fn seal(self: Box<Self>, reply: &mut Vec<u8>, at: usize) {
        assert!(!self.1, "as it should");
        assert!(at <= reply.len());
        reply.extend_from_slice(&self.0);
    }
}

fn numbered() -> (Server, Arc<Calculator>) {
    serve_with(|builder| builder.flavour(NUMBERED, Arc::new(Numbered)))
}

fn message(who: &[u8; 4], number: u32, procedure: u32, arguments: &[u32]) -> Vec<u8> {
    let body = [&who[..], &number.to_be_bytes()].concat();
    let arguments: Vec<u8> = words(arguments).into_iter().rev().collect();
    call_as(1, procedure, OpaqueAuth::new(NUMBERED.0, &body).unwrap(), &arguments)
}

/// Returns the verifier's number, and the reply's text.
fn said(reply: &[u8]) -> (u32, Accepted<'_>) {
    let Answer::Accepted { verifier, outcome } = Reply::parse(reply).unwrap().answer else {
        panic!("it is refused")
    };
    assert_eq!(verifier.flavor(), NUMBERED);
    (u32::from_be_bytes(verifier.body().try_into().unwrap()), outcome)
}

#[test]
fn a_flavour_reads_arguments_and_seals_results() {
    let (server, calculator) = numbered();
    let (udp, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server));
    for number in [7, 8] {
        let add = message(b"nick", number, 1, &[40, 2]);
        let sealed = words(&[42, number]);
        assert_eq!(said(&udp.ask(&add)), (number, Accepted::Success(&sealed)));
        assert_eq!(said(&tcp.ask(&add)), (number, Accepted::Success(&sealed)));
    }
    // The flavour transforms each reply to a call that it admitted.
    assert_eq!(said(&udp.ask(&message(b"nick", 9, 0, &[]))), (9, Accepted::Success(&words(&[9]))));
    assert_eq!(said(&udp.ask(&message(b"nick", 9, 99, &[]))), (9, Accepted::ProcUnavail));
    assert_eq!(said(&udp.ask(&message(b"nick", 9, 1, &[1]))), (9, Accepted::GarbageArgs));
    assert_eq!(said(&udp.ask(&message(b"self", 9, 99, &[]))), (9, Accepted::Success(b"mine")));
    udp.is_ignored(&message(b"drop", 9, 1, &[1, 1]));
    udp.has_heard_all(server, calculator);
}

#[test]
fn what_is_sent_again_is_known_whatever_its_number_and_its_answer_is_sealed_anew() {
    let (server, calculator) = numbered();
    let (udp, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server));
    for number in 1..4 {
        assert_eq!(
            said(&udp.ask(&message(b"nick", number, 3, &[]))),
            (number, Accepted::Success(&words(&[0, 1, number])))
        );
        assert_eq!(said(&udp.ask(&message(b"nick", number, 9, &[]))), (number, Accepted::SystemErr));
        // A long part is sent without a copy if no flavour seals it.
        let reply = tcp.ask(&message(b"nick", number, 12, &[30_000]));
        let Accepted::Success(result) = said(&reply).1 else { panic!("it failed") };
        assert_eq!((result.len(), &result[30_004..]), (30_008, &number.to_be_bytes()[..]));
    }
    assert_eq!(calculator.counted.load(Ordering::SeqCst), 1);
    // An equal call of another caller is another call.
    assert_eq!(said(&udp.ask(&message(b"dick", 1, 3, &[]))), (1, Accepted::Success(&words(&[0, 2, 1]))));
}

#[test]
fn a_panic_of_a_flavour_a_seal_or_of_who_allows_harms_one_call() {
    let (server, _) = serve_with(|builder| {
        let allow = |caller: &farcall_onc::server::Caller| match caller.procedure() {
            2 => panic!("as it should"),
            _ => Ok(()),
        };
        builder.flavour(NUMBERED, Arc::new(Numbered)).allow(allow).workers(1)
    });
    let (udp, mut tcp) = (Udp::to(server.udp().unwrap()), tcp(&server));
    let failed = Rejected::AuthError(AuthStat::FAILED);
    for _ in 0..8 {
        for refused in [message(b"boom", 1, 1, &[1, 1]), call(1, 2, &[0]), message(b"long", 1, 1, &[1, 1])] {
            assert_eq!([rejected(&udp.ask(&refused)), rejected(&tcp.ask(&refused))], [failed; 2]);
        }
        let unsealed = message(b"bang", 1, 3, &[]);
        assert_eq!(said(&udp.ask(&unsealed)), (1, Accepted::SystemErr));
        assert_eq!(said(&tcp.ask(&unsealed)), (1, Accepted::SystemErr));
        assert_eq!(success(&udp.ask(&call(2, 1, &[2, 3]))), (2, words(&[5])));
        assert_eq!(success(&tcp.ask(&call(2, 1, &[2, 3]))), (2, words(&[5])));
    }
}

fn sys(uid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    Sys::new(1, b"ebbets", uid, 100, &[4]).unwrap().write(&mut body);
    body
}

/// Returns the AUTH_SHORT in a reply's verifier, and the reply's result.
fn short(reply: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match Reply::parse(reply).unwrap().answer {
        Answer::Accepted { verifier, outcome: Accepted::Success(result) }
            if verifier.flavor() == Flavor::SHORT =>
        {
            (verifier.body().to_vec(), result.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_auth_short_stands_for_its_auth_sys_while_the_table_has_room() {
    let (server, _) = serve_with(|builder| builder.short_credentials(2));
    let udp = Udp::to(server.udp().unwrap());
    let as_sys = |uid| udp.ask(&call_as(1, 8, OpaqueAuth::new(Flavor::SYS.0, &sys(uid)).unwrap(), &[]));
    let as_short =
        |short: &[u8]| udp.ask(&call_as(2, 8, OpaqueAuth::new(Flavor::SHORT.0, short).unwrap(), &[]));
    let (first, who) = short(&as_sys(1000));
    assert_eq!(short(&as_sys(1000)).0, first);
    // The procedure sees the whole credential, not the AUTH_SHORT.
    assert_eq!(success(&as_short(&first)).1, who);
    let (second, _) = short(&as_sys(1001));
    assert_ne!(success(&as_short(&second)).1, who);
    let _ = as_sys(1002);
    let rejected_cred = Rejected::AuthError(AuthStat::REJECTEDCRED);
    assert_eq!(rejected(&as_short(&first)), rejected_cred);
    assert_ne!(success(&as_short(&second)).1, who);
    for wrong in [&first[..8], &[0; 16], &[]] {
        assert_eq!(rejected(&as_short(wrong)), rejected_cred);
    }
    // A call without a credential gets no AUTH_SHORT. A server that is not configured to give any gives none.
    assert_eq!(success(&udp.ask(&call(1, 8, &[]))).1[4..], b"Udp None"[..]);
    let (plain, _) = serve();
    let reply = Udp::to(plain.udp().unwrap()).ask(&call_as(1, 0, OpaqueAuth::new(1, &sys(7)).unwrap(), &[]));
    let Answer::Accepted { verifier, .. } = Reply::parse(&reply).unwrap().answer else {
        panic!("it is refused")
    };
    assert_eq!(verifier, OpaqueAuth::NONE);
}

#[test]
fn a_call_sent_again_is_known_by_what_its_auth_short_stands_for() {
    let (server, _) = serve_with(|builder| builder.short_credentials(9));
    let udp = Udp::to(server.udp().unwrap());
    let body = sys(1000);
    let (given, count) = short(&udp.ask(&call_as(1, 3, OpaqueAuth::new(Flavor::SYS.0, &body).unwrap(), &[])));
    let again = udp.ask(&call_as(1, 3, OpaqueAuth::new(Flavor::SHORT.0, &given).unwrap(), &[]));
    assert_eq!((success(&again).1, count), (words(&[0, 1]), words(&[0, 1])));
}

/// An authenticator for AUTH_SYS that counts how often an AUTH_SHORT was sent and rejected.
struct Watched {
    sys: AuthSys,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU32,
    rejected: AtomicU32,
}

impl Authenticator for Watched {
    fn seal(&self, message: &mut Vec<u8>, header: usize, again: bool) -> Result<Sealed, CallFailed> {
        let at = message.len();
        let seal = self.sys.seal(message, header, again)?;
        let is_short = message[at..].starts_with(&Flavor::SHORT.0.to_be_bytes());
        self.counts.sent.fetch_add(is_short.into(), Ordering::SeqCst);
        Ok(seal)
    }

    fn open<'a>(
        &self,
        v: &OpaqueAuth<'_>,
        result: &'a [u8],
        seal: Sealed,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        self.sys.open(v, result, seal)
    }

    fn rejected(&self, why: AuthStat, seal: Sealed) -> bool {
        assert_eq!(why, AuthStat::REJECTEDCRED);
        self.counts.rejected.fetch_add(1, Ordering::SeqCst);
        self.sys.rejected(why, seal)
    }
}

#[test]
fn a_client_goes_back_to_its_auth_sys_when_the_server_is_another() {
    let calculator = Arc::new(Calculator::default());
    let start = |at: &str| {
        let builder = Server::builder().program::<dyn Calc>(calculator.clone()).address(at.parse().unwrap());
        builder.short_credentials(16).start().unwrap()
    };
    // An address that no other test's ports are of: one of theirs could be the one that is left for a moment.
    let mut server = Some(start("127.0.7.1:0"));
    let at = server.as_ref().unwrap().udp().unwrap().to_string();
    for way in ["udp", "tcp"] {
        let counts = Arc::<Counts>::default();
        let watched =
            Watched { sys: AuthSys::new(b"ebbets", 1000, 100, &[4]).unwrap(), counts: counts.clone() };
        let client = Client::builder().auth(watched);
        let connect = || client.connect(&format!("{way}://{at}")).unwrap().bind::<dyn Calc>();
        let calc = connect();
        let counts = || (counts.sent.load(Ordering::SeqCst), counts.rejected.load(Ordering::SeqCst));
        let who = calc.who().unwrap();
        assert!(who.contains("uid: 1000"), "{who}");
        assert_eq!(counts(), (0, 0));
        assert_eq!(calc.who().unwrap(), who);
        assert_eq!(calc.add(2, 3).unwrap(), 5);
        assert_eq!(counts(), (2, 0));
        // The server starts anew, and has forgotten its AUTH_SHORTs.
        drop(server.take());
        server = Some(start(&at));
        let calc = connect();
        assert_eq!(calc.add(2, 3).unwrap(), 5);
        assert_eq!(calc.who().unwrap(), who);
        assert_eq!(counts(), (4, 1));
    }
}
