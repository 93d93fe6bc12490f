//! Two hosts in network namespaces, with a cable between them, and a shell on each: what the pages about
//! deployment are typed into.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Some lines for the shell of a host.
pub struct Step {
    pub host: String,
    pub lines: String,
}

/// Returns the blocks for shells of a page's section, each with the host that the paragraph before it names
/// at its end.
pub fn steps(section: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for pair in section.split("```").collect::<Vec<_>>().chunks(2) {
        let Some(lines) = pair.get(1).and_then(|fence| fence.strip_prefix("sh\n")) else { continue };
        let host = pair[0].rsplit("n `").next().unwrap().split('`').next().unwrap();
        steps.push(Step { host: host.to_owned(), lines: lines.to_owned() });
    }
    steps
}

/// Says that a test of a page is skipped.
pub fn skip(page: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: the hosts of docs/{page}: {why}");
}

/// The addresses of the two hosts.
const ADDRESSES: [&str; 2] = ["10.0.0.1/24", "10.0.0.2/24"];

/// Two namespaces and a cable between them. Dropping this value removes them.
pub struct Network {
    hosts: [&'static str; 2],
    names: [String; 2],
    homes: tempfile::TempDir,
}

impl Network {
    /// Makes hosts of these names, on which these programs are needed.
    ///
    /// # Errors
    /// Why there can be none here.
    pub fn new(hosts: [&'static str; 2], programs: &[&str]) -> Result<Network, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        output("ip", &["-V"]).map_err(|_| "there is no ip")?;
        for program in programs {
            output(program, &["--version"]).map_err(|_| format!("there is no {program}"))?;
        }
        let names = hosts.map(|host| format!("farcall-{host}-{}", std::process::id()));
        let network = Network { hosts, names, homes: tempfile::tempdir().unwrap() };
        let [first, second] = network.names.each_ref();
        for name in [first, second] {
            output("ip", &["netns", "add", name]).map_err(|why| format!("none can be made ({why})"))?;
        }
        output(
            "ip",
            &[
                "-n", first, "link", "add", "name", "far", "type", "veth", "peer", "name", "far", "netns",
                second,
            ],
        )?;
        for (name, address) in network.names.iter().zip(ADDRESSES) {
            output("ip", &["-n", name, "address", "add", address, "dev", "far"])?;
            output("ip", &["-n", name, "link", "set", "far", "up"])?;
            output("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    /// Returns the home directory on a host.
    pub fn home(&self, host: &str) -> PathBuf {
        self.homes.path().join(host)
    }

    /// Starts a shell on each host.
    pub fn shells(&self) -> Shells {
        Shells([0, 1].map(|host| Shell::start(self, host)))
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

/// The shells on both hosts.
pub struct Shells([Shell; 2]);

impl Shells {
    /// Runs the lines of a step, and returns what they print, until the last one has ended or a server is
    /// ready.
    pub fn run(&mut self, step: &Step) -> String {
        let shell = self.0.iter_mut().find(|shell| shell.host == step.host).unwrap();
        shell.run(&step.lines)
    }
}

struct Shell {
    host: &'static str,
    process: Child,
    input: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Shell {
    fn start(network: &Network, which: usize) -> Shell {
        let host = network.hosts[which];
        let home = network.home(host);
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
        let (mut input, said) =
            (process.stdin.take().unwrap(), process.stdout.take().map(BufReader::new).unwrap());
        // What the commands complain of is part of what they say.
        input.write_all(b"exec 2>&1\n").unwrap();
        Shell { host, process, input, said }
    }

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
