//! Two network namespaces with a cable or a router between them.
//!
//! The namespaces have no names: they are those of two processes, and vanish with them, however this program
//! ends. The cable vanishes with the namespaces.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{Answer, Process};

/// The server's address in its namespace.
pub const SERVER: &str = "10.83.0.1";
/// The client's address in its namespace.
pub const CLIENT: &str = "10.83.0.2";

/// The networks on both sides of a router, without the last number. The router is 254 in both.
const SERVER_NETWORK: &str = "10.83.0";
const ROUTED_NETWORK: &str = "10.83.1";

/// The bytes of a full packet on a cable.
const PACKET_BYTES: usize = 1514;

/// How long each end's cable may queue what is sent, in bytes: more than a socket's send buffer. So a sender
/// waits for the cable, and the cable loses nothing.
const QUEUE_BYTES: &str = "16mb";

/// Starts `program` in a network namespace of its own.
///
/// # Errors
/// This process may not make a namespace, or the program does not start.
pub fn start<A: Answer>(program: &Path, words: &[String]) -> Result<Process<A>> {
    probe()?;
    let mut all = vec!["--net".to_owned(), "--".to_owned(), program.display().to_string()];
    all.extend_from_slice(words);
    Process::start("unshare".as_ref(), &all)
}

/// Lays a cable between the namespaces of two processes, the server's and the client's. It carries what the
/// kernel can, or this rate (as `tc` writes it: `3mbit`) each way.
///
/// # Errors
/// `nsenter`, `ip` or `tc` is missing or fails.
pub fn connect((server, client): (u32, u32), rate: Option<&str>) -> Result<()> {
    inside(server, &format!("ip link add far type veth peer name far netns {client}"))?;
    for (end, address) in [(server, SERVER), (client, CLIENT)] {
        inside(end, &format!("ip address add {address}/24 dev far"))?;
        inside(end, "ip link set lo up")?;
        inside(end, "ip link set far up")?;
        // The burst is one packet, as on a wire that has no memory.
        if let Some(rate) = rate {
            let shape = format!("tbf rate {rate} burst 1600 limit {QUEUE_BYTES}");
            inside(end, &format!("tc qdisc add dev far root {shape}"))?;
        }
    }
    Ok(())
}

/// Moves a device of this namespace into that of a process, under the name `far`, and brings it up there with
/// this address. The device carries packets of at most 1,500 bytes. Its queue is so long that only the program
/// that reads from the device drops packets. TCP in that namespace forgets what earlier connections learned of
/// the path.
///
/// # Errors
/// `nsenter`, `ip` or `sysctl` is missing or fails.
pub fn adopt(process: u32, device: &str, address: &str) -> Result<()> {
    let target = process.to_string();
    let words = ["link", "set", device, "netns", &target, "name", "far"];
    let output = Command::new("ip").args(words).output().context("ip does not run")?;
    ensure!(output.status.success(), "{device}: {}", String::from_utf8_lossy(&output.stderr).trim());
    inside(process, "sysctl -q -w net.ipv4.tcp_no_metrics_save=1 net.ipv6.conf.all.disable_ipv6=1")?;
    inside(process, &format!("ip address add {address}/24 dev far"))?;
    inside(process, "ip link set lo up")?;
    inside(process, "ip link set far mtu 1500 txqueuelen 10000 up")
}

/// A router. It vanishes when this is dropped.
#[derive(Debug)]
pub struct Router(Child);

/// Lays cables from the namespaces of two processes, the server's and the client's, to a router in a
/// namespace of its own, so that no sender learns which packets are lost. The router forwards a packet to the
/// client each time that `each` has passed, however long the packet is. It queues this many packets for the
/// client, and drops those for which there is no room. It forwards what the client sends at once.
///
/// # Errors
/// This process may not make a namespace, or `nsenter`, `ip`, `sysctl` or `tc` is missing or fails.
pub fn route((server, client): (u32, u32), each: Duration, queue: usize) -> Result<Router> {
    let router = Router::start()?;
    let between = router.0.id();
    // The interfaces have the name of the end to which they lead.
    for (end, process, network) in [("server", server, SERVER_NETWORK), ("client", client, ROUTED_NETWORK)] {
        inside(between, &format!("ip link add {end} type veth peer name router netns {process}"))?;
        inside(between, &format!("ip address add {network}.254/24 dev {end}"))?;
        inside(between, &format!("ip link set {end} up"))?;
    }
    for (process, address, gateway) in
        [(server, SERVER.to_owned(), SERVER_NETWORK), (client, format!("{ROUTED_NETWORK}.2"), ROUTED_NETWORK)]
    {
        inside(process, &format!("ip address add {address}/24 dev router"))?;
        inside(process, "ip link set lo up")?;
        inside(process, "ip link set router up")?;
        inside(process, &format!("ip route add default via {gateway}.254"))?;
    }
    inside(between, "sysctl -w net.ipv4.ip_forward=1")?;
    // The size table lets each packet count as one of full length. The burst is one packet.
    let rate = (PACKET_BYTES as f64 * 8.0 / each.as_secs_f64()) as u64;
    let table = format!("stab mpu {PACKET_BYTES} linklayer ethernet");
    let shape = format!("tbf rate {rate}bit burst 1600 limit {}", queue * PACKET_BYTES);
    inside(between, &format!("tc qdisc add dev client {table} root {shape}"))?;
    Ok(router)
}

impl Router {
    fn start() -> Result<Router> {
        probe()?;
        // This program keeps the namespace until its standard input ends.
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut router = Router(command.spawn().context("unshare does not run")?);
        // It is in its namespace once it answers.
        let input = router.0.stdin.as_mut().context("no pipe")?;
        input.write_all(b"\n").context("the router is gone")?;
        let mut output = BufReader::new(router.0.stdout.take().context("no pipe")?);
        ensure!(output.read_line(&mut String::new())? > 0, "the router's namespace has no process");
        Ok(router)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that this process may make a namespace.
fn probe() -> Result<()> {
    let probe = Command::new("unshare").args(["--net", "true"]).output().context("unshare does not run")?;
    let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
    ensure!(probe.status.success(), "a network namespace needs root: {why}");
    Ok(())
}

/// Runs a command in the network namespace of a process.
fn inside(process: u32, command: &str) -> Result<()> {
    let mut words = vec!["--net".to_owned(), format!("--target={process}"), "--".to_owned()];
    words.extend(command.split(' ').map(str::to_owned));
    let output = Command::new("nsenter").args(words).output().context("nsenter does not run")?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
