//! Tests of long bytes in results, which the server sends without a copy.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use farcall::names::Memory;
use farcall::{Bytes, Runtime, Xdr};

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Page {
    before: Vec<u32>,
    several: Vec<Bytes>,
    after: String,
}

#[farcall::interface]
trait Book {
    fn page(&self, len: u32) -> farcall::Result<Page>;
    fn body(&self, from: u32, to: u32) -> farcall::Result<Bytes>;
}

struct Patterned(Bytes);

impl Patterned {
    fn new() -> Patterned {
        Patterned((0..4u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes()).collect())
    }
}

impl Book for Patterned {
    fn page(&self, len: u32) -> farcall::Result<Page> {
        let part = |from: usize| self.0.slice(from..from + len as usize);
        Ok(Page { before: vec![len; 3], several: vec![part(0), part(1)], after: format!("{len} bytes") })
    }

    fn body(&self, from: u32, to: u32) -> farcall::Result<Bytes> {
        Ok(self.0.slice(from as usize..to as usize))
    }
}

/// Owns bytes. Its drop reports how many.
struct Owned(Vec<u8>, Sender<usize>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.len());
    }
}

/// A server that makes new bytes for each call.
struct Made(Sender<usize>);

impl Book for Made {
    fn page(&self, len: u32) -> farcall::Result<Page> {
        Ok(Page { before: Vec::new(), several: vec![self.body(0, len)?], after: String::new() })
    }

    fn body(&self, from: u32, to: u32) -> farcall::Result<Bytes> {
        Ok(Bytes::from_owner(Owned(vec![7; (to - from) as usize], self.0.clone())))
    }
}

fn over_udp() -> Runtime {
    Runtime::builder().registry(Memory::new()).shared_memory(false).build().unwrap()
}

#[test]
fn bytes_of_any_length_arrive_in_their_place() {
    let (server, client) = (over_udp(), over_udp());
    let export = server.export::<dyn Book>("Book", Arc::new(Patterned::new())).unwrap();
    let book = client.import::<dyn Book>(&export.url()).unwrap();
    let expected = Patterned::new();
    for len in [0, 5, 65_535, 65_536, 65_537, 65_538, 65_539, 200_003, 3 << 20] {
        assert_eq!(book.page(len), expected.page(len), "{len}");
        assert_eq!(book.start().page(len).wait(), expected.page(len), "{len}");
        assert_eq!(book.body(3, 3 + len), expected.body(3, 3 + len), "{len}");
    }
}

#[test]
fn the_server_drops_the_bytes_of_a_result_once_the_client_has_received_them() {
    let (server, client) = (over_udp(), over_udp());
    let (dropped, told) = channel();
    let export = server.export::<dyn Book>("Book", Arc::new(Made(dropped))).unwrap();
    let book = client.import::<dyn Book>(&export.url()).unwrap();
    for len in [100, 1 << 20, 300_001] {
        assert_eq!(book.body(0, len).unwrap().len(), len as usize);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(len as usize));
    }
}
