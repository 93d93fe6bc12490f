//! The registry in DNS with a server that many networks have: dnsmasq. Without it the test says that it is
//! skipped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use farcall_names::{Dns, Registry};

use crate::server::{host, label, shown};

/// A running server, which is killed when this is dropped.
struct Dnsmasq(Child);

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts dnsmasq with these settings, and returns it with a registry that asks it.
fn dnsmasq(settings: &[String]) -> Option<(Dnsmasq, Dns)> {
    let address = host();
    let started = Command::new("dnsmasq")
        .args(["--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file="])
        .args(["--port=5300", "--bind-interfaces", "--user=", "--local=/example.org/"])
        .arg(format!("--listen-address={address}"))
        .args(settings)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut process) = started else {
        // Not `eprintln`, whose output is shown only for failing tests.
        let _ = writeln!(std::io::stderr(), "skipped: dnsmasq is not installed");
        return None;
    };
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let dnsmasq = Dnsmasq(process);
    let mut line = String::new();
    while !line.contains("started, version") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "dnsmasq has ended: {line}");
    }
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let registry = Dns::at(&format!("dns://example.org?server={address}:5300")).unwrap();
    Some((dnsmasq, registry))
}

#[test]
fn dnsmasq_is_asked_by_udp_and_tcp() {
    const MANY: usize = 60;
    let mut settings = vec![
        "--srv-host=_store._udp.example.org,ebbets.example.org,7000,0,10".to_owned(),
        "--srv-host=_store._udp.example.org,luther.example.org,7001,0,10".to_owned(),
        "--srv-host=_store._udp.example.org,backup.example.org,7000,9,10".to_owned(),
        "--host-record=ebbets.example.org,10.0.0.7".to_owned(),
        "--host-record=luther.example.org,fd00::8".to_owned(),
        "--host-record=backup.example.org,10.0.0.9".to_owned(),
    ];
    for which in 0..MANY {
        let host = format!("h{which:02}.example.org");
        settings.push(format!("--srv-host=_many._udp.example.org,{host},7000"));
        settings.push(format!("--host-record={host},10.1.0.{}", which + 1));
    }
    let Some((_dnsmasq, registry)) = dnsmasq(&settings) else { return };
    let stores = registry.instances(&label("Store")).unwrap();
    assert_eq!(shown(&stores), ["ebbets udp://10.0.0.7:7000", "luther udp://[fd00::8]:7001"]);
    let many = registry.instances(&label("Many")).unwrap();
    assert_eq!((many.len(), &shown(&many)[MANY - 1][..]), (MANY, "h59 udp://10.1.0.60:7000"));
    assert_eq!(registry.instances(&label("Nobody")).unwrap(), []);
    assert_eq!(registry.list().unwrap().entries.len(), 2 + MANY);
}
