//! Replies of ONC RPC, as a client gets them from any server.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use farcall::Xdr;
use farcall_onc::Client;
use farcall_onc::client::carrier::{Carrier, Dial, Wait};
use farcall_onc::rpcbind::{from_universal, to_universal};
use farcall_onc::wire::record::Limits;

/// What is called: results of every shape.
#[farcall::interface(program = 0x2000_0077, version = 3)]
trait Shapes {
    #[procedure(1)]
    fn bytes(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    #[procedure(2)]
    #[idempotent]
    fn people(&self) -> farcall::Result<Vec<Person>>;
}

#[derive(Debug, Xdr)]
struct Person {
    name: String,
    numbers: Vec<u64>,
    next: Option<Box<Person>>,
}

/// In a script this stands for the identifier of the call.
const XID: [u8; 4] = [0x11; 4];

/// A server that sends what the script says, cut as it says, whatever it is asked; then it is gone.
struct Scripted {
    datagrams: bool,
    step: usize,
    left: Mutex<Vec<u8>>,
    xid: Mutex<[u8; 4]>,
    /// Something to be polled, which can always be written.
    socket: (UnixStream, UnixStream),
}

impl Carrier for Scripted {
    fn receive(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
        let mut left = self.left.lock().unwrap();
        if left.is_empty() {
            return if self.datagrams { Err(ErrorKind::Other.into()) } else { Ok(0) };
        }
        // A reply comes when its call is made, not before: behind the mark of its record it says which that
        // is.
        let next = |left: &[u8]| left.windows(XID.len()).position(|bytes| bytes == XID);
        if let Some(place) = next(&left).filter(|place| *place <= 4) {
            left[place..place + XID.len()].copy_from_slice(&*self.xid.lock().unwrap());
        }
        let until = next(&left).map_or(left.len(), |place| place.saturating_sub(4).max(1));
        let len = self.step.min(until).min(buffer.len());
        buffer[..len].copy_from_slice(&left[..len]);
        left.drain(..len);
        Ok(len)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let at = if self.datagrams { 0 } else { 4 };
        *self.xid.lock().unwrap() = bytes[at..at + 4].try_into().unwrap();
        Ok(bytes.len())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }

    fn shutdown(&self) {}
}

/// Gives its carrier once.
struct Once {
    datagrams: bool,
    carrier: Mutex<Option<Scripted>>,
}

impl Dial for Once {
    fn dial(&self, _: Option<Duration>) -> io::Result<Box<dyn Carrier>> {
        match self.carrier.lock().unwrap().take() {
            Some(carrier) => Ok(Box::new(carrier)),
            None => Err(ErrorKind::ConnectionRefused.into()),
        }
    }

    fn is_datagrams(&self) -> bool {
        self.datagrams
    }

    fn address(&self) -> String {
        "scripted".into()
    }
}

/// Settings, a step, and what a server sends: every call ends, and what is said of it can be shown.
pub fn onc_client(data: &[u8]) {
    let [settings, step, script @ ..] = data else { return };
    let datagrams = settings & 1 != 0;
    let carrier = Scripted {
        datagrams,
        step: usize::from(*step).max(1) * 16,
        left: Mutex::new(script.to_vec()),
        xid: Mutex::default(),
        socket: UnixStream::pair().unwrap(),
    };
    let limits = Limits { record: 1 << 16, fragments: 64, ..Limits::default() };
    let mut client = Client::builder().limits(limits).retransmit(Duration::from_secs(3600));
    if settings & 2 != 0 {
        client = client.lenient();
    }
    let shapes =
        client.dial(Once { datagrams, carrier: Mutex::new(Some(carrier)) }).unwrap().bind::<dyn Shapes>();
    for _ in 0..4 {
        let failures = [shapes.bytes(b"abc").err(), shapes.people().err()];
        failures.into_iter().flatten().for_each(|why| assert!(!why.to_string().is_empty()));
    }
}

/// A text as a universal address: what is read of it is written as what is read the same, but for an
/// interface.
pub fn universal(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(mut address) = from_universal(text) else { return };
    if let std::net::SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
        v6.set_flowinfo(0);
    }
    assert_eq!(from_universal(&to_universal(address)), Some(address));
}
