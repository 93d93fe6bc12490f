//! Tests against Debian's implementations in other languages: Python's and Java's.

use std::path::PathBuf;
use std::process::Command;

use farcall_onc::{AuthSys, Client};

use crate::calc::{self, Calc, Entry, Listing};
use crate::programs::{Running, address, has, networks, port, run, shown, skip};

fn here(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(name)
}

/// Returns a command for the system's own Python, which has the system's packages.
pub fn python() -> Option<Command> {
    let mut python = Command::new("/usr/bin/python3");
    let has = Command::new("/usr/bin/python3").args(["-c", "import pyvisa_py.protocols.rpc"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        skip("Python's ONC RPC: python3-pyvisa-py is not installed");
        return None;
    }
    python.args(["-W", "ignore"]);
    Some(python)
}

#[test]
fn python_calls_and_is_called() {
    let server = calc::serve(|builder| builder);
    for network in ["udp", "tcp"] {
        let Some(mut python) = python() else { return };
        python.arg(here("counterpart.py")).args(["call", network, "127.0.0.1", &port(&server, network)]);
        assert_eq!(run(&mut python).as_deref(), Ok("all is well\n"), "{network}");
        shown("Python: pyvisa_py's rpc", network, "serve");
        let Some(mut python) = self::python() else { return };
        let theirs = Running::start(python.arg(here("counterpart.py")).args(["serve", network]));
        let client = Client::builder().auth(AuthSys::of_process());
        let client = client.connect(&address(network, theirs.first.trim())).unwrap();
        let calc = client.bind::<dyn Calc>();
        calc.nothing().unwrap();
        assert_eq!(calc.add(40, 2).unwrap(), 42);
        assert_eq!(calc.count_down(100).unwrap().entries.len(), 100);
        let entries = (1..=50).map(|n| Entry { name: format!("{n}"), size: n }).collect();
        assert_eq!(calc.total(Listing { entries }).unwrap(), 50 * 51 / 2);
        assert_eq!(calc.join("a", "bc", 300).unwrap(), format!("a{}", "bc".repeat(300)));
        shown("Python: pyvisa_py's rpc", network, "call");
    }
}

#[test]
fn java_calls() {
    const JAR: &str = "/usr/share/java/yanfs.jar";
    if !has("java") {
        return;
    }
    if !std::path::Path::new(JAR).exists() {
        return skip("Java's ONC RPC: libyanfs-java is not installed");
    }
    let server = calc::serve(|builder| builder);
    for (network, host) in networks() {
        let mut java = Command::new("java");
        let kind = network.trim_end_matches('6');
        java.args(["-cp", JAR]).arg(here("Counterpart.java")).args([kind, host, &port(&server, network)]);
        assert_eq!(run(&mut java).as_deref(), Ok("all is well\n"), "{network}");
        shown("Java: YaNFS's rpc", network, "serve");
    }
}
