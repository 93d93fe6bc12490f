//! An interface, a server for it, and scripted peers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use farcall_courier::cooper::{Server, ServerBuilder};

/// What the server knows of a user.
#[derive(farcall::Xdr, Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub uid: u16,
    pub is_local: bool,
}

/// The program of the vectors of Cooper's dialect, with some more procedures. Its numbers are not sent.
#[farcall::interface(program = 754, version = 1)]
pub trait PasswordLookup {
    #[procedure(0)]
    fn lookup_user(&self, user: &str) -> farcall::Result<Entry>;
    #[procedure(1)]
    fn flip(&self, flags: Vec<bool>) -> farcall::Result<Vec<bool>>;
    /// Has no result, and so no reply.
    #[procedure(2)]
    fn note(&self, number: u16) -> farcall::Result<()>;
    /// Returns the noted numbers.
    #[procedure(3)]
    fn noted(&self) -> farcall::Result<Vec<u16>>;
    #[procedure(4)]
    fn words(&self, count: u32) -> farcall::Result<Vec<u16>>;
    #[procedure(5)]
    fn sum(&self, words: Vec<u16>) -> farcall::Result<u32>;
    #[procedure(6)]
    fn panic(&self) -> farcall::Result<u16>;
    #[procedure(7)]
    fn panic_silently(&self) -> farcall::Result<()>;
    #[procedure(8)]
    #[idempotent]
    fn again(&self, number: u16) -> farcall::Result<u16>;
}

/// A part of the program, and a procedure that the server does not have.
#[farcall::interface]
pub trait Newer {
    #[procedure(99)]
    fn missing(&self) -> farcall::Result<u16>;
    #[procedure(98)]
    fn missing_silently(&self) -> farcall::Result<()>;
    #[procedure(8)]
    fn again(&self, number: u16) -> farcall::Result<u16>;
}

#[derive(Default)]
pub struct Users {
    pub noted: Mutex<Vec<u16>>,
}

impl PasswordLookup for Users {
    fn lookup_user(&self, user: &str) -> farcall::Result<Entry> {
        Ok(Entry { name: user.into(), uid: 7, is_local: user == "root" })
    }

    fn flip(&self, flags: Vec<bool>) -> farcall::Result<Vec<bool>> {
        Ok(flags.into_iter().map(|flag| !flag).collect())
    }

    fn note(&self, number: u16) -> farcall::Result<()> {
        self.noted.lock().unwrap().push(number);
        Ok(())
    }

    fn noted(&self) -> farcall::Result<Vec<u16>> {
        Ok(self.noted.lock().unwrap().clone())
    }

    fn words(&self, count: u32) -> farcall::Result<Vec<u16>> {
        Ok((0..count).map(|word| word as u16).collect())
    }

    fn sum(&self, words: Vec<u16>) -> farcall::Result<u32> {
        Ok(words.iter().map(|word| u32::from(*word)).sum())
    }

    fn panic(&self) -> farcall::Result<u16> {
        panic!("as it was told")
    }

    fn panic_silently(&self) -> farcall::Result<()> {
        panic!("as it was told")
    }

    fn again(&self, number: u16) -> farcall::Result<u16> {
        Ok(number)
    }
}

/// What a server has reported.
pub type Troubles = Arc<Mutex<Vec<String>>>;

/// Starts a server with some changes of its settings. Returns it, its address, and what it reports.
pub fn server_with(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Server, SocketAddr, Troubles) {
    let troubles = Troubles::default();
    let tell = troubles.clone();
    let builder = Server::builder()
        .on_trouble(move |trouble| tell.lock().unwrap().push(trouble.what.clone()))
        .program::<dyn PasswordLookup>(Arc::new(Users::default()))
        .tcp("127.0.0.1:0".parse().unwrap());
    let server = change(builder).start().unwrap();
    let address = server.addresses()[0];
    (server, address, troubles)
}

pub fn server() -> (Server, SocketAddr, Troubles) {
    server_with(|builder| builder)
}

pub fn lookup(address: SocketAddr) -> PasswordLookupClient {
    farcall_courier::cooper::import::<dyn PasswordLookup>(&format!("tcp://{address}")).unwrap()
}

/// The activation of [`PasswordLookup`].
pub fn activation() -> Vec<u8> {
    bytes("000e 5061 7373 776f 7264 4c6f 6f6b 7570")
}

/// Connects to a server, activates the program, and returns the connection.
pub fn activated(address: SocketAddr) -> TcpStream {
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(&activation()).unwrap();
    let mut answer = [1];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0]);
    peer
}

/// Sends bytes, and returns all that a server sends until it ends the connection.
pub fn answer(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut peer = activated(address);
    peer.write_all(sent).unwrap();
    let mut answer = Vec::new();
    // The server may end a connection whose bytes it has not all read, which resets it.
    let _ = peer.read_to_end(&mut answer);
    answer
}

/// What a scripted server does on a connection.
pub type Script = dyn FnOnce(&mut TcpStream) + Send;

/// Serves one connection after the other by a script each.
pub fn scripted(scripts: Vec<Box<Script>>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        for script in scripts {
            let (mut peer, _) = listener.accept().unwrap();
            script(&mut peer);
            let _ = peer.shutdown(Shutdown::Write);
            // Closing with unread bytes would reset the connection, and what was sent would be lost.
            let _ = peer.read_to_end(&mut Vec::new());
        }
    });
    (address, thread)
}

/// Receives so many bytes.
pub fn receive(peer: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut received = vec![0; count];
    peer.read_exact(&mut received).unwrap();
    received
}

/// Returns the bytes of words in hexadecimal.
pub fn bytes(words: &str) -> Vec<u8> {
    words.split_whitespace().flat_map(|word| u16::from_str_radix(word, 16).unwrap().to_be_bytes()).collect()
}
