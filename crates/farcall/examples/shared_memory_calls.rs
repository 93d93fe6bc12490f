//! Shows the cost of a call through shared memory. The programs in `bench/` measure it exactly. (Segments,
//! which are memory without calls, are the example `memory`.)
//!
//! ```text
//! taskset -c 1 shared_memory_calls serve &
//! FARCALL_SPIN_US=1000 taskset -c 0 shared_memory_calls call [bytes] [calls] [outstanding]
//! ```
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use farcall::{Bytes, Runtime};

#[farcall::interface]
pub trait Echo {
    fn echo(&self, bytes: [u8; 32]) -> farcall::Result<[u8; 32]>;
    fn give(&self, bytes: u32) -> farcall::Result<Bytes>;
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32>;
}

struct Server(Bytes);

impl Echo for Server {
    fn echo(&self, bytes: [u8; 32]) -> farcall::Result<[u8; 32]> {
        Ok(bytes)
    }
    fn give(&self, bytes: u32) -> farcall::Result<Bytes> {
        Ok(self.0.slice(..self.0.len().min(bytes as usize)))
    }
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
}

fn main() -> farcall::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number =
        |which: usize, other: usize| arguments.get(which).and_then(|a| a.parse().ok()).unwrap_or(other);
    let shared = std::env::var("MEMORY").as_deref() != Ok("no");
    let runtime = Runtime::builder().shared_memory(shared).build()?;
    if arguments.get(1).is_some_and(|a| a == "serve") {
        let server = Arc::new(Server(vec![7; 64 << 20].into()));
        return runtime.export::<dyn Echo>("MemoryEcho", server)?.until_signal();
    }
    let echo = runtime.import::<dyn Echo>("MemoryEcho")?;
    let (bytes, calls, outstanding) = (number(2, 32), number(3, 1_000_000), number(4, 1));
    let arguments = vec![3; bytes];
    let run = |calls: usize| -> farcall::Result<()> {
        match (bytes, outstanding) {
            (32, 1) => (0..calls).try_for_each(|_| echo.echo([1; 32]).map(drop)),
            (32, _) => {
                for _ in 0..calls / outstanding {
                    let batch: Vec<_> = (0..outstanding).map(|_| echo.start().echo([1; 32])).collect();
                    batch.into_iter().try_for_each(|call| call.wait().map(drop))?;
                }
                Ok(())
            }
            _ => (0..calls).try_for_each(|_| echo.give(bytes as u32).map(drop)),
        }
    };
    run(calls / 10 + 20 * outstanding)?;
    let blocks = (0..BLOCKS)
        .map(|_| time(calls / BLOCKS, &mut |many| run(many)))
        .collect::<farcall::Result<Vec<_>>>()?;
    let each = show("calls", blocks, bytes);
    if bytes > 32 {
        let take = |calls: usize| (0..calls).try_for_each(|_| echo.take(&arguments).map(drop));
        let blocks = (0..BLOCKS)
            .map(|_| time(calls / BLOCKS, &mut |many| take(many)))
            .collect::<farcall::Result<Vec<_>>>()?;
        show("calls with as large arguments", blocks, bytes);
        let mut copy = vec![0u8; bytes];
        let mut copy = |calls: usize| {
            (0..calls).for_each(|_| black_box(&mut copy).copy_from_slice(black_box(&arguments)));
            Ok(())
        };
        let blocks =
            (0..BLOCKS).map(|_| time(calls / BLOCKS, &mut copy)).collect::<farcall::Result<Vec<_>>>()?;
        println!("{:.2} of it", show("memcpy", blocks, bytes) / each);
    }
    Ok(())
}

const BLOCKS: usize = 1000;

/// Returns the seconds that each of `many` calls takes.
fn time(many: usize, run: &mut dyn FnMut(usize) -> farcall::Result<()>) -> farcall::Result<f64> {
    let began = Instant::now();
    run(many)?;
    Ok(began.elapsed().as_secs_f64() / many as f64)
}

/// Prints the fastest block, which was disturbed least, and the median. Returns the fastest.
fn show(what: &str, mut blocks: Vec<f64>, bytes: usize) -> f64 {
    blocks.sort_by(f64::total_cmp);
    let (least, median) = (blocks[0], blocks[BLOCKS / 2]);
    println!(
        "{what}: {:.0} ns, median {:.0} ns, {:.2} GB/s",
        least * 1e9,
        median * 1e9,
        bytes as f64 / least / 1e9
    );
    least
}
