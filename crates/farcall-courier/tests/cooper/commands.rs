//! Connections that are handed over to a command.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use farcall::{Kind, Ran};
use farcall_courier::cooper;

use crate::common::{PasswordLookup, Users, bytes, receive};

/// A shell that answers the activation and one call of `again(7)`, and then ends.
const ANSWER_ONE: &str = r"printf '\000'; head -c 6 >/dev/null; printf '\000\001\000\007'";

fn is_missing(program: &str) -> bool {
    let is_missing = !Path::new(program).exists();
    if is_missing {
        println!("skipped: {program}: it is not installed");
    }
    is_missing
}

#[test]
fn a_command_has_the_connection_as_its_standard_input_and_output() {
    if is_missing("/bin/sh") || is_missing("/usr/bin/head") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("courier");
    let server = cooper::Server::builder()
        .command("PasswordLookup", "/bin/sh", ["-c", ANSWER_ONE])
        .program_as("Here", std::sync::Arc::new(Users::default()) as std::sync::Arc<dyn PasswordLookup>)
        .tcp("127.0.0.1:0".parse().unwrap())
        .unix(&path)
        .start()
        .unwrap();
    let tcp = format!("tcp://{}", server.addresses()[0]);
    let unix = format!("unix:{}", path.display());
    for address in [tcp, unix] {
        let lookup = cooper::import::<dyn PasswordLookup>(&address).unwrap();
        assert_eq!(lookup.again(7).unwrap(), 7);
        // The process has ended, or is about to. The call may be repeated, so a new process answers it.
        assert_eq!(lookup.again(7).unwrap(), 7);
        let here = cooper::Builder::default().program("Here").import::<dyn PasswordLookup>(&address).unwrap();
        assert_eq!(here.again(8).unwrap(), 8);
    }
}

#[test]
fn what_the_client_sends_at_once_reaches_the_command() {
    if is_missing("/bin/cat") {
        return;
    }
    let arguments: [&str; 0] = [];
    let server = cooper::Server::builder()
        .command("Cat", "/bin/cat", arguments)
        .tcp("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    let mut peer = TcpStream::connect(server.addresses()[0]).unwrap();
    // The name is odd. Not a byte after its padding is taken from the command.
    peer.write_all(&bytes("0003 4361 7400 0102 0304")).unwrap();
    assert_eq!(receive(&mut peer, 4), [1, 2, 3, 4]);
    drop(server);
    // The command runs on without the server, until its client has gone.
    peer.write_all(&[5, 6]).unwrap();
    assert_eq!(receive(&mut peer, 2), [5, 6]);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_command_that_cannot_be_started() {
    let arguments: [&str; 0] = [];
    let server = cooper::Server::builder()
        .command("Gone", "/nonexistent/courier/gone", arguments)
        .commands(0)
        .command("Full", "/bin/sh", arguments)
        .tcp("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    for name in ["Gone", "Full"] {
        let builder = cooper::Builder::default().program(name);
        let why =
            builder.import::<dyn PasswordLookup>(&format!("tcp://{}", server.addresses()[0])).unwrap_err();
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No), "{why}");
    }
    assert_eq!(server.troubles(), 2);
}

#[test]
fn no_path_comes_from_the_network() {
    let arguments: [&str; 0] = [];
    let server = cooper::Server::builder()
        .command("sh", "/bin/sh", arguments)
        .tcp("127.0.0.1:0".parse().unwrap())
        .start()
        .unwrap();
    for name in ["/bin/sh", "../bin/sh", "sh -c x", "SH", "sh\u{2044}"] {
        let builder = cooper::Builder::default().program(name);
        let why =
            builder.import::<dyn PasswordLookup>(&format!("tcp://{}", server.addresses()[0])).unwrap_err();
        assert_eq!(why.kind(), Kind::NotExported, "{name}");
    }
}
