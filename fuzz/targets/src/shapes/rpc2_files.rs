//! Shapes of `.rpc2` files.

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        target: "rpc2_file",
        name: "typedefs",
        make: |n| rpc2(n, |at| format!("typedef RPC2_Unsigned T{at};\n")),
    },
    Shape {
        target: "rpc2_file",
        name: "a chain of typedefs",
        make: |n| {
            rpc2(n, |at| {
                if at == 0 {
                    "typedef RPC2_Unsigned T0;\n".into()
                } else {
                    format!("typedef T{} T{at};\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "rpc2_file",
        name: "a diamond of structs",
        make: |n| {
            rpc2(n, |at| {
                if at == 0 {
                    "typedef RPC2_Unsigned T0;\n".into()
                } else {
                    format!("typedef RPC2_Struct {{ T{} a, b; }} T{at};\n", at - 1)
                }
            })
        },
    },
    Shape {
        target: "rpc2_file",
        name: "fields",
        make: |n| {
            many(
                "Subsystem \"s\";\ntypedef RPC2_Struct {\n",
                n,
                |at| format!("RPC2_Unsigned f{at};\n"),
                "} T;\n",
            )
        },
    },
    Shape {
        target: "rpc2_file",
        name: "fields in one declaration",
        make: |n| {
            many(
                "Subsystem \"s\";\ntypedef RPC2_Struct {\nRPC2_Unsigned f",
                n,
                |at| format!(", f{at}"),
                "; } T;\n",
            )
        },
    },
    Shape {
        target: "rpc2_file",
        name: "fields of one name",
        make: |n| {
            many("Subsystem \"s\";\ntypedef RPC2_Struct {\n", n, |_| "RPC2_Unsigned f;\n".into(), "} T;\n")
        },
    },
    Shape {
        target: "rpc2_file",
        name: "enumerators",
        make: |n| {
            many(
                "Subsystem \"s\";\ntypedef RPC2_Enum {\n",
                n,
                |at| format!("e{at} = {at},\n"),
                "last = -1 } T;\n",
            )
        },
    },
    Shape {
        target: "rpc2_file",
        name: "enumerators of one number",
        make: |n| {
            many(
                "Subsystem \"s\";\ntypedef RPC2_Enum {\n",
                n,
                |at| format!("e{at} = 1,\n"),
                "last = -1 } T;\n",
            )
        },
    },
    Shape {
        target: "rpc2_file",
        name: "enumerators of one name",
        make: |n| {
            many(
                "Subsystem \"s\";\ntypedef RPC2_Enum {\n",
                n,
                |at| format!("e = {at},\n"),
                "last = -1 } T;\n",
            )
        },
    },
    Shape { target: "rpc2_file", name: "numbers", make: |n| rpc2(n, |at| format!("#define N{at} {at}\n")) },
    Shape {
        target: "rpc2_file",
        name: "one number defined often",
        make: |n| rpc2(n, |at| format!("#define N {at}\n")),
    },
    Shape {
        target: "rpc2_file",
        name: "arrays of numbers",
        make: |n| rpc2(n, |at| format!("#define N{at} {at}\ntypedef RPC2_Byte A{at}[N{at}];\n")),
    },
    Shape {
        target: "rpc2_file",
        name: "procedures",
        make: |n| rpc2(n, |at| format!("p{at}(IN RPC2_Unsigned a, OUT RPC2_Unsigned b);\n")),
    },
    Shape {
        target: "rpc2_file",
        name: "procedures of one name",
        make: |n| rpc2(n, |_| "p(IN RPC2_Unsigned a, OUT RPC2_Unsigned b);\n".into()),
    },
    Shape {
        target: "rpc2_file",
        name: "procedures of many types",
        make: |n| {
            rpc2(n, |at| {
                format!(
                    "typedef RPC2_Struct {{ RPC2_Unsigned a; }} T{at};\np{at}(IN T{at} a, OUT T{at} b);\n"
                )
            })
        },
    },
    Shape {
        target: "rpc2_file",
        name: "arguments",
        make: |n| {
            many(
                "Subsystem \"s\";\np(IN RPC2_Unsigned a",
                n,
                |at| format!(", IN RPC2_Unsigned a{at}"),
                ");\n",
            )
        },
    },
    Shape {
        target: "rpc2_file",
        name: "results",
        make: |n| {
            many(
                "Subsystem \"s\";\np(IN RPC2_Unsigned a",
                n,
                |at| format!(", OUT RPC2_Unsigned a{at}"),
                ");\n",
            )
        },
    },
    Shape { target: "rpc2_file", name: "comments", make: |n| rpc2(n, |_| "/* a comment */\n".into()) },
    Shape {
        target: "rpc2_file",
        name: "undeclared types",
        make: |n| rpc2(n, |at| format!("typedef U{at} T{at};\n")),
    },
    Shape {
        target: "rpc2_file",
        name: "lines for C",
        make: |n| many("Subsystem \"s\";\n%{\n", n, |at| format!("#define N{at} {at}\n"), "%}\n"),
    },
];

fn rpc2(n: usize, each: impl Fn(usize) -> String) -> Vec<u8> {
    many("Subsystem \"s\";\n", n, each, "")
}
