//! Writes the seeds of every fuzz target to `fuzz/corpus`: `cargo run -p farcall-fuzz-targets --example
//! seeds`.
//!
//! They are what goes over the wire when all is well. After a change of a format, run it again.

#[path = "seeds/certificates.rs"]
mod certificates;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use farcall_courier::wire::exchange::Packet;
use farcall_courier::wire::message::{Call, Courier, Message, Rejection, Versions};
use farcall_courier::wire::packet::{Datastream, PacketWriter};
use farcall_courier::wire::reply::FIRST_ID;
use farcall_fuzz_targets::acquaintance::{Acquaintance, ROOM, address, call};
use farcall_fuzz_targets::script::Writer;
use farcall_fuzz_targets::shapes::{self, Shape};
use farcall_fuzz_targets::specimen;
use farcall_idl::{Interface, values};
use farcall_keys::{EnrolmentToken, Identity, Keyring, Presentation, Revoked, Rights, Template, Terms};
use farcall_proto::client::CallId;
use farcall_proto::server::{CallKey, Finish, Request};
use farcall_proto::{Failure, Kind, Ran, Tail, Trace, fuzzing};
use farcall_shm::{Hello, KeyedHello, TicketHolder, Wants};
use farcall_xdr::schema::{Type, Types};
use farcall_xdr::{Decoder, Encode, Encoder, Schema, to_vec};

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for (target, name, data) in all() {
        let directory = corpus.join(target);
        std::fs::create_dir_all(&directory).expect("a directory for the corpus");
        std::fs::write(directory.join(name), data).expect("room for a seed");
    }
}

/// A target, a file of its corpus, and what that holds.
type Seed = (String, String, Vec<u8>);

thread_local! {
    static SEEDS: RefCell<Vec<Seed>> = const { RefCell::new(Vec::new()) };
}

/// Every seed, the same each time.
pub fn all() -> Vec<Seed> {
    protocol();
    trains();
    memory();
    descriptions();
    registry();
    keys();
    certificates::certificates();
    courier();
    SEEDS.take()
}

fn seed(target: &str, name: &str, data: &[u8]) {
    SEEDS.with_borrow_mut(|seeds| seeds.push((target.into(), name.into(), data.into())));
}

/// A connection of Courier as a server receives it, and values.
fn courier() {
    let mut packets = PacketWriter::default();
    let mut stream = vec![200];
    let mut first = Versions::THREE.to_bytes().to_vec();
    let lookup = Call { id: 0x1234, program: 754, version: 1, procedure: 1, arguments: b"\0\x04root" };
    Message::Call(lookup).write(Courier::Three, &mut first);
    packets.write(Datastream::Messages, &first, true, &mut stream);
    packets.write(Datastream::Bulk, &[7; 600], true, &mut stream);
    packets.attention(Datastream::Bulk, 1, &mut stream);
    for message in [
        Message::Reject(0x1235, Rejection::NoSuchVersion(Some(Versions::ALL))),
        Message::Return(0x1236, &[0, 7, 0, 0]),
        Message::Abort(0x1237, &[0, 1, 0, 2, b'n', b'o']),
    ] {
        let mut bytes = Vec::new();
        message.write(Courier::Three, &mut bytes);
        packets.write(Datastream::Messages, &bytes, true, &mut stream);
    }
    packets.write(Datastream::End, &[], true, &mut stream);
    seed("courier_stream", "connection", &stream);
    // A tree: a node with a leaf, and a next one that is a leaf.
    let tree = [0, 7, 0, 2, 0, 0, 1, 44, 0, 0];
    seed("courier_words", "tree", &[&[0][..], &tree].concat());
    let everything = [
        &[4, 0, 2, 0, 1, 0, 0][..],
        &[0, 1, 0xff, 0xfe, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xfc],
        &[0, 1, 0xff, 0xff],
        &[0, 1, 0, 0, 0, 9],
        &[0, 2, 0, 1, b'x', 0, 0, 0],
        &[0, 1, 0, 1, 0, 2],
        &[0, 9],
        &tree,
    ];
    seed("courier_words", "everything", &everything.concat());
    courier_ends(&tree);
}

/// What each end of Courier's other protocols receives when all is well. The first byte says which end it is.
fn courier_ends(tree: &[u8]) {
    let (client, server) = (&[0][..], &[1][..]);
    // An activation, and the calls of each procedure.
    let activation = &b"\0\x05Plain\0"[..];
    let calls = [
        &[0, 2, 0, 3, 0, 2, 1, 0, 0, 0][..],
        &[0, 3, 0, 3, 0, 4, b'r', b'o', b'o', b't'],
        &[&[0, 1, 0, 5], tree].concat(),
    ];
    seed("courier_cooper", "calls", &[server, &packets(&[activation, &calls.concat()])].concat());
    seed("courier_cooper", "unknown program", &[server, &packets(&[b"\0\x03Odd\0"])].concat());
    let replies = [&[0, 3, 0, 2, 1, 0, 0, 0][..], &[&[0, 5], tree].concat()];
    seed("courier_cooper", "replies", &[client, &packets(&[&[0], replies[0], replies[1]])].concat());
    seed("courier_cooper", "refusal", &[client, &packets(&[b"Try again.\n\0"])].concat());
    seed("courier_packets", "calls", &[server, &packets(&calls)].concat());
    seed("courier_packets", "replies", &[client, &packets(&replies)].concat());

    let exchanged = |exchange: u32, message: Message<'_>| {
        let (mut bytes, mut packet) = (Vec::new(), Vec::new());
        message.write(Courier::Three, &mut bytes);
        Packet { exchange, client_type: 0, versions: Versions::THREE, message: &bytes }.write(&mut packet);
        packet
    };
    let call = |id, version, procedure, arguments| {
        Message::Call(Call { id, program: 754, version, procedure, arguments })
    };
    let calls = [
        exchanged(7, call(0x107, 1, 2, b"\0\x04root")),
        exchanged(7, call(0x107, 1, 2, b"\0\x04root")),
        exchanged(8, call(0x108, 1, 2, &[0, 0])),
        exchanged(9, call(0x109, 1, 1, tree)),
        exchanged(10, call(0x10a, 2, 1, tree)),
    ];
    seed("courier_expedited", "calls", &[server, &packets(&calls.each_ref().map(|call| &call[..]))].concat());
    let replies = [
        exchanged(0xffff, Message::Return(0xffff, &[])),
        exchanged(0, Message::Abort(FIRST_ID, &[0, 2, 0, 0, 0, 100])),
        exchanged(1, Message::Return(FIRST_ID + 1, tree)),
    ];
    let replies = packets(&replies.each_ref().map(|reply| &reply[..]));
    seed("courier_expedited", "replies", &[client, &replies].concat());
    let rejection = exchanged(0, Message::Reject(FIRST_ID, Rejection::NoSuchProcedure));
    seed("courier_expedited", "rejection", &[client, &packets(&[&rejection])].concat());
}

/// Returns packets one after another, each after its length.
fn packets(packets: &[&[u8]]) -> Vec<u8> {
    packets.iter().flat_map(|packet| [&(packet.len() as u16).to_be_bytes()[..], packet].concat()).collect()
}

/// Grants, presentations, proofs of entries, revocation lists, and a key file of each kind, of identities
/// whose entropy is fixed.
fn keys() {
    let [authority, end] = [1, 7].map(|byte| Identity::from_entropy([byte; 32]));
    let grant = |scope: &str| {
        let principal = "alice".parse().expect("a principal");
        let (scope, rights) = (scope.parse().expect("a scope"), Rights::BOTH);
        let terms = Terms { key: end.public(), principal, rights, scope, serial: 7, expires: 1_800_000_000 };
        authority.grant(terms).expect("short names")
    };
    let (some, all) = (grant("Store/replica-*"), grant("*"));
    seed("grant", "some", &some.encode());
    seed("grant", "all", &all.encode());
    seed("presentation", "none", &Presentation::new(end.public(), []).encode());
    seed("presentation", "two", &Presentation::new(end.public(), [some.clone(), all.clone()]).encode());
    let exporter = Keyring::new(Identity::from_entropy([7; 32]));
    seed("entry_proof", "key", &exporter.prove_entry("Store", "main", b"", 1_800_000_000));
    let exporter = exporter.with_grant(all.clone()).expect("a grant for its key");
    seed("entry_proof", "grant", &exporter.prove_entry("Store", "main", b"", 1_800_000_000));
    let revoked = Revoked::new([end.public()], [7, 8]).expect("three");
    let list = authority.revoke(3, 1_800_000_000, 604_800, revoked);
    seed("revocation_list", "three", &list.encode());
    seed("revocation_list", "empty", &authority.revoke(1, 0, 0, Revoked::default()).encode());
    let (key, base64) = (end.public(), base64::engine::general_purpose::STANDARD.encode(list.encode()));
    let mark = |word| format!("-----{word} FARCALL REVOCATION LIST-----");
    let policy = "# rules\ndeny eve *\nallow alice Store/main get,list_*\nallow m-* @health,@memory:read\n";
    for (number, name, text) in [
        (0, "grants", format!("{} # ours\n{}\n", some.to_text(), all.to_text())),
        (1, "authorities", format!("{key} principals=team-*,alice # ours\n\n")),
        (2, "authorized_keys", format!("{key} alice type=Store instance=m* # hers\n{key} alice\n")),
        (3, "known_servers", format!("Store/main {key} or-granted\n* {key} # all\n")),
        (4, "revoked", format!("{}\n{base64}\n{}\n", mark("BEGIN"), mark("END"))),
        (5, "policy", policy.to_owned()),
        (6, "identity", format!("# ours\n{}\n", end.to_text().as_str())),
    ] {
        seed("key_file", name, &[&[number], text.as_bytes()].concat());
    }
    seed("policy", "rules", policy.as_bytes());
    let template = Template {
        principal: "alice".parse().expect("a principal"),
        rights: Rights::IMPORT,
        scope: "Store".parse().expect("a scope"),
        seconds: 86_400,
    };
    let token = EnrolmentToken::issue(&authority.public(), "10.0.0.7:7000", template, [9; 16], 0);
    seed("policy", "token", token.expect("an address").to_text().as_bytes());
}

/// What an importer says first; a call, and its answer, as either half sees it in memory.
fn memory() {
    for (name, wants, address) in [
        ("calls", Wants::Calls, "127.0.0.1:4711"),
        ("segment", Wants::Segment(7), "[::1]:4711"),
        ("elsewhere", Wants::Calls, "192.0.2.7:4711"),
    ] {
        let address = address.parse().expect("an address");
        let ticket = TicketHolder { client: 1, issued: 2, conversation: 3, address };
        let hello = Hello { export: 4, wants, nonce: [5; 16], ticket };
        seed("shm_hello", name, &hello.to_bytes());
        let keyed = [&[6; 32][..], &KeyedHello::body_of(&[7; 44], &hello)].concat();
        seed("shm_hello", &format!("{name} with keys"), &keyed);
    }
    fn word(script: &mut Writer, region: u8, at: u16, word: u64) -> &mut Writer {
        script.step(0, &[region]).text(&at.to_be_bytes()).text(&word.to_be_bytes())
    }
    let mut server = Writer::default();
    for (kind, lane) in [(0, 7), (1, 3), (2, 1), (3, 0)] {
        word(&mut server, 1, 0, lane);
        word(&mut server, 1, 1, 2 << 32 | 36);
        word(&mut server, 1, 2, kind << 60);
        word(&mut server, 0, 0, 1 - kind % 2).step(3, &[]).step(5, &[0, 9]).step(4, &[]);
    }
    seed("memory_server", "requests", &server.0);
    let mut caller = Writer::default();
    caller.step(3, &[9]).step(6, &[0]);
    word(&mut caller, 1, 4 | 1, 8);
    word(&mut caller, 1, 4, 4).step(4, &[0]).step(3, &[200]).step(5, &[0]).step(7, &[]).text(&[0; 40]);
    seed("memory_caller", "calls", &caller.0);
}

// The protocol: an exchange is played, and written down as either end's script.

/// An exchange between two ends that know each other.
struct Play {
    both: Acquaintance,
    /// What the client saw, and what the server saw.
    client: Writer,
    server: Writer,
    asked: Vec<CallKey>,
    /// All frames, both ways.
    shown: Vec<u8>,
}

impl Play {
    fn new() -> Play {
        let (client, server) = (Writer::default(), Writer::default());
        Play { both: Acquaintance::new(), client, server, asked: Vec::new(), shown: Vec::new() }
    }

    /// Starts a call with so many times four bytes of arguments, as [`Script::filling`] makes them.
    fn start(&mut self, quarter: u8, options: u8) -> CallId {
        self.client.step(4, &[options]);
        let mut call = call(1);
        if options & 1 != 0 {
            self.client.0.push(30);
            call.deadline = Some(self.both.now + Duration::from_nanos(1 << 30));
        }
        call.trace = (options & 2 != 0).then_some(Trace { trace: [1; 16], span: [2; 8] });
        self.client.0.push(quarter);
        self.both.client.start(|| self.both.now, &call, &mut filling(quarter)).expect("room for a call")
    }

    fn cancel(&mut self, id: CallId) {
        self.client.step(8, &[0, 0]);
        self.both.client.cancel(self.both.now, id);
    }

    /// The client's datagrams go to the server.
    fn call(&mut self) -> usize {
        let mut out = vec![0; ROOM];
        let mut datagrams = 0;
        self.client.step(6, &[]);
        while let Some(length) = self.both.client.transmit(self.both.now, &mut out) {
            self.server.step(0, &[0]).text(fuzzing::frames(&out[..length]));
            self.shown.extend(fuzzing::frames(&out[..length]));
            let asked = &mut self.asked;
            self.both.server.receive(self.both.now, address(0), &out[..length], &mut |request| {
                if let Request::Call(call) = request {
                    asked.push(call.key);
                }
            });
            datagrams += 1;
        }
        datagrams
    }

    /// The oldest unfinished call is finished with so many times four bytes.
    fn finish(&mut self, quarter: u8, how: Finish) {
        let code = match how {
            Finish::Result => 0,
            Finish::Exception => 2,
            Finish::Failed(_) => 3,
        };
        let key = self.asked.remove(0);
        self.server.step(4, &[0, code, quarter]);
        let mut out = vec![0; ROOM];
        if let Some(sent) = self.both.server.finish(self.both.now, key, how, &mut filling(quarter), &mut out)
        {
            self.hear(&out[..sent.len]);
        }
    }

    /// The server's datagrams go to the client.
    fn answer(&mut self) -> usize {
        let mut out = vec![0; ROOM];
        let mut datagrams = 0;
        self.server.step(6, &[]);
        while let Some(sent) = self.both.server.transmit(self.both.now, &mut out) {
            self.hear(&out[..sent.len]);
            datagrams += 1;
        }
        datagrams
    }

    fn hear(&mut self, datagram: &[u8]) {
        self.client.step(0, &[0]).text(fuzzing::frames(datagram));
        self.shown.extend(fuzzing::frames(datagram));
        self.both.client.receive(self.both.now, datagram, &mut |_| {});
    }

    /// The server opens an exchange in the oldest unfinished call.
    fn server_opens(&mut self) {
        self.server.step(8, &[0, 0, 0]);
        self.both.server.open_exchange(self.asked[0]).expect("few are open");
    }

    /// The server sends so many times four bytes in an exchange of that call.
    fn server_sends(&mut self, exchange: u8, tail: Tail, quarter: u8) {
        self.server.step(8, &[1, 0, exchange, tail as u8, quarter]);
        let _ = self.both.server.send_in(self.asked[0], exchange.into(), &filling(quarter), tail);
    }

    /// The server takes so many times 16 bytes.
    fn server_takes(&mut self, exchange: u8, most: u8) {
        self.server.step(8, &[4]).step(8, &[2, 0, exchange, most]);
        while self.both.server.next_news().is_some() {}
        self.both.server.take_from(self.asked[0], exchange.into(), &mut Vec::new(), 16 * usize::from(most));
    }

    fn server_stops(&mut self, exchange: u8) {
        self.server.step(8, &[3, 0, exchange]);
        self.both.server.stop_exchange(self.asked[0], exchange.into(), 7);
    }

    fn client_opens(&mut self, id: CallId) {
        self.client.step(8, &[3, 0, 0, 0]);
        self.both.client.open_exchange(id).expect("few are open");
    }

    fn client_sends(&mut self, id: CallId, exchange: u8, tail: Tail, quarter: u8) {
        self.client.step(8, &[3, 1, 0, exchange, tail as u8, quarter]);
        let _ = self.both.client.send_in(id, exchange.into(), &filling(quarter), tail);
    }

    fn client_takes(&mut self, id: CallId, exchange: u8, most: u8) {
        self.client.step(8, &[3, 4]).step(8, &[3, 2, 0, exchange, most]);
        while self.both.client.next_news().is_some() {}
        let most = 16 * usize::from(most);
        self.both.client.take_from(id, exchange.into(), &mut Vec::new(), most, &mut |_| {});
    }

    fn client_stops(&mut self, id: CallId, exchange: u8) {
        self.client.step(8, &[3, 3, 0, exchange]);
        self.both.client.stop_exchange(id, exchange.into(), 7, &mut |_| {});
    }

    fn pass(&mut self, power: u8) {
        self.client.step(5, &[power]);
        self.server.step(5, &[power]);
        self.both.now = self.both.now + Duration::from_nanos(1 << power);
        self.both.client.handle_timeout(self.both.now, &mut |_| {});
        self.both.server.handle_timeout(self.both.now);
    }

    fn settle(&mut self) {
        while self.call() + self.answer() > 0 {}
    }

    fn keep(mut self, name: &str) {
        self.shown.truncate(1 << 10);
        seed("dump", name, &self.shown);
        seed("client", name, &self.client.0);
        seed("server", name, &self.server.0);
    }
}

fn filling(quarter: u8) -> Vec<u8> {
    farcall_fuzz_targets::script::Script::new(&[quarter]).filling()
}

fn protocol() {
    let mut play = Play::new();
    play.start(2, 3);
    play.call();
    play.finish(4, Finish::Result);
    play.keep("call");

    let mut play = Play::new();
    play.start(160, 0);
    play.settle();
    play.finish(160, Finish::Exception);
    play.settle();
    play.keep("fragments");

    let mut play = Play::new();
    let first = play.start(0, 0);
    play.start(0, 0);
    play.call();
    play.cancel(first);
    play.settle();
    let refusal = Failure::new(Kind::Overloaded, Ran::No).with_detail("enough");
    play.finish(0, refusal.into());
    play.finish(0, Finish::Result);
    play.settle();
    play.keep("cancel_and_refusal");

    let mut play = Play::new();
    play.start(1, 0);
    play.call();
    play.pass(28);
    play.settle();
    play.pass(33);
    play.settle();
    play.finish(1, Finish::Result);
    play.pass(35);
    play.settle();
    play.keep("probes");

    let mut play = Play::new();
    play.client.step(8, &[1]);
    play.both.client.bind(play.both.now, "Store", 2);
    play.settle();
    play.keep("bind");
    exchanges();
    moved();
    raw();
}

/// A signal and its answer; streams both ways, one longer than its credit; directions that are stopped.
fn exchanges() {
    let mut play = Play::new();
    let id = play.start(1, 0);
    play.call();
    play.server_opens();
    play.server_sends(2, Tail::Question, 6);
    play.answer();
    play.client_takes(id, 2, 10);
    play.client_sends(id, 2, Tail::Question, 2);
    play.call();
    play.server_takes(2, 10);
    play.finish(1, Finish::Result);
    play.settle();
    play.keep("signal");

    let mut play = Play::new();
    let id = play.start(1, 0);
    play.client_opens(id);
    play.client_sends(id, 1, Tail::End, 140);
    play.settle();
    play.server_opens();
    play.server_sends(2, Tail::More, 255);
    for _ in 0..4 {
        play.settle();
        play.client_takes(id, 2, 255);
        play.server_takes(1, 255);
        play.pass(27);
    }
    play.server_sends(2, Tail::End, 5);
    play.finish(130, Finish::Result);
    for _ in 0..8 {
        play.settle();
        play.client_takes(id, 2, 255);
        play.pass(27);
    }
    play.keep("streams");

    let mut play = Play::new();
    let id = play.start(1, 0);
    play.client_opens(id);
    play.client_sends(id, 1, Tail::More, 20);
    play.call();
    play.server_opens();
    play.server_sends(2, Tail::More, 20);
    play.server_stops(1);
    play.client_stops(id, 2);
    play.settle();
    play.pass(28);
    play.settle();
    play.finish(1, Finish::Exception);
    play.settle();
    play.keep("stopped_streams");
}

/// The client is at another address, shows its old ticket, and renews it.
fn moved() {
    let mut play = Play::new();
    let mut out = vec![0; ROOM];
    play.start(1, 0);
    for _ in 0..4 {
        play.client.step(6, &[]);
        while let Some(length) = play.both.client.transmit(play.both.now, &mut out) {
            let number = if fuzzing::frames(&out[..length]).first() == Some(&1) { 2 << 2 } else { 0 };
            play.server.step(0, &[1 | number]).text(fuzzing::frames(&out[..length]));
            play.both.server.receive(play.both.now, address(1), &out[..length], &mut |_| {});
        }
        play.server.step(6, &[]);
        while let Some(sent) = play.both.server.transmit(play.both.now, &mut out) {
            // What bears no identifier goes by its address.
            let known = if out[4..12] == [0; 8] { 2 } else { 0 };
            play.client.step(0, &[known]).text(fuzzing::frames(&out[..sent.len]));
            play.both.client.receive(play.both.now, &out[..sent.len], &mut |_| {});
        }
        play.both.now = play.both.now + Duration::from_nanos(1 << 26);
        play.client.step(5, &[26]);
        play.server.step(5, &[26]);
        play.both.client.handle_timeout(play.both.now, &mut |_| {});
    }
    play.keep("moved");
}

/// Whole datagrams: a question and a call.
fn raw() {
    let mut both = Acquaintance::new();
    let mut out = vec![0; ROOM];
    both.client.bind(both.now, "Store/one", 1);
    let length = both.client.transmit(both.now, &mut out).expect("a question");
    seed("server_bytes", "bind", &out[..length]);
    both.client.start(|| both.now, &call(2), &mut b"args".to_vec()).expect("room for a call");
    let length = both.client.transmit(both.now, &mut out).expect("a call");
    seed("server_bytes", "call", &out[..length]);
    captures(&out[..length]);
}

/// A datagram as tcpdump writes it: over Ethernet in the old format, from the IP header on in the new.
fn captures(datagram: &[u8]) {
    let udp = [&[0x1b, 0x58, 0x1b, 0x59][..], &(datagram.len() as u16 + 8).to_be_bytes(), &[0, 0], datagram]
        .concat();
    let length = (udp.len() as u16 + 20).to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
    let packet = [&head[..], &udp].concat();
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &packet].concat();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();

    let start = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    let record = [words(&[1, 500, frame.len() as u32, frame.len() as u32]), frame].concat();
    seed("capture", "pcap", &[start, record.clone(), record].concat());

    let padded = packet.len().next_multiple_of(4);
    let size = 32 + padded as u32;
    let section = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    let interface = words(&[1, 20, 101, 65_535, 20]);
    let mut block = words(&[6, size, 0, 0, 1_000_000, packet.len() as u32, packet.len() as u32]);
    block.extend(&packet);
    block.resize(28 + padded, 0);
    block.extend(size.to_le_bytes());
    seed("capture", "pcapng", &[section, interface, block].concat());
}

/// Calls that come together, and results that do.
fn trains() {
    // Short calls, of which many fit into a datagram; then such as fill one each, and the last of them is
    // shorter.
    let mut server = Writer::default();
    server.step(0, &[]).step(0, &[15, 1]).step(3, &[]).step(0, &[7, 136]).step(0, &[0, 20]).step(3, &[]);
    seed("trains_to_server", "short_and_long", &server.0);
    let mut server = Writer::default();
    server
        .step(3, &[])
        .step(0, &[3, 200])
        .step(0, &[0x83, 135])
        .step(3, &[])
        .step(6, &[20])
        .step(0, &[31, 131])
        .step(7, &[]);
    server.step(3, &[]).step(5, &[1]).text(&[0; 64]).step(4, &[0]).text(&[9, 0, 0, 4]);
    seed("trains_to_server", "fragments_and_repeated", &server.0);

    let mut caller = Writer::default();
    caller
        .step(0, &[])
        .step(5, &[30])
        .step(0, &[15, 1])
        .step(0, &[11, 132])
        .step(2, &[3])
        .step(3, &[20])
        .step(3, &[0]);
    seed("trains_to_caller", "short_and_long", &caller.0);
    let mut caller = Writer::default();
    caller
        .step(1, &[])
        .step(5, &[7])
        .step(0, &[3, 250])
        .step(6, &[5, 0])
        .step(6, &[9, 2])
        .step(6, &[12, 3])
        .step(6, &[14, 1]);
    caller.step(3, &[1]).step(4, &[0]).step(7, &[25]).step(0, &[6, 135]).step(2, &[200]).step(3, &[2]);
    seed("trains_to_caller", "fragments_and_losses", &caller.0);
}

// Descriptions and values.

fn descriptions() {
    let value = to_vec(&specimen()).expect("a value");
    seed("xdr", "specimen", &value);
    seed("values", "specimen", &value);
    let mut types = Types::new();
    let ty = specimen_type(&mut types);
    let shown = values::decode(&types, &ty, &mut Decoder::new(&value)).expect("a value by description");
    seed("json", "specimen", shown.to_string().as_bytes());

    let description = encoded(&types, &ty);
    seed("schema", "specimen", &description);
    seed("values", "described", &[description.as_slice(), &value].concat());
    seed("json", "described", &[description.as_slice(), shown.to_string().as_bytes()].concat());
    let mut types = Types::new();
    let ty = Vec::<(Option<Option<u8>>, [bool; 3], Option<String>)>::schema(&mut types);
    seed("schema", "small", &encoded(&types, &ty));
    let value = to_vec(&vec![(Some(Some(1u8)), [true; 3], Some("x".to_string()))]).expect("a value");
    seed("values", "small", &[encoded(&types, &ty), value].concat());
    seed("json", "small", &[encoded(&types, &ty).as_slice(), br#"[[[1],[true,true,false],"x"]]"#].concat());

    let mut store = Interface::new("Store").docs("What is kept.");
    store
        .procedure(1, "get")
        .docs("The value under `key`.")
        .argument::<String>("key")
        .result::<u64>()
        .idempotent();
    let put = store.procedure(2, "put").argument::<String>("key").argument::<Option<Vec<u8>>>("value");
    put.exception::<Option<u8>>().blocking().deadline_ms(10);
    seed("interface", "store", &to_vec(&store).expect("an interface"));
}

fn specimen_type(types: &mut Types) -> Type {
    fn schema_of<T: Schema>(_: &T, types: &mut Types) -> Type {
        T::schema(types)
    }
    schema_of(&specimen(), types)
}

fn encoded(types: &Types, ty: &Type) -> Vec<u8> {
    let mut bytes = to_vec(types).expect("types");
    ty.encode(&mut Encoder::new(&mut bytes)).expect("a type");
    bytes
}

// Names.

fn registry() {
    let names = ["FileAccess", "FileAccess/ebbets", "udp://10.0.0.7:7000/FileAccess", "udp://[::1]:7/F/e"];
    for (number, name) in names.into_iter().enumerate() {
        seed("name", &number.to_string(), name.as_bytes());
    }
    let line = |name: &str, revision: u64| {
        format!(
            "FileAccess/{name} udp://127.0.0.1:7000 export=0000000000005eed \
             owner=23204,294356,69752586b35d4c31,4026531836 revision={revision} \
             fingerprints=0:000000000000001f:000000000000003c,1:000000000000001f:000000000000003c proof=0a0b"
        )
    };
    let lines = [line("ebbets", 1), line("two", 2), "-FileAccess/ebbets".to_owned()];
    seed("names_file", "two", format!("farcall-names 1 2\n{}\n{}\nend 2\n", lines[0], lines[1]).as_bytes());
    seed("names_file", "changes", changes(&lines).as_bytes());
    seed("clerk", "entry", &record());
    // Small ones of the shapes that grow.
    for Shape { target, name, make } in shapes::all() {
        if ["names_log", "etcd_answer", "dns_answer"].contains(&target) {
            seed(target, name, &make(4));
        }
    }
}

/// The text of a registry's file with these changes (docs/names.md).
fn changes(lines: &[String]) -> String {
    let mut text = "farcall-names 2 1 0 69752586b35d4c31 000000000000002a\n".to_owned();
    let mut check = 42_u64;
    for line in lines {
        let covered = format!("{check:016x}{line}");
        check = covered.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        text += &format!("{line} check={check:016x}\n");
    }
    text
}

/// An entry in a clerk's table, without its flag: the target tries the one that would be right.
fn record() -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[8..16].copy_from_slice(&[4, 4, 0x58, 0x1b, 1, 0, 0, 0]);
    bytes[26..32].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 7]);
    (bytes[32], bytes[41]) = (9, 1);
    bytes[48..52].copy_from_slice(b"Load");
    bytes
}
