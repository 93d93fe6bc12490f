//! Tests `.cr` files: `gen`, `describe`, and that the Rust of real files compiles without warnings.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use crate::common::Place;
use crate::corpus::{collect, compile};

const CLOCK: &str = "Clock: PROGRAM 4000 VERSION 2 =
BEGIN
	DEPENDS UPON Time (15) VERSION 2;
	-- The clock has stopped. --
	Stopped: ERROR [since: Time.Time] = 3;
	-- Tells the time. --
	Ask: PROCEDURE [zone: STRING] RETURNS [now: Time.Time, exact: BOOLEAN] REPORTS [Stopped] = 0;
END.
";

const TIME: &str = "Time: PROGRAM 15 VERSION 2 =
BEGIN
	-- Seconds since the beginning of 1901. --
	Time: TYPE = LONG CARDINAL;
	earliestTime: Time = 2114294400;
END.
";

/// What `Clearinghouse3.cr` of the corpus needs of a program that is not in the corpus.
const AUTHENTICATION_3: &str = "Authentication: PROGRAM 14 VERSION 3 =
BEGIN
	Credentials: TYPE = RECORD [type: {simple(0), strong(1)}, value: SEQUENCE OF UNSPECIFIED];
	Verifier: TYPE = SEQUENCE 12 OF UNSPECIFIED;
	Problem: TYPE = {credentialsInvalid(0), verifierInvalid(1)};
END.
";

/// Returns a place with `Clock.cr`, and with the program that it depends upon in a directory.
fn with_clock() -> Place {
    let place = Place::new();
    place.write("Clock.cr", CLOCK);
    place.write("lib/Time2.cr", TIME);
    place
}

#[test]
fn rust_is_made_of_a_file() {
    let place = with_clock();
    let rust = place.run(&["gen", "Clock.cr", "-I", "lib"]).ok();
    for expected in [
        "//! Made of `Clock.cr` by farcall.",
        "/// The clock has stopped.\n    #[xdr(tag = 3)]\n    Stopped { since: time2::Time },",
        "#[::farcall::interface(program = 4000, version = 2)]\npub trait Clock {",
        "-> ::farcall::Result<AskResults, AskError>;",
        "pub mod time2 {",
        "    /// Seconds since the beginning of 1901.\n    pub type Time = u32;",
        "    pub const EARLIEST_TIME: Time = 2114294400;",
    ] {
        assert!(rust.contains(expected), "{expected:?} is not in {rust}");
    }
}

#[test]
fn a_file_is_described() {
    let place = with_clock();
    let text = place.run(&["describe", "Clock.cr", "-I", "lib"]).ok();
    for expected in ["interface Clock {", "0  ask(zone: string<65535>) -> AskResults", "/// Tells the time."]
    {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let json = &place.run(&["describe", "Clock.cr", "-I", "lib", "--json"]).json()[0];
    assert_eq!((&json["program"]["number"], &json["version"]["number"]), (&4000.into(), &2.into()));
    assert_eq!(json["procedures"][0]["spelled"], "Ask");
    assert!(place.run(&["describe", "lib/Time2.cr"]).ok().ends_with("1 types, no program\n"));
}

#[test]
fn what_is_wrong_is_underlined() {
    let place = with_clock();
    let said = place.run(&["gen", "Clock.cr"]);
    let expected = "error: no file was found for `Time: PROGRAM 15 VERSION 2`
 --> Clock.cr:3:15
  |
3 |     DEPENDS UPON Time (15) VERSION 2;
  |                  ^^^^
";
    assert!(said.code == 1 && said.err.starts_with(expected), "{}", said.err);
    assert!(said.err.contains("Clock.cr cannot be read as a .cr file\n"), "{}", said.err);
    let said = place.run(&["gen", "Nowhere.cr"]);
    assert!(said.err.contains("the path of a .cr file is wanted"), "{}", said.err);
}

#[test]
fn a_cr_file_made_of_a_cr_file_means_the_same() {
    let place = with_clock();
    assert_eq!(place.run(&["gen", "--to", "cr", "Clock.cr", "-I", "lib", "-o", "Again.cr"]).ok(), "");
    let [before, after] =
        [&["describe", "Clock.cr", "--json", "-I", "lib"][..], &["describe", "Again.cr", "--json"]]
            .map(|command| place.run(command).json());
    assert_eq!(before, after);
    // The other language has it too, and the other way round.
    assert_eq!(place.run(&["gen", "--to", "x", "Clock.cr", "-I", "lib", "-o", "clock.x"]).ok(), "");
    place.write("calc.x", "program CALC { version V { int ADD(int, short) = 1; } = 1; } = 7;");
    let made = place.run(&["gen", "--to", "cr", "calc.x"]).ok();
    assert!(made.contains("Add: PROCEDURE [number: LONG INTEGER, number_2: INTEGER]"), "{made}");
    place.write("wide.x", "program WIDE { version V { hyper TAKE(opaque data<4>) = 1; } = 1; } = 7;");
    let said = place.run(&["gen", "--to", "cr", "wide.x"]);
    let why = "cannot make a .cr file of it: procedure `take`, argument `data`: Courier has no `opaque<4>`";
    assert!(said.code == 1 && said.err.contains(why), "{}", said.err);
}

#[test]
fn versions_of_files_are_compared_with_their_numbers() {
    let place = with_clock();
    let check = |new: &str| {
        place.write("New.cr", new);
        let said = place.run(&["check", "Clock.cr", "New.cr", "-I", "lib"]);
        assert_eq!(said.err, "");
        (said.code, said.out)
    };
    assert_eq!(
        check(&CLOCK.replace("Clock:", "New:")),
        (0, "fine: Clock: is named New now\nnothing breaks\n".into())
    );
    let (code, said) = check(&CLOCK.replace("Clock: PROGRAM 4000 VERSION 2", "New: PROGRAM 4001 VERSION 3"));
    assert_eq!(code, 1);
    assert!(said.contains("breaking: Clock: program 4000 became 4001: old callers ask for 4000\n"), "{said}");
    assert!(said.contains("breaking: Clock: version 2 became 3: old callers ask for 2\n"), "{said}");
    let (code, said) = check(&CLOCK.replace("Clock:", "New:").replace("zone: STRING", "zone: CARDINAL"));
    assert!(code == 1 && said.contains("breaking: Clock.ask argument zone: "), "{said}");
    let (code, said) = check(&CLOCK.replace("Clock:", "New:").replace("] = 3;", "] = 4;"));
    assert!(code == 1 && said.contains("breaking: Clock.ask exception"), "{said}");
}

/// The Rust of every file below `$FARCALL_CR_CORPUS` compiles without warnings, except that of files that
/// 4.4BSD's compiler refuses too. Files of one name in several directories are told apart by what comes before
/// the last `__` or `-` of their names.
#[test]
fn what_is_made_of_real_files_compiles() {
    let Some(corpus) = std::env::var_os("FARCALL_CR_CORPUS").map(PathBuf::from) else {
        let _ = writeln!(std::io::stderr(), "skipped: FARCALL_CR_CORPUS names no directory of .cr files");
        return;
    };
    let mut files = Vec::new();
    collect(&corpus, &["cr"], &mut files);
    files.sort();

    let place = Place::new();
    // Directories of the corpus may have the programs that others depend upon, or may lack them.
    place.write("lacking/Time2.cr", TIME);
    place.write("lacking/Authentication3.cr", AUTHENTICATION_3);
    let mut stems = BTreeMap::new();
    let mut made = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap().to_str().unwrap();
        let own_name = name.rsplit(['-']).next().unwrap().rsplit("__").next().unwrap();
        let directory =
            file.strip_prefix(&corpus).unwrap().parent().unwrap().join(&name[..name.len() - own_name.len()]);
        let copy = PathBuf::from("read").join(directory).join(own_name);
        place.write(copy.to_str().unwrap(), std::fs::read(file).unwrap());
        stems.insert(number, copy);
    }
    let libraries: Vec<PathBuf> =
        stems.values().filter(|copy| copy.ends_with("BulkData1.cr")).cloned().collect();
    for (number, copy) in &stems {
        place.write(&format!("src/f{number}.rs"), "");
        let output = format!("src/f{number}.rs");
        let mut command = vec!["gen", copy.to_str().unwrap(), "-o", &output, "-I", "lacking"];
        for library in &libraries {
            command.extend(["-I", library.parent().unwrap().to_str().unwrap()]);
        }
        let said = place.run(&command);
        let refused = copy.ends_with("CHEntries0.cr");
        assert_eq!(said.code, i32::from(refused), "{}: {}", copy.display(), said.err);
        if refused {
            let both = [
                "the enumerator `mailGateway` is declared a second time",
                "mailGateway: Clearinghouse.Property",
            ];
            assert!(both.iter().all(|part| said.err.contains(part)), "{}", said.err);
        }
        made.push(!refused);
    }
    let failing = compile(&place, &made);
    println!(
        "{} files, {} refused as they were by 4.4BSD's compiler",
        files.len(),
        made.iter().filter(|made| !**made).count()
    );
    assert!(failing.is_empty(), "{:?}", failing.iter().map(|number| &stems[number]).collect::<Vec<_>>());
}
