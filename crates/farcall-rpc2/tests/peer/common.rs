//! A server of the subsystem, and a network that loses packets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use farcall::Bulk;
use farcall::xdr::ByteString;
use farcall_rpc2::{Server, server::ServerBuilder};

use crate::covering::*;

/// The number of the subsystem, as in the file.
pub const SUBSYSTEM: u32 = COVERING_ID;

/// Does what `tests/c/server.c` does. A call of `double` with the number of the gate waits at it.
#[derive(Default)]
pub struct Here {
    pub welcomed: Mutex<Vec<Vec<u8>>>,
    /// How often `double` has run.
    pub doubled: Arc<AtomicU32>,
    /// What `double` returns as its return code, as an error.
    pub fails_with: Mutex<Option<i32>>,
    /// Dropped when the server's last thread has ended.
    #[expect(dead_code, reason = "only its drop has a meaning")]
    pub alive: Mutex<Option<mpsc::Sender<()>>>,
    pub gate: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

/// The number with which `double` waits at the gate.
pub const GATE: u32 = 1_000_000;

impl Covering for Here {
    fn welcome(&self, _: i32, security: i32, _: i32, _: i32, ident: &[u8]) -> farcall::Result<()> {
        assert_eq!(security, 98);
        self.welcomed.lock().unwrap().push(ident.to_vec());
        Ok(())
    }

    fn nothing(&self) -> farcall::Result<(), Rpc2Failure> {
        Err(Rpc2Failure { return_code: self.welcomed.lock().unwrap().len() as i32 }.into())
    }

    fn all_in(
        &self,
        _: i32,
        _: u32,
        small: u8,
        heavy: Weight,
        text: &ByteString,
        _: &[u8],
        _: &Rpc2BoundedBs,
        _: &[u8; 8],
        _: Colour,
        _: &Digest,
        _: &Odd,
        whole: &Everything,
    ) -> farcall::Result<(), Rpc2Failure> {
        match whole.small == small && whole.heavy == heavy && whole.text == *text {
            true => Ok(()),
            false => Err(Rpc2Failure { return_code: 22 }.into()),
        }
    }

    fn all_out(&self, bounded: &Rpc2BoundedBs) -> farcall::Result<AllOutResults, AllOutError> {
        let mut bounded = bounded.clone();
        bounded.seq_body = b"abc".iter().copied().take(bounded.max_seq_len as usize).collect();
        Ok(AllOutResults {
            signed: -7,
            unsigned: 7,
            small: 77,
            heavy: 0.75,
            bounded,
            secret: *b"12345678",
            paint: Colour::Green,
            sum: [1; 16],
            five: [5; 5],
            whole: Range { high: 9, ..Range::default() },
        })
    }

    fn all_both(
        &self,
        signed: i32,
        unsigned: u32,
        small: u8,
        heavy: Weight,
        bounded: &Rpc2BoundedBs,
        secret: &[u8; 8],
        paint: Colour,
        whole: &Range,
    ) -> farcall::Result<AllBothResults, AllBothError> {
        Err(AllBothError {
            return_code: 5,
            signed: signed + 1,
            unsigned: unsigned + 1,
            small,
            heavy,
            bounded: bounded.clone(),
            secret: *secret,
            paint,
            whole: *whole,
        }
        .into())
    }

    fn arrays(
        &self,
        given: &[Range],
        taken_size_max: u32,
        _: u32,
        changed: &[Range],
        last: Key,
    ) -> farcall::Result<ArraysResults, ArraysError> {
        let taken = given.iter().take(taken_size_max as usize).copied().collect();
        let changed = changed.iter().map(|range| Range { low: range.low + last, ..*range }).collect();
        Ok(ArraysResults { taken, changed })
    }

    fn double(&self, number: u32) -> farcall::Result<u32, DoubleError> {
        self.doubled.fetch_add(1, SeqCst);
        if number == GATE {
            let gate = self.gate.lock().unwrap().take().expect("one call waits");
            gate.0.send(()).unwrap();
            gate.1.recv().unwrap();
        }
        match *self.fails_with.lock().unwrap() {
            Some(return_code) => Err(DoubleError { return_code, ..DoubleError::default() }.into()),
            None => Ok(2 * number),
        }
    }

    fn names(&self, first: &ByteString, second: &ByteString) -> farcall::Result<u32, NamesError> {
        Ok((first.len() + second.len()) as u32)
    }

    fn store(&self, _: &ByteString, _: Bulk) -> farcall::Result<u32, StoreError> {
        panic!("it is not carried")
    }

    fn fetch(&self, _: &ByteString, _: Bulk) -> farcall::Result<(), Rpc2Failure> {
        panic!("it is not carried")
    }

    fn count(&self, calls: &CallCountEntry) -> farcall::Result<CallCountEntry, CountError> {
        match calls.countent {
            i32::MAX => panic!("too many"),
            count => Ok(CallCountEntry { countent: count + 1, ..calls.clone() }),
        }
    }
}

/// Serves at a free port of this machine.
pub fn serve(here: Arc<Here>, settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    let server = Server::builder().subsystem::<dyn Covering>(SUBSYSTEM, here);
    settings(server.udp("127.0.0.1:0".parse().unwrap())).start().unwrap()
}

/// Returns a stub for the subsystem at a port.
pub fn import(at: SocketAddr) -> CoveringClient {
    farcall_rpc2::import::<dyn Covering>(&address(at)).unwrap()
}

pub fn address(at: SocketAddr) -> String {
    format!("rpc2://{at}/{SUBSYSTEM}")
}

/// What the network does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    Arrives,
    Doubled,
}

/// Decides on each packet: its bytes, and whether it goes to the server.
pub type Judge = Box<dyn FnMut(&[u8], bool) -> Fate + Send>;

/// A network between one client and a server.
pub struct Network {
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Network {
    pub fn new(server: SocketAddr, judge: Judge) -> Network {
        let outer = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let inner = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = outer.local_addr().unwrap();
        let (is_over, client, judge) =
            (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)), Arc::new(Mutex::new(judge)));
        let threads = [true, false].map(|to_server| {
            let (outer, inner, is_over) = (outer.clone(), inner.clone(), is_over.clone());
            let (client, judge) = (client.clone(), judge.clone());
            std::thread::spawn(move || {
                let (from, to) = if to_server { (&outer, &inner) } else { (&inner, &outer) };
                // The time-out is only for the end.
                from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                let mut packet = [0; 1 << 16];
                while !is_over.load(SeqCst) {
                    let Ok((count, sender)) = from.recv_from(&mut packet) else { continue };
                    if to_server {
                        *client.lock().unwrap() = Some(sender);
                    }
                    let target = if to_server { Some(server) } else { *client.lock().unwrap() };
                    let copies = match (judge.lock().unwrap())(&packet[..count], to_server) {
                        Fate::Lost => 0,
                        Fate::Arrives => 1,
                        Fate::Doubled => 2,
                    };
                    for _ in 0..copies {
                        let _ = to.send_to(&packet[..count], target.unwrap());
                    }
                }
            })
        });
        Network { address, is_over, threads: threads.into() }
    }

    /// A network that loses a tenth of the packets.
    pub fn losing(server: SocketAddr, seed: u64) -> Network {
        println!("seed {seed}");
        let mut dice = fastrand::Rng::with_seed(seed);
        Network::new(
            server,
            Box::new(move |_, _| if dice.u8(0..10) == 0 { Fate::Lost } else { Fate::Arrives }),
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}
