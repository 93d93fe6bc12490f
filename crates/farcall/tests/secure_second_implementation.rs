//! The second implementation of docs/protocol.md, section 11, in Python (tests/python/sealed*.py): it makes
//! the vectors of docs/ again, and calls farcall's server with keys.

#[path = "common/mod.rs"]
mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{builder, skip};
use farcall::key_files::{Identity, Keyring};
use farcall::{Keys, Level};

#[farcall::interface]
trait Store {
    fn get(&self, key: &str) -> farcall::Result<u64>;
    fn echo(&self, data: Vec<u8>) -> farcall::Result<Vec<u8>>;
    fn count(&self, number: u32) -> farcall::Result<()>;
    /// Returns how often `count` was executed.
    fn counted(&self) -> farcall::Result<u32>;
    /// Waits until the call is cancelled.
    fn wait(&self) -> farcall::Result<()>;
    fn caller(&self) -> farcall::Result<String>;
}

struct Server {
    counted: AtomicU32,
    tell: mpsc::Sender<&'static str>,
}

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<u64> {
        Ok(if key == "answer" { 42 } else { 0 })
    }

    fn echo(&self, data: Vec<u8>) -> farcall::Result<Vec<u8>> {
        Ok(data)
    }

    fn count(&self, _: u32) -> farcall::Result<()> {
        self.counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn counted(&self) -> farcall::Result<u32> {
        Ok(self.counted.load(Ordering::SeqCst))
    }

    fn wait(&self) -> farcall::Result<()> {
        let _ = self.tell.send("waiting");
        farcall::context().cancelled().wait(Duration::from_secs(600));
        let _ = self.tell.send("cancelled");
        Ok(())
    }

    fn caller(&self) -> farcall::Result<String> {
        Ok(farcall::context().principal().map_or_else(String::new, |principal| principal.name.to_string()))
    }
}

const SERVER: u8 = 1;
const ALICE: u8 = 2;
const MALLORY: u8 = 3;

fn identity(byte: u8) -> Identity {
    Identity::from_entropy([byte; 32])
}

fn servers_keys() -> Keyring {
    let line = format!("{} alice", identity(ALICE).public());
    Keyring::new(identity(SERVER)).with_authorized_key(line.parse().unwrap()).unwrap()
}

/// Writes the key files of a client that knows the server, and returns their directory.
fn key_files(place: &Path, client: u8) -> PathBuf {
    let directory = place.join(client.to_string());
    std::fs::create_dir(&directory).unwrap();
    let own = directory.join("identity");
    std::fs::write(&own, &*identity(client).to_text()).unwrap();
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(0o600)).unwrap();
    let line = format!("Store {}\n", identity(SERVER).public());
    std::fs::write(directory.join("known_servers"), line).unwrap();
    // The directory is as `Keys` wants it.
    Keys::open(&directory).unwrap();
    directory
}

/// Returns the Python program. If there is no Python with the library, says that the test is skipped, and
/// returns `None`.
fn python() -> Option<Command> {
    let has_library = |python: &&str| {
        let output =
            Command::new(python).args(["-c", "import cryptography.hazmat.primitives.ciphers.aead"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(has_library) else {
        skip("the second implementation with keys: python3 with python3-cryptography is not installed");
        return None;
    };
    let mut command = Command::new(python);
    command.arg("-B").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/speak_sealed.py"));
    Some(command)
}

#[test]
fn it_makes_the_vectors_again_and_notices_each_change_in_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors/secrets.txt");
    let Ok(vectors) = std::fs::read_to_string(&path) else {
        skip("the vectors of docs/ are not here (the crate stands alone)");
        return;
    };
    let Some(mut python) = python() else { return };
    let output = python.arg("vectors").arg(path).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines = vectors.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!(out.trim(), format!("ok {lines}"), "{err}");
}

/// Returns whether this machine computes AES in constant time, so that the server offers it.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Lets the second implementation check a server that prefers a level, in a suite. Takes its client's key
/// away when it asks for that, and gives it back.
fn check(level: Level, suite: u32) {
    let Some(mut python) = python() else { return };
    let (tell, told) = mpsc::channel();
    let keys = Keys::new(servers_keys());
    let exporter = builder().keys(keys.clone()).level(level).build().unwrap();
    let server = Arc::new(Server { counted: AtomicU32::new(0), tell });
    let export = exporter.export::<dyn Store>("Store/main", server).unwrap();
    let place = tempfile::tempdir().unwrap();
    let scheme = if level == Level::Secure { 3 } else { 2 };
    let mut process = python
        .args(["check", &export.address().ip().to_string(), &export.address().port().to_string()])
        .args([scheme, suite].map(|number| number.to_string()))
        .args([ALICE, MALLORY].map(|client| key_files(place.path(), client)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut said = Vec::new();
    for word in BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap) {
        match word.as_str() {
            "taken away" => {
                assert_eq!(told.recv(), Ok("waiting"));
                keys.replace(Keyring::new(identity(SERVER)));
                assert_eq!(told.recv(), Ok("cancelled"));
            }
            "given back" => keys.replace(servers_keys()),
            _ => {}
        }
        // The process ends by itself if it has failed.
        let _ = writeln!(input, "{word}");
        said.push(word);
    }
    assert!(process.wait().unwrap().success(), "{said:?}");
    assert_eq!(said, ["taken away", "given back", "ok"]);
}

#[test]
fn it_calls_our_server_at_both_levels_with_aes() {
    if !has_aes() {
        skip("the second implementation with AES-GCM: this processor has no instructions for it");
        return;
    }
    check(Level::Authenticated, 1);
    check(Level::Secure, 1);
}

#[test]
fn it_calls_our_server_at_both_levels_with_chacha() {
    check(Level::Authenticated, 2);
    check(Level::Secure, 2);
}
