//! ONC RPC by libtirpc, over UDP and over TCP.
#[cfg(libtirpc)]
mod ffi;
#[cfg(libtirpc)]
mod peer;

use std::process::ExitCode;

use farcall_bench_method::Peer;
use farcall_bench_method::agent;
use farcall_bench_method::alloc::Counting;

/// The counter does not see allocations of the C side.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    agent::run(peer)
}

#[cfg(libtirpc)]
fn peer(name: &str) -> Option<Box<dyn Peer>> {
    match name {
        "libtirpc-udp" => Some(Box::new(peer::Libtirpc { stream: false })),
        "libtirpc-tcp" => Some(Box::new(peer::Libtirpc { stream: true })),
        _ => None,
    }
}

#[cfg(not(libtirpc))]
fn peer(_: &str) -> Option<Box<dyn Peer>> {
    use farcall_bench_method::{Calling, Serving, Setup, cannot};
    struct Missing;
    impl Peer for Missing {
        fn transport(&self) -> &'static str {
            "none"
        }

        fn serve(&self, _: &Setup) -> anyhow::Result<Box<dyn Serving>> {
            cannot("libtirpc is not installed, or pkg-config does not know it")
        }

        fn connect(&self, _: &Setup, _: &str) -> anyhow::Result<Box<dyn Calling>> {
            cannot("libtirpc is not installed")
        }
    }
    Some(Box::new(Missing))
}
