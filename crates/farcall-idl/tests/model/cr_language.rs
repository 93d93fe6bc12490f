//! Tests the language of `.cr` files: what is accepted, and the message for each fault.

use std::fmt::Write as _;
use std::path::Path;

use farcall_idl::cr::{Options, read, read_text, to_cr};
use farcall_idl::language::tree::{Body, Declared, Specification, Type};
use farcall_idl::language::{self, Config};
use farcall_idl::x::Diagnostics;

use crate::faults::{each_has_its_fault, not_all_are_told};

/// Returns a program with these declarations.
fn program(declarations: &str) -> String {
    format!("P: PROGRAM 1 VERSION 1 =\nBEGIN\n{declarations}\nEND.\n")
}

fn read_file(text: &str) -> Result<Specification, Diagnostics> {
    read_text(Path::new("no such directory/P.cr"), text, &Options::default())
}

fn read_program(declarations: &str) -> Result<Specification, Diagnostics> {
    read_file(&program(declarations))
}

#[track_caller]
fn tree(declarations: &str) -> Specification {
    read_program(declarations).unwrap_or_else(|why| panic!("{why}"))
}

/// Wrong declarations, each with its message and the part that is underlined.
const DECLARATIONS: &[(&str, &str, &str)] = &[
    ("a CARDINAL = 1;", "`:` should stand here", "CARDINAL"),
    ("a: CARDINAL 1;", "`=` should stand here", "1"),
    ("a: CARDINAL = 1", "`;` should stand here", ""),
    ("a: LONG STRING = 1;", "`CARDINAL`, `INTEGER` or `UNSPECIFIED` should stand here", "STRING"),
    ("T: TYPE = ;", "a type should stand here", ";"),
    ("T: TYPE = OF;", "a type should stand here, not `OF`", "OF"),
    (
        "OF: TYPE = STRING;",
        "a declaration's name or `END.` should stand here, and `OF` is a word of the language",
        "OF",
    ),
    ("T: TYPE = {a(0) b(1)};", "`,` or `}` should stand here", "b"),
    ("T: TYPE = {a};", "`a` needs a number: `a(0)`", "a"),
    ("T: TYPE = {a(65536)};", "this number must be between 0 and 65535", "65536"),
    ("T: TYPE = {a(0), a(1)};", "`a` is declared a second time", "a"),
    ("T: TYPE = RECORD [a: STRING, a: STRING];", "there is a second `a`", "a"),
    ("T: TYPE = RECORD;", "`[` should stand here", ";"),
    (
        "T: TYPE = ARRAY OF STRING;",
        "the number of elements should stand here, and `OF` is a word of the language",
        "OF",
    ),
    ("T: TYPE = SEQUENCE 65536 OF STRING;", "a sequence has at most 65535 elements", "65536"),
    ("T: TYPE = ARRAY -1 OF STRING;", "an array has at most 65535 elements", "-1"),
    (
        "T: TYPE = CHOICE OF {a => STRING};",
        "`a` needs a number, as in `a(0)`, because this choice names no enumeration",
        "a",
    ),
    ("T: TYPE = CHOICE OF {a(0) STRING};", "`,` or `=>` should stand here", "STRING"),
    (
        "T: TYPE = CHOICE OF {a(0), b(0) => STRING};",
        "another designator of this choice has the same value",
        "b",
    ),
    (
        "E: TYPE = {a(0)}; T: TYPE = CHOICE E OF {a(0) => STRING};",
        "the enumeration gives this number: leave it out",
        "0",
    ),
    ("E: TYPE = {a(0)}; T: TYPE = CHOICE E OF {b => STRING};", "`E` has no enumerator `b`", "b"),
    (
        "T: TYPE = CHOICE U OF {b => STRING}; U: TYPE = STRING;",
        "`U` is no enumeration, so it cannot select",
        "U",
    ),
    ("T: TYPE = Opaqe; Opaque: TYPE = STRING;", "nothing of the name `Opaqe` is declared", "Opaqe"),
    ("T: TYPE = Time.Time;", "this program does not depend upon a program `Time`", "Time.Time"),
    ("a: CARDINAL = 1; T: TYPE = a;", "`a` is a constant, a procedure or an error, not a type", "a"),
    ("T: TYPE = {a(0)}; U: TYPE = a;", "`a` is an enumerator, not a type", "a"),
    ("T: TYPE = RECORD [p: PROCEDURE];", "procedures and errors cannot be sent", "PROCEDURE"),
    (
        "T: TYPE = ERROR; U: TYPE = SEQUENCE OF T;",
        "`T` is the type of procedures or errors, which cannot be sent",
        "T",
    ),
    ("a: CARDINAL = 65536;", "a number from 0 to 65535 should stand here", "65536"),
    ("a: INTEGER = 32768;", "a number from -32768 to 32767 should stand here", "32768"),
    (
        "a: LONG INTEGER = 20000000000B;",
        "a number from -2147483648 to 2147483647 should stand here",
        "20000000000B",
    ),
    (
        "a: CARDINAL = 9B;",
        "this is not a number: digits may be followed by `B` (octal), `X` (hexadecimal) or `D`",
        "9B",
    ),
    ("a: BOOLEAN = 1;", "`TRUE` or `FALSE` should stand here", "1"),
    ("a: STRING = 1;", "a string of at most 65535 bytes should stand here", "1"),
    ("a: STRING = \"b;", "this quote is not closed in its line", "\""),
    ("b: CARDINAL = b;", "this constant is defined by itself, or by more than 64 others", "b"),
    ("T: TYPE = {x(0)}; a: T = y;", "nothing of the name `y` is declared", "y"),
    ("T: TYPE = {x(0)}; a: T = 0;", "an enumerator of `T` should stand here", "0"),
    (
        "T: TYPE = ARRAY 2 OF CARDINAL; a: T = [1];",
        "an array of 2 elements, as in `[…, …]`, should stand here",
        "[1]",
    ),
    (
        "T: TYPE = SEQUENCE 1 OF CARDINAL; a: T = [1, 2];",
        "a sequence of at most 1 elements, as in `[…, …]`, should stand here",
        "[1, 2]",
    ),
    (
        "T: TYPE = RECORD [x, y: CARDINAL]; a: T = [1];",
        "a record with the 2 fields of `T`, as in `[…, …]`, should stand here",
        "[1]",
    ),
    ("T: TYPE = RECORD [x, y: CARDINAL]; a: T = [x: 1];", "the field `y` of `T` is missing", "[x: 1]"),
    ("T: TYPE = RECORD [x: CARDINAL]; a: T = [x, z: 1];", "`T` has no field `z`", "z"),
    ("T: TYPE = RECORD [x: CARDINAL]; a: T = [x, x: 1];", "`x` is given a second time", "x"),
    ("T: TYPE = RECORD [x: CARDINAL]; a: T = [1: 1];", "a field's name should stand here", "1"),
    (
        "T: TYPE = CHOICE OF {x(0) => RECORD []}; a: T = x;",
        "a value behind the designator, as in `x []`, should stand here",
        "x",
    ),
    (
        "T: TYPE = CHOICE OF {x(0) => RECORD []}; a: T = x [1];",
        "`[]`, because `x` has no content, should stand here",
        "[1]",
    ),
    ("T: TYPE = CHOICE OF {x(0) => RECORD []}; a: T = z [];", "`T` has no designator `z`", "z"),
    (
        "T: TYPE = CHOICE OF {x(0) => RECORD []}; a: T = 1;",
        "a designator of `T` and its value, as in `designator []`, should stand here",
        "1",
    ),
    ("E: ERROR = 70000;", "an error's number is between 0 and 65535", "70000"),
    ("P: PROCEDURE = -1;", "a procedure's number is between 0 and 65535", "-1"),
    ("P: PROCEDURE = 1; Q: PROCEDURE = 1;", "another procedure has this number already", "1"),
    ("P: PROCEDURE REPORTS [Q] = 1; Q: PROCEDURE = 2;", "`Q` is no error", "Q"),
    ("P: PROCEDURE REPORTS [E, E] = 1; E: ERROR = 2;", "`E` is reported already", "E"),
    ("P: PROCEDURE REPORTS [E, F] = 1; E, F: ERROR = 2;", "`:` should stand here", ","),
    (
        "P: PROCEDURE REPORTS [E, F] = 1; E: ERROR = 2; F: ERROR = 2;",
        "this procedure reports another error with the number 2",
        "F",
    ),
    ("P: PROCEDURE RETURNS = 1;", "`[` should stand here", "="),
    (
        "x: CARDINAL = 1; T: TYPE = {x(0)};",
        "the enumerator `x` is declared a second time: another declaration has this name",
        "x",
    ),
    ("T: TYPE = {x(0)}; x: CARDINAL = 1;", "`x` is declared a second time: it is an enumerator already", "x"),
    ("x: CARDINAL = 1; x: TYPE = STRING;", "`x` is declared a second time", "x"),
    (
        "T: TYPE = RECORD [t: T];",
        "`T` contains itself without end: use `SEQUENCE` or an alternative of a `CHOICE`",
        "T",
    ),
    ("T: TYPE = SEQUENCE OF T;", "`T` is nothing but itself", "T"),
    ("T: TYPE = STRING; /", "this character cannot stand in a `.cr` file", "/"),
];

/// Wrong programs, each with its message and the part that is underlined.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("", "the program's name should stand here, but the file ends", ""),
    ("P: PROGRAM x = BEGIN END.", "the program's number or `=` should stand here", "x"),
    ("P: PROGRAM 1 VERSION 65536 = BEGIN END.", "the version's number is between 0 and 65535", "65536"),
    ("P: PROGRAM 1 VERSION 1 = END.", "`BEGIN` should stand here", "END"),
    ("P: PROGRAM 1 VERSION 1 = BEGIN END. Q", "the program ended at `END.`, so nothing may follow", "Q"),
    ("P: PROGRAM 1 VERSION 1 = BEGIN DEPENDS UPON Q;", "`(` should stand here", ";"),
    ("P: PROGRAM = BEGIN", "a declaration's name or `END.` should stand here, but the file ends", ""),
];

#[test]
fn each_fault_has_its_message_at_its_token() {
    each_has_its_fault(DECLARATIONS, read_program);
    each_has_its_fault(PROGRAMS, read_file);
}

#[test]
fn the_other_place_and_a_similar_name_are_shown() {
    let why = read_program("mail: CARDINAL = 1;\nT: TYPE = {fax(0), mail(1)};").unwrap_err().to_string();
    let expected = "error: the enumerator `mail` is declared a second time: another declaration has this name
 --> no such directory/P.cr:4:20
  |
4 | T: TYPE = {fax(0), mail(1)};
  |                    ^^^^
  |
 ::: no such directory/P.cr:3:1
  |
3 | mail: CARDINAL = 1;
  | ---- the first one is here";
    assert_eq!(why, expected);
    let why = read_program("T: TYPE = Strem; Stream: TYPE = STRING;").unwrap_err().to_string();
    assert!(why.contains("help: a similar name is declared: `Stream`"), "{why}");
}

#[test]
fn several_faults_are_told_but_not_without_end() {
    not_all_are_told(|number| format!("t{number}: TYPE = Unknown{number};"), read_program);
}

#[test]
fn enumerators_of_one_name_belong_to_their_types() {
    let tree = tree(
        "A: TYPE = {none(0), some(1)}; B: TYPE = {none(5)};
         C: TYPE = CHOICE A OF {none => STRING, some => B}; D: TYPE = CHOICE B OF {none => A};
         a: C = some none; b: D = none some;",
    );
    let values: Vec<String> = tree.constants.iter().map(|constant| format!("{:?}", constant.value)).collect();
    assert!(values[0].ends_with("Choice(1, Some(Enumerator(0))) }"), "{values:?}");
    assert!(values[1].ends_with("Choice(5, Some(Enumerator(1))) }"), "{values:?}");
}

#[test]
fn a_choice_can_have_thousands_of_alternatives() {
    let alternatives: Vec<String> =
        (0..5000).map(|number| format!("a{number}({number}) => CARDINAL")).collect();
    let tree =
        tree(&format!("T: TYPE = CHOICE OF {{{}}}; P: PROCEDURE [t: T] = 0;", alternatives.join(", ")));
    let Body::Union(union) = &tree.types[0].body else { panic!("a union") };
    assert_eq!(union.arms.len(), 5000);
    let rust = language::to_rust(&tree, &Config::new()).unwrap();
    assert!(rust.contains("A4999(u16),"));
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth| format!("T: TYPE = {}STRING{};", "RECORD [a: ".repeat(depth), "]".repeat(depth));
    tree(&nested(60));
    let why = read_program(&nested(20_000)).unwrap_err();
    assert_eq!(why.iter().next().unwrap().message(), "nested more than 64 deep");
    let value = format!("a: CARDINAL = {};", "[".repeat(100_000));
    let why = read_program(&value).unwrap_err();
    assert_eq!(why.iter().next().unwrap().message(), "nested more than 64 deep");
}

#[test]
fn constants_cannot_grow_without_end() {
    let mut text = String::from("T0: TYPE = SEQUENCE OF CARDINAL; a0: T0 = [1, 1];\n");
    for depth in 1..30 {
        let below = depth - 1;
        let _ = writeln!(
            text,
            "T{depth}: TYPE = SEQUENCE OF T{below}; a{depth}: T{depth} = [a{below}, a{below}];"
        );
    }
    let why = read_program(&text).unwrap_err();
    let message = why.iter().next().unwrap().message();
    assert_eq!(message, "the values of the constants have too many parts together");
}

/// Returns the message of the first fault of a program.
#[track_caller]
fn first_fault(declarations: &str) -> String {
    read_program(declarations).unwrap_err().iter().next().unwrap().message().to_owned()
}

#[test]
fn a_long_text_cannot_be_copied_without_end() {
    let (long, uses) = ("x".repeat(60_000), vec!["s"; 60_000].join(","));
    let text = format!("s: STRING = \"{long}\"; a: ARRAY 60000 OF STRING = [{uses}];");
    assert_eq!(first_fault(&text), "the values of the constants have too many parts together");
}

#[test]
fn procedures_cannot_share_large_types_without_end() {
    let fields: Vec<_> = (0..20_000).map(|field| format!("f{field}")).collect();
    let fields = fields.join(",");
    let too_many = "the procedures and errors have too many parts together";
    let many = |of: &str| -> String { (0..20_000).map(|at| format!("p{at}: {of} = {at};\n")).collect() };
    let (procedure, error) = ("P: TYPE = PROCEDURE", "E: TYPE = ERROR");
    assert_eq!(first_fault(&format!("{procedure} [{fields}: CARDINAL]; {}", many("P"))), too_many);
    assert_eq!(first_fault(&format!("{procedure} RETURNS [{fields}: CARDINAL]; {}", many("P"))), too_many);
    assert_eq!(first_fault(&format!("{error} [{fields}: CARDINAL]; {}", many("E"))), too_many);
    let reports = many("PROCEDURE REPORTS [e]");
    assert_eq!(first_fault(&format!("e: ERROR [{fields}: CARDINAL] = 1; {reports}")), too_many);
    let long = "x".repeat(1_000_000);
    assert_eq!(first_fault(&format!("-- {long}\ne: ERROR = 1; {reports}")), too_many);
}

#[test]
fn procedures_that_share_many_errors_are_not_printed() {
    let errors: String = (0..600).map(|at| format!("e{at}: ERROR = {at};\n")).collect();
    let names: Vec<_> = (0..600).map(|at| format!("e{at}")).collect();
    let tree = tree(&format!("{errors} p: PROCEDURE REPORTS [{}] = 0;", names.join(",")));
    let mut interface = language::interfaces(&tree).unwrap().remove(0).interface;
    let one = interface.procedures[0].clone();
    interface.procedures = (0..600)
        .map(|number| {
            let (mut procedure, name) = (one.clone(), format!("p{number}"));
            (procedure.number, procedure.name) = (number, name);
            procedure
        })
        .collect();
    let why = to_cr(&interface, 1, 1).unwrap_err().to_string();
    assert_eq!(why, "its procedures report too many errors together");
    interface.procedures.truncate(5);
    assert!(to_cr(&interface, 1, 1).is_ok());
}

#[test]
fn large_values_are_refused_before_they_are_made() {
    let text = "A: TYPE = ARRAY 60000 OF LONG CARDINAL; B: TYPE = ARRAY 60000 OF A;";
    let why = read_program(text).unwrap_err();
    assert!(why.to_string().contains("`B` takes 14400000000 bytes without pointers"), "{why}");
}

#[test]
fn no_beginning_of_a_file_and_no_lost_character_is_too_much() {
    let text = include_str!("../../../farcall/tests/cr/Covering.cr");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../farcall/tests/cr/Part.cr");
    for (at, _) in text.char_indices().step_by(5) {
        let _ = read_text(&directory, &text[..at], &Options::default());
        let without: String = text[..at].chars().chain(text[at..].chars().skip(1)).collect();
        if let Err(why) = read_text(&directory, &without, &Options::default()) {
            assert!(why.iter().all(|each| !each.file().is_empty() && !each.message().is_empty()));
        }
    }
}

#[test]
fn programs_may_depend_upon_each_other_and_upon_two_versions_of_one() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).unwrap();
    let file = scratch.path().join("A.cr");
    write(
        "A.cr",
        "A: PROGRAM 1 VERSION 1 = BEGIN DEPENDS UPON B (2) VERSION 1, B (2) VERSION 2; T: TYPE = B.Old; U: TYPE = B.New; END.",
    );
    write(
        "B1.cr",
        "B: PROGRAM 2 VERSION 1 = BEGIN DEPENDS UPON A (1) VERSION 1; Old: TYPE = RECORD [a: SEQUENCE OF A.T]; Both: TYPE = STRING; END.",
    );
    write(
        "B2.cr",
        "B: PROGRAM 2 VERSION 2 = BEGIN DEPENDS UPON B (2) VERSION 1; New: TYPE = B.Old; Both: TYPE = STRING; END.",
    );
    let tree = read(&file, &Options::default()).unwrap_or_else(|why| panic!("{why}"));
    let modules: Vec<&str> = tree.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!((modules, tree.files.len()), (vec!["B1", "B2"], 3));
    let of_a = Declared::List { element: Type::Defined(0), max: 65535 };
    let holds = |body: &Body| matches!(body, Body::Struct(fields) if fields.iter().any(|field| field.declared == of_a));
    assert!(tree.types.iter().any(|ty| holds(&ty.body)));

    write(
        "A.cr",
        "A: PROGRAM 1 VERSION 1 = BEGIN DEPENDS UPON B (2) VERSION 1, B (2) VERSION 2; T: TYPE = B.Both; END.",
    );
    let why = read(&file, &Options::default()).unwrap_err().to_string();
    assert!(why.contains("this program depends upon two versions of `B`, and both declare `Both`"), "{why}");

    write("A.cr", "A: PROGRAM 1 VERSION 1 = BEGIN DEPENDS UPON B (3) VERSION 1; END.");
    let why = read(&file, &Options::default()).unwrap_err().to_string();
    assert!(why.contains("no file was found for `B: PROGRAM 3 VERSION 1`"), "{why}");
    assert!(why.contains("B1.cr has `B: PROGRAM 2 VERSION 1`"), "{why}");
}
