//! Why a server is silent, as far as the system and the network say so: a firewall, a narrow path, no route,
//! no host, no program. Each is told apart in the failure of a call.

use std::env;
use std::io::{BufRead as _, Read as _};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::Memory;

use crate::commands::output;
use crate::common;
use crate::network_namespaces::{Net, ROLE, wait_for};

#[farcall::interface]
trait Store {
    fn put(&self, data: &[u8]) -> farcall::Result<u32>;
}

struct Length;

impl Store for Length {
    fn put(&self, data: &[u8]) -> farcall::Result<u32> {
        Ok(data.len() as u32)
    }
}

const NAME: &str = "obstacles::a_failed_call_says_what_the_system_knows_of_the_servers_silence";

const REFUSED: &str = "no program receives at that port";

#[test]
fn a_failed_call_says_what_the_system_knows_of_the_servers_silence() {
    match env::var(ROLE) {
        Ok(role) if role == "server" => return serve(),
        Ok(role) if role == "bound" => return call_again("10.77.0.1:7000"),
        Ok(role) => return call(&role),
        Err(_) => {}
    }
    let net = match Net::new("obst", |_| Ok(())) {
        Ok(net) => net,
        Err(why) => return common::skip(&format!("obstacles between network namespaces: {why}")),
    };
    let (_server, mut said) = net.play(NAME, "server", &net.server);
    wait_for(&mut said, "ready");
    let fails = |to: &str| {
        let (mut client, mut said) = net.play(NAME, to, &net.client);
        wait_for(&mut said, "failed");
        let lines = said.by_ref().lines().take(3).map(Result::unwrap).collect::<Vec<_>>();
        assert!(client.wait().unwrap().success());
        <[String; 3]>::try_from(lines).unwrap()
    };
    let all_say = |to: &str, why: &str| {
        let [patient, hurried, started] = fails(to);
        assert!(patient.contains("the server does not answer") && patient.contains(why), "{to}: {patient}");
        // Reports that the port is refused end a call before its deadline.
        let is_refused = why == REFUSED;
        let end = if is_refused { "the server does not answer" } else { "the deadline passed" };
        assert!(hurried.contains(end) && hurried.contains(why), "{to}: {hurried}");
        assert!(started.contains(end) && started.contains(why), "{to}: {started}");
    };
    let client = |program: &str, words: &str| {
        let words = ["netns", "exec", &net.client, program].into_iter().chain(words.split(' '));
        output("ip", &words.collect::<Vec<_>>()).unwrap()
    };
    let server = |program: &str, words: &str| {
        let words = ["netns", "exec", &net.server, program].into_iter().chain(words.split(' '));
        output("ip", &words.collect::<Vec<_>>()).unwrap()
    };

    // The first client would use up the reports that the server's host sends in a second.
    server("sysctl", "-q -w net.ipv4.icmp_ratelimit=0");
    assert_eq!(fails("10.77.0.1:7000")[0], "no failure");
    all_say("10.77.0.1:7001", REFUSED);
    all_say("192.0.2.1:7000", "there is no route to its network");
    // As a router says, or this system when nobody answers to ARP.
    client("ip", "route add unreachable 192.0.2.9");
    all_say("192.0.2.9:7000", "its host is not there");

    client(
        "nft",
        "add table inet far; add chain inet far o { type filter hook output priority 0; }; \
         add rule inet far o udp dport 7000 drop",
    );
    all_say("10.77.0.1:7000", "this machine's system does not permit sending there");
    client("nft", "delete table inet far");

    // The server's host lets nothing in, and says so; and says nothing.
    let silence = "add table inet far; add chain inet far i { type filter hook input priority 0; }; \
                   add rule inet far i udp dport 7000 drop";
    server("nft", &silence.replace("drop", "reject with icmp type admin-prohibited"));
    all_say("10.77.0.1:7000", "a filter refuses datagrams");
    server("nft", "delete table inet far");
    server("nft", silence);
    let silent = fails("10.77.0.1:7000");
    for unknown in ["program", "route", "host is", "permit", "path"] {
        assert!(silent.iter().all(|said| !said.contains(unknown)), "{silent:?}");
    }
    server("nft", "delete table inet far");

    // Nor does a client know more that has called before, and whose longer datagrams this system refuses.
    let silent = said_by_bound(&net, || drop(server("nft", silence)));
    assert!(silent.contains("the server does not answer") && !silent.contains("path"), "{silent}");
    server("nft", "delete table inet far");

    becomes_narrow(&net, &client, &server, &all_say);
}

/// The path becomes narrow behind a router, and then at this host.
fn becomes_narrow(
    net: &Net,
    client: &dyn Fn(&str, &str) -> String,
    server: &dyn Fn(&str, &str) -> String,
    all_say: &dyn Fn(&str, &str),
) {
    server("ip", "link add narrow type veth peer name beyond");
    server("ip", "link set beyond up");
    server("ip", "link set narrow mtu 1100 up");
    server("ip", "address add 10.78.0.1/24 dev narrow");
    server("sysctl", "-q -w net.ipv4.ip_forward=1");
    client("ip", "route add 10.78.0.0/24 via 10.77.0.1");
    all_say("10.78.0.9:7000", "no datagrams of 1200 bytes, but of 1072 at most");
    // Short datagrams still pass, so the server answers what a client asks that has called before.
    let narrow = said_by_bound(net, || drop(client("ip", "link set far mtu 1100")));
    let why = "the path takes no datagrams of 1200 bytes";
    assert!(narrow.contains("the server does not answer") && narrow.contains(why), "{narrow}");
    all_say("10.77.0.1:7000", why);
}

/// Returns what a client says of a call that has called before the server became silent.
fn said_by_bound(net: &Net, silence: impl FnOnce()) -> String {
    let (mut bound, mut said) = net.play(NAME, "bound", &net.client);
    wait_for(&mut said, "bound");
    silence();
    drop(bound.stdin.take());
    wait_for(&mut said, "failed");
    let failed = said.by_ref().lines().next().unwrap().unwrap();
    assert!(bound.wait().unwrap().success());
    failed
}

fn serve() {
    let builder =
        Runtime::builder().address("10.77.0.1:7000".parse().unwrap()).open().registry(Memory::new());
    let runtime = builder.build().unwrap();
    let _export = runtime.export::<dyn Store>("Store/main", Arc::new(Length)).unwrap();
    println!("\nready");
    // This waits until the parent process closes the pipe.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Says how a call fails: without a deadline, with one, and started with one.
fn call(to: &str) {
    let runtime =
        || Runtime::builder().registry(Memory::new()).patience(Duration::from_secs(2)).build().unwrap();
    let name = format!("udp://{to}/Store");
    // More than one datagram takes.
    let data = vec![7; 5_000];
    let patient = runtime().import::<dyn Store>(&name).and_then(|store| store.put(&data));
    let within = Duration::from_secs(1);
    let hurried =
        runtime().import_within::<dyn Store>(&name, within).and_then(|store| store.within(within).put(&data));
    let runtime = runtime();
    let unbound = runtime.import_each::<dyn Store>(&[&name]).unwrap();
    let started = unbound.stubs().next().unwrap().1.within(within).start().put(&data).wait();
    println!("\nfailed");
    for ended in [patient, hurried, started] {
        match ended {
            Ok(_) => println!("no failure"),
            Err(why) => println!("{why}"),
        }
    }
}

/// Calls, and says how a call fails after standard input has ended.
fn call_again(to: &str) {
    let runtime =
        Runtime::builder().registry(Memory::new()).patience(Duration::from_secs(2)).build().unwrap();
    let store = runtime.import::<dyn Store>(&format!("udp://{to}/Store")).unwrap();
    store.put(&[7]).unwrap();
    println!("\nbound");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // More than one datagram takes.
    let failed = store.put(&[7; 5_000]).unwrap_err();
    println!("\nfailed\n{failed}");
}
