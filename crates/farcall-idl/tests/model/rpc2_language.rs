//! Tests the language of `.rpc2` files: what is accepted, and the message for each fault.

use std::fmt::Write as _;
use std::path::Path;

use farcall_idl::language::tree::{Body, Declared, Specification, Type};
use farcall_idl::language::{self, Config};
use farcall_idl::rpc2::{NEW_CONNECTION, Options, is_file_name, read, read_text};
use farcall_idl::x::Diagnostics;

use crate::faults::{each_has_its_fault, not_all_are_told, only_fault};

fn read_file(text: &str) -> Result<Specification, Diagnostics> {
    read_text(Path::new("no such directory/p.rpc2"), text, &Options::default())
}

#[track_caller]
fn tree(text: &str) -> Specification {
    read_file(text).unwrap_or_else(|why| panic!("{why}"))
}

/// Wrong declarations after `subsystem "s";`, each with its message and the part that is underlined.
const DECLARATIONS: &[(&str, &str, &str)] = &[
    ("typedef RPC2_Integer ;", "the new type's name should stand here", ";"),
    ("typedef RPC2_Integr T;", "no type of the name `RPC2_Integr` is declared before this", "RPC2_Integr"),
    ("typedef U T; typedef RPC2_Byte U;", "no type of the name `U` is declared before this", "U"),
    ("typedef RPC2_Integer T[4];", "RPC2 has arrays of RPC2_Byte only", "RPC2_Integer"),
    ("typedef RPC2_Byte T[0];", "an array has from 1 to 65536 bytes", "0"),
    ("typedef RPC2_Byte T[n];", "no number of the name `n` is defined", "n"),
    ("#define n \"x\"\ntypedef RPC2_Byte T[n];", "`n` is a text, not a number", "n"),
    ("typedef RPC2_Byte T[4;", "`]` should stand here", ";"),
    ("typedef RPC2_Byte IN;", "the new type's name should stand here, and `IN` is a keyword", "IN"),
    ("typedef RPC2_Struct { };", "a type should stand here", "}"),
    ("typedef RPC2_Struct { RPC2_Byte a, a; } T;", "there is a second `a`", "a"),
    (
        "typedef RPC2_Struct { SE_Descriptor a; } T;",
        "a struct cannot contain an SE_Descriptor: it is not sent",
        "SE_Descriptor",
    ),
    ("typedef RPC2_Enum { a } T;", "`=` should stand here", "}"),
    ("typedef RPC2_Enum { a = b } T;", "the enumerator's number should stand here", "b"),
    ("typedef RPC2_Enum { a = 2147483648 } T;", "this is no number of 32 bits", "2147483648"),
    ("typedef RPC2_Enum { a = 1 b = 2 } T;", "`,` or `}` should stand here", "b"),
    ("typedef RPC2_Enum { a = 1, a = 2 } T;", "`a` is declared a second time", "a"),
    ("#define a", "a number or a text in quotes should stand here, but the file ends", ""),
    ("#define a 1\n#define a 2", "`a` is defined a second time, as something else", "a"),
    ("#define a 99999999999999999999999", "this is no number of 64 bits", "99999999999999999999999"),
    ("p;", "`(` should stand here", ";"),
    ("p()", "`;` should stand here, but the file ends", ""),
    ("p(RPC2_Integer a);", "`IN`, `OUT` or `IN OUT` should stand here", "RPC2_Integer"),
    ("p(IN RPC2_Integer a IN RPC2_Integer b);", "`,` or `)` should stand here", "IN"),
    ("p(IN RPC2_Integer a, OUT RPC2_Byte a);", "there is a second `a`", "a"),
    ("p(IN RPC2_Integer a[]);", "a parameter can be an array of structs only", "RPC2_Integer"),
    ("p(IN RPC2_BoundedBS a[]);", "a parameter can be an array of structs only", "RPC2_BoundedBS"),
    (
        "p(IN OUT SE_Descriptor a, IN OUT SE_Descriptor b);",
        "a procedure has one SE_Descriptor",
        "SE_Descriptor b",
    ),
    ("p(); p();", "there is a second `p`", "p"),
    ("0: p();", "opcodes increase from 1 on, so this is at least 1", "0"),
    ("5: p(); 5: q();", "opcodes increase from 1 on, so this is at least 6", "5"),
    ("-1: p();", "opcodes increase from 1 on, so this is at least 1", "-1"),
    ("2147483647: p(); q();", "the opcode before it is 2147483647, and no opcode is higher", "q"),
    ("2147483648: p();", "opcodes increase from 1 on, so this is at least 1", "2147483648"),
    ("p() timeout(0);", "a time-out has at least one second, and at most 4294967295", "0"),
    ("p() timeout(soon);", "no number of the name `soon` is defined", "soon"),
    (
        "p(IN RPC2_Integer a, IN RPC2_Integer b, IN RPC2_Integer c, IN RPC2_CountedBS d) NEW_CONNECTION;",
        "a NEW_CONNECTION procedure has the parameters SideEffectType, SecurityLevel, EncryptionType and \
         AuthType, which are RPC2_Integers, and ClientIdent, which is an RPC2_CountedBS",
        "NEW_CONNECTION",
    ),
    ("typedef RPC2_Integer T; /", "this character cannot stand in a `.rpc2` file", "/"),
    ("/* never closed", "this comment has no end", "/* never closed"),
    ("#include common", "`\"file\"` should follow", "#include"),
    ("#include \"gone.rpc2\"", "no file `gone.rpc2`", "\"gone.rpc2\""),
    (
        "#undef a",
        "`typedef`, `#define` or a procedure's name should stand here, and `#undef` is a keyword",
        "#undef",
    ),
];

/// Wrong files, each with its message and the part that is underlined.
const FILES: &[(&str, &str, &str)] = &[
    ("server \"S\";", "`prefix` should stand here", "\"S\""),
    ("server prefix S;", "a prefix in quotes should stand here", "S"),
    ("subsystem s;", "the subsystem's name in quotes should stand here", "s"),
    ("subsystem \"s\" 1;", "the number of the protocol's version should stand here", ";"),
    ("subsystem \"s", "this quote is not closed in its line", "\""),
    ("timeout(5) p();", "`;` should stand here", "p"),
    (
        "p(); subsystem \"s\";",
        "`typedef`, `#define` or a procedure's name should stand here, and `subsystem` is a keyword",
        "subsystem",
    ),
];

#[test]
fn each_fault_has_its_message_at_its_token() {
    each_has_its_fault(DECLARATIONS, |text| read_file(&format!("subsystem \"s\";\n{text}")));
    each_has_its_fault(FILES, read_file);
}

#[test]
fn a_second_new_connection_is_refused() {
    let parameters =
        "IN RPC2_Integer a, IN RPC2_Integer b, IN RPC2_Integer c, IN RPC2_Integer d, IN RPC2_CountedBS e";
    let one = format!("subsystem \"s\"; p({parameters}) New_Connection; q();");
    let numbers: Vec<u32> =
        tree(&one).programs[0].versions[0].procedures.iter().map(|procedure| procedure.number).collect();
    assert_eq!(numbers, [NEW_CONNECTION, 1]);
    let (message, _) = only_fault(read_file(&format!("{one} r({parameters}) NEW_CONNECTION;")));
    assert_eq!(message, "a subsystem has one NEW_CONNECTION procedure");
}

#[test]
fn a_similar_name_and_advice_are_shown() {
    let why = read_file("typedef RPC2_Unsinged T;").unwrap_err().to_string();
    assert!(why.contains("help: a similar name is declared: `RPC2_Unsigned`"), "{why}");
    let why = read_file("#define LENGTH 5\ntypedef RPC2_Byte T[LENGHT];").unwrap_err().to_string();
    assert!(why.contains("a similar name is defined: `LENGTH`") && why.contains("`-D NAME=value`"), "{why}");
}

#[test]
fn what_rp2gen_only_warns_of_is_a_warning() {
    let text = "typedef RPC2_Unsigned T; typedef RPC2_String T; typedef T RPC2_Byte; p(IN SE_Descriptor d);";
    let warnings = |text: &str| {
        let tree = tree(text);
        let told: Vec<String> = tree.warnings.iter().map(|warning| warning.message().to_owned()).collect();
        (tree, told)
    };
    let (tree, told) = warnings(&format!("subsystem \"s\"; {text}"));
    let expected = [
        "a type of the name `T` is declared already, and that one counts",
        "a type of the name `RPC2_Byte` is declared already, and that one counts: it is one of RPC2's own",
        "an SE_Descriptor is `IN OUT`",
    ];
    assert_eq!((told.as_slice(), tree.programs.len()), (&expected.map(str::to_owned)[..], 1));
    let (tree, told) = warnings(text);
    assert_eq!(told.last().unwrap(), "the procedures are left out, because the file has no `subsystem`");
    assert!(tree.programs.is_empty() && tree.types.len() == 1);
}

#[test]
fn words_are_the_same_in_both_cases_and_names_are_not() {
    let tree = tree("SubSystem \"s\"; TypeDef rpc2_STRUCT { RPC2_Byte a; } t; TYPEDEF t T; P(in Out T a);");
    let names: Vec<&str> = tree.types.iter().map(|ty| ty.named.name.as_str()).collect();
    assert_eq!(names, ["t", "T", "PError"]);
    let lower = only_fault(read_file("typedef rpc2_byte T;"));
    assert_eq!(lower.0, "no type of the name `rpc2_byte` is declared before this");
}

#[test]
fn numbers_come_from_c_from_the_options_and_from_later_lines() {
    let text = "%{\n#define A 0x10\n#  define B 3 /* not this one */\n#define A 5\n%}
        subsystem \"s\"; typedef RPC2_Byte T[A]; typedef RPC2_Byte U[C]; typedef RPC2_Byte V[D];
        #define C 010";
    let options = Options { defines: vec![("D".into(), "7".into())], ..Options::default() };
    let tree = read_text(Path::new("p.rpc2"), text, &options).unwrap();
    let sizes: Vec<&Body> = tree.types.iter().map(|ty| &ty.body).collect();
    let opaque = |size| Body::Alias(Declared::Opaque { size });
    assert_eq!(sizes, [&opaque(16), &opaque(8), &opaque(7)]);
}

#[test]
fn files_include_each_other_as_far_as_a_limit() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).unwrap();
    write("a.rpc2", "#include \"b.rpc2\"\nsubsystem \"s\"; #INCLUDE \"b.rpc2\" p(IN T t);");
    write("b.rpc2", "#include \"c.rpc2\"\n");
    write("c.rpc2", "");
    let why = read(&scratch.path().join("a.rpc2"), &Options::default()).unwrap_err();
    assert_eq!(why.iter().next().unwrap().message(), "no type of the name `T` is declared before this");
    write("b.rpc2", "");
    write("a.rpc2", "subsystem \"s\";\n#INCLUDE \"b.rpc2\"\n#include \"b.rpc2\"\np(IN T t);");
    write("b.rpc2", "typedef RPC2_Double T;");
    let tree = read(&scratch.path().join("a.rpc2"), &Options::default()).unwrap();
    assert_eq!((tree.files.len(), tree.types.len(), tree.warnings.len()), (2, 1 + 1, 1));
    write("a.rpc2", "#include \"a.rpc2\"");
    let why = read(&scratch.path().join("a.rpc2"), &Options::default()).unwrap_err();
    assert_eq!(why.iter().next().unwrap().message(), "files include each other 16 deep");
    assert!(is_file_name(Path::new("a.rpc2")) && is_file_name(Path::new("a.rpc")));
}

#[test]
fn a_server_that_sends_bulk_data_is_named_and_has_no_other_results() {
    let refused = |name: &str, text: &str| {
        let options = Options { from_server: vec![name.into()], ..Options::default() };
        read_text(Path::new("p.rpc2"), text, &options).unwrap_err().to_string()
    };
    let text = "subsystem \"s\"; Get(IN OUT SE_Descriptor d, OUT RPC2_Byte b); Put();";
    let why = refused("Get", text);
    assert!(why.contains("a procedure whose result is a `Bulk` has no other results"), "{why}");
    for absent in ["Put", "Gone"] {
        let why = refused(absent, text);
        assert!(why.contains(&format!("no procedure `{absent}` with an SE_Descriptor is declared")), "{why}");
    }
}

#[test]
fn several_faults_are_told_but_not_without_end() {
    not_all_are_told(|number| format!("typedef Unknown{number} t{number};"), read_file);
}

#[test]
fn large_and_deep_types_are_refused_before_they_are_made() {
    let mut text = String::from("subsystem \"s\"; typedef RPC2_Byte T0[65536];\n");
    for depth in 1..30 {
        let below = depth - 1;
        let _ = writeln!(text, "typedef RPC2_Struct {{ T{below} a, b; }} T{depth};");
    }
    let why = read_file(&text).unwrap_err().to_string();
    assert!(why.contains("`T11` takes 134217728 bytes without pointers"), "{why}");
    let mut text = String::from("subsystem \"s\"; typedef RPC2_Byte T0;\n");
    for depth in 1..20_000 {
        let _ = writeln!(text, "typedef T{} T{depth};", depth - 1);
    }
    let refused = language::generate(&tree(&text), &Config::new()).unwrap_err().to_string();
    assert!(refused.contains("more than 100 types deep"), "{refused}");
}

#[test]
fn a_name_that_the_error_would_have_twice_gives_way() {
    let tree = tree("subsystem \"s\"; p(OUT RPC2_Byte ReturnCode);");
    let Body::Struct(fields) = &tree.types[0].body else { panic!("a struct") };
    let names: Vec<&str> = fields.iter().map(|field| field.named.name.as_str()).collect();
    assert_eq!(
        (names.as_slice(), &fields[0].declared),
        (&["ReturnCode_", "ReturnCode"][..], &Declared::One(Type::I32))
    );
}
