//! Tests docs/deploy.md, "Two hosts": its commands do what the page says, on two hosts in network namespaces.

use std::fs;
use std::path::Path;

use crate::hosts::{Network, skip, steps};

#[test]
fn two_hosts_are_deployed_as_the_page_says() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy.md")).unwrap();
    let (_, rest) = page.split_once("\n## Two hosts\n").unwrap();
    let (section, _) = rest.split_once("\n### ").unwrap();
    let network = match Network::new(["alpha", "beta"], &["etcd", "bash"]) {
        Ok(network) => network,
        Err(why) => return skip("deploy.md", &why),
    };
    let mut shells = network.shells();
    let said: Vec<String> = steps(section).iter().map(|step| shells.run(step)).collect();
    let [started, called, joined, both, killed, gone] = &said[..] else { panic!("{said:#?}") };
    assert!(started.contains("serving") && joined.contains("serving"), "{said:#?}");
    assert!(
        called.contains("FileAccess/alpha  udp://10.0.0.1:7000") && called.contains("from alpha"),
        "{called}"
    );
    assert!(both.contains("FileAccess/alpha") && both.contains("FileAccess/beta"), "{both}");
    // The shell says that its job was killed when it notices, which may be after the step's end.
    assert!(killed.is_empty() || killed.contains("Killed"), "{killed}");
    assert!(gone.contains("FileAccess/alpha") && gone.contains("from alpha"), "{gone}");
    assert!(!gone.contains("FileAccess/beta"), "{gone}");
}
