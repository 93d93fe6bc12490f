//! The transfers by farcall: the interface of the server, and the client's calls.
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use farcall::names::Memory;
use farcall::{Bulk, Bytes, Calls, Export, Runtime, Stream};

use super::kinds::Kind;

#[farcall::interface]
pub trait Across {
    /// The null call.
    #[idempotent]
    fn null(&self) -> farcall::Result<()>;
    /// Returns the bytes.
    #[idempotent]
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns that many bytes.
    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes>;
    /// Takes bytes, and returns their number.
    fn store(&self, data: &[u8]) -> farcall::Result<u32>;
    /// Sends numbers, from 0 on.
    fn items(&self, count: u64) -> farcall::Result<Stream<u64>>;
    /// Sends that many bytes.
    fn bulk(&self, bytes: u64) -> farcall::Result<Bulk>;
}

struct Server(Bytes);

impl Across for Server {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes> {
        Ok(self.0.slice(..self.0.len().min(bytes as usize)))
    }

    fn store(&self, data: &[u8]) -> farcall::Result<u32> {
        Ok(data.len() as u32)
    }

    fn items(&self, count: u64) -> farcall::Result<Stream<u64>> {
        Ok(Stream::of(0..count))
    }

    fn bulk(&self, bytes: u64) -> farcall::Result<Bulk> {
        Ok(Bulk::from_reader(std::io::repeat(7).take(bytes)))
    }
}

/// Exports the server at a free port of this address. Its longest result has this many bytes.
pub fn serve(address: SocketAddr, longest: usize) -> Result<Export> {
    let runtime = Runtime::builder().registry(Memory::new()).shared_memory(false).address(address).open();
    Ok(runtime.build()?.export::<dyn Across>("Across", Arc::new(Server(vec![7; longest].into())))?)
}

fn runtime() -> Result<Runtime> {
    Ok(Runtime::builder().registry(Memory::new()).shared_memory(false).build()?)
}

/// Moves it in a new conversation as often as `next` returns true. The first time includes binding.
pub fn run(url: &str, kind: Kind, mut next: impl FnMut() -> bool) -> Result<()> {
    let runtime = runtime()?;
    let data = if let Kind::Argument(bytes) = kind { vec![7; bytes as usize] } else { Vec::new() };
    if !next() {
        return Ok(());
    }
    let across = runtime.import::<dyn Across>(url)?;
    loop {
        once(&across, kind, &data)?;
        if !next() {
            return Ok(());
        }
    }
}

fn once(across: &AcrossClient, kind: Kind, data: &[u8]) -> Result<()> {
    match kind {
        Kind::Null => across.null()?,
        Kind::Result(bytes) => {
            ensure!(across.fetch(bytes as u32)?.len() as u64 == bytes, "the result is short")
        }
        Kind::Argument(_) => ensure!(across.store(data)? as usize == data.len(), "the argument is short"),
        Kind::Items(count) => {
            let (mut items, mut sum) = (0, 0_u64);
            for item in across.items(count)? {
                sum = sum.wrapping_add(item?);
                items += 1;
            }
            std::hint::black_box(sum);
            ensure!(items == count, "{items} items of {count}");
        }
        Kind::Bulk(bytes) => {
            let moved = across.bulk(bytes)?.copy_to(&mut std::io::sink(), u64::MAX).done()?;
            ensure!(moved == bytes, "{moved} bytes of {bytes}");
        }
        Kind::Get(_) | Kind::Put(_) => bail!("the command moves files"),
    }
    Ok(())
}

/// Receives a bulk transfer without end, and counts the bytes.
pub fn flow(url: &str, moved: &AtomicU64) -> Result<()> {
    struct Counted<'a>(&'a AtomicU64);
    impl Write for Counted<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.fetch_add(bytes.len() as u64, Relaxed);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let across = runtime()?.import::<dyn Across>(url)?;
    across.bulk(u64::MAX)?.copy_to(&mut Counted(moved), u64::MAX).done()?;
    bail!("the transfer ended")
}

/// Keeps this many echoes of this many bytes outstanding, for this long. Counts those that have ended.
pub fn crowd(
    url: &str,
    (outstanding, bytes): (usize, usize),
    time: Duration,
    ended: &AtomicU64,
) -> Result<()> {
    let across = runtime()?.import::<dyn Across>(url)?;
    let echo = across.start();
    let (data, began, mut calls) = (vec![7; bytes], Instant::now(), Calls::new());
    while began.elapsed() < time {
        while calls.len() < outstanding {
            calls.add((), echo.echo(&data));
        }
        if let Some(((), result)) = calls.wait_for(time.saturating_sub(began.elapsed())) {
            result?;
            ended.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}
