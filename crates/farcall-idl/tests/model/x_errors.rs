//! Tests the messages about invalid `.x` files, and that hostile files do no harm.

use std::path::Path;

use farcall_idl::x::{Diagnostics, Options, Undeclared, read, read_text};

fn refused(text: &str) -> Diagnostics {
    read_text(Path::new("test.x"), text, &Options::default()).expect_err(text)
}

/// Asserts that the message about `text` is `expected`, whose first line is empty.
#[track_caller]
fn told(text: &str, expected: &str) {
    assert_eq!(format!("\n{}\n", refused(text)), expected);
}

#[test]
fn the_line_is_shown_and_underlined() {
    told(
        "const A = 1;\nstruct s {\n\tint a\n};\n",
        "
error: `;` should stand here
 --> test.x:3:7
  |
3 |     int a
  |          ^
",
    );
    told(
        "typedef opaque handle;",
        "
error: `opaque` needs a number of bytes: write `[n]`, `<n>` or `<>`
 --> test.x:1:9
  |
1 | typedef opaque handle;
  |         ^^^^^^^^^^^^^
",
    );
    told(
        "/* Größe */ typedef int größe;",
        "
error: this character cannot stand in an `.x` file
 --> test.x:1:27
  |
1 | /* Größe */ typedef int größe;
  |                           ^
",
    );
}

#[test]
fn the_other_place_is_shown_too() {
    told(
        "enum e { A };\nunion u switch (e x) {\ncase A: int i;\ncase 0: void;\n};",
        "
error: another label has this value already
 --> test.x:4:6
  |
4 | case 0: void;
  |      ^
  |
 ::: test.x:3:6
  |
3 | case A: int i;
  |      - the first one is here
",
    );
}

#[test]
fn what_helps_is_said() {
    told(
        "struct s { int *a<4>; };",
        "
error: a declaration takes only one of `*`, `[…]` and `<…>`
 --> test.x:1:18
  |
1 | struct s { int *a<4>; };
  |                  ^^^^
  |
  = help: give the inner type a name by `typedef`, and use that name
",
    );
}

#[test]
fn a_name_that_is_declared_nowhere_is_refused_and_the_nearest_is_named() {
    told(
        "typedef opaque opaque_t<>;\nstruct s { opaqe_t a; opaqe_t b; };",
        "
error: no type `opaqe_t` is declared
 --> test.x:2:12
  |
2 | struct s { opaqe_t a; opaqe_t b; };
  |            ^^^^^^^
  |
  = help: a similar name is declared: `opaque_t`
  = help: if another file declares it, give that file's directory as `-I DIRECTORY`; if only C does, declare it in Rust: \
`external(\"opaqe_t\")` in `include_x!`, `--external opaqe_t` on the command line
",
    );
    told(
        "enum e { RED = 2 };\nstruct s { int a<2 * REDD>; };",
        "
error: no constant `REDD` is declared
 --> test.x:2:22
  |
2 | struct s { int a<2 * REDD>; };
  |                      ^^^^
  |
  = help: a similar name is declared: `RED`
  = help: if another file declares it, give that file's directory as `-I DIRECTORY`; if only C does, give its value: \
`define = \"REDD=VALUE\"` in `include_x!`, `-D REDD=VALUE` on the command line
",
    );
    // The places where a name can stand.
    for (text, name) in [
        ("typedef in32_t t;", "in32_t"),
        ("struct s { sting x<>; };", "sting"),
        ("struct s { int a<MAX>; };", "MAX"),
        ("struct s { string a<MAX>; };", "MAX"),
        ("struct s { opaque a[MAX]; };", "MAX"),
        ("const A = B + 1;", "B"),
        ("enum e { A = B };", "B"),
        ("union u switch (kind k) { case 1: void; };", "kind"),
        ("union u switch (int k) { case ONE: void; };", "ONE"),
        ("union u switch (int k) { case 1: void; default: thing t; };", "thing"),
        ("typedef thing *list;", "thing"),
        ("program P { version V { thing F(void) = 1; } = 1; } = 1;", "thing"),
        ("program P { version V { void F(int, thing) = 1; } = 1; } = 1;", "thing"),
        ("program P { version V { void F(void) = N; } = 1; } = 1;", "N"),
        ("program P { version V { } = N; } = 1;", "N"),
        ("program P { } = N;", "N"),
        ("namespace n { struct s { other::thing t; }; }", "thing"),
    ] {
        let why = refused(text);
        let first = why.iter().next().unwrap();
        let (Undeclared::Type(undeclared) | Undeclared::Constant(undeclared)) = first.undeclared().unwrap()
        else {
            panic!("{why}")
        };
        assert_eq!((undeclared.as_str(), why.iter().count()), (name, 1), "{text}: {why}");
    }
}

#[test]
fn the_way_to_an_included_file_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    file("main.x", "\n#include \"inner.x\"\n");
    file("inner.x", "struct {};");
    let why = read(&directory.path().join("main.x"), &Options::default()).unwrap_err();
    let why = why.to_string().replace(&format!("{}/", directory.path().display()), "");
    let expected = "error: the type's name should stand here
 --> inner.x:1:8
  |
1 | struct {};
  |        ^
  |
  = note: included from main.x:2";
    assert_eq!(why, expected);
}

/// Tests the first message for each fault, and its place.
#[test]
fn each_fault_has_its_message() {
    let cases: &[(&str, &str)] = &[
        (
            "foo",
            "1:1 a definition should begin here: `const`, `typedef`, `enum`, `struct`, `union` or `program`",
        ),
        ("const X = ;", "1:11 a number or a constant's name should stand here"),
        ("const X = 09;", "1:11 this is not a number, or it does not fit into 64 bits"),
        ("const X = X;", "1:11 this constant depends on itself"),
        ("const X = Y; const Y = X;", "1:11 this constant depends on itself"),
        ("enum e { A = B, B };", "1:14 this constant depends on itself"),
        ("const X = 1/0;", "1:11 this has no value, or its value is too large"),
        ("const X = 1; const X = 2;", "1:20 `X` is declared a second time"),
        ("struct s { int a; int a; };", "1:23 `a` is declared a second time"),
        ("struct s { int a; }; enum s { B };", "1:27 `s` is declared a second time"),
        ("enum e { A, A };", "1:13 `A` is declared a second time"),
        ("enum e { A = 4294967296 };", "1:14 an enumerator is a number of 32 bits"),
        ("enum e { A B };", "1:12 `,` or `}` should stand here"),
        ("struct s { int a; ", "1:10 this `{` is not closed"),
        ("struct s { string s[4]; };", "1:12 a string has a variable length: write `<n>` or `<>`"),
        ("struct s { int a[-1]; };", "1:18 a fixed size is at most 16777216"),
        ("struct s { int a[4294967295]; };", "1:18 a fixed size is at most 16777216"),
        ("struct s { int a<4294967296>; };", "1:18 a length is between 0 and 4294967295"),
        ("struct s { int a[\"x\"]; };", "1:18 a number or a constant's name should stand here"),
        ("const T = \"x\"; struct s { int a[T]; };", "1:33 this is a text, not a number"),
        ("struct s { void *p; };", "1:12 `void` cannot be an array or behind a pointer"),
        (
            "union u switch (hyper h) { case 1: void; };",
            "1:17 a union needs an enumeration, a `bool`, or a number of at most 32 bits in `switch`",
        ),
        ("union u switch (int i) { int x; };", "1:26 `case`, `default` or `}` should stand here"),
        ("union u switch (int i) { default: void; default: void; };", "1:41 a second `default`"),
        ("union u (int i) { };", "1:9 `switch` should stand here"),
        (
            "program P { version V { void N(void) = 0; void M(void) = 0; } = 1; } = 1;",
            "1:58 this version has a procedure of this number already",
        ),
        (
            "program P { version V { } = 1; version W { } = 1; } = 1;",
            "1:48 this program has a version of this number already",
        ),
        (
            "program P { version V { int f(void, int) = 0; } = 1; } = 1;",
            "1:31 `void` stands for no arguments at all",
        ),
        ("program P { } = P;", "1:17 this constant depends on itself"),
        ("program P { } = -1;", "1:17 this number must be between 0 and 4294967295"),
        ("program P { int x; } = 1;", "1:13 `version` or `}` should stand here"),
        ("/* open", "1:1 this comment has no end"),
        ("const X = \"open;\n", "1:11 this quote is not closed in its line"),
        ("struct s { int § };", "1:16 this character cannot stand in an `.x` file"),
        ("struct s {", "1:10 this `{` is not closed"),
        ("typedef int", "1:12 a name should stand here, but the file ends"),
        ("#if 1\n", "1:2 this has no `#endif`"),
        ("#endif\n", "1:2 there is no `#if` before this"),
        ("#if 0\n#else\n#else\n#endif", "3:2 this follows the `#else` of the same `#if`"),
        ("#if (\n#endif", "1:2 the expression breaks off"),
        ("#if 1 +* 2\n#endif", "1:2 this is not an expression"),
        ("#if 1/0\n#endif", "1:2 the expression has no value"),
        ("#ifdef\n#endif", "1:2 the name of a macro should follow"),
        ("#include <missing.x>\n", "1:10 no file `missing.x`"),
        ("#include\n", "1:2 `\"file\"` or `<file>` should follow"),
        ("#frobnicate\n", "1:1 no such directive"),
        ("#error no\n", "1:2 an `#error` directive: the file must not be read with these definitions"),
        ("#define F(a) a\nF(", "2:1 the `)` after the arguments of this macro is missing"),
        ("#define F(a) a\nF(F(", "2:1 the `)` after the arguments of this macro is missing"),
        (
            "#define F(a) a ## +\ntypedef int F(x);",
            "2:13 `##` makes `x+` of two words, which is not a valid word",
        ),
        ("#define F(a) a ##\ntypedef int F(x);", "2:13 there is nothing after `##` in this macro"),
        ("#define F(a) # b\ntypedef int F(x);", "2:13 `#` in this macro does not stand before an argument"),
    ];
    for (text, expected) in cases {
        let why = refused(text);
        let first = why.iter().next().unwrap();
        assert_eq!(format!("{}:{} {}", first.line(), first.column(), first.message()), *expected, "{text}");
        assert_eq!(first.file(), "test.x");
    }
}

#[test]
fn several_faults_are_told_but_not_without_end() {
    let why = refused(&"struct s { opaque a; };\n".repeat(100));
    assert!((2..=16).contains(&why.iter().count()));
}

mod hostile {
    use super::*;

    #[track_caller]
    fn refused_as(text: &str, message: &str) {
        let why = refused(text);
        assert!(why.iter().any(|each| each.message().contains(message)), "{why}");
    }

    #[test]
    fn nesting_has_a_limit() {
        refused_as(&format!("struct a {{ {}", "struct { ".repeat(100_000)), "nested more than");
        refused_as(&"namespace a { ".repeat(100_000), "nested too deep");
        refused_as(&format!("const A = {}1;", "(".repeat(100_000)), "nested more than");
        refused_as(&format!("const A = {}1;", "-".repeat(100_000)), "nested more than");
        refused_as(&format!("#if {}1\n#endif", "(".repeat(100_000)), "nested too deep");
        refused_as(&format!("#if {}1\n#endif", "!".repeat(100_000)), "too large");
        refused_as(&"#if 1\n".repeat(100_000), "nested `#if`s");
        refused_as(&format!("const A = a{};", "::a".repeat(100_000)), "too many parts");
    }

    #[test]
    fn long_chains_of_constants_have_a_limit_unless_each_is_known_before() {
        let backwards: String = (0..10_000).map(|n| format!("const C{n} = C{};\n", n + 1)).collect();
        refused_as(&(backwards + "const C10000 = 1;"), "too many constants depend on each other");
        let forwards: String = (0..10_000).map(|n| format!("const C{} = C{n} + 1;\n", n + 1)).collect();
        let tree =
            read_text(Path::new("test.x"), &("const C0 = 1;\n".to_owned() + &forwards), &Options::default())
                .unwrap();
        assert_eq!(tree.constants.len(), 10_001);
    }

    #[test]
    fn macros_cannot_grow_without_end() {
        let doubling: String = (0..64).map(|n| format!("#define A{n} A{0} A{0}\n", n + 1)).collect();
        refused_as(&(doubling + "#define A64 ;\nA0"), "macros expand to more than");
        let doubling: String = (0..64).map(|n| format!("#define A{n}(x) A{0}(x x)\n", n + 1)).collect();
        refused_as(&(doubling + "#define A64(x) x\nA0(;)"), "macros expand to more than");
        let doubling: String =
            (0..64).rev().map(|n| format!("#define A{n} (A{0} + A{0} + x)\n", n + 1)).collect();
        refused_as(&(doubling + "#if A0\n#endif"), "nested too deep");
        let doubling: String =
            (0..32).rev().map(|n| format!("#define A{n} A{0} + A{0} + x\n", n + 1)).collect();
        refused_as(&(doubling + "#if A0\n#endif"), "too large");
        let nested = format!("#define F(x) x\n{}1{}", "F(".repeat(100_000), ")".repeat(100_000));
        refused_as(&nested, "nested too deep");
        let pasting: String = (0..32).map(|n| format!("#define A{n}(x) A{0}(x##x)\n", n + 1)).collect();
        refused_as(&(pasting + "#define A32(x) x\nA0(ab)"), "not a valid word");
        refused_as("#define A A B\n#define B B A\nA", "a definition should begin here");
    }

    #[test]
    fn files_that_include_themselves_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("self.x");
        std::fs::write(&path, "#include \"self.x\"\n").unwrap();
        let why = read(&path, &Options::default()).unwrap_err();
        assert!(why.to_string().starts_with("error: files include each other 32 deep"), "{why}");
        std::fs::write(&path, "#include \"twice.x\"\n#include \"twice.x\"\n").unwrap();
        std::fs::write(directory.path().join("twice.x"), "#if 1\n#include \"self.x\"\n#endif\n").unwrap();
        assert!(read(&path, &Options::default()).is_err());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_before_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large.x");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let why = read(&path, &Options::default()).unwrap_err();
        assert!(why.to_string().contains("too large"), "{why}");
        assert!(read(directory.path(), &Options::default()).is_err());
    }

    #[test]
    fn types_that_have_no_end_or_no_room_are_not_made() {
        for text in [
            "struct a { a inner; };",
            "struct a { b inner; }; struct b { a inner[2]; };",
            "typedef a b; typedef b a;",
            "typedef a *b; typedef b a;",
        ] {
            let why = refused(text);
            let message = why.iter().next().unwrap().message();
            assert!(
                message.contains("contains itself") || message.contains("is nothing but itself"),
                "{text}: {why}"
            );
        }
        refused_as(
            "typedef int a[65536]; typedef a b[65536]; typedef b c[65536];",
            "bytes without pointers and lists",
        );
        // An arm that need not be chosen ends the recursion.
        let text =
            "union u switch (bool more) { case TRUE: struct { int i; u next; } element; case FALSE: void; };";
        assert!(read_text(Path::new("test.x"), text, &Options::default()).unwrap().warnings.is_empty());
    }

    #[test]
    fn many_names_that_are_declared_nowhere_take_no_long_time() {
        let many: String = (0..50_000).map(|n| format!("struct t{n} {{ u{n} x; }};\n")).collect();
        assert!((2..=16).contains(&refused(&many).iter().count()));
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lender.x"), many).unwrap();
        let path = directory.path().join("main.x");
        std::fs::write(&path, "%#include \"lender.h\"\nstruct s { t7 x; t8 y; };\n").unwrap();
        assert_eq!(read(&path, &Options::default()).unwrap_err().iter().count(), 2);
    }

    #[test]
    fn many_types_in_a_row_take_no_stack() {
        let chain: String = (0..50_000).map(|n| format!("struct t{n} {{ t{} x; }};\n", n + 1)).collect();
        let tree =
            read_text(Path::new("test.x"), &(chain + "struct t50000 { int i; };"), &Options::default())
                .unwrap();
        assert_eq!(tree.types.len(), 50_001);
        let chain: String = (0..50_000).map(|n| format!("typedef t{} t{n};\n", n + 1)).collect();
        assert!(
            read_text(Path::new("test.x"), &(chain + "typedef int t50000;"), &Options::default()).is_ok()
        );
    }

    #[test]
    fn no_start_of_a_file_and_no_lost_character_is_too_much() {
        let text = "/* d */ #define A(x) x<4>\n%#include \"b.h\"\nconst C = -0x1f; // c\nenum e { X = 'a', Y };\n\
                    union u switch (e k) { case X: A(opaque o); default: void; };\n#if defined(A) && 1 < 2\nnamespace n { typedef u t; }\n\
                    #endif\nprogram P { version V { n::t F(string, int *) = C; } = 1; } = 0x20000000;\n";
        for (at, _) in text.char_indices() {
            let _ = read_text(Path::new("test.x"), &text[..at], &Options::default())
                .map_err(|why| why.to_string());
            let without = format!("{}{}", &text[..at], &text[at + 1..]);
            let _ =
                read_text(Path::new("test.x"), &without, &Options::default()).map_err(|why| why.to_string());
            let with = format!("{}€{}", &text[..at], &text[at..]);
            let _ = read_text(Path::new("test.x"), &with, &Options::default()).map_err(|why| why.to_string());
        }
    }
}

#[test]
fn macros_in_expressions_are_computed_within_a_bound() {
    let mut text = String::from("#define B0 (1 + x)\n");
    (0..8).for_each(|at| text += &format!("#define B{} (B{at} + B{at})\n", at + 1));
    let chain = |branches: usize| format!("{text}#if 0\n{}#endif\n", "#elif B8 == 0\n".repeat(branches));
    let read = |text: &str| {
        farcall_base::work::counted(|| farcall_idl::x::read_text("m.x".as_ref(), text, &Default::default()))
    };
    let (few, _) = read(&chain(10));
    assert!(few.is_ok(), "{}", few.unwrap_err());
    let (refused, steps) = read(&chain(10_000));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("macros in expressions have more than 65536 operands"), "{why}");
    assert!(steps < 1_000_000, "{steps}");

    let many: Vec<String> = (0..33).map(|at| format!("p{at}")).collect();
    let why = read(&format!("#define M({}) 1\n", many.join(", "))).0.unwrap_err().to_string();
    assert!(why.contains("a macro has at most 32 parameters"), "{why}");
}
