//! One end of a proof that memory means the same at machines of either byte order (Thekkath, Levy & Lazowska
//! 1994, section 3.6). Both ends run this; `tests/byte_orders.rs` runs one of them emulated where it can.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::net::SocketAddr;

use farcall::memory::clerk::{self, Clerk};
use farcall::memory::{
    Counters, Memory, Notify, Record, Remote, Rights, Ring, Segment, Settings, Word, Writer,
};
use farcall::{Export, Runtime};

/// An interface whose calls the server's counters count.
#[farcall::interface]
pub trait Echo {
    /// Returns the number.
    fn echo(&self, number: u64) -> farcall::Result<u64>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, number: u64) -> farcall::Result<u64> {
        Ok(number)
    }
}

/// What an end exports, for the other end to check.
pub struct End {
    runtime: Runtime,
    segment: Segment,
    clerk: Clerk,
    echo: Export,
}

/// Why a check failed.
pub type Failure = Box<dyn std::error::Error>;

const WORD: u64 = 0x0102_0304_0506_0708;
/// The offsets in the segment.
const BYTES: u64 = 8;
const RAGGED: u64 = 19;
const COUNT: u64 = 32;
const SWAPPED: u64 = 40;
const WRITTEN: u64 = 48;
const RECORD: u64 = 64;
const RING: u64 = 1024;
const SIZE: usize = 4096;

const TEXT: &[u8] = b"a record whose length is no multiple of eight";
const MESSAGES: u64 = 10;
const CALLS: u64 = 3;

impl End {
    /// Exports a segment, counters, and a clerk that knows the segment.
    ///
    /// # Errors
    /// When something cannot be exported.
    pub fn new() -> Result<End, Failure> {
        let registry = farcall::names::Memory::new();
        let runtime = Runtime::builder().registry(registry).shared_memory(false).build()?;
        let clerk = Clerk::start(&runtime, clerk::Settings::default())?;
        let settings = Settings::new(SIZE).anyone(Rights::ALL).notify(Notify::Asked);
        let segment = runtime.export_segment("Words", settings)?;
        segment.store(0, WORD)?;
        segment.write(BYTES, b"12345678")?;
        segment.write(RAGGED, b"ragged words")?;
        record(&segment)?.writer()?.write(TEXT)?;
        let echo = runtime.export::<dyn Echo>("Echo", std::sync::Arc::new(Server))?;
        Ok(End { runtime, segment, clerk, echo })
    }

    /// Returns the addresses of the clerk and of the interface, as the other end needs them.
    pub fn addresses(&self) -> String {
        format!("{} {}", self.clerk.address(), self.echo.url())
    }

    /// Checks what the other end exports, and changes it.
    ///
    /// # Errors
    /// When an access fails, or another value is found than was written.
    pub fn check(&self, addresses: &str) -> Result<(), Failure> {
        let (clerk, echo) = addresses.trim().split_once(' ').ok_or("two addresses were expected")?;
        let clerk: SocketAddr = clerk.parse()?;
        let remote = self.runtime.import_segment_at("Words", clerk)?;
        let asked = self.clerk.look_up_asking("Words", clerk)?;
        same("what the clerk answers", asked.generation(), remote.generation())?;
        self.check_words(&remote)?;
        check_records(&remote)?;
        self.check_counters(echo)
    }

    fn check_words(&self, remote: &Remote) -> Result<(), Failure> {
        same("a word", remote.load(0)?, WORD)?;
        let mut bytes = [0; 8];
        remote.read(0, &mut bytes)?;
        same("a word's bytes", u64::from_le_bytes(bytes), WORD)?;
        let (mut whole, mut ragged) = ([0; 8], [0; 12]);
        remote.read_each(&mut [(BYTES, &mut whole), (RAGGED, &mut ragged)])?;
        same("bytes", (&whole, &ragged), (b"12345678", b"ragged words"))?;
        same("bytes as a word", remote.load(BYTES)?, u64::from_le_bytes(*b"12345678"))?;
        let count = Word::new(remote, COUNT)?;
        for _ in 0..10 {
            count.fetch_add(1 << 40 | 1)?;
        }
        same("a swap", remote.compare_and_swap(SWAPPED, 0, WORD)?, 0)?;
        same("a swap in vain", remote.compare_and_swap(SWAPPED, 0, 1)?, WORD)?;
        remote.post(WRITTEN, b"post")?;
        remote.write_notify(WRITTEN + 4, b"note")?;
        remote.flush()?;

        let here = self.runtime.export_segment("Here", Settings::new(64))?;
        let whole = remote.start_read_into(0, 16, &here, 8, false);
        let swapped = remote.start_compare_and_swap_into(SWAPPED, (WORD, WORD + 1), &here, 32, false);
        whole.wait()?;
        swapped.wait()?;
        same("deposited words", (here.load(8)?, here.load(32)?), (WORD, WORD))?;
        Ok(())
    }

    fn check_counters(&self, echo: &str) -> Result<(), Failure> {
        let client: EchoClient = self.runtime.import::<dyn Echo>(echo)?;
        for _ in 0..CALLS {
            same("an echo", client.echo(WORD)?, WORD)?;
        }
        let address = echo.trim_start_matches("udp://").split('/').next().unwrap_or_default();
        let counters = Counters::import(&self.runtime, address.parse()?)?;
        // A call's result leaves before the call is counted.
        for _ in 0..1_000 {
            let serving = counters.read()?;
            let echo = serving.exports.iter().find(|export| export.name.starts_with("Echo"));
            let procedure = echo.and_then(|echo| echo.procedures.first());
            if procedure.is_some_and(|echo| (echo.results, echo.ran.count()) == (CALLS, CALLS)) {
                return Ok(());
            }
        }
        Err("the counters do not show the calls".into())
    }

    /// Checks what the other end has changed here.
    ///
    /// # Errors
    /// When another value is found than the other end has written.
    pub fn check_changes(&self) -> Result<(), Failure> {
        same("the count", self.segment.load(COUNT)?, 10 << 40 | 10)?;
        same("the swapped word", self.segment.load(SWAPPED)?, WORD + 1)?;
        let mut written = [0; 8];
        self.segment.read(WRITTEN, &mut written)?;
        same("what was posted and written", &written, b"postnote")?;
        let notice = self.segment.try_notice().ok_or("no notice of the write")?;
        same("the notice", (notice.offset, notice.len), (WRITTEN + 4, 4))?;
        let mut consumer = ring().consumer(&self.segment)?;
        let mut message = Vec::new();
        for i in 0..MESSAGES {
            same("a message's presence", consumer.take(&mut message)?, true)?;
            same("a message", &message[..], format!("message {i}").as_bytes())?;
        }
        same("a further message", consumer.take(&mut message)?, false)
    }
}

fn record<M: Memory>(memory: M) -> Result<Record<M>, Failure> {
    Ok(Record::new(memory, RECORD, TEXT.len())?)
}

fn ring() -> Ring {
    Ring::new(RING, 16, 100)
}

/// Reads and writes the other end's record, and puts messages into its ring.
fn check_records(remote: &Remote) -> Result<(), Failure> {
    let mut text = [0; TEXT.len()];
    let first = record(remote)?.read(&mut text)?;
    same("the record", &text[..], TEXT)?;
    let mut writer: Writer<&Remote> = record(remote)?.writer()?;
    writer.write(&TEXT.to_ascii_uppercase())?;
    same("the record's version", record(remote)?.read(&mut text)? > first, true)?;
    same("the written record", &text[..], &TEXT.to_ascii_uppercase()[..])?;
    let mut producer = ring().producer(remote)?;
    for i in 0..MESSAGES {
        same("room in the ring", producer.put(format!("message {i}").as_bytes())?, true)?;
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}").into()) }
}
