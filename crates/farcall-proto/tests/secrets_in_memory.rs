//! Tests that an end's memory has no secrets of a conversation any more when the conversation is forgotten.
//!
//! The end runs in a process of its own. This process is the other end, and knows every secret, because it
//! computes them from the document a second time (`common/noise.rs`) and all random numbers follow from the
//! private keys. It looks for them in the memory of the end's process, from outside, so the search leaves no
//! copies there. Each test first shows that it finds the secrets that the end has to keep.
#![cfg(all(feature = "secure", target_os = "linux"))]

mod common;
#[path = "common/expanded.rs"]
mod expanded;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/noise.rs"]
mod noise;
#[path = "common/process.rs"]
mod process;

use std::time::Duration;

use common::*;
use farcall_proto::client::Conversation;
use farcall_proto::secure::Suite;
use farcall_proto::server::{Export, Finish, Server};
use memory::{Found, Secret};
use noise::{BODY, HEADER, Keys, expand, hkdf, public};
use process::{End, client_settings, private, server_settings};

const NAME: &str = "Store/one";
/// The step of a handshake that resumes a conversation.
const RESUME: u8 = 3;
const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];

/// All secrets of a conversation that began with a handshake, and of the handshake.
struct Secrets {
    suite: Suite,
    known: Vec<Secret>,
    chain: Vec<u8>,
    base: Vec<u8>,
}

impl Secrets {
    /// Computes the secrets to which two questions and the answer to the first of them led. The server had
    /// drawn `drawn` random numbers before.
    fn of(suite: Suite, hello: &[u8], binds: [&[u8]; 2], drawn: u64) -> Secrets {
        let once = |end, nth| {
            let mut out = [0; 32];
            process::spread(&private(end), nth, &mut out);
            out
        };
        let keys = Keys {
            client: private(End::Client),
            server: private(End::Server),
            client_once: once(End::Client, 1),
            server_once: once(End::Server, drawn + 1),
        };
        let shaken = keys.shake(&noise::prologue(binds[0], hello, NAME), &public(&keys.client));
        assert_eq!(noise::step(binds[1])[4..], shaken.first, "the secrets are computed right");
        let root = hkdf(&shaken.hash, &shaken.split, b"farcall root", 32);
        let [base, chain] =
            ["farcall base", "farcall chain"].map(|label| expand(&root, label.as_bytes(), 32));
        let mut secrets = Secrets { suite, known: Vec::new(), chain, base };
        secrets.add("client's ephemeral", &keys.client_once);
        secrets.add("server's ephemeral", &keys.server_once);
        secrets.add("shared: es", &noise::dh(&keys.client_once, &public(&keys.server)));
        secrets.add("shared: ss", &noise::dh(&keys.client, &public(&keys.server)));
        secrets.add("shared: ee", &noise::dh(&keys.client_once, &public(&keys.server_once)));
        secrets.add("shared: se", &noise::dh(&keys.client, &public(&keys.server_once)));
        for (nth, mixed) in shaken.mixed.iter().enumerate() {
            secrets.add(&format!("Noise's link {nth}"), &mixed[..32]);
            secrets.add(&format!("Noise's key {nth}"), &mixed[32..]);
        }
        secrets.add("split", &shaken.split);
        secrets.add("root", &root);
        let body = &binds[1][BODY..BODY + length_at(binds[1], HEADER + 2)];
        let base = secrets.base.clone();
        secrets.add("base", &base);
        secrets.add("resumption", &expand(&base, b"farcall resume", 32));
        let answer = expand(&base, &[b"farcall answer", body].concat(), secrets.key_len() + 12);
        secrets.add_key("answer", &answer);
        (0..4).for_each(|phase| secrets.add_phase(phase));
        secrets
    }

    fn add_phase(&mut self, phase: u32) {
        let chain = self.chain.clone();
        let len = self.key_len() + 12;
        self.add(&format!("chain {phase}"), &chain);
        self.add_key(&format!("to server {phase}"), &expand(&chain, b"farcall to server", len));
        self.add_key(&format!("to client {phase}"), &expand(&chain, b"farcall to client", len));
        self.chain = expand(&chain, b"farcall next", 32);
    }

    fn key_len(&self) -> usize {
        if self.suite == Suite::Aes128Gcm { 16 } else { 32 }
    }

    fn add(&mut self, name: &str, bytes: &[u8]) {
        self.known.push(Secret { name: name.into(), bytes: bytes.to_vec() });
    }

    /// Adds a key, and what the library makes of it. Not the IV: it opens nothing, and each seal leaves a
    /// nonce, from which it follows, on the stack.
    fn add_key(&mut self, name: &str, key_and_iv: &[u8]) {
        self.add(&format!("key {name}"), &key_and_iv[..self.key_len()]);
        if self.suite == Suite::Aes128Gcm
            && let Some(key) = key_and_iv.first_chunk()
        {
            self.add(&format!("expanded {name}"), &expanded::round_keys(key)[1..].concat());
            self.add(&format!("hash key {name}"), &expanded::hash_key(key));
        }
    }

    /// Adds the ticket keys that the server drew as its random numbers of these counts.
    fn add_ticket_keys(&mut self, draws: &[u64]) {
        for nth in draws {
            let mut seed = [0; 44];
            process::spread(&private(End::Server), *nth, &mut seed);
            self.add_key(&format!("of tickets {nth}"), &seed[..self.key_len() + 12]);
        }
    }

    /// Returns the secrets whose names end or begin with one of these words.
    fn named(&self, words: &[&str]) -> Vec<Secret> {
        let is = |name: &str| words.iter().any(|word| name.starts_with(word) || name.ends_with(word));
        self.known.iter().filter(|secret| is(&secret.name)).cloned().collect()
    }

    fn but(&self, words: &[&str]) -> Vec<Secret> {
        let named = self.named(words);
        self.known.iter().filter(|secret| named.iter().all(|n| n.name != secret.name)).cloned().collect()
    }
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Asserts that at least one part of each of these secrets is in the memory, so that the search is not blind.
fn assert_there(process: &process::Process, secrets: &[Secret], when: &str) {
    let found = process.search(secrets);
    for Secret { name, .. } in secrets {
        assert!(
            found.iter().any(|f| f.name == *name),
            "{when}: {name} is not found, though the end needs it"
        );
    }
}

/// Asserts that no part of these secrets is in the memory.
fn assert_gone(process: &process::Process, secrets: &[Secret], when: &str) {
    assert!(secrets.len() >= 4);
    let found: Vec<Found> = process.search(secrets);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{when}:\n{}", shown.join("\n"));
}

/// This process's client, of a server in another process.
struct Caller {
    pair: Pair,
    server: process::Process,
}

impl Caller {
    fn new(suite: Suite) -> Option<Caller> {
        let server = process::Process::start(End::Server, suite)?;
        let pair = Pair::with(client_settings(suite), server_settings(suite));
        Some(Caller { pair, server })
    }

    /// Carries datagrams until the client is told something. Returns those of the client and of the server.
    fn carry(&mut self) -> (Vec<Datagram>, Vec<Datagram>) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        while self.pair.told.is_empty() {
            let sent = self.pair.sent();
            assert!(!sent.is_empty(), "the client waits, though nothing is lost");
            let answers = self.server.give(self.pair.now, &sent);
            self.pair.hear(&answers);
            ours.extend(sent);
            theirs.extend(answers);
        }
        self.pair.told.clear();
        (ours, theirs)
    }

    fn call(&mut self) -> (Vec<Datagram>, Vec<Datagram>) {
        self.pair.start(1, b"argument");
        self.carry()
    }

    fn bind(&mut self) -> (Vec<Datagram>, Vec<Datagram>) {
        self.pair.client.bind(self.pair.now, NAME, 1);
        self.carry()
    }

    /// Makes the server, which has room for one conversation, forget that of the client.
    fn make_forgotten(&mut self, suite: Suite) {
        self.pass(Duration::from_secs(1));
        let other = Conversation::new(client_settings(suite), 0xbeef);
        let client = std::mem::replace(&mut self.pair.client, other);
        self.bind();
        self.call();
        self.pair.client = client;
    }

    fn pass(&mut self, time: Duration) {
        self.pair.pass(time);
        self.server.pass(self.pair.now);
    }
}

/// Returns a client whose conversation is known, and its secrets. Returns `None` if this machine cannot
/// search memory.
fn acquainted(suite: Suite) -> Option<(Caller, Secrets)> {
    let mut caller = Caller::new(suite)?;
    let (ours, theirs) = caller.bind();
    let mut secrets = Secrets::of(suite, &theirs[0], [&ours[0], &ours[1]], 1);
    secrets.add_ticket_keys(&[1]);
    caller.call();
    Some((caller, secrets))
}

/// The secrets that a handshake needs only until it has ended.
const HANDSHAKE: [&str; 6] = ["ephemeral", "shared", "Noise's", "split", "root", "answer"];

#[test]
fn a_server_keeps_no_secrets_of_handshakes_phases_and_ticket_keys_that_have_ended() {
    for suite in SUITES {
        let Some((mut caller, mut secrets)) = acquainted(suite) else { return };
        assert_there(
            &caller.server,
            &secrets.named(&["base", "key to server 0", "key to client 0"]),
            "alive",
        );
        assert_there(&caller.server, &secrets.named(&["chain 0", "key of tickets 1"]), "alive");
        if suite == Suite::Aes128Gcm {
            let expanded = ["expanded to client 0", "hash key to server 0", "expanded of tickets 1"];
            assert_there(&caller.server, &secrets.named(&expanded), "alive");
        }
        assert_gone(&caller.server, &secrets.named(&HANDSHAKE), "after the handshake");
        caller.pass(Duration::from_secs(660));
        caller.call();
        // The server has drawn a second key of tickets when the first was ten minutes old.
        secrets.add_ticket_keys(&[3]);
        let keys = ["key of tickets 1", "key of tickets 3"];
        assert_there(&caller.server, &secrets.named(&keys), "in phase 1");
        caller.pass(Duration::from_secs(660));
        caller.call();
        assert_there(&caller.server, &secrets.named(&["base", "chain 2", "key to client 2"]), "in phase 2");
        let phases = ["chain 0", "chain 1", "to client 0", "to client 1", "to server 0"];
        assert_gone(&caller.server, &secrets.named(&phases), "in phase 2");
        caller.pass(Duration::from_secs(660));
        assert_gone(
            &caller.server,
            &secrets.named(&["of tickets 1", "of tickets 3", "root", "split"]),
            "later",
        );
    }
}

#[test]
fn a_server_that_forgets_or_revokes_has_no_secrets_of_the_conversation() {
    for (suite, command) in SUITES.into_iter().flat_map(|suite| [(suite, "forget"), (suite, "revoke")]) {
        let Some((mut caller, secrets)) = acquainted(suite) else { return };
        assert_there(&caller.server, &secrets.named(&["base", "key to client 0"]), "alive");
        match command {
            "revoke" => assert!(caller.server.tell(command, caller.pair.now).is_empty()),
            _ => caller.make_forgotten(suite),
        }
        // The ticket keys live on: they are not the conversation's.
        assert_gone(&caller.server, &secrets.but(&["of tickets 1"]), command);
    }
}

#[test]
fn a_server_that_resumes_keeps_no_secrets_of_the_former_conversation() {
    for suite in SUITES {
        let Some((mut caller, secrets)) = acquainted(suite) else { return };
        caller.make_forgotten(suite);
        caller.pass(Duration::from_secs(1));
        // The first call of the forgotten conversation does not run; the next one resumes it.
        let resumes = (0..2).map(|_| caller.call()).any(|(ours, _)| {
            let binds = ours.iter().filter(|datagram| datagram[1] == 0 && datagram[HEADER] == BIND);
            binds.map(|bind| noise::step(bind)[0]).any(|kind| kind == RESUME)
        });
        assert!(resumes);
        assert_gone(&caller.server, &secrets.but(&["of tickets 1"]), "after the resumption");
    }
}

#[test]
fn a_client_that_forgets_has_no_secrets_of_the_conversation() {
    for suite in SUITES {
        let Some(mut client) = process::Process::start(End::Client, suite) else { return };
        let mut pair = Pair::with(client_settings(suite), server_settings(suite));
        let answer = |pair: &mut Pair, sent: &[Datagram]| {
            pair.receive(sent);
            let mut answers = pair.answered();
            for (key, args) in std::mem::take(&mut pair.asked) {
                answers.extend(pair.finish(key, Finish::Result, &args));
            }
            answers
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for command in ["bind", "call"] {
            let mut sent = client.tell(command, pair.now);
            while !sent.is_empty() {
                let answers = answer(&mut pair, &sent);
                theirs.extend(answers.clone());
                ours.extend(std::mem::take(&mut sent));
                sent = client.give(pair.now, &answers);
            }
        }
        let secrets = Secrets::of(suite, &theirs[0], [&ours[0], &ours[1]], 1);
        assert_eq!(pair.server.conversations(), 1);
        assert_there(
            &client,
            &secrets.named(&["base", "chain 0", "key to server 0", "key to client 0"]),
            "alive",
        );
        assert_gone(&client, &secrets.named(&HANDSHAKE), "after the handshake");
        client.tell("forget", pair.now);
        assert_gone(&client, &secrets.known, "forgotten");
    }
}

/// The other process: an end that does what it is told by its standard input. It is no test.
#[test]
fn an_end() {
    process::run_if_told(|end, suite, now| -> Box<dyn process::Told> {
        match end {
            End::Server => {
                let mut server = Server::new(server_settings(suite), now, [7; 32]);
                let procedures = vec![fingerprint(1, 11), fingerprint(2, 22)];
                let (type_name, instance) = ("Store".into(), "one".into());
                server.export(Export { id: EXPORT, type_name, instance, procedures });
                Box::new(process::Serving { server })
            }
            End::Client => {
                let client = Conversation::new(client_settings(suite), 0xc11e);
                Box::new(process::Calling { client: Some(client) })
            }
        }
    });
}
