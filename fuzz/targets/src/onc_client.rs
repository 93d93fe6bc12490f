//! Fuzz targets for ONC RPC clients: the replies of any server, and universal addresses.

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

/// The program that the client calls. Its results have variable lengths and nest.
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

/// In a script, these bytes stand for the identifier (xid) of the client's last call.
const XID: [u8; 4] = [0x11; 4];

/// A connection on which the server sends the bytes of a script, whatever it is asked. Then the connection
/// ends.
struct Scripted {
    /// Whether the client sends and receives datagrams, not a stream.
    datagrams: bool,
    /// The most bytes that one read returns.
    step: usize,
    /// The bytes of the script that the client has not received.
    left: Mutex<Vec<u8>>,
    /// The identifier of the client's last call.
    xid: Mutex<[u8; 4]>,
    /// The descriptor that the client polls is the first socket of this pair. It can always be written.
    socket: (UnixStream, UnixStream),
}

impl Carrier for Scripted {
    fn receive(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
        let mut left = self.left.lock().unwrap();
        if left.is_empty() {
            // An error of the socket itself ends the call; a report of the network would not.
            return if self.datagrams { Err(ErrorKind::InvalidInput.into()) } else { Ok(0) };
        }
        // A reply arrives only after its call was made. So a read ends before the record mark of the next
        // reply, and a reply's identifier is filled in when the reply itself is read.
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

/// Connects once, by its carrier. Further attempts are refused.
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

/// Calls a server that sends the bytes of a script. The input is a byte of settings (1: datagrams, 2: lenient
/// decoding), a byte that sets the length of each read, and the script. Each call must end, and each failure
/// must have a text.
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

/// Reads a text as a universal address, writes the address and reads it again. The result must be the same
/// address. (Its text has no IPv6 scope and no flow information.)
pub fn universal(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Some(mut address) = from_universal(text) else { return };
    if let std::net::SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
        v6.set_flowinfo(0);
    }
    assert_eq!(from_universal(&to_universal(address)), Some(address));
}
