//! Tests docs/onc.md, "In ten minutes": its files and commands give the output that the page shows.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The content of a fenced block of the page.
enum Step {
    /// A file's content, and its name, which is the last text in backquotes before the block.
    File(String, String),
    /// A command, and its output.
    Run(String, String),
}

fn steps(page: &str) -> Vec<Step> {
    let (_, rest) = page.split_once("\n## In ten minutes\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let parts: Vec<&str> = section.split("```").collect();
    let (mut steps, mut before) = (Vec::new(), String::new());
    for pair in parts.chunks(2) {
        before += pair[0];
        let Some((kind, text)) = pair.get(1).and_then(|fence| fence.split_once('\n')) else { break };
        if kind != "console" {
            let is_file = |name: &&str| {
                let known = [".x", ".rs", ".c"]
                    .into_iter()
                    .any(|end| name.strip_suffix(end).is_some_and(|stem| !stem.is_empty()));
                known && !name.contains(' ')
            };
            let name = before.split('`').skip(1).step_by(2).filter(is_file).last().unwrap();
            steps.push(Step::File(name.to_owned(), text.to_owned()));
            continue;
        }
        for command in text.split("$ ").skip(1) {
            let (command, prints) = command.split_once('\n').unwrap();
            steps.push(Step::Run(command.to_owned(), prints.trim_end_matches('\n').to_owned()));
        }
    }
    steps
}

#[test]
fn a_new_user_comes_to_a_server_and_clients() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = at_our_own_address(&fs::read_to_string(here.join("../../docs/onc.md")).unwrap());
    let place = tempfile::tempdir().unwrap();
    let mut user = User { directory: place.path().to_owned(), server: None };
    for step in steps(&page) {
        match step {
            Step::File(name, text) => fs::write(user.directory.join(name), text).unwrap(),
            Step::Run(command, prints) => user.run(&command, &prints),
        }
    }
    assert!(user.server.is_some());
}

/// Returns the page with an address that only this process uses, so that the port is free.
fn at_our_own_address(page: &str) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    let page = page.replace("127.0.0.1:4000", &format!("127.7.{high}.{low}:4000"));
    page.replace("INADDR_LOOPBACK", &format!("0x7f07{high:02x}{low:02x}"))
}

struct User {
    directory: PathBuf,
    server: Option<Child>,
}

impl User {
    fn run(&mut self, command: &str, prints: &str) {
        if command == "cd phone" {
            return self.settle_in();
        }
        if (command.starts_with("rpcgen") || command.starts_with("gcc") || command.starts_with("./find"))
            && !has_c()
        {
            let _ = writeln!(std::io::stderr(), "skipped: {command}: needs rpcgen, gcc and libtirpc");
            return;
        }
        let mut shell = self.shell(command);
        if command.ends_with("serve") {
            let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
            let mut first = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
            self.server = Some(child);
            return assert_eq!(first.trim_end(), prints, "{command}");
        }
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(prints.is_empty() || said.trim_end() == prints, "{command}: {said}");
    }

    /// Makes the package use the dependencies of this workspace, without the network.
    fn settle_in(&mut self) {
        self.directory.push("phone");
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        fs::copy(lock, self.directory.join("Cargo.lock")).unwrap();
    }

    fn shell(&self, command: &str) -> Command {
        let farcall = Path::new(env!("CARGO_BIN_EXE_farcall")).parent().unwrap();
        let path = format!("{}:{}", farcall.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        // The server is killed at the end, so it replaces the shell.
        let exec = if command.ends_with("serve") {
            "cargo build --quiet && exec $CARGO_TARGET_DIR/debug/phone serve"
        } else {
            command
        };
        shell.args(["-c", exec]).current_dir(&self.directory).env("PATH", path);
        shell.env("FARCALL", Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        shell.env("CARGO_NET_OFFLINE", "true");
        // The directory is kept from one run to the next.
        shell.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("ten-minutes"));
        shell
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        let _ = server.kill();
        let _ = server.wait();
    }
}

fn has_c() -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v rpcgen gcc && test -e /usr/include/tirpc/rpc/rpc.h"])
        .output();
    found.is_ok_and(|found| found.status.success())
}
