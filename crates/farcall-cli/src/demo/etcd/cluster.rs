//! The members of etcd: processes, each with a process of the demo that kills it when the demo ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::demo::process::Process;
use crate::failure::{Failure, Outcome};
use crate::output::say;

/// The number of members.
const MEMBERS: usize = 3;

/// How long a member may take to say whether it leads.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer of a member that is read, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// A member of etcd.
#[derive(Debug, Args)]
pub struct Member {
    /// Which one it is
    which: usize,
    /// Where etcd keeps its files
    scratch: PathBuf,
    /// The ports of the members: for clients, and then for one another
    #[arg(num_args = 1..)]
    ports: Vec<u16>,
}

/// The members that run.
pub struct Cluster {
    members: Vec<Option<Process>>,
    ports: Vec<u16>,
}

pub fn is_installed() -> bool {
    Command::new("etcd").arg("--version").stdin(Stdio::null()).output().is_ok()
}

/// Returns ports of this machine that are free: for clients of each member, and then for the members.
pub fn free_ports() -> Outcome<Vec<u16>> {
    // They are held all at once, so that they differ.
    let held = (0..2 * MEMBERS).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    Ok(held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<Result<_, std::io::Error>>()?)
}

/// Returns the place of the registry.
pub fn place(ports: &[u16]) -> String {
    let hosts: Vec<String> =
        ports.iter().take(MEMBERS).map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST)).collect();
    format!("etcd://{}/demo", hosts.join(","))
}

fn url(port: u16) -> String {
    format!("http://{}:{port}", Ipv4Addr::LOCALHOST)
}

impl Member {
    /// Runs a member until the standard input ends. The first line of output is written once it serves.
    pub fn run(&self) -> Outcome {
        let Some((clients, peers)) = self.ports.split_at_checked(MEMBERS) else {
            return Err(Failure::usage("a port is missing"));
        };
        let (Some(client), Some(peer)) = (clients.get(self.which), peers.get(self.which)) else {
            return Err(Failure::usage("there is no such member"));
        };
        let (client, peer) = (url(*client), url(*peer));
        let all: Vec<String> =
            peers.iter().enumerate().map(|(which, port)| format!("m{which}={}", url(*port))).collect();
        let mut etcd = Command::new("etcd")
            .args(["--name", &format!("m{}", self.which), "--initial-cluster", &all.join(",")])
            .arg("--data-dir")
            .arg(self.scratch.join(format!("m{}", self.which)))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = etcd.stderr.take().ok_or_else(|| Failure::new("a process without output"))?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let told = is_ending.clone();
        let ending = std::thread::spawn(move || {
            crate::demo::wait_for_end();
            told.store(true, Relaxed);
            let _ = etcd.kill();
            let _ = etcd.wait();
        });
        // The log is read to its end, so that etcd is never held up.
        let mut last = String::new();
        for line in BufReader::new(log).lines() {
            last = line?;
            if last.contains("ready to serve") {
                say(json!({}))?;
            }
        }
        if !is_ending.load(Relaxed) {
            return Err(Failure::new(format!("a member of etcd has ended: {last}")));
        }
        let _ = ending.join();
        Ok(())
    }
}

impl Cluster {
    /// Starts the members, and waits until they serve.
    pub fn start(scratch: &Path, ports: &[u16]) -> Outcome<Cluster> {
        let start = |which| start(which, scratch, ports);
        // None of them serves before most of them run.
        let members = std::thread::scope(|scope| {
            let members: Vec<_> = (0..MEMBERS).map(|which| scope.spawn(move || start(which))).collect();
            let members = members.into_iter().map(|member| member.join());
            members
                .map(|member| member.unwrap_or_else(|_| Err(Failure::new("no member"))))
                .collect::<Vec<_>>()
        });
        let members = members.into_iter().map(|member| member.map(Some)).collect::<Outcome<_>>()?;
        Ok(Cluster { members, ports: ports.to_vec() })
    }

    /// Returns the running member that leads.
    pub fn leader(&self) -> Option<usize> {
        let mut running = (0..self.members.len()).filter(|which| self.members[*which].is_some());
        running.find(|which| status(self.ports[*which]).is_some_and(|status| is_leader(&status)))
    }

    /// Starts a member that was killed, and waits until it serves.
    pub fn restart(&mut self, which: usize, scratch: &Path) -> Outcome {
        self.members[which] = Some(start(which, scratch, &self.ports)?);
        Ok(())
    }

    /// Kills a member (SIGKILL on Unix).
    pub fn kill(&mut self, which: usize) {
        if let Some(mut member) = self.members[which].take() {
            member.end();
        }
    }
}

/// Starts a member, and waits until it serves.
fn start(which: usize, scratch: &Path, ports: &[u16]) -> Outcome<Process> {
    let mut arguments = vec!["member".into(), which.to_string().into(), scratch.as_os_str().to_owned()];
    arguments.extend(ports.iter().map(|port| port.to_string().into()));
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.as_os_str()).collect();
    Process::start(&arguments)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|which| self.kill(which));
    }
}

/// Returns what a member says of itself.
fn status(port: u16) -> Option<Value> {
    let mut member = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    member.set_read_timeout(Some(PATIENCE)).ok()?;
    member.write_all(b"POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}").ok()?;
    let mut answer = String::new();
    member.take(MAX_ANSWER).read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn is_leader(status: &Value) -> bool {
    status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
}
