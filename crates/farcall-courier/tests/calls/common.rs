//! Interfaces, a server for them, and scripted peers.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use farcall_courier::Server;
use farcall_courier::server::ServerBuilder;
use farcall_courier::wire::message::{Call, Courier, Message, Versions};
use farcall_courier::wire::packet::{Datastream, PacketReader, PacketWriter, Received};

/// A line of the password file, as 4.4BSD's example has it.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub struct Passwd {
    pub name: String,
    pub passwd: String,
    pub uid: u32,
    pub gid: u32,
    pub quota: u32,
    pub comment: String,
    pub gecos: String,
    pub dir: String,
    pub shell: String,
}

/// The errors of `lookup_uid`.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub enum LookupUidError {
    #[xdr(tag = 0)]
    NoSuchUser,
}

/// The errors of `lookup_user`.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub enum LookupUserError {
    #[xdr(tag = 0)]
    NoSuchUser,
    #[xdr(tag = 1)]
    OtherError { errorstring: String },
}

/// The program of 4.4BSD's example.
#[farcall::interface(program = 754, version = 1)]
pub trait PasswordLookup {
    #[procedure(0)]
    fn lookup_uid(&self, uid: u16) -> farcall::Result<Passwd, LookupUidError>;
    #[procedure(1)]
    fn lookup_user(&self, user: &str) -> farcall::Result<Passwd, LookupUserError>;
}

/// Knows root alone.
pub struct Users;

pub fn root(uid: u32) -> Passwd {
    Passwd {
        name: "root".into(),
        passwd: "x".into(),
        uid,
        gid: uid,
        quota: 70_000,
        comment: String::new(),
        gecos: "odd".into(),
        dir: "/home".into(),
        shell: "/bin/sh".into(),
    }
}

impl PasswordLookup for Users {
    fn lookup_uid(&self, uid: u16) -> farcall::Result<Passwd, LookupUidError> {
        match uid {
            0..100 => Ok(root(uid.into())),
            _ => Err(LookupUidError::NoSuchUser.into()),
        }
    }

    fn lookup_user(&self, user: &str) -> farcall::Result<Passwd, LookupUserError> {
        match user {
            "root" => Ok(root(0)),
            "oops" => Err(LookupUserError::OtherError { errorstring: "boom".into() }.into()),
            _ => Err(LookupUserError::NoSuchUser.into()),
        }
    }
}

/// A program with what the tests need besides.
#[farcall::interface(program = 900, version = 3)]
pub trait Work {
    #[procedure(1)]
    fn next(&self, number: u16) -> farcall::Result<u16>;
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u16) -> farcall::Result<u16>;
    #[procedure(3)]
    fn nothing(&self) -> farcall::Result<()>;
    #[procedure(4)]
    fn words(&self, words: Vec<u16>) -> farcall::Result<Vec<u16>>;
    #[procedure(5)]
    fn panic(&self) -> farcall::Result<u16>;
    /// Returns a string that is too long for Courier.
    #[procedure(6)]
    fn too_long(&self) -> farcall::Result<String>;
    /// Blocks until the caller's side lets it go.
    #[procedure(7)]
    fn block(&self) -> farcall::Result<u16>;
    /// Returns the port of the caller.
    #[procedure(8)]
    fn port(&self) -> farcall::Result<u16>;
}

/// A program whose messages can be larger than the buffers of both sockets.
#[farcall::interface(program = 900, version = 3)]
pub trait Much {
    #[procedure(4)]
    fn words(&self, words: Vec<Vec<u16>>) -> farcall::Result<Vec<Vec<u16>>>;
}

/// A server of [`Work`]. `block` waits at the barrier.
#[derive(Default)]
pub struct Worker {
    pub gate: Gate,
}

/// Lets blocked procedures go.
#[derive(Default)]
pub struct Gate(std::sync::Mutex<Passing>, std::sync::Condvar);

#[derive(Default)]
struct Passing {
    /// How many procedures may go.
    open: usize,
    /// How many wait to go.
    waiting: usize,
}

impl Gate {
    /// Lets one procedure go, or the next one that comes.
    pub fn open(&self) {
        self.0.lock().unwrap().open += 1;
        self.1.notify_all();
    }

    /// Waits until a procedure waits here.
    pub fn wait_for_one(&self) {
        self.wait_for(1);
    }

    /// Waits until so many procedures wait here.
    pub fn wait_for(&self, procedures: usize) {
        let passing = self.0.lock().unwrap();
        drop(self.1.wait_while(passing, |passing| passing.waiting < procedures).unwrap());
    }

    pub fn pass(&self) {
        let mut passing = self.0.lock().unwrap();
        passing.waiting += 1;
        self.1.notify_all();
        let mut passing = self.1.wait_while(passing, |passing| passing.open == 0).unwrap();
        passing.open -= 1;
        passing.waiting -= 1;
    }
}

impl Work for Worker {
    fn next(&self, number: u16) -> farcall::Result<u16> {
        Ok(number.wrapping_add(1))
    }

    fn again(&self, number: u16) -> farcall::Result<u16> {
        Ok(number)
    }

    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn words(&self, words: Vec<u16>) -> farcall::Result<Vec<u16>> {
        Ok(words)
    }

    fn panic(&self) -> farcall::Result<u16> {
        std::panic::resume_unwind(Box::new("as the test wants it"))
    }

    fn too_long(&self) -> farcall::Result<String> {
        Ok("x".repeat(70_000))
    }

    fn block(&self) -> farcall::Result<u16> {
        self.gate.pass();
        Ok(7)
    }

    fn port(&self) -> farcall::Result<u16> {
        Ok(farcall::context().caller().map_or(0, |caller| caller.port()))
    }
}

pub const ANY: &str = "127.0.0.1:0";

/// Starts a server of both programs. `change` may change its settings.
pub fn serve(worker: Arc<Worker>, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, String) {
    let builder = Server::builder().program::<dyn PasswordLookup>(Arc::new(Users));
    let builder = builder.program::<dyn Work>(worker).tcp(ANY.parse().unwrap());
    let server = change(builder).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    (server, address)
}

pub fn server() -> (Server, String) {
    serve(Arc::default(), |builder| builder)
}

/// One end of a connection, played by a test.
pub struct Peer {
    pub socket: TcpStream,
    reader: PacketReader,
    writer: PacketWriter,
    /// Whether the versions of the other end have come.
    pub versions: Option<Versions>,
}

impl Peer {
    pub fn new(socket: TcpStream) -> Peer {
        socket.set_nodelay(true).unwrap();
        let (reader, writer) = (PacketReader::new(1 << 20), PacketWriter::default());
        Peer { socket, reader, writer, versions: None }
    }

    /// Connects to a server, and sends these versions.
    pub fn connect(address: &str, versions: Versions) -> Peer {
        let address: SocketAddr = address.strip_prefix("tcp://").unwrap().parse().unwrap();
        let mut peer = Peer::new(TcpStream::connect(address).unwrap());
        peer.send(&versions.to_bytes(), false);
        peer
    }

    /// Sends data of messages.
    pub fn send(&mut self, data: &[u8], ends: bool) {
        let mut out = Vec::new();
        self.writer.write(Datastream::Messages, data, ends, &mut out);
        self.raw(&out);
    }

    pub fn send_bulk(&mut self, data: &[u8], ends: bool) {
        let mut out = Vec::new();
        self.writer.write(Datastream::Bulk, data, ends, &mut out);
        self.raw(&out);
    }

    /// Sends the packet that aborts bulk data.
    pub fn abort_bulk(&mut self) {
        let mut out = Vec::new();
        self.writer.attention(Datastream::Bulk, 1, &mut out);
        self.raw(&out);
    }

    /// Receives bulk data up to its end, or to a message or the end of the connection.
    pub fn receive_bulk(&mut self) -> (Vec<u8>, Ended) {
        let mut data = Vec::new();
        loop {
            while self.reader.advance().unwrap() {
                match self.reader.received().unwrap() {
                    Received::Versions(versions) => self.versions = Some(versions),
                    Received::Bulk(part, ends) => {
                        data.extend(part);
                        if ends {
                            return (data, Ended::Whole);
                        }
                    }
                    Received::Attention(_) => return (data, Ended::Aborted),
                    Received::Message(_) | Received::End => return (data, Ended::Otherwise),
                }
            }
            match self.socket.read(self.reader.space()) {
                Ok(count) if count > 0 => self.reader.filled(count),
                _ => return (data, Ended::Otherwise),
            }
        }
    }

    /// Sends bytes as they are. The other end may have gone.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    pub fn message(&mut self, message: Message<'_>) {
        let mut out = Vec::new();
        message.write(Courier::Three, &mut out);
        self.send(&out, true);
    }

    /// Sends a call.
    pub fn call(&mut self, id: u16, (program, version): (u32, u16), procedure: u16, arguments: &[u8]) {
        self.message(Message::Call(Call { id, program, version, procedure, arguments }));
    }

    /// Receives a message. Returns `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            while self.reader.advance().unwrap() {
                match self.reader.received()? {
                    Received::Versions(versions) => self.versions = Some(versions),
                    Received::Message(message) => return Some(message.to_vec()),
                    Received::End => return None,
                    Received::Bulk(..) | Received::Attention(_) => {}
                }
            }
            let count = self.socket.read(self.reader.space()).ok().filter(|count| *count > 0)?;
            self.reader.filled(count);
        }
    }

    /// Receives a call, and returns its identifier, procedure and arguments.
    pub fn receive_call(&mut self) -> Option<(u16, u16, Vec<u8>)> {
        let message = self.receive()?;
        let Ok(Message::Call(call)) = Message::parse(&message, Courier::Three) else {
            panic!("{message:x?} is no call")
        };
        Some((call.id, call.procedure, call.arguments.to_vec()))
    }

    /// Answers the call of a procedure that returns its only argument plus one.
    pub fn answer_next(&mut self) -> Option<()> {
        let (id, _, arguments) = self.receive_call()?;
        let number = u16::from_be_bytes(arguments[..].try_into().unwrap());
        self.message(Message::Return(id, &number.wrapping_add(1).to_be_bytes()));
        Some(())
    }
}

/// Returns an address of this machine that is not loopback, if it has one.
pub fn own_address() -> Option<IpAddr> {
    // Nothing is sent: this only finds the address from which this machine would send.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
    let own = own.ok().map(|own| own.ip()).filter(|own| !own.is_loopback());
    if own.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: this machine has no address besides loopback");
    }
    own
}

/// How bulk data ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Whole,
    Aborted,
    Otherwise,
}

/// Starts a server that runs the script for each connection, with the connection's number. It sends version 3
/// first. Returns the server's address.
pub fn scripted(mut script: impl FnMut(usize, Peer) + Send + 'static) -> String {
    raw(move |number, mut peer| {
        peer.send(&Versions::THREE.to_bytes(), false);
        script(number, peer);
    })
}

/// Starts a server that runs the script for each connection, and sends nothing by itself.
pub fn raw(mut script: impl FnMut(usize, Peer) + Send + 'static) -> String {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for number in 0.. {
            script(number, Peer::new(listener.accept().unwrap().0));
        }
    });
    address
}

/// Returns a client of [`Work`] there.
/// Connects from another address of this machine. Each counts as a host.
pub fn connect_from(host: u8, address: &str) -> Peer {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let server: SocketAddr = address.strip_prefix("tcp://").unwrap().parse().unwrap();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    connect(&socket, &server).unwrap();
    let mut peer = Peer::new(TcpStream::from(socket));
    peer.send(&Versions::THREE.to_bytes(), false);
    peer
}

pub fn work(address: &str) -> WorkClient {
    farcall_courier::import::<dyn Work>(address).unwrap()
}

/// Returns the bytes of words in hexadecimal.
pub fn bytes(words: &str) -> Vec<u8> {
    words.split_whitespace().flat_map(|word| u16::from_str_radix(word, 16).unwrap().to_be_bytes()).collect()
}
