//! Farcall's client calls programs in C made by rpcgen, and rpcbind.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use farcall::multi::Next;
use farcall::{Kind, Ran};
use farcall_onc::rpcbind::{Broadcast, Heard, Rpcbind};
use farcall_onc::{AuthSys, Client};

use crate::calc::{self, Calc, CalcClient};
use crate::hosts::rpcbind;
use crate::programs::{self, NETWORKS, Running, networks, run, shown};
use crate::{is_inside, language};

#[test]
fn our_client_calls_servers_made_by_rpcgen() {
    let Some(programs) = programs::in_c("servers made by rpcgen") else { return };
    let calc_serve = Running::start(&mut Command::new(programs.join("calc_serve")));
    let language_serve = Running::start(&mut Command::new(programs.join("language_serve")));
    for (at, (network, _)) in networks().enumerate() {
        let connect = |running: &Running| {
            let address = programs::address(network, running.ports()[at]);
            Client::builder().auth(AuthSys::of_process()).connect(&address).unwrap()
        };
        let client = connect(&calc_serve);
        calc::check(&client.bind::<dyn Calc>());
        refusals(&client);
        shown("libtirpc, rpcgen -C -N", network, "call");
        language::check(&connect(&language_serve), network.starts_with("tcp"));
        shown("libtirpc, the whole language", network, "call");
    }
}

/// Checks how libtirpc refuses unknown programs, versions and procedures.
fn refusals(client: &Client) {
    let kind = |calc: CalcClient| {
        let why: farcall::CallFailed = calc.nothing().unwrap_err().into();
        assert_eq!(why.ran(), Ran::No, "{why}");
        (why.kind(), why.detail().to_string())
    };
    assert_eq!(kind(client.bind_as::<dyn Calc>(0x2000_0089, 3)).0, Kind::NotExported);
    let (mismatch, why) = kind(client.bind_as::<dyn Calc>(0x2000_0088, 9));
    assert!(mismatch == Kind::Mismatch && why.contains("has version 3 of"), "{why}");
}

#[test]
fn rpcbind_is_asked_and_told_in_each_version() {
    if !is_inside("calling::rpcbind_is_asked_and_told_in_each_version") {
        return;
    }
    let Some((_daemon, over_tcp)) = rpcbind() else { return };
    let at_address = |network| Rpcbind::at(&Client::builder(), &programs::address(network, "111")).unwrap();
    let all = [
        (over_tcp, "tcp"),
        (at_address("udp"), "udp"),
        (at_address("tcp6"), "tcp6"),
        (at_address("udp6"), "udp6"),
        (Rpcbind::local().unwrap(), "unix"),
    ];
    let program = 0x2000_0099;
    for newest in [4, 3, 2] {
        for (rpcbind, network) in &all {
            if newest == 2 && !["udp", "tcp"].contains(network) {
                // This version knows only ports of IPv4.
                continue;
            }
            let rpcbind = rpcbind.clone().limited_to(newest);
            // Version 2 of rpcbind itself can be found only over IPv4.
            let (itself, netid, at) = match network.ends_with('6') {
                true => (4, "tcp6", "[::1]:4321"),
                false => (2, "tcp", "127.0.0.1:4321"),
            };
            let at: SocketAddr = at.parse().unwrap();
            assert_eq!(rpcbind.find(100_000, itself, true).unwrap().map(|at| at.port()), Some(111));
            assert_eq!(rpcbind.find(100_000, itself, false).unwrap().map(|at| at.port()), Some(111));
            let entries = rpcbind.entries().unwrap();
            assert!(
                entries.iter().any(|entry| entry.program == 100_000 && entry.netid == netid),
                "{entries:?}"
            );
            // A program that is registered only over TCP is found over every network.
            let registration = rpcbind.register(program, 1, &[(true, at)]).unwrap();
            assert_eq!(rpcbind.find(program, 1, true).unwrap(), Some(at));
            assert_eq!(rpcbind.find(program, 1, false).unwrap(), None);
            let addresses = rpcbind.addresses(program, 1).unwrap();
            assert_eq!(addresses.len(), 1, "{addresses:?}");
            assert_eq!((&addresses[0].netid[..], addresses[0].semantics), (netid, 3));
            drop(registration);
            assert_eq!(rpcbind.find(program, 1, true).unwrap(), None);
            shown(&format!("rpcbind, version {newest}"), network, "call");
        }
    }
}

#[test]
fn a_program_is_found_by_its_hosts_name() {
    if !is_inside("calling::a_program_is_found_by_its_hosts_name") {
        return;
    }
    let Some(programs) = programs::in_c("a server made by rpcgen, found by rpcbind") else { return };
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    let why = farcall_onc::import::<dyn Calc>("127.0.0.1").unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::No));
    let _theirs = Running::start(Command::new(programs.join("calc_serve")).arg("register"));
    assert!(rpcbind.find(0x2000_0088, 3, true).unwrap().is_some());
    calc::check(&farcall_onc::import::<dyn Calc>("127.0.0.1").unwrap());
    for (network, host) in NETWORKS {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let address = format!("{}://{host}", network.trim_end_matches('6'));
        calc::check(&farcall_onc::import::<dyn Calc>(&address).unwrap());
        shown("libtirpc, found by rpcbind", network, "call");
    }
}

#[test]
fn our_server_is_found_by_rpcbind_while_it_serves() {
    if !is_inside("calling::our_server_is_found_by_rpcbind_while_it_serves") {
        return;
    }
    let Some(programs) = programs::in_c("our server, found by rpcbind") else { return };
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    let server = calc::serve(|builder| builder.register(&rpcbind));
    for (network, host) in NETWORKS {
        let mut check = Command::new(programs.join("calc_check"));
        assert_eq!(run(check.args([network, host, "0"])).as_deref(), Ok("all is well\n"));
        shown("libtirpc, found by rpcbind", network, "serve");
    }
    // Rpcbind forwards a broadcast's call over UDP.
    for (version, host) in [(2, "127.0.0.1"), (4, "::1")] {
        let broadcast = Broadcast::of_interface::<dyn Calc>(1).arguments(&(40, 2)).to(host.parse().unwrap());
        let mut heard = Vec::new();
        let heard_one = |one: Heard<i32>| {
            heard.push(one.result.unwrap());
            Next::Stop
        };
        broadcast.within(Duration::from_secs(20)).each(heard_one).unwrap();
        assert_eq!(heard, [42]);
        shown(&format!("rpcbind, version {version}"), if version == 2 { "udp" } else { "udp6" }, "serve");
    }
    drop(server);
    assert_eq!(rpcbind.find(0x2000_0088, 3, true).unwrap(), None);
    assert_eq!(rpcbind.find(0x2000_0088, 3, false).unwrap(), None);
}
