//! Every reader of what others wrote is linear in its input: an input of twice the length takes at most about
//! twice the steps, and about twice the memory allocated.
//!
//! Steps are counted by the readers (`farcall_base::work`), bytes by an allocator. Neither is time.

#[path = "bounded/allocator.rs"]
mod allocator;

use farcall_base::work;
use farcall_fuzz_targets::TARGETS;
use farcall_fuzz_targets::shapes::{self, Shape};

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// How many of what a shape has many of.
const COUNT: usize = 600;

/// The most by which steps may grow if the input grows by a factor of 2, and the most by which the bytes
/// allocated may. A table that is full moves to one of twice the size, sooner or later.
const MOST_STEPS: f64 = 2.3;
const MOST_BYTES: f64 = 2.6;

/// Steps and bytes below which nothing is compared: what does not depend on the input.
const FEW_STEPS: u64 = 2_000;
const FEW_BYTES: u64 = 200_000;

/// The work for one input.
struct Work {
    length: usize,
    steps: u64,
    bytes: u64,
}

#[test]
fn twice_the_input_takes_twice_the_work() {
    let mut wrong = Vec::new();
    for shape in shapes::all() {
        let (half, whole) = (work_of(&shape, COUNT), work_of(&shape, 2 * COUNT));
        // Numbers in names have more digits, so inputs are a little more than doubled.
        let longer = whole.length as f64 / half.length as f64 / 2.0;
        let steps = (whole.steps.max(FEW_STEPS)) as f64 / half.steps.max(FEW_STEPS) as f64 / longer.max(1.0);
        let bytes = (whole.bytes.max(FEW_BYTES)) as f64 / half.bytes.max(FEW_BYTES) as f64 / longer.max(1.0);
        let Shape { target, name, .. } = shape;
        println!(
            "{target}, {name}: {} bytes, {} steps, {} bytes allocated",
            whole.length, whole.steps, whole.bytes
        );
        if whole.steps * 64 < whole.length as u64 {
            wrong.push(format!("{target}, {name}: {} steps for {} bytes", whole.steps, whole.length));
        }
        if steps > MOST_STEPS || bytes > MOST_BYTES {
            let (from, to) = (half.length, whole.length);
            wrong.push(format!(
                "{target}, {name}: from {from} to {to} bytes, {steps:.2} times {} steps and {bytes:.2} times \
                 {} bytes allocated",
                half.steps, half.bytes
            ));
        }
    }
    assert!(wrong.is_empty(), "{} shapes are not linear:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_reader_of_files_and_descriptions_has_shapes() {
    let readers = [
        "interface",
        "json",
        "x_file",
        "cr_file",
        "rpc2_file",
        "names_file",
        "names_log",
        "etcd_answer",
        "dns_answer",
        "olympus_text",
        "olympus_pnml",
        "olympus_journal",
        "policy",
        "key_file",
        "revocation_list",
        "certificates",
        "courier_stream",
        "courier_words",
        "rpc2_packed",
        "rpc2_packets",
    ];
    for reader in readers {
        assert!(shapes::all().iter().any(|shape| shape.target == reader), "{reader} has no shape");
    }
}

fn work_of(shape: &Shape, count: usize) -> Work {
    let target = TARGETS.iter().find(|target| target.name == shape.target).expect("the shape's target");
    let data = (shape.make)(count);
    let (bytes, steps) = work::counted(|| allocator::total(|| (target.run)(&data)));
    Work { length: data.len(), steps, bytes }
}
