//! READs by libnfs, from this project's NFS server and from nfs-ganesha.
#[cfg(libnfs)]
mod ffi;
#[cfg(libnfs)]
mod ganesha;
#[cfg(libnfs)]
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

#[cfg(libnfs)]
fn peer(name: &str) -> Option<Box<dyn Peer>> {
    match name {
        "farcall-nfs" => Some(Box::new(peer::Nfs::Farcall)),
        "nfs-ganesha" => Some(Box::new(peer::Nfs::Ganesha)),
        _ => None,
    }
}

#[cfg(not(libnfs))]
fn peer(_: &str) -> Option<Box<dyn Peer>> {
    use farcall_bench_method::{Calling, Serving, Setup, cannot};
    struct Missing;
    impl Peer for Missing {
        fn transport(&self) -> &'static str {
            "none"
        }

        fn serve(&self, _: &Setup) -> anyhow::Result<Box<dyn Serving>> {
            cannot("libnfs is not installed, or pkg-config does not know it")
        }

        fn connect(&self, _: &Setup, _: &str) -> anyhow::Result<Box<dyn Calling>> {
            cannot("libnfs is not installed")
        }
    }
    Some(Box::new(Missing))
}
