//! Cooper's dialect, with the implementation in Python. No binary of the time could be built.

use std::sync::Arc;

use farcall::xdr::{Bounded, ByteString};
use farcall_courier::cooper;

use crate::counterparts::{check_cooper, cooper_server};
use crate::telephones::{Entry, Numbers, Quotient, entry};

/// What the dialect can say of Telephones: no errors.
#[farcall::interface(name = "Telephones", program = 31415, version = 1)]
trait Plain {
    #[procedure(0)]
    fn nothing(&self) -> farcall::Result<()>;
    #[procedure(1)]
    fn find(&self, #[xdr(max = 65535)] name: &ByteString) -> farcall::Result<Entry>;
    #[procedure(2)]
    fn divide(&self, dividend: i32, divisor: i32) -> farcall::Result<Quotient>;
    #[procedure(4)]
    fn reverse(&self, #[xdr(max = 65535)] numbers: &[u16]) -> farcall::Result<Bounded<Numbers, 65535>>;
    #[procedure(5)]
    fn remove(&self, #[xdr(max = 65535)] name: &ByteString) -> farcall::Result<()>;
}

struct Here;

impl Plain for Here {
    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn find(&self, name: &ByteString) -> farcall::Result<Entry> {
        Ok(entry(name))
    }

    fn divide(&self, dividend: i32, divisor: i32) -> farcall::Result<Quotient> {
        Ok(Quotient { quotient: dividend.wrapping_div(divisor), remainder: dividend.wrapping_rem(divisor) })
    }

    fn reverse(&self, numbers: &[u16]) -> farcall::Result<Bounded<Numbers, 65535>> {
        Ok(numbers.iter().rev().copied().collect::<Vec<_>>().into())
    }

    fn remove(&self, _: &ByteString) -> farcall::Result<()> {
        Ok(())
    }
}

#[test]
fn the_client_in_python_calls_our_server_in_coopers_dialect() {
    let server = cooper::Server::builder().program_as::<dyn Plain>("Telephones", Arc::new(Here));
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    check_cooper(server.addresses()[0].port());
}

#[test]
fn our_client_calls_the_server_in_python_in_coopers_dialect() {
    let Some(server) = cooper_server() else { return };
    let telephones = cooper::Builder::default().program("Telephones").import::<dyn Plain>(&server.address);
    let telephones = telephones.unwrap();
    telephones.nothing().unwrap();
    assert_eq!(telephones.find(&"root".into()).unwrap(), entry(b"root"));
    telephones.remove(&"a".into()).unwrap();
    assert_eq!(telephones.divide(-17, 5).unwrap(), Quotient { quotient: -3, remainder: -2 });
    assert_eq!(telephones.reverse(&[1, 2, 65535]).unwrap().0, [65535, 2, 1]);
    let other = cooper::Builder::default().program("Nobody").import::<dyn Plain>(&server.address);
    let refused =
        other.and_then(|stub| stub.find(&"root".into()).map_err(|why| why.call_failed().unwrap().clone()));
    assert!(refused.is_err(), "{refused:?}");
}
