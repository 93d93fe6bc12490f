//! A client that keeps to no rule of what passes inside calls, at a real server's socket. Honest clients call
//! the same server.
#![allow(missing_docs)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall::{Answer, Result, Runtime, Stream};
use farcall_proto::client::{Call, CallId, Conversation, Event};
use farcall_proto::fuzzing::kinds::{CREDIT, DATA, STOP};
use farcall_proto::{ClientConfig, Time, fuzzing};

#[farcall::interface]
pub trait Ledger {
    /// Sends numbers without end.
    #[procedure(1)]
    fn numbers(&self) -> Result<Stream<u64>>;
    /// Adds the numbers.
    #[procedure(2)]
    fn sum(&self, numbers: Stream<u64>) -> Result<u64>;
    /// Raises the signal that often, and returns the sum of the answers.
    #[procedure(3)]
    fn ask(&self, times: u32) -> Result<u64>;
    #[signal]
    fn which(&self, time: u32) -> u64;
}

#[derive(Default)]
struct Server {
    /// Numbers that were made for streams, and signals that were resumed.
    made: Arc<AtomicU64>,
    resumed: AtomicU64,
}

impl Ledger for Server {
    fn numbers(&self) -> Result<Stream<u64>> {
        let made = self.made.clone();
        Ok(Stream::of((0..).inspect(move |_| {
            made.fetch_add(1, Ordering::SeqCst);
        })))
    }

    fn sum(&self, numbers: Stream<u64>) -> Result<u64> {
        let mut sum = 0;
        for number in numbers {
            sum += number?;
        }
        Ok(sum)
    }

    fn ask(&self, times: u32) -> Result<u64> {
        let mut sum = 0;
        for time in 0..times {
            sum += LedgerSignals::which(time)?;
            self.resumed.fetch_add(1, Ordering::SeqCst);
        }
        Ok(sum)
    }
}

struct Doubles;

impl LedgerHandler for Doubles {
    fn which(&self, _: LedgerRaiser, time: u32) -> Answer<u64> {
        Answer::Resume(2 * u64::from(time))
    }
}

/// A client that sends whatever the test wants.
struct Stranger {
    socket: UdpSocket,
    conversation: Conversation,
    export: u64,
    /// The server's identifier of the conversation.
    id: u64,
    number: u64,
    began: Instant,
}

impl Stranger {
    /// Makes a client that the server knows.
    fn new(address: SocketAddr) -> Stranger {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        // What is lost is sent again by the conversation's timer.
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let config = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
        let conversation = Conversation::new(config, 7);
        let mut stranger =
            Stranger { socket, conversation, export: 0, id: 0, number: 1 << 40, began: Instant::now() };
        stranger.conversation.bind(stranger.now(), "Ledger", 1);
        let mut export = None;
        while export.is_none() {
            stranger.transmit();
            stranger.receive(&mut |event| {
                if let Event::Bound { answer, .. } = event {
                    export = answer.ok().map(|bound| bound.export);
                }
            });
        }
        stranger.export = export.unwrap();
        stranger
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn transmit(&mut self) {
        let now = self.now();
        let out = &mut [0; 2048];
        while let Some(len) = self.conversation.transmit(now, out) {
            self.id = u64::from_be_bytes(out[4..12].try_into().unwrap());
            self.socket.send(&out[..len]).unwrap();
        }
    }

    /// Receives one datagram, or acts on the conversation's timer.
    fn receive(&mut self, sink: &mut dyn FnMut(Event<'_>)) {
        let datagram = &mut [0; 2048];
        let received = self.socket.recv(datagram);
        let now = self.now();
        match received {
            Ok(len) => self.conversation.receive(now, &datagram[..len], sink),
            Err(_) => self.conversation.handle_timeout(now, sink),
        };
        self.transmit();
    }

    fn start(&mut self, procedure: u32, args: &[u32]) -> CallId {
        let call = Call { export: self.export, procedure, deadline: None, trace: None, token: 1 };
        let now = self.now();
        let id = self
            .conversation
            .start(|| now, &call, &mut args.iter().flat_map(|word| word.to_be_bytes()).collect())
            .unwrap();
        self.transmit();
        id
    }

    /// Starts a call, and waits for the first thing that passes inside it.
    fn talk(&mut self, procedure: u32, args: &[u32]) -> (CallId, u32) {
        let call = self.start(procedure, args);
        loop {
            self.receive(&mut |event| {
                if let Event::Ended { id, outcome, .. } = event {
                    assert_ne!(id, call, "the call ended: {outcome:?}");
                }
            });
            while let Some((id, _, exchange, _)) = self.conversation.next_news() {
                if id == call {
                    return (call, exchange);
                }
            }
        }
    }

    /// Sends one frame about an exchange, which the conversation knows nothing of.
    fn forge(&mut self, kind: u8, flags: u8, (id, exchange): (CallId, u32), words: &[u32]) {
        let position = [id.activity, exchange, (id.sequence >> 32) as u32, id.sequence as u32];
        let body: Vec<u8> = position.iter().chain(words).flat_map(|word| word.to_be_bytes()).collect();
        let mut frame = vec![kind, flags];
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend(body);
        self.number += 1;
        self.socket.send(&fuzzing::seal(self.id, self.number, &frame)).unwrap();
    }
}

/// Checks that signals and streams of arguments pass in an honest client's calls.
fn goes_on(ledger: &LedgerClient) {
    for times in 0..20 {
        let sum: u32 = (0..times).map(|time| 2 * time).sum();
        assert_eq!(ledger.catching(Doubles).ask(times).unwrap(), u64::from(sum));
        assert_eq!(ledger.sum(Stream::of(0..5_000)).unwrap(), 12_497_500);
    }
}

#[test]
fn a_client_that_keeps_to_no_rule_of_exchanges_harms_nobody_else() {
    let runtime = || {
        Runtime::builder()
            .registry(farcall::names::Memory::new())
            .shared_memory(false)
            .open()
            .build()
            .unwrap()
    };
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Server::default());
    let export = there.export::<dyn Ledger>("Ledger", server.clone()).unwrap();
    let ledger = here.import::<dyn Ledger>(&export.url()).unwrap();
    let mut stranger = Stranger::new(export.address());
    // Streams that it never reads, and whose credit it takes back.
    let streams: Vec<_> = (0..16).map(|_| stranger.talk(1, &[])).collect();
    for stream in &streams {
        stranger.forge(CREDIT, 0, *stream, &[0, 0, 0, 20_000, 0, 0]);
        stranger.forge(CREDIT, 0, *stream, &[0, 0, 0, 0, 0, 0]);
    }
    // An argument of which it sends more than it may, in exchanges without number.
    let sum = stranger.start(2, &[1]);
    for exchange in 1..300 {
        for offset in (0..24_000).step_by(1_000) {
            stranger.forge(DATA, 4, (sum, exchange), &[&[0, offset][..], &[7; 250]].concat());
        }
    }
    // Signals that it answers twice: it resumes, then unwinds, and then goes on.
    for _ in 0..8 {
        let signal = stranger.talk(3, &[1_000]);
        for answer in [&[0, 0, 7][..], &[0, 0, 8], &[1], &[0, 0, 9], &[2, 2, 2, 2]] {
            stranger.forge(DATA, 3, signal, &[&[0, 0], answer].concat());
        }
        stranger.forge(STOP, 0, signal, &[1]);
        stranger.forge(STOP, 0, (signal.0, signal.1 + 2), &[1]);
        stranger.forge(DATA, 3, (signal.0, signal.1 + 4), &[0, 0, 0, 0, 5]);
    }
    goes_on(&ledger);
    // A number has 12 bytes in a stream. The server made as many as the stranger once gave credit for, and
    // those that its thread collects before it waits: 32 KiB.
    let made = server.made.load(Ordering::SeqCst);
    assert!(made <= 16 * (20_000 + 32_768 + 12) / 12, "{made} numbers");
    let resumed = server.resumed.load(Ordering::SeqCst);
    assert!((190..=190 + 8).contains(&resumed), "{resumed} signals: each answered once");
    for _ in 0..20 {
        let numbers: Result<Vec<u64>> = ledger.numbers().unwrap().take(5_000).collect();
        assert!(numbers.unwrap().into_iter().eq(0..5_000));
    }
}
