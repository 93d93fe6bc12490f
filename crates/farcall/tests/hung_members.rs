//! Members of a group that have hung cost their callers one copy of the arguments, within one budget, and the
//! other members nothing.
//!
//! The members are other processes: one of them is stopped. This is a binary of its own, because its global
//! allocator counts the bytes that the process has.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/live_bytes.rs"]
mod live_bytes;
#[path = "common/other.rs"]
mod other;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use farcall::key_files::{Identity, Keyring};
use farcall::multi::{Fixed, Outcome};
use farcall::names::Memory;
use farcall::{Builder, Group, Keys, Kind, Ran, Runtime};
use other::{Other, ROLE, URL};

#[farcall::interface]
trait Copies {
    fn put(&self, content: &[u8]) -> farcall::Result<u64>;
}

struct Server;

impl Copies for Server {
    fn put(&self, content: &[u8]) -> farcall::Result<u64> {
        Ok(content.len() as u64)
    }
}

const MEMBERS: usize = 100;
const HUNG: usize = 10;
const LEN: usize = 1 << 20;
/// The budget, and how much of it the hung members may hold: as much as they leave free.
const BUDGET: usize = 8 << 20;
const WRITES: usize = 12;
/// What a client keeps besides: buffers for reuse (16 MiB at most) and for receiving.
const BUFFERS: isize = 24 << 20;

const SERVER: u8 = 1;
const CLIENT: u8 = 2;

fn builder(keyring: Option<Keyring>) -> Builder {
    let builder = Runtime::builder().registry(Memory::new()).address("127.0.0.1:0".parse().unwrap());
    match keyring {
        Some(keyring) => builder.keys(Keys::new(keyring)),
        None => builder,
    }
}

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let members: usize = std::env::var(URL).unwrap().parse().unwrap();
    let keyring = || {
        let line = format!("{} client", identity(CLIENT).public());
        Keyring::new(identity(SERVER)).with_authorized_key(line.parse().unwrap()).unwrap()
    };
    let exports: Vec<_> = (0..members)
        .map(|_| {
            let runtime = builder((role == "with keys").then(keyring)).shared_memory(false).build().unwrap();
            runtime.export::<dyn Copies>("Copies", Arc::new(Server)).unwrap()
        })
        .collect();
    let urls: Vec<String> = exports.iter().map(farcall::Export::url).collect();
    println!("at {}", urls.join(" "));
    let _ = std::io::stdin().read(&mut [0]);
}

/// Some members, in a process of their own.
fn members(role: &str, count: usize) -> (Other, Vec<String>) {
    let mut process = Other::start(module_path!(), role, &count.to_string());
    let urls = process.hear("at ").split(' ').map(str::to_owned).collect();
    (process, urls)
}

/// Writes to all members, and waits for those that are well. Returns how the hung ones failed at once.
fn write(group: &Group<CopiesClient, Fixed>, content: &[u8]) -> Vec<Kind> {
    let written = group.multi().put(content).quorum(MEMBERS - HUNG).expect("the others are well");
    assert_eq!(written.results().count(), MEMBERS - HUNG);
    assert!(written.iter().all(|(_, outcome)| match outcome {
        Outcome::Result(len) => *len == LEN as u64,
        Outcome::Failed(why) => why.kind() == Kind::Overloaded && why.ran() == Ran::No,
        outcome => matches!(outcome, Outcome::Abandoned(Ran::Maybe)),
    }));
    written.failures().map(|(_, why)| why.kind()).collect()
}

fn check(role: &str) {
    let (_well, mut urls) = members(role, MEMBERS - HUNG);
    let (hung, others) = members(role, HUNG);
    urls.splice(0..0, others);
    let keyring = (role == "with keys").then(|| {
        let line = format!("Copies {}", identity(SERVER).public());
        Keyring::new(identity(CLIENT)).with_known_server(line.parse().unwrap())
    });
    // Nothing that hangs is given up while the test runs.
    let builder = builder(keyring).patience(Duration::from_secs(3600)).argument_bytes(BUDGET);
    let client = builder.shared_memory(false).build().unwrap();
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    let group = client.import_each::<dyn Copies>(&urls).unwrap();
    let content = vec![7; LEN];
    assert_eq!(group.multi().put(&content).all().results().count(), MEMBERS);
    hung.stop();
    let before = live_bytes::of_process();
    let refused: Vec<usize> = (0..WRITES).map(|_| write(&group, &content).len()).collect();
    let kept = live_bytes::of_process() - before;
    println!("{role}: {kept} bytes after {WRITES} writes, members refused in each: {refused:?}");
    assert!(kept <= (BUDGET / 2) as isize + BUFFERS, "{kept} bytes");
    assert!(refused[0] == 0 && refused[WRITES - 1] == HUNG, "the hung ones alone are refused: {refused:?}");
    // When the calls have ended, their share is free again.
    hung.kill();
    let all = group.multi().put(&content).all();
    assert_eq!((all.results().count(), all.failures().count()), (MEMBERS - HUNG, HUNG));
}

#[test]
fn hung_members_keep_one_copy_within_the_budget_and_the_others_do_not_suffer() {
    check("open");
}

#[test]
fn with_keys_hung_members_keep_one_copy_within_the_budget_too() {
    check("with keys");
}
