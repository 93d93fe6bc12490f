//! The peers that this program holds itself; others are programs beside it, each in a package of
//! its own, so that cargo does not merge the features of what they depend on.
mod farcall;
mod gate;
mod raw_tcp;
mod raw_udp;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use farcall_bench_method::Peer;

/// The anchor: every ratio is to it.
pub const RAW: &str = "raw";
/// The same code again, in processes of its own: the control of the method.
pub const CONTROL: &str = "raw-control";
/// What this is all about: always measured.
pub const FARCALL: &str = "farcall";
/// What is measured beside farcall unless `--peers` says otherwise.
pub const DEFAULT: &[&str] = &["raw-tcp"];

/// The peer of this name, if it is in this program.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    Some(match name {
        RAW | CONTROL => Box::new(raw_udp::RawUdp { connected: true }),
        FARCALL => Box::new(farcall::Farcall),
        "raw-unconnected" => Box::new(raw_udp::RawUdp { connected: false }),
        "raw-tcp" => Box::new(raw_tcp::RawTcp),
        _ => return None,
    })
}

/// The program that holds this peer.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    if peer(name).is_some() {
        return Ok(own);
    }
    let package = format!("farcall-bench-{name}");
    let other = own.with_file_name(&package).with_extension(std::env::consts::EXE_EXTENSION);
    if !other.exists() {
        bail!(
            "no peer is called `{name}`, or it is not built: cargo build --release --manifest-path bench/Cargo.toml -p {package}"
        );
    }
    Ok(other)
}
