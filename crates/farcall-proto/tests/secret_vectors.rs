//! Tests of the vectors of docs/protocol.md, section 11: whole exchanges in schemes with secrets, and the
//! values from which their seals follow.
//!
//! `FARCALL_WRITE_VECTORS=1 cargo test -p farcall-proto --features secure --test secret_vectors` makes the
//! file anew. If the file then differs, the wire version has to change.
#![cfg(feature = "secure")]

mod common;
#[path = "common/noise.rs"]
mod noise;

use std::fmt::Write;
use std::time::Duration;

use common::trust::{CLIENT, SERVER, TestTrust, draw};
use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::secure::{Level, Suite, Suites};
use farcall_proto::server::Finish;
use farcall_proto::{ClientConfig, Holder, Meeting, ServerConfig, Shown};
use noise::{BODY, HEADER, Keys, expand, hkdf, public, step};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/secrets.txt");

const TAG: usize = 16;
const NAME: &str = "Store/one";

const ABOUT: &str = "\
# Exchanges in schemes with secrets (protocol.md, section 11). A line is a name and bytes; `client` and `server`
# are datagrams of that end. `plain` is the datagram above it after it was opened, without its tag. A `key and iv`
# is the key, then 12 bytes of IV. A `nonce` is that of the datagram above it. What an end presents is its public
# key. Rest of tickets: only the server reads it, and another server may write something else there. The
# messages and the transcript of a meeting are those of shared-memory.md; the processes of this meeting have the
# numbers 2 and 3.
";

struct Page {
    pair: Pair,
    level: Level,
    suite: Suite,
    out: String,
}

/// The secrets of a conversation.
struct Secrets {
    base: Vec<u8>,
    chain: Vec<u8>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Page {
    fn new(level: Level, suite: Suite) -> Page {
        let server = ServerConfig {
            trust: Some(TestTrust::new(SERVER, &[CLIENT])),
            level,
            suites: Suites(1 << suite as u8),
            max_conversations: 1,
            ..ServerConfig::default()
        };
        Page { pair: Pair::with(client(level, suite), server), level, suite, out: String::new() }
    }

    fn title(&mut self, text: &str) {
        writeln!(self.out, "\n# {text}").unwrap();
    }

    fn value(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(self.out, "{name}: {hex}").unwrap();
    }

    /// Sends what the client has to send, notes it, and returns it with the answer, which is delivered too.
    fn trip(&mut self) -> (Datagram, Datagram) {
        let sent = self.pair.sent();
        self.pair.receive(&sent);
        let mut answers = self.pair.answered();
        for (key, _) in std::mem::take(&mut self.pair.asked) {
            answers.extend(self.pair.finish(key, Finish::Result, b"result.."));
        }
        self.pair.hear(&answers);
        assert_eq!((sent.len(), answers.len()), (1, 1));
        (sent[0].clone(), answers[0].clone())
    }

    /// Makes a call, and notes it and its result, sealed and opened.
    fn call(&mut self, secrets: &Secrets) {
        self.pair.start(1, b"argument");
        let (call, result) = self.trip();
        assert_eq!(self.pair.told.pop(), Some((1, Told::Result(b"result..".to_vec()))));
        self.sealed("client", &call, &secrets.to_server, "");
        self.sealed("server", &result, &secrets.to_client, "");
    }

    /// Notes a sealed datagram, and what it is when it is opened. Checks that it is sealed as specified.
    fn sealed(&mut self, end: &str, datagram: &[u8], key: &[u8], whole: &str) {
        let ticket = usize::from(u16::from_be_bytes([datagram[HEADER + 2], datagram[HEADER + 3]])) + BODY;
        let clear = match (self.level, datagram[2] & 0x80 != 0) {
            _ if !whole.is_empty() => datagram.len() - TAG,
            (Level::Authenticated, _) => datagram.len() - TAG,
            (Level::Secure, true) => ticket,
            (Level::Secure, false) => HEADER,
        };
        let plain = noise::open(key, datagram, clear).expect("the datagram is sealed with this key");
        assert_eq!(noise::seal(key, &plain, clear), datagram);
        self.value(end, datagram);
        self.value("nonce", &noise::nonce(&key[key.len() - 12..], datagram));
        if clear < datagram.len() - TAG {
            self.value("plain", &plain);
        }
    }

    fn keys(&mut self, chain: Vec<u8>, base: Vec<u8>) -> Secrets {
        let len = self.key_len() + 12;
        let [to_server, to_client] =
            ["farcall to server", "farcall to client"].map(|label| expand(&chain, label.as_bytes(), len));
        self.value("key and iv to server", &to_server);
        self.value("key and iv to client", &to_client);
        Secrets { base, chain, to_server, to_client }
    }

    fn key_len(&self) -> usize {
        if self.suite == Suite::Aes128Gcm { 16 } else { 32 }
    }

    fn secrets(&mut self, root: &[u8]) -> Secrets {
        let [base, chain] = ["farcall base", "farcall chain"].map(|label| expand(root, label.as_bytes(), 32));
        self.value("root", root);
        self.value("base", &base);
        self.value("chain", &chain);
        self.keys(chain, base)
    }

    /// Notes a WELCOME that is sealed as the answer to a BIND.
    fn answer(&mut self, base: &[u8], (bind, welcome): (&[u8], &[u8])) {
        let len = usize::from(u16::from_be_bytes([bind[HEADER + 2], bind[HEADER + 3]]));
        let info = [b"farcall answer", &bind[BODY..BODY + len]].concat();
        let key = expand(base, &info, self.key_len() + 12);
        self.value("key and iv of the answer", &key);
        self.sealed("server", welcome, &key, "it is not encrypted");
    }

    /// Notes a handshake and its first calls.
    fn handshake(&mut self) -> Secrets {
        self.title(&format!("a handshake: {:?}, {:?}", self.level, self.suite));
        let (mut client_once, mut server_once) = ([0; 32], [0; 32]);
        draw(&CLIENT, 1, &mut client_once);
        draw(&SERVER, 2, &mut server_once);
        let keys = Keys { client: CLIENT, server: SERVER, client_once, server_once };
        for (name, private) in [
            ("client's", &keys.client),
            ("server's", &keys.server),
            ("client's ephemeral", &keys.client_once),
            ("server's ephemeral", &keys.server_once),
        ] {
            self.value(&format!("{name} private key"), private);
            self.value(&format!("{name} public key"), &public(private));
        }
        self.pair.client.bind(self.pair.now, NAME, 1);
        let (bind, hello) = self.trip();
        self.value("client", &bind);
        self.value("server", &hello);
        let prologue = noise::prologue(&bind, &hello, NAME);
        self.value("prologue", &prologue);
        let shaken = keys.shake(&prologue, &public(&CLIENT));
        self.value("message 1", &shaken.first);
        let (bind, welcome) = self.trip();
        assert_eq!(step(&bind)[4..], shaken.first);
        self.value("client", &bind);
        self.value("message 2", &shaken.second);
        assert_eq!(step(&welcome)[4..], shaken.second);
        self.value("handshake hash", &shaken.hash);
        self.value("split", &shaken.split);
        let root = hkdf(&shaken.hash, &shaken.split, b"farcall root", 32);
        let secrets = self.secrets(&root);
        self.answer(&secrets.base, (&bind, &welcome));
        assert_eq!(self.pair.told.pop(), Some((1, Told::Bound(EXPORT))));
        self.title("its first call, which shows the ticket, and its second one");
        (0..2).for_each(|_| self.call(&secrets));
        self.meeting(&secrets);
        secrets
    }

    /// Notes a meeting outside UDP.
    fn meeting(&mut self, secrets: &Secrets) {
        self.title("a meeting over a Unix socket");
        let at = "127.0.0.1:513".parse().unwrap();
        let meeting = Meeting { challenge: [5; 32], processes: [2, 3], at };
        let (mut hello, mut shown) = (Vec::new(), None);
        let proven = self.pair.client.prove_meeting(EXPORT, &meeting, |holder, ticket| {
            hello = hello_of(holder);
            shown = Some((*holder, ticket.to_vec()));
            [&(ticket.len() as u16).to_be_bytes(), ticket, &hello].concat()
        });
        let (proven, (holder, ticket)) = (proven.unwrap(), shown.unwrap());
        let (proof, body) = (&proven.proof, &proven.body[..]);
        let shown = Shown { holder, ticket: &ticket, meeting: &meeting, body, proof };
        let answer = self.pair.server.meet(self.pair.now, &shown).expect("the proof is good").answer;
        assert!(proven.is_answered_by(&answer));
        let key = expand(&secrets.base, b"farcall meeting", 32);
        let (len, address) = ((body.len() as u16).to_be_bytes(), at.to_string());
        let transcript = [
            &b"farcall meeting 1\0"[..],
            &meeting.challenge,
            &[0, 0, 0, 2, 0, 0, 0, 3],
            &len,
            body,
            address.as_bytes(),
        ]
        .concat();
        let proofs = [&b"farcall client"[..], b"farcall server"].map(|label| {
            let tag = noise::hmac(&key, &[label, &transcript].concat());
            <[u8; 32]>::try_from(tag.as_ref()).unwrap()
        });
        assert_eq!(proofs, [*proof, answer]);
        self.value("meeting key", &key);
        self.value("challenge", &meeting.challenge);
        self.value("address", address.as_bytes());
        self.value("hello", &hello);
        self.value("transcript", &transcript);
        self.value("client's message", &[&proof[..], body].concat());
        self.value("server's proof", &answer);
    }

    /// Notes a call eleven minutes later, whose result begins the next phase.
    fn next_phase(&mut self, secrets: &Secrets) {
        self.title("a call eleven minutes later; the server goes on to the next phase");
        let chain = expand(&secrets.chain, b"farcall next", 32);
        self.value("chain", &chain);
        let next = self.keys(chain, secrets.base.clone());
        self.pair.pass(Duration::from_secs(660));
        let next = Secrets { to_server: secrets.to_server.clone(), ..next };
        self.call(&next);
    }

    /// Notes a resumption.
    fn resumption(&mut self, secrets: &Secrets) {
        self.title("the server forgets the conversation, which the client then resumes");
        let other = Conversation::new(client(self.level, self.suite), 0xbeef);
        let client = std::mem::replace(&mut self.pair.client, other);
        self.pair.start(1, b"argument");
        self.pair.settle();
        self.pair.told.clear();
        self.pair.client = client;
        self.pair.pass(Duration::from_secs(1));
        self.pair.start(1, b"argument");
        let (call, challenge) = self.trip();
        assert_eq!(challenge[HEADER], CHALLENGE);
        self.value("client", &call);
        self.value("server", &challenge);
        let (call, stale) = self.trip();
        assert_eq!(stale[HEADER], STALE);
        self.value("client", &call);
        self.value("server", &stale);
        let (bind, welcome) = self.trip();
        self.value("client", &bind);
        let [ours, theirs] = [&bind, &welcome].map(|datagram| step(datagram)[4..36].to_vec());
        let (client, former) = (&bind[BODY..BODY + 8], &bind[BODY + 28..BODY + 36]);
        let prologue = [b"farcall resumption 1\0", client, former, &welcome[BODY + 8..BODY + 16]].concat();
        let secret = expand(&secrets.base, b"farcall resume", 32);
        self.value("client's random bytes", &ours);
        self.value("server's random bytes", &theirs);
        self.value("prologue", &prologue);
        self.value("resumption secret", &secret);
        let info = [b"farcall resumed", &prologue[..]].concat();
        let resumed = self.secrets(&hkdf(&[ours, theirs].concat(), &secret, &info, 32));
        self.answer(&resumed.base, (&bind, &welcome));
        self.pair.told.clear();
        self.call(&resumed);
    }
}

/// Returns the hello of a client that wants to call, as docs/shared-memory.md has it.
fn hello_of(holder: &Holder) -> Vec<u8> {
    let Holder { client, issued, conversation, address } = *holder;
    let std::net::IpAddr::V4(ip) = address.ip() else { panic!("{address}") };
    let mut hello = vec![9; 16];
    [EXPORT, client, issued, conversation].iter().for_each(|word| hello.extend(word.to_be_bytes()));
    hello.extend(ip.to_ipv6_mapped().octets());
    hello.extend(address.port().to_be_bytes());
    hello.push(b'C');
    hello
}

fn client(level: Level, suite: Suite) -> ClientConfig {
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let suites = Suites(1 << suite as u8);
    ClientConfig { trust: Some(trust), level, suites, max_datagram: 1_200, ..ClientConfig::default() }
}

fn vectors() -> String {
    let mut out = ABOUT.to_owned();
    for level in [Level::Authenticated, Level::Secure] {
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            let mut page = Page::new(level, suite);
            let secrets = page.handshake();
            if (level, suite) == (Level::Secure, Suite::ChaCha20Poly1305) {
                page.next_phase(&secrets);
                page.resumption(&secrets);
            }
            out += &page.out;
        }
    }
    out
}

#[test]
fn exchanges_with_secrets_equal_the_vectors_of_the_document() {
    let made = vectors();
    if std::env::var_os("FARCALL_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let Ok(written) = std::fs::read_to_string(FILE) else {
        println!("skipped: {FILE} is not here (the crate stands alone)");
        return;
    };
    for (i, (made, written)) in made.lines().zip(written.lines()).enumerate() {
        assert_eq!(made, written, "line {} of docs/vectors/secrets.txt", i + 1);
    }
    assert_eq!(made.lines().count(), written.lines().count());
}

/// Test case 1 of RFC 5869. (That the handshake is the standard's, the other end of it shows, which is
/// `snow`.)
#[test]
fn the_key_derivation_that_checks_the_vectors_is_hkdf() {
    let hex = |text: &str| farcall_proto::dump::from_hex(text).unwrap();
    let (salt, info) = (hex("000102030405060708090a0b0c"), hex("f0f1f2f3f4f5f6f7f8f9"));
    let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
    assert_eq!(hkdf(&salt, &[0x0b; 22], &info, 42), hex(expected));
}
