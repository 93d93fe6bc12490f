//! Bulk: bytes of files, as results and arguments.
#![allow(missing_docs)]

#[path = "common/lossy.rs"]
mod lossy;

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use farcall::multi::{Fixed, Next, Outcome, Prepared};
use farcall::{Bulk, CallFailed, Export, Group, Kind, Ran, Result, Until};

#[farcall::interface]
pub trait Files {
    /// Returns the bytes of the file from an offset on, at most so many.
    fn fetch(&self, offset: u64, quota: u64) -> Result<Bulk>;
    /// Keeps the content, and returns its length.
    fn store(&self, quota: u64, content: Bulk) -> Result<u64>;
    /// Returns a reader that fails after so many bytes.
    fn broken(&self, after: u64) -> Result<Bulk>;
    /// Returns the bytes of the file from an offset on, and keeps what became of that.
    fn watched(&self, offset: u64, until: u32) -> Result<Bulk>;
    /// Returns the content in capitals.
    fn capitals(&self, content: Bulk) -> Result<Bulk>;
}

struct Server {
    file: tempfile::NamedTempFile,
    kept: Mutex<Vec<u8>>,
    /// How many bytes were handed over in watched transfers, and whether that failed.
    watched: Mutex<mpsc::Sender<(u64, bool)>>,
    seen: Mutex<mpsc::Receiver<(u64, bool)>>,
}

impl Files for Server {
    fn fetch(&self, offset: u64, quota: u64) -> Result<Bulk> {
        let file = self.file.as_file().try_clone().expect("it is there");
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

    fn watched(&self, offset: u64, until: u32) -> Result<Bulk> {
        let file = self.file.reopen().expect("it is there");
        let (watched, refuses) = (self.watched.lock().unwrap().clone(), until == 2);
        let until = if until == 0 { Until::HandedOver } else { Until::Arrived };
        let bulk = Bulk::from_file(file, offset, u64::MAX).expect("a file has positions");
        Ok(bulk.then(until, move |bytes, failed| {
            watched.send((bytes, failed.is_some())).unwrap();
            match refuses {
                true => Err(CallFailed::new(Kind::Local, Ran::Yes)
                    .because("the file is not wanted any more")
                    .into()),
                false => Ok(()),
            }
        }))
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
    let (watched, seen) = mpsc::channel();
    let (watched, seen) = (Mutex::new(watched), Mutex::new(seen));
    Arc::new(Server { file, kept: Mutex::default(), watched, seen })
}

/// Runs a test with a server that is called through the network, through one that loses datagrams, and with
/// one in this process.
fn everywhere(test: impl Fn(&FilesClient, &Server)) {
    let runtime =
        || farcall::Runtime::builder().registry(farcall::names::Memory::new()).open().build().unwrap();
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

/// Clones of a `File` share its cursor.
#[test]
fn transfers_of_one_file_at_once_each_have_their_own_bytes() {
    let all = content();
    everywhere(|files, _| {
        let mut under_way: Vec<_> = (0..8).map(|n| files.fetch(n * 1_000, u64::MAX).unwrap()).collect();
        let mut arrived = vec![Vec::new(); under_way.len()];
        // They are read in turn, a piece of each at a time.
        for piece in [1_000, 500_000, u64::MAX] {
            for (bulk, bytes) in under_way.iter_mut().zip(&mut arrived) {
                Read::take(bulk, piece).read_to_end(bytes).unwrap();
            }
        }
        for (n, bytes) in arrived.iter().enumerate() {
            assert!(*bytes == all[n * 1_000..], "transfer {n}: {} bytes", bytes.len());
        }
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
fn a_server_learns_when_its_bytes_have_been_handed_over_and_when_they_have_arrived() {
    everywhere(|files, server| {
        for (offset, until) in [(0, 0), (0, 1), (3_000_000, 1), (3_000_001, 0), (5_000_000, 1)] {
            let mut bulk = files.watched(offset, until).unwrap();
            let bytes = bulk.copy_to(&mut io::sink(), u64::MAX).done().unwrap();
            assert_eq!(bytes, 3_000_001u64.saturating_sub(offset));
            // It learns it before the reply.
            assert_eq!(server.seen.lock().unwrap().try_recv(), Ok((bytes, false)));
        }
        // What it says then is the outcome of the transfer.
        let copied = files.watched(0, 2).unwrap().copy_to(&mut io::sink(), u64::MAX);
        assert_eq!(copied.bytes, 3_000_001);
        assert!(copied.done().unwrap_err().to_string().contains("not wanted any more"));
        assert_eq!(server.seen.lock().unwrap().recv(), Ok((3_000_001, false)));
        // A client that takes no more breaks the transfer, and the server learns how far it got.
        for until in [0, 1] {
            let mut bulk = files.watched(0, until).unwrap();
            bulk.read_exact(&mut [0; 100]).unwrap();
            drop(bulk);
            let (bytes, failed) = server.seen.lock().unwrap().recv().unwrap();
            assert!(failed && (100..3_000_001).contains(&bytes), "{bytes} {failed}");
        }
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

/// A group, its servers, and what exports them.
type Grouped = (Group<FilesClient, Fixed>, Vec<Arc<Server>>, Vec<Export>);

/// Returns a group of servers that are called through the network, one that finds them when it is called, and
/// one of servers in this process, each with its servers.
fn groups() -> Vec<Grouped> {
    let names = ["a", "b", "c", "d"];
    let registry = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(registry.clone()).build().unwrap();
    let servers: Vec<_> = names.iter().map(|_| server()).collect();
    let export = |(name, server): (&&str, &Arc<Server>)| {
        runtime().export::<dyn Files>(&format!("Files/{name}"), server.clone()).unwrap()
    };
    let exports: Vec<_> = names.iter().zip(&servers).map(export).collect();
    let here = runtime();
    let bound = names.map(|name| (name, here.import::<dyn Files>(&format!("Files/{name}")).unwrap()));
    let unbound = here.import_all::<dyn Files>("Files").unwrap().fixed();
    let locals = names.iter().zip(&servers);
    let locals = locals.map(|(name, server)| (*name, farcall::stub::local::<dyn Files>(server.clone())));
    vec![
        (Group::of(bound), servers.clone(), Vec::new()),
        (unbound, servers.clone(), exports),
        (Group::of(locals), servers.clone(), Vec::new()),
    ]
}

#[test]
fn each_member_of_a_group_gets_its_own_file_or_none() {
    let content = |index: usize| content()[index * 1_000..].to_vec();
    for (group, servers, _exports) in groups() {
        servers.iter().for_each(|server| server.kept.lock().unwrap().clear());
        let stored = group.multi_each(|index, _, files| match index {
            // One transfer fails at its server, and the others do not notice.
            0 => files.store(10, Bulk::from_bytes(content(0))),
            1 => files.store(u64::MAX, Bulk::from_bytes(content(1))),
            2 => Prepared::omitted(),
            _ => files.store(u64::MAX, Bulk::from_bytes("small")),
        });
        let stored = stored.all();
        let outcomes: Vec<_> = stored.iter().map(|(_, outcome)| outcome).collect();
        assert!(
            matches!(outcomes[0], Outcome::Failed(why) if why.to_string().contains("more than 10 bytes")),
            "{stored:?}"
        );
        assert_eq!(
            outcomes[1..],
            [&Outcome::Result(2_999_001), &Outcome::Abandoned(Ran::No), &Outcome::Result(5)]
        );
        let kept = |index: usize| std::mem::take(&mut *servers[index].kept.lock().unwrap());
        assert_eq!(kept(0).len(), 10);
        assert!(kept(1) == content(1) && kept(2).is_empty() && kept(3) == b"small");

        // A reader that fails fails its member alone, and the first success ends the rest.
        let stored = group.multi_each(|index, _, files| match index {
            0 => files.store(u64::MAX, Bulk::from_reader(Broken)),
            1 => files.store(u64::MAX, Bulk::from_bytes(content(1))),
            _ => Prepared::omitted(),
        });
        let (mut failed, mut done) = (0, 0);
        stored.each(|reply| {
            match reply.result {
                Ok(bytes) => done += bytes,
                Err(why) => {
                    assert!(why.to_string().contains("the disk is broken"), "{why}");
                    failed += 1;
                }
            }
            Next::Continue
        });
        assert_eq!((failed, done), (1, 2_999_001));
        let slow = || Bulk::from_reader(io::repeat(1));
        let stored = group.multi_each(|index, _, files| match index {
            0 => files.store(u64::MAX, Bulk::from_bytes("first")),
            _ => files.store(u64::MAX, slow()),
        });
        assert_eq!(stored.first().unwrap().1, 5);
        let stored = group.multi_each(|_, _, files| files.store(u64::MAX, Bulk::from_bytes(content(7))));
        let stored = pollster(stored.start().all());
        assert_eq!(stored.results().map(|(_, bytes)| *bytes).sum::<u64>(), 4 * 2_993_001);
    }
}

/// Runs a future in this thread.
fn pollster<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn what_is_small_rides_on_the_call_and_on_the_result() {
    let runtime =
        || farcall::Runtime::builder().registry(farcall::names::Memory::new()).open().build().unwrap();
    let (here, there, ours) = (runtime(), runtime(), server());
    let export = there.export::<dyn Files>("Files/a", ours.clone()).unwrap();
    let counting = Counting::new(export.address());
    let files = here.import::<dyn Files>(&format!("udp://{}/Files", counting.address)).unwrap();
    let (mut up, mut down) = (u64::MAX, u64::MAX);
    // A machine that stalls may have datagrams repeated, but not those of every call.
    for _ in 0..20 {
        let before = counting.counts.back.load(SeqCst);
        let mut bytes = Vec::new();
        files.fetch(2_999_501, 500).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == content()[2_999_501..]);
        down = down.min(counting.counts.back.load(SeqCst) - before);

        // The server has what the client said of the call before.
        files.store(0, Bulk::from_bytes("")).unwrap();
        let before = counting.counts.forth.load(SeqCst);
        assert_eq!(files.store(1000, Bulk::from_bytes(vec![1; 500])).unwrap(), 500);
        up = up.min(counting.counts.forth.load(SeqCst) - before);
    }
    assert_eq!((down, up), (1, 1), "datagrams to the client, and to the server");
}

#[test]
fn a_server_sends_again_though_it_hears_nothing_of_its_client() {
    let runtime =
        || farcall::Runtime::builder().registry(farcall::names::Memory::new()).open().build().unwrap();
    let (here, there, ours) = (runtime(), runtime(), server());
    let export = there.export::<dyn Files>("Files/a", ours.clone()).unwrap();
    let counting = Counting::new(export.address());
    let files = here.import::<dyn Files>(&format!("udp://{}/Files", counting.address)).unwrap();
    // From the first bytes that the server sends on, nothing reaches it, until it sends them again.
    counting.counts.deafens.store(true, SeqCst);
    let mut bytes = Vec::new();
    files.fetch(0, u64::MAX).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes == content());
    assert!(counting.counts.beginnings.load(SeqCst) >= 2);
}

/// Forwards datagrams between one client and one server, and counts them.
struct Counting {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    forth: AtomicU64,
    back: AtomicU64,
    /// How often the first bytes of an exchange came from the server.
    beginnings: AtomicU64,
    /// Whether nothing passes to the server between the first of them and the second.
    deafens: AtomicBool,
}

impl Counts {
    fn is_deaf(&self) -> bool {
        self.deafens.load(SeqCst) && self.beginnings.load(SeqCst) == 1
    }
}

fn begins_exchange(datagram: &[u8]) -> bool {
    let dump = farcall_proto::dump::dump(datagram).unwrap();
    dump.frames().iter().any(|frame| frame.starts_with("DATA ") && frame.contains(" bytes from 0"))
}

impl Counting {
    fn new(server: SocketAddr) -> Counting {
        let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (front, behind) = (bind(), bind());
        behind.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let client = Arc::new(OnceLock::new());
        let (from, to, known, counted) = (front.clone(), behind.clone(), client.clone(), counts.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok((len, sender)) = from.recv_from(&mut buffer) {
                known.get_or_init(|| sender);
                counted.forth.fetch_add(1, SeqCst);
                if !counted.is_deaf() {
                    let _ = to.send(&buffer[..len]);
                }
            }
        });
        let counted = counts.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(len) = behind.recv(&mut buffer) {
                counted.back.fetch_add(1, SeqCst);
                counted.beginnings.fetch_add(u64::from(begins_exchange(&buffer[..len])), SeqCst);
                let _ = front.send_to(&buffer[..len], client.get().unwrap());
            }
        });
        Counting { address, counts }
    }
}
