//! The file service of `examples/file-service`: one operation, or the mix of them, in one of its structures.
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use farcall::{Runtime, names};
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup, cannot};
use farcall_file_access::{Directory, FileAccess};
use farcall_file_service::{Addresses, BLOCK, Clerk, Counts, Handle, Server, Shape, Structure};
use tempfile::TempDir;

/// The operation that the clerk executes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Null,
    GetAttr,
    Lookup,
    ReadLink,
    /// That many bytes.
    Read(usize),
    ReadDir,
    StatFs,
    Write(usize),
    Commit,
    /// All operations, as often as in table 1a.
    Mix {
        /// The bytes of each read.
        read: usize,
    },
}

/// The names of the operations in rows and in the names of peers. `mix` reads 509 bytes and writes 2,590,
/// which are the means of table 1b; `mix-8k` reads whole blocks.
const OPERATIONS: [(&str, Operation); 9] = [
    ("getattr", Operation::GetAttr),
    ("lookup", Operation::Lookup),
    ("readlink", Operation::ReadLink),
    ("read-8k", Operation::Read(BLOCK)),
    ("read-4k", Operation::Read(BLOCK / 2)),
    ("readdir", Operation::ReadDir),
    ("write", Operation::Write(BLOCK)),
    ("mix", Operation::Mix { read: 509 }),
    ("mix-8k", Operation::Mix { read: BLOCK }),
];

/// Returns table 1a: how often each operation was requested from the departmental server in several days.
/// "Other" has no counterpart in this service. In its place is an operation that transfers control in every
/// structure: the commit of a file to which nothing was written.
fn table_1a(read: usize) -> [(u64, Operation); 9] {
    [
        (8_960_671, Operation::GetAttr),
        (8_840_866, Operation::Lookup),
        (4_478_036, Operation::Read(read)),
        (3_602_730, Operation::Null),
        (1_628_256, Operation::ReadLink),
        (981_345, Operation::ReadDir),
        (149_142, Operation::StatFs),
        (109_712, Operation::Write(2_590)),
        (109_986, Operation::Commit),
    ]
}

/// Returns the peer of this name: for example `dx-getattr`, over UDP, or `dx-getattr-mapped`.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let (structure, operation) = name.split_once('-')?;
    let structure = Structure::ALL.into_iter().find(|known| known.name().to_lowercase() == structure)?;
    let unmapped = operation.strip_suffix("-mapped");
    let operation = of_name(unmapped.unwrap_or(operation))?;
    Some(Box::new(Service { structure, operation, mapped: unmapped.is_some() }))
}

fn of_name(name: &str) -> Option<Operation> {
    OPERATIONS.into_iter().find(|(known, _)| *known == name).map(|(_, operation)| operation)
}

/// Returns what a clerk in this process does for one operation on average: accesses to the server's memory,
/// and transfers of control.
pub fn work(structure: &str, operation: &str) -> Result<[f64; 2]> {
    const TURNS: u32 = 4_000;
    let structure =
        Structure::ALL.into_iter().find(|known| known.name() == structure).context("no such structure")?;
    let operation = of_name(operation).context("no such operation")?;
    let service = Service { structure, operation, mapped: false };
    let (exported, _runtime) = service.export()?;
    let mut client = service.client(&exported.server.addresses())?;
    let before = client.clerk.tally.counts();
    (0..TURNS).try_for_each(|_| client.next())?;
    let Counts { reads, writes, swaps, letters, calls, .. } = client.clerk.tally.counts().since(before);
    // A letter is a call too, which a stub makes.
    let transfers = if structure == Structure::Rpc { calls } else { letters };
    Ok([reads + writes + swaps + letters, transfers].map(|count| count as f64 / f64::from(TURNS)))
}

/// Executes the procedure of an operation in this process, to measure it without calls. Returns its
/// nanoseconds, the median of some laps.
pub fn procedure(operation: &str) -> Result<f64> {
    const LAPS: usize = 21;
    const TURNS: u32 = 500;
    let operation = of_name(operation).context("no such operation")?;
    let scratch = tempfile::tempdir()?;
    tree(scratch.path())?;
    let files = Directory::open(scratch.path())?;
    let (mut turn, mut failed, bytes) = (0, None, vec![8; BLOCK]);
    let mut call = || {
        turn += 1;
        let (offset, path) = (turn % BLOCKS * BLOCK as u64, format!("usr/{}", name(turn as usize % NAMES)));
        let done: Result<()> = match operation {
            Operation::GetAttr | Operation::Lookup => {
                files.stat(&path).map(|one| _ = black_box(one)).map_err(Into::into)
            }
            Operation::ReadLink => files.link("link").map(|one| _ = black_box(one)).map_err(Into::into),
            Operation::Read(length) => {
                files.read("read", offset, length as u32).map(|one| _ = black_box(one)).map_err(Into::into)
            }
            Operation::ReadDir => files.list("usr", "").map(|one| _ = black_box(one)).map_err(Into::into),
            Operation::Write(length) => files.write("written", offset, &bytes[..length]).map_err(Into::into),
            Operation::Null | Operation::StatFs | Operation::Commit | Operation::Mix { .. } => {
                cannot("not in figure 3")
            }
        };
        failed = done.err().or(failed.take());
    };
    let mut lap = || {
        let began = Instant::now();
        (0..TURNS).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    lap();
    let laps = (0..LAPS).map(|_| lap()).collect();
    let median = estimate(laps).map(|time| time.median).context("no lap was measured");
    failed.map_or(median, Err)
}

/// A server of some files, and a clerk.
struct Service {
    structure: Structure,
    operation: Operation,
    mapped: bool,
}

impl Service {
    fn runtime(&self) -> farcall::Result<Runtime> {
        Runtime::builder().registry(names::Memory::new()).shared_memory(self.mapped).build()
    }

    fn export(&self) -> Result<(Exported, Runtime)> {
        let scratch = tempfile::tempdir()?;
        tree(scratch.path())?;
        let runtime = self.runtime()?;
        let server = Server::export(&runtime, "files", scratch.path(), Shape::SMALL)?;
        Ok((Exported { server, _scratch: scratch }, runtime))
    }

    fn client(&self, server: &Addresses) -> Result<Client> {
        Client::new(Clerk::new(&self.runtime()?, server, self.structure)?, self.operation)
    }
}

impl Peer for Service {
    fn transport(&self) -> &'static str {
        if self.mapped { "mapped" } else { "udp" }
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        let (exported, _) = self.export()?;
        Ok(Box::new(exported))
    }

    fn connect(&self, _: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let mut parts = address.split(',').map(str::to_owned);
        let mut part = || parts.next().context("an address has three parts");
        let server = Addresses { files: part()?, more: part()?, memory: part()? };
        Ok(Box::new(self.client(&server)?))
    }
}

/// The names of a directory, which have 1,990 bytes together, as in table 1b.
const NAMES: usize = 80;
/// The number of blocks of each file that is read or written. A written block has reached its file before it
/// is written again.
const BLOCKS: u64 = 64;

fn tree(at: &Path) -> Result<()> {
    let directory = at.join("usr");
    fs::create_dir(&directory)?;
    for name in ["read", "written"] {
        fs::write(at.join(name), vec![7; BLOCKS as usize * BLOCK])?;
    }
    fs::write(at.join("other"), b"some bytes")?;
    for n in 0..NAMES {
        fs::write(directory.join(name(n)), b"")?;
    }
    Ok(std::os::unix::fs::symlink("usr/file one", at.join("link"))?)
}

fn name(n: usize) -> String {
    format!("file with name {n:05}")
}

struct Exported {
    server: Server,
    _scratch: TempDir,
}

impl Serving for Exported {
    fn address(&self) -> String {
        let Addresses { files, more, memory } = self.server.addresses();
        [files, more, memory].join(",")
    }
}

/// A clerk, and the existing files.
struct Client {
    clerk: Clerk,
    operation: Operation,
    directory: Handle,
    names: Vec<String>,
    files: Vec<Handle>,
    link: Handle,
    read: Handle,
    written: Handle,
    other: Handle,
    bytes: Vec<u8>,
    /// The number of operations so far.
    turn: u64,
    /// For each operation of the mix, how often it should have been chosen less how often it was.
    due: [i64; 9],
}

impl Client {
    /// Requests everything once, so that it is in the server's cache, as the paper assumes.
    fn new(clerk: Clerk, operation: Operation) -> Result<Client> {
        let files = &clerk.files;
        let root = files.root()?;
        let find = |directory, name: &str| files.look_up(directory, name).map(|found| found.handle);
        let directory = find(root, "usr")?;
        let names: Vec<String> = (0..NAMES).map(name).collect();
        let handles =
            names.iter().map(|name| find(directory, name)).collect::<farcall::Result<Vec<_>, _>>()?;
        let [link, other, read, written] = ["link", "other", "read", "written"].map(|name| find(root, name));
        let (link, other, read, written) = (link?, other?, read?, written?);
        let bytes = vec![8; BLOCK];
        let mut client = Client {
            operation,
            directory,
            names,
            files: handles,
            link,
            read,
            written,
            other,
            bytes,
            clerk,
            turn: 0,
            due: [0; 9],
        };
        client.warm()?;
        Ok(client)
    }

    fn warm(&mut self) -> Result<()> {
        let files = &self.clerk.files;
        for file in &self.files {
            files.attributes(*file)?;
        }
        for block in 0..BLOCKS {
            for file in [self.read, self.written] {
                ensure!(
                    files.read(file, block * BLOCK as u64, BLOCK as u32)?.0.len() == BLOCK,
                    "a block is not whole"
                );
            }
        }
        for operation in [Operation::ReadLink, Operation::ReadDir, Operation::StatFs, Operation::Write(BLOCK)]
        {
            self.perform(operation)?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let operation = match self.operation {
            Operation::Mix { read } => self.choose(&table_1a(read)),
            one => one,
        };
        self.perform(operation)
    }

    /// Returns the operation that is due most, so that the operations are spread evenly.
    fn choose(&mut self, table: &[(u64, Operation); 9]) -> Operation {
        let all: u64 = table.iter().map(|one| one.0).sum();
        self.due.iter_mut().zip(table).for_each(|(due, one)| *due += one.0 as i64);
        let most = (0..table.len()).max_by_key(|n| self.due[*n]).unwrap_or(0);
        self.due[most] -= all as i64;
        table[most].1
    }

    fn perform(&mut self, operation: Operation) -> Result<()> {
        self.turn += 1;
        let (files, n) = (&self.clerk.files, self.turn as usize % NAMES);
        let offset = self.turn % BLOCKS * BLOCK as u64;
        match operation {
            Operation::Null => files.null()?,
            Operation::GetAttr => drop(black_box(files.attributes(self.files[n])?)),
            Operation::Lookup => drop(black_box(files.look_up(self.directory, &self.names[n])?)),
            Operation::ReadLink => drop(black_box(files.read_link(self.link)?)),
            Operation::Read(length) => drop(black_box(files.read(self.read, offset, length as u32)?)),
            Operation::ReadDir => drop(black_box(files.read_directory(self.directory, "")?)),
            Operation::StatFs => drop(black_box(files.statistics()?)),
            Operation::Write(length) => files.write(self.written, offset, &self.bytes[..length])?,
            Operation::Commit => files.commit(self.other)?,
            Operation::Mix { .. } => return cannot("a mix is none of its operations"),
        }
        Ok(())
    }
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.next()?;
        }
        Ok(())
    }
}
