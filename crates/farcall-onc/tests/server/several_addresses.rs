//! Tests of a server at all addresses of a host that has several.

use std::env;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;

use farcall_onc::Server;
use farcall_onc::rpcbind::Mapper;

use crate::calc::*;

/// Set in the process that runs the test in a network namespace of its own.
const INSIDE: &str = "FARCALL_ONC_SEVERAL_ADDRESSES";
const NAME: &str = "several_addresses::a_server_with_several_addresses_answers_from_the_one_that_was_asked";

#[test]
fn a_server_with_several_addresses_answers_from_the_one_that_was_asked() {
    if env::var_os(INSIDE).is_none() {
        return run_again();
    }
    for (all, one, other) in [("0.0.0.0", "10.77.0.1", "10.77.0.2"), ("[::]", "[fd77::1]", "[fd77::2]")] {
        let mapper = Mapper::default();
        let server = Server::builder().program::<dyn Calc>(Arc::new(Calculator::default())).mapper(&mapper);
        let server = server.udp(format!("{all}:0").parse().unwrap()).start().unwrap();
        let port = server.udp().unwrap().port();
        for (from, to) in [(one, other), (other, one), (one, one)] {
            let socket = UdpSocket::bind(format!("{from}:0")).unwrap();
            // A connected socket accepts datagrams only from the address to which it is connected.
            socket.connect(format!("{to}:{port}")).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let udp = Udp(socket);
            assert_eq!(success(&udp.ask(&call(1, 1, &[40, 2]))), (1, words(&[42])), "{from} asks {to}");
            // A reply with a part that is sent without a copy.
            assert_eq!(success(&udp.ask(&call(2, 12, &[30_000]))).1.len(), 30_004, "{from} asks {to}");
            // The port mapper answers from the right address too.
            let mut message = call(3, 0, &[]);
            message[12..20].copy_from_slice(&words(&[100_000, 2]));
            assert_eq!(success(&udp.ask(&message)), (3, vec![]), "{from} asks {to}");
        }
    }
}

/// Runs the test again in a network namespace of its own, where the host has two addresses of each family. It
/// waits until the system has added the routes of the IPv6 addresses, which comes some time after the
/// addresses; until then datagrams would be lost.
fn run_again() {
    let script = "ip link set lo up && for at in 10.77.0.1/32 10.77.0.2/32 fd77::1/128 fd77::2/128; \
        do ip addr add $at dev lo nodad || exit; done; \
        for at in fd77::1 fd77::2; do until ip -6 route show table local | grep -q $at; do :; done; done; \
        exec \"$0\" \"$@\"";
    let network = || {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", script]);
        command
    };
    let probe = network().arg("true").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        // Not by `eprintln!`, whose output the test harness captures.
        let _ = writeln!(std::io::stderr(), "skipped: {NAME}: no network of its own");
        return;
    }
    let output =
        network().arg(env::current_exe().unwrap()).args(["--exact", NAME]).env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
