//! Tests clerks of all structures whose server is killed and started again, over both carriers. The test
//! program runs itself again as the server.
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};

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
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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

/// A clerk of DX writes into the server's memory, which goes with the server.
#[test]
fn a_commit_after_a_restart_says_that_what_was_written_may_be_lost() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("file"), "first").unwrap();
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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
