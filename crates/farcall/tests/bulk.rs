//! Bulk: bytes of files, as results and arguments.
#![allow(missing_docs)]

#[path = "common/lossy.rs"]
mod lossy;

use std::io::{self, Read, Write as _};
use std::sync::{Arc, Mutex};

use farcall::{Bulk, Kind, Result};

#[farcall::interface]
pub trait Files {
    /// Returns the bytes of the file from an offset on, at most so many.
    fn fetch(&self, offset: u64, quota: u64) -> Result<Bulk>;
    /// Keeps the content, and returns its length.
    fn store(&self, quota: u64, content: Bulk) -> Result<u64>;
    /// Returns a reader that fails after so many bytes.
    fn broken(&self, after: u64) -> Result<Bulk>;
    /// Returns the content in capitals.
    fn capitals(&self, content: Bulk) -> Result<Bulk>;
}

struct Server {
    file: tempfile::NamedTempFile,
    kept: Mutex<Vec<u8>>,
}

impl Files for Server {
    fn fetch(&self, offset: u64, quota: u64) -> Result<Bulk> {
        let file = self.file.reopen().expect("it is there");
        Ok(Bulk::from_file(file, offset, quota).expect("a file has positions"))
    }

    fn store(&self, quota: u64, mut content: Bulk) -> Result<u64> {
        let mut kept = Vec::new();
        let copied = content.copy_to(&mut kept, quota);
        *self.kept.lock().unwrap() = kept;
        copied.done()
    }

    fn broken(&self, after: u64) -> Result<Bulk> {
        Ok(Bulk::from_reader(io::repeat(1).take(after).chain(Broken)))
    }

    fn capitals(&self, content: Bulk) -> Result<Bulk> {
        let capitals = content.map(|chunk| chunk.map(|chunk| chunk.to_ascii_uppercase().into()));
        Ok(Bulk::new(capitals))
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is broken"))
    }
}

fn content() -> Vec<u8> {
    (0..3_000_001u32).map(|n| (n ^ n >> 7) as u8).collect()
}

fn server() -> Arc<Server> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&content()).unwrap();
    Arc::new(Server { file, kept: Mutex::default() })
}

/// Runs a test with a server that is called through the network, through one that loses datagrams, and with
/// one in this process.
fn everywhere(test: impl Fn(&FilesClient, &Server)) {
    let runtime = || farcall::Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
    let (here, there, ours) = (runtime(), runtime(), server());
    let export = there.export::<dyn Files>("Files/a", ours.clone()).unwrap();
    test(&here.import::<dyn Files>(&export.url()).unwrap(), &ours);
    let wire = lossy::wire(export.address());
    test(&here.import::<dyn Files>(&format!("udp://{wire}/Files")).unwrap(), &ours);
    test(&farcall::stub::local::<dyn Files>(ours.clone()), &ours);
}

#[test]
fn a_file_arrives_from_an_offset_on() {
    let all = content();
    everywhere(|files, _| {
        for (offset, quota) in [(0, u64::MAX), (1, 100_000), (2_999_999, 100), (5_000_000, 1)] {
            let mut bytes = Vec::new();
            files.fetch(offset, quota).unwrap().read_to_end(&mut bytes).unwrap();
            let from = all.len().min(offset as usize);
            let len = (all.len() - from).min(usize::try_from(quota).unwrap_or(usize::MAX));
            assert!(bytes == all[from..from + len], "{offset}, {quota}: {} bytes", bytes.len());
        }
        let (mut told, mut sink) = (Vec::new(), Vec::new());
        let copied =
            files.fetch(0, u64::MAX).unwrap().copy_with(&mut sink, u64::MAX, |bytes| told.push(bytes));
        assert_eq!((copied.bytes, sink.len(), told.last()), (3_000_001, 3_000_001, Some(&3_000_001)));
        assert!(told.is_sorted() && told.len() > 10 && copied.failed.is_none());
    });
}

#[test]
fn content_is_stored_up_to_a_quota() {
    let all = content();
    everywhere(|files, server| {
        assert_eq!(files.store(u64::MAX, Bulk::from_bytes(all.clone())).unwrap(), 3_000_001);
        assert!(*server.kept.lock().unwrap() == all);
        assert_eq!(files.store(0, Bulk::from_bytes(Vec::new())).unwrap(), 0);
        let why = files.store(10, Bulk::from_bytes(all.clone())).unwrap_err();
        assert!(why.to_string().contains("more than 10 bytes"), "{why}");
        assert_eq!(server.kept.lock().unwrap().len(), 10);
    });
}

#[test]
fn a_reader_that_fails_fails_its_call_alone_and_tells_how_far_it_got() {
    everywhere(|files, _| {
        let mut sink = Vec::new();
        let copied = files.broken(100_000).unwrap().copy_to(&mut sink, u64::MAX);
        assert_eq!((copied.bytes, sink.len()), (100_000, 100_000));
        let why = copied.done().unwrap_err();
        assert!(why.to_string().contains("the disk is broken"), "{why}");
        // The caller goes on from there.
        let mut rest = Vec::new();
        files.fetch(100_000, u64::MAX).unwrap().read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 2_900_001);
        assert_eq!(why.call_failed().map(farcall::CallFailed::kind), Some(Kind::Nested));
    });
}

#[test]
fn bytes_pass_both_ways_at_once() {
    everywhere(|files, _| {
        let mut bytes = String::new();
        let text = "farcall ".repeat(100_000);
        files.capitals(Bulk::from_bytes(text.clone())).unwrap().read_to_string(&mut bytes).unwrap();
        assert!(bytes == text.to_uppercase());
    });
}
