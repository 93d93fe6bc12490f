//! Tests clerks of all structures whose server is killed and started again, over both carriers. The test
//! program runs itself again as the server.
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use farcall::names::Memory as Registry;
use farcall::{Kind, Runtime};
use farcall_file_service::{Addresses, Clerk, Server, Shape, Structure, names};

const DIRECTORY: &str = "FARCALL_TEST_SERVED_DIRECTORY";
const ADDRESS: &str = "FARCALL_TEST_SERVER_ADDRESS";
const MAPPED: &str = "FARCALL_TEST_SERVER_MAPS";

fn builder(mapped: bool) -> farcall::Builder {
    Runtime::builder().registry(Registry::new()).shared_memory(mapped)
}

/// A server in a process of its own, which ends with this.
struct Process(Child, Addresses);

impl Process {
    fn start(directory: &std::path::Path, address: SocketAddr, mapped: bool) -> Process {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "restarted_servers::a_server_that_the_test_starts", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(ADDRESS, address.to_string())
            .env(MAPPED, mapped.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let addresses = lines.filter_map(|line| line.strip_prefix("serving ").map(str::to_owned)).next();
        let addresses = addresses.expect("the server started");
        let mut parts = addresses.split(',').map(str::to_owned);
        let mut part = || parts.next().unwrap();
        Process(child, Addresses { files: part(), more: part(), memory: part() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an address at which nobody listens, not even while the server is away: outside of the range from
/// which the system gives ports to sockets that ask for any.
fn fixed_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time have numbers near each other.
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 20;
    let free = || {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        UdpSocket::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
    };
    std::iter::repeat_with(free).flatten().next().expect("a port is free")
}

#[test]
fn a_server_that_the_test_starts() {
    let (Ok(directory), Ok(address)) = (env::var(DIRECTORY), env::var(ADDRESS)) else { return };
    let runtime =
        builder(env::var(MAPPED).unwrap() == "true").address(address.parse().unwrap()).build().unwrap();
    let server = Server::export(&runtime, "files", directory, Shape::SMALL).unwrap();
    let Addresses { files, more, memory } = server.addresses();
    println!("\nserving {files},{more},{memory}");
    // Until the test ends or kills this process.
    let _ = std::io::stdin().lines().count();
}

#[test]
fn clerks_of_all_structures_recover_when_their_server_was_killed_and_started_again() {
    for mapped in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let text = |name: &str| scratch.path().join(name);
        fs::write(text("file"), "first").unwrap();
        let address = fixed_address();
        let mut server = Process::start(scratch.path(), address, mapped);
        let clerks = Structure::ALL.map(|structure| {
            let runtime = builder(mapped).build().unwrap();
            (structure, Clerk::new(&runtime, &server.1, structure).unwrap().files)
        });
        let root = clerks[0].1.root().unwrap();
        let file = clerks[0].1.look_up(root, "file").unwrap().handle;
        for (structure, files) in &clerks {
            assert_eq!(files.look_up(root, "file").unwrap().handle, file);
            assert_eq!(&*files.read(file, 0, 100).unwrap().0, b"first", "{structure:?}");
        }
        for round in ["again", "third"] {
            drop(server);
            fs::write(text("file"), round).unwrap();
            fs::write(text(round), "new").unwrap();
            server = Process::start(scratch.path(), address, mapped);
            for (structure, files) in &clerks {
                let what = format!("{structure:?}, mapped: {mapped}, {round}");
                assert_eq!(&*files.read(file, 0, 100).unwrap().0, round.as_bytes(), "{what}");
                let new = files.look_up(root, round).unwrap().handle;
                assert_eq!(files.attributes(new).unwrap().size, 3, "{what}");
                assert!(names(&**files, root).unwrap().contains(&round.to_owned()), "{what}");
                files.write(new, 0, b"old").unwrap();
                assert_eq!(&*files.read(new, 0, 100).unwrap().0, b"old", "{what}");
                files.commit(new).unwrap();
                assert_eq!(fs::read(text(round)).unwrap(), b"old", "{what}");
                fs::write(text(round), "new").unwrap();
            }
        }
    }
}

/// The server that is there when a commit fails is not the one that was written to, if any is. A later commit
/// must not say that all is well.
#[test]
fn a_commit_is_true_of_what_was_written_before_the_server_was_killed_however_often_it_is_tried() {
    for mapped in [false, true] {
        for structure in Structure::ALL {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("file");
            fs::write(&path, "first").unwrap();
            let address = fixed_address();
            let server = Process::start(scratch.path(), address, mapped);
            let clerk = Clerk::new(&builder(mapped).build().unwrap(), &server.1, structure).unwrap();
            let file = clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle;
            clerk.files.read(file, 0, 100).unwrap();
            clerk.files.write(file, 0, b"other").unwrap();
            drop(server);
            let what = format!("{structure:?}, mapped: {mapped}");
            let absent = clerk.files.commit(file).unwrap_err();
            assert!(absent.call_failed().is_some(), "{what}: {absent}");
            let _server = Process::start(scratch.path(), address, mapped);
            if clerk.files.commit(file).is_err() {
                clerk.files.write(file, 0, b"other").unwrap();
                clerk.files.commit(file).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), b"other", "{what}");
        }
    }
}

/// A clerk of DX writes into the server's memory, which goes with the server.
#[test]
fn a_commit_after_a_restart_says_that_what_was_written_may_be_lost() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), "first").unwrap();
    let address = fixed_address();
    let server = Process::start(scratch.path(), address, true);
    let clerk = Clerk::new(&builder(true).build().unwrap(), &server.1, Structure::Dx).unwrap();
    let file = clerk.files.look_up(clerk.files.root().unwrap(), "file").unwrap().handle;
    clerk.files.read(file, 0, 100).unwrap();
    clerk.files.write(file, 0, b"other").unwrap();
    drop(server);
    let _server = Process::start(scratch.path(), address, true);
    let lost = clerk.files.commit(file).unwrap_err();
    assert_eq!(lost.call_failed().map(farcall::CallFailed::kind), Some(Kind::ServerRestarted), "{lost}");
    clerk.files.write(file, 0, b"other").unwrap();
    clerk.files.commit(file).unwrap();
    assert_eq!(fs::read(scratch.path().join("file")).unwrap(), b"other");
}

/// Ends the threads of a test when its main thread ends, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The content of the file in a round: one number again and again, in two blocks.
fn content(round: u8) -> Vec<u8> {
    vec![b'a' + round; 10_000]
}

/// The server is killed while clerks of all structures read. What they read is of one round, and never of an
/// earlier round than what they have read before.
#[test]
fn what_clerks_read_while_their_server_is_killed_is_whole_and_does_not_go_back() {
    const ROUNDS: u8 = 5;
    for mapped in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), content(0)).unwrap();
        let address = fixed_address();
        let mut server = Process::start(scratch.path(), address, mapped);
        let clerks = Structure::ALL.map(|structure| {
            let runtime = builder(mapped).build().unwrap();
            (structure, Clerk::new(&runtime, &server.1, structure).unwrap().files)
        });
        let root = clerks[0].1.root().unwrap();
        let file = clerks[0].1.look_up(root, "file").unwrap().handle;
        clerks.iter().for_each(|(_, files)| _ = files.look_up(root, "file").unwrap());
        let (over, reads) = (AtomicBool::new(false), [(); 5].map(|()| AtomicU64::new(0)));
        std::thread::scope(|scope| {
            let _stop = Stop(&over);
            for ((structure, files), reads) in clerks.iter().zip(&reads) {
                let over = &over;
                scope.spawn(move || {
                    let _stop = Stop(over);
                    let mut latest = b'a';
                    while !over.load(Ordering::SeqCst) {
                        // While there is no server, a read fails.
                        let Ok(contents) = files.read(file, 5_000, 4_000) else {
                            std::thread::yield_now();
                            continue;
                        };
                        let first = contents.0.first().copied().unwrap();
                        let what = format!("{structure:?}, mapped: {mapped}");
                        assert!(
                            contents.0.len() == 4_000 && contents.0.iter().all(|b| *b == first),
                            "{what}"
                        );
                        assert!(first >= latest, "{what}: {first} after {latest}");
                        latest = first;
                        reads.store(u64::from(first - b'a') << 32 | 1, Ordering::SeqCst);
                    }
                });
            }
            for round in 1..=ROUNDS {
                drop(server);
                fs::write(scratch.path().join("file"), content(round)).unwrap();
                server = Process::start(scratch.path(), address, mapped);
                let is_back = |reads: &AtomicU64| reads.load(Ordering::SeqCst) >> 32 == u64::from(round);
                while !over.load(Ordering::SeqCst) && !reads.iter().all(is_back) {
                    std::thread::yield_now();
                }
            }
        });
    }
}
