//! Connections that send nothing, or exceed their process's share, take nothing from others.
//!
//! The test program runs itself again as the other processes.

use std::env;
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::builder;
use crate::echo::{Echo, Honest};
use crate::other::{Other, ROLE, URL};
use farcall_shm::{Received, UnixChannel};

/// The number of files that the server may open. The test opens more connections than this.
const FILES: usize = 256;
/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

/// Starts a process that may have few files open.
fn limited(role: &str, url: &str) -> Other {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" \"$@\"")]).arg(env::current_exe().unwrap());
    Other::start_by(command, module_path!(), role, url)
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut line = String::new();
    let mut told = || std::io::stdin().read_line(&mut line).unwrap() > 0;
    if role == "call" {
        let runtime = builder().build().unwrap();
        let reversed = runtime.import::<dyn Echo>(&env::var(URL).unwrap()).unwrap().reverse(b"abc").unwrap();
        println!("reversed: {}", String::from_utf8(reversed).unwrap());
        return;
    }
    let runtime = builder().shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    println!("url: {}", export.url());
    while told() {
        let files: Result<Vec<File>, _> = (0..FILES / 3).map(|_| File::open("/dev/null")).collect();
        println!("opened: {}", files.map_or_else(|why| why.to_string(), |files| files.len().to_string()));
    }
}

#[test]
fn silent_connections_leave_files_and_places_to_others_and_go() {
    let mut server = limited("serve", "");
    let url = server.hear("url: ");
    let address: SocketAddr = url["udp://".len()..].split('/').next().unwrap().parse().unwrap();
    // The system refuses a connection when the listener's queue is full.
    let mut silent: Vec<UnixChannel> =
        (0..2 * FILES).filter_map(|_| UnixChannel::connect(address).ok()).collect();
    // A connection beyond its process's share is closed. When that has happened to this one, all earlier ones
    // have been closed, too, or have a place.
    let last = loop {
        if let Ok(wire) = UnixChannel::connect(address) {
            break wire;
        }
        std::thread::yield_now();
    };
    assert_gone(&last);
    server.tell();
    assert_eq!(server.hear("opened: "), (FILES / 3).to_string());
    let mut caller = limited("call", &url.replace("udp:", "shm:"));
    assert_eq!(caller.hear("reversed: "), "cba");
    // A connection that sends nothing does not keep its place.
    assert!(silent.len() >= FILES / 8, "{} have connected", silent.len());
    silent.drain(..).for_each(|wire| assert_gone(&wire));
}

fn assert_gone(wire: &UnixChannel) {
    wire.wait(LONG);
    assert_eq!(wire.receive(&mut [0; 8]), Received::Gone);
}
