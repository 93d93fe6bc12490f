//! Replays the mix of operations of table 1a (Thekkath et al. 1994) with each structure, the ways in which a
//! clerk can work, on a directory of real files that is made for it.
//!
//! `cargo run --release -p farcall-file-service --example structures -- [OPERATIONS] [SEED] [mapped]`
//!
//! Clerk and server send packets to one another. With `mapped` they share memory, if this machine supports
//! that.

use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use farcall::Runtime;
use farcall::names::Memory as Registry;
use farcall_file_service::mix::{Operation, Row, Tree, plant, replay};
use farcall_file_service::{Clerk, Counts, Server, Shape, Structure, client};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let operations = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;

    let mapped = arguments.next().is_some_and(|carrier| carrier == "mapped");

    writeln!(stdout(), "{operations} of {} operations of table 1a, seed {seed}", Operation::TOTAL)?;
    for structure in Structure::ALL {
        let (rows, letters, time) = run(structure, operations, seed, mapped)?;
        print(structure, &rows, letters)?;
        writeln!(
            stdout(),
            "    {:.2} µs for each, as far as one run can tell",
            time.as_secs_f64() * 1e6 / operations.max(1) as f64
        )?;
    }
    Ok(())
}

/// Replays the mix. Returns the clerk's counts, the number of letters that the server answered, and the
/// duration.
fn run(structure: Structure, operations: u64, seed: u64, mapped: bool) -> Result<(Vec<Row>, u64, Duration)> {
    let directory = tempfile::tempdir()?;
    plant(directory.path(), seed)?;
    let runtime = || Runtime::builder().registry(Registry::new()).shared_memory(mapped).build();
    let server_runtime = runtime()?;
    let server = Server::export(&server_runtime, "files", directory.path(), Shape::SMALL)?;
    let clerk = Clerk::new(&runtime()?, &server.addresses(), structure)?;
    let files = client(clerk.files.clone());
    let tree = Tree::walk(&files)?;
    tree.touch(&files)?;
    let (before, began) = (server.letters(), Instant::now());
    let rows = replay(&files, &clerk.tally, &tree, operations, seed)?;
    let time = began.elapsed();
    Ok((rows, server.letters() - before, time))
}

fn print(structure: Structure, rows: &[Row], letters: u64) -> Result<()> {
    writeln!(
        stdout(),
        "\n{:4}{:26}{:>8}{:>8}{:>11}{:>8}{:>8}{:>9}{:>8}",
        structure.name(),
        "",
        "times",
        "reads",
        "bytes",
        "writes",
        "swaps",
        "notices",
        "calls"
    )?;
    for row in rows {
        line(row.operation.name(), row.times, row.counts)?;
    }
    let times = rows.iter().map(|row| row.times).sum();
    line("in all", times, rows.iter().fold(Counts::default(), |sum, row| sum.plus(row.counts)))?;
    writeln!(stdout(), "    the server answered {letters} letters")?;
    Ok(())
}

fn line(name: &str, times: u64, counts: Counts) -> Result<()> {
    let Counts { reads, bytes, writes, swaps, letters, calls } = counts;
    writeln!(
        stdout(),
        "    {name:26}{times:>8}{reads:>8}{bytes:>11}{writes:>8}{swaps:>8}{letters:>9}{calls:>8}"
    )?;
    Ok(())
}
