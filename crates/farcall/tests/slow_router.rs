//! Behind a slow router that drops what its queue has no room for, a group call sends little again
//! (Satyanarayanan & Siegel 1990, section VI-B3). Client, members and router have a network namespace each.
//! Needs root, `unshare`, `nsenter`, `ip`, `sysctl` and `tc`; otherwise the test says that it is skipped.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/commands.rs"]
mod commands;
#[path = "common/other.rs"]
mod other;

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::output;
use farcall::names::Memory;
use farcall::{Builder, Runtime};
use other::{Other, ROLE, URL};

#[farcall::interface]
trait Member {
    /// Sleeps for two milliseconds.
    #[blocking]
    fn work(&self) -> farcall::Result<()>;
}

struct Server;

impl Member for Server {
    fn work(&self) -> farcall::Result<()> {
        // The procedure's own time, as a disk would take it. The test waits for nothing by this.
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }
}

/// The networks on both sides of the router, without the last number. The router is 254 in both.
const NETWORKS: [&str; 2] = ["10.85.0", "10.85.1"];
/// The port of the first member. The others follow.
const FIRST_PORT: usize = 7000;
/// A packet takes the router 0.8 ms, however long it is, and 25 are queued: so the replies of a hundred
/// members take four times as long as the shortest time after which a call is sent again.
const ROUTER: &str = "stab mpu 1514 linklayer ethernet root tbf rate 15140000bit burst 1600 limit 37850";

/// How many calls of all members are made.
const CALLS: u64 = 5;

/// The largest share of what the client sends that it sends again, in percent, by the paper.
const MOST_AGAIN: u64 = 25;

#[test]
fn behind_a_slow_router_at_most_a_quarter_is_sent_again() {
    for members in [100, 400] {
        let (again, sent) = match measure(members) {
            Ok(counts) => counts,
            Err(why) => {
                // Not `eprintln`, whose output is shown only for failing tests.
                let _ = writeln!(std::io::stderr(), "skipped: a router in a network namespace: {why}");
                return;
            }
        };
        println!("{members} members: of {sent} datagrams {again} were sent again");
        assert!(again * 100 <= sent * MOST_AGAIN, "{members} members: {again} of {sent} were sent again");
    }
}

/// Returns how many datagrams the client sent again, and how many it sent.
fn measure(members: usize) -> Result<(u64, u64), String> {
    for program in ["unshare", "nsenter", "ip", "tc"] {
        output(program, &["-V"]).map_err(|_| format!("there is no {program}"))?;
    }
    output("unshare", &["--net", "true"]).map_err(|why| format!("no namespace can be made ({why})"))?;
    let start = |role: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--"]).arg(env::current_exe().unwrap());
        let mut process = Other::start_by(command, module_path!(), role, &members.to_string());
        process.hear("waits");
        process
    };
    let [mut server, mut client] = ["server", "client"].map(start);
    let _router = Router::between(&server, &client)?;
    server.tell();
    server.hear("serves");
    client.tell();
    let counts: Vec<u64> = client.hear("sent").split(' ').map(|count| count.parse().unwrap()).collect();
    println!("{members} members: all at once took {} µs, one by one {} µs", counts[2], counts[3]);
    Ok((counts[0], counts[1]))
}

/// A namespace that forwards packets. It vanishes when this is dropped.
struct Router(Child);

impl Router {
    fn between(server: &Other, client: &Other) -> Result<Router, String> {
        // This program keeps the namespace until its standard input ends.
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut router = Router(command.spawn().map_err(|why| why.to_string())?);
        // It is in its namespace once it answers.
        router.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut answer = [0];
        router.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        let between = router.0.id();
        for (end, process, network) in [("server", server, NETWORKS[0]), ("client", client, NETWORKS[1])] {
            let process = process.id();
            inside(between, &format!("ip link add {end} type veth peer name router netns {process}"))?;
            inside(between, &format!("ip address add {network}.254/24 dev {end}"))?;
            inside(between, &format!("ip link set {end} up"))?;
            inside(process, &format!("ip address add {network}.1/24 dev router"))?;
            inside(process, "ip link set router up")?;
            inside(process, &format!("ip route add default via {network}.254"))?;
        }
        inside(between, "sysctl -w net.ipv4.ip_forward=1")?;
        inside(between, &format!("tc qdisc add dev client {ROUTER}"))?;
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

/// Runs a command in the network namespace of a process.
fn inside(process: u32, command: &str) -> Result<(), String> {
    let target = format!("--target={process}");
    let words: Vec<&str> = ["--net", &target, "--"].into_iter().chain(command.split(' ')).collect();
    output("nsenter", &words).map(drop)
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = env::var(ROLE) else { return };
    let members: usize = env::var(URL).unwrap().parse().unwrap();
    println!("waits");
    let mut lines = BufReader::new(std::io::stdin()).lines();
    lines.next();
    if role == "client" {
        return call(members);
    }
    let at = |member: usize| format!("{}.1:{}", NETWORKS[0], FIRST_PORT + member);
    let runtimes: Vec<Runtime> =
        (0..members).map(|member| builder().address(at(member).parse().unwrap()).build().unwrap()).collect();
    let export = |runtime: &Runtime| runtime.export::<dyn Member>("Member", Arc::new(Server)).unwrap();
    let _exports: Vec<_> = runtimes.iter().map(export).collect();
    println!("serves");
    lines.next();
}

fn builder() -> Builder {
    Runtime::builder().registry(Memory::new()).shared_memory(false).workers(1).open()
}

/// Calls all members at once, a few times, and then one by one.
fn call(members: usize) {
    let client = builder().build().unwrap();
    let url = |member: usize| format!("udp://{}.1:{}/Member", NETWORKS[0], FIRST_PORT + member);
    let urls: Vec<String> = (0..members).map(url).collect();
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    let group = client.import_each::<dyn Member>(&urls).unwrap();
    let one_by_one = || group.stubs().for_each(|(_, member)| member.work().unwrap());
    one_by_one();
    let counts = || {
        let of = |peer: &farcall::stats::Peer| {
            let stats = &peer.conversation;
            (stats.retransmitted + stats.probes, stats.sent)
        };
        client.stats().peers.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let (before, begun) = (counts(), Instant::now());
    for _ in 0..CALLS {
        assert_eq!(group.multi().work().all().results().count(), members);
    }
    let (after, at_once) = (counts(), begun.elapsed().as_micros() / u128::from(CALLS));
    let begun = Instant::now();
    one_by_one();
    let one_by_one = begun.elapsed().as_micros();
    println!("sent {} {} {at_once} {one_by_one}", after.0 - before.0, after.1 - before.1);
}
