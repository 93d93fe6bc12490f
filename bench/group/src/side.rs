//! The process of one side. It serves, or makes the calls that it is ordered to make, until standard input
//! ends.
use std::io::{BufRead, Read};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use farcall_bench_method::counters::{Counters, What, processor_time};
use farcall_bench_method::process::{say, stay_on};
use farcall_bench_method::{Lost, alloc};

use crate::work::{Answer, Calls, Counted, Order, Server, Way};

/// The command line of one side. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {
    /// The name of the peer.
    pub peer: String,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// Be the client. The addresses of its servers come from standard input, in one line.
    #[arg(long)]
    client: bool,
    /// The number of servers in this process.
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// The seed of the first server's computation times. Each further server has the next number.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Be in a network namespace of its own, whose network does not exist yet. The process says at once that
    /// it is ready, and goes on when standard input has a line.
    #[arg(long)]
    pub apart: bool,
}

/// Runs the side that `side` describes.
pub fn main(
    side: &Side,
    serve: impl FnOnce(&[u64]) -> Result<Box<dyn Server>>,
    connect: impl FnOnce(&[String]) -> Result<Box<dyn Calls>>,
) -> ExitCode {
    let ran = if side.client { call(side, connect) } else { stand(side, serve) };
    if let Err(why) = ran {
        let _ = say(&Answer::Failed(format!("{why:#}")));
        return ExitCode::FAILURE;
    }
    // Threads of the peer that wait must not keep the process alive.
    std::process::exit(0)
}

fn stand(side: &Side, serve: impl FnOnce(&[u64]) -> Result<Box<dyn Server>>) -> Result<()> {
    side.core.map_or(Ok(()), stay_on)?;
    if side.apart {
        say(&Answer::Ready(Vec::new(), String::new()))?;
        std::io::stdin().lock().read_line(&mut String::new())?;
    }
    let seeds: Vec<u64> = (0..side.servers as u64).map(|n| side.seed + n).collect();
    let server = serve(&seeds)?;
    say(&Answer::Ready(server.addresses(), String::new()))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn call(side: &Side, connect: impl FnOnce(&[String]) -> Result<Box<dyn Calls>>) -> Result<()> {
    side.core.map_or(Ok(()), stay_on)?;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    if side.apart {
        say(&Answer::Ready(Vec::new(), String::new()))?;
    }
    input.read_line(&mut line)?;
    let addresses: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut calls = connect(&addresses)?;
    say(&Answer::Ready(Vec::new(), calls.version()))?;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let order: Order = serde_json::from_str(&line).with_context(|| format!("not an order: {line:?}"))?;
        let answer = obey(&mut *calls, &order).unwrap_or_else(|why| match why.downcast_ref::<Lost>() {
            Some(why) => Answer::Lost(why.to_string()),
            None => Answer::Failed(format!("{why:#}")),
        });
        say(&answer)?;
    }
}

fn obey(calls: &mut dyn Calls, order: &Order) -> Result<Answer> {
    for _ in 0..order.warm {
        once(calls, order)?;
    }
    let Some(counted) = order.counted else { return Ok(Answer::Took(time(calls, order)?)) };
    match counted {
        Counted::Instructions => count(calls, order, What::Instructions),
        Counted::Events => count(calls, order, What::Events),
        Counted::Bytes => {
            alloc::counting(true);
            let before = alloc::live_bytes();
            alloc::peak_bytes();
            let ran = (0..order.trials).try_for_each(|_| once(calls, order));
            let most = alloc::peak_bytes() - before;
            alloc::counting(false);
            ran?;
            Ok(Answer::Number(most.max(0) as u64))
        }
        Counted::Time => {
            let before = processor_time();
            (0..order.trials).try_for_each(|_| once(calls, order))?;
            Ok(Answer::Number(processor_time() - before))
        }
        Counted::Parts => {
            let parts = (0..order.trials).map(|_| calls.parts(order.members));
            Ok(Answer::Parts(parts.collect::<Result<_>>()?))
        }
        Counted::Sent => {
            let before = calls.sent()?;
            let took = time(calls, order)?;
            Ok(Answer::Sent(took, calls.sent()?.since(before)))
        }
    }
}

fn time(calls: &mut dyn Calls, order: &Order) -> Result<Vec<u64>> {
    let mut took = Vec::with_capacity(order.trials);
    for _ in 0..order.trials {
        let began = Instant::now();
        once(calls, order)?;
        took.push(began.elapsed().as_nanos() as u64);
    }
    Ok(took)
}

fn count(calls: &mut dyn Calls, order: &Order, what: What) -> Result<Answer> {
    let mut counters = Counters::open(what, true);
    counters.start();
    let ran = (0..order.trials).try_for_each(|_| once(calls, order));
    let counts = counters.stop();
    ran?;
    Ok(Answer::Counts(counts))
}

#[inline]
fn once(calls: &mut dyn Calls, order: &Order) -> Result<()> {
    let Order { members: (first, many), kind, .. } = *order;
    match order.way {
        Way::Iterative => (first..first + many).try_for_each(|member| calls.one(member, kind)),
        Way::Multi => calls.all((first, many), kind, None),
        Way::Until(enough) => calls.all((first, many), kind, Some(enough)),
    }
}
