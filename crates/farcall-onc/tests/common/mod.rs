//! An interface, and scripted servers for it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;

use farcall_onc::wire::auth::OpaqueAuth;
use farcall_onc::wire::message::{Accepted, Answer, Call, Reply};
use farcall_onc::wire::record::{Limits, Records, begin, end};

#[farcall::interface(program = 0x2000_0077, version = 3)]
pub trait Echo {
    /// The null procedure.
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()>;
    /// Returns its argument.
    #[procedure(1)]
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns its argument. It is idempotent.
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u32) -> farcall::Result<u32>;
    /// Returns its argument plus one.
    #[procedure(3)]
    fn next(&self, number: u32) -> farcall::Result<u32>;
}

/// A call that a server has received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub xid: u32,
    pub procedure: u32,
    pub arguments: Vec<u8>,
    /// The flavour and the body of the credential.
    pub credential: (u32, Vec<u8>),
}

impl Asked {
    pub fn parse(message: &[u8]) -> Asked {
        let (call, arguments) = Call::parse(message).unwrap();
        assert_eq!((call.program, call.version), (0x2000_0077, 3));
        let credential = (call.credential.flavor().0, call.credential.body().to_vec());
        Asked { xid: call.xid, procedure: call.procedure, arguments: arguments.to_vec(), credential }
    }

    /// Encodes this answer to the call.
    pub fn answer(&self, answer: Answer<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        Reply { xid: self.xid, answer }.write(&mut out);
        out
    }

    pub fn accept(&self, outcome: Accepted<'_>) -> Vec<u8> {
        self.answer(Answer::Accepted { verifier: OpaqueAuth::NONE, outcome })
    }

    /// Encodes the usual reply: the result is the arguments; for `next`, the argument plus one.
    pub fn result(&self) -> Vec<u8> {
        if self.procedure == 3 {
            let number = u32::from_be_bytes(self.arguments[..4].try_into().unwrap());
            return self.accept(Accepted::Success(&(number + 1).to_be_bytes()));
        }
        self.accept(Accepted::Success(&self.arguments))
    }
}

/// The server's end of a stream.
pub struct Stream<S> {
    pub socket: S,
    records: Records,
}

impl<S: Read + Write> Stream<S> {
    pub fn new(socket: S) -> Stream<S> {
        Stream { socket, records: Records::new(Limits::default()) }
    }

    /// Receives the next call. Returns `None` when the client has ended the connection.
    pub fn next(&mut self) -> Option<Asked> {
        loop {
            if let Some(message) = self.records.next().unwrap() {
                return Some(Asked::parse(&message));
            }
            let len = self.socket.read(self.records.space()).ok().filter(|len| *len > 0)?;
            self.records.filled(len);
        }
    }

    /// Sends a message as one fragment.
    pub fn send(&mut self, message: &[u8]) {
        let mut out = Vec::new();
        let at = begin(&mut out);
        out.extend(message);
        end(&mut out, at).unwrap();
        self.raw(&out);
    }

    /// Sends bytes as they are. The client may have gone.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Answers all calls, one after the other.
    pub fn serve(&mut self) {
        while let Some(asked) = self.next() {
            self.send(&asked.result());
        }
    }
}

/// Starts a TCP server. It calls the script for one connection after the other, with the connection's number.
/// Returns the server's address.
pub fn tcp(mut script: impl FnMut(usize, Stream<TcpStream>) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for number in 0.. {
            let socket = listener.accept().unwrap().0;
            socket.set_nodelay(true).unwrap();
            script(number, Stream::new(socket));
        }
    });
    address
}

/// A server's UDP socket.
pub struct Datagrams(pub UdpSocket);

impl Datagrams {
    pub fn next(&self) -> (Asked, SocketAddr) {
        let mut buffer = vec![0; 65536];
        let (len, from) = self.0.recv_from(&mut buffer).unwrap();
        (Asked::parse(&buffer[..len]), from)
    }
}

/// Runs a script at a UDP socket. Returns the socket's address, and a handle to wait for the script's end.
pub fn udp<T: Send + 'static>(
    script: impl FnOnce(&Datagrams) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", socket.local_addr().unwrap());
    (address, std::thread::spawn(move || script(&Datagrams(socket))))
}
