//! A real network: server and client in network namespaces of their own, lost packets, a slow link.

use crate::commands::output;
use crate::common;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;

/// The environment variable with the role of a copy of this program.
pub const ROLE: &str = "FARCALL_NETNS_ROLE";
const SERVER: &str = "10.77.0.1:7000";
const BYTES: usize = 64 << 20;

/// Where the server sends zeros over TCP, and how many must have come before the call begins.
const ZEROS: &str = "10.77.0.1:7001";
const BEFORE: usize = 8 << 20;
const BESIDE: usize = 32 << 20;

#[farcall::interface]
pub trait Source {
    /// Returns this many bytes, always the same.
    fn read(&self, bytes: u64) -> farcall::Result<Vec<u8>>;
}

struct Pattern;

impl Source for Pattern {
    fn read(&self, bytes: u64) -> farcall::Result<Vec<u8>> {
        Ok(pattern(bytes as usize))
    }
}

/// Returns bytes in which no two stretches are alike.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        out.extend((state ^ state >> 33).to_be_bytes());
    }
    out.truncate(bytes);
    out
}

#[test]
fn a_long_result_arrives_whole_through_the_loss_of_a_fifth() {
    if let Ok(role) = env::var(ROLE) {
        return act(&role);
    }
    let net = match Net::new("loss", Net::lose_a_fifth) {
        Ok(net) => net,
        Err(why) => return common::skip(&format!("calls between network namespaces: {why}")),
    };
    let name = "network_namespaces::a_long_result_arrives_whole_through_the_loss_of_a_fifth";
    let (mut server, mut said) = net.play(name, "server", &net.server);
    wait_for(&mut said, "ready");
    let before = net.sent();
    let (mut client, mut said) = net.play(name, "client", &net.client);
    wait_for(&mut said, "intact");
    assert!(client.wait().unwrap().success());
    let sent = net.sent() - before;
    let ratio = sent as f64 / BYTES as f64;
    println!("{BYTES} bytes, {sent} sent: {ratio:.3}");
    assert!(ratio <= 1.5, "{ratio:.3} times its bytes were sent");
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// A long result and a TCP connection share a link fairly while both have something to send.
#[test]
fn a_long_result_and_a_connection_share_a_slow_link() {
    if let Ok(role) = env::var(ROLE) {
        return act(&role);
    }
    let net = match Net::new("slow", Net::slow_down) {
        Ok(net) => net,
        Err(why) => return common::skip(&format!("a slow link between network namespaces: {why}")),
    };
    let name = "network_namespaces::a_long_result_and_a_connection_share_a_slow_link";
    let (mut server, mut said) = net.play(name, "server", &net.server);
    wait_for(&mut said, "ready");
    let (mut client, mut said) = net.play(name, "neighbour", &net.client);
    wait_for(&mut said, "shared");
    let mut figures = String::new();
    said.read_line(&mut figures).unwrap();
    assert!(client.wait().unwrap().success());
    let figures: Vec<f64> = figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
    let [other, took, waited] = figures[..] else { panic!("{figures:?}") };
    let share = BESIDE as f64 / (BESIDE as f64 + other);
    let waited = waited.max(for_a_processor(&server.id().to_string()).as_secs_f64()) / took;
    println!(
        "{:.0} % of the link for the call, the rest for TCP; for a processor it waited {:.0} % of the time",
        100.0 * share,
        100.0 * waited
    );
    // If its processes wait for a processor, the call has less, because TCP goes on meanwhile in the kernel.
    let least = if waited < 0.4 { 0.2 } else { 0.0 };
    assert!((least..=0.8).contains(&share), "the call had {share:.2} of the link");
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// Addresses where the server listens, and for each an address that its system would not choose to answer
/// from.
const ASKED: [(&str, &str); 3] =
    [("0.0.0.0:7000", "10.77.0.11:7000"), ("[::]:7000", "10.77.0.11:7000"), ("[::]:7000", "[fd77::11]:7000")];

/// Calls, long results in datagram batches, and a server's answer about a conversation that it does not know.
#[test]
fn a_server_with_two_addresses_answers_from_the_one_that_was_asked() {
    if let Ok(role) = env::var(ROLE) {
        return match role.split_once(' ') {
            Some(("server", address)) => serve(address),
            Some((_, address)) => ask(address),
            None => unreachable!("{role}"),
        };
    }
    let net = match Net::new("two", Net::have_two_addresses) {
        Ok(net) => net,
        Err(why) => return common::skip(&format!("calls between hosts of two addresses: {why}")),
    };
    let name = "network_namespaces::a_server_with_two_addresses_answers_from_the_one_that_was_asked";
    for (listens, asked) in ASKED {
        let start = || {
            let (server, mut said) = net.play(name, &format!("server {listens}"), &net.server);
            wait_for(&mut said, "ready");
            server
        };
        let first = start();
        let (mut client, mut said) = net.play(name, &format!("client {asked}"), &net.client);
        wait_for(&mut said, "answered");
        drop(first);
        let _second = start();
        client.stdin.take().unwrap().write_all(b"again\n").unwrap();
        wait_for(&mut said, "noticed");
        assert!(client.wait().unwrap().success());
    }
}

/// Calls, and calls again after the server was restarted: only the server's answer about the conversation
/// shows that.
fn ask(address: &str) {
    let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
    let source = runtime.import::<dyn Source>(&format!("udp://{address}/Source")).unwrap();
    for bytes in [100, 3 << 20] {
        assert!(source.read(bytes).unwrap() == pattern(bytes as usize));
    }
    println!("\nanswered");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    if let Err(farcall::Error::CallFailed(why)) = source.read(100) {
        assert_eq!(why.kind(), farcall::Kind::ServerRestarted, "{why}");
    }
    println!("\nnoticed");
}

fn serve(address: &str) {
    let builder = farcall::Runtime::builder().address(address.parse().unwrap()).open();
    // No loopback address is up here, so none can be guessed; callers name the address themselves.
    let builder = builder.advertise("10.77.0.1:0".parse().unwrap());
    let runtime = builder.registry(farcall::names::Memory::new()).build().unwrap();
    let _export = runtime.export::<dyn Source>("Source", Arc::new(Pattern)).unwrap();
    println!("\nready");
    // This waits until the parent process closes the pipe.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn act(role: &str) {
    if role == "server" {
        let listener = TcpListener::bind(ZEROS).unwrap();
        std::thread::spawn(move || send_zeros(&listener));
        return serve(SERVER);
    }
    let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
    // The call's own deadline bounds how long it may take.
    let source = runtime.import::<dyn Source>(&format!("udp://{SERVER}/Source")).unwrap();
    let source = source.within(Duration::from_secs(60));
    if role == "neighbour" {
        let zeros = receive_zeros();
        let before = zeros.load(Ordering::Relaxed);
        let begun = Instant::now();
        source.read(BESIDE as u64).unwrap();
        let (other, took) = (zeros.load(Ordering::Relaxed) - before, begun.elapsed().as_secs_f64());
        println!("\nshared\n{other} {took} {}", for_a_processor("self").as_secs_f64());
        return;
    }
    let bytes = source.read(BYTES as u64).unwrap();
    assert!(bytes == pattern(BYTES), "not the bytes that were sent");
    println!("\nintact");
}

/// Returns how long the threads of a process were ready to run and did not run, if the system counts that.
fn for_a_processor(process: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let waited = |thread: std::fs::DirEntry| {
        let counts = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        counts.split(' ').nth(1)?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(|thread| waited(thread.ok()?)).sum())
}

/// Sends zeros over one connection until it is closed. TCP uses CUBIC (RFC 9438), as on most machines, or
/// else Reno.
fn send_zeros(listener: &TcpListener) {
    let (mut connection, _) = listener.accept().unwrap();
    let be = |kind| set_tcp_congestion(&connection, kind);
    be("cubic").or_else(|_| be("reno")).unwrap();
    while connection.write_all(&[0; 64 << 10]).is_ok() {}
}

/// Counts the zeros that come. Returns when the connection has reached its full speed.
fn receive_zeros() -> Arc<AtomicU64> {
    let mut connection = TcpStream::connect(ZEROS).unwrap();
    std::io::copy(&mut (&connection).take(BEFORE as u64), &mut std::io::sink()).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = connection.read(&mut buffer) {
            counted.fetch_add(len as u64, Ordering::Relaxed);
        }
    });
    count
}

pub fn wait_for(said: &mut BufReader<ChildStdout>, word: &str) {
    let mut heard = String::new();
    for line in said.by_ref().lines() {
        let line = line.unwrap();
        if line == word {
            return;
        }
        heard += &format!("{line}\n");
    }
    panic!("it ended without saying {word:?}:\n{heard}");
}

/// Two namespaces and a cable between them. Dropping this value removes them.
pub struct Net {
    pub server: String,
    pub client: String,
}

impl Net {
    /// Makes the namespaces; `spoil` makes the cable worse.
    pub fn new(name: &str, spoil: fn(&Net) -> Result<(), String>) -> Result<Net, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        for program in ["ip", "nft", "tc"] {
            output(program, &["-V"]).map_err(|_| format!("there is no {program}"))?;
        }
        let [server, client] = ["s", "c"].map(|end| format!("farcall-{name}-{end}-{}", std::process::id()));
        let net = Net { server, client };
        let (server, client) = (net.server.as_str(), net.client.as_str());
        for end in [server, client] {
            output("ip", &["netns", "add", end]).map_err(|why| format!("none can be made ({why})"))?;
        }
        let cable = "link add far type veth peer name far netns";
        let words: Vec<&str> = ["-n", server].into_iter().chain(cable.split(' ')).chain([client]).collect();
        output("ip", &words)?;
        for (end, address) in [(server, "10.77.0.1/24"), (client, "10.77.0.2/24")] {
            output("ip", &["-n", end, "address", "add", address, "dev", "far"])?;
            output("ip", &["-n", end, "link", "set", "far", "up"])?;
        }
        spoil(&net)?;
        Ok(net)
    }

    /// Makes both ends lose a fifth of the arriving packets.
    fn lose_a_fifth(&self) -> Result<(), String> {
        let rules = "add table inet far; \
                     add chain inet far arrival { type filter hook input priority 0; }; \
                     add rule inet far arrival meta l4proto udp numgen random mod 100 < 20 drop";
        for end in [&self.server, &self.client] {
            output("ip", &["netns", "exec", end, "nft", rules])
                .map_err(|why| format!("no losses ({why})"))?;
        }
        Ok(())
    }

    /// Limits what the server sends to 100 Mbit/s, behind a queue of 20 ms.
    fn slow_down(&self) -> Result<(), String> {
        let shape = "qdisc add dev far root tbf rate 100mbit burst 32kb latency 20ms";
        let words: Vec<&str> = ["-n", &self.server].into_iter().chain(shape.split(' ')).collect();
        output("tc", &words).map(drop).map_err(|why| format!("no queue ({why})"))
    }

    /// Gives each end a second address of each family. The client receives nothing from the server's first
    /// addresses, as behind a firewall that lets in only answers from the address that was asked.
    fn have_two_addresses(&self) -> Result<(), String> {
        let ends = [
            (&self.server, ["10.77.0.11/24", "fd77::1/64", "fd77::11/64"]),
            (&self.client, ["10.77.0.12/24", "fd77::2/64", "fd77::12/64"]),
        ];
        for (end, addresses) in ends {
            for address in addresses {
                let mut words = vec!["-n", end, "address", "add", address, "dev", "far"];
                words.extend(address.contains(':').then_some("nodad"));
                output("ip", &words)?;
            }
        }
        let rules = "add table inet far; \
                     add chain inet far arrival { type filter hook input priority 0; }; \
                     add rule inet far arrival ip saddr 10.77.0.1 meta l4proto udp drop; \
                     add rule inet far arrival ip6 saddr fd77::1 meta l4proto udp drop";
        output("ip", &["netns", "exec", &self.client, "nft", rules])
            .map_err(|why| format!("no firewall ({why})"))?;
        Ok(())
    }

    /// Runs this program in a namespace. Returns the process and its output.
    pub fn play(&self, test: &str, role: &str, namespace: &str) -> (Player, BufReader<ChildStdout>) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        (Player(child), said)
    }

    /// Returns the bytes that the server's interface has sent, with all headers.
    fn sent(&self) -> u64 {
        let path = "/sys/class/net/far/statistics/tx_bytes";
        output("ip", &["netns", "exec", &self.server, "cat", path]).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in [&self.server, &self.client] {
            let _ = output("ip", &["netns", "delete", end]);
        }
    }
}

/// A process that is killed when the test ends, even if it fails.
pub struct Player(Child);

impl std::ops::Deref for Player {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Player {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
