//! Counts the system calls of null calls over UDP, and of long calls through shared memory, by all threads of
//! both ends.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::common::{builder, skip};
use crate::ends::{Probe, alone, in_role, start_servers};

/// How many calls are made between two marks.
const CALLS: usize = 500;
/// The first calls do not count: threads and sockets come to the state that they keep.
const WARM_CALLS: usize = 2_000;
/// How often [`CALLS`] calls are made.
const ROUNDS: &str = "FARCALL_TEST_ROUNDS";
/// What a process prints before each round and after the last one.
const MARK: &str = "a round begins";
/// How many times they are made, to be counted.
const COUNTED_ROUNDS: usize = 20;
/// The system calls of a call: each end sends and receives, or wakes the other one and sleeps.
const EACH: usize = 4;
/// The threads that act by the clock, not for each call: they have a bound of their own.
const BY_THE_CLOCK: [&str; 3] = ["farcall-watchdo", "farcall-keys", "farcall-host"];

/// strace makes each system call so slow that two workers wait in the server's socket (docs/driver.md).
#[test]
fn a_null_call_takes_four_system_calls_where_calls_are_slow() {
    let _alone = alone();
    let Some(counts) = count_by_strace("caller that makes rounds") else { return };
    let least = counts.iter().min_by_key(|counts| sum(counts)).unwrap();
    let all = counts.iter().map(sum).sum::<usize>();
    println!("{} system calls in {CALLS} calls, {all} in {COUNTED_ROUNDS} times as many", sum(least));
    // The server's last send, and the wait that follows, may stand after the mark.
    assert!(sum(least).abs_diff(EACH * CALLS) <= 2, "in {CALLS} calls at least {least:?}");
    // When the machine pauses for 20 ms, the client sends again, which takes some six system calls.
    assert!(all < EACH * CALLS * COUNTED_ROUNDS * 41 / 40, "in {CALLS} calls: {counts:?}");
}

/// Both ends share a processor: where each has one, they poll instead. An end that is woken while it still
/// runs makes fewer system calls.
#[test]
fn a_call_of_8_kib_through_shared_memory_takes_at_most_four_system_calls() {
    let _alone = alone();
    let Some(counts) = count_by_strace("caller that makes rounds of long calls") else { return };
    let least = counts.iter().min_by_key(|counts| sum(counts)).unwrap();
    println!("{} system calls in {CALLS} calls: {least:?}", sum(least));
    assert!(sum(least) <= EACH * CALLS + 2, "in {CALLS} calls at least {least:?}");
    assert!(least.contains_key("futex FUTEX_WAKE"), "through shared memory: {least:?}");
    // Each end wakes the other process. No thread of the caller's process waits for the ring of the
    // arguments.
    let private = least.get("futex FUTEX_WAKE_PRIVATE").copied().unwrap_or_default();
    assert!(private < CALLS / 10, "in {CALLS} calls {least:?}");
}

/// Tracepoints slow system calls little, so that one worker receives and executes, and the watchdog watches.
#[test]
fn a_null_call_takes_four_system_calls_where_calls_are_fast() {
    let _alone = alone();
    // What both counts have in common is what the ends do before they are counted.
    let [few, many] = [0, 2 * COUNTED_ROUNDS].map(count_by_tracepoint);
    let (Some(few), Some(many)) = (few, many) else { return };
    let calls = (2 * COUNTED_ROUNDS * CALLS) as f64;
    let [each, by_the_clock] = [0, 1].map(|which| (many[which] as f64 - few[which] as f64) / calls);
    println!("{each} system calls for each call, and {by_the_clock} by the clock");
    assert!((each - EACH as f64).abs() < 0.03, "{each} system calls for each call, not {EACH}");
    assert!(by_the_clock < 0.5, "{by_the_clock} system calls for each call in {BY_THE_CLOCK:?}");
}

/// Runs in the process that calls. It starts the server, so that a tool that follows it counts both.
pub fn make_rounds() {
    let (_server, url) = start_servers(1, false);
    let runtime = builder().shared_memory(false).build().unwrap();
    let probe = runtime.import::<dyn Probe>(&url).unwrap();
    count(|| probe.null().unwrap());
}

/// Makes rounds of calls with 8 KiB of arguments through shared memory, with both ends on one processor. Runs
/// in the process that calls, and starts the server.
pub fn make_rounds_of_long_calls() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    // The server's process inherits the processor.
    sched_setaffinity(None, &one).unwrap();
    let (_server, url) = start_servers(1, true);
    let runtime = builder().shared_memory(true).build().unwrap();
    let probe = runtime.import::<dyn Probe>(&url).unwrap();
    count(|| assert_eq!(probe.take(&[7; 8 << 10]).unwrap(), 8 << 10));
}

/// Makes calls, with marks between the rounds.
fn count(call: impl Fn()) {
    (0..WARM_CALLS).for_each(|_| call());
    for _ in 0..env::var(ROUNDS).unwrap().parse().unwrap() {
        println!("{MARK}");
        (0..CALLS).for_each(|_| call());
    }
    println!("{MARK}");
}

/// Runs both ends by a tool that counts.
fn run(tool: &mut Command, role: &str, rounds: usize) {
    let ended = in_role(tool.env(ROUNDS, rounds.to_string()), role, "");
    assert!(ended.status.success(), "{ended:?}");
}

/// Returns the system calls of each round by name. Returns `None` if they cannot be counted here.
fn count_by_strace(role: &str) -> Option<Vec<BTreeMap<String, usize>>> {
    let tried = Command::new("strace").args(["-f", "-Y", "-o", "/dev/null", "true"]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip("needs strace 5.16 or later, and to be let trace");
        return None;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-Y", "-o"]).arg(log.path()).arg(env::current_exe().unwrap());
    run(&mut strace, role, COUNTED_ROUNDS);
    let log = std::fs::read_to_string(log.path()).unwrap();
    let parts: Vec<&str> = log.split(MARK).collect();
    let counts: Vec<_> = parts[1..parts.len() - 1].iter().map(|round| by_name(round)).collect();
    assert_eq!(counts.len(), COUNTED_ROUNDS);
    Some(counts)
}

fn sum(counts: &BTreeMap<String, usize>) -> usize {
    counts.values().sum()
}

/// Returns how many system calls of each name, and futex calls of each operation, begin between two marks in
/// strace's log, but for threads that act by the clock. A line is `PID<THREAD> NAME(ARGUMENTS…`. The first
/// line is the rest of a mark, and the last line is the beginning of one.
fn by_name(log: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines[1..lines.len() - 1] {
        let Some((thread, rest)) = line.split_once("> ") else { continue };
        let name = rest.split('(').next().unwrap_or_default().trim();
        // A line without a name is the end of a system call, or a signal.
        let begins = rest.contains('(') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if begins && !BY_THE_CLOCK.iter().any(|clock| thread.ends_with(clock)) {
            let name = match (name, rest.split(", ").nth(1)) {
                ("futex", Some(operation)) => format!("futex {operation}"),
                _ => name.to_owned(),
            };
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// Returns how many system calls both ends make in all, in threads that act for calls and in those that act
/// by the clock. Returns `None` if they cannot be counted here.
fn count_by_tracepoint(rounds: usize) -> Option<[u64; 2]> {
    let filters = [
        BY_THE_CLOCK.map(|thread| format!("comm != \"{thread}\"")).join(" && "),
        BY_THE_CLOCK.map(|thread| format!("comm == \"{thread}\"")).join(" || "),
    ];
    let report = tempfile::NamedTempFile::new().unwrap();
    let perf = || {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x", ";", "-o"]).arg(report.path());
        for filter in &filters {
            perf.args(["-e", "raw_syscalls:sys_enter", "--filter", filter]);
        }
        perf
    };
    let tried = perf().arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip("needs perf, and to be let count raw_syscalls:sys_enter");
        return None;
    }
    run(perf().arg(env::current_exe().unwrap()), "caller that makes rounds", rounds);
    let report = std::fs::read_to_string(report.path()).unwrap();
    let count = |line: &str| line.split(';').next().and_then(|count| count.parse().ok());
    let counts: Vec<u64> = report.lines().filter_map(count).collect();
    Some(counts.try_into().unwrap_or_else(|_| panic!("two counts are expected: {report}")))
}
