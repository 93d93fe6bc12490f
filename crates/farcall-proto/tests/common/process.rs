//! An end of a conversation in a process of its own, which is told what to do by lines on its standard input:
//! a word, the time in nanoseconds, and a datagram in hexadecimal digits. Its answer are lines with
//! datagrams, and one that says that it has done all.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use farcall_base::Principal;
use farcall_proto::client::{Call, Conversation};
use farcall_proto::dump::from_hex;
use farcall_proto::secure::{Accepted, Suite, Suites, Trust};
use farcall_proto::server::{Finish, Request, Server};
use farcall_proto::{ClientConfig, ServerConfig, Time};
use zeroize::Zeroizing;

use super::common::trust::TestTrust;
use super::common::{Datagram, EXPORT};
use super::memory::{self, Found, Secret};

/// The variable that says which end a process is, and the number of its suite.
const END: &str = "FARCALL_TEST_END";
const SENDS: &str = "end sends ";
const DONE: &str = "end is done";

/// Which end a process is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

/// Fills `out` with the random bytes that the end with this private key draws, the first, second ... time. No
/// eight of them are anywhere else.
pub fn spread(private: &[u8; 32], nth: u64, out: &mut [u8]) {
    let mut state = u64::from(private[0]) << 56 ^ nth << 32;
    for part in out.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        part.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..part.len()]);
    }
}

/// Returns the private key of an end.
pub fn private(end: End) -> [u8; 32] {
    let mut key = [0; 32];
    spread(&[end as u8 + 1; 32], 0, &mut key);
    key
}

/// [`TestTrust`] with other random numbers.
#[derive(Debug)]
pub struct Spread {
    trust: Arc<TestTrust>,
    private: [u8; 32],
    drawn: std::sync::atomic::AtomicU64,
}

impl Trust for Spread {
    fn private_key(&self) -> Zeroizing<[u8; 32]> {
        self.trust.private_key()
    }

    fn presentation(&self, name: &[u8]) -> Vec<u8> {
        self.trust.presentation(name)
    }

    fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String> {
        self.trust.accept_server(name, presentation)
    }

    fn accept_client(&self, key: &[u8; 32], presentation: &[u8]) -> Result<Vec<u8>, String> {
        self.trust.accept_client(key, presentation)
    }

    fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String> {
        self.trust.recall(facts)
    }

    fn entropy(&self, out: &mut [u8]) {
        let before = self.drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        spread(&self.private, before + 1, out);
    }
}

fn trust(end: End) -> Arc<Spread> {
    let other = if end == End::Client { End::Server } else { End::Client };
    let private = private(end);
    let accepts = super::process::private(other);
    Arc::new(Spread { trust: TestTrust::new(private, &[accepts]), private, drawn: 0.into() })
}

/// Returns the settings of a client with one suite.
pub fn client_settings(suite: Suite) -> ClientConfig {
    let suites = Suites(1 << suite as u8);
    ClientConfig { trust: Some(trust(End::Client)), suites, ..ClientConfig::default() }
}

/// Returns the settings of a server with one suite and room for one conversation.
pub fn server_settings(suite: Suite) -> ServerConfig {
    let suites = Suites(1 << suite as u8);
    ServerConfig { trust: Some(trust(End::Server)), suites, max_conversations: 1, ..ServerConfig::default() }
}

/// An end in another process. Dropping it ends the process.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts an end. Returns `None`, and says why, if this process may not search its memory.
    pub fn start(end: End, suite: Suite) -> Option<Process> {
        let role = format!("{} {}", end as u8, suite as u8);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "an_end", "--nocapture"])
            .env(END, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Process { child, input, output };
        process.tell("pass", Time::from_nanos(0));
        if let Err(why) = memory::search(process.child.id(), &[]) {
            println!("skipped: secrets_in_memory: another process's memory cannot be read: {why}");
            return None;
        }
        Some(process)
    }

    /// Gives the end datagrams, and returns those that it sends.
    pub fn give(&mut self, now: Time, datagrams: &[Datagram]) -> Vec<Datagram> {
        datagrams.iter().flat_map(|datagram| self.exchange("receive", now, datagram)).collect()
    }

    /// Tells the end a word, and returns the datagrams that it sends.
    pub fn tell(&mut self, word: &str, now: Time) -> Vec<Datagram> {
        self.exchange(word, now, &[])
    }

    /// Lets the end act on its timers until a time.
    pub fn pass(&mut self, now: Time) {
        assert!(self.tell("pass", now).is_empty());
    }

    /// Returns every part of the secrets that the end's memory has.
    pub fn search(&self, secrets: &[Secret]) -> Vec<Found> {
        memory::search(self.child.id(), secrets).unwrap()
    }

    fn exchange(&mut self, word: &str, now: Time, datagram: &[u8]) -> Vec<Datagram> {
        let hex: String = datagram.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.input, "{word} {} {hex}", now.as_nanos()).unwrap();
        let mut sent = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the other process has ended");
            match line.trim_end() {
                DONE => return sent,
                line => sent.extend(line.strip_prefix(SENDS).map(|hex| from_hex(hex).unwrap())),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An end that can be told what to do. Returns the datagrams to send.
pub trait Told {
    fn tell(&mut self, word: &str, now: Time, datagram: Vec<u8>) -> Vec<Datagram>;
}

/// Is the end that the environment names, if it names one, until the input ends.
pub fn run_if_told(make: impl FnOnce(End, Suite, Time) -> Box<dyn Told>) {
    let Ok(role) = std::env::var(END) else { return };
    let (end, suite) = role.split_once(' ').unwrap();
    let end = if end == "0" { End::Client } else { End::Server };
    let mut told = make(end, Suite::of(suite.parse().unwrap()).unwrap(), Time::from_nanos(1_000_000_000));
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let (now, datagram) = (Time::from_nanos(words[1].parse().unwrap()), from_hex(words[2]).unwrap());
        for sent in told.tell(words[0], now, datagram) {
            let hex: String = sent.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{SENDS}{hex}");
        }
        println!("{DONE}");
    }
}

/// A server that answers each call with its arguments.
pub struct Serving {
    pub server: Server,
}

impl Told for Serving {
    fn tell(&mut self, word: &str, now: Time, mut datagram: Vec<u8>) -> Vec<Datagram> {
        let (mut calls, mut sent, mut out) = (Vec::new(), Vec::new(), vec![0; 65_536]);
        let from = "10.0.0.1:1000".parse().unwrap();
        match word {
            "receive" => self.server.receive_any(now, from, &mut datagram, &mut |request| {
                if let Request::Call(call) = request {
                    calls.push((call.key, call.args.to_vec()));
                }
            }),
            "revoke" => self.server.forget_revoked(now, |_| false),
            "pass" => {
                while let Some(due) = self.server.timeout().filter(|due| *due <= now) {
                    self.server.handle_timeout(due);
                }
            }
            _ => unreachable!("{word}"),
        }
        for (key, mut args) in calls {
            let result = self.server.finish(now, key, Finish::Result, &mut args, &mut out);
            sent.extend(result.map(|result| result.gather(&out)));
        }
        while let Some(answer) = self.server.transmit(now, &mut out) {
            sent.push(answer.gather(&out));
        }
        sent
    }
}

/// A client that makes one call.
pub struct Calling {
    pub client: Option<Conversation>,
}

impl Told for Calling {
    fn tell(&mut self, word: &str, now: Time, mut datagram: Vec<u8>) -> Vec<Datagram> {
        if word == "forget" {
            self.client = None;
        }
        let Some(client) = &mut self.client else { return Vec::new() };
        match word {
            "bind" => client.bind(now, "Store/one", 1),
            "call" => {
                let call = Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token: 2 };
                client.start(|| now, &call, &mut b"argument".to_vec()).expect("room for a call");
            }
            "receive" => client.receive_any(now, &mut datagram, &mut |_| {}),
            "pass" => {}
            _ => unreachable!("{word}"),
        }
        let mut out = vec![0; 65_536];
        std::iter::from_fn(|| client.transmit(now, &mut out).map(|len| out[..len].to_vec())).collect()
    }
}
