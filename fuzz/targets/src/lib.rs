//! What is fuzzed: one function for each decoder of farcall.
//!
//! Each takes any bytes and panics only if something is wrong. They are run in two ways: by libFuzzer
//! (`cargo +nightly fuzz run NAME`, see `fuzz/README.md`), and briefly by the test `bounded`, on
//! stable Rust, which also holds each to its bound of memory. The seeds stand in `fuzz/corpus/NAME`.

#![forbid(unsafe_code)]

pub mod acquaintance;
mod capture;
mod client;
mod dump;
mod idl;
mod memory;
mod names;
mod nfs;
mod onc;
mod onc_client;
mod onc_server;
pub mod script;
mod server;
mod trains;
mod x;
mod xdr;

pub use capture::capture;
pub use client::client;
pub use dump::dump;
pub use idl::{interface, json, values};
pub use memory::{memory_caller, memory_server, shm_hello};
pub use names::{access, clerk, counters, name, names_file};
pub use nfs::nfs_handle;
pub use onc::onc_stream;
pub use onc_client::{onc_client, universal};
pub use onc_server::onc_server;
pub use server::{server, server_bytes};
pub use trains::{trains_to_caller, trains_to_server};
pub use x::x_file;
pub use xdr::{schema, specimen, xdr};

/// A function to be fuzzed, and what it may take.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, that of its corpus, and that of its program for libFuzzer.
    pub name: &'static str,
    /// Panics if the decoder does something wrong with these bytes.
    pub run: fn(&[u8]),
    /// The most memory that it may have at once: so much for each byte of the input …
    pub memory_per_byte: usize,
    /// … and so much in any case, in bytes.
    pub memory: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The memory that the two halves share stands on the heap here.
const SHARED: usize = farcall_shm::CallMemory::WORDS * size_of::<u64>();

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "server_bytes", run: server_bytes, memory_per_byte: 8, memory: 96 * KIB },
    Target { name: "server", run: server, memory_per_byte: 64, memory: MIB },
    // A server may open 128 exchanges in each of 64 calls, by one frame each.
    Target { name: "client", run: client, memory_per_byte: 64, memory: 8 * MIB },
    Target { name: "trains_to_server", run: trains_to_server, memory_per_byte: 256, memory: 4 * MIB },
    Target { name: "trains_to_caller", run: trains_to_caller, memory_per_byte: 256, memory: 4 * MIB },
    Target { name: "memory_server", run: memory_server, memory_per_byte: 64, memory: SHARED + 256 * KIB },
    Target { name: "memory_caller", run: memory_caller, memory_per_byte: 64, memory: SHARED + 256 * KIB },
    Target { name: "dump", run: dump, memory_per_byte: 64, memory: 8 * KIB },
    Target { name: "capture", run: capture, memory_per_byte: 64, memory: 4 * MIB },
    Target { name: "xdr", run: xdr, memory_per_byte: 64, memory: 4 * KIB },
    Target { name: "schema", run: schema, memory_per_byte: 96, memory: 4 * KIB },
    Target { name: "interface", run: interface, memory_per_byte: 128, memory: 8 * KIB },
    Target { name: "values", run: values, memory_per_byte: 256, memory: 40 * MIB },
    Target { name: "json", run: json, memory_per_byte: 256, memory: 40 * MIB },
    Target { name: "names_file", run: names_file, memory_per_byte: 32, memory: 8 * KIB },
    Target { name: "name", run: name, memory_per_byte: 8, memory: 4 * KIB },
    Target { name: "x_file", run: x_file, memory_per_byte: 512, memory: 256 * KIB },
    Target { name: "onc_stream", run: onc_stream, memory_per_byte: 16, memory: 64 * KIB },
    Target { name: "onc_server", run: onc_server, memory_per_byte: 64, memory: 160 * KIB },
    Target { name: "onc_client", run: onc_client, memory_per_byte: 64, memory: 512 * KIB },
    Target { name: "universal", run: universal, memory_per_byte: 8, memory: 4 * KIB },
    Target { name: "nfs_handle", run: nfs_handle, memory_per_byte: 8, memory: 64 * KIB },
    Target { name: "clerk", run: clerk, memory_per_byte: 8, memory: 4 * KIB },
    Target { name: "access", run: access, memory_per_byte: 256, memory: 16 * KIB },
    Target { name: "counters", run: counters, memory_per_byte: 256, memory: 16 * KIB },
    Target { name: "shm_hello", run: shm_hello, memory_per_byte: 8, memory: 4 * KIB },
];
