//! Programs that we did not write: C made by rpcgen with libtirpc, rpcbind, rpcinfo.

#![cfg(target_os = "linux")]

mod calc;
mod calling;
mod namespace;

use std::process::Command;

use farcall_onc::Server;
use farcall_onc::rpcbind::{self, Mapper};

use namespace::Running;

/// The C programs, or a word on why the test is skipped.
fn programs(what: &str) -> Option<&'static std::path::Path> {
    calc::programs().inspect_err(|why| calc::skip(&format!("{what}: {why}"))).ok()
}

#[test]
fn a_client_made_by_rpcgen_calls_our_server() {
    let Some(programs) = programs("a client made by rpcgen") else { return };
    let server = calc::serve(|builder| builder);
    for (transport, address) in [("udp", server.udp()), ("tcp", server.tcp())] {
        let port = address.unwrap().port().to_string();
        let mut check = Command::new(programs.join("check"));
        let said = calc::run(check.args([transport, "127.0.0.1", &port])).unwrap();
        assert_eq!(said, "all is well\n", "over {transport}");
        calc::shown("libtirpc, rpcgen -C -N", transport, "it calls");
    }
}

/// Whether this is the run of `test` in a network of its own.
fn is_inside(test: &str) -> bool {
    match namespace::enter(test) {
        Ok(inside) => inside,
        Err(why) => {
            calc::skip(&format!("{test}: {why}"));
            false
        }
    }
}

#[test]
fn our_port_mapper_serves_programs_in_c() {
    let Some(programs) = programs("our port mapper and programs in C") else { return };
    if !is_inside("our_port_mapper_serves_programs_in_c") {
        return;
    }
    let mapper = Mapper::default();
    let all = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap());
    let _mapping = all.address("[::]:111".parse().unwrap()).unix(rpcbind::SOCKET).start().unwrap();
    let check = |transport| calc::run(Command::new(programs.join("check")).args([transport, "127.0.0.1", "0"]));
    // A program in C registers, another finds it.
    let theirs = Running::start(Command::new(programs.join("serve")).arg("register"));
    for transport in ["udp", "tcp"] {
        assert_eq!(check(transport).as_deref(), Ok("all is well\n"));
        calc::shown("libtirpc, through our port mapper", transport, "calls libtirpc");
    }
    assert!(mapper.entries().iter().any(|entry| entry.program == 0x2000_0088 && entry.netid == "tcp"));
    drop(theirs);
    assert!(!mapper.entries().iter().any(|entry| entry.program == 0x2000_0088), "{:?}", mapper.entries());
    // One of ours registers, a program in C finds it.
    let ours = calc::serve(|builder| builder.register_at(&mapper));
    for transport in ["udp", "tcp"] {
        assert_eq!(check(transport).as_deref(), Ok("all is well\n"));
        calc::shown("libtirpc, through our port mapper", transport, "it calls");
    }
    rpcinfo();
    nmap();
    drop(ours);
    assert!(check("tcp").unwrap_err().contains("Program not registered"));
}

/// `rpcinfo` understands what the port mapper says, in each version.
fn rpcinfo() {
    let ask = |arguments: &[&str]| calc::run(Command::new("rpcinfo").args(arguments));
    let Ok(version_2) = ask(&["-p", "127.0.0.1"]) else { return calc::skip("rpcinfo: it cannot be run") };
    let lines = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(Into::into).collect()).collect()
    };
    let has = |text: &str, wanted: &[&str]| {
        lines(text).iter().any(|line| wanted.iter().all(|word| line.iter().any(|w| w == word)))
    };
    for wanted in [["100000", "2", "tcp", "111"], ["100000", "4", "udp", "111"], ["536871048", "3", "udp", ""]] {
        let wanted: Vec<_> = wanted.into_iter().filter(|word| !word.is_empty()).collect();
        assert!(has(&version_2, &wanted), "{wanted:?} in\n{version_2}");
    }
    let newest = ask(&["127.0.0.1"]).unwrap();
    assert!(has(&newest, &["100000", "4", "tcp", "0.0.0.0.0.111", "superuser"]), "{newest}");
    let short = ask(&["-s", "127.0.0.1"]).unwrap();
    assert!(has(&short, &["100000", "superuser"]), "{short}");
    for transport in ["udp", "tcp"] {
        let ready = ask(&["-T", transport, "127.0.0.1", "536871048", "3"]).unwrap();
        assert!(ready.contains("ready and waiting"), "{ready}");
        let addresses = ask(&["-l", "-T", transport, "127.0.0.1", "536871048", "3"]).unwrap_or_default();
        assert!(addresses.is_empty() || addresses.contains("127.0.0.1"), "{addresses}");
        let mapper = ask(&["-T", transport, "127.0.0.1", "100000", "4"]).unwrap();
        assert!(mapper.contains("ready and waiting"), "{mapper}");
        calc::shown("rpcinfo", transport, "it calls");
    }
}

/// So does nmap, whose client is its own.
fn nmap() {
    let arguments = ["-n", "-Pn", "-p", "111", "--script", "rpcinfo", "127.0.0.1"];
    let Ok(said) = calc::run(Command::new("nmap").args(arguments)) else { return calc::skip("nmap: it cannot be run") };
    assert!(said.contains("100000  2,3,4") && said.contains("536871048"), "{said}");
    calc::shown("nmap's rpcinfo", "tcp", "it calls");
}
