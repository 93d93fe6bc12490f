//! Tests docs/deploy.md, "Two hosts": its commands do what the page says, on two hosts in network namespaces.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const HOSTS: [(&str, &str); 2] = [("alpha", "10.0.0.1/24"), ("beta", "10.0.0.2/24")];

/// Some lines for the shell of a host.
struct Step {
    host: String,
    lines: String,
}

/// Returns the blocks for shells, each with the host that the paragraph before it names at its end.
fn steps(page: &str) -> Vec<Step> {
    let (_, rest) = page.split_once("\n## Two hosts\n").unwrap();
    let (section, _) = rest.split_once("\n### ").unwrap();
    let mut steps = Vec::new();
    for pair in section.split("```").collect::<Vec<_>>().chunks(2) {
        let Some(lines) = pair.get(1).and_then(|fence| fence.strip_prefix("sh\n")) else { continue };
        let host = pair[0].rsplit("n `").next().unwrap().split('`').next().unwrap();
        steps.push(Step { host: host.to_owned(), lines: lines.to_owned() });
    }
    steps
}

#[test]
fn two_hosts_are_deployed_as_the_page_says() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy.md")).unwrap();
    let network = match Network::new() {
        Ok(network) => network,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "skipped: the hosts of docs/deploy.md: {why}");
            return;
        }
    };
    let mut shells = HOSTS.map(|(host, _)| Shell::start(&network, host));
    let said: Vec<String> = steps(&page).iter().map(|step| run(&mut shells, step)).collect();
    let [started, called, joined, both, killed, gone] = &said[..] else { panic!("{said:#?}") };
    assert!(started.contains("serving") && joined.contains("serving"), "{said:#?}");
    assert!(
        called.contains("FileAccess/alpha  udp://10.0.0.1:7000") && called.contains("from alpha"),
        "{called}"
    );
    assert!(both.contains("FileAccess/alpha") && both.contains("FileAccess/beta"), "{both}");
    assert_eq!(killed, "");
    assert!(gone.contains("FileAccess/alpha") && gone.contains("from alpha"), "{gone}");
    assert!(!gone.contains("FileAccess/beta"), "{gone}");
}

fn run(shells: &mut [Shell], step: &Step) -> String {
    let shell = shells.iter_mut().find(|shell| shell.host == step.host).unwrap();
    shell.run(&step.lines)
}

/// Two namespaces and a cable between them. Dropping this value removes them.
struct Network {
    names: [String; 2],
    homes: tempfile::TempDir,
}

impl Network {
    fn new() -> Result<Network, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        for (program, version) in [("ip", "-V"), ("etcd", "--version"), ("bash", "--version")] {
            output(program, &[version]).map_err(|_| format!("there is no {program}"))?;
        }
        let names = HOSTS.map(|(host, _)| format!("farcall-{host}-{}", std::process::id()));
        let network = Network { names, homes: tempfile::tempdir().unwrap() };
        let [alpha, beta] = network.names.each_ref();
        for name in [alpha, beta] {
            output("ip", &["netns", "add", name]).map_err(|why| format!("none can be made ({why})"))?;
        }
        output(
            "ip",
            &[
                "-n", alpha, "link", "add", "name", "far", "type", "veth", "peer", "name", "far", "netns",
                beta,
            ],
        )?;
        for (name, (_, address)) in network.names.iter().zip(HOSTS) {
            output("ip", &["-n", name, "address", "add", address, "dev", "far"])?;
            output("ip", &["-n", name, "link", "set", "far", "up"])?;
            output("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // What the page has started in the background outlives its shell.
            let processes = output("ip", &["netns", "pids", name]).unwrap_or_default();
            for process in processes.lines() {
                let _ = output("kill", &["-KILL", process]);
            }
            let _ = output("ip", &["netns", "delete", name]);
        }
    }
}

/// A shell on a host.
struct Shell {
    host: &'static str,
    process: Child,
    input: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Shell {
    fn start(network: &Network, host: &'static str) -> Shell {
        let which = usize::from(host == HOSTS[1].0);
        let home = network.homes.path().join(host);
        fs::create_dir(&home).unwrap();
        let farcall = Path::new(env!("CARGO_BIN_EXE_farcall")).parent().unwrap();
        let path = format!("{}:{}", farcall.display(), std::env::var("PATH").unwrap_or_default());
        let mut process = Command::new("ip")
            .args(["netns", "exec", &network.names[which], "bash"])
            .env("HOME", &home)
            .env("PATH", path)
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, said) =
            (process.stdin.take().unwrap(), process.stdout.take().map(BufReader::new).unwrap());
        Shell { host, process, input, said }
    }

    /// Runs some lines, and returns what they print, until the last one has ended or a server is ready.
    fn run(&mut self, lines: &str) -> String {
        const END: &str = "the end of the lines";
        self.input.write_all(format!("{lines}\necho {END}\n").as_bytes()).unwrap();
        let serves = lines.contains("farcall serve");
        let (mut said, mut is_ready, mut has_ended) = (String::new(), false, false);
        while !has_ended || serves && !is_ready {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the shell has ended: {said}");
            match line.trim_end() == END {
                true => has_ended = true,
                false => {
                    is_ready |= line.starts_with("serving");
                    said += &line;
                }
            }
        }
        said
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a program's output if it succeeds, and otherwise its complaint.
fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}
