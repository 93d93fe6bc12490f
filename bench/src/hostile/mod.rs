//! Measures honest callers next to hostile clients: how much of their rate they keep, whether their calls
//! fail, and how much memory the server holds.
pub(crate) mod budget;
pub(crate) mod formed;
mod frames;
pub(crate) mod harm;
pub(crate) mod honest;
pub(crate) mod load;
pub(crate) mod side;
mod silent;
pub(crate) mod target;

use std::time::Duration;

use anyhow::{Result, ensure};
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Options, Pin, Row, conditions, report};
use indicatif::ProgressBar;

use crate::network;
use harm::Kind;
use side::{Done, Remote, words};
pub use side::{Side, main as side};

/// An address of the servers other than a loopback address, in a network namespace of the run.
pub(crate) const OUTSIDE: [u8; 4] = [10, 77, 0, 1];
/// The commands that make that network. Half of the hostile hosts are in it.
const NETWORK: &str = "ip link set lo up && for n in 0.1 1.1 1.2 1.3 1.4 1.5 1.6 1.7 1.8; do \
                       ip address add 10.77.$n/32 dev lo || exit; done";

/// The fraction of their rate that honest callers must keep.
const LEAST_RATIO: f64 = 0.8;

#[derive(Debug, clap::Args)]
pub struct Hostile {
    #[command(flatten)]
    options: Options,
    /// How long the hostile clients are active, in seconds. All phases together take two and a half times as
    /// long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many datagrams they send, and silent connections they open, per second.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// The kinds of hostile datagrams. [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Set in the run in a network of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Measures, shows the results, and fails if a requirement is not met.
pub fn run(hostile: &Hostile) -> Result<()> {
    let alone = if hostile.inside { None } else { Some(network::enter(NETWORK)) };
    let options = &hostile.options;
    let pin = options.pinned()[0];
    let mut field = Field::start(hostile, pin, alone.is_none())?;
    let phases = Phases::measure(&mut field, hostile)?;
    let (peak, budget) = (budget::peak(field.attacked.id())?, budget::total());
    let ratio = estimate(phases.ratios.clone()).unwrap_or(Estimate { low: 0.0, median: 0.0, high: 0.0 });
    let mut lines = conditions::conditions(&[]);
    lines.extend(
        alone.map(|why| format!("all addresses are loopback addresses, no network of its own: {why:#}")),
    );
    lines.push(format!(
        "hostile: {} datagrams a second of 8 hosts with 8 connections each; honest: {} callers; phases of {:?}; each \
         ratio, to the same datagrams of well-formed clients, the median of {}",
        hostile.rate,
        honest::CALLERS,
        length(options),
        phases.ratios.len()
    ));
    lines.extend(phases.lines());
    lines.push(format!(
        "the attacked server's peak memory: {} MiB of {} MiB ({}), {} threads",
        peak >> 20,
        budget >> 20,
        budget::words(),
        phases.threads
    ));
    report(phases.rows(pin, ratio), &lines, &[], options)?;
    let failures: Vec<&String> = phases.all.iter().flat_map(|(_, done)| &done.failures).collect();
    failures.iter().take(20).for_each(|why| eprintln!("failed: {why}"));
    ensure!(failures.is_empty(), "{} honest calls failed", failures.len());
    ensure!(peak <= budget, "the server held {peak} bytes, more than its budget of {budget}");
    ensure!(
        ratio.median >= LEAST_RATIO,
        "honest callers keep {:.3} of their rate, not {LEAST_RATIO}",
        ratio.median
    );
    Ok(())
}

/// The processes that take part.
struct Field {
    attacked: Remote,
    spared: Remote,
    honest: Remote,
    load: Remote,
}

impl Field {
    fn start(hostile: &Hostile, pin: Pin, outside: bool) -> Result<Field> {
        use clap::ValueEnum;
        let (near, far) = pin.cores().unzip();
        let server = || Remote::start(words("server", outside, far, &[]));
        let (attacked, spared) = (server()?, server()?);
        let servers: [&[_]; 2] = [&attacked.addresses, &spared.addresses];
        let honest = Remote::start(words("honest", outside, near, &servers))?;
        let mut load = words("load", outside, near, &servers);
        let kinds = if hostile.kinds.is_empty() { Kind::value_variants() } else { &hostile.kinds };
        let names = kinds.iter().filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()));
        load.push(format!("--kinds={}", names.collect::<Vec<_>>().join(",")));
        let load = Remote::start(load)?;
        Ok(Field { attacked, spared, honest, load })
    }

    /// Makes honest calls at a server for that time, next to a load.
    fn phase(&mut self, part: Part, rate: u32, time: Duration) -> Result<Done> {
        let load = match part {
            Part::Hostile => Some(format!("harm={rate}")),
            Part::Formed => Some("formed".to_owned()),
            Part::Quiet => None,
        };
        let (server, order) =
            if part == Part::Hostile { (&self.attacked, "attacked") } else { (&self.spared, "spared") };
        let before = budget::processor(server.id());
        if let Some(order) = &load {
            self.load.begin(order, time)?;
        }
        self.honest.begin(order, time)?;
        let called = self.honest.done()?;
        let loaded = if load.is_some() { self.load.done()? } else { Done::default() };
        let server = budget::processor(server.id()).saturating_sub(before);
        let Done { rates, calls, failures, longest, .. } = called;
        Ok(Done { rates, calls, failures, longest, server, ..loaded })
    }
}

/// The load next to the honest calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Hostile,
    Formed,
    Quiet,
}

const PARTS: [Part; 3] = [Part::Hostile, Part::Formed, Part::Quiet];

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Hostile => "hostile",
            Part::Formed => "well-formed",
            Part::Quiet => "quiet",
        }
    }
}

/// The results of all phases.
struct Phases {
    all: Vec<(Part, Done)>,
    /// Ratios of honest callers' rates in neighbouring phases: hostile to well-formed, and quiet to
    /// well-formed.
    ratios: Vec<f64>,
    quiet: Vec<f64>,
    /// The most threads that the attacked server had.
    threads: u64,
    length: Duration,
}

/// Returns the length of a phase.
fn length(options: &Options) -> Duration {
    Duration::from_millis(if options.quick { 500 } else { 2_000 })
}

impl Phases {
    fn measure(field: &mut Field, hostile: &Hostile) -> Result<Phases> {
        let length = length(&hostile.options);
        let groups = (hostile.seconds as f64 / length.as_secs_f64() / 2.0).ceil().max(1.0) as u64;
        let mut phases =
            Phases { all: Vec::new(), ratios: Vec::new(), quiet: Vec::new(), threads: 0, length };
        let progress = ProgressBar::new(groups);
        // The first calls of a conversation take longer, and the first well-formed phase follows a hostile
        // one.
        for part in PARTS {
            field.phase(part, hostile.rate, length)?;
        }
        for _ in 0..groups {
            let order = [Part::Hostile, Part::Formed, Part::Formed, Part::Hostile, Part::Quiet];
            let mut rates = Vec::new();
            for part in order {
                let done = field.phase(part, hostile.rate, length)?;
                phases.threads = phases.threads.max(budget::threads(field.attacked.id()));
                rates.push(done.rates.iter().sum::<f64>());
                phases.all.push((part, done));
            }
            phases.ratios.extend([rates[0] / rates[1], rates[3] / rates[2]]);
            phases.quiet.push(rates[4] / rates[2]);
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(phases)
    }

    fn of(&self, part: Part) -> impl Iterator<Item = &Done> {
        self.all.iter().filter(move |(one, _)| *one == part).map(|(_, done)| done)
    }

    fn rows(&self, pin: Pin, ratio: Estimate) -> Vec<Row> {
        let row = |part: Part| {
            let rates = self.of(part).map(|done| done.rates.iter().sum()).collect();
            let mut row = Row {
                bench: "hostile".into(),
                peer: "farcall".into(),
                transport: Some("udp".into()),
                part: Some(part.name().into()),
                pin: Some(pin.to_string()),
                per_second: estimate(rates).map(|rate| rate.median.round()),
                ..Row::default()
            };
            match part {
                Part::Hostile => row.set_ratio(ratio),
                Part::Quiet => {
                    estimate(self.quiet.clone()).into_iter().for_each(|ratio| row.set_ratio(ratio))
                }
                Part::Formed => {}
            }
            row
        };
        PARTS.map(row).into()
    }

    /// Returns a line for each load: the load next to the honest calls, and what it used.
    fn lines(&self) -> Vec<String> {
        let line = |part: Part| {
            let sum = |of: fn(&Done) -> u64| self.of(part).map(of).sum::<u64>();
            let time = self.of(part).count() as f64 * self.length.as_secs_f64();
            let busy =
                |of: fn(&Done) -> Duration| self.of(part).map(of).sum::<Duration>().as_secs_f64() / time;
            let longest = |at: usize| self.of(part).filter_map(|done| done.longest.get(at)).max().copied();
            let longest =
                (0..honest::CALLS.len()).map(|at| (longest(at).unwrap_or_default(), honest::CALLS[at])).max();
            let (longest, call) = longest.unwrap_or_default();
            format!(
                "{}: {} honest calls, {} failed, the longest ({call}) {:.0} ms; beside them {:.0} datagrams and {:.1} MB a second, \
                 {} conversations begun, {} silent connections, {} calls lost; processors busy: load {:.2}, server {:.2}",
                part.name(),
                sum(|done| done.calls),
                sum(|done| done.failures.len() as u64),
                longest.as_secs_f64() * 1e3,
                sum(|done| done.datagrams) as f64 / time,
                sum(|done| done.bytes) as f64 / time / 1e6,
                sum(|done| done.met),
                sum(|done| done.connected),
                sum(|done| done.lost),
                busy(|done| done.processor),
                busy(|done| done.server)
            )
        };
        PARTS.map(line).into()
    }
}
