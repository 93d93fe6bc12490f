//! A real network: server and client in network namespaces of their own, a fifth of the packets lost each way.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What a copy of this program is to do, if it is one.
const ROLE: &str = "FARCALL_NETNS_ROLE";
const SERVER: &str = "10.77.0.1:7000";
const BYTES: usize = 64 << 20;

#[farcall::interface]
pub trait Source {
    /// The same bytes always, so many of them.
    fn read(&self, bytes: u64) -> farcall::Result<Vec<u8>>;
}

struct Pattern;

impl Source for Pattern {
    fn read(&self, bytes: u64) -> farcall::Result<Vec<u8>> {
        Ok(pattern(bytes as usize))
    }
}

/// No two stretches of it are alike.
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
    let net = match Net::new() {
        Ok(net) => net,
        Err(why) => return common::skip(&format!("calls between network namespaces: {why}")),
    };
    let (mut server, mut said) = net.play("server", &net.server);
    wait_for(&mut said, "ready");
    let before = net.sent();
    let (mut client, mut said) = net.play("client", &net.client);
    wait_for(&mut said, "intact");
    assert!(client.wait().unwrap().success());
    let sent = net.sent() - before;
    let ratio = sent as f64 / BYTES as f64;
    println!("{BYTES} bytes, {sent} sent: {ratio:.3}");
    assert!(ratio <= 1.5, "{ratio:.3} times its bytes were sent");
    drop(server.stdin.take());
    server.wait().unwrap();
}

fn act(role: &str) {
    let builder = farcall::Runtime::builder().address(SERVER.parse().unwrap()).open();
    let runtime = builder.registry(farcall::names::Memory::new()).build().unwrap();
    if role == "server" {
        let _export = runtime.export::<dyn Source>("Source", Arc::new(Pattern)).unwrap();
        println!("\nready");
        // Until our parent closes it.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    // It is the call's own deadline that says how long it may take.
    let source = runtime.import::<dyn Source>(&format!("udp://{SERVER}/Source")).unwrap();
    let bytes = source.within(Duration::from_secs(60)).read(BYTES as u64).unwrap();
    assert!(bytes == pattern(BYTES), "not the bytes that were sent");
    println!("\nintact");
}

fn wait_for(said: &mut BufReader<ChildStdout>, word: &str) {
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

/// Two namespaces, a cable between them, and packets that get lost on arrival. Gone when it is dropped.
struct Net {
    server: String,
    client: String,
}

impl Net {
    fn new() -> Result<Net, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        for program in ["ip", "nft"] {
            output(program, &["-V"]).map_err(|_| format!("there is no {program}"))?;
        }
        let [server, client] = ["s", "c"].map(|end| format!("farcall-{end}-{}", std::process::id()));
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
            let rules = "add table inet far; \
                         add chain inet far arrival { type filter hook input priority 0; }; \
                         add rule inet far arrival meta l4proto udp numgen random mod 100 < 20 drop";
            output("ip", &["netns", "exec", end, "nft", rules]).map_err(|why| format!("no losses ({why})"))?;
        }
        Ok(net)
    }

    /// This program in a namespace, and what it says.
    fn play(&self, role: &str, namespace: &str) -> (Player, BufReader<ChildStdout>) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(env::current_exe().unwrap());
        command.args(["--exact", "a_long_result_arrives_whole_through_the_loss_of_a_fifth", "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        (Player(child), said)
    }

    /// Bytes that the server's interface has sent, with all headers.
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

/// Not left behind when the test fails.
struct Player(Child);

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

/// What a program prints, if it succeeds; else its complaint.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        return Err(format!("{program}: {}", text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}
