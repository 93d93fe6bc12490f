//! Encodes and decodes the same values with the code of farcall and of rpcgen from the same `.x` files, in
//! turn.
#[cfg(libtirpc)]
mod ffi;
#[cfg(libtirpc)]
mod values;

#[cfg(libtirpc)]
fn main() -> anyhow::Result<()> {
    run::all()
}

#[cfg(not(libtirpc))]
fn main() {
    println!("skipped: needs rpcgen, and libtirpc where pkg-config finds it");
}

#[cfg(libtirpc)]
mod run {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use anyhow::{Context, Result, ensure};
    use farcall::xdr::{Xdr, from_slice, to_vec};
    use farcall_bench_method::stats::estimate;

    use crate::ffi::{Held, Kind};
    use crate::values;

    const ROUNDS: usize = 61;
    /// How long one of the two encodes or decodes in a block.
    const BLOCK: Duration = Duration::from_millis(4);

    pub fn all() -> Result<()> {
        println!(
            "farcall beside libtirpc {}; times of one value, and how many times as fast we are",
            env!("LIBTIRPC_VERSION")
        );
        println!("{:<34} {:>8}  {:<40} decode", "", "bytes", "encode");
        row("READDIRPLUS3res, 64 entries", Kind::ReadDirPlus, &values::listing(64))?;
        row("1000 structs of numbers", Kind::Points, &values::points(1000))?;
        row("1000 structs with a string", Kind::Accounts, &values::accounts(1000))
    }

    fn row<T: Xdr + PartialEq>(name: &str, kind: Kind, value: &T) -> Result<()> {
        let mut bytes = to_vec(value)?;
        ensure!(from_slice::<T>(&bytes)? == *value, "what we decode is not what we encoded");
        let held = Held::new(kind, &bytes)?;
        let mut theirs = vec![0; bytes.len()];
        held.encode(&mut theirs, 1)?;
        ensure!(theirs == bytes, "C encodes other bytes than we do");

        let mut buffer = Vec::new();
        let encoded = compare(
            |times| {
                for _ in 0..times {
                    buffer.clear();
                    black_box(value).encode(&mut farcall::xdr::Encoder::new(&mut buffer))?;
                    black_box(&buffer);
                }
                Ok(())
            },
            |times| held.encode(&mut theirs, times),
        )?;
        let decoded = compare(
            |times| {
                for _ in 0..times {
                    black_box(from_slice::<T>(black_box(&bytes))?);
                }
                Ok(())
            },
            |times| held.decode(&bytes, times),
        )?;
        println!("{name:<34} {:>8}  {encoded:<40} {decoded}", bytes.len());
        bytes.clear();
        Ok(())
    }

    /// Runs blocks of farcall, rpcgen, rpcgen, farcall, many times. Returns the times of one run of each, and
    /// their ratio with its 95 % interval.
    fn compare(
        mut ours: impl FnMut(u32) -> Result<()>,
        mut theirs: impl FnMut(u32) -> Result<()>,
    ) -> Result<String> {
        let (a, b) = (repeats(&mut ours)?, repeats(&mut theirs)?);
        let (mut ratios, mut fast, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (first, second) = (time(&mut ours, a)?, time(&mut theirs, b)?);
            let (third, fourth) = (time(&mut theirs, b)?, time(&mut ours, a)?);
            ratios.push((second + third) / (first + fourth));
            fast.push((first + fourth) / 2.0);
            slow.push((second + third) / 2.0);
        }
        let median = |values| estimate(values).map(|estimate| estimate.median).context("no rounds");
        let ratio = estimate(ratios).context("no rounds")?;
        let (low, high) = (ratio.low, ratio.high);
        Ok(format!(
            "{:6.2} / {:6.2} us = {:.2} [{low:.2}, {high:.2}]",
            median(fast)? * 1e6,
            median(slow)? * 1e6,
            ratio.median
        ))
    }

    /// Returns how many runs fill a block.
    fn repeats(run: &mut impl FnMut(u32) -> Result<()>) -> Result<u32> {
        let mut times = 1;
        while time(run, times)? * f64::from(times) < BLOCK.as_secs_f64() {
            times *= 2;
        }
        Ok(times)
    }

    /// Returns the seconds that one run takes.
    fn time(run: &mut impl FnMut(u32) -> Result<()>, times: u32) -> Result<f64> {
        let start = Instant::now();
        run(times)?;
        Ok(start.elapsed().as_secs_f64() / f64::from(times))
    }
}
