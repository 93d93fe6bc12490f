//! With RPC2 2.38: its server and our client, its client and our server, also with lost packets, and one call
//! to many of its servers. `FARCALL_RPC2` names the directory that `scripts/rpc2` has filled;
//! `FARCALL_RPC2_CALLS` says how many calls are made; with `FARCALL_WRITE_VECTORS` the first packets are
//! kept.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use farcall::Group;

use crate::common::{Fate, Here, Network, import, serve};
use crate::covering::*;
use crate::packets;

const CALLS: u32 = 200;
const SEED: u64 = 1990;
/// How many packets are kept of each side.
const KEPT: usize = 8;

fn calls() -> u32 {
    std::env::var("FARCALL_RPC2_CALLS").map_or(CALLS, |calls| calls.parse().unwrap())
}

/// Returns a program over RPC2, in the plain mode. Says that a test is skipped if there is none.
fn program(name: &str) -> Option<Command> {
    let place = std::env::var_os("FARCALL_RPC2").map(PathBuf::from);
    let Some(place) = place.map(|place| place.join(name)).filter(|place| place.exists()) else {
        let _ =
            writeln!(std::io::stderr(), "skipped: FARCALL_RPC2 names no directory that scripts/rpc2 made");
        return None;
    };
    let mut command = Command::new(place);
    // RPC2 writes its log into the current directory.
    command.env("RPC2SEC_ONLY", "0").current_dir(env!("CARGO_TARGET_TMPDIR"));
    Some(command)
}

/// A server of RPC2's. It is ended when this is dropped.
struct Real(Child, SocketAddr);

impl Real {
    fn start() -> Option<Real> {
        // RPC2 cannot be asked which port it has, so a free one is chosen for it.
        let free = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let mut command = program("server")?;
        drop(free);
        let mut child =
            command.arg(port.to_string()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Real(child, SocketAddr::from(([127, 0, 0, 1], port))))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check_calls(covering: &CoveringClient) {
    let most = Rpc2BoundedBs { max_seq_len: 3, seq_body: Vec::new() };
    for number in 1..=calls() {
        match number % 50 {
            0 => {
                let both = covering.all_both(
                    number as i32,
                    2,
                    3,
                    0.5,
                    &most,
                    &[4; 8],
                    Colour::Green,
                    &Range::default(),
                );
                let both = both.unwrap_err().declared().cloned().expect("a return code");
                assert_eq!((both.return_code, both.signed, both.unsigned), (5, number as i32 + 1, 3));
                assert_eq!(
                    (both.small, both.heavy, both.secret, both.paint),
                    (3, 0.5, [4; 8], Colour::Green)
                );
            }
            10 => {
                let out = covering.all_out(&most).unwrap();
                assert_eq!(
                    (out.signed, out.small, out.heavy, out.bounded.seq_body),
                    (-7, 77, 0.75, b"abc".to_vec())
                );
                assert_eq!(
                    (out.secret, out.sum, out.five, out.whole.high),
                    (*b"12345678", [1; 16], [5; 5], 9)
                );
            }
            20 => {
                let ranges = [Range { low: 1, high: 2, name: [3; 12] }; 3];
                let arrays = covering.arrays(&ranges, 2, 3, &ranges, 7).unwrap();
                assert_eq!((arrays.taken, arrays.changed[2].low), (ranges[..2].to_vec(), 8));
            }
            30 => assert_eq!(covering.names(&"abc".into(), &"".into()).unwrap(), 3),
            _ => assert_eq!(covering.double(number).unwrap(), 2 * number),
        }
    }
}

#[test]
fn our_client_calls_its_server() {
    let Some(real) = Real::start() else { return };
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let judge = move |packet: &[u8], to_server| {
        keep.lock().unwrap().push((to_server, packet.to_vec()));
        Fate::Arrives
    };
    let network = Network::new(real.1, Box::new(judge));
    check_calls(&import(network.address));
    keep_vectors("server", &kept.lock().unwrap(), false);
}

#[test]
fn its_client_calls_our_server() {
    let Some(mut client) = program("client") else { return };
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let judge = move |packet: &[u8], to_server| {
        keep.lock().unwrap().push((to_server, packet.to_vec()));
        Fate::Arrives
    };
    let network = Network::new(server.address(), Box::new(judge));
    finish(client.arg(network.address.port().to_string()).arg(calls().to_string()));
    assert_eq!(*here.welcomed.lock().unwrap(), [b"guest"]);
    assert_eq!(server.calls(), u64::from(calls()));
    keep_vectors("client", &kept.lock().unwrap(), true);
}

#[test]
fn its_client_calls_our_server_though_packets_are_lost() {
    let Some(mut client) = program("client") else { return };
    let here = Arc::new(Here::default());
    let server = serve(here.clone(), |server| server);
    let network = Network::losing(server.address(), SEED);
    finish(client.arg(network.address.port().to_string()).arg(calls().to_string()));
    // Each call was executed once.
    assert_eq!(server.calls(), u64::from(calls()));
}

#[test]
fn our_client_calls_its_server_though_packets_are_lost() {
    let Some(real) = Real::start() else { return };
    let network = Network::losing(real.1, SEED);
    check_calls(&import(network.address));
    let direct = import(real.1);
    let doubles = (1..=calls()).filter(|number| !matches!(number % 50, 0 | 10 | 20 | 30)).count() as u32;
    assert_eq!(direct.double(0).unwrap(), doubles, "each call was executed once");
}

#[test]
fn one_call_goes_to_twenty_of_its_servers() {
    let servers: Vec<Real> = (0..20).map_while(|_| Real::start()).collect();
    if servers.is_empty() {
        return;
    }
    let group = Group::of(servers.iter().map(|real| (real.1.to_string(), import(real.1))));
    for number in 1..=10 {
        let all = group.multi().double(number).quorum(20).unwrap();
        assert!(all.results().count() == 20 && all.results().all(|(_, twice)| *twice == 2 * number));
    }
}

#[test]
fn its_server_says_busy_and_is_waited_for() {
    let Some(real) = Real::start() else { return };
    // Two seconds, in which it sleeps and says nothing, are within the patience.
    assert_eq!(import(real.1).double(1_002_000).unwrap(), 2_004_000);
}

#[track_caller]
fn finish(client: &mut Command) {
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, format!("{} calls, 0 wrong\n", calls()));
}

/// Keeps the first packets that RPC2 has sent.
fn keep_vectors(name: &str, packets: &[(bool, Vec<u8>)], to_server: bool) {
    if std::env::var_os("FARCALL_WRITE_VECTORS").is_none() {
        return;
    }
    let mut text = String::from("# The first packets that RPC2 2.38 sent, in its plain mode.\n");
    for (_, packet) in packets.iter().filter(|(direction, _)| *direction == to_server).take(KEPT) {
        for byte in packet {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    std::fs::write(packets::file(name), text).unwrap();
}
