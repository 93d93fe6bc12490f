//! Fuzz targets: one function or more for each decoder of farcall.
//!
//! Each target takes any bytes, and panics only if it finds a defect. libFuzzer runs the targets (`cargo
//! +nightly fuzz run NAME`, see `fuzz/README.md`). The test `bounded` runs each target briefly on stable
//! Rust, and checks how much memory the target uses. The seeds are in `fuzz/corpus/NAME`.

#![forbid(unsafe_code)]

pub mod acquaintance;
mod capture;
pub mod certificates;
mod client;
mod courier;
mod courier_ends;
mod dump;
mod idl;
mod keys;
mod memory;
mod names;
mod nfs;
mod olympus;
mod onc;
mod onc_client;
mod onc_server;
mod rpc2;
pub mod script;
mod server;
pub mod shapes;
mod trains;
mod x;
mod xdr;

pub use capture::capture;
pub use certificates::{certificate_answer, certificate_request, certificates};
pub use client::client;
pub use courier::{courier_stream, courier_words};
pub use courier_ends::{courier_cooper, courier_expedited, courier_packets};
pub use dump::dump;
pub use idl::{interface, json, values};
pub use keys::{entry_proof, grant, key_file, policy, presentation, revocation_list};
pub use memory::{memory_caller, memory_server, shm_hello};
pub use names::{access, clerk, counters, dns_answer, etcd_answer, name, names_file, names_log};
pub use nfs::nfs_handle;
pub use olympus::{olympus_journal, olympus_pnml, olympus_text};
pub use onc::onc_stream;
pub use onc_client::{onc_client, universal};
pub use onc_server::onc_server;
pub use rpc2::{rpc2_packed, rpc2_packets};
pub use server::{server, server_bytes};
pub use trains::{trains_to_caller, trains_to_server};
pub use x::{cr_file, rpc2_file, x_file};
pub use xdr::{schema, specimen, xdr};

/// A function to be fuzzed, and the most memory that it may use.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the target, of its corpus, and of its program for libFuzzer.
    pub name: &'static str,
    /// Runs the target with an input. Panics if the decoder does something wrong.
    pub run: fn(&[u8]),
    /// The most bytes of memory that the target may hold at once for each byte of the input, besides
    /// `memory`.
    pub memory_per_byte: usize,
    /// The most bytes of memory that the target may hold at once for an empty input.
    pub memory: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The size of the memory that two processes share, in bytes. Here it is allocated from the heap.
const SHARED: usize = farcall_shm::CallMemory::WORDS * size_of::<u64>();

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    Target { name: "server_bytes", run: server_bytes, memory_per_byte: 8, memory: 104 * KIB },
    Target { name: "server", run: server, memory_per_byte: 64, memory: MIB },
    // A server can open 128 exchanges in each of 64 calls, each exchange by one frame.
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
    Target { name: "names_log", run: names_log, memory_per_byte: 128, memory: 8 * KIB },
    // A value of JSON takes a hundred bytes of memory, and may have one byte.
    Target { name: "etcd_answer", run: etcd_answer, memory_per_byte: 256, memory: 16 * KIB },
    // The name of a record has up to 255 bytes, which another name may have told.
    Target { name: "dns_answer", run: dns_answer, memory_per_byte: 256, memory: 16 * KIB },
    Target { name: "name", run: name, memory_per_byte: 8, memory: 4 * KIB },
    // A few bytes say how many tokens a place has: up to a million of 32 bytes, which are printed and read
    // again.
    Target { name: "olympus_text", run: olympus_text, memory_per_byte: 4096, memory: 192 * MIB },
    Target { name: "olympus_pnml", run: olympus_pnml, memory_per_byte: 4096, memory: 192 * MIB },
    Target { name: "olympus_journal", run: olympus_journal, memory_per_byte: 4096, memory: 192 * MIB },
    Target { name: "x_file", run: x_file, memory_per_byte: 512, memory: 256 * KIB },
    Target { name: "cr_file", run: cr_file, memory_per_byte: 512, memory: 256 * KIB },
    Target { name: "rpc2_file", run: rpc2_file, memory_per_byte: 512, memory: 256 * KIB },
    Target { name: "onc_stream", run: onc_stream, memory_per_byte: 16, memory: 64 * KIB },
    Target { name: "onc_server", run: onc_server, memory_per_byte: 64, memory: 160 * KIB },
    Target { name: "onc_client", run: onc_client, memory_per_byte: 64, memory: 512 * KIB },
    Target { name: "courier_stream", run: courier_stream, memory_per_byte: 64, memory: 64 * KIB },
    Target { name: "courier_words", run: courier_words, memory_per_byte: 64, memory: 64 * KIB },
    Target { name: "courier_cooper", run: courier_cooper, memory_per_byte: 64, memory: 128 * KIB },
    Target { name: "courier_packets", run: courier_packets, memory_per_byte: 64, memory: 128 * KIB },
    Target { name: "courier_expedited", run: courier_expedited, memory_per_byte: 64, memory: 128 * KIB },
    Target { name: "rpc2_packed", run: rpc2_packed, memory_per_byte: 16, memory: 16 * KIB },
    Target { name: "rpc2_packets", run: rpc2_packets, memory_per_byte: 64, memory: 64 * KIB },
    Target { name: "universal", run: universal, memory_per_byte: 8, memory: 4 * KIB },
    Target { name: "nfs_handle", run: nfs_handle, memory_per_byte: 8, memory: 64 * KIB },
    Target { name: "clerk", run: clerk, memory_per_byte: 8, memory: 4 * KIB },
    Target { name: "access", run: access, memory_per_byte: 256, memory: 16 * KIB },
    Target { name: "counters", run: counters, memory_per_byte: 256, memory: 16 * KIB },
    Target { name: "grant", run: grant, memory_per_byte: 32, memory: 8 * KIB },
    Target { name: "presentation", run: presentation, memory_per_byte: 32, memory: 8 * KIB },
    Target { name: "entry_proof", run: entry_proof, memory_per_byte: 32, memory: 16 * KIB },
    Target { name: "revocation_list", run: revocation_list, memory_per_byte: 16, memory: 8 * KIB },
    Target { name: "key_file", run: key_file, memory_per_byte: 64, memory: 16 * KIB },
    Target { name: "policy", run: policy, memory_per_byte: 128, memory: 8 * KIB },
    Target { name: "certificates", run: certificates, memory_per_byte: 64, memory: 64 * KIB },
    Target { name: "certificate_request", run: certificate_request, memory_per_byte: 64, memory: 64 * KIB },
    Target { name: "certificate_answer", run: certificate_answer, memory_per_byte: 32, memory: 16 * KIB },
    Target { name: "shm_hello", run: shm_hello, memory_per_byte: 8, memory: 4 * KIB },
];
