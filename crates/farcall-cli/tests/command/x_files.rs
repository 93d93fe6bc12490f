//! Tests `.x` files: `gen`, `describe`, and that the Rust of real files compiles without warnings.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Place;
use crate::corpus::{collect, compile};

const CALC: &str = "
/* How many operands. */
const MAX_OPERANDS = LIMIT;
enum status { OK, /* fine */ OVERFLOW = 5 };
union result switch (status stat) { case OK: hyper sum; default: void; };
struct operands { int each<MAX_OPERANDS>; };
program CALC { version CALC_V1 {
    void NULL(void) = 0;
    /* Adds them up. */
    result ADD(operands) = 1;
} = 1; } = 0x20000099;
";

#[test]
fn rust_is_made_of_a_file() {
    let place = Place::new();
    place.write("calc.x", CALC);
    let rust = place.run(&["gen", "calc.x", "-D", "LIMIT=4"]).ok();
    for expected in [
        "//! Made of `calc.x` by farcall.",
        "/// How many operands.\npub const MAX_OPERANDS: u32 = 4;",
        "pub enum Status",
        "#[xdr(max = 4)]",
        "pub trait CalcV1",
        "    /// Adds them up.\n",
    ] {
        assert!(rust.contains(expected), "{expected:?} is not in {rust}");
    }
    let said =
        place.run(&["gen", "calc.x", "-DLIMIT=4", "-o", "calc.rs", "--async", "--farcall", "crate::far"]);
    assert_eq!((said.ok().as_str(), place.path("calc.rs").exists()), ("", true));
    let written = String::from_utf8(place.read("calc.rs")).unwrap();
    assert!(written.contains("crate::far::interface") && written.contains("interface(async"), "{written}");
}

#[test]
fn known_protocols_need_no_file_and_programs_are_numbered_as_people_do() {
    let place = Place::new();
    let rust = place.run(&["gen", "mount"]).ok();
    assert!(
        rust.starts_with("//! Made of an `.x` file") && rust.contains("program = 100005, version = 3"),
        "{rust}"
    );
    assert!(place.run(&["gen", "mount", "--to", "x"]).ok().ends_with("} = 100005;\n"));
    place.write("calc.x", CALC);
    let rust = place.run(&["gen", "calc.x", "-D", "LIMIT=4"]).ok();
    assert!(rust.contains("program = 0x20000099, version = 1") && rust.contains("(0x20000099)"), "{rust}");
    assert!(place.run(&["gen", "calc.x", "-D", "LIMIT=4", "--to", "x"]).ok().ends_with("} = 0x20000099;\n"));
}

#[test]
fn an_x_file_made_of_an_x_file_means_the_same() {
    let place = Place::new();
    place.write("calc.x", CALC);
    let made = place.run(&["gen", "--to", "x", "calc.x", "-D", "LIMIT=4", "-o", "again.x"]);
    assert_eq!(made.ok(), "");
    let json = place.run(&["describe", "again.x", "--json"]).json();
    assert_eq!(json[0]["program"]["number"], 0x2000_0099);
    assert_eq!(json[0]["procedures"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_x_file_that_is_written_keeps_names_and_can_be_read_back() {
    let place = Place::new();
    for protocol in ["mount", "nfs3", "rpcbind", "vxi11"] {
        let file = format!("{protocol}.x");
        assert_eq!(place.run(&["gen", protocol, "--to", "x", "-o", &file]).ok(), "");
        let [before, after] = [protocol, &file].map(|name| place.run(&["describe", name, "--json"]).json());
        let facts = |versions: &[serde_json::Value]| -> Vec<_> {
            let signature = |procedure: &serde_json::Value| {
                (procedure["spelled"].clone(), procedure["signature"].clone())
            };
            let of_version = |version: &serde_json::Value| {
                let procedures =
                    version["procedures"].as_array().unwrap().iter().map(signature).collect::<Vec<_>>();
                (version["program"].clone(), version["version"].clone(), procedures)
            };
            versions.iter().map(of_version).collect()
        };
        assert_eq!(facts(&before), facts(&after), "{protocol}");
    }
    place.write("peer.x", "struct peer { sockaddr at; };");
    let said = place.run(&["gen", "peer.x", "--to", "x", "--external", "sockaddr"]);
    assert!(said.code == 1 && said.err.contains("`sockaddr` is declared elsewhere"), "{}", said.err);
    let say = |text: &str| {
        place.write("c.x", text);
        let said = place.run(&["gen", "c.x", "--to", "x"]);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{text}");
        said.err
    };
    for (text, why) in [
        ("struct nothing {};", "`nothing` has no fields"),
        ("struct q { quadruple q; };", "`quadruple`"),
        (
            "namespace a { enum e { RED }; } namespace b { enum f { RED }; }",
            "`RED` is the name of two things",
        ),
        ("const size = 4; struct s { int size; };", "`size` is the name of two things"),
        ("typedef int restrict;", "`restrict` cannot be a name in C"),
        ("typedef opaque bytes<>;", "`xdr_bytes`"),
        (
            "union u switch (bool more) { case TRUE: struct { u next; } e; case FALSE: void; };",
            "contains itself directly",
        ),
        (
            "program P { version V { void F(int<>) = 1; } = 1; } = 1;",
            "an argument of `F` has no name of its own",
        ),
    ] {
        assert!(say(text).contains(why), "{text}: {}", say(text));
    }
}

#[test]
fn versions_of_files_are_compared_with_their_numbers() {
    let place = Place::new();
    let one = |program: u32, version: u32, name: &str| {
        format!("program CALC {{ version {name} {{ int ADD(int) = 1; }} = {version}; }} = {program};")
    };
    place.write("old.x", one(7, 1, "V"));
    place.write("old.json", place.run(&["describe", "old.x", "--json"]).ok());
    place.write("same.x", one(7, 1, "V"));
    place.write("program.x", one(8, 1, "V"));
    place.write("version.x", one(7, 2, "V"));
    place.write("both.x", one(9, 3, "W"));
    place.write("renamed.x", one(7, 1, "W"));
    place.write("types.x", "typedef int number;");
    place.write(
        "more.x",
        "program CALC { version V { int ADD(int) = 1; } = 1; version W { int ADD(hyper) = 1; } = 2; } = 7;",
    );
    place.write("more.json", place.run(&["describe", "more.x", "--json"]).ok());
    let program = "breaking: V: program 7 became 8: old callers ask for 7\n";
    let version = "breaking: V: version 1 became 2: old callers ask for 1\n";
    for old in ["old.x", "old.json"] {
        for (new, code, expected) in [
            ("same.x", 0, "no difference\n".to_owned()),
            ("program.x", 1, format!("{program}1 change breaks old callers\n")),
            ("version.x", 1, format!("{version}1 change breaks old callers\n")),
            (
                "both.x",
                1,
                "breaking: V: program 7 became 9: old callers ask for 7\n\
                 breaking: V: version 1 became 3: old callers ask for 1\n\
                 fine: V: is named W now\n2 changes break old callers\n"
                    .to_owned(),
            ),
            ("renamed.x", 0, "fine: V: is named W now\nnothing breaks\n".to_owned()),
            ("more.x", 0, "fine: W: is new\nnothing breaks\n".to_owned()),
            ("more.json", 0, "fine: W: is new\nnothing breaks\n".to_owned()),
        ] {
            let said = place.run(&["check", old, new]);
            assert_eq!((said.code, said.out, said.err), (code, expected, String::new()), "{old} {new}");
        }
    }
    let said = place.run(&["check", "more.x", "old.x"]);
    assert_eq!((said.code, &said.out[..]), (1, "breaking: W: is gone\n1 change breaks old callers\n"));
    let said = place.run(&["check", "old.x", "types.x"]);
    assert!(said.code == 1 && said.err.contains("types.x has no program"), "{said:?}");
    let said = place.run(&["check", "nowhere.x", "old.x"]);
    assert!(said.code == 1 && said.err.contains("nowhere.x"), "{said:?}");
}

#[test]
fn what_is_wrong_is_underlined_and_what_is_left_out_is_told() {
    let place = Place::new();
    place.write("wrong.x", "struct s { int a };\n");
    let said = place.run(&["gen", "wrong.x"]);
    let expected = "error: `;` should stand here
 --> wrong.x:1:18
  |
1 | struct s { int a };
  |                  ^

farcall: wrong.x cannot be read as an .x file\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (1, "", expected));
    let said = place.run(&["--json", "gen", "wrong.x"]);
    let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(error["error"]["faults"][0]["line"], 1);

    place.write("calc.x", CALC);
    for nothing in ["nowhere.x", "nfs4"] {
        let said = place.run(&["gen", nothing]);
        let expected = format!("farcall: {nothing}: No such file or directory (os error 2)\nhint: ");
        assert!(
            said.code == 1 && said.err.starts_with(&expected) && said.err.contains("nfs3"),
            "{}",
            said.err
        );
    }
    assert_eq!(place.run(&["gen", "calc.x", "-D", "1=2"]).code, 2);
}

#[test]
fn names_that_are_declared_nowhere_are_refused_unless_they_are_left_to_the_user() {
    let place = Place::new();
    place.write("calc.x", CALC);
    for command in [&["gen", "calc.x"][..], &["gen", "calc.x", "--to", "x"], &["describe", "calc.x"]] {
        let said = place.run(command);
        assert_eq!((said.code, said.out.as_str()), (1, ""));
        let [first, _, _, line] = said.err.lines().take(4).collect::<Vec<_>>()[..] else {
            panic!("{}", said.err)
        };
        assert_eq!(first, "error: no constant `LIMIT` is declared");
        assert_eq!(line, "3 | const MAX_OPERANDS = LIMIT;");
        assert!(said.err.contains("`-D LIMIT=VALUE`"), "{}", said.err);
    }
    place.write("peer.x", "typedef string name<>;\nstruct peer { sockaddr at; name name; };\n");
    for command in ["gen", "describe"] {
        let said = place.run(&[command, "peer.x"]);
        assert!(
            said.code == 1 && said.err.starts_with("error: no type `sockaddr` is declared"),
            "{}",
            said.err
        );
        let said = place.run(&["--json", command, "peer.x"]);
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["error"]["faults"][0]["undeclared_type"], "sockaddr");
        let made = place.run(&[command, "peer.x", "--external", "sockaddr"]).ok();
        assert!(made.contains("/// `sockaddr`, which is declared elsewhere. It has no values"), "{made}");
    }
    let made = place.run(&["gen", "peer.x", "--extern", "sockaddr=std::net::SocketAddr"]).ok();
    assert!(made.contains("pub at: std::net::SocketAddr"), "{made}");
}

#[test]
fn a_file_is_described() {
    let place = Place::new();
    place.write("calc.x", CALC);
    place.write("types.x", "/* A point. */ struct point { int x; int y; }; typedef point *next;");
    let text = place.run(&["describe", "calc.x", "-D", "LIMIT=4"]).ok();
    for expected in
        ["interface CalcV1 {", "1  add(operands: Operands) -> Result", "each: i32<4>", "/// Adds them up."]
    {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let json = &place.run(&["describe", "calc.x", "-D", "LIMIT=4", "--json"]).json()[0];
    assert_eq!(
        (&json["program"]["number"], &json["version"]["name"]),
        (&0x2000_0099.into(), &"CALC_V1".into())
    );
    assert_eq!(json["procedures"][1]["spelled"], "ADD");
    let text = place.run(&["describe", "types.x"]).ok();
    assert!(text.contains("/// A point.\nstruct Point {\n    x: i32\n"), "{text}");
}

/// The Rust of a file of each dialect (`farcall-onc/tests/dialects`) compiles without warnings. So does that
/// of the files under `$FARCALL_X_CORPUS`, if it is set: of all that rpcgen accepts, and of at least half of
/// those that it refuses. Prints a table by file, with the names that C's headers declare and that are left
/// to the user.
#[test]
fn what_is_made_of_files_of_all_dialects_compiles() {
    let dialects = Path::new(env!("CARGO_MANIFEST_DIR")).join("../farcall-onc/tests/dialects");
    let mut files = Vec::new();
    collect(&dialects, &["x"], &mut files);
    let own = files.len();
    let corpus = std::env::var_os("FARCALL_X_CORPUS").map(PathBuf::from).filter(|corpus| corpus.is_dir());
    match &corpus {
        Some(corpus) => collect(corpus, &["x", "rpcl"], &mut files),
        None => {
            let _ = writeln!(std::io::stderr(), "skipped: FARCALL_X_CORPUS names no directory of .x files");
        }
    }
    files[own..].sort();

    let place = Place::new();
    let mut made = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let output = place.path(&format!("src/f{number}.rs"));
        place.write(&format!("src/f{number}.rs"), "");
        let more: &[&str] = if number < own { &["--async"] } else { &[] };
        made.push(makes(&place, file, &output, more));
    }
    let failing = compile(&place, &made);

    let mut table = String::new();
    let (mut missed, mut refused, mut ours) = (Vec::new(), 0, 0);
    for (number, file) in files.iter().enumerate() {
        let compiles = made[number] && !failing.contains(&number);
        assert!(compiles || number >= own, "{} does not compile", file.display());
        if number < own {
            continue;
        }
        let peer = rpcgen(file);
        let name =
            corpus.as_ref().and_then(|corpus| file.strip_prefix(corpus).ok()).unwrap_or(file).display();
        let told = |yes: bool| if yes { "yes" } else { "-" };
        let _ = writeln!(
            table,
            "{:<7} {:<6} {:<9} {name}",
            peer.map_or("?", told),
            told(made[number]),
            told(compiles)
        );
        match peer {
            Some(true) if !compiles => missed.push(name.to_string()),
            Some(false) => {
                refused += 1;
                ours += usize::from(compiles);
            }
            _ => {}
        }
    }
    println!("{:<7} {:<6} {:<9} file\n{table}", "rpcgen", "made", "compiles");
    println!(
        "{own} files of our own, and {} others; {ours} compile of {refused} that rpcgen refuses",
        files.len() - own
    );
    assert_eq!(missed, Vec::<String>::new(), "taken by rpcgen, but not by us");
    assert!(ours * 2 >= refused);
}

/// Generates Rust from a file, with `more` options. Names in a refusal come from C's headers: a type is left
/// without values, and a constant gets a value of its own. Returns whether that succeeded.
fn makes(place: &Place, file: &Path, output: &Path, more: &[&str]) -> bool {
    let mut given = Vec::new();
    loop {
        let mut command = vec!["--json", "gen", file.to_str().unwrap(), "-o", output.to_str().unwrap()];
        command.extend(given.iter().map(String::as_str).chain(more.iter().copied()));
        let said = place.run(&command);
        if said.code == 0 {
            if !given.is_empty() {
                println!("{}: {}", file.display(), given.join(" "));
            }
            return true;
        }
        let error: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
        let before = given.len();
        for fault in error["error"]["faults"].as_array().into_iter().flatten() {
            let constants = given.iter().filter(|option| *option == "-D").count();
            match (fault["undeclared_type"].as_str(), fault["undeclared_constant"].as_str()) {
                (Some(name), _) => given.extend(["--external".into(), name.into()]),
                (_, Some(name)) => given.extend(["-D".into(), format!("{name}={}", 1000 + constants)]),
                _ => return false,
            }
        }
        if given.len() == before {
            return false;
        }
    }
}

/// Returns whether rpcgen accepts a file, in its old or its new style. Returns `None` if there is no rpcgen.
fn rpcgen(file: &Path) -> Option<bool> {
    let run = |style: &str| {
        let mut command = Command::new("rpcgen");
        command.args([style, "-h"]).arg(file.file_name()?).current_dir(file.parent()?);
        command.output().ok().map(|output| output.status.success())
    };
    Some(run("-C")? || run("-N")?)
}
