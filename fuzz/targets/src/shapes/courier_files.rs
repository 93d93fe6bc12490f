//! Shapes of `.cr` files.

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    Shape { target: "cr_file", name: "types", make: |n| cr(n, |at| format!("T{at}: TYPE = CARDINAL;\n")) },
    Shape {
        target: "cr_file",
        name: "a chain of types",
        make: |n| {
            cr(n, |at| {
                if at == 0 {
                    "T0: TYPE = CARDINAL;\n".into()
                } else {
                    format!("T{at}: TYPE = T{};\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "a chain of types backwards",
        make: |n| {
            cr(n, |at| {
                if at == n - 1 {
                    format!("T{at}: TYPE = CARDINAL;\n")
                } else {
                    format!("T{at}: TYPE = T{};\n", at + 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "a diamond of records",
        make: |n| {
            cr(n, |at| {
                if at == 0 {
                    "T0: TYPE = CARDINAL;\n".into()
                } else {
                    format!("T{at}: TYPE = RECORD [a, b: T{}];\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "a diamond of sequences",
        make: |n| {
            cr(n, |at| {
                if at == 0 {
                    "T0: TYPE = CARDINAL;\n".into()
                } else {
                    format!("T{at}: TYPE = RECORD [a, b: SEQUENCE OF T{}];\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "enumerators",
        make: |n| crs(n, "E: TYPE = {", |at| format!("e{at}({at})"), "};"),
    },
    Shape {
        target: "cr_file",
        name: "enumerators of one number",
        make: |n| crs(n, "E: TYPE = {", |at| format!("e{at}(1)"), "};"),
    },
    Shape {
        target: "cr_file",
        name: "enumerators of one name",
        make: |n| crs(n, "E: TYPE = {", |at| format!("e({at})"), "};"),
    },
    Shape {
        target: "cr_file",
        name: "fields",
        make: |n| crs(n, "R: TYPE = RECORD [", |at| format!("f{at}: CARDINAL"), "];"),
    },
    Shape {
        target: "cr_file",
        name: "fields of one name",
        make: |n| crs(n, "R: TYPE = RECORD [", |_| "f: CARDINAL".into(), "];"),
    },
    Shape {
        target: "cr_file",
        name: "choices",
        make: |n| crs(n, "C: TYPE = CHOICE OF {", |at| format!("c{at}({at}) => CARDINAL"), "};"),
    },
    Shape {
        target: "cr_file",
        name: "choices of an enumeration",
        make: |n| {
            let e = String::from_utf8(list("E: TYPE = {", n, |at| format!("e{at}({at})"), "};\n")).unwrap();
            crs(n, &format!("{e}C: TYPE = CHOICE E OF {{"), |at| format!("e{at} => CARDINAL"), "};")
        },
    },
    Shape {
        target: "cr_file",
        name: "designators of one choice",
        make: |n| crs(n, "C: TYPE = CHOICE OF {", |at| format!("c{at}({at})"), " => CARDINAL };"),
    },
    Shape {
        target: "cr_file",
        name: "constants",
        make: |n| cr(n, |at| format!("c{at}: CARDINAL = {};\n", at % 60000)),
    },
    Shape {
        target: "cr_file",
        name: "a chain of constants",
        make: |n| {
            cr(n, |at| {
                if at == 0 {
                    "c0: CARDINAL = 1;\n".into()
                } else {
                    format!("c{at}: CARDINAL = c{};\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "a chain of constants backwards",
        make: |n| {
            cr(n, |at| {
                if at == n - 1 {
                    format!("c{at}: CARDINAL = 1;\n")
                } else {
                    format!("c{at}: CARDINAL = c{};\n", at + 1)
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "a circle of constants",
        make: |n| cr(n, |at| format!("c{at}: CARDINAL = c{};\n", (at + 1) % n)),
    },
    Shape {
        target: "cr_file",
        name: "a diamond of constants",
        make: |n| {
            cr(n, |at| match at {
                0 => "T0: TYPE = CARDINAL; c0: T0 = 1;\n".into(),
                _ => format!(
                    "T{at}: TYPE = ARRAY 2 OF T{}; c{at}: T{at} = [c{}, c{}];\n",
                    at - 1,
                    at - 1,
                    at - 1
                ),
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "uses of a large constant",
        make: |n| {
            let mut s = String::from("S: TYPE = SEQUENCE OF CARDINAL;\nbig: S = [0");
            (0..n).for_each(|_| s += ", 1");
            s += "];\n";
            let mut out = cr(n, |at| format!("c{at}: S = big;\n"));
            let begin = b"P: PROGRAM 1 VERSION 1 =\nBEGIN\n".len();
            out.splice(begin..begin, s.into_bytes());
            out
        },
    },
    Shape {
        target: "cr_file",
        name: "elements of a constant",
        make: |n| crs(n, "S: TYPE = SEQUENCE OF CARDINAL;\nc: S = [", |at| format!("{}", at % 9), "];"),
    },
    Shape {
        target: "cr_file",
        name: "fields of a constant by name",
        make: |n| {
            let e = String::from_utf8(list("R: TYPE = RECORD [", n, |at| format!("f{at}: CARDINAL"), "];\n"))
                .unwrap();
            crs(n, &format!("{e}c: R = ["), |at| format!("f{at}: 1"), "];")
        },
    },
    Shape {
        target: "cr_file",
        name: "strings",
        make: |n| cr(n, |at| format!("c{at}: STRING = \"text \"\"{at}\"\"\";\n")),
    },
    Shape { target: "cr_file", name: "comments", make: |n| cr(n, |at| format!("-- {at} -- --\n")) },
    Shape {
        target: "cr_file",
        name: "an undeclared type often",
        make: |n| cr(n, |at| format!("T{at}: TYPE = U{at};\n")),
    },
    Shape {
        target: "cr_file",
        name: "one name declared often",
        make: |n| cr(n, |_| "T: TYPE = CARDINAL;\n".into()),
    },
    Shape {
        target: "cr_file",
        name: "errors",
        make: |n| cr(n, |at| format!("E{at}: ERROR [a: CARDINAL] = {at};\n")),
    },
    Shape {
        target: "cr_file",
        name: "errors of one procedure",
        make: |n| {
            let e: String = (0..n).map(|at| format!("E{at}: ERROR = {at};\n")).collect();
            crs(n, &format!("{e}p: PROCEDURE [] RETURNS [] REPORTS ["), |at| format!("E{at}"), "] = 1;")
        },
    },
    Shape {
        target: "cr_file",
        name: "procedures that report the same errors",
        make: |n| {
            cr(n, |at| {
                if at == 0 {
                    "E: ERROR = 1; F: ERROR = 2;\n".into()
                } else {
                    format!("p{at}: PROCEDURE [] RETURNS [] REPORTS [E, F] = {at};\n")
                }
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "procedures",
        make: |n| cr(n, |at| format!("p{at}: PROCEDURE [a: CARDINAL] RETURNS [b: STRING] = {at};\n")),
    },
    Shape {
        target: "cr_file",
        name: "procedures of one number",
        make: |n| cr(n, |at| format!("p{at}: PROCEDURE [a: CARDINAL] RETURNS [b: STRING] = 1;\n")),
    },
    Shape {
        target: "cr_file",
        name: "procedures of many types",
        make: |n| {
            cr(n, |at| {
                format!(
                    "T{at}: TYPE = RECORD [a: CARDINAL]; p{at}: PROCEDURE [a: T{at}] RETURNS [b: T0] = {at};\n"
                )
            })
        },
    },
    Shape {
        target: "cr_file",
        name: "arguments",
        make: |n| crs(n, "p: PROCEDURE [", |at| format!("a{at}: CARDINAL"), "] RETURNS [] = 1;"),
    },
    Shape {
        target: "cr_file",
        name: "dependencies",
        make: |n| {
            let d = list("DEPENDS UPON ", n, |at| format!("D{at} ({at}) VERSION 1"), ";\n");
            let mut out = cr(0, |_| String::new());
            let begin = b"P: PROGRAM 1 VERSION 1 =\nBEGIN\n".len();
            out.splice(begin..begin, d);
            out
        },
    },
    Shape { target: "cr_file", name: "open quotes", make: |n| cr(n, |_| "\"\"".into()) },
];

fn cr(n: usize, each: impl Fn(usize) -> String) -> Vec<u8> {
    many("P: PROGRAM 1 VERSION 1 =\nBEGIN\n", n, each, "END.\n")
}

/// A program with one long list.
fn crs(n: usize, before: &str, each: impl Fn(usize) -> String, after: &str) -> Vec<u8> {
    let inner = list(before, n, each, after);
    let mut out = b"P: PROGRAM 1 VERSION 1 =\nBEGIN\n".to_vec();
    out.extend(inner);
    out.extend(b"\nEND.\n");
    out
}

fn list(before: &str, n: usize, each: impl Fn(usize) -> String, after: &str) -> Vec<u8> {
    let all: Vec<String> = (0..n).map(each).collect();
    format!("{before}{}{after}", all.join(", ")).into_bytes()
}
