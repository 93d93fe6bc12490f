//! Tests each part of the language of `.x` files with a small file.

use std::path::Path;

use farcall_idl::x::tree::{Body, Declared, Definition, Specification, Type, Union, Value};
use farcall_idl::x::{Options, read, read_text};

fn tree(text: &str) -> Specification {
    tree_with(text, &[])
}

fn tree_with(text: &str, given: &[(&str, &str)]) -> Specification {
    tree_by(text, &defines(given))
}

fn tree_external(text: &str, names: &[&str]) -> Specification {
    tree_by(
        text,
        &Options { external: names.iter().map(|name| name.to_string()).collect(), ..Options::default() },
    )
}

fn tree_by(text: &str, options: &Options) -> Specification {
    read_text(Path::new("test.x"), text, options).unwrap_or_else(|why| panic!("{why}"))
}

fn defines(given: &[(&str, &str)]) -> Options {
    let defines = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    Options { defines, ..Options::default() }
}

fn find<'a>(tree: &'a Specification, name: &str) -> &'a Definition {
    tree.types
        .iter()
        .find(|definition| definition.named.name == name)
        .unwrap_or_else(|| panic!("no {name} in {tree:#?}"))
}

/// Returns the types of a struct's fields.
fn fields(tree: &Specification, name: &str) -> Vec<Declared> {
    match &find(tree, name).body {
        Body::Struct(fields) => fields.iter().map(|field| field.declared.clone()).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

fn alias(tree: &Specification, name: &str) -> Declared {
    match &find(tree, name).body {
        Body::Alias(declared) => declared.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

fn union<'a>(tree: &'a Specification, name: &str) -> &'a Union {
    match &find(tree, name).body {
        Body::Union(union) => union,
        other => panic!("{name} is {other:?}"),
    }
}

fn enumerators(tree: &Specification, name: &str) -> Vec<(String, i32)> {
    match &find(tree, name).body {
        Body::Enum(all) => all.iter().map(|each| (each.named.name.clone(), each.value)).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

fn constants(tree: &Specification) -> Vec<(&str, i128)> {
    let integer = |value: &Value| match value {
        Value::Integer(value) => *value,
        Value::Text(_) | Value::Typed { .. } => 0,
    };
    tree.constants.iter().map(|each| (each.named.name.as_str(), integer(&each.value))).collect()
}

#[test]
fn numbers_have_all_of_c_s_spellings() {
    let tree = tree(
        "struct s { char a; unsigned char b; short c; unsigned short int d; int e; unsigned f; unsigned int g; long h;
         unsigned long i; hyper j; unsigned hyper k; quad l; long long m; unsigned long long n; u_int o; uint64_t p; bool_t q;
         u_quad_t r; int8_t s; u_char t; bool u; float v; double w; quadruple x; signed int y; long int z; };",
    );
    use Type::*;
    let expected = [
        I8, U8, I16, U16, I32, U32, U32, I32, U32, I64, U64, I64, I64, U64, U32, U64, Bool, U64, I8, U8,
        Bool, F32, F64, Quadruple, I32, I32,
    ];
    assert_eq!(fields(&tree, "s"), expected.map(Declared::One));
}

#[test]
fn a_declaration_takes_each_shape() {
    let tree = tree(
        "const N = 4;
         struct s { int one; int *optional; int fixed[N]; int most<0x10>; int any<>; opaque f[010]; opaque m<N>; opaque a<>;
         string t<N>; string u<>; string v; struct tag *w; enum kind x; void; };
         struct tag { int i; }; enum kind { K };",
    );
    let int = Type::I32;
    let kind = tree.types.iter().position(|definition| definition.named.name == "kind").unwrap();
    assert_eq!(
        fields(&tree, "s"),
        [
            Declared::One(int.clone()),
            Declared::Optional(int.clone()),
            Declared::Array { element: int.clone(), size: 4 },
            Declared::List { element: int.clone(), max: 16 },
            Declared::List { element: int, max: u32::MAX },
            Declared::Opaque { size: 8 },
            Declared::Bytes { max: 4 },
            Declared::Bytes { max: u32::MAX },
            Declared::String { max: 4 },
            Declared::String { max: u32::MAX },
            Declared::String { max: u32::MAX },
            Declared::Optional(Type::Defined(kind - 1)),
            Declared::One(Type::Defined(kind)),
        ]
    );
}

#[test]
fn constants_are_numbers_of_every_base_texts_and_sums_of_others() {
    let tree = tree(
        "const A = 0x1f; const B = 017; const C = -5; const D = 0xffffffffffffffff; const E = 18446744073709551615ULL;
         const F = (A + B - C) * 2; const G = A | 0x40; const H = 'x'; const I = 1'000'000; const K = \"a \\\"text\\\"\";
         const later = AFTER; const AFTER = 9;",
    );
    let max = i128::from(u64::MAX);
    let expected = [31, 15, -5, max, max, 102, 95, 120, 1_000_000, 0, 9, 9];
    assert_eq!(constants(&tree).iter().map(|(_, value)| *value).collect::<Vec<_>>(), expected);
    assert_eq!(tree.constants[9].value, Value::Text("a \"text\"".into()));
}

#[test]
fn enumerators_go_on_from_the_one_before_and_serve_as_constants() {
    let tree = tree(
        "enum e { A, B, C = 10, D, E = -1, F = D, G = 0xffffffff, }; struct s { int x[D]; }; const LAST = D;",
    );
    let expected = [("A", 0), ("B", 1), ("C", 10), ("D", 11), ("E", -1), ("F", 11), ("G", -1)];
    assert_eq!(enumerators(&tree, "e"), expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(fields(&tree, "s"), [Declared::Array { element: Type::I32, size: 11 }]);
    assert_eq!(constants(&tree), [("LAST", 11)]);
}

#[test]
fn a_union_has_several_labels_numbers_names_and_a_default() {
    let tree = tree(
        "enum kind { NONE, ONE, TWO }; const THREE = 3;
         union u switch (kind k) { case NONE: void; case ONE: case TWO: int i; case THREE: string s<>; default: void; };
         union b switch (bool yes) { case TRUE: int i; case FALSE: void; };
         union n switch (unsigned n) { default: opaque rest<>; case 0xffffffff: hyper h; };
         union shared switch (int i) { case 1: default: int all; case 2: void; };",
    );
    let labels = |name: &str| -> Vec<Vec<(Option<String>, i32)>> {
        let arms = &union(&tree, name).arms;
        arms.iter()
            .map(|arm| arm.labels.iter().map(|label| (label.name.clone(), label.value)).collect())
            .collect()
    };
    let named = |name: &str, value| (Some(name.to_owned()), value);
    assert_eq!(
        labels("u"),
        [vec![named("NONE", 0)], vec![named("ONE", 1), named("TWO", 2)], vec![named("THREE", 3)]]
    );
    assert_eq!(union(&tree, "u").discriminant, Type::Defined(0));
    assert_eq!(union(&tree, "u").default, Some(None));
    assert_eq!(labels("b"), [vec![named("TRUE", 1)], vec![named("FALSE", 0)]]);
    assert_eq!(union(&tree, "b").default, None);
    assert_eq!(labels("n"), [vec![(None, -1)]]);
    let rest = union(&tree, "n").default.clone().flatten().unwrap();
    assert_eq!((rest.named.name.as_str(), rest.declared), ("rest", Declared::Bytes { max: u32::MAX }));
    assert_eq!(labels("shared"), [vec![(None, 2)]]);
    assert!(matches!(&union(&tree, "shared").default, Some(Some(_))));
}

#[test]
fn programs_have_versions_procedures_and_any_number_of_arguments() {
    let tree = tree(
        "program P { version V1 { void NULL(void) = 0; int ADD(int, int b) = 1; string NAME(string) = 2; list *ALL() = 3; } = 1;
         version V2 { void NULL(void) = 0; opaque RAW(string s<8>, list *, int<4>)<16> = 0x11; } = 2; } = 0x20000001;
         struct list { list *next; }; const AGAIN = ADD;"
            .replace("opaque RAW(string s<8>, list *, int<4>)<16>", "opaque<16> RAW(string s<8>, list *, int<4>)")
            .as_str(),
    );
    let program = &tree.programs[0];
    assert_eq!((program.named.name.as_str(), program.number), ("P", 0x2000_0001));
    let told: Vec<_> =
        program.versions.iter().map(|version| (version.number, version.procedures.len())).collect();
    assert_eq!(told, [(1, 4), (2, 2)]);
    let [null, add, name, all] = &program.versions[0].procedures[..] else { panic!("four procedures") };
    assert_eq!((null.arguments.len(), &null.result), (0, &Declared::One(Type::Void)));
    let arguments: Vec<_> =
        add.arguments.iter().map(|each| (each.name.as_deref(), each.declared.clone())).collect();
    assert_eq!(arguments, [(None, Declared::One(Type::I32)), (Some("b"), Declared::One(Type::I32))]);
    assert_eq!(
        (&name.arguments[0].declared, &name.result),
        (&Declared::String { max: u32::MAX }, &Declared::String { max: u32::MAX })
    );
    assert_eq!((all.arguments.len(), &all.result), (0, &Declared::Optional(Type::Defined(0))));
    let raw = &program.versions[1].procedures[1];
    let arguments: Vec<_> = raw.arguments.iter().map(|each| each.declared.clone()).collect();
    let list = Declared::List { element: Type::I32, max: 4 };
    assert_eq!(arguments, [Declared::String { max: 8 }, Declared::Optional(Type::Defined(0)), list]);
    assert_eq!((raw.number, &raw.result), (0x11, &Declared::Bytes { max: 16 }));
    assert_eq!(constants(&tree), [("AGAIN", 1)]);
}

// The case of glibc's sunrpc/bug20790.x, for which rpcgen once had no room.
#[test]
fn a_name_may_be_long_but_not_of_any_length() {
    let program =
        |length| format!("program P {{ version V {{ int F(int {}) = 1; }} = 1; }} = 1;", "a".repeat(length));
    assert_eq!(tree(&program(1024)).programs.len(), 1);
    assert!(read_text(Path::new("test.x"), &program(1025), &Options::default()).is_err());
}

#[test]
fn types_without_a_name_are_named_after_what_is_around_them() {
    let tree = tree(
        "struct a { struct { enum { X } e; } inner; union switch (int i) { case 1: struct { int n; } s; } u; struct { int k; } inner2; };
         struct a_inner2 { int taken; };
         typedef struct { int i; } plain; typedef enum { Y } *pointer; typedef struct tag { int i; } many<>;
         struct *node { int i; node next; };",
    );
    let names: Vec<_> = tree.types.iter().map(|definition| definition.named.name.as_str()).collect();
    let expected = [
        "a_inner_e",
        "a_inner",
        "a_u_s",
        "a_u",
        "a_inner2_2",
        "a",
        "a_inner2",
        "plain",
        "pointer_item",
        "pointer",
        "tag",
        "many",
        "node_item",
        "node",
    ];
    assert_eq!(names, expected);
    assert_eq!(alias(&tree, "pointer"), Declared::Optional(Type::Defined(8)));
    assert_eq!(alias(&tree, "many"), Declared::List { element: Type::Defined(10), max: u32::MAX });
    assert_eq!(alias(&tree, "node"), Declared::Optional(Type::Defined(12)));
    assert_eq!(fields(&tree, "node_item")[1], Declared::One(Type::Defined(13)));
}

#[test]
fn a_typedef_of_a_type_to_its_own_name_says_nothing() {
    let tree = tree(
        "struct foo { int i; }; typedef struct foo foo; typedef unsigned int uint32_t; struct s { foo f; uint32_t u; };",
    );
    assert_eq!(tree.types.len(), 2);
    assert_eq!(fields(&tree, "s"), [Declared::One(Type::Defined(0)), Declared::One(Type::U32)]);
}

#[test]
fn what_the_user_says_is_declared_elsewhere_is_and_what_rpc_declares_is_known() {
    let tree = tree_external(
        "struct s { sockaddr a; netobj n; des_block d; opaque_auth o; rpcprog_t p; };",
        &["sockaddr"],
    );
    let told = fields(&tree, "s");
    assert_eq!(told[0], Declared::One(Type::Foreign("sockaddr".into())));
    assert_eq!(alias(&tree, "netobj"), Declared::Bytes { max: 1024 });
    assert_eq!(alias(&tree, "des_block"), Declared::Opaque { size: 8 });
    assert_eq!(fields(&tree, "opaque_auth").len(), 2);
    // Unused declarations of other files are left out.
    assert!(tree.types.iter().all(|definition| definition.named.name != "authsys_parms"));
}

#[test]
fn a_constant_is_given_and_a_type_that_needs_one_can_be_left_to_the_user() {
    let text = "struct a { char path[PATH]; }; struct b { a inner; string name<NAME>; };
                union u switch (int i) { case SOME: int i; }; union v switch (kind k) { case 1: int i; };";
    let whole =
        Options { external: vec!["kind".into()], ..defines(&[("PATH", "8"), ("NAME", "9"), ("SOME", "10")]) };
    let whole = read_text(Path::new("test.x"), text, &whole).unwrap();
    assert_eq!((whole.types.len(), whole.warnings.len()), (4, 0));
    assert_eq!(fields(&whole, "a"), [Declared::Array { element: Type::I8, size: 8 }]);
    assert_eq!(constants(&whole), [("PATH", 8), ("NAME", 9), ("SOME", 10)]);
    // A discriminant takes 32 bits, whatever its type is.
    assert_eq!(union(&whole, "v").discriminant, Type::I32);

    let left = tree_external("struct a { char path[PATH]; }; struct b { a inner; };", &["a"]);
    assert_eq!(fields(&left, "b"), [Declared::One(Type::Foreign("a".into()))]);
    assert_eq!(left.types.len(), 1);
    // A type that contains itself without end can be declared elsewhere too.
    let left = tree_external("struct a { b b; }; struct b { a a; }; struct c { a a; };", &["a"]);
    assert_eq!(fields(&left, "b"), [Declared::One(Type::Foreign("a".into()))]);
}

#[test]
fn what_is_wrong_in_a_file_that_lends_types_matters_if_they_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    file(
        "lender.x",
        "struct good { int i; };\nstruct bad { good g; char path[PATH]; };\nstruct worse { opaqe_t x; };\n",
    );
    let using = |name: &str, options: &Options| {
        file("main.x", &format!("%#include \"lender.h\"\nstruct s {{ {name} x; }};\n"));
        farcall_idl::x::read(&directory.path().join("main.x"), options)
    };
    assert!(using("good", &Options::default()).is_ok());
    for (name, says) in
        [("bad", "no constant `PATH` is declared"), ("worse", "no type `opaqe_t` is declared")]
    {
        let why = using(name, &Options::default()).unwrap_err();
        let first = why.iter().next().unwrap();
        assert!(first.message() == says && first.file().ends_with("lender.x") && first.line() > 1, "{why}");
        let left = using(name, &Options { external: vec![name.into()], ..Options::default() }).unwrap();
        assert_eq!(fields(&left, "s"), [Declared::One(Type::Foreign(name.into()))]);
    }
}

#[test]
fn macros_paste_and_quote_what_they_are_given() {
    let tree = tree(
        "#define LIST(kind) struct kind##_list { kind *first; int n##kind; };
         #define NAME(a, b) a ## _ ## b
         #define THREE(a, b, c) a##b##c
         #define PLAIN pre ## fix
         #define ONE(x) x
         #define CONST(prefix, n) const prefix##n = 0x##n; const prefix##n##_TEXT = QUOTE(n +  1);
         #define QUOTE(x) #x
         LIST(point)
         struct point { int x; };
         struct NAME(a, b) { THREE(un, , signed) PLAIN; THREE(, , int) NAME(, y); ONE(ONE(ONE(hyper))) z; };
         CONST(N, 10)",
    );
    let names: Vec<&str> = tree.types.iter().map(|definition| definition.named.name.as_str()).collect();
    assert_eq!(names, ["point_list", "point", "a_b"], "{tree:#?}");
    let of = |name: &str| match &find(&tree, name).body {
        Body::Struct(fields) => fields.iter().map(|field| field.named.name.clone()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (of("point_list"), of("a_b")),
        (vec!["first".into(), "npoint".into()], vec!["prefix".into(), "_y".into(), "z".into()])
    );
    assert_eq!(fields(&tree, "a_b"), [Type::U32, Type::I32, Type::I64].map(Declared::One));
    let constants: Vec<_> =
        tree.constants.iter().map(|each| (each.named.name.as_str(), each.value.clone())).collect();
    assert_eq!(constants, [("N10", Value::Integer(16)), ("N10_TEXT", Value::Text("10 + 1".into()))]);
}

#[test]
fn namespaces_are_looked_through_from_the_inside() {
    let tree = tree(
        "typedef int T; enum color { RED };
         namespace a { typedef hyper T; enum color { RED = 5 };
           namespace b { struct s { T t; ::T u; color c; ::color d; int e[RED]; int f[color::RED]; int g[a::RED]; }; }
         }
         namespace a::b { struct t { s inner; }; }",
    );
    assert_eq!(find(&tree, "t").namespace, ["a", "b"]);
    let told = fields(&tree, "s");
    assert_eq!(told[0], Declared::One(Type::Defined(2)));
    assert_eq!(told[1], Declared::One(Type::Defined(0)));
    assert_eq!(told[2], Declared::One(Type::Defined(3)));
    assert_eq!(told[3], Declared::One(Type::Defined(1)));
    assert!(
        told[4..].iter().all(|each| *each == Declared::Array { element: Type::I32, size: 5 }),
        "{told:?}"
    );
    assert_eq!(fields(&tree, "t"), [Declared::One(Type::Defined(4))]);
}

#[test]
fn other_dialects_directives_and_stray_semicolons_are_passed_over() {
    let tree = tree(
        "package \"x\"; pragma header y; pragma public z; struct s { zcopaque z<>; };; typedef int t; namespace n {}; ",
    );
    assert_eq!(tree.types.len(), 2);
}

#[test]
fn comments_become_documentation_of_what_they_stand_by() {
    let tree = tree(
        "/* Not of anything. */

/*
 * Of S,
 * in two lines [see 4] <b>.
 */
struct s { /* Its third. */
    int a; /* of a */
    /* of b */
    int b;
    // of c
    int c;      /* and after,
                 * in two */
    int d;      // of d,
                // and on
    int /* of nothing */ e;
};
enum e {
    X, /* of X */
    Y
    /* of Z */ , Z = 3 // of Z too
};
#define SIZE 4 /* a size */
typedef opaque o[SIZE];
/* of the table
 *   name      value
 *   one       1
 */
const T = 1;",
    );
    assert_eq!(find(&tree, "s").named.docs, "Of S,\nin two lines \\[see 4\\] \\<b>.\n\nIts third.");
    let Body::Struct(fields) = &find(&tree, "s").body else { panic!("a struct") };
    let docs: Vec<_> = fields.iter().map(|field| field.named.docs.as_str()).collect();
    assert_eq!(docs, ["of a", "of b", "of c\n\nand after,\nin two", "of d,\nand on", ""]);
    let Body::Enum(enumerators) = &find(&tree, "e").body else { panic!("an enumeration") };
    let docs: Vec<_> = enumerators.iter().map(|each| each.named.docs.as_str()).collect();
    assert_eq!(docs, ["of X", "", "of Z too"]);
    let docs: Vec<_> = tree.constants.iter().map(|each| each.named.docs.as_str()).collect();
    assert_eq!(docs, ["a size", "```text\nof the table\nname      value\none       1\n```"]);
}

#[test]
fn a_comment_cannot_leave_its_documentation() {
    let tree = tree("/* ``` \n *      [a]: b\n * ``` */ typedef int t; // `x` \n");
    assert!(
        !find(&tree, "t").named.docs.trim_start_matches("```text").trim_end_matches("```").contains("```")
    );
}

mod preprocessor {
    use super::*;

    #[test]
    fn conditionals_take_one_branch() {
        let text = "
#ifdef RPC_HDR
typedef int header;
#else
typedef int other
#endif
#if defined(A) && A > 2 || !defined B /* and so on */
typedef int first;
#elif A == (1 << 1) + 0 // two
typedef int second;
#  else
typedef int third;
#endif
#ifndef A
'an apostrophe\"
#if 1
#endif
# endif";
        let names = |a: &str| -> Vec<String> {
            let tree = tree_with(text, &[("A", a), ("B", "1")]);
            tree.types.iter().map(|definition| definition.named.name.clone()).collect()
        };
        assert_eq!(names("3"), ["header", "first"]);
        assert_eq!(names("2"), ["header", "second"]);
        assert_eq!(names("1"), ["header", "third"]);
    }

    #[test]
    fn a_macro_that_is_a_number_becomes_a_constant_and_any_other_is_replaced() {
        let tree = tree(
            "#define SIZE (4 * \\\n 2)\n#define UNUSED 1\n#define LIST(t, n) t n<>;\n#define md5 opaque\n#define TWICE SIZE
struct s { LIST(int, a) LIST(hyper, b) md5 c[TWICE]; };\n#undef SIZE\n#define SIZE 3\ntypedef int t[SIZE];\ntypedef int u[TWICE];",
        );
        let told = fields(&tree, "s");
        assert_eq!(told[1], Declared::List { element: Type::I64, max: u32::MAX });
        assert_eq!(told[2], Declared::Opaque { size: 8 });
        assert_eq!(alias(&tree, "t"), Declared::Array { element: Type::I32, size: 3 });
        assert_eq!(alias(&tree, "u"), Declared::Array { element: Type::I32, size: 8 });
        assert_eq!(constants(&tree), [("TWICE", 8), ("SIZE", 3)]);
    }

    #[test]
    fn lines_for_c_are_passed_over_but_what_they_define_is_known() {
        let tree = tree(
            "%#define MAX LIMIT+1\n%#define quad64 unsigned long long\n%typedef struct tag *t;\n%struct c { char *p; };
enum e { A,\n   % /* indented */\n B };\n%#define LONG(a) \\\n  a + \"\\\n  ' \nconst LIMIT = 7;\nstruct s { string n<MAX>; quad64 q; };",
        );
        assert_eq!(fields(&tree, "s")[0], Declared::String { max: 8 });
        assert_eq!(alias(&tree, "quad64"), Declared::One(Type::U64));
        assert_eq!(constants(&tree), [("LIMIT", 7)]);
        assert_eq!(enumerators(&tree, "e").len(), 2);
    }

    #[test]
    fn files_are_included_and_headers_stand_for_the_files_they_are_made_of() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "main.x",
            "#include \"a.x\"\n#include <b.x>\n%#include \"proto/lent.h\"\nstruct s { a x; b y; lent z; int n[N]; };",
        );
        file("a.x", "typedef int a;");
        file("lib/b.x", "#include \"c.x\"\ntypedef c b;");
        file("lib/c.x", "typedef hyper c;");
        file(
            "lent.x",
            "%#include \"main.h\"\n%#include \"further.h\"\nconst N = 3; typedef further lent; struct unused { int i; };",
        );
        file("further.x", "typedef bool further; enum broken { X = UNKNOWN };");
        let options = Options { include_dirs: vec![directory.path().join("lib")], ..Options::default() };
        let tree = read(&directory.path().join("main.x"), &options).unwrap_or_else(|why| panic!("{why}"));
        let names: Vec<_> = tree.types.iter().map(|definition| definition.named.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "b", "s", "lent", "further"]);
        assert_eq!(fields(&tree, "s")[3], Declared::Array { element: Type::I32, size: 3 });
        assert!(tree.constants.is_empty() && tree.warnings.is_empty());
    }
}
