//! Tests of an interface with ONC RPC program numbers, through an in-process stub: its null procedure, and
//! the declared maxima of its arguments.

use std::sync::Arc;

use farcall::stub::{Interface, Program, local};
use farcall::xdr::schema::Type;
use farcall::xdr::{ByteString, Chain};

#[farcall::interface(async, program = 0x2000_0001, version = 3)]
trait Names {
    #[procedure(0)]
    #[idempotent]
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
    fn twice(
        &self,
        #[xdr(max = 4)] text: &ByteString,
        #[xdr(max = 2)] data: &[u8],
    ) -> farcall::Result<Chain<u32>>;
}

struct Server;

impl Names for Server {
    fn twice(&self, text: &ByteString, data: &[u8]) -> farcall::Result<Chain<u32>> {
        Ok(vec![text.len() as u32, data.len() as u32].into())
    }
}

struct AsyncServer;

impl NamesAsync for AsyncServer {
    async fn twice(&self, text: &ByteString, _: &[u8]) -> farcall::Result<Chain<u32>> {
        Ok(vec![text.len() as u32].into())
    }
}

#[test]
fn a_program_has_its_numbers_and_a_null_procedure() {
    assert_eq!((<dyn Names>::PROGRAM, <dyn Names>::VERSION), (0x2000_0001, 3));
    assert_eq!(<dyn Names as Interface>::PROCEDURES[0].number, 0);
    assert_eq!(<dyn Names as Interface>::PROCEDURES[1].number, 1);
    let names = local::<dyn Names>(Arc::new(Server));
    names.null().unwrap();
    assert_eq!(*names.twice(&"four".into(), &[1, 2]).unwrap(), [4, 2]);
    // The wrapper of an async server needs to compile only.
    NamesAsyncServer::new(AsyncServer);
}

#[test]
fn declared_maxima_of_arguments_are_enforced_and_described() {
    let names = local::<dyn Names>(Arc::new(Server));
    let why = names.twice(&"fives".into(), &[]).unwrap_err();
    assert!(why.to_string().contains("twice.text: length 5 is over the maximum of 4"), "{why}");
    let twice = <dyn Names>::interface().by_number(1).unwrap();
    assert_eq!(twice.arguments[0].ty, Type::String { max: 4 });
    assert_eq!(twice.arguments[1].ty, Type::Bytes { max: 2 });
    assert_eq!(<dyn Names>::interface().signature(twice), "twice(text: string<4>, data: opaque<2>) -> u32*");
}
