//! Tests docs/security.md, "Two hosts in five minutes": its commands do what the page says, on two hosts in
//! network namespaces. A key that is taken away ends its running call, and its next call is refused.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::hosts::{Network, Shells, Step, skip, steps};

/// What the reader puts in the place of the words in capitals: what commands have printed.
#[derive(Default)]
struct Printed(HashMap<&'static str, String>);

impl Printed {
    /// Returns the step as the reader types it.
    fn typed(&self, step: &Step) -> Step {
        let fill = |lines: String, (word, printed): (&&str, &String)| lines.replace(*word, printed);
        Step { host: step.host.clone(), lines: self.0.iter().fold(step.lines.clone(), fill) }
    }

    /// Notes what a step has printed, if it is the step that prints a word's text.
    fn note(&mut self, step: &Step, said: &str) {
        let word = match (step.host.as_str(), step.lines.split_whitespace().nth(2)) {
            ("server", Some("make")) => "SERVERS-KEY",
            ("client", Some("make")) => "CLIENTS-KEY",
            ("server", Some("authority")) => "AUTHORITYS-KEY",
            ("server", Some("grant")) if !step.lines.contains(">>") => "CLIENTS-GRANT",
            _ => return,
        };
        self.0.insert(word, said.trim().to_owned());
    }
}

/// Waits until `farcall ping` at the client says a word.
fn wait_for_ping(shells: &mut Shells, word: &str) {
    let ping = "farcall ping udp://10.0.0.1:7000/FileAccess";
    let step = Step { host: "client".into(), lines: ping.into() };
    while !shells.run(&step).contains(word) {}
}

#[test]
fn two_hosts_have_keys_as_the_page_says() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")).unwrap();
    let (_, rest) = page.split_once("\n## Two hosts in five minutes\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let network = match Network::new(["server", "client"], &["bash", "truncate"]) {
        Ok(network) => network,
        Err(why) => return skip("security.md", &why),
    };
    let mut shells = network.shells();
    let mut printed = Printed::default();
    let mut said = Vec::new();
    for step in steps(section) {
        let step = printed.typed(&step);
        assert!(!["-KEY", "-GRANT"].iter().any(|word| step.lines.contains(word)), "{}", step.lines);
        let lines = shells.run(&step);
        printed.note(&step, &lines);
        if step.lines.contains("rm ~/.config/farcall/known_servers") {
            // The server has read its files again.
            wait_for_ping(&mut shells, "0 other calls");
        } else if step.lines.contains("CALL=$!") {
            wait_for_ping(&mut shells, "1 other call");
        }
        said.push(lines);
    }
    let [_, _, authorized, known, started, called, _, _, _, granted, again, _, _, revoked, ended] = &said[..]
    else {
        panic!("{said:#?}")
    };
    let are_good = |said: &String| said.ends_with("farcall: no fault\n");
    assert!([authorized, known, granted].into_iter().all(are_good), "{said:#?}");
    assert!(started.contains("serving"), "{started}");
    assert_eq!((called.as_str(), again.as_str()), ("from the server\n", "from the server\n"));
    assert!(revoked.contains("serial 1, 1 key, 0 grants"), "{revoked}");
    let (_, shown) = section.split_once("```text\n").unwrap();
    for line in shown.split("```").next().unwrap().lines() {
        assert!(ended.lines().any(|said| said == line), "{line:?} is not in {ended}");
    }
    for host in ["server", "client"] {
        let directory = network.home(host).join(".config/farcall");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&directory), mode(&directory.join("identity"))), (0o700, 0o600), "{host}");
    }
}
