//! What the codec packs is what `rp2gen`'s C packs, byte for byte; and what it refuses.

mod against_c;
mod refusals;
mod tokens;
mod vectors;

#[allow(dead_code, clippy::too_many_arguments)]
mod covering {
    farcall::include_rpc2!("../farcall/tests/rpc2/covering.rpc2");
}

use farcall::stub::Interface;
use farcall_rpc2::codec::{Layout, Part, Procedure};

use tokens::Case;

/// The procedures whose values the tests pack, as the file and as Rust spell them, and whether they have
/// results.
const PROCEDURES: [(&str, &str, bool); 6] = [
    ("AllIn", "all_in", false),
    ("AllOut", "all_out", true),
    ("AllBoth", "all_both", true),
    ("Arrays", "arrays", true),
    ("Names", "names", true),
    ("Count", "count", true),
];

fn layout() -> Layout {
    Layout::new(<dyn covering::Covering>::interface()).unwrap()
}

/// Returns the procedure that the file spells so.
fn procedure<'l>(layout: &'l Layout, spelled: &str) -> &'l Procedure {
    let (_, name, _) = PROCEDURES.iter().find(|(known, ..)| *known == spelled).expect("a procedure");
    let number = <dyn covering::Covering>::interface().by_name(name).unwrap().number;
    layout.procedure(number).unwrap()
}

/// Asserts that the values of a case are packed as these bytes, and that the bytes are unpacked to the
/// values.
#[track_caller]
fn check(layout: &Layout, case: &Case, expected: &[u8]) {
    let procedure = procedure(layout, &case.procedure);
    let xdr = case.xdr();
    let mut packed = Vec::new();
    layout.pack(procedure, case.part, &xdr, &mut packed).unwrap();
    assert_eq!(hex(&packed), hex(expected), "{case}");
    let mut again = Vec::new();
    layout.unpack(procedure, case.part, expected, &mut again).unwrap();
    assert_eq!(hex(&again), hex(&xdr), "{case}");
    // Every beginning of the bytes is refused, unless only padding is missing.
    for length in 0..expected.len() {
        let cut = layout.unpack(procedure, case.part, &expected[..length], &mut Vec::new());
        assert!(cut.is_err() || expected.len() - length < 4, "{case}: {length} bytes");
    }
    let longer = [expected, &[0; 4]].concat();
    assert!(layout.unpack(procedure, case.part, &longer, &mut Vec::new()).is_err(), "{case}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("digits")).collect()
}

/// Returns the parts that a procedure has.
fn parts((_, _, has_results): &(&str, &str, bool)) -> Vec<Part> {
    if *has_results { vec![Part::Arguments, Part::Result] } else { vec![Part::Arguments] }
}
