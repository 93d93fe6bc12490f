//! What a call through shared memory costs, for a look at it: `bench/` measures.
//!
//! ```text
//! taskset -c 1 memory serve &
//! FARCALL_SPIN_US=1000 taskset -c 0 memory call [bytes] [calls] [outstanding]
//! ```
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Instant;

use farcall::Runtime;

#[farcall::interface]
pub trait Echo {
    fn echo(&self, bytes: [u8; 32]) -> farcall::Result<[u8; 32]>;
    fn give(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32>;
}

struct Server(Vec<u8>);

impl Echo for Server {
    fn echo(&self, bytes: [u8; 32]) -> farcall::Result<[u8; 32]> {
        Ok(bytes)
    }
    fn give(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        Ok(self.0.get(..bytes as usize).unwrap_or_default().to_vec())
    }
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
}

fn main() -> farcall::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |which: usize, other: usize| arguments.get(which).and_then(|a| a.parse().ok()).unwrap_or(other);
    let shared = std::env::var("MEMORY").as_deref() != Ok("no");
    let runtime = Runtime::builder().shared_memory(shared).build()?;
    if arguments.get(1).is_some_and(|a| a == "serve") {
        return runtime.export::<dyn Echo>("MemoryEcho", Arc::new(Server(vec![7; 64 << 20])))?.wait();
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
    let began = Instant::now();
    run(calls)?;
    let each = began.elapsed().as_secs_f64() / calls as f64;
    println!("{:.1} ns a call", each * 1e9);
    if bytes > 32 {
        println!("results: {:.2} GB/s", bytes as f64 / each / 1e9);
        let began = Instant::now();
        (0..calls).try_for_each(|_| echo.take(&arguments).map(drop))?;
        let each = began.elapsed().as_secs_f64() / calls as f64;
        println!("arguments: {:.1} ns a call, {:.2} GB/s", each * 1e9, bytes as f64 / each / 1e9);
        let mut copy = vec![0u8; bytes];
        let began = Instant::now();
        (0..calls).for_each(|_| std::hint::black_box(&mut copy).copy_from_slice(std::hint::black_box(&arguments)));
        let each = began.elapsed().as_secs_f64() / calls as f64;
        println!("memcpy: {:.1} ns, {:.2} GB/s", each * 1e9, bytes as f64 / each / 1e9);
    }
    Ok(())
}
