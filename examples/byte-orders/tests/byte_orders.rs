//! Words, records, rings, clerks' tables, counters and deposits between two processes over UDP: once of the
//! same byte order, and once of different orders, if `FARCALL_OTHER_END` has the command of an end that was
//! built for the other order (`scripts/byte-orders` builds and emulates one).
#![allow(missing_docs)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use farcall_byte_orders::End;

/// Runs an end in this process, and the other end as a command. Returns the other end's byte order.
fn meet(command: &[&str]) -> String {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut hear = move || from.next().expect("the other end has failed").unwrap();
    let end = End::new().unwrap();
    let first = hear();
    let (order, addresses) = first.split_once(' ').unwrap();
    writeln!(to, "{}", end.addresses()).unwrap();
    end.check(addresses).unwrap_or_else(|why| panic!("what the other end exports: {why}"));
    assert_eq!(hear(), "checked");
    writeln!(to).unwrap();
    end.check_changes().unwrap_or_else(|why| panic!("what the other end has changed: {why}"));
    assert_eq!(hear(), "done");
    writeln!(to).unwrap();
    assert!(child.wait().unwrap().success());
    order.to_owned()
}

#[test]
fn two_processes_of_one_byte_order() {
    let order = if cfg!(target_endian = "big") { "big" } else { "little" };
    assert_eq!(meet(&[env!("CARGO_BIN_EXE_farcall-byte-orders")]), order);
}

#[test]
fn two_processes_of_different_byte_orders() {
    let Ok(command) = std::env::var("FARCALL_OTHER_END") else {
        // Not `eprintln!`, which the test harness shows of failing tests only.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: ends of different byte orders (scripts/byte-orders runs them)"
        );
        return;
    };
    let order = if cfg!(target_endian = "big") { "little" } else { "big" };
    assert_eq!(meet(&command.split_whitespace().collect::<Vec<_>>()), order);
}
