//! Interfaces that the dialect cannot say.

use farcall::{Kind, Ran};
use farcall_courier::{cooper, packets};

#[derive(farcall::Xdr, Debug)]
pub enum NoSuchUser {
    #[xdr(tag = 0)]
    NoSuchUser,
}

#[farcall::interface]
pub trait Erring {
    fn fine(&self) -> farcall::Result<u16>;
    fn lookup(&self) -> farcall::Result<u16, NoSuchUser>;
}

#[farcall::interface]
pub trait Pairs {
    fn pair(&self) -> farcall::Result<(u16, u16)>;
}

#[derive(farcall::Xdr, Debug)]
pub struct LookUpResults {
    pub first: u16,
    pub second: u16,
}

#[farcall::interface]
pub trait Results {
    fn look_up(&self) -> farcall::Result<LookUpResults>;
}

#[farcall::interface]
pub trait OneWay {
    #[oneway]
    fn send(&self) -> farcall::Result<()>;
}

#[farcall::interface]
pub trait Wide {
    fn wide(&self, number: u64) -> farcall::Result<u16>;
}

macro_rules! refused {
    ($interface:ty, $why:expr) => {
        // Nobody listens at this port: the interface is refused before anything is connected.
        let of_stream = cooper::import::<$interface>("tcp://127.0.0.1:1").map(drop).unwrap_err();
        let of_packets = packets::import::<$interface>("udp://127.0.0.1:1").map(drop).unwrap_err();
        for why in [of_stream, of_packets] {
            assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
            assert!(why.to_string().contains($why), "{why}");
        }
    };
}

#[test]
fn what_cannot_be_told_is_refused_when_the_stub_is_made() {
    refused!(dyn Erring, "the calls of Erring.lookup: it declares an error");
    refused!(dyn Pairs, "the calls of Pairs.pair: it has several results");
    refused!(dyn Results, "the calls of Results.look_up: it has several results");
    refused!(dyn OneWay, "the calls of OneWay.send: it is one-way");
    refused!(dyn Wide, "Wide.wide, argument number: a number of 64 bits");
}

struct Nobody;

impl Erring for Nobody {
    fn fine(&self) -> farcall::Result<u16> {
        Ok(1)
    }
    fn lookup(&self) -> farcall::Result<u16, NoSuchUser> {
        Err(NoSuchUser::NoSuchUser.into())
    }
}

#[test]
fn servers_refuse_it_when_they_start() {
    let server = || std::sync::Arc::new(Nobody);
    let at = "127.0.0.1:0".parse().unwrap();
    let of_stream = cooper::Server::builder().program::<dyn Erring>(server()).tcp(at).start().unwrap_err();
    let of_packets = packets::Server::builder().program::<dyn Erring>(server()).udp(at).start().unwrap_err();
    for why in [of_stream, of_packets] {
        assert!(why.to_string().contains("Erring.lookup: it declares an error"), "{why}");
    }
}

#[test]
fn names_and_commands_are_checked() {
    let builder = || cooper::Server::builder().tcp("127.0.0.1:0".parse().unwrap());
    let none: [&str; 0] = [];
    for (server, expected) in [
        (builder().command("A", "bin/true", none), "must be an absolute path"),
        (builder().command("", "/bin/true", none), "a program's name has 1 to 255 bytes"),
        (builder().command("A", "/bin/true", none).command("A", "/bin/false", none), "two programs"),
        (cooper::Server::builder(), "no address"),
    ] {
        let why = server.start().unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    }
}
