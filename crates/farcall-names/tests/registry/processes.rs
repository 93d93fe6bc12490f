//! Tests several processes that use one registry: they write at the same time, are killed, and run out of
//! disk space.
//!
//! The test program runs itself again as the other processes. The variable `ROLE` selects the role of such a
//! process. The tests wait only by reading from a process or by reaping it.

use crate::common;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Scratch, entry, instances, label};
use farcall_names::{Entry, Error, File, Liveness, Owner, Registry};

const ROLE: &str = "FARCALL_NAMES_TEST_ROLE";
const DIRECTORY: &str = "FARCALL_NAMES_TEST_DIRECTORY";
const INSTANCE: &str = "FARCALL_NAMES_TEST_INSTANCE";

const WRITERS: usize = 8;
const ROUNDS: usize = 50;

/// Another process that uses the same registry. It is killed when this is dropped.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(role: &str, directory: &Path, instance: &str) -> Self {
        Self::run(&mut program(role), directory, instance)
    }

    fn run(command: &mut Command, directory: &Path, instance: &str) -> Self {
        let command = command.env(DIRECTORY, directory).env(INSTANCE, instance);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits until the process has printed `what`. Returns false if the process ended before.
    fn says(&mut self, what: &str) -> bool {
        self.lines.by_ref().any(|line| line.unwrap().ends_with(what))
    }

    /// Ends the process's `wait_for_parent`. Returns whether the process succeeded.
    fn finish(&mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command that runs this program in a role.
fn program(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments()).env(ROLE, role);
    command
}

fn arguments() -> [&'static str; 3] {
    ["--exact", "processes::plays_its_role", "--nocapture"]
}

/// Runs the role of another process. It is not a test itself.
#[test]
fn plays_its_role() {
    let Ok(role) = env::var(ROLE) else { return };
    let registry = File::at(env::var_os(DIRECTORY).unwrap());
    let instance = env::var(INSTANCE).unwrap();
    match role.as_str() {
        "writer" => write_often(&registry, &instance),
        "holder" => hold(&registry, &instance),
        "churner" => churn(&registry, &instance),
        "exclusive rival" => vie_exclusively(&registry, &instance),
        "rival" => vie(&registry, &instance),
        "starved" => starve(&registry, &instance),
        "filler" => fill(&registry),
        "locator" => say(File::of_user().directory().to_str().unwrap()),
        "stranger" => meet_unreadable(&registry),
        "former" => execute_another(&registry, &instance),
        "many" => count_the_work_of_many(&registry),
        other => panic!("no such role: {other}"),
    }
}

fn say(what: &str) {
    println!("\n{what}");
}

fn wait_for_parent() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn write_often(registry: &File, instance: &str) {
    let ty = label("FileAccess");
    for round in 0..ROUNDS {
        let name = format!("{instance}-{round}");
        let registration = registry.publish(&entry(&name)).unwrap();
        assert!(registry.lookup(&ty, &label(&name)).unwrap().is_some(), "{name} was lost");
        assert!(registration.withdraw().unwrap(), "{name} was lost");
        assert!(registry.lookup(&ty, &label(&name)).unwrap().is_none(), "{name} came back");
    }
    hold(registry, instance);
}

fn hold(registry: &File, instance: &str) {
    let _registration = registry.publish(&entry(instance)).unwrap();
    say("published");
    wait_for_parent();
}

/// Tries to publish a name that another process holds.
fn vie(registry: &File, instance: &str) {
    match registry.publish(&entry(instance)) {
        Err(Error::Taken { .. }) => say("it is taken"),
        other => panic!("{other:?}"),
    }
}

/// Tries to publish a name exclusively that another process holds.
fn vie_exclusively(registry: &File, instance: &str) {
    match registry.publish_exclusively(&entry(instance)) {
        Err(Error::Taken { .. }) => say("it is taken"),
        other => panic!("{other:?}"),
    }
}

/// Returns the command that runs this program in a role, in a time namespace of its own in which the machine
/// seems to run for so many seconds longer.
fn at_another_time(role: &str, seconds: i64) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", &seconds.to_string(), "--"]).arg(env::current_exe().unwrap());
    command.args(arguments()).env(ROLE, role);
    command
}

#[test]
fn an_owner_in_another_time_namespace_is_alive_and_keeps_its_name() {
    let probe = Command::new("unshare").args(["--time", "--boottime", "1000", "--", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return common::skip("no time namespace can be made here");
    }
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    for (which, seconds) in [100_000, 7].into_iter().enumerate() {
        // The owner is there, and everybody else is here.
        let there = format!("there-{which}");
        let mut owner = Other::run(&mut at_another_time("holder", seconds), &directory, &there);
        assert!(owner.says("published"));
        assert!(instances(&registry.list().unwrap().entries).contains(&&*there), "it is listed");
        assert!(matches!(registry.publish(&entry(&there)), Err(Error::Taken { .. })));
        let mut rival = Other::run(&mut at_another_time("rival", seconds + 1), &directory, &there);
        assert!(rival.says("it is taken") && rival.finish());
        assert!(owner.finish());
        drop(registry.publish(&entry(&there)).unwrap());
        // The owner is here, and the rival is there.
        let here = format!("here-{which}");
        let held = registry.publish(&entry(&here)).unwrap();
        let mut rival = Other::run(&mut at_another_time("rival", seconds), &directory, &here);
        assert!(rival.says("it is taken") && rival.finish());
        assert!(instances(&registry.list().unwrap().entries).contains(&&*here));
        drop(held);
    }
    // An owner that was killed there is dead here, and its name is free.
    let mut killed = Other::run(&mut at_another_time("holder", 100_000), &directory, "killed");
    assert!(killed.says("published"));
    killed.kill();
    drop(registry.publish(&entry("killed")).unwrap());
}

/// Returns the command that runs this program in a role, in a process namespace of its own, as a container
/// is.
fn in_a_container(role: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(env::current_exe().unwrap());
    command.args(arguments()).env(ROLE, role);
    command
}

#[test]
fn an_owner_in_another_process_namespace_is_listed_and_loses_its_name_only_to_exports_that_share() {
    let probe = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "--", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return common::skip("no process namespace can be made here");
    }
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let mut owner = Other::run(&mut in_a_container("holder"), &directory, "there");
    assert!(owner.says("published"));
    let listed = registry.list().unwrap().entries;
    assert_eq!(instances(&listed), ["there"]);
    assert_eq!(listed[0].owner.liveness(), Liveness::Unknown);
    assert!(matches!(registry.publish_exclusively(&entry("there")), Err(Error::Taken { .. })));
    let replaced = registry.publish(&entry("there")).unwrap();
    assert!(owner.finish());
    assert_eq!(registry.list().unwrap().entries[0].owner, Owner::current(), "it removes its own entry alone");
    // The same the other way round.
    let mut rival = Other::run(&mut in_a_container("exclusive rival"), &directory, "there");
    assert!(rival.says("it is taken") && rival.finish());
    let mut other = Other::run(&mut in_a_container("holder"), &directory, "there");
    assert!(other.says("published"));
    assert!(!replaced.withdraw().unwrap() && other.finish());
}

fn churn(registry: &File, instance: &str) {
    loop {
        let registration = registry.publish(&entry(instance)).unwrap();
        say("round");
        drop(registration);
    }
}

#[test]
fn many_processes_write_at_once_and_nothing_is_lost() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    drop(registry.publish(&entry("first")).unwrap());
    let before = registry.version().unwrap();
    let mut writers: Vec<_> =
        (0..WRITERS).map(|i| Other::start("writer", &directory, &format!("writer{i}"))).collect();

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A concurrent reader never sees half a file.
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                registry.list().unwrap();
            }
        });
        let all_said = writers.iter_mut().all(|w| w.says("published"));
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        assert!(all_said, "a writer failed");
    });

    let expected: Vec<_> = (0..WRITERS).map(|i| format!("writer{i}")).collect();
    let listing = registry.list().unwrap();
    assert_eq!(instances(&listing.entries), expected);
    let changes = WRITERS * (2 * ROUNDS + 1);
    assert_eq!(listing.version - before, changes as u64, "a change was lost");

    assert!(writers.iter_mut().all(Other::finish));
    assert_eq!(registry.list().unwrap().entries, []);
}

#[test]
fn the_entry_of_a_killed_exporter_is_skipped_and_purged() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let ty = label("FileAccess");
    let mut exporter = Other::start("holder", &directory, "ebbets");
    assert!(exporter.says("published"));
    let found = registry.lookup(&ty, &label("ebbets")).unwrap().expect("it lives");
    assert_eq!(found.owner.pid, exporter.child.id());

    // The exporter is dead, although its parent has not reaped it yet.
    exporter.child.kill().unwrap();
    let pid = rustix::process::Pid::from_child(&exporter.child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
    if found.owner.started != 0 {
        assert_eq!(registry.lookup(&ty, &label("ebbets")).unwrap(), None, "a zombie exports nothing");
    }
    exporter.child.wait().unwrap();
    assert_eq!(registry.lookup(&ty, &label("ebbets")).unwrap(), None);
    assert_eq!(registry.instances(&ty).unwrap(), []);

    let names = directory.join("names");
    assert!(fs::read_to_string(&names).unwrap().contains("ebbets"));
    let _other = registry.publish(&entry("luther")).unwrap();
    assert!(fs::read_to_string(&names).unwrap().contains("\n-FileAccess/ebbets "));
}

#[test]
fn a_name_of_a_live_process_is_refused_and_that_of_a_dead_one_is_not() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let mut exporter = Other::start("holder", &directory, "ebbets");
    assert!(exporter.says("published"));

    let pid = exporter.child.id();
    let error = registry.publish(&entry("ebbets")).unwrap_err();
    assert!(matches!(&error, Error::Taken { owner, .. } if owner.pid == pid), "{error:?}");
    let said = error.to_string();
    assert_eq!(
        said,
        format!("FileAccess/ebbets is already exported by process {pid} at udp://127.0.0.1:7000")
    );
    let error = registry.withdraw(&label("FileAccess"), &label("ebbets")).unwrap_err();
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");

    exporter.kill();
    let _ours = registry.publish(&entry("ebbets")).unwrap();
    assert_eq!(registry.list().unwrap().entries[0].owner.pid, std::process::id());
}

/// Publishes a name, and executes another program in this process without withdrawing it.
fn execute_another(registry: &File, instance: &str) {
    use std::os::unix::process::CommandExt;
    std::mem::forget(registry.publish(&entry(instance)).unwrap());
    panic!("{}", program("holder").exec());
}

#[test]
fn what_a_former_program_of_the_process_published_is_replaced() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let mut process = Other::start("former", &directory, "ebbets");
    assert!(process.says("published"));
    assert!(process.finish());
    assert_eq!(File::at(&directory).list().unwrap().entries, []);
}

#[test]
fn killing_writers_at_any_moment_leaves_a_registry_that_reads() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let mut steady = Other::start("holder", &directory, "steady");
    assert!(steady.says("published"));
    for round in 0..20 {
        let mut pair = ["a", "b"].map(|name| Other::start("churner", &directory, name));
        // The process is killed in another round each time. The scheduler decides at which moment within the
        // round.
        for _ in 0..=round % 5 {
            assert!(pair.iter_mut().all(|churner| churner.says("round")));
        }
        pair.iter_mut().for_each(Other::kill);
        let ours = registry.publish(&entry("ours")).unwrap();
        assert_eq!(instances(&registry.list().unwrap().entries), ["ours", "steady"]);
        assert!(ours.withdraw().unwrap());
    }
    assert!(steady.finish());
    assert_eq!(registry.list().unwrap().entries, []);
}

/// Checks the registry when no byte can be written to a file. This simulates a full disk without the
/// privilege to fill one.
fn starve(registry: &File, instance: &str) {
    let error = registry.publish(&entry(instance)).unwrap_err();
    assert!(
        matches!(&error, Error::Io { doing: "writing", path, .. } if path.ends_with("names")),
        "{error:?}"
    );
    say(&format!("refused: {error}"));
}

#[test]
fn when_nothing_can_be_written_the_old_content_is_kept() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    let before = fs::read_to_string(directory.join("names")).unwrap();

    let mut limited = Command::new("sh");
    limited.args(["-c", r#"trap "" XFSZ; ulimit -f 0; exec "$@""#, "sh"]);
    limited.arg(env::current_exe().unwrap()).args(arguments()).env(ROLE, "starved");
    let mut starved = Other::run(&mut limited, &directory, "luther");
    assert!(starved.finish(), "it did not end as it should");
    assert_eq!(fs::read_to_string(directory.join("names")).unwrap(), before);
    assert!(!directory.join("names.new").exists(), "the unfinished file was left");
    assert_eq!(instances(&registry.list().unwrap().entries), ["ebbets"]);
}

/// Publishes until the disk is full. Then checks that all entries but the last are there.
fn fill(registry: &File) {
    let mut kept = Vec::new();
    let error = loop {
        let mut large = entry(&format!("large{:03}", kept.len()));
        large.proof = vec![0xff; farcall_names::MAX_PROOF];
        match registry.publish(&large) {
            Ok(registration) => kept.push(registration),
            Err(error) => break error,
        }
    };
    let full = |e: &Error| matches!(e, Error::Io { doing: "writing", source, .. } if source.kind() == std::io::ErrorKind::StorageFull);
    assert!(full(&error), "{error:?}");
    assert!(!kept.is_empty());
    assert_eq!(registry.list().unwrap().entries.len(), kept.len());
    assert!(!registry.directory().join("names.new").exists());
    say("was full");
    // There must be room for a new file next to the old one, even for a shorter file.
    std::mem::forget(kept);
}

#[test]
fn a_full_disk_is_told_and_the_old_content_is_kept() {
    let scratch = Scratch::new();
    let disk = scratch.join("disk");
    fs::create_dir(&disk).unwrap();
    // The test runs in a mount namespace of its own, so that nothing is left behind. No privilege is needed
    // if the system allows user namespaces.
    let script = r#"mount -t tmpfs -o size=32k none "$0" && echo mounted && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&disk);
    command.arg(env::current_exe().unwrap()).args(arguments()).env(ROLE, "filler").stderr(Stdio::inherit());
    if Command::new("unshare").arg("--version").output().is_err() {
        return common::skip("there is no unshare program to make a small disk with");
    }
    let mut filler = Other::run(&mut command, &disk.join("registry"), "");
    if !filler.says("mounted") {
        return common::skip("no small disk can be mounted here");
    }
    assert!(filler.says("was full"));
    assert!(filler.finish());
}

/// Checks the registry in a directory of this user with a file that this user may not read.
fn meet_unreadable(registry: &File) {
    for result in [registry.list().map(drop), registry.publish(&entry("luther")).map(drop)] {
        let error = result.unwrap_err();
        let denied = matches!(&error, Error::Io { path, source, .. }
            if path.ends_with("names") && source.kind() == std::io::ErrorKind::PermissionDenied);
        assert!(denied, "{error:?}");
    }
    say("was denied");
}

#[test]
fn an_unreadable_file_is_told_and_kept() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65534;
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let kept = registry.publish(&entry("ebbets")).unwrap();
    let names = directory.join("names");
    let before = fs::read(&names).unwrap();
    fs::set_permissions(&names, fs::Permissions::from_mode(0o000)).unwrap();

    let mut stranger = program("stranger");
    let privileged = fs::read(&names).is_ok();
    if privileged {
        // This process may read everything, so another user must try.
        for path in [&directory, &directory.join("lock"), &directory.join("next")] {
            if let Err(why) = chown(path, Some(NOBODY), None) {
                return common::skip(&format!("we read every file, and can give nobody one: {why}"));
            }
        }
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        stranger.uid(NOBODY).current_dir("/");
    }
    let stranger = stranger.env(DIRECTORY, &directory).env(INSTANCE, "").output();
    let output = match stranger {
        Err(e) => return common::skip(&format!("nobody cannot run this program: {e}")),
        Ok(output) => {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        }
    };
    assert!(output.contains("was denied"), "{output}");
    let _ = fs::set_permissions(&names, fs::Permissions::from_mode(0o600));
    assert_eq!(fs::read(&names).unwrap(), before);
    if privileged {
        chown(&directory, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    }
    assert!(kept.withdraw().unwrap());
}

#[test]
fn the_users_registry_is_in_the_runtime_directory_or_in_tmp() {
    let fallback = format!("/tmp/farcall-{}", rustix::process::geteuid().as_raw());
    for (runtime, expected) in
        [("/run/user/7", "/run/user/7/farcall"), ("", &fallback), ("relative", &fallback)]
    {
        let mut locator = program("locator");
        let mut locator = Other::run(locator.env("XDG_RUNTIME_DIR", runtime), Path::new("/"), "");
        assert!(locator.says(expected), "with {runtime:?} it is not {expected}");
    }
}

#[test]
fn registries_in_two_directories_are_two() {
    let scratch = Scratch::new();
    let (one, two) = (File::at(scratch.join("one")), File::at(scratch.join("two")));
    let _kept: [_; 2] = [(&one, "a"), (&two, "b")].map(|(r, i)| r.publish(&entry(i)).unwrap());
    let listed = |r: &File| -> Vec<Entry> { r.list().unwrap().entries };
    assert_eq!((instances(&listed(&one)), instances(&listed(&two))), (vec!["a"], vec!["b"]));
}

/// Returns how many bytes this process has read and written by system calls, and how many calls that took.
#[cfg(target_os = "linux")]
fn work_of_this_process() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().parse::<u64>().ok()
    };
    Some([field("rchar")? + field("wchar")?, field("syscr")? + field("syscw")?])
}

#[cfg(not(target_os = "linux"))]
fn work_of_this_process() -> Option<[u64; 2]> {
    None
}

/// Publishes, replaces, looks up and withdraws names, and says the work of a hundred of each among a hundred
/// other names, and among a thousand.
fn count_the_work_of_many(registry: &File) {
    let ty = label("FileAccess");
    let signed = |name: &str| {
        let mut entry = entry(name);
        entry.proof = vec![0xff; 400];
        entry
    };
    let mut kept = Vec::new();
    let mut fill = |upto: usize| {
        (kept.len()..upto).for_each(|n| kept.push(registry.publish(&signed(&format!("kept{n}"))).unwrap()));
    };
    for others in [100, 1_000] {
        fill(others);
        let Some(before) = work_of_this_process() else { return say("none") };
        for n in 0..100 {
            let registration = registry.publish(&signed(&format!("one{n}"))).unwrap();
            assert!(registration.renewal().unwrap().renew(&signed(&format!("one{n}"))).unwrap());
            assert!(registry.lookup(&ty, &label(&format!("one{n}"))).unwrap().is_some());
            assert!(registration.withdraw().unwrap());
        }
        let after = work_of_this_process().unwrap();
        say(&format!("work {} {}", after[0] - before[0], after[1] - before[1]));
    }
    wait_for_parent();
}

/// Counts the work, not the time: bytes and system calls.
#[test]
fn an_entry_costs_the_same_among_a_hundred_and_among_a_thousand() {
    let scratch = Scratch::new();
    let mut other = Other::start("many", &scratch.join("registry"), "");
    let mut work = || loop {
        let line = other.lines.next().expect("the other process ended too early").unwrap();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["work", bytes, calls] => {
                return Some([bytes, calls].map(|count| count.parse::<u64>().unwrap()));
            }
            ["none"] => return None,
            // The process prints an empty line before each word.
            _ => {}
        }
    };
    let Some(few) = work() else { return common::skip("there is no /proc/self/io here") };
    let many = work().unwrap();
    println!("100 times publish, renew, look up and withdraw: {few:?} among 100, {many:?} among 1,000");
    for (few, many) in few.into_iter().zip(many) {
        assert!(many <= 2 * few, "{few} and {many}");
    }
    assert!(other.finish());
}
