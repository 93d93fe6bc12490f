//! Two replicas are operated beside a client that checks every call: they are drained, killed, stopped, cut
//! off and filtered, and etcd is killed, stopped, and has its disk filled. What fails must be what the
//! operation explains, and nothing is executed that a failure says did not run, or twice.
//!
//! Replicas, and etcd with the client, are on hosts of their own (network namespaces). Needs root, `ip`,
//! `nft` and `etcd-server`; otherwise the test says that it is skipped. It does each operation once.
//! `FARCALL_OPERATE_SECONDS` has it go on for so long (`scripts/operate`).
#![cfg(target_os = "linux")]

#[path = "common/commands.rs"]
mod commands;
#[path = "common/hosts.rs"]
mod hosts;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use commands::output;
use farcall::names::Etcd;
use farcall::{CallFailed, Runtime};
use hosts::{Hosts, PLACE, Player, ROLE};

const TEST: &str = "a_client_sees_no_failure_that_the_operations_on_two_replicas_do_not_explain";

/// The variable with the file in which a replica enters what it executes.
const LOG: &str = "FARCALL_OPERATED_LOG";

/// How long each call may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// How long a replica may take to serve again after an operation: longer than its lease in etcd.
const RETURN: Duration = Duration::from_secs(120);

#[farcall::interface]
trait Counter {
    /// Enters a number, and returns which replica has done so.
    fn enter(&self, number: u64) -> farcall::Result<u32>;
    /// Returns which replica has executed this.
    #[idempotent]
    fn read(&self, number: u64) -> farcall::Result<u32>;
}

struct Replica(u32, File);

impl Counter for Replica {
    fn enter(&self, number: u64) -> farcall::Result<u32> {
        // This is one write at the end of the file, so either the whole line is there or nothing.
        (&self.1).write_all(format!("{number}\n").as_bytes()).unwrap();
        // Some calls take a while, so that operations fall between the line in the log and the result.
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(number % 5));
        }
        Ok(self.0)
    }

    fn read(&self, _: u64) -> farcall::Result<u32> {
        Ok(self.0)
    }
}

fn act(role: &str) {
    if role == "client" {
        let runtime = Runtime::builder().registry(Etcd::at(PLACE).unwrap()).build().unwrap();
        return Client::new(&runtime).call();
    }
    farcall::take_signals().unwrap();
    let which = role.strip_prefix("replica ").unwrap();
    let builder = Runtime::builder().registry(Etcd::at(PLACE).unwrap()).open();
    let runtime = builder.address("0.0.0.0:7000".parse().unwrap()).build().unwrap();
    let log = File::options().append(true).create(true).open(std::env::var(LOG).unwrap()).unwrap();
    let server = Arc::new(Replica(which.parse().unwrap(), log));
    // While etcd is away, nothing can be exported.
    let export =
        std::iter::repeat_with(|| runtime.export::<dyn Counter>(&format!("Counter/{which}"), server.clone()));
    let export = export.filter_map(Result::ok).next().unwrap();
    println!("\nready");
    export.until_signal().unwrap();
}

/// The client: threads that call without end.
struct Client {
    stub: CounterClient,
    /// The next number to be entered.
    next: AtomicU64,
    over: AtomicBool,
    /// How many marks were asked for, and how many each caller has passed.
    asked: AtomicU64,
    passed: [AtomicU64; CALLERS],
    /// How many calls each replica has answered.
    answered: [AtomicU64; 2],
}

const CALLERS: usize = 5;

/// How many calls that may not be made twice the callers have under way at once.
const ENTERED_AT_ONCE: usize = 2 + STARTED + 1;

/// How many calls of each kind a caller starts at once.
const STARTED: usize = 4;

impl Client {
    fn new(runtime: &Runtime) -> Client {
        let stub = runtime.import_all::<dyn Counter>("Counter").unwrap().balanced().within(DEADLINE);
        let [next, asked] = [(); 2].map(|()| AtomicU64::new(0));
        let (passed, answered, over) = (Default::default(), Default::default(), AtomicBool::new(false));
        Client { stub, next, over, asked, passed, answered }
    }

    /// Calls until the input ends. For each line of it, says how many calls each replica has answered, once
    /// each caller has made a call that began later. At the end says how many numbers there were.
    fn call(&self) {
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                scope.spawn(move || {
                    while !self.over.load(SeqCst) {
                        let asked = self.asked.load(SeqCst);
                        self.call_as(caller);
                        self.passed[caller].store(asked, SeqCst);
                        // This leaves the processors to the replicas, too.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            println!("\nready");
            for _ in std::io::stdin().lines() {
                let mark = self.asked.fetch_add(1, SeqCst) + 1;
                while self.passed.iter().any(|passed| passed.load(SeqCst) < mark) {
                    // Each caller passes the mark with its next call.
                    std::thread::sleep(Duration::from_millis(1));
                }
                let [first, second] = self.answered.each_ref().map(|calls| calls.load(SeqCst));
                println!("\nmark {first} {second}");
            }
            self.over.store(true, SeqCst);
        });
        println!("\nover {}", self.next.load(SeqCst));
    }

    fn call_as(&self, caller: usize) {
        let number = || self.next.fetch_add(1, SeqCst);
        let begun = Instant::now();
        match caller {
            0 | 1 => {
                let number = number();
                self.ended("enter", number, begun, self.stub.enter(number));
            }
            2 => self.ended("read", 0, begun, self.stub.read(0)),
            3 => {
                let entered: Vec<_> = std::iter::repeat_with(number).take(STARTED).collect();
                let entered: Vec<_> =
                    entered.into_iter().map(|number| (number, self.stub.start().enter(number))).collect();
                let read: Vec<_> = (0..STARTED).map(|_| self.stub.start().read(0)).collect();
                // A call is tried at the other replica while somebody waits for it: these, therefore, before
                // those that may use up their deadlines.
                read.into_iter().for_each(|call| self.ended("started-read", 0, begun, call.wait()));
                for (number, call) in entered {
                    self.ended("started-enter", number, begun, call.wait());
                }
            }
            _ => {
                let number = number();
                self.ended("awaiting-enter", number, begun, self.stub.wait_for_server().enter(number));
            }
        }
    }

    fn ended(&self, what: &str, number: u64, begun: Instant, outcome: farcall::Result<u32>) {
        match outcome {
            Ok(replica) => drop(self.answered[replica as usize - 1].fetch_add(1, SeqCst)),
            Err(why) => {
                let (why, took) = (CallFailed::from(why), begun.elapsed().as_millis());
                println!("\nfailed {what} {number} {:?} {:?} {took} {why}", why.ran(), why.kind());
            }
        }
    }
}

/// What is done to a replica, or to etcd, and then undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Drain,
    Kill,
    Stop,
    /// Takes both networks of its host away, or one.
    Cut,
    CutOne,
    /// Drops at its host what comes for it.
    Filter,
    KillEtcd,
    StopEtcd,
    /// Fills the disk of etcd, and restarts a replica.
    FillDisk,
}

use Operation::*;

const OPERATIONS: [Operation; 9] = [Drain, Kill, Stop, Cut, CutOne, Filter, KillEtcd, StopEtcd, FillDisk];

impl Operation {
    /// Returns how many calls may fail because of it. Each of them must be one that may have been executed.
    fn explains(self) -> usize {
        match self {
            Drain | KillEtcd | StopEtcd | FillDisk => 0,
            Kill | Stop | Cut | CutOne | Filter => ENTERED_AT_ONCE,
        }
    }
}

/// A call that has failed, as the client says it.
struct Failed {
    what: String,
    number: u64,
    ran: String,
    text: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.what, self.number, self.ran, self.text)
    }
}

impl Failed {
    fn parse(line: &str) -> Failed {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let mut word = || words.next().unwrap();
        let (what, number, ran) = (word(), word().parse().unwrap(), word());
        Failed { what, number, ran, text: word() }
    }

    /// Returns whether it is one of those that an operation explains.
    fn is_in_doubt(&self) -> bool {
        self.ran == "Maybe" && self.what.ends_with("enter")
    }
}

/// The disk of etcd: a file system of its own.
struct Disk(PathBuf);

const DISK_BYTES: usize = 192 << 20;

impl Disk {
    fn new(path: PathBuf) -> Result<Disk, String> {
        fs::create_dir(&path).unwrap();
        let size = format!("size={DISK_BYTES}");
        output("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", path.to_str().unwrap()])?;
        Ok(Disk(path))
    }

    fn fill(&self) {
        let (mut file, mut filled) = (File::create(self.0.join("fills")).unwrap(), 0);
        for len in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; len]).is_ok() {
                filled += len;
                // If somebody has unmounted it, this is the disk of the machine.
                assert!(filled <= DISK_BYTES, "the disk of etcd is no file system of its own any more");
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fills")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = output("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

struct Operator {
    client: Player,
    replicas: [Option<Player>; 2],
    etcd: Option<Player>,
    disk: Disk,
    hosts: Hosts,
    /// How the numbers ended whose calls have failed.
    failed: HashMap<u64, String>,
    /// What no operation explains.
    faults: Vec<String>,
    /// For each operation, how often it was done, the calls meanwhile, and how many of them have failed.
    done: BTreeMap<Operation, [u64; 3]>,
    answered: [u64; 2],
    /// How long each operation lasts, if not only until each caller has called.
    lasts: bool,
    /// The state of the choices of how long.
    chance: u64,
}

impl Operator {
    fn new(hosts: Hosts) -> Result<Operator, String> {
        let disk = Disk::new(hosts.directory().join("etcd"))?;
        output("nft", &["--version"])?;
        let etcd = Some(hosts.start_etcd());
        let replicas = [0, 1].map(|which| Some(start(&hosts, which)));
        let mut client = hosts.play(3, TEST, "client");
        client.wait_for("ready");
        let (failed, faults, done) = Default::default();
        let (lasts, chance) = (seconds().is_some(), 7);
        Ok(Operator {
            client,
            replicas,
            etcd,
            disk,
            hosts,
            failed,
            faults,
            done,
            answered: [0; 2],
            lasts,
            chance,
        })
    }

    fn operate(mut self) {
        let begun = Instant::now();
        self.until_both_serve();
        for round in 0.. {
            let which = round / OPERATIONS.len() % 2;
            let operation = OPERATIONS[round % OPERATIONS.len()];
            let is_over = match seconds() {
                Some(most) => begun.elapsed().as_secs() >= most,
                None => round == OPERATIONS.len(),
            };
            if is_over {
                break;
            }
            let before: u64 = self.answered.iter().sum();
            println!("{:5} s: {operation:?} {}", begun.elapsed().as_secs(), which + 1);
            let mut failed = self.run(operation, which);
            failed.extend(self.until_both_serve());
            let calls = self.answered.iter().sum::<u64>() - before;
            println!("{:5} s: both serve again, after {calls} calls", begun.elapsed().as_secs());
            self.judge(operation, calls, failed);
        }
        self.end();
    }

    /// Does an operation, and undoes it. Returns the calls that have failed meanwhile.
    fn run(&mut self, operation: Operation, which: usize) -> Vec<Failed> {
        match operation {
            Drain => {
                self.signal_replica(which, "TERM");
                self.replicas[which].take().unwrap().finish();
                let failed = self.hold();
                self.replicas[which] = Some(start(&self.hosts, which));
                failed
            }
            Kill => {
                self.replicas[which] = None;
                let failed = self.hold();
                self.replicas[which] = Some(start(&self.hosts, which));
                failed
            }
            Stop => {
                self.signal_replica(which, "STOP");
                let failed = self.hold();
                self.signal_replica(which, "CONT");
                failed
            }
            Cut | CutOne => {
                let networks = if operation == Cut { &["one", "two"][..] } else { &["one"] };
                networks.iter().for_each(|network| self.hosts.set(which + 1, network, "down"));
                let failed = self.hold();
                networks.iter().for_each(|network| self.hosts.set(which + 1, network, "up"));
                failed
            }
            Filter => {
                let rules = "table inet cut { chain input { type filter hook input priority 0; \
                             udp dport 7000 drop; }; }";
                self.nft(which, rules);
                let failed = self.hold();
                self.nft(which, "delete table inet cut");
                failed
            }
            KillEtcd => {
                self.etcd = None;
                let failed = self.hold();
                self.etcd = Some(self.hosts.start_etcd());
                failed
            }
            StopEtcd => {
                let process = self.etcd.as_ref().unwrap().process.id();
                signal(process, "STOP");
                let failed = self.hold();
                signal(process, "CONT");
                failed
            }
            FillDisk => self.fill_disk(which),
        }
    }

    fn fill_disk(&mut self, which: usize) -> Vec<Failed> {
        self.disk.fill();
        self.signal_replica(which, "TERM");
        self.replicas[which].take().unwrap().finish();
        let mut replica = play(&self.hosts, which);
        let failed = self.hold();
        self.disk.free();
        if self.etcd.as_mut().unwrap().process.try_wait().unwrap().is_some() {
            self.etcd = Some(self.hosts.start_etcd());
        }
        replica.wait_for("ready");
        self.replicas[which] = Some(replica);
        failed
    }

    /// Lets the client call meanwhile: each caller at least once, and for some seconds if operations last.
    fn hold(&mut self) -> Vec<Failed> {
        if self.lasts {
            self.chance = self.chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            std::thread::sleep(Duration::from_millis((self.chance >> 33) % 16_000));
        }
        self.mark()
    }

    /// Waits until each caller has made a call that began later. Returns the calls that have failed.
    fn mark(&mut self) -> Vec<Failed> {
        self.client.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let (mut failed, mut lines) = (Vec::new(), self.client.said.as_mut().unwrap().lines());
        loop {
            let line = lines.next().expect("the client goes on").unwrap();
            if let Some(line) = line.strip_prefix("failed ") {
                failed.push(Failed::parse(line));
            } else if let Some(answered) = line.strip_prefix("mark ") {
                let mut answered = answered.split(' ').map(|calls| calls.parse().unwrap());
                self.answered = [(); 2].map(|()| answered.next().unwrap());
                return failed;
            }
        }
    }

    /// Waits until both replicas answer calls. Returns the calls that have failed meanwhile.
    fn until_both_serve(&mut self) -> Vec<Failed> {
        let (mut failed, end) = (Vec::new(), Instant::now() + RETURN);
        let before = self.answered;
        loop {
            failed.extend(self.mark());
            if self.answered.iter().zip(before).all(|(now, before)| *now > before + 100) {
                return failed;
            }
            if Instant::now() > end {
                let fault = format!("a replica serves no more: {before:?}, {:?}", self.answered);
                println!("         {fault} (NOT EXPLAINED)");
                self.faults.push(fault);
                return failed;
            }
        }
    }

    fn judge(&mut self, operation: Operation, calls: u64, failed: Vec<Failed>) {
        let done = self.done.entry(operation).or_default();
        *done = [done[0] + 1, done[1] + calls, done[2] + failed.len() as u64];
        let too_many = failed.len() > operation.explains();
        for failed in failed {
            let is_explained = failed.is_in_doubt() && !too_many;
            println!("         {failed}{}", if is_explained { "" } else { " (NOT EXPLAINED)" });
            if !is_explained {
                self.faults.push(format!("{operation:?}: {failed}"));
            }
            if failed.what.ends_with("enter") {
                self.failed.insert(failed.number, failed.ran);
            }
        }
    }

    /// Compares what the client was told with what the replicas have executed.
    fn end(mut self) {
        drop(self.client.process.stdin.take());
        let numbers: u64 = self.client.wait_for("over ").parse().unwrap();
        let mut executed: HashMap<u64, u32> = HashMap::new();
        for which in 0..2 {
            let log = fs::read_to_string(log(&self.hosts, which)).unwrap();
            log.lines().for_each(|number| *executed.entry(number.parse().unwrap()).or_default() += 1);
        }
        for number in 0..numbers {
            let times = executed.get(&number).copied().unwrap_or_default();
            let ran = self.failed.get(&number).map(String::as_str);
            let is_true = match ran {
                None | Some("Yes") => times == 1,
                Some("No") => times == 0,
                Some(_) => times <= 1,
            };
            if !is_true {
                self.faults.push(format!("{number} was executed {times} times, and its call {ran:?}"));
            }
        }
        println!("operation | times | calls | failed in doubt");
        for (operation, [times, calls, failed]) in &self.done {
            println!("{operation:?} | {times} | {calls} | {failed}");
        }
        println!("{numbers} numbers, {} faults", self.faults.len());
        assert!(self.faults.is_empty(), "{:#?}", self.faults);
    }

    fn signal_replica(&self, which: usize, name: &str) {
        signal(self.replicas[which].as_ref().unwrap().process.id(), name);
    }

    fn nft(&self, which: usize, rules: &str) {
        let done = self.hosts.command(which + 1, "nft").arg(rules).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Returns for how many seconds to go on.
fn seconds() -> Option<u64> {
    std::env::var("FARCALL_OPERATE_SECONDS").ok().map(|seconds| seconds.parse().expect("a number"))
}

fn signal(process: u32, name: &str) {
    output("kill", &[&format!("-{name}"), &process.to_string()]).unwrap();
}

fn log(hosts: &Hosts, which: usize) -> PathBuf {
    Path::new(hosts.directory()).join(format!("log-{which}"))
}

/// Starts a replica, and waits until it serves.
fn start(hosts: &Hosts, which: usize) -> Player {
    let mut replica = play(hosts, which);
    replica.wait_for("ready");
    replica
}

fn play(hosts: &Hosts, which: usize) -> Player {
    let log = log(hosts, which);
    hosts.play_with(which + 1, TEST, &format!("replica {}", which + 1), |command: &mut Command| {
        command.env(LOG, log);
    })
}

#[test]
fn a_client_sees_no_failure_that_the_operations_on_two_replicas_do_not_explain() {
    if let Ok(role) = std::env::var(ROLE) {
        return act(&role);
    }
    match Hosts::new().and_then(Operator::new) {
        Ok(operator) => operator.operate(),
        Err(why) => {
            // Not `eprintln`, whose output is shown only for failing tests.
            let _ = writeln!(std::io::stderr(), "skipped: operations on replicas: {why}");
        }
    }
}
