//! Results of accesses and calls that their callers do not fetch, beside many that are fetched.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use farcall::Runtime;
use farcall::memory::{Counters, Memory, Rights, Segment, Settings};
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::{ClientConfig, READINGS, Time};

const LONG: usize = 1 << 20;
/// The number of readings requested at once: three times what the server holds.
const READS: u64 = 200;

fn runtime() -> Runtime {
    builder().build().unwrap()
}

fn builder() -> farcall::Builder {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(false).open()
}

fn segment(exporter: &Runtime) -> Segment {
    let segment = exporter.export_segment("Long", Settings::new(2 * LONG).anyone(Rights::ALL)).unwrap();
    (0..LONG as u64).step_by(1024).for_each(|at| segment.store(at, at).unwrap());
    segment
}

/// A client that sends whatever the test wants.
struct Stranger {
    socket: UdpSocket,
    conversation: Conversation,
}

impl Stranger {
    fn new(address: SocketAddr) -> Stranger {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        let config = ClientConfig { max_datagram: 1200, ..ClientConfig::default() };
        Stranger { socket, conversation: Conversation::new(config, 7) }
    }

    fn transmit(&mut self) {
        let out = &mut [0; 2048];
        while let Some(len) = self.conversation.transmit(Time::default(), out) {
            self.socket.send(&out[..len]).unwrap();
        }
    }

    /// Receives the next answer: the export's identifier, or eight bytes of a result.
    fn hear(&mut self) -> u64 {
        let (mut told, datagram) = (None, &mut [0; 2048]);
        while told.is_none() {
            self.transmit();
            let len = self.socket.recv(datagram).unwrap();
            self.conversation.receive(Time::default(), &datagram[..len], &mut |event| match event {
                Event::Bound { answer, .. } => told = answer.ok().map(|bound| bound.export),
                Event::Ended { outcome: Outcome::Result(bytes), .. } => {
                    told = bytes.first_chunk().copied().map(u64::from_be_bytes);
                }
                Event::Ended { .. } => {}
            });
        }
        told.unwrap()
    }

    fn start(&mut self, export: u64, procedure: u32, mut args: Vec<u8>) {
        let call = Call { export, procedure, deadline: None, trace: None, token: 1 };
        self.conversation.start(Time::default, &call, &mut args).unwrap();
    }
}

#[test]
fn what_nobody_fetches_is_not_held_without_bound() {
    let exporter = runtime();
    let segment = segment(&exporter);
    let address = segment.url()["udp://".len()..].split('/').next().unwrap().parse().unwrap();
    let mut stranger = Stranger::new(address);
    stranger.conversation.bind(Time::default(), "Memory/Long", 1);
    let export = stranger.hear();
    stranger.start(export, READINGS + 1, Vec::new());
    let generation = stranger.hear();
    let arguments = [generation, 0].map(u64::to_be_bytes).concat();
    let arguments = [arguments, (LONG as u32).to_be_bytes().to_vec()].concat();
    (0..READS).for_each(|_| stranger.start(export, READINGS, arguments.clone()));
    stranger.transmit();

    // The stranger sends nothing more, and the others ask for other results.
    let importer = runtime();
    let remote = importer.import_segment(&segment.url()).unwrap();
    assert_eq!(remote.start_compare_and_swap(8, 0, 5).wait(), Ok(0));
    let held = Counters::import(&importer, address).unwrap().read().unwrap().held_bytes;
    assert!(held <= 66 << 20, "{held}");
    let mut bytes = vec![0; LONG];
    remote.read(0, &mut bytes).unwrap();
    assert_eq!(bytes[1024..1032], 1024_u64.to_le_bytes());
}

#[test]
fn many_long_reads_at_once_are_all_done() {
    let exporter = runtime();
    let segment = segment(&exporter);
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let reads: Vec<_> = (0..READS).map(|n| remote.start_read(8 * n, LONG)).collect();
    let mut there = vec![0; 2 * LONG];
    segment.read(0, &mut there).unwrap();
    for (n, read) in reads.into_iter().enumerate() {
        assert!(read.wait().unwrap() == there[8 * n..][..LONG], "read {n}");
    }
}

#[farcall::interface]
pub trait Library {
    /// Returns how many volumes were requested.
    #[blocking]
    fn asked(&self) -> farcall::Result<u64>;
    #[blocking]
    fn volume(&self, number: u64) -> farcall::Result<Vec<u8>>;
    /// Returns a volume once `readers` callers have asked for it.
    #[blocking]
    fn shared(&self, readers: u64) -> farcall::Result<Vec<u8>>;
}

#[derive(Default)]
struct Shelf(AtomicU64, Mutex<u64>, Condvar);

const VOLUME: usize = 4 << 20;
/// Three times the number of results that one client may have on their way.
const VOLUMES: u64 = 72;
/// A few more volumes than a client may have on their way.
const SHARED: u64 = 30;

impl Library for Shelf {
    fn asked(&self) -> farcall::Result<u64> {
        Ok(self.0.load(Ordering::SeqCst))
    }

    fn volume(&self, number: u64) -> farcall::Result<Vec<u8>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(vec![number as u8; VOLUME])
    }

    fn shared(&self, readers: u64) -> farcall::Result<Vec<u8>> {
        let Shelf(_, waiting, all) = self;
        let mut waiting = waiting.lock().unwrap();
        *waiting += 1;
        all.notify_all();
        drop(all.wait_while(waiting, |waiting| *waiting < readers).unwrap());
        Ok(vec![7; VOLUME])
    }
}

#[test]
fn calls_wait_while_their_client_does_not_fetch_the_results_of_others_and_nobody_elses_do() {
    let server = runtime();
    let export = server.export::<dyn Library>("Library", Arc::new(Shelf::default())).unwrap();
    let library = server.import::<dyn Library>("Library").unwrap();
    // From now on it is known that volumes are long.
    library.volume(0).unwrap();
    let mut stranger = Stranger::new(export.address());
    let id = server.stats().exports[0].id;
    stranger.start(id, 1, Vec::new());
    assert_eq!(stranger.hear(), 1);
    let begun = Instant::now();
    (0..VOLUMES).for_each(|number| stranger.start(id, 2, number.to_be_bytes().to_vec()));
    stranger.transmit();
    for number in 1..VOLUMES {
        library.asked().unwrap();
        assert!(library.volume(number).unwrap() == vec![number as u8; VOLUME], "volume {number}");
    }
    let others = library.asked().unwrap() - VOLUMES;
    // A result that nobody has fetched for a second makes way for the next: on a slow machine there are more
    // rounds.
    let rounds = 1 + begun.elapsed().as_secs();
    assert!((20..=24 * rounds).contains(&others), "{others} in {rounds} rounds");
}

#[test]
fn many_long_results_at_once_are_all_fetched() {
    let server = runtime();
    let _export = server.export::<dyn Library>("Library", Arc::new(Shelf::default())).unwrap();
    let library = server.import::<dyn Library>("Library").unwrap();
    library.volume(0).unwrap();
    let volumes: Vec<_> = (0..VOLUMES).map(|number| library.start().volume(number)).collect();
    for (number, volume) in volumes.into_iter().enumerate() {
        assert!(volume.wait().unwrap() == vec![number as u8; VOLUME], "volume {number}");
    }
}

#[test]
fn calls_that_wait_for_others_with_long_results_are_not_in_their_way() {
    let server = builder().workers(2 * SHARED as usize).build().unwrap();
    let _export = server.export::<dyn Library>("Library", Arc::new(Shelf::default())).unwrap();
    let library = server.import::<dyn Library>("Library").unwrap();
    library.shared(1).unwrap();
    let volumes: Vec<_> = (0..SHARED).map(|_| library.start().shared(1 + SHARED)).collect();
    for volume in volumes {
        assert!(volume.wait().unwrap() == [7; VOLUME]);
    }
}
