//! The strangers beside the honest callers: each kind does its harm at a fixed rate, or in its place as many
//! well-formed datagrams or connections.
use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farcall_bench_secure::crowd::{Crowd, Gate, HONEST, Kind as Handshakes};
use farcall_proto::ClientConfig;
use farcall_rpc2::packet::{self, Header};

use super::callers;
use super::icmp::Forger;
use super::servers::{Doubling, DoublingClient, Places, SUBSYSTEM, Work as _};
use crate::hostile::formed::Formed;
use crate::hostile::harm::Dice;

/// A kind of stranger.
pub trait Stranger: Send {
    /// Makes ready what takes long, for as much harm as is due in the next phase.
    fn prepare(&mut self, _units: usize) -> Result<()> {
        Ok(())
    }

    /// Sends a hostile datagram, or makes a hostile connection.
    fn harm(&mut self, nth: usize) -> Result<()>;

    /// Sends a well-formed datagram, or makes a well-formed connection.
    fn form(&mut self, nth: usize) -> Result<()>;

    /// Receives, and goes on with what is under way.
    fn tend(&mut self) {}
}

/// Returns all kinds with their names, and how many datagrams or connections each has in a second.
pub fn all(attacked: &Places, spared: &Places) -> Result<Vec<(&'static str, f64, Box<dyn Stranger>)>> {
    Ok(vec![
        ("handshakes", 1_000.0, Box::new(Asking::new(attacked, spared)?)),
        ("ICMP", 2_000.0, Box::new(Forging::new(attacked, spared)?)),
        ("ONC datagrams", 500.0, Box::new(Datagrams::new(attacked, spared)?)),
        ("RPC2 binds", 300.0, Box::new(Binding::new(attacked, spared)?)),
        ("ONC slow writers", 20.0, Box::new(Slow::new(attacked, spared, Over::Onc))),
        ("Courier half packets", 20.0, Box::new(Slow::new(attacked, spared, Over::Courier))),
        ("page", 20.0, Box::new(Requests::new(attacked, spared))),
    ])
}

fn socket(here: [u8; 4], to: SocketAddr) -> Result<UdpSocket> {
    let here = if to.is_ipv4() { IpAddr::from(here) } else { "::1".parse()? };
    let socket = UdpSocket::bind((here, 0)).with_context(|| format!("binding to {here}"))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Asks for handshakes of all kinds, or calls with keys.
struct Asking {
    crowd: Crowd,
    formed: Vec<Formed>,
}

impl Asking {
    fn new(attacked: &Places, spared: &Places) -> Result<Asking> {
        let hosts: Vec<IpAddr> = (40..48).map(|host| Ipv4Addr::new(127, 0, 0, host).into()).collect();
        let (gate, mut dice) = (Gate::new(HONEST, Vec::new())?, Dice::new(11));
        let mut formed = Vec::new();
        for host in 0..8 {
            let config = ClientConfig { trust: Some(gate.clone()), ..ClientConfig::default() };
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 40 + host), 0))?;
            socket.set_nonblocking(true)?;
            formed.push(Formed::with(config, socket, spared.keyed, &mut dice)?);
        }
        Ok(Asking { crowd: Crowd::new(&hosts, attacked.keyed)?, formed })
    }
}

impl Stranger for Asking {
    fn prepare(&mut self, units: usize) -> Result<()> {
        self.crowd.prepare(Handshakes::Mixed, units)?;
        self.crowd.begin();
        Ok(())
    }

    fn harm(&mut self, nth: usize) -> Result<()> {
        self.crowd.send(Handshakes::Mixed, nth);
        Ok(())
    }

    fn form(&mut self, nth: usize) -> Result<()> {
        let at = nth % self.formed.len();
        self.formed[at].call(1_000);
        Ok(())
    }

    fn tend(&mut self) {
        for formed in &mut self.formed {
            // A datagram that is lost is sent again.
            formed.receive();
        }
    }
}

/// Forges ICMP messages about every UDP socket, or makes null calls of ONC RPC.
struct Forging {
    forger: Forger,
    victims: Vec<SocketAddr>,
    dice: Dice,
    formed: Vec<UdpSocket>,
}

impl Forging {
    fn new(attacked: &Places, spared: &Places) -> Result<Forging> {
        let victims = [attacked.open[0], attacked.keyed, attacked.onc[0], attacked.onc[1], attacked.rpc2];
        let formed = (50..58).map(|host| socket([127, 0, 0, host], spared.onc[0]));
        Ok(Forging {
            forger: Forger::new()?,
            victims: victims.into(),
            dice: Dice::new(13),
            formed: formed.collect::<Result<_>>()?,
        })
    }
}

impl Stranger for Forging {
    fn harm(&mut self, nth: usize) -> Result<()> {
        self.forger.forge(self.victims[nth % self.victims.len()], &mut self.dice);
        Ok(())
    }

    fn form(&mut self, nth: usize) -> Result<()> {
        let _ = self.formed[nth % self.formed.len()].send(&null_call(nth as u32));
        Ok(())
    }

    fn tend(&mut self) {
        drain(&self.formed);
    }
}

fn drain(sockets: &[UdpSocket]) {
    let mut buffer = [0; 9_000];
    sockets.iter().for_each(|socket| while socket.recv(&mut buffer).is_ok() {});
}

/// Returns the message of a null call of the program (RFC 5531).
fn null_call(xid: u32) -> Vec<u8> {
    [xid, 0, 2, 900, 3, 0, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Sends garbage to ONC RPC over UDP, or null calls.
struct Datagrams {
    hostile: Vec<UdpSocket>,
    formed: Vec<UdpSocket>,
    dice: Dice,
}

impl Datagrams {
    fn new(attacked: &Places, spared: &Places) -> Result<Datagrams> {
        let sockets = |places: &Places| -> Result<Vec<UdpSocket>> {
            let at = |host: u8| socket([127, 0, 0, 60 + host], places.onc[usize::from(host % 2)]);
            (0..8).map(at).collect()
        };
        Ok(Datagrams { hostile: sockets(attacked)?, formed: sockets(spared)?, dice: Dice::new(17) })
    }
}

impl Stranger for Datagrams {
    fn harm(&mut self, nth: usize) -> Result<()> {
        let mut message = null_call(nth as u32);
        match self.dice.below(6) {
            // Other versions, programs and procedures, and a reply.
            0 => message[4 * self.dice.below(6) as usize + 3] ^= self.dice.next() as u8,
            1 => message.truncate(self.dice.below(41) as usize),
            // A credential that claims to be very long.
            2 => message[28..32].copy_from_slice(&u32::MAX.to_be_bytes()),
            3 => message = (0..self.dice.below(180)).flat_map(|_| self.dice.next().to_be_bytes()).collect(),
            4 => message.resize(8_000, 0xff),
            // A call whose argument is missing.
            _ => message[23] = 1,
        }
        let _ = self.hostile[nth % self.hostile.len()].send(&message);
        Ok(())
    }

    fn form(&mut self, nth: usize) -> Result<()> {
        let _ = self.formed[nth % self.formed.len()].send(&null_call(nth as u32));
        Ok(())
    }

    fn tend(&mut self) {
        drain(&self.hostile);
        drain(&self.formed);
    }
}

/// Binds from many addresses without ever calling, or calls RPC2.
struct Binding {
    hostile: Vec<UdpSocket>,
    formed: Vec<DoublingClient>,
}

impl Binding {
    fn new(attacked: &Places, spared: &Places) -> Result<Binding> {
        let at = |host: u8| socket([127, 1, host, 1], attacked.rpc2);
        let import = |_| {
            let address = format!("rpc2://{}/{SUBSYSTEM}", spared.rpc2);
            Ok(farcall_rpc2::import::<dyn Doubling>(&address)?)
        };
        Ok(Binding {
            hostile: (0..64).map(at).collect::<Result<_>>()?,
            formed: (0..16).map(import).collect::<Result<_>>()?,
        })
    }
}

impl Stranger for Binding {
    fn harm(&mut self, nth: usize) -> Result<()> {
        let header = Header {
            local: nth as u32,
            uniquefier: nth as u32,
            opcode: packet::INIT1_OPEN,
            subsystem: SUBSYSTEM,
            ..Header::default()
        };
        let mut bind = Vec::new();
        header.write(&packet::bind_body(b"stranger"), &mut bind);
        let _ = self.hostile[nth % self.hostile.len()].send(&bind);
        Ok(())
    }

    fn form(&mut self, nth: usize) -> Result<()> {
        self.formed[nth % self.formed.len()].double(1)?;
        Ok(())
    }

    fn tend(&mut self) {
        drain(&self.hostile);
    }
}

/// A protocol over TCP.
#[derive(Clone, Copy)]
enum Over {
    Onc,
    Courier,
}

/// The most connections that are open at the same time.
const MOST_CONNECTIONS: usize = 400;

/// Connects, and writes the beginning of a message and then a byte from time to time, or nothing at all; or
/// connects, calls and leaves.
struct Slow {
    at: [SocketAddr; 2],
    over: Over,
    open: VecDeque<TcpStream>,
    tended: Instant,
}

impl Slow {
    fn new(attacked: &Places, spared: &Places, over: Over) -> Slow {
        let at = |places: &Places| match over {
            Over::Onc => places.onc_tcp,
            Over::Courier => places.courier,
        };
        Slow { at: [at(attacked), at(spared)], over, open: VecDeque::new(), tended: Instant::now() }
    }
}

impl Stranger for Slow {
    fn harm(&mut self, nth: usize) -> Result<()> {
        if self.open.len() == MOST_CONNECTIONS {
            self.open.pop_front();
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&self.at[0], Duration::from_secs(1)) else {
            return Ok(());
        };
        stream.set_nonblocking(true)?;
        let begun: &[u8] = match (self.over, nth % 3) {
            (_, 0) => &[],
            // A record of 1 MiB, and the header of its call.
            (Over::Onc, _) => &[0x80, 0x10, 0, 0, 0, 0, 0, 1],
            // The versions, and the length of a packet with half of its header.
            (Over::Courier, _) => &[0, 3, 0, 3, 0x02, 0x22, 0x10, 0, 0, 1],
        };
        let _ = stream.write(begun);
        self.open.push_back(stream);
        Ok(())
    }

    fn form(&mut self, nth: usize) -> Result<()> {
        self.open.clear();
        let work = match self.over {
            Over::Onc => callers::onc_tcp(self.at[1])?,
            Over::Courier => callers::courier(self.at[1])?,
        };
        work.next(nth as u16)?;
        Ok(())
    }

    fn tend(&mut self) {
        if self.tended.elapsed() < Duration::from_millis(500) {
            return;
        }
        self.tended = Instant::now();
        // A server may have ended a connection.
        self.open.retain_mut(|stream| match stream.write(&[0]) {
            Err(why) => why.kind() == std::io::ErrorKind::WouldBlock,
            Ok(_) => true,
        });
    }
}

/// The most unfinished requests of the page at a time: half as many as the page's connections, which are for
/// everybody.
const MOST_UNFINISHED: usize = 16;

/// Sends the page requests without its token, of other origins, malformed and unfinished; or requests of its
/// own.
struct Requests {
    attacked: Places,
    spared: Places,
    unfinished: VecDeque<TcpStream>,
    dice: Dice,
}

impl Requests {
    fn new(attacked: &Places, spared: &Places) -> Requests {
        let (attacked, spared) = (attacked.clone(), spared.clone());
        Requests { attacked, spared, unfinished: VecDeque::new(), dice: Dice::new(19) }
    }
}

impl Stranger for Requests {
    fn harm(&mut self, _: usize) -> Result<()> {
        let Places { page, token, .. } = &self.attacked;
        let usual = callers::request(&self.attacked, token);
        let request = match self.dice.below(7) {
            0 => callers::request(&self.attacked, "00"),
            1 => usual.replace("Host: ", "Origin: http://evil.example\r\nHost: "),
            2 => usual.replace(&page.to_string(), "evil.example"),
            3 => usual.replace("/api/graph", &format!("/{}", "a".repeat(100_000))),
            4 => usual
                .replace("GET /api/graph", "POST /api/command")
                .replace("Host", "Content-Length: 9999999999\r\nHost"),
            5 => usual.replace("HTTP", "\u{1}\u{2}HTTP"),
            _ => usual[..usual.len() / 2].to_owned(),
        };
        let Ok(mut stream) = TcpStream::connect_timeout(page, Duration::from_secs(1)) else { return Ok(()) };
        stream.set_nonblocking(true)?;
        let _ = stream.write(request.as_bytes());
        if self.unfinished.len() == MOST_UNFINISHED {
            self.unfinished.pop_front();
        }
        self.unfinished.push_back(stream);
        Ok(())
    }

    fn form(&mut self, _: usize) -> Result<()> {
        self.unfinished.clear();
        callers::page(&self.spared)
    }
}
