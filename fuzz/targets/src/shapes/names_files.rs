//! Shapes of registries' files of format 1.

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        target: "names_file",
        name: "entries",
        make: |n| {
            many(
                &format!("farcall-names 1 {n}\n"),
                n,
                |at| {
                    format!(
                        "T{at}/i udp://127.0.0.1:7000 export=0000000000005eed owner=1,3,cb06a457e1ef4153,46 revision=1\n"
                    )
                },
                &format!("end {n}\n"),
            )
        },
    },
    Shape {
        target: "names_file",
        name: "fingerprints",
        make: |n| {
            many(
                "farcall-names 1 1\nT/i udp://127.0.0.1:7000 export=0000000000005eed owner=1,3,cb06a457e1ef4153,46 revision=1 fingerprints=0:000000000000001f:000000000000003c",
                n,
                |at| format!(",{at}:000000000000001f:000000000000003c"),
                "\nend 1\n",
            )
        },
    },
    Shape {
        target: "names_file",
        name: "addresses",
        make: |n| {
            many(
                "farcall-names 1 1\nT/i udp://127.0.0.1:7000",
                n,
                |at| format!(",udp://127.0.0.1:{}", at % 60000),
                " export=0000000000005eed owner=1,3,cb06a457e1ef4153,46 revision=1\nend 1\n",
            )
        },
    },
];
