//! A day of a file server: operations in the proportions of Thekkath et al. 1994, by a real client (libnfs),
//! and their calls and bytes at the server: the paper's tables 1a and 1b.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use farcall::stub::Program;
use farcall_bench_method::conditions::conditions_on;
use farcall_bench_method::paper::{self, About, Entry, Item, Table, Whose};
use farcall_nfs::files::Files;
use farcall_nfs::protocol::mount::MountV3;
use farcall_nfs::protocol::nfs::NfsV3;
use farcall_nfs::{Export, Mounts};
use farcall_onc::Server;
use farcall_onc::wire::auth::OpaqueAuth;
use farcall_onc::wire::message::Call;
use farcall_onc::wire::record;

use crate::ffi::{OnFile, OnPath, User};
use crate::traffic::{self, Calls, Counts, Relay};

/// A row of the paper's tables: its name, the procedures of NFS version 3 that it stands for, how many calls
/// and which percentage the paper has, and the megabytes of control and data.
struct Row {
    name: &'static str,
    procedures: &'static [u32],
    calls: u64,
    percent: f64,
    traffic: Option<(f64, f64)>,
}

const fn row(
    name: &'static str,
    procedures: &'static [u32],
    calls: u64,
    percent: f64,
    traffic: Option<(f64, f64)>,
) -> Row {
    Row { name, procedures, calls, percent, traffic }
}

/// The rows in the order of table 1a. All procedures that no row names are `Other`.
const ROWS: [Row; 9] = [
    row("Get File Attribute", &[traffic::GETATTR], 8_960_671, 31.0, Some((214.0, 481.0))),
    row("Lookup File Name", &[traffic::LOOKUP], 8_840_866, 31.0, Some((246.0, 761.0))),
    row("Read File Data", &[traffic::READ], 4_478_036, 16.0, Some((185.0, 2176.0))),
    row("Null Ping Call", &[traffic::NULL], 3_602_730, 12.0, None),
    row("Read Symbolic Link", &[traffic::READLINK], 1_628_256, 6.0, Some((59.0, 19.0))),
    row(
        "Read Directory Contents",
        &[traffic::READDIR, traffic::READDIRPLUS],
        981_345,
        3.0,
        Some((54.0, 1862.0)),
    ),
    row("Read File System Stats.", &[traffic::FSSTAT], 149_142, 0.5, Some((4.0, 3.0))),
    row("Write File Data", &[traffic::WRITE], 109_712, 0.4, Some((4.0, 271.0))),
    row("Other", &[], 109_986, 0.4, None),
];
const TOTAL: (u64, f64, f64) = (28_860_744, 766.0, 5573.0);

/// What a client does, and how often in a thousand operations. A `stat` of a path looks a name up and gets
/// attributes; a link and a directory are looked up too, and a directory is read in two calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Ping,
    Stat,
    Fstat,
    Readlink,
    Readdir,
    Statvfs,
    Read,
    Write,
    Access,
}

use Operation::*;

const MIX: [(Operation, u32); 9] = [
    (Stat, 318),
    (Fstat, 127),
    (Read, 225),
    (Ping, 181),
    (Readlink, 82),
    (Readdir, 26),
    (Statvfs, 7),
    (Write, 6),
    (Access, 5),
];

/// The bytes of a read and of a write: the means of table 1b.
const READ_BYTES: u32 = 486;
const WRITE_BYTES: u32 = 2470;
/// The entries of a directory, so that their names and numbers have the mean size of table 1b.
const ENTRIES: usize = 66;

/// Makes this many operations, and returns the tables.
///
/// # Errors
/// When the server or the client fails.
pub fn tables(operations: usize) -> Result<Vec<Item>> {
    let directory = files()?;
    let files = Arc::new(Files::open(directory.path())?);
    let builder = Server::builder().program::<dyn NfsV3>(Arc::new(Export::new(files.clone())));
    let builder = builder.program::<dyn MountV3>(Arc::new(Mounts::new(files, "/exported")));
    let server = builder.tcp("127.0.0.1:0".parse()?).start()?;
    let relay = Relay::start(server.tcp().context("it does not listen")?)?;
    let mut day = Day::mount(relay.address())?;
    relay.take();
    for number in 0..operations {
        day.make(drawn(number), number)?;
    }
    let counts = relay.take();
    let mut conditions = conditions_on("loopback", &[format!("libnfs {}", env!("LIBNFS_VERSION"))]);
    conditions.push(format!(
        "{operations} operations in {} calls; the bytes are those of TCP's payload without record marks",
        counts.values().map(|calls| calls.calls).sum::<u64>()
    ));
    Ok([calls(&counts), bytes(&counts)]
        .into_iter()
        .map(|mut table| {
            table.about.conditions.clone_from(&conditions);
            Item::Table(table)
        })
        .collect())
}

/// Writes the tables to a file, and prints them.
///
/// # Errors
/// Those of [`tables`].
pub fn run(operations: usize, to: Option<&Path>) -> Result<()> {
    let items = tables(operations)?;
    for item in &items {
        if let Item::Table(table) = item {
            println!("{table}");
        }
    }
    to.map_or(Ok(()), |path| paper::write(path, items))
}

/// Table 1a.
fn calls(counts: &Counts) -> Table {
    let about = About {
        finding: "Nearly all calls moved data, and only the pings did not: attributes, names, contents. That is so \
                  by construction here, because the mix is the paper's; what the client makes of it is counted."
            .into(),
        changed: "not a department's days, but a client that does what gives its calls their shares; NFS version 3 \
                  over TCP instead of version 2 over UDP. The client gets a directory's attributes with its names."
            .into(),
        ..About::new("Table 1a", "Summary of NFS RPC activity")
    };
    let mut table = Table::new(about, &["activity"]).with("1994", Whose::Paper, &["calls", "%"]).with(
        "now",
        Whose::Now,
        &["calls", "%"],
    );
    let total: u64 = counts.values().map(|calls| calls.calls).sum();
    let percent = |calls: u64| Entry::figure(calls as f64 / total.max(1) as f64 * 100.0);
    for row in &ROWS {
        let calls = of(counts, row).calls;
        table.line([
            Entry::name(row.name),
            whole(row.calls),
            Entry::printed(row.percent),
            whole(calls),
            percent(calls),
        ]);
    }
    table.line([Entry::name("Total"), whole(TOTAL.0), Entry::printed(100.0), whole(total), percent(total)]);
    table
}

/// Table 1b.
fn bytes(counts: &Counts) -> Table {
    let about = About {
        finding: "Control was an eighth of all traffic, and for calls that move little, such as reading a link, \
                  several times the data. Today's headers are longer: credentials, handles of up to 64 bytes, and \
                  attributes with every reply."
            .into(),
        changed: "data are contents, attributes, names and links' texts; control is all else in calls and replies. \
                  The paper's megabytes are of several days, ours of the calls above, so shares are compared: the \
                  bytes for a call"
            .into(),
        ..About::new("Table 1b", "Breakdown of NFS RPC traffic")
    };
    let mut table = Table::new(about, &["activity"])
        .with("1994", Whose::Paper, &["control, MB", "data, MB", "control/data", "control, bytes a call"])
        .with("now", Whose::Now, &["control, MB", "data, MB", "control/data", "control, bytes a call"]);
    let mut all = Calls::default();
    for row in &ROWS {
        let Some((control, data)) = row.traffic else { continue };
        let calls = of(counts, row);
        all = sum(all, calls);
        let mut line = vec![Entry::name(row.name)];
        line.extend(old(control, data, Some(row.calls)));
        line.extend(new(calls));
        table.line(line);
    }
    let mut line = vec![Entry::name("Overall Total")];
    line.extend(old(TOTAL.1, TOTAL.2, None));
    line.extend(new(all));
    table.line(line);
    table
}

fn old(control: f64, data: f64, calls: Option<u64>) -> [Entry; 4] {
    let each = calls.map(|calls| Entry::figure(control * 1e6 / calls as f64));
    [
        Entry::printed(control),
        Entry::printed(data),
        Entry { text: format!("{:.2}", control / data), ..Entry::figure(control / data) },
        each.unwrap_or_else(|| Entry::missing("the paper's total leaves calls out")),
    ]
}

fn new(calls: Calls) -> [Entry; 4] {
    let (control, data) = ((calls.bytes - calls.data) as f64, calls.data as f64);
    [
        Entry::figure(control / 1e6),
        Entry::figure(data / 1e6),
        Entry { text: format!("{:.2}", control / data.max(1.0)), ..Entry::figure(control / data.max(1.0)) },
        Entry::figure(control / calls.calls.max(1) as f64),
    ]
}

/// Returns what was counted for a row.
fn of(counts: &Counts, row: &Row) -> Calls {
    let is_other = row.procedures.is_empty();
    let named = |procedure: &u32| ROWS.iter().any(|row| row.procedures.contains(procedure));
    let mine = |procedure: &u32| row.procedures.contains(procedure) || is_other && !named(procedure);
    counts
        .iter()
        .filter(|(procedure, _)| mine(procedure))
        .fold(Calls::default(), |all, (_, one)| sum(all, *one))
}

fn sum(one: Calls, other: Calls) -> Calls {
    Calls { calls: one.calls + other.calls, bytes: one.bytes + other.bytes, data: one.data + other.data }
}

fn whole(count: u64) -> Entry {
    Entry { text: count.to_string(), ..Entry::figure(count as f64) }
}

/// Returns the operation of this number: the mix in an order that does not depend on how many there are.
fn drawn(number: usize) -> Operation {
    // By SplitMix64 (Steele, Lea & Flood 2014).
    let mut z = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let all: u32 = MIX.iter().map(|(_, weight)| weight).sum();
    let mut left = ((z ^ z >> 31) % u64::from(all)) as u32;
    for (operation, weight) in MIX {
        if left < weight {
            return operation;
        }
        left -= weight;
    }
    Stat
}

/// Makes the files that are served: some that are opened, a link, and a directory.
fn files() -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    for letter in 'a'..='p' {
        std::fs::write(path(&format!("file-{letter}")), [7; READ_BYTES as usize])?;
    }
    std::os::unix::fs::symlink("to-somewhere", path("link"))?;
    std::fs::create_dir(path("directory"))?;
    for number in 0..ENTRIES {
        std::fs::write(path(&format!("directory/name-of-file-{number:03}")), [])?;
    }
    Ok(directory)
}

/// A client at work.
struct Day {
    client: User,
    ping: TcpStream,
    /// The identifier of the next ping.
    xid: u32,
}

impl Day {
    fn mount(server: SocketAddr) -> Result<Day> {
        let port = server.port();
        let options = format!("nfsport={port}&mountport={port}&dircache=0");
        let client = User::mount(&format!("nfs://127.0.0.1/exported/?{options}"))?;
        Ok(Day { client, ping: TcpStream::connect(server)?, xid: 1 << 31 })
    }

    fn make(&mut self, operation: Operation, number: usize) -> Result<()> {
        let file = (number % 16) as u32;
        let name = format!("/file-{}", char::from(b'a' + file as u8));
        match operation {
            Ping => self.ping(),
            Stat => self.client.on_path(OnPath::Stat, &name),
            Fstat => self.client.on_file(OnFile::Stat, file, 0),
            Readlink => self.client.on_path(OnPath::Readlink, "/link"),
            Readdir => self.client.on_path(OnPath::Readdir, "/directory"),
            Statvfs => self.client.on_path(OnPath::Statvfs, "/"),
            Read => self.client.on_file(OnFile::Read, file, READ_BYTES),
            Write => self.client.on_file(OnFile::Write, file, WRITE_BYTES),
            Access => self.client.on_path(OnPath::Access, &name),
        }
    }

    /// Calls the null procedure, as clients do that ask whether a server lives. (Libnfs has no operation for
    /// it.)
    fn ping(&mut self) -> Result<()> {
        let (program, version) = (<dyn NfsV3>::PROGRAM, <dyn NfsV3>::VERSION);
        let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        let call = Call { xid: self.xid, program, version, procedure: traffic::NULL, credential, verifier };
        self.xid += 1;
        let mut message = Vec::new();
        let at = record::begin(&mut message);
        call.write(&mut message);
        record::end(&mut message, at)?;
        self.ping.write_all(&message)?;
        let mut mark = [0; 4];
        self.ping.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        ensure!(length <= 1024, "an answer to a ping has {length} bytes");
        self.ping.read_exact(&mut vec![0; length as usize])?;
        Ok(())
    }
}
