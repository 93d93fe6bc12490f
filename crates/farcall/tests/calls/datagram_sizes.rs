//! Many started calls share datagrams, however long their arguments and results are.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::builder;
use farcall::{Pending, Runtime};

#[farcall::interface]
trait Echo {
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    fn fetch(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn fetch(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        Ok(vec![7; bytes as usize])
    }
}

/// Makes 500 started calls, with 64 of them outstanding. Returns the size of the conversation's datagrams
/// afterwards.
fn datagram_after(start: impl Fn(&EchoStart) -> Pending<Vec<u8>>) -> usize {
    let runtime: Runtime = builder().shared_memory(false).build().unwrap();
    let _export = runtime.export::<dyn Echo>("Echo/sizes", Arc::new(Server)).unwrap();
    let echo = runtime.import::<dyn Echo>("Echo/sizes").unwrap();
    let mut outstanding = VecDeque::new();
    for _ in 0..500 {
        if outstanding.len() == 64 {
            outstanding.pop_front().map(Pending::wait).unwrap().unwrap();
        }
        outstanding.push_back(start(&echo.start()));
    }
    outstanding.into_iter().for_each(|call| drop(call.wait().unwrap()));
    runtime.stats().peers.iter().map(|peer| peer.conversation.datagram).max().unwrap()
}

#[test]
fn sixty_four_started_calls_of_any_length_raise_the_datagram() {
    for bytes in [200, 400, 600, 1000, 1080, 1100] {
        let datagram = datagram_after(|echo| echo.echo(&vec![7; bytes]));
        assert_eq!(datagram, 64_000, "calls of {bytes} bytes");
    }
}

#[test]
fn sixty_four_started_calls_with_results_of_any_length_raise_the_datagram() {
    for bytes in [600, 1000, 1080] {
        assert_eq!(datagram_after(|echo| echo.fetch(bytes)), 64_000, "results of {bytes} bytes");
    }
}
