//! Prints how the time of each shape grows when its input is doubled, and doubled again.
//!
//! `cargo run --release -p farcall-fuzz-targets --example doubling -- [PART OF A SHAPE'S NAME] [COUNT]`. The
//! test `linear` compares steps, which readers must count themselves. A loop that counts nothing shows here.

use std::time::Instant;

use farcall_fuzz_targets::{TARGETS, shapes};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let count: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(500);
    for shape in shapes::all() {
        let name = format!("{}, {}", shape.target, shape.name);
        let Some(target) = TARGETS.iter().find(|target| target.name == shape.target) else { continue };
        if !name.contains(&wanted) {
            continue;
        }
        let (mut times, mut bytes) = (Vec::new(), 0);
        for count in [count, 2 * count, 4 * count] {
            let data = (shape.make)(count);
            bytes = data.len();
            let start = Instant::now();
            (target.run)(&data);
            times.push(start.elapsed());
        }
        let ratio = times[2].as_secs_f64() / times[1].as_secs_f64();
        let mark = if ratio > 2.6 { "!" } else { " " };
        println!("{mark} {ratio:5.2}  {name}: {times:.1?} for up to {bytes} bytes");
    }
}
