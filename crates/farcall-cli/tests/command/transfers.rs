//! Tests `put` and `get` with whole files: broken by killed processes and by a lossy network, and gone on.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use farcall::dynamic::Pinger;
use serde_json::Value;

use crate::common::{Place, Said, Started, names_in};

fn content() -> Vec<u8> {
    (0..4_000_003u32).map(|n| (n ^ n >> 11) as u8).collect()
}

#[test]
fn two_copies_to_one_file_do_not_mix() {
    let place = Place::new();
    place.write("dir/file", content());
    let _server = serve(&place, &[]);
    let part = File::create(place.path("file.part")).unwrap();
    part.lock().unwrap();
    let said = place.run(&["get", "file"]);
    assert_eq!((said.code, said.err.as_str()), (1, "farcall: file: another program is writing file.part\n"));
    drop(part);
    place.run(&["get", "file"]).ok();
}

fn serve(place: &Place, more: &[&str]) -> Started {
    // Some tests put a forwarder before the server, and a proof of the user is for the server's own address.
    place.start(&[&["--json", "serve", "dir", "--writable", "--open"], more].concat())
}

#[test]
fn a_file_is_stored_and_fetched_whole() {
    let place = Place::new();
    let original = place.write("file", content());
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    File::options().write(true).open(&original).unwrap().set_modified(time).unwrap();
    fs::create_dir_all(place.path("dir/sub")).unwrap();
    let _server = serve(&place, &[]);

    let said = &place.run(&["--json", "put", "file", "sub"]).json()[0];
    assert_eq!((&said["path"], &said["bytes"]), (&"sub/file".into(), &4_000_003.into()));
    assert_eq!((&said["resumed_at"], &said["breaks"]), (&0.into(), &0.into()));
    assert!(place.read("dir/sub/file") == content());
    assert_eq!(names_in(&place.path("dir/sub")), ["file"], "and no part of it is left");
    assert_eq!(fs::metadata(place.path("dir/sub/file")).unwrap().modified().unwrap(), time);
    let fetched = &place.run(&["--json", "get", "sub/file", "copy"]).json()[0];
    assert_eq!(fetched["sha256"], said["sha256"]);
    assert!(place.read("copy") == content());
    assert_eq!(fs::metadata(place.path("copy")).unwrap().modified().unwrap(), time);

    place.write("file", "shorter");
    let again = place.run(&["put", "file", "sub/"]);
    assert_eq!(
        (again.code, again.err.as_str()),
        (1, "farcall: sub/file exists\nhint: --force replaces it\n")
    );
    assert_eq!(place.run(&["put", "file", "sub/file", "--force"]).ok(), "sub/file: 7 B\n");
    assert_eq!(place.read("dir/sub/file"), b"shorter");
    place.write("empty", "");
    assert_eq!(place.run(&["put", "empty"]).ok(), "empty: 0 B\n");
    assert_eq!(place.run(&["get", "empty", "emptied"]).ok(), "emptied: 0 B\n");
}

#[test]
fn what_is_there_of_another_file_is_not_used() {
    let place = Place::new();
    place.write("file", content());
    fs::create_dir(place.path("dir")).unwrap();
    let _server = serve(&place, &[]);
    for part in [b"other content".to_vec(), [content(), b"more".to_vec()].concat()] {
        place.write("dir/.file.part", part);
        assert_eq!(place.run(&["--json", "put", "file", "--force"]).json()[0]["resumed_at"], 0);
        assert!(place.read("dir/file") == content());
    }
    place.write("dir/.file.part", &content()[..1_000_000]);
    assert_eq!(place.run(&["--json", "put", "file", "--force"]).json()[0]["resumed_at"], 1_000_000);
    assert!(place.read("dir/file") == content());
}

#[test]
fn a_server_that_does_not_let_write_refuses() {
    let place = Place::new();
    place.write("file", content());
    fs::create_dir(place.path("dir")).unwrap();
    let server = place.serve("dir", "FileAccess");
    let said = place.run(&["put", "file"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("not permitted\nhint: `farcall serve DIR --writable`"), "{said:?}");
    drop(server);
    let _server = serve(&place, &["--quota", "1000000"]);
    let said = place.run(&["put", "file"]);
    assert!(said.code == 5 && said.err.contains("more than 1000000 bytes"), "{said:?}");
    let said = place.run(&["put", "dir"]);
    assert!(said.code == 1 && said.err.contains("dir is not a regular file"), "{said:?}");
}

#[test]
fn a_fetched_file_goes_on_after_its_server_was_killed() {
    let place = Place::new();
    place.write("dir/file", content());
    let server = serve(&place, &["--address", "127.0.0.1:0"]);
    let gate = Gate::new(&server);
    let url = gate.url();
    let get = ["--json", "get", "file", "--from", &url];
    let client = spawn(&place, &get);

    gate.wait_until_passed(1_000_000);
    drop(server);
    let said = Said::of(client.wait_with_output().unwrap());
    let error: Value = serde_json::from_str(&said.err).unwrap();
    let error = &error["error"];
    let there = fs::metadata(place.path("file.part")).unwrap().len();
    assert_eq!((said.code, &error["kind"], &error["bytes"]), (5, &"Unreachable".into(), &there.into()));
    // The client has a part: the server was killed before it had sent all.
    assert!(there > 100_000 && there < 4_000_003, "{there}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains(" MB of 4.0 MB are in file.part") || message.contains(" kB of 4.0 MB"),
        "{message}"
    );

    let _server = serve(&place, &["--address", &gate.server.to_string()]);
    gate.open(u64::MAX);
    let said = &patient(&place, &get).json()[0];
    assert_eq!(said["resumed_at"], there);
    assert!(place.read("file") == content());
}

#[test]
fn with_continue_one_command_goes_on_by_itself() {
    let place = Place::new();
    place.write("dir/file", content());
    let server = serve(&place, &["--address", "127.0.0.1:0"]);
    let gate = Gate::new(&server);
    let address = gate.server.to_string();
    let get = spawn(&place, &["--json", "get", "file", "--continue", "--from", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    drop(server);
    let server = serve(&place, &["--address", &address]);
    gate.open(1_000_000);
    gate.wait_until_passed(1_000_000);
    drop(server);
    let server = serve(&place, &["--address", &address]);
    gate.open(u64::MAX);
    let said = &Said::of(get.wait_with_output().unwrap()).json()[0];
    assert_eq!(said["resumed_at"], 0);
    assert!(said["breaks"].as_u64().unwrap() >= 2, "{said}");
    assert!(place.read("file") == content());

    // A file that is stored goes on, too.
    drop((server, gate));
    let server = serve(&place, &["--address", "127.0.0.1:0"]);
    let gate = Gate::new(&server);
    let address = gate.server.to_string();
    let put = spawn(&place, &["--json", "put", "file", "stored", "--continue=30", "--to", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    drop(server);
    let _server = serve(&place, &["--address", &address]);
    gate.open(u64::MAX);
    let said = &Said::of(put.wait_with_output().unwrap()).json()[0];
    assert!(said["breaks"].as_u64().unwrap() >= 1, "{said}");
    assert!(place.read("dir/stored") == content());
}

#[test]
fn what_the_server_has_already_counts_as_sent() {
    let place = Place::new();
    place.write("file", content());
    place.write("dir/.file.part", &content()[..2_000_000]);
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    let client = spawn(&place, &["--json", "put", "file", "--to", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    drop(server);
    let said = Said::of(client.wait_with_output().unwrap());
    let error: Value = serde_json::from_str(&said.err).unwrap();
    let error = &error["error"];
    let sent = error["bytes"].as_u64().unwrap();
    assert!(said.code == 5 && sent > 2_000_000 && sent <= 4_000_003, "{error}");
    assert!(error["message"].as_str().unwrap().contains(" MB of 4.0 MB were sent"), "{error}");
}

#[test]
fn a_file_that_appears_during_the_copy_is_not_replaced() {
    let place = Place::new();
    place.write("dir/file", content());
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    let client = spawn(&place, &["get", "file", "--from", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    place.write("file", "of another program");
    gate.open(u64::MAX);
    let said = Said::of(client.wait_with_output().unwrap());
    let why = "farcall: file exists; the complete copy is in file.part\nhint: --force replaces it\n";
    assert_eq!((said.code, said.err.as_str()), (1, why));
    assert_eq!(place.read("file"), b"of another program");
    let said = &place.run(&["--json", "get", "file", "--force"]).json()[0];
    assert_eq!(said["resumed_at"], 4_000_003);
    assert!(place.read("file") == content() && !place.path("file.part").exists());
}

#[test]
fn a_file_that_appears_at_the_server_is_not_replaced() {
    let place = Place::new();
    place.write("file", content());
    fs::create_dir(place.path("dir")).unwrap();
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    let client = spawn(&place, &["put", "file", "--to", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    place.write("dir/file", "of another program");
    gate.open(u64::MAX);
    let said = Said::of(client.wait_with_output().unwrap());
    let why = "farcall: file: a file of this name exists\nhint: --force replaces it\n";
    assert_eq!((said.code, said.err.as_str()), (3, why));
    assert_eq!(place.read("dir/file"), b"of another program");
}

#[test]
fn a_file_that_is_replaced_during_the_copy_is_not_mixed() {
    let place = Place::new();
    place.write("dir/file", content());
    place.write("new", "new content");
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    let client = spawn(&place, &["get", "file", "--from", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    place.run(&["put", "new", "file", "--force"]).ok();
    gate.open(u64::MAX);
    let said = Said::of(client.wait_with_output().unwrap());
    assert!(said.code == 1 && said.err.contains("file changed while it was being copied"), "{said:?}");
    assert!(!place.path("file").exists());
    place.run(&["get", "file"]).ok();
    assert_eq!(place.read("file"), b"new content");
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_part_is_not_written_to() {
    let place = Place::new();
    place.write("dir/file", content());
    place.write("other", "of another program");
    let _server = serve(&place, &[]);
    for (link, why) in [
        (std::os::unix::fs::symlink as fn(_, _) -> _, "is not a regular file"),
        (fs::hard_link, "has another name too; remove it"),
    ] {
        link(place.path("other"), place.path("file.part")).unwrap();
        let said = place.run(&["get", "file"]);
        assert_eq!((said.code, said.err), (1, format!("farcall: file: file.part {why}\n")));
        fs::remove_file(place.path("file.part")).unwrap();
    }
    assert_eq!(place.read("other"), b"of another program");
}

#[test]
fn a_stored_file_goes_on_after_its_client_was_killed() {
    let place = Place::new();
    place.write("file", content());
    fs::create_dir(place.path("dir")).unwrap();
    let started = serve(&place, &[]);
    let gate = Gate::new(&started);
    let mut client = spawn(&place, &["put", "file", "--to", &gate.url()]);
    gate.wait_until_passed(1_000_000);
    client.kill().unwrap();
    client.wait().unwrap();

    // The call ends at the server once its client's patience has passed.
    let registry = farcall::names::File::at(place.registry());
    let runtime = farcall::Runtime::builder().registry(registry).build().unwrap();
    let server = Pinger::import(&runtime, "FileAccess").unwrap();
    while server.ping().unwrap().running > 1 {
        std::thread::yield_now();
    }
    let there = fs::metadata(place.path("dir/.file.part")).unwrap().len();
    // The server has a part: the client was killed before it had sent all.
    assert!(there > 100_000 && there < 4_000_003, "{there}");
    let said = &place.run(&["--json", "put", "file"]).json()[0];
    assert_eq!(said["resumed_at"], there);
    assert!(place.read("dir/file") == content());
}

#[test]
fn a_file_passes_through_heavy_loss() {
    let place = Place::new();
    let bytes: Vec<u8> = content().into_iter().cycle().take(64 << 20).collect();
    place.write("dir/file", &bytes);
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    gate.open(u64::MAX);
    gate.lose(20);
    let url = gate.url();
    let got = &patient(&place, &["--json", "get", "file", "--from", &url]).json()[0];
    let put = &patient(&place, &["--json", "put", "file", "stored", "--to", &url]).json()[0];
    assert_eq!(got["sha256"], put["sha256"]);
    assert!(place.read("file") == bytes && place.read("dir/stored") == bytes);
}

/// The size of a file that is much larger than what an end may keep of it.
#[cfg(target_os = "linux")]
const LARGE: u64 = 256 << 20;

/// The most bytes by which a process may grow while such a file passes.
#[cfg(target_os = "linux")]
const MAX_GROWTH: u64 = 16 << 20;

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_file() {
    let place = Place::new();
    fs::create_dir(place.path("dir")).unwrap();
    for name in ["dir/large", "large"] {
        File::create(place.path(name)).unwrap().set_len(LARGE).unwrap();
    }
    let server = serve(&place, &[]);
    let gate = Gate::new(&server);
    for arguments in [["get", "large", "copy", "--from"], ["put", "large", "stored", "--to"]] {
        let url = gate.url();
        let mut client = spawn(&place, &[&arguments[..], &[&url]].concat());
        gate.wait_until_passed(1_000_000);
        let before = [server.pid(), client.id()].map(peak_memory);
        gate.open(LARGE - LARGE / 8);
        gate.wait_until_passed(LARGE - LARGE / 8);
        let after = [server.pid(), client.id()].map(peak_memory);
        // The system's count may be a few pages behind.
        let grown = [0, 1].map(|end| after[end].saturating_sub(before[end]));
        assert!(grown.iter().all(|grown| *grown <= MAX_GROWTH), "{arguments:?}: {before:?} {after:?}");
        client.kill().unwrap();
        client.wait().unwrap();
        gate.open(1_000_000);
    }
}

/// Returns the most memory that a process has had, in bytes.
#[cfg(target_os = "linux")]
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn spawn(place: &Place, arguments: &[&str]) -> std::process::Child {
    prepared(&mut place.command(arguments)).spawn().unwrap()
}

/// Runs a command as `spawn` does, with the same patience.
fn patient(place: &Place, arguments: &[&str]) -> Said {
    Said::of(spawn(place, arguments).wait_with_output().unwrap())
}

fn prepared(command: &mut Command) -> &mut Command {
    let command = command.env("FARCALL_PATIENCE_MS", "1000");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Forwards datagrams between one client after another and a server, until so many bytes have passed; then
/// it loses everything, until it is opened again.
struct Gate {
    address: SocketAddr,
    server: SocketAddr,
    state: Arc<(Mutex<Passing>, Condvar)>,
}

struct Passing {
    passed: u64,
    limit: u64,
    /// The percentage of datagrams that are lost, each way.
    loss: u64,
    chance: fastrand::Rng,
}

impl Gate {
    fn new(server: &Started) -> Gate {
        let url = server.fact("url");
        let server: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
        let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (front, back) = (bind(), bind());
        let address = front.local_addr().unwrap();
        let passing =
            Passing { passed: 0, limit: 1_000_000, loss: 0, chance: fastrand::Rng::with_seed(0x5eed) };
        let state = Arc::new((Mutex::new(passing), Condvar::new()));
        let client = Arc::new(Mutex::new(None));
        let (from, to, known, passes) = (front.clone(), back.clone(), client.clone(), state.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, sender)) = from.recv_from(&mut buffer) {
                *known.lock().unwrap() = Some(sender);
                if passes_gate(&passes, length) {
                    let _ = to.send_to(&buffer[..length], server);
                }
            }
        });
        let passes = state.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            loop {
                // An error says only that no server was there.
                let Ok((length, _)) = back.recv_from(&mut buffer) else { continue };
                let client = *client.lock().unwrap();
                if passes_gate(&passes, length)
                    && let Some(client) = client
                {
                    let _ = front.send_to(&buffer[..length], client);
                }
            }
        });
        Gate { address, server, state }
    }

    fn url(&self) -> String {
        format!("udp://{}/FileAccess", self.address)
    }

    /// Waits until the gate has closed.
    fn wait_until_passed(&self, bytes: u64) {
        let (passing, changed) = &*self.state;
        let reached = |passing: &mut Passing| passing.passed < bytes.min(passing.limit);
        drop(changed.wait_while(passing.lock().unwrap(), reached).unwrap());
    }

    /// Lets so many more bytes pass.
    fn open(&self, more: u64) {
        let mut passing = self.state.0.lock().unwrap();
        (passing.passed, passing.limit) = (0, more);
    }

    /// Loses that percentage of the datagrams, each way.
    fn lose(&self, loss: u64) {
        self.state.0.lock().unwrap().loss = loss;
    }
}

fn passes_gate(state: &(Mutex<Passing>, Condvar), length: usize) -> bool {
    let (passing, changed) = state;
    let mut passing = passing.lock().unwrap();
    if passing.passed >= passing.limit {
        return false;
    }
    passing.passed += length as u64;
    changed.notify_all();
    let loss = passing.loss;
    passing.chance.u64(..100) >= loss
}
