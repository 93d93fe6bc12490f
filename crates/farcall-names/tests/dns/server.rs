//! A DNS server on loopback that answers as a test tells it to.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farcall_names::{Dns, Entry, Label};
use simple_dns::rdata::{A, AAAA, CNAME, RData, SOA, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

/// The longest time that a test waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time to live that is kept, in seconds.
pub const LONG: u32 = 3600;

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    asked: Arc<AtomicUsize>,
}

/// Returns what the server sends for a question.
type Behaviour = Box<dyn FnMut(&Query) -> Vec<Reply> + Send>;

/// A question that has come.
#[derive(Clone)]
pub struct Query {
    pub name: String,
    pub kind: TYPE,
    pub by_tcp: bool,
    /// Whether the answer may be longer than 512 bytes.
    pub extended: bool,
    pub bytes: Vec<u8>,
    /// Where the question came from.
    pub from: SocketAddr,
}

/// What a server sends.
pub enum Reply {
    Message(Vec<u8>),
    /// A datagram to another address than that of the question.
    To(SocketAddr, Vec<u8>),
    /// A datagram from another address than that of the server.
    FromElsewhere(Vec<u8>),
}

pub type Record = ResourceRecord<'static>;

impl Server {
    pub fn new(behaviour: impl FnMut(&Query) -> Vec<Reply> + Send + 'static) -> Server {
        let udp = UdpSocket::bind((host(), 0)).unwrap();
        let address = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).unwrap();
        let behaviour: Arc<Mutex<Behaviour>> = Arc::new(Mutex::new(Box::new(behaviour)));
        let server = Server { address, behaviour: behaviour.clone(), asked: Arc::default() };
        let (by_udp, asked) = (behaviour.clone(), server.asked.clone());
        // The threads end with the test program.
        std::thread::spawn(move || serve_udp(&udp, &by_udp, &asked));
        let asked = server.asked.clone();
        std::thread::spawn(move || serve_tcp(&tcp, &behaviour, &asked));
        server
    }

    /// Returns a server that knows these records, and no others.
    pub fn of(records: Vec<Record>) -> Server {
        let server = Server::new(|_| Vec::new());
        server.know(records);
        server
    }

    /// Has the server know other records.
    pub fn know(&self, records: Vec<Record>) {
        self.behave(move |query| vec![Reply::Message(answer(query, &records))]);
    }

    /// Has the server behave in another way.
    pub fn behave(&self, behaviour: impl FnMut(&Query) -> Vec<Reply> + Send + 'static) {
        *self.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// Returns how many questions have come.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns a registry that asks this server about `example.org`.
    pub fn registry(&self) -> Dns {
        registry(&[self.address])
    }
}

/// Returns an address on loopback that no other test uses.
pub fn host() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | high & 63, low, LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Returns a registry that asks these servers about `example.org`.
pub fn registry(servers: &[SocketAddr]) -> Dns {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    Dns::at(&format!("dns://example.org?server={}", servers.join(","))).unwrap()
}

/// Returns a registry that asks this server about `example.org`, and lets every host have a loopback address.
pub fn local_registry(server: &Server) -> Dns {
    Dns::at(&format!("dns://example.org?server={}&local-addresses", server.address)).unwrap()
}

fn serve_udp(udp: &UdpSocket, behaviour: &Mutex<Behaviour>, asked: &AtomicUsize) {
    let mut buffer = [0; 4096];
    loop {
        let (len, from) = udp.recv_from(&mut buffer).unwrap();
        asked.fetch_add(1, Ordering::SeqCst);
        let query = Query::parse(&buffer[..len], from, false);
        let replies = (behaviour.lock().unwrap())(&query);
        for reply in replies {
            // The socket that has asked may be closed.
            let _ = match reply {
                Reply::Message(message) => udp.send_to(&message, from),
                Reply::To(other, message) => udp.send_to(&message, other),
                Reply::FromElsewhere(message) => UdpSocket::bind((host(), udp.local_addr().unwrap().port()))
                    .unwrap()
                    .send_to(&message, from),
            };
        }
    }
}

fn serve_tcp(tcp: &TcpListener, behaviour: &Mutex<Behaviour>, asked: &AtomicUsize) {
    loop {
        let (mut stream, from) = tcp.accept().unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut bytes).unwrap();
        asked.fetch_add(1, Ordering::SeqCst);
        let replies = (behaviour.lock().unwrap())(&Query::parse(&bytes, from, true));
        for reply in replies {
            let Reply::Message(message) = reply else { panic!("TCP has one peer") };
            let len = u16::try_from(message.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&len[..], &message].concat());
        }
    }
}

impl Query {
    fn parse(bytes: &[u8], from: SocketAddr, by_tcp: bool) -> Query {
        let packet = Packet::parse(bytes).unwrap();
        assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED));
        let question = &packet.questions[0];
        let QTYPE::TYPE(kind) = question.qtype else { panic!("{:?}", question.qtype) };
        let (name, extended) = (question.qname.to_string(), packet.opt().is_some());
        Query { name, kind, by_tcp, extended, bytes: bytes.to_vec(), from }
    }

    /// Returns an answer to this question, with these records.
    pub fn answer(&self, records: &[Record], additional: &[Record]) -> Packet<'_> {
        let mut packet = Packet::parse(&self.bytes).unwrap().into_reply();
        *packet.opt_mut() = None;
        packet.answers = records.to_vec();
        packet.additional_records = additional.to_vec();
        packet
    }
}

/// Returns what a server that has these records answers. Addresses of targets come with them.
pub fn answer(query: &Query, records: &[Record]) -> Vec<u8> {
    let named = |name: &str| -> Vec<Record> {
        records.iter().filter(|record| record.name.to_string() == name).cloned().collect()
    };
    let (mut answers, mut name) = (Vec::new(), query.name.clone());
    loop {
        let own = named(&name);
        answers.extend(own.iter().filter(|record| record.rdata.type_code() == query.kind).cloned());
        let alias = own.iter().find_map(|record| match &record.rdata {
            RData::CNAME(CNAME(next)) => Some((record, next.to_string())),
            _ => None,
        });
        let Some((record, next)) = alias else { break };
        answers.push(record.clone());
        name = next;
    }
    let targets = answers.iter().filter_map(|record| match &record.rdata {
        RData::SRV(srv) => Some(srv.target.to_string()),
        _ => None,
    });
    let targets: std::collections::BTreeSet<String> = targets.collect();
    let is_address = |record: &Record| matches!(record.rdata, RData::A(_) | RData::AAAA(_));
    let additional: Vec<Record> =
        targets.iter().flat_map(|target| named(target)).filter(is_address).collect();
    let mut packet = query.answer(&answers, &additional);
    if answers.is_empty() && named(&query.name).is_empty() {
        *packet.rcode_mut() = RCODE::NameError;
    }
    encode(query, &packet)
}

/// Encodes an answer. Says that it is truncated if it is too long for the datagram that the question permits.
pub fn encode(query: &Query, packet: &Packet<'_>) -> Vec<u8> {
    let bytes = packet.build_bytes_vec_compressed().unwrap();
    let limit = if query.extended { 1232 } else { 512 };
    if query.by_tcp || bytes.len() <= limit {
        return bytes;
    }
    let mut short = query.answer(&[], &[]);
    short.set_flags(PacketFlag::TRUNCATION);
    short.build_bytes_vec_compressed().unwrap()
}

fn record(name: &str, ttl: u32, data: RData<'static>) -> Record {
    ResourceRecord::new(Name::new(name).unwrap().into_owned(), CLASS::IN, ttl, data)
}

/// Returns a target of `_store._udp.example.org`.
pub fn store(priority: u16, host: &str, port: u16) -> Record {
    srv("_store._udp.example.org", LONG, priority, host, port)
}

pub fn srv(name: &str, ttl: u32, priority: u16, host: &str, port: u16) -> Record {
    let target = Name::new(host).unwrap().into_owned();
    record(name, ttl, RData::SRV(SRV { priority, weight: 1, port, target }))
}

pub fn address(name: &str, ip: &str) -> Record {
    let data = match ip.parse().unwrap() {
        IpAddr::V4(ip) => RData::A(A { address: ip.into() }),
        IpAddr::V6(ip) => RData::AAAA(AAAA { address: ip.into() }),
    };
    record(name, LONG, data)
}

pub fn alias(name: &str, target: &str) -> Record {
    record(name, LONG, RData::CNAME(CNAME(Name::new(target).unwrap().into_owned())))
}

/// Returns the record that says how long it stays true that there is none.
pub fn authority(minimum: u32) -> Record {
    let name = |text| Name::new(text).unwrap().into_owned();
    let soa = SOA {
        mname: name("ns.example.org"),
        rname: name("admin.example.org"),
        serial: 1,
        refresh: 1,
        retry: 1,
        expire: 1,
        minimum,
    };
    record("example.org", LONG, RData::SOA(soa))
}

pub fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// Returns entries as `ebbets udp://10.0.0.7:7000`.
pub fn shown(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| format!("{} {}", entry.instance, entry.address)).collect()
}

/// Waits until `attempt` returns a value.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}
