//! An exporter and an importer in network namespaces of their own, with a veth pair between them. The kernel
//! answers for the exporter, also while its process is stopped.

use std::env;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use farcall::memory::{Importers, Memory as _, Refused, Remote, Rights, Segment, Settings};
use rustix::process::{Pid, Signal, kill_process};

use super::commands::output;
use super::common::{builder, skip};

/// The environment variable with the role of a copy of this program.
const ROLE: &str = "FARCALL_KERNEL_ROLE";
const SEGMENT_BYTES: usize = 4096;
/// The bytes from here on are a pattern; in front of them are words that the tests change.
const PATTERN: usize = 64;
const VALUE: u64 = 0;
const COUNTER: u64 = 8;

fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Acts as one side if the environment says which. Otherwise there is nothing to test here.
#[test]
fn role() {
    let role = env::var(ROLE).unwrap_or_default();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["exporter", interface, address] => export(interface, address),
        ["importer"] => import(),
        _ => {}
    }
}

/// Answers each command by a line that begins with `=`.
fn obey(mut act: impl FnMut(&str, u64) -> String) {
    println!("\n= ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, number) = line.split_once(' ').unwrap_or((&line, "0"));
        println!("\n= {}", act(command, number.parse().unwrap_or(0)));
    }
}

fn export(interface: &str, address: &str) {
    let builder = builder().address(address.parse().unwrap()).open().kernel_served(interface);
    let runtime = builder.advertise(address.parse().unwrap()).build().unwrap();
    let segment = runtime
        .export_segment("Load", Settings::new(SEGMENT_BYTES).anyone(Rights::ALL).same_user(Rights::ALL))
        .unwrap();
    let bytes: Vec<u8> = (PATTERN..SEGMENT_BYTES).map(pattern).collect();
    segment.write(PATTERN as u64, &bytes).unwrap();
    let by_kernel = || {
        let stats = runtime.stats();
        stats.exports.iter().find(|export| export.name == "Memory/Load").unwrap().answered_by_kernel
    };
    let answered = |segment: &Segment| {
        assert!(segment.generation().is_some() == by_kernel().is_some());
        by_kernel().unwrap_or(0)
    };
    obey(|command, number| match command {
        "kernel" => format!("{:?}", runtime.stats().kernel),
        "url" => segment.url(),
        "answered" => answered(&segment).to_string(),
        "served" => by_kernel().is_some().to_string(),
        // No importer may read what is written once `revoke` has returned.
        "revoke" => {
            segment.revoke();
            segment.store(VALUE, number).unwrap();
            String::new()
        }
        "again" => {
            segment.store(VALUE, number).unwrap();
            segment.export_again();
            String::new()
        }
        // Nor may an importer do so once everybody's right to read was withdrawn.
        "withdraw" => {
            segment.withdraw(Importers::Anyone);
            segment.store(VALUE, number).unwrap();
            String::new()
        }
        "grant" => {
            segment.grant(Importers::Anyone, Rights::ALL).unwrap();
            String::new()
        }
        "count" => {
            count(
                number,
                || segment.load(COUNTER).unwrap(),
                |old, new| segment.compare_and_swap(COUNTER, old, new).unwrap(),
            );
            segment.load(COUNTER).unwrap().to_string()
        }
        "value" => segment.load(number).unwrap().to_string(),
        _ => panic!("{command}"),
    });
}

fn import() {
    let runtime = builder().build().unwrap();
    let (mut remote, mut url): (Option<Remote>, _) = (None, String::new());
    // A program at this end, too, which passes everything on: only then does veth deliver to it what a native
    // program sends.
    let mut passes = Vec::new();
    obey(|command, number| {
        if command.starts_with("udp://") {
            url = command.to_owned();
        }
        if command.starts_with("udp://") || command == "import" {
            remote = Some(runtime.import_segment(&url).unwrap());
            return String::new();
        }
        if command == "pass" {
            passes.push(farcall_xdp::Kernel::load(&["far:native".to_owned()]).unwrap());
            return String::new();
        }
        let remote = remote.as_ref().expect("an import");
        match command {
            "reads" => reads(remote, number),
            // Reads until the segment is revoked. The value that is written after that must not be seen.
            "watch" => loop {
                match remote.load(VALUE) {
                    Ok(value) => assert_ne!(value, number, "read although the segment was revoked"),
                    Err(farcall::Error::Declared(Refused::Stale | Refused::NotPermitted)) => break,
                    Err(why) => panic!("{why}"),
                }
            },
            "count" => count(
                number,
                || remote.load(COUNTER).unwrap(),
                |old, new| remote.compare_and_swap(COUNTER, old, new).unwrap(),
            ),
            "store" => remote.store(VALUE, number).unwrap(),
            "load" => return remote.load(VALUE).unwrap().to_string(),
            _ => panic!("{command}"),
        }
        String::new()
    });
}

/// Reads ranges of all lengths that the kernel answers, and checks what was read.
fn reads(remote: &Remote, times: u64) {
    for time in 0..times as usize {
        let len = 1 + time % 192;
        let offset = PATTERN + time * 13 % (SEGMENT_BYTES - PATTERN - len + 1);
        let mut bytes = vec![0; len];
        remote.read(offset as u64, &mut bytes).unwrap();
        assert!(
            bytes.iter().enumerate().all(|(at, byte)| *byte == pattern(offset + at)),
            "{len} at {offset}"
        );
    }
}

/// Adds to a counter by compare and swap. What is loaded never decreases.
fn count(times: u64, load: impl Fn() -> u64, swap: impl Fn(u64, u64) -> u64) {
    let (mut counted, mut last) = (0, 0);
    while counted < times {
        let old = load();
        assert!(old >= last, "{old} was read after {last}");
        last = old;
        counted += u64::from(swap(old, old + 1) == old);
    }
}

/// Two namespaces, and a veth pair between them whose ends are called `far`.
struct Net {
    server: String,
    client: String,
}

impl Net {
    fn new(name: &str) -> Result<Net, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        output("ip", &["-V"]).map_err(|_| "there is no ip".to_owned())?;
        let [server, client] = ["s", "c"].map(|end| format!("farcall-{name}-{end}-{}", std::process::id()));
        let net = Net { server, client };
        for end in [&net.server, &net.client] {
            output("ip", &["netns", "add", end]).map_err(|why| format!("none can be made ({why})"))?;
        }
        let link = ["-n", &net.server, "link", "add", "far", "type", "veth", "peer", "name", "far", "netns"];
        output("ip", &[&link[..], &[&net.client]].concat())?;
        for (end, host) in [(&net.server, 1), (&net.client, 2)] {
            output("ip", &["-n", end, "address", "add", &format!("10.78.0.{host}/24"), "dev", "far"])?;
            output("ip", &["-n", end, "address", "add", &format!("fd78::{host}/64"), "dev", "far", "nodad"])?;
            output("ip", &["-n", end, "link", "set", "far", "up"])?;
        }
        Ok(net)
    }

    /// Starts an exporter whose kernel answers at `far`, and an importer of its segment. Fails with the
    /// reason why the kernel does not answer.
    fn play(&self, interface: &str, address: &str) -> Result<(Side, Side), String> {
        let mut exporter = Side::start(&self.server, &format!("exporter {interface} {address}"));
        let kernel = exporter.ask("kernel");
        if !kernel.starts_with("Some(Ok") {
            return Err(kernel);
        }
        let mut importer = Side::start(&self.client, "importer");
        importer.ask(&exporter.ask("url"));
        Ok((exporter, importer))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in [&self.server, &self.client] {
            let _ = output("ip", &["netns", "delete", end]);
        }
    }
}

/// A copy of this program in a namespace. It is killed when the test ends, even if it fails.
struct Side {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Side {
    fn start(namespace: &str, role: &str) -> Side {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(env::current_exe().unwrap());
        command.args(["--exact", "namespaces::role", "--nocapture"]).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut side = Side { child, said };
        assert_eq!(side.answer(), "ready");
        side
    }

    fn begin(&mut self, command: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> String {
        for line in self.said.by_ref().lines() {
            if let Some(answer) = line.unwrap().strip_prefix("= ") {
                return answer.to_owned();
            }
        }
        panic!("a side has ended");
    }

    fn ask(&mut self, command: &str) -> String {
        self.begin(command);
        self.answer()
    }

    /// `ip` has become this program, so its process is the side's.
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the process, and returns once no thread of it runs.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let path = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
        };
        while !std::fs::read_dir(&path).unwrap().all(|task| is_stopped(task.unwrap())) {
            std::thread::yield_now();
        }
    }

    /// Returns how long each thread has run, and how often it was scheduled.
    fn scheduled(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let schedstat =
            |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat")).unwrap();
        let mut all: Vec<String> = tasks.map(|task| schedstat(task.unwrap())).collect();
        all.sort();
        all
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stopped_exporter_is_read_and_is_not_scheduled_for_it() {
    let net = match Net::new("stop") {
        Ok(net) => net,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    for (interface, address) in
        [("far", "10.78.0.1:7000"), ("far:generic", "[fd78::1]:7000"), ("far:native", "10.78.0.1:7000")]
    {
        let (mut exporter, mut importer) = match net.play(interface, address) {
            Ok(sides) => sides,
            Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
        };
        if interface == "far:native" {
            importer.ask("pass");
        }
        // The first read makes the server tell the program of the conversation.
        importer.ask("reads 2");
        assert_eq!(exporter.ask("answered"), "1", "{interface}");
        exporter.stop();
        let before = exporter.scheduled();
        importer.ask("reads 2000");
        assert_eq!(exporter.scheduled(), before, "{interface}");
        exporter.signal(Signal::CONT);
        assert_eq!(exporter.ask("answered"), "2001", "{interface}");
        // The same conversation goes on with accesses that the process serves.
        importer.ask("store 77");
        assert_eq!((exporter.ask("value 0"), importer.ask("load")), ("77".to_owned(), "77".to_owned()));
        assert_eq!(exporter.ask("answered"), "2002", "{interface}");
    }
}

#[test]
fn no_read_returns_what_was_written_after_a_revocation() {
    let net = match Net::new("revoke") {
        Ok(net) => net,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    let (mut exporter, mut importer) = match net.play("far", "10.78.0.1:7000") {
        Ok(sides) => sides,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    for round in 1..=100 {
        importer.begin(&format!("watch {round}"));
        // The exporter's answer shows nothing of the importer, which may have begun or not.
        let mut answered = exporter.ask("answered");
        let before = answered.clone();
        while round % 2 == 0 && answered == before {
            answered = exporter.ask("answered");
        }
        exporter.ask(&format!("revoke {round}"));
        importer.answer();
        exporter.ask("again 0");
        importer.ask("import");
    }
    assert!(exporter.ask("answered").parse::<u64>().unwrap() > 100);
}

/// The kernel asks no reader who it is, so it must not go on when only some may read.
#[test]
fn no_read_returns_what_was_written_after_anyones_right_was_withdrawn() {
    let net = match Net::new("withdraw") {
        Ok(net) => net,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    let (mut exporter, mut importer) = match net.play("far", "10.78.0.1:7000") {
        Ok(sides) => sides,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    for round in 1..=20 {
        importer.begin(&format!("watch {round}"));
        let before = exporter.ask("answered");
        while exporter.ask("answered") == before {}
        exporter.ask(&format!("withdraw {round}"));
        importer.answer();
        assert_eq!(exporter.ask("served"), "false");
        // A new generation gives nobody a right that was withdrawn.
        exporter.ask(&format!("again {round}"));
        assert_eq!(exporter.ask("served"), "false");
        exporter.ask("grant");
        exporter.ask("again 0");
        importer.ask("import");
    }
}

#[test]
fn swaps_by_the_importer_and_by_the_exporter_count_together() {
    let net = match Net::new("count") {
        Ok(net) => net,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    let (mut exporter, mut importer) = match net.play("far", "10.78.0.1:7000") {
        Ok(sides) => sides,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    importer.begin("count 1000");
    exporter.ask("count 100000");
    importer.answer();
    assert_eq!(exporter.ask("value 8"), "101000");
    assert!(exporter.ask("answered").parse::<u64>().unwrap() >= 999, "the kernel answered the loads");
}

/// Natively, a veth pair delivers nothing that the program sends if the other end has no program.
#[test]
fn an_importer_that_the_kernels_answers_do_not_reach_is_served() {
    let net = match Net::new("lost") {
        Ok(net) => net,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    let (mut exporter, mut importer) = match net.play("far:native", "10.78.0.1:7000") {
        Ok(sides) => sides,
        Err(why) => return skip(&format!("segments served by the kernel between namespaces: {why}")),
    };
    importer.ask("reads 100");
    let answered: u64 = exporter.ask("answered").parse().unwrap();
    assert!(answered < 20, "{answered} answers were tried");
    importer.ask("reads 100");
    assert_eq!(exporter.ask("answered"), answered.to_string(), "no more are tried");
}

#[test]
fn what_the_kernel_cannot_serve_is_served_and_the_reason_is_told() {
    let runtime = builder().kernel_served("no-such-interface").build().unwrap();
    let segment = runtime.export_segment("Load", Settings::new(64).anyone(Rights::READ)).unwrap();
    segment.store(0, 7).unwrap();
    let why = runtime.stats().kernel.unwrap().unwrap_err();
    println!("{why}");
    assert!(
        !why.is_empty() && runtime.stats().exports.iter().all(|export| export.answered_by_kernel.is_none())
    );
    let other = builder().build().unwrap();
    assert_eq!(other.import_segment(&segment.url()).unwrap().load(0).unwrap(), 7);
    assert!(other.stats().kernel.is_none(), "it was not asked for");
}
