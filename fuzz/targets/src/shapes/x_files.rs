//! Shapes of `.x` files: of the preprocessor, of tokens, and of declarations.

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    // The preprocessor.
    Shape {
        target: "x_file",
        name: "elif",
        make: |n| many("#if 0\n", n, |_| "#elif 0\n".into(), "#endif\n"),
    },
    Shape {
        target: "x_file",
        name: "elif of a macro",
        make: |n| many(&format!("{}#if 0\n", bomb()), n, |_| "#elif B8\n".into(), "#endif\n"),
    },
    Shape {
        target: "x_file",
        name: "elif of long expressions",
        make: |n| many("#if 0\n#elif 0", n, |_| " + 0".into(), "\n#endif\n"),
    },
    Shape {
        target: "x_file",
        name: "ifs in sequence",
        make: |n| many("", n, |_| "#ifdef A\nstray @ \" text\n#else\n#endif\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "definitions that are no numbers",
        make: |n| many(&bomb(), n, |at| format!("#define C{at} B8 + x\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "a chain of macros",
        make: |n| many("#define M0 1\n", n, |at| format!("#define M{} M{at}\n", at + 1), "const c = M0;\n"),
    },
    Shape {
        target: "x_file",
        name: "a chain of macros backwards",
        make: |n| many("", n, |at| format!("#define M{at} M{}\n", at + 1), "const c = M0;\n"),
    },
    Shape {
        target: "x_file",
        name: "uses of a number",
        make: |n| many("#define N 5\n", n, |at| format!("typedef int a{at}[N];\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "one macro defined often",
        make: |n| many("", n, |at| format!("#define N {at}\nconst c{at} = N;\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "macros with arguments",
        make: |n| many("#define F(a, b) typedef a b;\n", n, |at| format!("F(int, t{at})\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "pasted names",
        make: |n| many("#define F(b) typedef int t ## b;\n", n, |at| format!("F({at})\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "one argument with many tokens",
        make: |n| many("#define F(a) a\nF(", n, |at| format!("const c{at} = 1; "), ")\n"),
    },
    Shape {
        target: "x_file",
        name: "names of macros without arguments",
        make: |n| many("#define F(a) a\n", n, |_| "struct F /* */ /* */ { int a; };\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "open quotes in one line",
        make: |n| many("#if 0\n", n, |_| "\\\"".into(), "\n#endif\n"),
    },
    Shape {
        target: "x_file",
        name: "lines for C",
        make: |n| many("", n, |at| format!("%#define c{at} {at}\n%typedef int t{at};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "lines for C that use each other",
        make: |n| many("", n, |at| format!("%#define c{at} c{}\n", at + 1), "const c = c0;\n"),
    },
    Shape {
        target: "x_file",
        name: "continued lines",
        make: |n| many("#define A 1", n, |_| " \\\n + 1".into(), "\n"),
    },
    // Tokens.
    Shape {
        target: "x_file",
        name: "comments",
        make: |n| many("", n, |at| format!("/* {at} */\n"), "const c = 1;\n"),
    },
    Shape {
        target: "x_file",
        name: "comments in one line",
        make: |n| many("const c = 1;", n, |at| format!("/* {at} */"), "\n"),
    },
    Shape {
        target: "x_file",
        name: "a comment with many lines",
        make: |n| many("/*\n", n, |_| " * text\n".into(), "*/ const c = 1;\n"),
    },
    Shape {
        target: "x_file",
        name: "definitions in one line",
        make: |n| many("", n, |at| format!("const c{at} = {at}; "), "\n"),
    },
    Shape { target: "x_file", name: "empty definitions", make: |n| many("", n, |_| ";".into(), "\n") },
    Shape {
        target: "x_file",
        name: "a long number",
        make: |n| many("const c = 1", n, |_| "'0".into(), ";\n"),
    },
    Shape {
        target: "x_file",
        name: "a long string",
        make: |n| many("const c = \"", n, |_| "\\n".into(), "\";\n"),
    },
    // Declarations.
    Shape {
        target: "x_file",
        name: "constants",
        make: |n| many("", n, |at| format!("const c{at} = {at};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "a chain of constants",
        make: |n| many("const c0 = 1;\n", n, |at| format!("const c{} = c{at} + 0;\n", at + 1), ""),
    },
    Shape {
        target: "x_file",
        name: "a chain of constants backwards",
        make: |n| many("", n, |at| format!("const c{at} = c{};\n", at + 1), &format!("const c{n} = 1;\n")),
    },
    Shape {
        target: "x_file",
        name: "a circle of constants",
        make: |n| many(&format!("const c{n} = c0;\n"), n, |at| format!("const c{at} = c{};\n", at + 1), ""),
    },
    Shape {
        target: "x_file",
        name: "a long sum",
        make: |n| many("const c = 0", n, |_| " + 0".into(), ";\n"),
    },
    Shape {
        target: "x_file",
        name: "doubled constants",
        make: |n| many("const c0 = 0;\n", n, |at| format!("const c{} = c{at} + c{at};\n", at + 1), ""),
    },
    Shape {
        target: "x_file",
        name: "typedefs",
        make: |n| many("", n, |at| format!("typedef int t{at};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "a chain of typedefs",
        make: |n| {
            many(
                "typedef int t0;\n",
                n,
                |at| format!("typedef t{at} t{};\n", at + 1),
                "struct s { t0 a; };\n",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "a chain of typedefs backwards",
        make: |n| many("", n, |at| format!("typedef t{} t{at};\n", at + 1), &format!("typedef int t{n};\n")),
    },
    Shape {
        target: "x_file",
        name: "a circle of typedefs",
        make: |n| many(&format!("typedef t0 t{n};\n"), n, |at| format!("typedef t{} t{at};\n", at + 1), ""),
    },
    Shape {
        target: "x_file",
        name: "typedefs of built-in names",
        make: |n| many("", n, |_| "typedef int int32_t;\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "one type declared often",
        make: |n| many("", n, |_| "typedef int t;\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "one struct declared often",
        make: |n| many("", n, |_| "struct t { int a; };\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "one constant declared often",
        make: |n| many("", n, |_| "const t = 1;\n".into(), ""),
    },
    Shape {
        target: "x_file",
        name: "undeclared types",
        make: |n| many("", n, |at| format!("typedef u{at} t{at};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "undeclared constants",
        make: |n| many("", n, |at| format!("typedef int t{at}[U{at}];\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "enumerators",
        make: |n| many("enum e {", n, |at| format!("e{at} = {at},\n"), "last };\n"),
    },
    Shape {
        target: "x_file",
        name: "enumerators without values",
        make: |n| many("enum e {", n, |at| format!("e{at},\n"), "last };\n"),
    },
    Shape {
        target: "x_file",
        name: "enumerators of the one before",
        make: |n| many("enum e { e0 = 0,", n, |at| format!("e{} = e{at},\n", at + 1), "last };\n"),
    },
    Shape {
        target: "x_file",
        name: "enumerators of one name",
        make: |n| many("enum e {", n, |_| "same,\n".into(), "last };\n"),
    },
    Shape {
        target: "x_file",
        name: "enumerators of one name in two enumerations",
        make: |n| {
            many(
                "enum e {",
                n,
                |at| format!("e{at},"),
                &format!(
                    "last }}; enum f {{ {} }};",
                    (0..n).map(|at| format!("e{at}")).collect::<Vec<_>>().join(",")
                ),
            )
        },
    },
    Shape {
        target: "x_file",
        name: "enumerations",
        make: |n| many("", n, |at| format!("enum e{at} {{ a{at}, b{at} }};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "arms",
        make: |n| {
            many(
                "union u switch (int which) {\n",
                n,
                |at| format!("case {at}: int a{at};\n"),
                "default: void; };\n",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "arms of an enumeration",
        make: |n| many(&enumeration(n), n, |at| format!("case e{at}: int a{at};\n"), "};\n"),
    },
    Shape {
        target: "x_file",
        name: "labels of one arm",
        make: |n| {
            many(
                "union u switch (int which) {\n",
                n,
                |at| format!("case {at}:\n"),
                "int a; default: void; };\n",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "one label many times",
        make: |n| {
            many("union u switch (int which) {\n", n, |_| "case 1: int a;\n".into(), "default: void; };\n")
        },
    },
    Shape {
        target: "x_file",
        name: "fields",
        make: |n| many("struct s {\n", n, |at| format!("int a{at};\n"), "};\n"),
    },
    Shape {
        target: "x_file",
        name: "fields of one name",
        make: |n| many("struct s {\n", n, |_| "int a;\n".into(), "};\n"),
    },
    Shape {
        target: "x_file",
        name: "fields of one type",
        make: |n| many("struct t { int a; }; struct s {\n", n, |at| format!("t a{at};\n"), "};\n"),
    },
    Shape {
        target: "x_file",
        name: "fields of struct types in line",
        make: |n| many("struct s {\n", n, |at| format!("struct {{ int a; }} a{at};\n"), "};\n"),
    },
    Shape {
        target: "x_file",
        name: "a chain of structs",
        make: |n| {
            many(
                "struct s0 { int a; };\n",
                n.min(1000),
                |at| format!("struct s{} {{ s{at} a; }};\n", at + 1),
                "",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "a diamond of structs",
        make: |n| {
            many(
                "struct s0 { int a; };\n",
                n,
                |at| format!("struct s{} {{ s{at} a; s{at} b; }};\n", at + 1),
                "",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "a diamond of pointers",
        make: |n| {
            many(
                "struct s0 { int a; };\n",
                n,
                |at| format!("struct s{} {{ s{at} *a; s{at} *b; }};\n", at + 1),
                "",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "a circle of pointers",
        make: |n| {
            many(
                &format!("struct s{n} {{ s0 *a; }};\n"),
                n,
                |at| format!("struct s{at} {{ s{} *a; }};\n", at + 1),
                "",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "many circles",
        make: |n| many("", n, |at| format!("struct s{at} {{ s{at} *next; int a; }};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "structs that contain themselves",
        make: |n| many("", n, |at| format!("struct s{at} {{ s{at} next; }};\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "similar names",
        make: |n| many("", n, |at| format!("typedef int a{}b{};\n", "_".repeat(at % 40), at / 40), ""),
    },
    Shape {
        target: "x_file",
        name: "names that are one name in Rust",
        make: |n| many("", n, |at| format!("typedef int t{}x{};\n", "_".repeat(1 + at % 900), at / 900), ""),
    },
    Shape {
        target: "x_file",
        name: "namespaces",
        make: |n| many("", n, |at| format!("namespace n{at} {{ const c = 1; }}\n"), ""),
    },
    Shape {
        target: "x_file",
        name: "one namespace opened often",
        make: |n| many("", n, |at| format!("namespace n {{ const c{at} = 1; }}\n"), ""),
    },
    // Programs.
    Shape {
        target: "x_file",
        name: "programs",
        make: |n| {
            many(
                "",
                n,
                |at| format!("program P{at} {{ version V{at} {{ void NULL(void) = 0; }} = 1; }} = {at};\n"),
                "",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "versions",
        make: |n| {
            many(
                "program P {\n",
                n,
                |at| format!("version V{at} {{ void NULL(void) = 0; }} = {at};\n"),
                "} = 1;\n",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "versions of one name",
        make: |n| {
            many(
                "program P {\n",
                n,
                |at| format!("version V {{ void NULL(void) = 0; }} = {at};\n"),
                "} = 1;\n",
            )
        },
    },
    Shape {
        target: "x_file",
        name: "procedures",
        make: |n| {
            many("program P { version V {\n", n, |at| format!("int P{at}(int) = {at};\n"), "} = 1; } = 1;\n")
        },
    },
    Shape {
        target: "x_file",
        name: "procedures of one name",
        make: |n| {
            many("program P { version V {\n", n, |at| format!("int P(int) = {at};\n"), "} = 1; } = 1;\n")
        },
    },
    Shape {
        target: "x_file",
        name: "procedures of one number",
        make: |n| {
            many("program P { version V {\n", n, |at| format!("int P{at}(int) = 1;\n"), "} = 1; } = 1;\n")
        },
    },
    Shape {
        target: "x_file",
        name: "procedures of many types",
        make: |n| many(&types(n), n, |at| format!("t{at} P{at}(t0) = {at};\n"), "} = 1; } = 1;\n"),
    },
    Shape {
        target: "x_file",
        name: "arguments",
        make: |n| many("program P { version V { int P(int", n, |_| ", int".into(), ") = 1; } = 1; } = 1;\n"),
    },
];

/// Macros each of which is twice the one before: the last stands for 256 names.
fn bomb() -> String {
    let mut text = String::from("#define B0 (1 + x)\n");
    (0..8).for_each(|at| text += &format!("#define B{} (B{at} + B{at})\n", at + 1));
    text
}

fn enumeration(n: usize) -> String {
    let mut text = String::from("enum e {");
    (0..n).for_each(|at| text += &format!("e{at} = {at}, "));
    text + "last = -1 };\nunion u switch (e which) {\n"
}

fn types(n: usize) -> String {
    let mut text = String::new();
    (0..n).for_each(|at| text += &format!("struct t{at} {{ int a; }};\n"));
    text + "program P { version V {\n"
}
