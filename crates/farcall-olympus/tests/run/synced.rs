//! Tests that a journal that is to outlive a loss of power is on the disk: strace shows what was asked of the
//! system.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use farcall_olympus::journal::{Journal, Record};

/// The journal that the traced process writes.
const PLACE: &str = "FARCALL_TEST_SYNCED";

/// Not a test by itself: the process that the test traces.
#[test]
fn a_process_that_is_traced() {
    let Some(path) = env::var_os(PLACE).map(PathBuf::from) else { return };
    let mut journal = Journal::create(&path).unwrap().synced().unwrap();
    journal.add(&Record::Call { firing: 1, again: false });
    journal.flush().unwrap();
}

#[test]
fn the_name_and_the_records_of_a_synced_journal_are_on_the_disk() {
    let directory = env::temp_dir().join(format!("olympus-synced-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let trace = directory.join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o"]).arg(&trace);
    strace.arg(env::current_exe().unwrap()).args(["--exact", "synced::a_process_that_is_traced"]);
    let ended = match strace.env(PLACE, directory.join("run.journal")).output() {
        Ok(ended) => ended,
        Err(why) => return println!("skipped: strace cannot be run: {why}"),
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("PTRACE") {
        return println!("skipped: no process may be traced here: {said}");
    }
    assert!(ended.status.success(), "{said}");
    let trace = std::fs::read_to_string(&trace).unwrap();
    let directory_path = directory.canonicalize().unwrap();
    let at = |what: &str, path: &str| {
        let line = trace.lines().position(|line| line.contains(what) && line.contains(&format!("<{path}>")));
        line.unwrap_or_else(|| panic!("no {what} of {path}: {trace}"))
    };
    let journal = directory_path.join("run.journal");
    let (name, journal) = (at("fsync(", directory_path.to_str().unwrap()), journal.to_str().unwrap());
    let (written, synced) = (at("write(", journal), at("fdatasync(", journal));
    assert!(name < written && written < synced, "{trace}");
    std::fs::remove_dir_all(&directory).unwrap();
}
