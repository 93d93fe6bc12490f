//! Each large allocation of a call fails once, at whichever end and in whichever thread it is made: the call
//! fails or succeeds, the process goes on, and the next call goes well. An allocation that cannot fail would
//! abort this test's process, and say where it was made.

#[path = "no_memory_in_turn/allocator.rs"]
mod allocator;

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use allocator::{Refusal, excepted};
use farcall::memory::{Memory, Rights, Settings};
use farcall::{Answer, Bytes, Result, Runtime, Stream, names};

#[global_allocator]
static ALLOCATOR: allocator::Failing = allocator::Failing;

/// One test at a time, because allocations of all threads count.
static TURN: Mutex<()> = Mutex::new(());

/// Many more bytes than an allocation must have to be refused.
const MANY: usize = 3 << 19;

/// The most allocations of one call that are refused in turn.
const MOST: u64 = 40;

/// A call that hangs fails.
const WITHIN: Duration = Duration::from_secs(60);

#[farcall::interface(program = 0x2000_0079, version = 1)]
trait Pages {
    #[procedure(1)]
    fn bytes(&self, bytes: &[u8]) -> Result<Vec<u8>>;
    #[procedure(2)]
    fn texts(&self, texts: Vec<String>) -> Result<Vec<String>>;
    #[procedure(3)]
    fn shared(&self, bytes: Bytes) -> Result<Bytes>;
}

#[farcall::interface]
trait Asks {
    fn ask(&self, bytes: &[u8]) -> Result<u32>;
    fn item(&self, bytes: u32) -> Result<Stream<Vec<u8>>>;
    fn total(&self, items: Stream<Vec<u8>>) -> Result<u32>;
    #[signal]
    fn shown(&self, bytes: &[u8]) -> Vec<u8>;
}

#[farcall::interface(program = 1000, version = 1)]
trait Lists {
    #[procedure(1)]
    fn lists(&self, lists: Vec<Vec<u16>>) -> Result<Vec<Vec<u16>>>;
}

struct Server;

impl Pages for Server {
    fn bytes(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(excepted(|| bytes.to_vec()))
    }

    fn texts(&self, texts: Vec<String>) -> Result<Vec<String>> {
        Ok(texts)
    }

    fn shared(&self, bytes: Bytes) -> Result<Bytes> {
        Ok(bytes)
    }
}

impl Asks for Server {
    fn ask(&self, bytes: &[u8]) -> Result<u32> {
        Ok(AsksSignals::shown(bytes)?.len() as u32)
    }

    fn item(&self, bytes: u32) -> Result<Stream<Vec<u8>>> {
        Ok(excepted(|| Stream::of([vec![7; bytes as usize]])))
    }

    fn total(&self, items: Stream<Vec<u8>>) -> Result<u32> {
        let mut total = 0;
        for item in items {
            total += item?.len() as u32;
        }
        Ok(total)
    }
}

impl Lists for Server {
    fn lists(&self, lists: Vec<Vec<u16>>) -> Result<Vec<Vec<u16>>> {
        Ok(lists)
    }
}

/// Answers a signal with as many bytes as it had.
struct Echoes;

impl AsksHandler for Echoes {
    fn shown(&self, _: AsksRaiser, bytes: &[u8]) -> Answer<Vec<u8>> {
        Answer::Resume(excepted(|| bytes.to_vec()))
    }
}

/// Makes a call again and again, each time with another allocation that fails, until all went well.
fn in_turn<T, E: Display>(call: impl Fn() -> std::result::Result<T, E>) {
    let well = |when: &str| drop(call().map_err(|why| panic!("{when}: {why}")));
    well("with memory");
    for refused in 1..=MOST {
        let refusal = Refusal::of(refused);
        let outcome = call();
        let all = refusal.end();
        if all < refused {
            return drop(outcome.map_err(|why| panic!("nothing was refused: {why}")));
        }
        drop(outcome);
        well("with memory again");
    }
}

fn pages(pages: &PagesClient) {
    let (bytes, text) = (vec![7; MANY], "a".repeat(30));
    in_turn(|| pages.bytes(&bytes));
    in_turn(|| pages.texts(excepted(|| vec![text.clone(); MANY / 36])));
    let shared = Bytes::from(bytes.clone());
    in_turn(|| pages.shared(shared.clone()));
    in_turn(|| pages.start().bytes(&bytes).wait());
}

fn runtime(shares: bool) -> Runtime {
    Runtime::builder().registry(names::Memory::new()).shared_memory(shares).build().unwrap()
}

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn of_calls_by_datagrams_through_memory_and_in_one_process() {
    let _turn = turn();
    let (server, client) = (runtime(true), runtime(true));
    let export = server.export::<dyn Pages>("Pages", Arc::new(Server)).unwrap();
    for carrier in ["udp:", "shm:"] {
        pages(&client.import::<dyn Pages>(&export.url().replace("udp:", carrier)).unwrap().within(WITHIN));
    }
    pages(&server.import::<dyn Pages>(&export.url()).unwrap().within(WITHIN));
}

#[test]
fn of_signals_and_streams() {
    let _turn = turn();
    let (server, client) = (runtime(true), runtime(true));
    let export = server.export::<dyn Asks>("Asks", Arc::new(Server)).unwrap();
    let asks = client.import::<dyn Asks>(&export.url()).unwrap().within(WITHIN).catching(Echoes);
    let bytes = vec![7; MANY];
    in_turn(|| asks.ask(&bytes));
    in_turn(|| asks.item(MANY as u32)?.next().expect("an item"));
    in_turn(|| asks.total(excepted(|| Stream::of([bytes.clone()]))));
}

#[test]
fn of_accesses_to_memory() {
    let _turn = turn();
    let server = runtime(true);
    let segment = server.export_segment("Long", Settings::new(2 * MANY).anyone(Rights::ALL)).unwrap();
    for shares in [false, true] {
        let remote = runtime(shares).import_segment(&segment.url()).unwrap().within(WITHIN);
        let bytes = vec![7; MANY];
        in_turn(|| remote.write(8, &bytes));
        in_turn(|| remote.read(8, &mut excepted(|| vec![0; MANY])));
        in_turn(|| {
            remote
                .post(8, &bytes)
                .map_err(drop)
                .and_then(|()| remote.flush().map_err(drop))
                .map_err(|()| "posted")
        });
        in_turn(|| remote.start_read(8, 1 << 20).wait());
        in_turn(|| remote.start_write(8, &bytes[..1 << 20]).wait());
    }
}

#[test]
fn of_calls_of_onc_rpc() {
    let _turn = turn();
    let path = format!("{}/in-turn-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let server = farcall_onc::Server::builder().program::<dyn Pages>(Arc::new(Server));
    let server = server.unix(&path).address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let tcp = format!("tcp://{}", server.tcp().unwrap());
    for address in [tcp, format!("unix:{path}")] {
        pages(&farcall_onc::import::<dyn Pages>(&address).unwrap().within(WITHIN));
    }
}

#[test]
fn of_calls_of_courier() {
    let _turn = turn();
    let here = "127.0.0.1:0".parse().unwrap();
    let lists = vec![vec![7_u16; 20_000]; 20];
    let server = farcall_courier::Server::builder().program::<dyn Lists>(Arc::new(Server)).tcp(here);
    let server = server.start().unwrap();
    let client = farcall_courier::import::<dyn Lists>(&format!("tcp://{}", server.addresses()[0])).unwrap();
    let client = client.within(WITHIN);
    in_turn(|| client.lists(excepted(|| lists.clone())));
    in_turn(|| client.start().lists(excepted(|| lists.clone())).wait());
}
