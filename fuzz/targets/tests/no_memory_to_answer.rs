//! A server that has no memory for a reply, a signal or its answer fails that call, and serves the next one.
//! An allocation that cannot fail would abort this test's process.

#[path = "bounded/allocator.rs"]
mod allocator;

use std::sync::Arc;

use allocator::{refuse_from_here, refusing};
use farcall::{Answer, CallFailed, Kind, Ran, Result, Runtime, Stream, names};

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// The largest allocation that a test grants.
const LARGEST: usize = 1 << 20;

/// More bytes than are granted.
const MANY: u32 = 3 << 20;

#[farcall::interface(program = 0x2000_0078, version = 1)]
trait Pages {
    /// Returns so many bytes. If `refused`, there is no memory for the reply.
    #[procedure(1)]
    fn text(&self, bytes: u32, refused: bool) -> Result<String>;
    /// The same, in many small parts.
    #[procedure(2)]
    fn numbers(&self, count: u32, refused: bool) -> Result<Vec<(u32, bool)>>;
}

#[farcall::interface]
trait Asks {
    /// Shows the caller so many bytes, and returns how many its answer has. If `refused`, there is no memory
    /// for the signal.
    fn ask(&self, bytes: u32, refused: bool) -> Result<u32>;
    /// Returns a stream of one item of so many bytes.
    fn item(&self, bytes: u32) -> Result<Stream<Vec<u8>>>;
    #[signal]
    fn shown(&self, bytes: &[u8]) -> Vec<u8>;
}

struct Server;

/// Refuses large allocations of this thread, or grants them again.
fn refuse(refused: bool) {
    refuse_from_here(if refused { LARGEST } else { usize::MAX });
}

impl Pages for Server {
    fn text(&self, bytes: u32, refused: bool) -> Result<String> {
        refuse(false);
        let text = "a".repeat(bytes as usize);
        refuse(refused);
        Ok(text)
    }

    fn numbers(&self, count: u32, refused: bool) -> Result<Vec<(u32, bool)>> {
        refuse(false);
        let numbers = (0..count).map(|number| (number, true)).collect();
        refuse(refused);
        Ok(numbers)
    }
}

impl Asks for Server {
    fn ask(&self, bytes: u32, refused: bool) -> Result<u32> {
        refuse(false);
        let bytes = vec![7; bytes as usize];
        refuse(refused);
        let answer = AsksSignals::shown(&bytes);
        refuse(false);
        Ok(answer?.len() as u32)
    }

    fn item(&self, bytes: u32) -> Result<Stream<Vec<u8>>> {
        refuse(false);
        Ok(Stream::of([vec![7; bytes as usize]]))
    }
}

#[test]
fn an_item_of_a_stream_is_an_error() {
    let (server, client) = (runtime(), runtime());
    let export = server.export::<dyn Asks>("Asks", Arc::new(Server)).unwrap();
    let asks = client.import::<dyn Asks>(&export.url()).unwrap();
    let mut items = asks.item(MANY).unwrap();
    let why = CallFailed::from(refusing(LARGEST, || items.next()).unwrap().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::Yes), "{why}");
    assert!(items.next().is_none());
    assert_eq!(
        asks.item(MANY).unwrap().next().unwrap().unwrap().len(),
        MANY as usize,
        "with memory it goes well"
    );
}

/// Answers a signal with as many bytes as it had.
struct Echoes;

impl AsksHandler for Echoes {
    fn shown(&self, _: AsksRaiser, bytes: &[u8]) -> Answer<Vec<u8>> {
        Answer::Resume(bytes.to_vec())
    }
}

fn runtime() -> Runtime {
    Runtime::builder().registry(names::Memory::new()).build().unwrap()
}

/// Checks that a server fails the calls whose reply it has no memory for, and no others.
fn fails_without_memory(pages: &PagesClient, how: (Kind, Ran)) {
    let (many, numbers) = (MANY, MANY / 8);
    assert_eq!(pages.text(5, false).unwrap(), "aaaaa");
    for why in [
        pages.text(many, true).map(drop).map_err(CallFailed::from).unwrap_err(),
        pages.numbers(numbers, true).map(drop).map_err(CallFailed::from).unwrap_err(),
    ] {
        assert_eq!((why.kind(), why.ran()), how, "{why}");
    }
    assert_eq!(pages.text(many, false).unwrap().len(), many as usize, "with memory it goes well");
    assert_eq!(pages.numbers(numbers, false).unwrap().len(), numbers as usize);
}

#[test]
fn a_reply_fails_its_call() {
    let (server, client) = (runtime(), runtime());
    let export = server.export::<dyn Pages>("Pages", Arc::new(Server)).unwrap();
    for carrier in ["udp:", "shm:"] {
        let pages = client.import::<dyn Pages>(&export.url().replace("udp:", carrier)).unwrap();
        fails_without_memory(&pages, (Kind::BadResult, Ran::Yes));
    }
}

#[test]
fn a_reply_of_onc_rpc_fails_its_call() {
    let path = format!("{}/no-memory-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let server = farcall_onc::Server::builder().program::<dyn Pages>(Arc::new(Server));
    let server = server.unix(&path).address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let tcp = format!("tcp://{}", server.tcp().unwrap());
    for address in [tcp, format!("unix:{path}")] {
        let pages = farcall_onc::import::<dyn Pages>(&address).unwrap();
        // `SYSTEM_ERR` does not say whether the procedure ran (RFC 5531 section 9).
        fails_without_memory(&pages, (Kind::Other, Ran::Maybe));
    }
}

#[test]
fn a_signal_or_its_answer_fails_its_call() {
    let (server, client) = (runtime(), runtime());
    let export = server.export::<dyn Asks>("Asks", Arc::new(Server)).unwrap();
    let asks = client.import::<dyn Asks>(&export.url()).unwrap().catching(Echoes);
    assert_eq!(asks.ask(5, false).unwrap(), 5);
    let why = CallFailed::from(asks.ask(MANY, true).unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::Nested, Ran::Yes), "{why}");
    assert!(why.to_string().contains("no memory for"), "{why}");
    let why = CallFailed::from(refusing(LARGEST, || asks.ask(MANY, false)).unwrap_err());
    // No handler has answered the procedure.
    assert_eq!((why.kind(), why.ran()), (Kind::Nested, Ran::Yes), "{why}");
    assert_eq!(asks.ask(MANY, false).unwrap(), MANY, "with memory it goes well");
}
