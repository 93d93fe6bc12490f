//! Random values, packed by the codec and by the program in C. `FARCALL_RPC2` names the directory that
//! `scripts/rpc2` has filled; `FARCALL_RPC2_SEED` chooses other values; with `FARCALL_WRITE_VECTORS` the
//! first values are kept.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::tokens::Case;
use crate::{PROCEDURES, bytes, check, layout, parts, vectors};

/// How many values of each part are compared.
const CASES: usize = 1000;
/// How many of them are kept.
const KEPT: usize = 4;
const SEED: u64 = 1990;

#[test]
fn random_values_are_packed_as_c_packs_them() {
    let Some(program) = std::env::var_os("FARCALL_RPC2").map(|place| PathBuf::from(place).join("values"))
    else {
        let _ =
            writeln!(std::io::stderr(), "skipped: FARCALL_RPC2 names no directory that scripts/rpc2 made");
        return;
    };
    let seed = std::env::var("FARCALL_RPC2_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    println!("FARCALL_RPC2_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let layout = layout();
    let mut kept =
        String::from("# Values, and the bytes that the C of rp2gen (RPC2 2.38) packed for them.\n");
    for round in 0..CASES {
        for procedure in &PROCEDURES {
            for part in parts(procedure) {
                let case = Case::random(procedure.0, part, &mut dice);
                writeln!(input, "{case}").unwrap();
                let mut packed = String::new();
                output.read_line(&mut packed).unwrap();
                check(&layout, &case, &bytes(packed.trim()));
                if round < KEPT {
                    let _ = write!(kept, "{case}\n{packed}");
                }
            }
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    if std::env::var_os("FARCALL_WRITE_VECTORS").is_some() {
        std::fs::write(vectors::file(), kept).unwrap();
    }
}
