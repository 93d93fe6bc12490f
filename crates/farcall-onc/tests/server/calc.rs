//! The program that the servers of these tests serve, and clients that exchange raw messages with it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use farcall::stub::Program;
use farcall_onc::Server;
use farcall_onc::server::ServerBuilder;
use farcall_onc::wire::auth::OpaqueAuth;
use farcall_onc::wire::message::{Accepted, Answer, Call, Rejected, Reply};

#[farcall::interface]
pub trait Calc {
    #[procedure(1)]
    #[idempotent]
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32>;
    #[procedure(2)]
    #[idempotent]
    fn echo(&self, data: &[u8]) -> farcall::Result<farcall::Bytes>;
    /// Counts its runs, and returns their number.
    #[procedure(3)]
    fn count(&self) -> farcall::Result<u64>;
    /// Waits until the gate is open.
    #[procedure(4)]
    fn wait(&self) -> farcall::Result<u32>;
    #[procedure(5)]
    fn panics(&self) -> farcall::Result<()>;
    #[procedure(6)]
    fn shape(&self, shape: Shape) -> farcall::Result<bool>;
    #[procedure(7)]
    fn list(&self, list: Option<Box<Node>>) -> farcall::Result<u32>;
    #[procedure(8)]
    fn who(&self) -> farcall::Result<String>;
    #[procedure(9)]
    fn raises(&self) -> farcall::Result<(), Odd>;
    #[procedure(10)]
    fn nothings(&self, list: Vec<Nothing>) -> farcall::Result<u32>;
    #[procedure(11)]
    fn fails(&self) -> farcall::Result<()>;
    #[procedure(12)]
    fn bytes(&self, count: u32) -> farcall::Result<farcall::Bytes>;
    /// Like `wait`, but idempotent.
    #[procedure(13)]
    #[idempotent]
    fn wait_known(&self) -> farcall::Result<u32>;
    /// Counts a run like `count`, and suppresses the reply.
    #[procedure(14)]
    fn silent(&self) -> farcall::Result<()>;
    #[procedure(15)]
    fn tree(&self, tree: Option<Box<Tree>>) -> farcall::Result<()>;
    #[procedure(16)]
    fn text(&self, text: String) -> farcall::Result<()>;
}

#[derive(Debug, farcall::Xdr)]
pub struct Odd;

#[derive(Debug, farcall::Xdr)]
pub struct Nothing {}

#[derive(Debug, farcall::Xdr)]
pub enum Color {
    Red,
    Blue,
}

#[derive(Debug, farcall::Xdr)]
pub enum Shape {
    Point,
    Circle(u32),
    Painted(bool, Color, Name),
}

#[derive(Debug, farcall::Xdr)]
pub struct Name {
    pub bytes: Vec<u8>,
}

#[derive(Debug, farcall::Xdr)]
pub struct Node {
    pub value: u32,
    pub next: Option<Box<Node>>,
}

#[derive(Debug, farcall::Xdr)]
pub struct Tree {
    pub left: Option<Box<Tree>>,
    pub right: Option<Box<Tree>>,
}

pub const PROGRAM: u32 = 0x2000_0077;

impl Program for dyn Calc {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = 2;
}

/// The implementation of the program. Its gate is shut at first.
#[derive(Default)]
pub struct Calculator {
    pub counted: AtomicU64,
    begun: Mutex<u32>,
    open: Mutex<bool>,
    bell: Condvar,
    /// Dropped together with this, when the last thread of the server has ended.
    served: Mutex<Option<mpsc::Sender<()>>>,
}

impl Calculator {
    /// Waits until `count` calls of `wait` have begun.
    pub fn await_begun(&self, count: u32) {
        let mut begun = self.begun.lock().unwrap();
        while *begun < count {
            begun = self.bell.wait(begun).unwrap();
        }
    }

    /// Waits until `count` and `silent` have run that many times together.
    pub fn await_counted(&self, count: u64) {
        let mut begun = self.begun.lock().unwrap();
        while self.counted.load(Ordering::SeqCst) < count {
            begun = self.bell.wait(begun).unwrap();
        }
    }

    /// Returns how many calls of `wait` have begun.
    pub fn begun(&self) -> u32 {
        *self.begun.lock().unwrap()
    }

    pub fn shut(&self) {
        *self.open.lock().unwrap() = false;
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.bell.notify_all();
    }
}

impl Calc for Calculator {
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<farcall::Bytes> {
        Ok(farcall::Bytes::copy_from_slice(data))
    }

    fn count(&self) -> farcall::Result<u64> {
        let counted = self.counted.fetch_add(1, Ordering::SeqCst) + 1;
        drop(self.begun.lock().unwrap());
        self.bell.notify_all();
        Ok(counted)
    }

    fn wait(&self) -> farcall::Result<u32> {
        *self.begun.lock().unwrap() += 1;
        self.bell.notify_all();
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.bell.wait(open).unwrap();
        }
        Ok(7)
    }

    fn panics(&self) -> farcall::Result<()> {
        panic!("as it should")
    }

    fn shape(&self, shape: Shape) -> farcall::Result<bool> {
        Ok(matches!(shape, Shape::Point))
    }

    fn list(&self, list: Option<Box<Node>>) -> farcall::Result<u32> {
        let (mut sum, mut next) = (0u32, &list);
        while let Some(node) = next {
            (sum, next) = (sum.wrapping_add(node.value), &node.next);
        }
        Ok(sum)
    }

    fn who(&self) -> farcall::Result<String> {
        let caller = farcall_onc::server::caller().unwrap();
        assert_eq!(caller.address(), farcall::context().caller());
        Ok(format!("{:?} {:?}", caller.transport(), caller.credential()))
    }

    fn raises(&self) -> farcall::Result<(), Odd> {
        Err(Odd.into())
    }

    fn nothings(&self, list: Vec<Nothing>) -> farcall::Result<u32> {
        Ok(list.len() as u32)
    }

    fn fails(&self) -> farcall::Result<()> {
        Err(farcall::CallFailed::new(farcall::Kind::Other, farcall::Ran::Yes).into())
    }

    fn bytes(&self, count: u32) -> farcall::Result<farcall::Bytes> {
        Ok(vec![7; count as usize].into())
    }

    fn wait_known(&self) -> farcall::Result<u32> {
        self.wait()
    }

    fn tree(&self, _: Option<Box<Tree>>) -> farcall::Result<()> {
        Ok(())
    }

    fn text(&self, _: String) -> farcall::Result<()> {
        Ok(())
    }

    fn silent(&self) -> farcall::Result<()> {
        farcall_onc::server::say_nothing();
        self.count().map(|_| ())
    }
}

/// Starts a server at loopback.
pub fn serve_with(settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, Arc<Calculator>) {
    let calculator = Arc::new(Calculator::default());
    let builder =
        Server::builder().program::<dyn Calc>(calculator.clone()).address("127.0.0.1:0".parse().unwrap());
    (settings(builder).start().unwrap(), calculator)
}

pub fn serve() -> (Server, Arc<Calculator>) {
    serve_with(|builder| builder)
}

/// Encodes a call without credentials.
pub fn call(xid: u32, procedure: u32, arguments: &[u32]) -> Vec<u8> {
    call_as(xid, procedure, OpaqueAuth::NONE, &words(arguments))
}

pub fn call_as(xid: u32, procedure: u32, credential: OpaqueAuth<'_>, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: PROGRAM, version: 2, procedure, credential, verifier: OpaqueAuth::NONE }
        .write(&mut message);
    message.extend_from_slice(arguments);
    message
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A client that sends and receives raw datagrams.
pub struct Udp(pub UdpSocket);

/// If nothing comes for this long, nothing will ever come.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl Udp {
    pub fn to(server: SocketAddr) -> Udp {
        let local = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(local).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Udp(socket)
    }

    pub fn send(&self, message: &[u8]) {
        self.0.send(message).unwrap();
    }

    pub fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let len = self.0.recv(&mut buffer).expect("a reply should come");
        buffer.truncate(len);
        buffer
    }

    pub fn ask(&self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        self.receive()
    }

    /// Checks that a message is not answered, while a call sent after it is. [`Udp::has_heard_all`] checks at
    /// the end of a test that no other thread of the server has answered it later.
    pub fn is_ignored(&self, message: &[u8]) {
        self.send(message);
        let answer = self.ask(&call(0xfeed, 1, &[1, 2]));
        assert_eq!(success(&answer), (0xfeed, words(&[3])), "{message:?} was answered");
    }

    /// Ends the server, waits until its last thread has ended, and checks that no further reply has come.
    pub fn has_heard_all(&self, server: Server, calculator: Arc<Calculator>) {
        let (served, ended) = mpsc::channel();
        *calculator.served.lock().unwrap() = Some(served);
        drop((server, calculator));
        assert_eq!(
            ended.recv_timeout(PATIENCE),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "a thread is left"
        );
        self.0.set_nonblocking(true).unwrap();
        let nothing = self.0.recv(&mut [0; 4]).map_err(|why| why.kind());
        assert_eq!(nothing, Err(ErrorKind::WouldBlock), "something was answered that was to be ignored");
    }
}

/// A client that sends and receives messages by hand, as records of a stream.
pub struct Stream<S>(pub S);

pub fn tcp(server: &Server) -> Stream<TcpStream> {
    let stream = TcpStream::connect(server.tcp().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Stream(stream)
}

impl<S: Read + Write> Stream<S> {
    pub fn send(&mut self, message: &[u8]) {
        self.0.write_all(&record(message)).unwrap();
    }

    pub fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).expect("a reply should come");
        let mark = u32::from_be_bytes(mark);
        assert!(mark >> 31 == 1, "a reply is one fragment");
        let mut message = vec![0; (mark & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut message).unwrap();
        message
    }

    pub fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        self.receive()
    }

    /// Checks that a message is not answered, while a call sent after it is.
    pub fn is_ignored(&mut self, message: &[u8]) {
        self.send(message);
        let answer = self.ask(&call(0xfeed, 1, &[1, 2]));
        assert_eq!(success(&answer), (0xfeed, words(&[3])), "{message:?} was answered");
    }

    /// Checks that the server has closed the connection.
    pub fn is_closed(&mut self) {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("it is open: {other:?}"),
        }
    }
}

/// Encodes a record of one fragment.
pub fn record(message: &[u8]) -> Vec<u8> {
    [&(0x8000_0000 | message.len() as u32).to_be_bytes(), message].concat()
}

/// Returns the identifier and the result of a reply that reports success.
pub fn success(reply: &[u8]) -> (u32, Vec<u8>) {
    match Reply::parse(reply).unwrap() {
        Reply { xid, answer: Answer::Accepted { outcome: Accepted::Success(result), .. } } => {
            (xid, result.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

pub fn accepted(reply: &[u8]) -> Accepted<'_> {
    match Reply::parse(reply).unwrap().answer {
        Answer::Accepted { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

pub fn rejected(reply: &[u8]) -> Rejected {
    match Reply::parse(reply).unwrap().answer {
        Answer::Rejected(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Connects from another address of this machine. Each counts as a host, and all as one network.
pub fn connect_from(host: u8, port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    TcpStream::from(socket)
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
