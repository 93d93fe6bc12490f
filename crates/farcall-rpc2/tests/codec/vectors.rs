//! Values that were packed by C once, and kept: a line with the values, and one with the bytes.

use std::path::{Path, PathBuf};

use crate::tokens::Case;
use crate::{bytes, check, layout};

pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/packed.txt")
}

#[test]
fn kept_bytes_are_those_that_the_codec_packs() {
    let text = std::fs::read_to_string(file()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let (cases, layout) = (lines.as_chunks::<2>().0, layout());
    assert!(cases.len() >= 44, "{} cases", cases.len());
    for [values, packed] in cases {
        check(&layout, &Case::parse(values), &bytes(packed));
    }
}
