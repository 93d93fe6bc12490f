//! The programs that the tests run: programs in C made by rpcgen, and the host's own. Also prints what was
//! shown of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use farcall_onc::Server;
use farcall_onc::server::{ServerBuilder, Transport};

/// The networks by the names of the system's netconfig, each with this host's address.
pub const NETWORKS: [(&str, &str); 4] =
    [("udp", "127.0.0.1"), ("tcp", "127.0.0.1"), ("udp6", "::1"), ("tcp6", "::1")];

/// Returns the networks that this machine has. Some machines have no IPv6.
pub fn networks() -> impl Iterator<Item = (&'static str, &'static str)> {
    NETWORKS.into_iter().filter(|(_, host)| TcpListener::bind((*host, 0)).is_ok())
}

/// Makes a farcall server serve a port of each network.
pub fn at_each(builder: ServerBuilder) -> ServerBuilder {
    let ports =
        networks().map(|(_, host)| SocketAddr::new(host.parse().unwrap(), 0)).collect::<BTreeSet<_>>();
    ports.into_iter().fold(builder, ServerBuilder::address)
}

/// Prints that a cell of table.txt was shown: the counterpart, the network, and whether farcall is the client
/// (`call`) or the server (`serve`).
pub fn shown(counterpart: &str, network: &str, role: &str) {
    println!("interop: {counterpart} | {network} | {role}");
}

/// Prints why a test is skipped. Does not use `eprintln!`, whose output is shown only if the test fails.
pub fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Compiles the programs in C, once, and returns their directory. If that is impossible, prints why the test
/// is skipped.
pub fn in_c(what: &str) -> Option<&'static Path> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(make).as_deref();
    made.inspect_err(|why| skip(&format!("{what}: {why}"))).ok()
}

fn make() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interop-{}", std::process::id()));
    std::fs::create_dir_all(&out).map_err(|why| why.to_string())?;
    for name in ["calc", "language"] {
        std::fs::copy(here.join(format!("{name}.x")), out.join(format!("{name}.x")))
            .map_err(|why| why.to_string())?;
        for (flag, end) in [("-h", ".h"), ("-c", "_xdr.c"), ("-l", "_clnt.c"), ("-m", "_svc.c")] {
            let mut rpcgen = Command::new("rpcgen");
            rpcgen.args(["-C", "-N", flag, "-o", &format!("{name}{end}"), &format!("{name}.x")]);
            run(rpcgen.current_dir(&out))?;
        }
        for (program, half) in [("check", "clnt"), ("serve", "svc")] {
            let program = format!("{name}_{program}");
            let mut gcc = Command::new("gcc");
            gcc.args(["-w", "-I", ".", "-I", "/usr/include/tirpc", "-o", &program]);
            gcc.arg(here.join(format!("{program}.c")))
                .args([format!("{name}_{half}.c"), format!("{name}_xdr.c")]);
            run(gcc.args(["-ltirpc", "-lpthread"]).current_dir(&out))?;
        }
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-w", "-I", "/usr/include/tirpc", "-o", "broadcast"]).arg(here.join("broadcast.c"));
    run(gcc.arg("-ltirpc").current_dir(&out))?;
    Ok(out)
}

/// Runs a program, and returns its output.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| format!("{name} cannot be run: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{name}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(said)
}

/// Returns whether the host has a program. If not, prints that the test is skipped.
pub fn has(name: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|found| found.success());
    if !is_there {
        skip(&format!("{name}: it is not installed"));
    }
    is_there
}

/// Returns the port of a farcall server on a network.
pub fn port(server: &Server, network: &str) -> String {
    let fits = |(transport, address): &&(Transport, SocketAddr)| {
        (*transport == Transport::Udp) == network.starts_with("udp")
            && address.is_ipv6() == network.ends_with('6')
    };
    server.addresses().iter().find(fits).unwrap().1.port().to_string()
}

/// Returns an address in the form that farcall's client takes.
pub fn address(network: &str, port: &str) -> String {
    let scheme = network.trim_end_matches('6');
    let host = if network.ends_with('6') { "[::1]" } else { "127.0.0.1" };
    format!("{scheme}://{host}:{port}")
}

/// A running program, with the first line that it printed. The program ends when its standard input ends,
/// which happens when this is dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    pub first: String,
}

impl Running {
    /// Starts a program, and waits for its first line.
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        Running { stdin: child.stdin.take(), child, first }
    }

    /// Returns the ports that the program printed, in the order of [`NETWORKS`].
    pub fn ports(&self) -> Vec<&str> {
        let ports: Vec<&str> =
            self.first.split_whitespace().filter(|word| word.parse::<u16>().is_ok()).collect();
        assert_eq!(ports.len(), NETWORKS.len(), "{}", self.first);
        ports
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A program that is killed when it is dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Starts a program, if it is installed.
    pub fn start(command: &mut Command) -> Option<Daemon> {
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Repeats an attempt until it succeeds, because programs do not report when they are ready.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let over = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(std::time::Instant::now() < over, "it never came");
        std::thread::yield_now();
    }
}
