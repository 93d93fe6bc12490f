//! Tests with existing programs, over UDP and TCP, IPv4 and IPv6, in which farcall is the client or the
//! server. table.txt says what must be shown for each program.

#![cfg(target_os = "linux")]

mod calc;
mod calling;
mod hosts;
mod instruments;
mod language;
mod languages;
mod namespace;
mod programs;

use std::process::Command;

use farcall_onc::Server;
use farcall_onc::rpcbind::{self, Mapper};

use programs::{NETWORKS, Running, networks, port, run, shown, skip};

#[test]
fn clients_made_by_rpcgen_call_our_servers() {
    let Some(programs) = programs::in_c("clients made by rpcgen") else { return };
    let (calc, language) = (calc::serve(|builder| builder), language::serve());
    for (network, host) in networks() {
        let check = |name, server| {
            let mut check = Command::new(programs.join(name));
            assert_eq!(
                run(check.args([network, host, &port(server, network)])).as_deref(),
                Ok("all is well\n"),
                "{network}"
            );
        };
        check("calc_check", &calc);
        shown("libtirpc, rpcgen -C -N", network, "serve");
        check("language_check", &language);
        shown("libtirpc, the whole language", network, "serve");
    }
}

/// Returns whether this is the run of `test` in a network namespace of its own.
fn is_inside(test: &str) -> bool {
    match namespace::enter(test) {
        Ok(inside) => inside,
        Err(why) => {
            skip(&format!("{test}: {why}"));
            false
        }
    }
}

#[test]
fn our_port_mapper_serves_programs_in_c() {
    let Some(programs) = programs::in_c("our port mapper and programs in C") else { return };
    if !is_inside("our_port_mapper_serves_programs_in_c") {
        return;
    }
    let mapper = Mapper::default();
    let _mapping = Server::builder().host_mapper(&mapper).start().unwrap();
    let check = |network, host| run(Command::new(programs.join("calc_check")).args([network, host, "0"]));
    // A program in C registers, and another program in C finds it.
    let theirs = Running::start(Command::new(programs.join("calc_serve")).arg("register"));
    for (network, host) in NETWORKS {
        assert_eq!(check(network, host).as_deref(), Ok("all is well\n"), "{network}");
        shown("libtirpc, registering at our port mapper", network, "serve");
    }
    // Only over a Unix socket does the mapper know the user who registers.
    let is_theirs = |entry: &rpcbind::protocol::Rpcb| entry.program == 0x2000_0088 && entry.netid == "tcp";
    assert!(mapper.entries().iter().any(|entry| is_theirs(entry) && entry.owner == "superuser"));
    shown("libtirpc, registering at our port mapper", "unix", "serve");
    drop(theirs);
    assert!(!mapper.entries().iter().any(|entry| entry.program == 0x2000_0088), "{:?}", mapper.entries());
    // A farcall server registers, and a program in C finds it.
    let ours = calc::serve(|builder| builder.register_at(&mapper));
    for (network, host) in NETWORKS {
        assert_eq!(check(network, host).as_deref(), Ok("all is well\n"), "{network}");
        shown("libtirpc, through our port mapper", network, "serve");
    }
    rpcinfo();
    nmap();
    drop(ours);
    assert!(check("tcp", "127.0.0.1").unwrap_err().contains("Program not registered"));
}

/// `clnt_broadcast` of C calls with AUTH_SYS credentials, to the broadcast addresses of all interfaces.
#[test]
fn a_broadcast_of_c_is_answered_through_our_port_mapper() {
    let Some(programs) = programs::in_c("broadcasts of C") else { return };
    if !is_inside("a_broadcast_of_c_is_answered_through_our_port_mapper") {
        return;
    }
    let ip = |arguments: &str| run(Command::new("ip").args(arguments.split_whitespace()));
    // An interface that broadcasts; nobody else is on its network.
    let made = ip("link add lan type bridge")
        .and_then(|_| ip("address add 10.99.0.1/24 broadcast 10.99.0.255 dev lan"))
        .and_then(|_| ip("link set lan up"));
    if let Err(why) = made {
        return skip(&format!("broadcasts of C: no interface: {why}"));
    }
    let mapper = Mapper::default().forwarding();
    let calc = calc::serve(|builder| builder.register_at(&mapper));
    let _mapping = Server::builder().host_mapper(&mapper).start().unwrap();
    let broadcast = || run(Command::new(programs.join("broadcast")).args(["0x20000088", "3"]));
    assert_eq!(broadcast().as_deref(), Ok("10.99.0.1\n"));
    shown("libtirpc, a broadcast through our port mapper", "udp", "serve");
    drop(calc);
}

/// Checks that `rpcinfo` understands farcall's port mapper, in each version.
fn rpcinfo() {
    let ask = |arguments: &[&str]| run(Command::new("rpcinfo").args(arguments));
    let Ok(version_2) = ask(&["-p", "127.0.0.1"]) else { return skip("rpcinfo: it cannot be run") };
    let lines = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(Into::into).collect()).collect()
    };
    let has = |text: &str, wanted: &[&str]| {
        lines(text).iter().any(|line| wanted.iter().all(|word| line.iter().any(|w| w == word)))
    };
    for wanted in
        [["100000", "2", "tcp", "111"], ["100000", "4", "udp", "111"], ["536871048", "3", "udp", ""]]
    {
        let wanted: Vec<_> = wanted.into_iter().filter(|word| !word.is_empty()).collect();
        assert!(has(&version_2, &wanted), "{wanted:?} in\n{version_2}");
    }
    let newest = ask(&["127.0.0.1"]).unwrap();
    assert!(has(&newest, &["100000", "4", "tcp", "0.0.0.0.0.111", "superuser"]), "{newest}");
    let short = ask(&["-s", "127.0.0.1"]).unwrap();
    assert!(has(&short, &["100000", "superuser"]), "{short}");
    for (network, host) in NETWORKS {
        for (program, version) in [("536871048", "3"), ("100000", "4")] {
            let ready = ask(&["-T", network, host, program, version]).unwrap();
            assert!(ready.contains("ready and waiting"), "{ready}");
        }
        let addresses = ask(&["-l", host, "536871048", "3"]).unwrap();
        let family = if network.ends_with('6') { "inet6" } else { "inet" };
        let way = format!("{family}/{}/", network.trim_end_matches('6'));
        assert!(addresses.contains("536871048") && addresses.contains(&way), "{addresses}");
        shown("rpcinfo", network, "serve");
    }
}

/// Checks that nmap, which has a client of its own, understands farcall's port mapper.
fn nmap() {
    for (network, arguments) in [
        ("tcp", &["-p", "111", "127.0.0.1"][..]),
        ("udp", &["-sU", "-p", "U:111", "127.0.0.1"]),
        ("tcp6", &["-6", "-p", "111", "::1"]),
        ("udp6", &["-6", "-sU", "-p", "U:111", "::1"]),
    ] {
        let Ok(said) = run(Command::new("nmap").args(["-n", "-Pn", "--script", "rpcinfo"]).args(arguments))
        else {
            return skip("nmap: it cannot be run");
        };
        assert!(said.contains("100000  2,3,4") && said.contains("536871048"), "{said}");
        shown("nmap: rpcinfo", network, "serve");
    }
}
