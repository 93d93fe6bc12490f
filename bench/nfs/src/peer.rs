//! The peers: two servers of the same file, each read by libnfs.
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};
use farcall_nfs::files::Files;
use farcall_nfs::protocol::mount::MountV3;
use farcall_nfs::protocol::nfs::NfsV3;
use farcall_nfs::{Export, Mounts};
use farcall_onc as onc;
use tempfile::TempDir;

use crate::ffi::Client;
use crate::ganesha::Ganesha;

/// The length of the file in bytes. The file stays in the system's cache.
const LENGTH: usize = 16 << 20;
const FILE: &str = "file";

pub enum Nfs {
    /// The server of `examples/nfs`.
    Farcall,
    Ganesha,
}

impl Peer for Nfs {
    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn version(&self) -> String {
        match self {
            Nfs::Farcall => format!("by libnfs {}", env!("LIBNFS_VERSION")),
            Nfs::Ganesha => Ganesha::version(),
        }
    }

    /// Returns false, because neither libnfs's nor ganesha's allocations are counted.
    fn counts_allocations(&self) -> bool {
        false
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join(FILE), content())?;
        Ok(match self {
            Nfs::Farcall => Box::new(Farcall::start(directory)?),
            Nfs::Ganesha => Box::new(Served(Ganesha::start(directory)?)),
        })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let mut client = Client::open(address, setup.bytes, LENGTH / setup.bytes * setup.bytes)?;
        ensure!(*client.read()? == content()[..setup.bytes], "what was read is not what was written");
        Ok(Box::new(Reader(client)))
    }
}

/// Returns the file's content. All its words differ.
fn content() -> Vec<u8> {
    (0..LENGTH as u64 / 8).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

/// This project's server.
struct Farcall {
    server: onc::Server,
    _directory: TempDir,
}

impl Farcall {
    fn start(directory: TempDir) -> Result<Farcall> {
        let files = Arc::new(Files::open(directory.path())?);
        let builder = onc::Server::builder().program::<dyn NfsV3>(Arc::new(Export::new(files.clone())));
        let builder = builder.program::<dyn MountV3>(Arc::new(Mounts::new(files, "/exported")));
        let server = builder.tcp("127.0.0.1:0".parse()?).start()?;
        server.tcp().context("it listens")?;
        Ok(Farcall { server, _directory: directory })
    }
}

impl Serving for Farcall {
    fn address(&self) -> String {
        let port = self.server.tcp().map_or(0, |address| address.port());
        format!("nfs://127.0.0.1/exported/{FILE}?nfsport={port}&mountport={port}")
    }
}

struct Served(Ganesha);

impl Serving for Served {
    fn address(&self) -> String {
        self.0.url(FILE)
    }
}

struct Reader(Client);

impl Calling for Reader {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.0.read()?;
        }
        Ok(())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.0.window(outstanding, calls)
    }
}
