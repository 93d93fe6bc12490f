//! Many clients of one server: the rate of all, the latency of a call, and how evenly the clients are served.
mod side;
mod tally;

use std::time::Duration;

use anyhow::{Result, bail};
use farcall_bench_method::process::Process;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Lost, Options, Row, conditions, report};
use indicatif::ProgressBar;

use side::{Order, Said};
pub use side::{Side, side};
use tally::Tally;

/// The most processes of clients. More of them do not all start in time.
const MAX_PROCESSES: usize = 300;
/// How much longer than ordered a process may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub struct FanIn {
    #[command(flatten)]
    options: Options,
    /// The numbers of clients, each of which makes one call after another, by a thread and a socket of its
    /// own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    clients: Vec<usize>,
    /// Make each client a process, too; of at most 300.
    #[arg(long)]
    processes: bool,
    /// How long all clients call, in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// What a cell is.
#[derive(Clone, Copy)]
struct Cell {
    peer: side::Peer,
    processes: usize,
    /// The clients in each process.
    each: usize,
}

/// Measures all cells that the options select, and shows them.
pub fn run(fan_in: &FanIn) -> Result<()> {
    let options = &fan_in.options;
    let names: Vec<&str> = side::Peer::ALL.iter().map(|peer| peer.name()).collect();
    let wanted = options.peers(&names);
    let peers = side::Peer::ALL.into_iter().filter(|peer| wanted.iter().any(|name| name == peer.name()));
    let cells = peers.flat_map(|peer| {
        let together = fan_in.clients.iter().map(move |&each| Cell { peer, processes: 1, each });
        let apart = fan_in.clients.iter().filter(|_| fan_in.processes);
        let apart = apart.map(move |&clients| Cell { peer, processes: clients.min(MAX_PROCESSES), each: 1 });
        together.chain(apart)
    });
    let cells: Vec<Cell> = cells.collect();
    let rounds = if options.quick { 2 } else { 8 };
    let progress = ProgressBar::new((rounds * cells.len()) as u64);
    let mut results: Vec<Results> = cells.iter().map(|_| Results::default()).collect();
    for round in 0..rounds {
        // Every other round goes the other way, so that no cell always follows the same one.
        let mut order: Vec<usize> = (0..cells.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let cell = cells[which];
            progress.set_message(format!("{} × {} of {}", cell.processes, cell.each, cell.peer.name()));
            match measure(cell, Duration::from_secs_f64(fan_in.seconds)) {
                Err(why) if why.is::<Lost>() => eprintln!("void: a round of {}: {why}", cell.peer.name()),
                measured => results[which].add(measured?),
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let mut lines = conditions::conditions(&[]);
    lines.push(format!(
        "medians of {rounds} rounds of {} s; 32 bytes each way; share: the fairness of the clients' calls by \
         Jain, of which 1 is even; latencies of all calls of all rounds",
        fan_in.seconds
    ));
    let rows = cells.iter().zip(results).map(|(cell, results)| results.row(*cell)).collect();
    report(rows, &lines, &[], options).map(drop)
}

/// Runs the clients of a cell once, in new processes.
fn measure(cell: Cell, time: Duration) -> Result<Tally> {
    let program = std::env::current_exe()?;
    let start = || -> Result<Process<Said>> {
        let mut process = Process::start(&program, &["fan-in-side".to_owned()])?;
        match process.hear()? {
            Said::Ready => Ok(process),
            said => bail!("it is not ready, but says {said:?}"),
        }
    };
    let order = |order: &Order| serde_json::to_string(order);
    let mut server = start()?;
    let address = match server.order(&order(&Order::Serve(cell.peer))?)? {
        Said::Serving(address) => address,
        said => bail!("it does not serve, but says {said:?}"),
    };
    let mut clients: Vec<Process<Said>> = (0..cell.processes).map(|_| start()).collect::<Result<_>>()?;
    let connect = order(&Order::Connect { peer: cell.peer, clients: cell.each, address })?;
    clients.iter_mut().try_for_each(|client| client.tell(&connect))?;
    for client in &mut clients {
        client.hear_within(PATIENCE)?;
    }
    let call = order(&Order::Call(time))?;
    clients.iter_mut().try_for_each(|client| client.tell(&call))?;
    let mut all = Tally::default();
    for client in &mut clients {
        match client.hear_within(time + PATIENCE)? {
            Said::Called(tally) => all.add(&tally),
            said => bail!("it has not called, but says {said:?}"),
        }
    }
    Ok(all)
}

/// The results of the rounds of a cell.
#[derive(Default)]
struct Results {
    rates: Vec<f64>,
    fairness: Vec<f64>,
    all: Tally,
}

impl Results {
    fn add(&mut self, round: Tally) {
        self.rates.push(round.rate());
        self.fairness.push(round.fairness());
        self.all.add(&round);
    }

    fn row(self, cell: Cell) -> Row {
        let at = |quantile| Some(self.all.quantile(quantile));
        let share = estimate(self.fairness).map(|fairness| (fairness.median * 1e3).round() / 1e3);
        Row {
            bench: "fan-in".into(),
            peer: cell.peer.name().into(),
            transport: Some(cell.peer.transport().into()),
            bytes: Some(32),
            part: Some(if cell.processes > 1 { "processes" } else { "one process" }.into()),
            threads: Some(cell.processes * cell.each),
            per_second: estimate(self.rates).map(|rate| rate.median.round()),
            share,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            ..Row::default()
        }
    }
}
