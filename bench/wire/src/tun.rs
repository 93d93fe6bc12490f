//! A TUN device: what the kernel sends through it is read here, and what is written here arrives through it.
use std::fs::File;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Updater, ioctl, opcode};

/// `TUNSETIFF`: makes a device of an open file.
const ATTACH: u32 = opcode::write::<i32>(b'T', 202);
/// `IFF_TUN | IFF_NO_PI`: IP packets, without a header.
const PACKETS_ONLY: u16 = 0x0001 | 0x1000;
/// The bytes of the kernel's `struct ifreq`.
const REQUEST_BYTES: usize = 40;
/// The longest name of a device, in bytes.
const MAX_NAME: usize = 15;

/// Makes a TUN device of this name, in this namespace. It vanishes when the file is closed.
///
/// # Errors
/// This process may not make it, or there is a device of this name.
pub fn open(name: &str) -> Result<File> {
    anyhow::ensure!(name.len() <= MAX_NAME, "the name {name:?} is too long for a device");
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device =
        rustix::fs::open("/dev/net/tun", flags, Mode::empty()).context("cannot open /dev/net/tun")?;
    let mut request = [0_u8; REQUEST_BYTES];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[MAX_NAME + 1..MAX_NAME + 3].copy_from_slice(&PACKETS_ONLY.to_ne_bytes());
    // SAFETY: the opcode is that of TUNSETIFF, which reads and writes a `struct ifreq`: 16 bytes of name,
    // then a union of at most 24 bytes, whose first two are the flags. The array has as many bytes.
    let made = unsafe { ioctl(device.as_fd(), Updater::<ATTACH, _>::new(&mut request)) };
    made.with_context(|| format!("cannot make the device {name}"))?;
    Ok(device.into())
}
