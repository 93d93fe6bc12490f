//! A cluster of real etcd members on loopback, which tests kill, stop and start.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farcall_names::{Entry, Etcd, EtcdBuilder, Label};

/// The longest time that a test waits for what it expects.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Some etcd members that form a cluster.
pub struct Cluster {
    directory: tempfile::TempDir,
    members: Vec<Member>,
    settings: Settings,
}

/// Further settings of a cluster.
#[derive(Default)]
pub struct Settings {
    /// Arguments of each member.
    pub members: Vec<String>,
    /// Arguments of etcdctl.
    pub etcdctl: Vec<String>,
    /// Whether clients speak TLS to the members.
    pub is_secure: bool,
}

struct Member {
    host: Ipv4Addr,
    process: Option<Child>,
}

/// Returns a running cluster of this many members, or says why the test is skipped.
pub fn cluster(members: usize) -> Option<Cluster> {
    cluster_with(members, |_, _| Settings::default())
}

/// Returns a running cluster with the settings that a function makes. The function is given a directory,
/// which goes with the cluster, and the addresses of the members.
pub fn cluster_with(
    members: usize,
    settings: impl FnOnce(&Path, &[Ipv4Addr]) -> Settings,
) -> Option<Cluster> {
    if Command::new(program()).arg("--version").output().is_err() {
        skipped(&format!("{} is not installed", program().display()));
        return None;
    }
    Some(Cluster::start(members, settings))
}

/// Returns the etcd that runs as a member: the one in PATH, unless FARCALL_TEST_ETCD names another.
fn program() -> PathBuf {
    std::env::var_os("FARCALL_TEST_ETCD").unwrap_or_else(|| "etcd".into()).into()
}

/// Says that a test is skipped, and why.
pub fn skipped(why: &str) {
    // Not `eprintln`, whose output is shown only for failing tests.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Waits until `attempt` returns a value.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

pub fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// Returns an entry of this process for `Store/<instance>`.
pub fn entry(instance: &str) -> Entry {
    Entry::new(label("Store"), label(instance), "udp://127.0.0.1:7000".parse().unwrap(), 0x5eed)
}

/// Returns the instances in a registry's answer.
pub fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.instance.as_str()).collect()
}

impl Cluster {
    fn start(members: usize, settings: impl FnOnce(&Path, &[Ipv4Addr]) -> Settings) -> Cluster {
        // Each member has an address of its own, so that no other program can have its ports.
        static LAST: AtomicU8 = AtomicU8::new(0);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let host = || Ipv4Addr::new(127, 64 | high & 63, low, LAST.fetch_add(1, Ordering::Relaxed) + 1);
        let hosts: Vec<Ipv4Addr> = (0..members).map(|_| host()).collect();
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path(), &hosts);
        let members = hosts.into_iter().map(|host| Member { host, process: None }).collect();
        let mut cluster = Cluster { directory, members, settings };
        let mut ready = Vec::new();
        for which in 0..cluster.members.len() {
            ready.push(cluster.spawn(which));
        }
        ready.into_iter().for_each(wait_until_ready);
        cluster
    }

    /// Starts a member that does not run, and waits until it serves.
    pub fn restart(&mut self, which: usize) {
        let output = self.spawn(which);
        wait_until_ready(output);
    }

    fn spawn(&mut self, which: usize) -> impl std::io::BufRead + Send + use<> {
        let peer = |member: &Member| format!("http://{}:2380", member.host);
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(which, member)| format!("m{which}={}", peer(member)))
            .collect();
        let member = &self.members[which];
        let client = self.url(which);
        let mut process = Command::new(program())
            .args(["--name", &format!("m{which}")])
            .args(["--data-dir", &self.directory.path().join(format!("m{which}")).display().to_string()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.settings.members)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        self.members[which].process = Some(process);
        output
    }

    /// Returns the URL at which a member serves clients.
    fn url(&self, which: usize) -> String {
        let scheme = if self.settings.is_secure { "https" } else { "http" };
        format!("{scheme}://{}:2379", self.members[which].host)
    }

    /// Returns the address of a member.
    pub fn host(&self, which: usize) -> Ipv4Addr {
        self.members[which].host
    }

    /// Kills a member.
    pub fn kill(&mut self, which: usize) {
        let mut process = self.members[which].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Stops a member's process, so that it answers nothing, or lets it go on.
    pub fn pause(&self, which: usize, stops: bool) {
        let process = self.members[which].process.as_ref().unwrap();
        signal(process.id(), if stops { "STOP" } else { "CONT" });
    }

    /// Returns the index of the member that leads.
    pub fn leader(&self) -> usize {
        until("a leader", || {
            let mut running = (0..self.members.len()).filter(|which| self.members[*which].process.is_some());
            running.find(|which| {
                let status = self.etcdctl_at(*which, &["endpoint", "status"]);
                // ENDPOINT, ID, VERSION, DB SIZE, IS LEADER, …
                status.split(", ").nth(4) == Some("true")
            })
        })
    }

    /// Returns the place of the registry.
    pub fn place(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| member.host.to_string()).collect();
        let scheme = if self.settings.is_secure { "etcds" } else { "etcd" };
        format!("{scheme}://{}/test", hosts.join(","))
    }

    /// Returns the place of a registry that has no entries yet.
    pub fn new_place(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        format!("{}/{}", self.place(), LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a new connection to the registry, whose entries stay for 2 s.
    pub fn registry(&self) -> Etcd {
        self.builder().build()
    }

    pub fn builder(&self) -> EtcdBuilder {
        Etcd::builder(&self.place()).unwrap().lease_time(Duration::from_secs(2))
    }

    /// Runs etcdctl, and returns what it prints.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let which = self.members.iter().position(|member| member.process.is_some()).unwrap();
        self.etcdctl_at(which, arguments)
    }

    fn etcdctl_at(&self, which: usize, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url(which)])
            .args(&self.settings.etcdctl)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns how many reads of keys the only member has executed.
    pub fn reads(&self) -> u64 {
        let mut member = TcpStream::connect((self.members[0].host, 2379)).unwrap();
        member.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut metrics = String::new();
        member.read_to_string(&mut metrics).unwrap();
        let is_read = |line: &&str| line.contains("grpc_method=\"Range\"");
        let handled = metrics.lines().filter(|line| line.starts_with("grpc_server_handled_total"));
        let counts =
            handled.filter(is_read).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        counts.sum()
    }

    /// Returns how many leases there are.
    pub fn leases(&self) -> usize {
        // The first line says how many were found.
        self.etcdctl(&["lease", "list"]).lines().skip(1).count()
    }

    /// Returns the present revision.
    pub fn revision(&self) -> String {
        let said = self.etcdctl(&["get", "unrelated", "--write-out=json"]);
        let revision = said.split("\"revision\":").nth(1).unwrap();
        revision.split(|c: char| !c.is_ascii_digit()).next().unwrap().to_owned()
    }

    /// Returns the value of a key below the registry's prefix, as etcd has it.
    pub fn value(&self, key: &str) -> String {
        self.etcdctl(&["get", "--print-value-only", &format!("test/v1/{key}")])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    let done = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(done.success());
}

/// Reads a member's log until it serves, and goes on reading it, so that the member is never held up.
fn wait_until_ready(mut log: impl std::io::BufRead + Send + 'static) {
    let mut seen = String::new();
    loop {
        let from = seen.len();
        let len = log.read_line(&mut seen).unwrap();
        assert!(len > 0, "etcd has ended:\n{seen}");
        if seen[from..].contains("serving insecure client requests")
            || seen[from..].contains("ready to serve")
        {
            break;
        }
    }
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}
