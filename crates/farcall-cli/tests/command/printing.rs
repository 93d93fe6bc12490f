//! What is printed cannot control a terminal, and what cannot be printed changes no exit code, and panics
//! nowhere.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::common::{Place, Said};

/// The end of a control sequence that clears the screen, after a CSI of one character (U+009B); and a
/// character that reverses what follows.
const ORDERS: &str = "\u{9b}2J\u{85}\u{202e}\u{2066}";

/// Returns a character that a terminal would obey, if there is one.
fn order(text: &str) -> Option<char> {
    text.chars().find(|c| {
        let ends_or_turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}');
        let isolates = matches!(c, '\u{2066}'..='\u{2069}');
        ends_or_turns || isolates || c.is_control() && *c != '\n'
    })
}

#[test]
fn a_file_cannot_control_the_terminal_through_a_diagnostic() {
    let place = Place::new();
    let x = format!("/* {ORDERS} */ struct s {{ int a; {ORDERS} unknown b; }};\n%raw {ORDERS}\n");
    place.write("bad.x", &x);
    place.write(
        "string.x",
        format!(
            "const A = \"{ORDERS}\";\nprogram P {{ version V {{ void F(t{ORDERS}) = 1; }} = 1; }} = 9;\n"
        ),
    );
    place.write(
        "bad.cr",
        format!("Bad: PROGRAM 3 VERSION 1 =\nBEGIN\n  -- {ORDERS}\n  x{ORDERS}: TYPE = ;\nEND.\n"),
    );
    place.write("bad.rpc2", format!("Server Prefix \"{ORDERS}\";\n{ORDERS} typedef RPC2_Integer x;\n"));
    place.write(&format!("named{ORDERS}.x"), "struct {");
    place.write("bad.olympus", format!("place p{ORDERS}\nnonsense {ORDERS}\n"));
    let named = format!("named{ORDERS}.x");
    let runs: [&[&str]; 9] = [
        &["gen", "bad.x"],
        &["gen", "string.x"],
        &["gen", "bad.cr"],
        &["gen", "bad.rpc2"],
        &["gen", &named],
        &["describe", "bad.x"],
        &["check", "bad.x", "bad.cr"],
        &["olympus", "check", "bad.olympus"],
        &["olympus", "show", "bad.olympus"],
    ];
    for run in runs {
        for json in [false, true] {
            let mut arguments = run.to_vec();
            if json {
                arguments.push("--json");
            }
            let said = place.run(&arguments);
            assert_eq!((order(&said.out), order(&said.err)), (None, None), "{arguments:?} {said:?}");
            assert_ne!(said.code, 0, "{arguments:?} {said:?}");
        }
    }
    let said = place.run(&["gen", "bad.x"]);
    assert!(said.err.contains("\\u{9b}") && said.err.contains("\\u{202e}"), "it is shown: {said:?}");
}

#[test]
fn words_of_the_command_line_cannot_control_the_terminal() {
    let place = Place::new();
    let runs: [&[&str]; 6] = [
        &[ORDERS],
        &["ls", "--nonsense", ORDERS],
        &["call", ORDERS, "f"],
        &["ping", ORDERS],
        &["names", ORDERS],
        &["gen", ORDERS],
    ];
    for run in runs {
        let said = place.run(run);
        assert_eq!((order(&said.out), order(&said.err)), (None, None), "{run:?} {said:?}");
        assert_ne!(said.code, 0, "{run:?}");
    }
}

#[test]
fn a_failure_that_cannot_be_printed_keeps_its_exit_code() {
    let place = Place::new();
    place.write("bad.x", "struct {");
    place.write("bad.olympus", "nonsense");
    let runs: [&[&str]; 7] = [
        &["nonsense"],
        &["call", "Nobody", "f"],
        &["ls", "--within", "soon"],
        &["gen", "bad.x"],
        &["gen", "missing.x"],
        &["olympus", "check", "bad.olympus"],
        &["call", "udp://[::1]:x/T", "f"],
    ];
    for run in runs {
        for json in [false, true] {
            let mut arguments = run.to_vec();
            if json {
                arguments.push("--json");
            }
            let code = place.run(&arguments).code;
            assert!((1..=6).contains(&code), "{arguments:?}");
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let unread = place.command(&arguments).stdin(Stdio::null()).stderr(full).output().unwrap();
            assert_eq!(unread.status.code(), Some(code), "{arguments:?}, full");
            let (reader, closed) = std::io::pipe().unwrap();
            drop(reader);
            let unread = place.command(&arguments).stdin(Stdio::null()).stderr(closed).output().unwrap();
            assert_eq!(unread.status.code(), Some(code), "{arguments:?}, closed");
        }
    }
}

#[test]
fn output_that_cannot_be_printed_is_a_failure() {
    let place = Place::new();
    place.write("good.x", "program P { version V { int F(int) = 1; } = 1; } = 9;\n");
    let runs: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["call", "--help"],
        &["help", "ls"],
        &["completions", "bash"],
        &["describe", "good.x"],
        &["gen", "good.x"],
        &["gen", "good.x", "--json"],
    ];
    for run in runs {
        assert_eq!(place.run(run).code, 0, "{run:?}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told = place.command(run).stdin(Stdio::null()).stdout(full).output().unwrap();
        assert_eq!(told.status.code(), Some(1), "{run:?}, full");
        assert!(String::from_utf8_lossy(&told.stderr).contains("space"), "{run:?} {told:?}");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let told = place.command(run).stdin(Stdio::null()).stdout(closed).output().unwrap();
        assert_eq!(told.status.code(), Some(1), "{run:?}, closed");
        // Neither can be printed.
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told = place.command(run).stdin(Stdio::null()).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(told.status.code(), Some(1), "{run:?}, both");
    }
}

/// Returns the command, run by a shell that closes its standard output or opens it to be read only.
#[cfg(target_os = "linux")]
fn without_output(place: &Place, run: &[&str], how: &str) -> Said {
    let command = place.command(run);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("exec \"$0\" \"$@\" {how}")])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let shell = shell.current_dir(place.path("")).stdin(Stdio::null());
    Said::of(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap())
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_is_closed_or_can_only_be_read_is_a_failure() {
    let place = Place::new();
    place.write("good.x", "program P { version V { int F(int) = 1; } = 1; } = 9;\n");
    let runs: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["help", "ls"],
        &["completions", "bash"],
        &["describe", "good.x"],
        &["gen", "good.x"],
        &["gen", "good.x", "--json"],
        &["check", "good.x", "good.x"],
    ];
    for run in runs {
        for how in [">&-", "1</dev/null"] {
            let said = without_output(&place, run, how);
            assert_eq!((said.code, said.out.as_str()), (1, ""), "{run:?} {how} {said:?}");
            assert!(said.err.contains("descriptor"), "{run:?} {how} {said:?}");
        }
        let said = without_output(&place, run, ">/dev/null");
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{run:?}, into a device that takes all");
    }
}

#[test]
#[cfg(all(target_os = "linux", feature = "keys"))]
fn a_new_key_that_cannot_be_shown_is_a_failure() {
    let place = Place::new();
    for (how, file) in [(">&-", "closed.key"), (">/dev/full", "full.key")] {
        let said = without_output(&place, &["keys", "authority", file], how);
        assert_eq!(said.code, 1, "{said:?}");
    }
}
