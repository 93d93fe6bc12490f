//! Tests the command line: help, usage, completions.

use crate::common::Place;

const SUBCOMMANDS: [&str; 16] = [
    "demo",
    "serve",
    "ls",
    "cat",
    "get",
    "call",
    "describe",
    "ping",
    "names",
    "clerk",
    "top",
    "debug",
    "check",
    "dump",
    "gen",
    "completions",
];

#[test]
fn help_names_every_subcommand_and_documents_the_exit_codes() {
    let place = Place::new();
    let help = place.run(&["--help"]).ok();
    for subcommand in SUBCOMMANDS {
        assert!(help.contains(&format!("\n  {subcommand} ")), "{subcommand} is not in {help}");
        let own = place.run(&[subcommand, "--help"]).ok();
        assert!(own.contains("Usage: farcall ") && own.contains("--json"), "{own}");
    }
    assert!(help.contains("Exit codes:") && help.contains("FARCALL_REGISTRY"), "{help}");
    assert!(!help.contains("__demo"), "what is hidden stays hidden");
    assert!(place.run(&["--version"]).ok().starts_with("farcall 0."));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let place = Place::new();
    for arguments in
        [&["nonsense"][..], &[], &["cat"], &["ping", "x", "-c", "0"], &["ls", "--within", "soon"]]
    {
        assert_eq!(place.run(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn no_terminal_breaks_the_lines_of_the_help_and_it_has_all_variables() {
    let place = Place::new();
    let help = |arguments: &[&str]| {
        crate::common::Said::of(place.command(arguments).env("COLUMNS", "80").output().unwrap()).ok()
    };
    let mut all = vec![help(&["--help"])];
    for part in ["keys", "olympus"] {
        if cfg!(all(feature = "keys", feature = "olympus")) {
            all.push(help(&[part, "--help"]));
        }
    }
    for text in &all {
        let own = ["Exit codes", "Environment", "Files", "Examples"];
        let lines = text.lines().skip_while(|line| !own.iter().any(|own| line.starts_with(own)));
        for line in lines.filter(|line| !line.is_empty()) {
            let is_heading = own.iter().any(|own| line.starts_with(own));
            assert!(line.chars().count() <= 80 && (is_heading || line.starts_with("  ")), "{line:?}");
        }
    }
    // The list of variables has each name in a line of its own.
    let source = std::fs::read_to_string("../farcall/src/origins.rs").unwrap();
    let names = source.lines().filter_map(|line| line.strip_prefix("    \"")?.strip_suffix("\","));
    let names = names.filter(|name| !name.starts_with("SIM_"));
    let absent = names.filter(|name| !all[0].contains(&format!("\n  FARCALL_{name}"))).collect::<Vec<_>>();
    assert_eq!(absent, [""; 0]);
}

#[test]
fn a_misspelt_variable_is_said_once() {
    let place = Place::new();
    place.write("notes/a", "a");
    let misspelt = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        crate::common::Said::of(command.env("FARCALL_OPNE", "1").output().unwrap())
    };
    let warning = "nothing reads the variable FARCALL_OPNE; FARCALL_OPEN may be meant";
    let said = misspelt(&["names"]);
    assert_eq!((said.code, said.err), (0, format!("farcall: {warning}\n")));
    let said = misspelt(&["--json", "names"]);
    let json: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(json["warning"]["message"], warning);

    let server = place.start_with(&["serve", "notes", "--name", "FileAccess/notes"], |command| {
        command.env("FARCALL_OPNE", "1")
    });
    let shown = place.run(&["debug", "FileAccess/notes"]).ok();
    assert!(shown.contains(&format!("\n{warning}\n")), "{shown}");
    drop(server);
}

#[test]
fn shells_can_complete() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.run(&["completions", shell]).ok();
        assert!(SUBCOMMANDS.iter().all(|subcommand| script.contains(subcommand)), "{shell}");
    }
}
