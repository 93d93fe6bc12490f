//! The programs that others wrote: where they are, and how they are started.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::has;

/// A server that serves Telephones until it is dropped.
pub struct Counterpart {
    pub name: String,
    pub address: String,
    pub speaks_version_2: bool,
    process: Child,
}

impl Drop for Counterpart {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts each server that this machine can run.
pub fn servers() -> Vec<Counterpart> {
    let mut commands = Vec::new();
    match built() {
        Some(directory) => {
            let program = directory.join("server").display().to_string();
            commands.push((vec![program, "0".into()], false));
        }
        None => skip("4.4BSD's server: it is not built (scripts/xnscourier)"),
    }
    if has("python3") {
        let peer = python("peer.py");
        let server = ["python3", &peer, "server", "0"].map(str::to_owned).to_vec();
        let but =
            |more: &[&str]| [&server[..], &more.iter().map(|&word| word.into()).collect::<Vec<_>>()].concat();
        commands.push((server.clone(), false));
        commands.push((but(&["--packet", "7"]), false));
        commands.push((but(&["--versions", "2..3"]), true));
    } else {
        skip("the server in Python: no python3");
    }
    commands.into_iter().map(|(command, speaks_version_2)| start(&command, speaks_version_2)).collect()
}

fn start(command: &[String], speaks_version_2: bool) -> Counterpart {
    let (program, arguments) = command.split_first().unwrap();
    let process = Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut process = process.unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim_end().strip_prefix("listening ").expect("the server says where it listens");
    let address = format!("tcp://127.0.0.1:{port}");
    Counterpart { name: command.join(" "), address, speaks_version_2, process }
}

/// Starts the server that speaks Cooper's dialect.
pub fn cooper_server() -> Option<Counterpart> {
    if !has("python3") {
        skip("the server in Python: no python3");
        return None;
    }
    let command = ["python3", &python("peer.py"), "server", "0", "--cooper"].map(str::to_owned);
    Some(start(&command, false))
}

/// Lets each client that this machine can run call the server at this port.
pub fn check(port: u16) {
    let built = built();
    if built.is_none() {
        skip("4.4BSD's client: it is not built (scripts/xnscourier)");
    }
    check_by(&[built.unwrap_or_default().display().to_string(), port.to_string()]);
}

/// Lets the client in Python call the server at this port in Cooper's dialect.
pub fn check_cooper(port: u16) {
    check_by(&[String::new(), port.to_string(), "cooper".into()]);
}

fn check_by(arguments: &[String]) {
    if !has("python3") {
        return skip("the clients of others: no python3");
    }
    let mut check = Command::new("python3");
    check.arg(python("check.py")).args(arguments);
    let said = check.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    println!("{text}");
    assert!(said.status.success(), "{text}{}", String::from_utf8_lossy(&said.stderr));
}

fn python(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(name).display().to_string()
}

/// Returns the directory of the programs that scripts/xnscourier has built.
fn built() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xnscourier");
    directory.join("server").exists().then_some(directory)
}

pub fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}
