//! The peers: those in this program, and those with programs of their own. Each such program is a package of
//! its own, so that cargo does not merge the features of their dependencies.
mod balanced;
pub mod build;
pub mod farcall;
#[cfg(unix)]
pub mod files;
mod in_process;
pub mod keys;
pub mod memory;
mod names;
#[cfg(target_os = "linux")]
mod notices;
#[cfg(target_os = "linux")]
mod onc;
mod oneway;
#[cfg(target_os = "linux")]
mod raw_copies;
mod raw_gso;
mod raw_sealed;
#[cfg(target_os = "linux")]
mod raw_shared;
mod raw_stream;
mod raw_udp;
mod signals;
mod streams;
#[cfg(target_os = "linux")]
mod transfers;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use farcall_bench_method::{Options, Peer};
use farcall_crypto::Level;

/// The anchor of latencies.
pub const RAW: &str = "raw";
/// The control of the method: the code of [`RAW`] again, in processes of its own.
pub const CONTROL: &str = "raw-control";
/// The loop of `multi` that polls for answers as farcall does.
pub const AWAKE: &str = "raw-awake";
/// Farcall, which is always measured.
pub const FARCALL: &str = "farcall";
/// Farcall with keys, at each level.
pub const FARCALL_AUTHENTICATED: &str = "farcall-authenticated";
pub const FARCALL_SECURE: &str = "farcall-secure";

/// Returns the anchor of calls that are sealed at this level, its control, and farcall with keys.
pub fn sealed(level: Level) -> [&'static str; 3] {
    match level {
        Level::Authenticated => {
            ["raw-sealed-authenticated", "raw-sealed-authenticated-control", FARCALL_AUTHENTICATED]
        }
        Level::Secure => ["raw-sealed-secure", "raw-sealed-secure-control", FARCALL_SECURE],
    }
}

/// Where a peer's program comes from.
#[derive(Clone, Copy)]
enum Source {
    Here,
    Package(&'static str),
    Go,
}

/// The peers that are measured besides farcall unless `--peers` selects others.
const PEERS: &[(&str, Source)] = &[
    ("farcall-shm", Source::Here),
    ("farcall-resumed", Source::Here),
    ("farcall-unwound", Source::Here),
    ("farcall-stream", Source::Here),
    ("farcall-oneway", Source::Here),
    ("farcall-balanced-1", Source::Here),
    ("farcall-balanced-10", Source::Here),
    ("farcall-bulk", Source::Here),
    ("raw-sendfile", Source::Here),
    ("farcall-local", Source::Here),
    ("farcall-direct", Source::Here),
    ("farcall-onc-udp", Source::Here),
    ("farcall-onc-tcp", Source::Here),
    ("farcall-onc-udp-once", Source::Here),
    ("farcall-onc-tcp-once", Source::Here),
    ("raw-tcp", Source::Here),
    ("raw-unix", Source::Here),
    ("raw-gso", Source::Here),
    ("raw-shm", Source::Here),
    ("raw-memcpy", Source::Here),
    ("raw-copies", Source::Here),
    ("tarpc", Source::Package("tarpc")),
    ("tonic", Source::Package("tonic")),
    ("tonic-stream", Source::Package("tonic")),
    ("tonic-channel", Source::Package("tonic")),
    ("capnp", Source::Package("capnp")),
    ("quinn", Source::Package("quinn")),
    ("libtirpc-udp", Source::Package("libtirpc")),
    ("libtirpc-tcp", Source::Package("libtirpc")),
    ("iceoryx2", Source::Package("iceoryx2")),
    ("go-net-rpc", Source::Go),
    ("grpc-go", Source::Go),
];

/// Returns the peer of this name, if it is in this program.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    Some(match name {
        RAW | CONTROL => Box::new(raw_udp::RawUdp { connected: true }),
        FARCALL => Box::new(farcall::Farcall::OVER_UDP),
        FARCALL_AUTHENTICATED => Box::new(farcall::Farcall::sealed(Level::Authenticated)),
        FARCALL_SECURE => Box::new(farcall::Farcall::sealed(Level::Secure)),
        "farcall-shm" => Box::new(farcall::Farcall { shared: true, level: None }),
        "farcall-resumed" => Box::new(signals::Signal::Resumed),
        "farcall-unwound" => Box::new(signals::Signal::Unwound),
        "farcall-stream" => Box::new(streams::Items),
        "farcall-oneway" => Box::new(oneway::Oneway),
        "farcall-balanced-1" => Box::new(balanced::Balanced(1)),
        "farcall-balanced-10" => Box::new(balanced::Balanced(10)),
        #[cfg(target_os = "linux")]
        "farcall-bulk" => Box::new(transfers::Transfer::Farcall),
        #[cfg(target_os = "linux")]
        "raw-sendfile" => Box::new(transfers::Transfer::Sendfile),
        "farcall-local" => Box::new(in_process::InProcess::Stub),
        "farcall-direct" => Box::new(in_process::InProcess::Direct),
        "raw-unconnected" => Box::new(raw_udp::RawUdp { connected: false }),
        "raw-sealed-authenticated" | "raw-sealed-authenticated-control" => {
            Box::new(raw_sealed::RawSealed(Level::Authenticated))
        }
        "raw-sealed-secure" | "raw-sealed-secure-control" => Box::new(raw_sealed::RawSealed(Level::Secure)),
        "raw-gso" => Box::new(raw_gso::RawGso),
        #[cfg(target_os = "linux")]
        "raw-shm" => Box::new(raw_shared::RawShared),
        #[cfg(target_os = "linux")]
        "raw-memcpy" => Box::new(raw_shared::RawMemcpy),
        #[cfg(target_os = "linux")]
        "raw-copies" => Box::new(raw_copies::RawCopies),
        "raw-tcp" => Box::new(raw_stream::RawStream::Tcp),
        "raw-unix" => Box::new(raw_stream::RawStream::Unix),
        "farcall-null" => Box::new(farcall::Null),
        "copy" | "copy-control" => Box::new(memory::Copying),
        name => {
            memory::peer(name).or_else(|| names::peer(name)).or_else(|| files(name)).or_else(|| onc(name))?
        }
    })
}

#[cfg(unix)]
fn files(name: &str) -> Option<Box<dyn Peer>> {
    files::peer(name)
}

#[cfg(not(unix))]
fn files(_: &str) -> Option<Box<dyn Peer>> {
    None
}

#[cfg(target_os = "linux")]
fn onc(name: &str) -> Option<Box<dyn Peer>> {
    onc::peer(name).or_else(|| notices::peer(name))
}

#[cfg(not(target_os = "linux"))]
fn onc(_: &str) -> Option<Box<dyn Peer>> {
    None
}

/// Returns whether the peer is farcall, over any transport.
pub fn is_ours(name: &str) -> bool {
    name.starts_with(FARCALL)
}

/// Returns whether the peer makes no calls, but only moves bytes.
pub fn is_raw(name: &str) -> bool {
    name.starts_with(RAW)
}

/// Returns `first`, and then the peers that the options select.
pub fn names(first: &[&str], options: &Options) -> Vec<String> {
    let default: Vec<&str> = PEERS.iter().map(|&(name, _)| name).collect();
    let mut names: Vec<String> = first.iter().map(|&name| name.into()).collect();
    for peer in options.peers(&default) {
        if !names.contains(&peer) {
            names.push(peer);
        }
    }
    names
}

/// Returns the program that contains this peer. Builds it if it is not up to date. The error is a `Cannot` if
/// it cannot be built here.
pub fn program(name: &str) -> Result<PathBuf> {
    let known = PEERS.iter().find(|(known, _)| *known == name).map(|&(_, source)| source);
    match known.or_else(|| peer(name).map(|_| Source::Here)) {
        Some(Source::Here) => std::env::current_exe().context("cannot find this program"),
        Some(Source::Package(package)) => build::package(package),
        Some(Source::Go) => build::go(),
        None if name == AWAKE => std::env::current_exe().context("cannot find this program"),
        None if name.starts_with("farcall-tasks") => build::package("tasks"),
        None if name == "tarpc-threads" => build::package("tarpc"),
        None if name == "tonic-threads" => build::package("tonic"),
        // These are NFS servers, from which libnfs reads.
        None if matches!(name, "farcall-nfs" | "nfs-ganesha") => build::package("nfs"),
        None => bail!("no peer is called `{name}`"),
    }
}
