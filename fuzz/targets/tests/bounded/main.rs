//! A short run of every fuzz target on stable Rust: its corpus, then mutations of it, within its memory.
//!
//! `FARCALL_FUZZ_RUNS` says how many mutations for each target, `FARCALL_FUZZ_SEED` which. An input
//! that fails is left in the directory for temporary files; put it into `fuzz/corpus/NAME` when the
//! fault is mended.

mod allocator;
mod mutate;
/// The example that writes the seeds; this test only compares what it would write.
#[allow(dead_code)]
#[path = "../../examples/seeds.rs"]
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use farcall_base::work;
use farcall_fuzz_targets::{TARGETS, Target};
use mutate::Dice;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// The most steps that a target may take for each byte of its input, and besides (`farcall_base::work`). A
/// macro may stand for 65,536 tokens and a type that contains itself is unrolled 128 times, whatever their
/// input has.
const STEPS_PER_BYTE: u64 = 256;
const STEPS: u64 = 1 << 19;

/// Mutations for each target, and which, unless the environment says otherwise.
const RUNS: u64 = 3000;
const SEED: u64 = 1984;

macro_rules! each {
    ($($name:ident)*) => {
        $(#[test] fn $name() { bounded(stringify!($name)); })*

        #[test]
        fn every_target_has_its_test_its_corpus_and_its_program() {
            let tests = [$(stringify!($name)),*];
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            for target in TARGETS {
                let name = target.name;
                assert!(tests.contains(&name), "{name} has no test here");
                assert!(!corpus(name).is_empty(), "{name} has no corpus");
                assert!(here.join(format!("../fuzz_targets/{name}.rs")).exists(), "{name} has no program");
            }
            assert_eq!(tests.len(), TARGETS.len());
        }
    };
}

each! { server_bytes server client trains_to_server trains_to_caller memory_server memory_caller dump capture xdr schema interface values json names_file names_log etcd_answer dns_answer name clerk cr_file rpc2_file x_file onc_stream onc_server onc_client courier_stream courier_words courier_cooper courier_packets courier_expedited rpc2_packed rpc2_packets universal nfs_handle access counters grant presentation entry_proof revocation_list key_file policy certificates certificate_request certificate_answer shm_hello olympus_text olympus_pnml olympus_journal }

/// After a change of a format they are made again: `cargo run -p farcall-fuzz-targets --example seeds`.
#[test]
fn seeds_are_of_the_formats_that_there_are() {
    for (target, name, data) in seeds::all() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(&target).join(&name);
        assert!(
            std::fs::read(&path).ok() == Some(data),
            "{target}/{name} is of an old format: run the example `seeds`"
        );
    }
}

fn bounded(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let corpus = corpus(name);
    let mut most = 0;
    for (path, data) in &corpus {
        most = most.max(run(target, data, &path.display().to_string()));
    }
    let (runs, seed) = (setting("FARCALL_FUZZ_RUNS", RUNS), setting("FARCALL_FUZZ_SEED", SEED));
    let seeds: Vec<Vec<u8>> = corpus.into_iter().map(|(_, data)| data).collect();
    let mut dice = Dice::new(seed);
    for round in 0..runs {
        let data = dice.mutant(&seeds);
        most = most.max(run(target, &data, &format!("mutation {round} of FARCALL_FUZZ_SEED={seed}")));
    }
    println!(
        "{} seeds, {runs} mutations of FARCALL_FUZZ_SEED={seed}: at most {most} bytes of memory",
        seeds.len()
    );
}

/// Runs one input and says how much memory it took; if it fails, says which, and keeps it.
fn run(target: &Target, data: &[u8], what: &str) -> usize {
    let allowed = target.memory + target.memory_per_byte * data.len();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (peak, steps) = work::counted(|| allocator::peak(|| (target.run)(data)));
        let most = STEPS + STEPS_PER_BYTE * data.len() as u64;
        assert!(steps <= most, "{} bytes take {steps} steps, more than {most}", data.len());
        assert!(peak <= allowed, "{} bytes take {peak} bytes of memory, more than {allowed}", data.len());
        peak
    }));
    let panic = match ran {
        Ok(peak) => return peak,
        Err(panic) => panic,
    };
    let kept = std::env::temp_dir().join(format!("farcall-fuzz-{}-{}", target.name, std::process::id()));
    let _ = std::fs::write(&kept, data);
    eprintln!("{} fails on {what}, kept as {}", target.name, kept.display());
    resume_unwind(panic);
}

/// The files of a target's corpus in the order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
    let Ok(files) = std::fs::read_dir(&directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a readable corpus").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a readable corpus"))).collect()
}

fn setting(variable: &str, default: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else { return default };
    value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number"))
}
