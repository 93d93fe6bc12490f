//! Shapes of graphs: their text, PNML, and the journals of their runs.

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        target: "olympus_text",
        name: "places",
        make: |n| many("graph g\n", n, |at| format!("place p{at}\n"), ""),
    },
    Shape {
        target: "olympus_text",
        name: "places of one name",
        make: |n| many("graph g\n", n, |_| "place p\n".into(), ""),
    },
    Shape {
        target: "olympus_text",
        name: "places at one position",
        make: |n| {
            many(
                "graph g\n",
                n,
                |at| format!("place p{at}{}\n", if at % 2 == 0 { " at 20 20" } else { "" }),
                "",
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "places in one column",
        make: |n| many("graph g\n", n, |at| format!("place p{at} at 150 {}\nplace q{at}\n", at * 46), ""),
    },
    Shape {
        target: "olympus_text",
        name: "nodes",
        make: |n| many("graph g\nplace p tokens 1\n", n, |at| format!("node n{at}\n in p\n"), ""),
    },
    Shape {
        target: "olympus_text",
        name: "nodes of one name",
        make: |n| many("graph g\nplace p tokens 1\n", n, |_| "node n\n in p\n".into(), ""),
    },
    Shape {
        target: "olympus_text",
        name: "a chain",
        make: |n| {
            many(
                "graph g\nplace p0 tokens 1\n",
                n,
                |at| format!("place p{}\nnode n{at}\n in p{at}\n out p{}\n", at + 1, at + 1),
                "",
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "inputs of one node",
        make: |n| {
            many(
                "graph g\n",
                n,
                |at| format!("place p{at}\n"),
                &format!("node n\n{}", (0..n).map(|at| format!(" in p{at} as v{at}\n")).collect::<String>()),
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "inputs of one place",
        make: |n| many("graph g\nplace p\nnode n\n", n, |_| " in p\n".into(), ""),
    },
    Shape {
        target: "olympus_text",
        name: "variables of one expression",
        make: |n| {
            many(
                "graph g\n",
                n,
                |at| format!("place p{at}\n"),
                &format!(
                    "node n\n{} guard true{}\n",
                    (0..n).map(|at| format!(" in p{at} as v{at}\n")).collect::<String>(),
                    (0..n).map(|at| format!(" && v{at}")).collect::<String>()
                ),
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "operands of one guard",
        make: |n| many("graph g\nplace p\nnode n\n in p as v\n guard true", n, |_| " && true".into(), "\n"),
    },
    Shape {
        target: "olympus_text",
        name: "fields of one value",
        make: |n| many("graph g\nplace p = {\"\": 0", n, |at| format!(", \"{at}\": 1"), "}\n"),
    },
    Shape {
        target: "olympus_text",
        name: "fields of one expression",
        make: |n| {
            many(
                "graph g\nplace p tokens 1\nnode n\n in p\n call S p [{\"\": 0",
                n,
                |at| format!(", \"{at}\": 1"),
                "}]\n",
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "tokens of a place",
        make: |n| many("graph g\nplace p = 1", n, |at| format!(", {at}"), "\n"),
    },
    Shape {
        target: "olympus_text",
        name: "a long string",
        make: |n| many("graph g\nplace p = \"", n, |_| "\\n".into(), "\"\n"),
    },
    Shape {
        target: "olympus_text",
        name: "comments",
        make: |n| many("graph g\n", n, |_| "# text\n".into(), "place p\n"),
    },
    Shape {
        target: "olympus_text",
        name: "outputs of one node",
        make: |n| {
            many(
                "graph g\nplace p tokens 1\n",
                n,
                |at| format!("place q{at}\n"),
                &format!("node n\n in p\n{}", (0..n).map(|at| format!(" out q{at}\n")).collect::<String>()),
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "exceptions of one node",
        make: |n| {
            many(
                "graph g\nplace p tokens 1\nnode n\n in p\n call S p []\n",
                n,
                |at| format!(" out p on E{at}\n"),
                "",
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "comparisons of a long variable",
        make: |n| {
            many(
                &format!("graph g\nplace p = \"{}\"\nnode n\n in p as v\n guard true", "x".repeat(n)),
                n,
                |_| " && v == v".into(),
                "\n",
            )
        },
    },
    Shape {
        target: "olympus_text",
        name: "wrong lines",
        make: |n| many("graph g\n", n, |_| "nonsense\n".into(), ""),
    },
    Shape {
        target: "olympus_text",
        name: "wrong nodes",
        make: |n| many("graph g\nplace p\n", n, |at| format!("node n{at}\n in q{at}\n"), ""),
    },
    Shape {
        target: "olympus_pnml",
        name: "places",
        make: |n| pnml(n, |at| format!("<place id=\"p{at}\"/>")),
    },
    Shape {
        target: "olympus_pnml",
        name: "places of one identifier",
        make: |n| pnml(n, |_| "<place id=\"p\"/>".into()),
    },
    Shape {
        target: "olympus_pnml",
        name: "places of one name",
        make: |n| pnml(n, |at| format!("<place id=\"p{at}\"><name><text>same</text></name></place>")),
    },
    Shape {
        target: "olympus_pnml",
        name: "a chain",
        make: |n| {
            pnml(n, |at| {
                format!(
                    "<place id=\"p{at}\"/><transition id=\"t{at}\"/><arc id=\"a{at}\" source=\"p{at}\" target=\"t{at}\"/>{}",
                    if at == 0 {
                        String::new()
                    } else {
                        format!("<arc id=\"b{at}\" source=\"t{}\" target=\"p{at}\"/>", at - 1)
                    }
                )
            })
        },
    },
    Shape {
        target: "olympus_pnml",
        name: "references",
        make: |n| pnml(n, |at| format!("<referencePlace id=\"r{at}\" ref=\"r{}\"/>", at + 1)),
    },
    Shape {
        target: "olympus_pnml",
        name: "references in a circle",
        make: |n| pnml(n, |at| format!("<referencePlace id=\"r{at}\" ref=\"r{}\"/>", (at + 1) % n)),
    },
    Shape {
        target: "olympus_pnml",
        name: "arcs to a chain of references",
        make: |n| {
            pnml(n, |at| match at {
                0 => "<place id=\"r0\"/><transition id=\"t\"/>".into(),
                _ => format!(
                    "<referencePlace id=\"r{at}\" ref=\"r{}\"/><arc id=\"a{at}\" source=\"r{at}\" target=\"t\"/>",
                    at - 1
                ),
            })
        },
    },
    Shape {
        target: "olympus_pnml",
        name: "arcs of one node",
        make: |n| {
            pnml(n, |at| match at {
                0 => "<place id=\"p\"/><transition id=\"t\"/>".into(),
                _ => format!("<arc id=\"a{at}\" source=\"p\" target=\"t\"/>"),
            })
        },
    },
    Shape {
        target: "olympus_pnml",
        name: "pages",
        make: |n| pnml(n, |at| format!("<page id=\"x{at}\"><place id=\"p{at}\"/></page>")),
    },
    Shape {
        target: "olympus_pnml",
        name: "attributes",
        make: |n| many("<pnml ", n, |at| format!("a{at}=\"\" "), "/>"),
    },
    Shape {
        target: "olympus_pnml",
        name: "one attribute often",
        make: |n| many("<pnml ", n, |_| "a=\"\" ".into(), "/>"),
    },
    Shape {
        target: "olympus_pnml",
        name: "texts in pieces",
        make: |n| {
            pnml(1, |_| {
                format!("<place id=\"p\"><name><text>{}</text></name></place>", "a<!-- -->&amp;".repeat(n))
            })
        },
    },
    Shape {
        target: "olympus_pnml",
        name: "names in one element",
        make: |n| pnml(1, |_| format!("<place id=\"p\">{}</place>", "<name><text>a</text></name>".repeat(n))),
    },
    Shape {
        target: "olympus_pnml",
        name: "namespaces",
        make: |n| many("<pnml ", n, |at| format!("xmlns:a{at}=\"u\" "), "><a0:net/></pnml>"),
    },
    Shape {
        target: "olympus_journal",
        name: "firings that run",
        make: |n| {
            journal(&format!("{:?}", vec![1; n]), n, |at| {
                format!("{{\"begin\":{{\"firing\":{at},\"node\":0,\"now\":0,\"calls\":true}}}}\n")
            })
        },
    },
    Shape {
        target: "olympus_journal",
        name: "firings that ended",
        make: |n| {
            journal(&format!("{:?}", vec![1; n]), n, |at| {
                format!(
                    "{{\"begin\":{{\"firing\":{at},\"node\":0,\"now\":0,\"calls\":true}}}}\n{{\"end\":{{\"firing\":{at},\"ended\":{{\"returned\":[7]}}}}}}\n"
                )
            })
        },
    },
    Shape { target: "olympus_journal", name: "firings with an unknown end", make: |n| unknown(n, false) },
    Shape { target: "olympus_journal", name: "firings that are put back", make: |n| unknown(n, true) },
    Shape {
        target: "olympus_journal",
        name: "tokens put in",
        make: |n| journal("[]", n, |_| "{\"put\":{\"place\":0,\"tokens\":[null]}}\n".into()),
    },
    Shape {
        target: "olympus_journal",
        name: "tokens put in and taken",
        make: |n| {
            journal(&format!("{:?}", vec![1; n]), n, |_| {
                "{\"put\":{\"place\":0,\"tokens\":[null]}}\n{\"take\":{\"place\":0,\"count\":1}}\n".into()
            })
        },
    },
];

fn pnml(n: usize, each: impl Fn(usize) -> String) -> Vec<u8> {
    let before = "<pnml xmlns=\"http://www.pnml.org/version-2009/grammar/pnml\"><net id=\"n\" type=\"http://www.pnml.org/version-2009/grammar/ptnet\"><page id=\"g\">";
    many(before, n, each, "</page></net></pnml>")
}

fn journal(tokens: &str, n: usize, each: impl Fn(usize) -> String) -> Vec<u8> {
    let before = format!(
        "{{\"graph\":{{\"version\":2,\"seed\":0,\"graph\":{{\"name\":\"g\",\"places\":[{{\"name\":\"from\",\"tokens\":{tokens}}},{{\"name\":\"to\"}}],\"nodes\":[{{\"name\":\"n\",\"in\":[{{\"place\":0,\"as\":\"x\"}}],\"out\":[{{\"place\":1,\"value\":\"result\"}}],\"call\":{{\"server\":\"S\",\"name\":\"p\",\"arguments\":\"[x]\"}}}}]}}}}}}\n"
    );
    many(&before, n, each, "")
}

/// A journal in which nobody knows how the calls of `n` firings ended. With `decides` the user puts their
/// tokens back.
fn unknown(n: usize, decides: bool) -> Vec<u8> {
    let mut text = journal(&format!("{:?}", vec![1; n]), n, |at| {
        format!("{{\"begin\":{{\"firing\":{at},\"node\":0,\"now\":0,\"calls\":true}}}}\n")
    });
    for at in 0..n {
        text.extend(format!("{{\"end\":{{\"firing\":{at},\"ended\":{{\"unknown\":\"no\"}}}}}}\n").bytes());
    }
    for at in 0..if decides { n } else { 0 } {
        text.extend(format!("{{\"decide\":{{\"firing\":{at},\"decision\":\"put_back\"}}}}\n").bytes());
    }
    text
}
