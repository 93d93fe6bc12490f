//! The anchor of sealed calls: a UDP ping-pong with nothing but the system calls and the seals. Its datagrams
//! are as long as farcall's are for the same call, and sealed by the same library and suite.
use std::io::{self, ErrorKind::WouldBlock};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use farcall_bench_method::{
    Calling, Carry, Crew, Gate, Gated, Laps, Lost, Mode, Peer, Serving, Setup, cannot, enlarge,
};
use farcall_crypto::{Level, Suite, Suites, TAG};
use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// The time after which a datagram counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// Bytes of a datagram's header. The last eight are the datagram's number.
const HEADER: usize = 20;
/// Bytes of a frame's head.
const FRAME_HEAD: usize = 4;
/// Bytes of a CALL before its arguments (docs/protocol.md, section 3.3).
const CALL: usize = 28;
/// Bytes of a RESULT before the result.
const RESULT: usize = 20;
/// Bytes that XDR puts before a sequence of bytes.
const COUNT: usize = 4;

/// Server and client, which seal at this level.
pub struct RawSealed(pub Level);

impl Peer for RawSealed {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn version(&self) -> String {
        suite(self.0).map_or(String::new(), |suite| format!("by ring, {suite:?}"))
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both || setup.bytes > 60_000 {
            return cannot("one datagram is not enough");
        }
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?.to_string();
        enlarge(&socket);
        socket.set_nonblocking(setup.mode == Mode::Spin)?;
        let gate = Gate::new(setup);
        let (passed, seals, length) = (gate.clone(), Seals::new(self.0)?, result_length(setup.bytes));
        let thread = std::thread::spawn(move || serve(&socket, &passed, &seals, length)).thread().clone();
        Ok(Box::new(Gated { address, gate, thread }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let server: SocketAddr = address.parse()?;
        let client = SealedClient::new(setup, server, self.0)?;
        Ok(Box::new(Client { client, setup: *setup, server, level: self.0, crew: None }))
    }
}

/// Returns the bytes of the datagram of a call with these arguments (`farcall_proto::wire::call_overhead`).
fn call_length(bytes: usize) -> usize {
    let arguments = if bytes == 0 { 0 } else { COUNT + bytes.next_multiple_of(4) };
    HEADER + FRAME_HEAD + CALL + arguments + TAG
}

/// Returns the bytes of the datagram of its result. Results of 32 bytes have a fixed length, so XDR does not
/// count them.
fn result_length(bytes: usize) -> usize {
    let count = if matches!(bytes, 0 | 32) { 0 } else { COUNT };
    HEADER + FRAME_HEAD + RESULT + count + bytes.next_multiple_of(4) + TAG
}

/// Serves. A socket that blocks never returns `WouldBlock`. A datagram that does not open goes back as it is,
/// so that the client fails.
fn serve(socket: &UdpSocket, gate: &Gate, seals: &Seals, length: usize) -> io::Result<()> {
    let mut buffer = [0; 65_536];
    let mut number = 0;
    loop {
        gate.pass();
        match socket.recv_from(&mut buffer) {
            Ok((received, client)) => {
                let mut answered = received;
                if seals.open(&seals.to_server, &mut buffer[..received]) {
                    answered = length;
                    number += 1;
                    seals.seal(&seals.to_client, number, &mut buffer[..length]);
                }
                socket.send_to(&buffer[..answered], client)?;
            }
            Err(why) if why.kind() == WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
}

struct Client {
    client: SealedClient,
    setup: Setup,
    server: SocketAddr,
    level: Level,
    crew: Option<Crew>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.client.send()?;
            self.client.receive()?;
        }
        Ok(())
    }

    /// Uses a system call for each packet. Nothing is retransmitted: a lost datagram makes the block void.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        self.client.socket.set_read_timeout(Some(LOST))?;
        let (mut sent, mut received) = (0, 0);
        while received < calls {
            if sent < calls.min(received + outstanding) {
                self.client.send()?;
                sent += 1;
            } else {
                self.client.receive()?;
                received += 1;
            }
        }
        self.client.socket.set_read_timeout(None)?;
        Ok(())
    }

    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let (setup, server, level) = (self.setup, self.server, self.level);
        let member = || {
            let mut client = SealedClient::new(&setup, server, level)?;
            Ok(move |calls| {
                (0..calls).try_for_each(|_| {
                    client.send()?;
                    client.receive()
                })
            })
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }
}

struct SealedClient {
    socket: UdpSocket,
    spins: bool,
    seals: Seals,
    /// The number of the latest datagram.
    number: u64,
    /// The length of a call's datagram.
    length: usize,
    buffer: Vec<u8>,
}

impl SealedClient {
    fn new(setup: &Setup, server: SocketAddr, level: Level) -> Result<SealedClient> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(server)?;
        let spins = setup.mode == Mode::Spin;
        socket.set_nonblocking(spins)?;
        enlarge(&socket);
        let length = call_length(setup.bytes);
        let buffer = vec![7; length.max(result_length(setup.bytes))];
        Ok(SealedClient { socket, spins, seals: Seals::new(level)?, number: 0, length, buffer })
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        self.number += 1;
        let datagram = &mut self.buffer[..self.length];
        self.seals.seal(&self.seals.to_server, self.number, datagram);
        self.socket.send(datagram)?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let received = loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(received) => break received,
                Err(why) if why.kind() == WouldBlock && self.spins => {}
                Err(why) => return Lost::unless(Err(why)),
            }
        };
        ensure!(self.seals.open(&self.seals.to_client, &mut self.buffer[..received]), "a seal is wrong");
        Ok(())
    }
}

/// The keys of both directions.
struct Seals {
    level: Level,
    to_server: LessSafeKey,
    to_client: LessSafeKey,
}

impl Seals {
    /// Expands keys that both ends know beforehand.
    fn new(level: Level) -> Result<Seals> {
        let algorithm = match suite(level)? {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = |byte: u8| {
            let key = UnboundKey::new(algorithm, &[byte; 32][..algorithm.key_len()]);
            key.ok().map(LessSafeKey::new).context("the key has the wrong length")
        };
        Ok(Seals { level, to_server: key(1)?, to_client: key(2)? })
    }

    /// Writes the number and the tag.
    #[inline]
    fn seal(&self, key: &LessSafeKey, number: u64, datagram: &mut [u8]) {
        datagram[HEADER - 8..HEADER].copy_from_slice(&number.to_be_bytes());
        let clear = self.clear(datagram.len());
        let (body, tag) = datagram.split_at_mut(datagram.len() - TAG);
        let (header, frames) = body.split_at_mut(clear);
        if let Ok(sealed) = key.seal_in_place_separate_tag(nonce(number), Aad::from(header), frames) {
            tag.copy_from_slice(sealed.as_ref());
        }
    }

    #[inline]
    fn open(&self, key: &LessSafeKey, datagram: &mut [u8]) -> bool {
        if datagram.len() < HEADER + TAG {
            return false;
        }
        let (header, sealed) = datagram.split_at_mut(self.clear(datagram.len()));
        let number = header[HEADER - 8..HEADER].try_into().map_or(0, u64::from_be_bytes);
        key.open_in_place(nonce(number), Aad::from(header), sealed).is_ok()
    }

    /// Returns how many of a datagram's bytes are not encrypted, besides its tag.
    fn clear(&self, length: usize) -> usize {
        match self.level {
            Level::Authenticated => length - TAG,
            Level::Secure => HEADER,
        }
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Returns the suite that farcall takes between two ends on this machine.
fn suite(level: Level) -> Result<Suite> {
    Suites::of_this_machine().best(level).context("no suite")
}
