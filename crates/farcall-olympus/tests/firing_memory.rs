//! 100,000 firings leave the memory of the process where it was.
//!
//! This is a binary of its own, because its global allocator counts the bytes that the process has.
#![allow(missing_docs)]

#[path = "../../farcall/tests/common/live_bytes.rs"]
mod live_bytes;

use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::Memory;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Command, Outcome, Run, Settings};
use serde_json::json;

#[farcall::interface]
trait Echo {
    fn echo(&self, text: &str) -> farcall::Result<String>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, text: &str) -> farcall::Result<String> {
        Ok(text.to_owned())
    }
}

/// In each round so many tokens are put, each of which is one firing.
const TOKENS: usize = 1000;
const ROUNDS: usize = 102;
/// A thread of the servers that begins, or that sends for the first time, has a buffer of so many bytes.
const THREAD_BUFFER: isize = 64 << 10;
/// The most bytes by which the buffers of all threads may grow.
const ALL_THREAD_BUFFERS: isize = 16 * THREAD_BUFFER;

#[test]
fn a_hundred_thousand_firings_leave_the_memory_where_it_was() {
    let registry = Arc::new(Memory::new());
    let runtime =
        || Runtime::builder().registry(registry.clone()).shared_memory(false).workers(4).build().unwrap();
    let (servers, caller) = (runtime(), runtime());
    let _export = servers.export::<dyn Echo>("Echo/one", Arc::new(Server)).unwrap();
    let graph = json!({
        "places": [{"name": "words"}],
        "nodes": [{
            "name": "say", "in": [{"place": 0, "as": "word"}],
            "call": {"server": "Echo/one", "name": "echo", "arguments": "[word]"},
        }],
    });
    let settings = Settings { bound: 16, ..Settings::default() };
    let run =
        Run::start(serde_json::from_value(graph).unwrap(), &Procedures::new(&caller), settings).unwrap();
    let place = run.graph().place("words").unwrap();
    let after: Vec<isize> = (0..ROUNDS)
        .map(|_| {
            let tokens = vec![json!("a word"); TOKENS];
            run.command(Command::Put { place, tokens }).unwrap();
            assert_eq!(run.wait_for(Duration::from_secs(60)), Some(Outcome::Quiet));
            live_bytes::of_process()
        })
        .collect();
    assert_eq!(run.state().counts.ended as usize, ROUNDS * TOKENS);
    // The first rounds make tables as large as they need to be.
    let (early, late) = (after[1], after[ROUNDS - 1]);
    println!("{early} bytes after {TOKENS} firings, {late} after {}", (ROUNDS - 2) * TOKENS);
    // Threads of the servers may begin and end in any round. What firings left behind would grow in many.
    let changes = || after[1..].windows(2).map(|rounds| rounds[1] - rounds[0]);
    let of_threads: isize = changes().filter(|change| change.abs() >= THREAD_BUFFER).sum();
    assert!(of_threads <= ALL_THREAD_BUFFERS, "{after:?}");
    assert!(late - early - of_threads < 48 << 10, "{after:?}");
}
