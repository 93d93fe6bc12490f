//! Courier with programs that others wrote: 4.4BSD's compiler and library, in C, and an implementation in
//! Python that was made from the description of the protocol alone. docs/courier-peers.md says what each is.

#![cfg(unix)]

mod counterparts;
mod dialect;
#[cfg(target_os = "linux")]
mod dodo;
mod random;
mod telephones;

use std::process::Command;

use farcall::{Kind, Ran};
use farcall_courier::{Builder, Server, bulk};

use counterparts::{Counterpart, check, servers};
use telephones::bulk_data1::Descriptor;
use telephones::{
    DivideError, Everything, FetchError, FindError, Kind as Sort, Place, Quotient, Reach, ReachBetween,
    RemoveError, Room, StoreError, Sum, Telephones, TelephonesClient, entry, pattern,
};

/// A procedure that Telephones has not.
#[farcall::interface(program = 31415, version = 1)]
trait Unknown {
    #[procedure(99)]
    fn unknown(&self) -> farcall::Result<()>;
}

/// A version that Telephones has not.
#[farcall::interface(program = 31415, version = 2)]
trait Later {
    #[procedure(0)]
    fn nothing(&self) -> farcall::Result<()>;
}

/// A program that nobody has.
#[farcall::interface(program = 999, version = 1)]
trait Absent {
    #[procedure(0)]
    fn nothing(&self) -> farcall::Result<()>;
}

#[test]
fn the_clients_of_others_call_our_server() {
    let server = Server::builder().program::<dyn Telephones>(telephones::here());
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    check(server.addresses()[0].port());
}

#[test]
fn our_client_calls_the_servers_of_others() {
    for server in servers() {
        let version_2 = server.speaks_version_2;
        for builder in [Some(Builder::default()), version_2.then(|| Builder::default().version_2())] {
            let Some(builder) = builder else { continue };
            returns_and_errors(&builder.import::<dyn Telephones>(&server.address).unwrap());
            transfers(&builder.import::<dyn Telephones>(&server.address).unwrap());
            rejections(&builder, &server);
        }
        many_calls(&server.address);
    }
}

fn returns_and_errors(telephones: &TelephonesClient) {
    telephones.nothing().unwrap();
    for name in ["root", "mob", "fax", "p"] {
        assert_eq!(telephones.find(&name.into()).unwrap(), entry(name.as_bytes()), "{name}");
    }
    assert_eq!(telephones.find(&"nobody".into()).unwrap_err().declared(), Some(&FindError::NoSuchEntry));
    let too_long = FindError::NotPossible { limit: 20, why: "the name is too long".into() };
    let long = "a".repeat(26);
    assert_eq!(telephones.find(&long.as_str().into()).unwrap_err().declared(), Some(&too_long));
    let failure = telephones.find(&"undeclared".into()).unwrap_err();
    assert_eq!((kind(&failure), failure.ran()), (Kind::Other, Ran::Maybe), "{failure}");
    assert_eq!(telephones.divide(-17, 5).unwrap(), Quotient { quotient: -3, remainder: -2 });
    let by_zero = DivideError::NotPossible { limit: 0, why: "division by zero".into() };
    assert_eq!(telephones.divide(17, 0).unwrap_err().declared(), Some(&by_zero));
    assert_eq!(telephones.reverse(&[1, 2, 65535]).unwrap().0, [65535, 2, 1]);
    telephones.remove(&"a".into()).unwrap();
    assert_eq!(telephones.remove(&"nobody".into()).unwrap_err().declared(), Some(&RemoveError::NoSuchEntry));
    for reach in [Reach::Never, Reach::Always(true), Reach::Between(ReachBetween { from: 900, to: 1700 })] {
        let value = everything(reach);
        assert_eq!(telephones.echo(&value).unwrap(), value);
    }
}

fn everything(reach: Reach) -> Everything {
    let place = Place::Desk(Room { building: "Bay Hill".into(), door: 12 });
    Everything {
        yes: true,
        small: u16::MAX,
        big: u32::MAX,
        negative: i16::MIN,
        long_negative: i32::MIN,
        word: 6,
        other_word: 7,
        words: 0x1234_5678,
        text: "odd".into(),
        kind: Sort::Pager,
        grid: [[1, 2, 3], [4, 5, -6]],
        names: vec!["ab".into(), "".into()],
        numbers: vec![1, 2, 3],
        nothing: telephones::Empty {},
        entries: vec![telephones::Entry { name: "b".into(), extension: 77, listed: true, place }],
        reach,
    }
}

fn transfers(telephones: &TelephonesClient) {
    let (bytes, sum) = (pattern(5000), Sum { bytes: 5000, sum: 46724 });
    let (stored, sent) =
        bulk::send(std::io::Cursor::new(bytes.clone()), || telephones.store(&Descriptor::Immediate));
    assert_eq!((stored.unwrap(), sent.unwrap()), (sum, 5000));
    let (fetched, data, got) = bulk::receive(Vec::new(), || telephones.fetch(&Descriptor::Immediate, 5000));
    assert_eq!((fetched.unwrap(), data, got.unwrap()), (sum, bytes, 5000));
    assert_eq!(telephones.store(&Descriptor::Null).unwrap(), Sum::default());
    let passive = telephones.store(&Descriptor::Passive(Default::default())).unwrap_err();
    let why = StoreError::NotPossible { limit: 2, why: "null and immediate only".into() };
    assert_eq!(passive.declared(), Some(&why));
    let (fetched, data, _) = bulk::receive(Vec::new(), || telephones.fetch(&Descriptor::Immediate, 100_001));
    let why = FetchError::NotPossible { limit: 100, why: "too many bytes".into() };
    assert_eq!((fetched.unwrap_err().declared(), data.len()), (Some(&why), 0));
    telephones.nothing().unwrap();
}

fn rejections(builder: &Builder, server: &Counterpart) {
    let at = &server.address;
    let unknown = builder.import::<dyn Unknown>(at).unwrap().unknown().expect_err(&server.name);
    let absent = builder.import::<dyn Absent>(at).unwrap().nothing().expect_err(&server.name);
    let later = builder.import::<dyn Later>(at).unwrap().nothing().expect_err(&server.name);
    let kinds = [unknown, absent, later].map(|failure| (kind(&failure), failure.ran()));
    let expected = [Kind::NoSuchProcedure, Kind::NotExported, Kind::Mismatch].map(|kind| (kind, Ran::No));
    assert_eq!(kinds, expected, "{}", server.name);
}

fn kind<E>(failure: &farcall::Error<E>) -> Kind {
    failure.call_failed().expect("no declared error").kind()
}

fn many_calls(address: &str) {
    let telephones = farcall_courier::import::<dyn Telephones>(address).unwrap();
    for _ in 0..10_000 {
        telephones.nothing().unwrap();
    }
}

/// Returns whether a program can be started.
fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
