//! The second implementation of docs/protocol.md, in Python (tests/python), speaks to farcall's server and
//! client.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::common::lossy::wire;
use crate::common::{builder, runtime, skip};
use farcall::dynamic::{Dynamic, Pinger};
use farcall::stub::Interface;
use farcall::{Error, Kind, Ran};

#[farcall::interface]
pub trait Store {
    fn get(&self, #[xdr(max = 64)] key: &str) -> farcall::Result<u64, NoSuchKey>;
    fn echo(&self, data: Vec<u8>) -> farcall::Result<Vec<u8>>;
    /// Counts the call with this number.
    fn count(&self, number: u32) -> farcall::Result<()>;
    /// Waits until the call is cancelled.
    #[blocking]
    fn slow(&self) -> farcall::Result<bool>;
    /// Returns how many numbers were counted, if each was counted exactly once.
    fn counted(&self) -> farcall::Result<u32>;
    fn pairs(&self, pairs: Vec<Pair>) -> farcall::Result<u32>;
}

#[derive(Debug, farcall::Xdr)]
pub struct NoSuchKey {
    key: String,
}

#[derive(Debug, farcall::Xdr)]
pub enum Colour {
    Red,
    #[xdr(tag = 5)]
    Blue,
}

#[derive(Debug, farcall::Xdr)]
#[xdr(extensible)]
pub struct Pair {
    name: String,
    colour: Colour,
    next: Option<u64>,
}

#[derive(Default)]
struct Server(Mutex<HashMap<u32, u32>>);

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        if key != "answer" {
            return Err(NoSuchKey { key: key.to_owned() }.into());
        }
        Ok(42)
    }

    fn echo(&self, data: Vec<u8>) -> farcall::Result<Vec<u8>> {
        Ok(data)
    }

    fn count(&self, number: u32) -> farcall::Result<()> {
        *self.0.lock().unwrap().entry(number).or_default() += 1;
        Ok(())
    }

    fn slow(&self) -> farcall::Result<bool> {
        while !farcall::context().is_cancelled() {
            std::thread::yield_now();
        }
        Ok(true)
    }

    fn counted(&self) -> farcall::Result<u32> {
        let counts = self.0.lock().unwrap();
        let once = counts.values().all(|times| *times == 1);
        Ok(if once { counts.len() as u32 } else { 0 })
    }

    fn pairs(&self, pairs: Vec<Pair>) -> farcall::Result<u32> {
        Ok(pairs.len() as u32)
    }
}

/// Returns the Python program, or `None` if there is no Python; then the test says that it is skipped.
fn python() -> Option<Command> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("the second implementation: python3 is not installed");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg("-B").arg(directory.join("speak.py"));
    Some(command)
}

/// Runs the program until it succeeds, and returns its output.
fn run(arguments: &[&str]) -> Option<String> {
    let output = python()?.args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    Some(out.into_owned())
}

fn client(address: SocketAddr, scheme: u8, calls: u32) {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    run(&["client", &host, &port, &scheme.to_string(), &calls.to_string()]);
}

#[test]
fn its_client_calls_our_server_in_both_schemes() {
    for scheme in [0, 1] {
        let exporter = runtime();
        let export = exporter.export::<dyn Store>("Store/one", Arc::new(Server::default())).unwrap();
        client(export.address(), scheme, 20);
    }
}

#[test]
fn its_client_calls_our_server_through_loss_and_each_call_runs_once() {
    // A proof of the user is for the server's own address, not for that of the wire.
    let exporter = builder().open().build().unwrap();
    let export = exporter.export::<dyn Store>("Store/one", Arc::new(Server::default())).unwrap();
    client(wire(export.address()), 0, 500);
}

/// The second implementation's server, until the test is over.
struct Second {
    process: Child,
    address: SocketAddr,
}

impl Second {
    fn serve() -> Option<Second> {
        let mut process = python()?.arg("serve").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Some(Second { process, address: line.trim().parse().unwrap() })
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn our_client_calls_its_server() {
    let Some(second) = Second::serve() else { return };
    let caller = runtime();
    let name = format!("udp://{}/Store", second.address);
    let store = caller.import::<dyn Store>(&name).unwrap();
    assert_eq!(store.get("answer").unwrap(), 42);
    let declared = store.get("question").unwrap_err();
    assert!(matches!(declared, Error::Declared(NoSuchKey { key }) if key == "question"));
    for size in [0, 1, 900, 1_200, 20_000, 300_001] {
        let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        assert_eq!(store.echo(data.clone()).unwrap(), data);
    }
    let pair = Pair { name: "name".into(), colour: Colour::Blue, next: None };
    assert_eq!(store.pairs(vec![pair]).unwrap(), 1);

    let mut slow = store.start().slow();
    // The server has the call, because a later call of the same client was answered.
    store.get("answer").unwrap();
    slow.cancel();
    let why = slow.wait().unwrap_err();
    assert_eq!(why.call_failed().unwrap().kind(), Kind::Cancelled);
    assert_ne!(why.ran(), Ran::Yes);

    assert!(Pinger::import(&caller, &name).unwrap().ping().unwrap().running >= 1);
    let described = Dynamic::import(&caller, &name).unwrap();
    let ours = <dyn Store>::interface();
    assert_eq!(described.interface().fingerprints(), ours.fingerprints());
    let other = caller.import::<dyn Store>(&format!("udp://{}/Other", second.address)).unwrap_err();
    assert_eq!(other.call_failed().unwrap().kind(), Kind::NotExported);
}

#[test]
fn our_client_calls_its_server_through_loss_and_each_call_runs_once() {
    let Some(second) = Second::serve() else { return };
    let caller = runtime();
    let store = caller.import::<dyn Store>(&format!("udp://{}/Store", wire(second.address))).unwrap();
    for number in 0..500 {
        store.count(number).unwrap();
    }
    let data = vec![7; 300_001];
    assert_eq!(store.echo(data.clone()).unwrap(), data);
    assert_eq!(store.counted().unwrap(), 500);
}

#[test]
fn it_reads_the_vectors() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors");
    if !vectors.exists() {
        skip("the vectors of docs/ are not here (the crate stands alone)");
        return;
    }
    run(&["vectors", vectors.to_str().unwrap()]);
}
