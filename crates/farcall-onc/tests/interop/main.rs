//! Programs that we did not write: C made by rpcgen with libtirpc, rpcbind, rpcinfo.

#![cfg(target_os = "linux")]

mod calc;

use std::process::Command;

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
