//! Measures honest callers of every protocol next to every kind of hostile client at once.
mod callers;
mod icmp;
mod readers;
mod servers;
mod side;
mod strangers;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use farcall_bench_method::process::Process;
use farcall_bench_method::stats::{Estimate, estimate};
use farcall_bench_method::{Options, Row, conditions, report};
use indicatif::ProgressBar;

use crate::hostile::budget;
use crate::network;
use callers::{Called, NAMES, RATED};
use side::{Said, Sent};
pub use side::{Side, main as side};

/// The commands that make the network of a siege: addresses other than loopback ones, and IPv6.
const NETWORK: &str = "ip link set lo up && for n in 0.1 1.1 1.2 1.3 1.4 1.5 1.6 1.7 1.8; do \
                       ip address add 10.77.$n/32 dev lo || exit; done";

/// The fraction of their rate that honest callers must keep.
const LEAST_RATIO: f64 = 0.8;
/// How long a phase may take beyond its time: clients may be told to wait.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Debug, clap::Args)]
pub struct Siege {
    #[command(flatten)]
    options: Options,
    /// How long the hostile clients are active, in minutes. All phases together take twice as long.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Strangers that do not take part, by the beginnings of their names.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Set in the run in a network of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Measures, shows the results, and fails if a requirement is not met.
pub fn run(siege: &Siege) -> Result<()> {
    if !siege.inside {
        bail!("there is no network of its own, which takes root and unshare: {:#}", network::enter(NETWORK));
    }
    let mut field = Field::start(siege)?;
    let phases = Phases::measure(&mut field, siege)?;
    let (peak, budget) = (budget::peak(field.attacked.id())?, 2 * budget::total());
    let reader = budget::peak(field.readers.id())?;
    let mut lines = conditions::conditions(&[]);
    lines.extend(phases.lines());
    lines.push(format!(
        "the attacked servers' peak memory: {} MiB of {} MiB, the budgets of its two native servers alone; {} threads; a \
         reader's: {} MiB of {} MiB",
        peak >> 20,
        budget >> 20,
        budget::threads(field.attacked.id()),
        reader >> 20,
        readers::MEMORY >> 20
    ));
    let overall = phases.overall();
    report(phases.rows(overall), &lines, &[], &siege.options)?;
    let failures = phases.failures();
    failures.iter().take(30).for_each(|why| eprintln!("failed: {why}"));
    ensure!(failures.is_empty(), "{} honest calls failed", failures.len());
    ensure!(peak <= budget, "the servers held {peak} bytes, more than their budget of {budget}");
    ensure!(reader <= readers::MEMORY, "a reader held {reader} bytes");
    let kept = overall.median;
    ensure!(kept >= LEAST_RATIO, "honest callers keep {kept:.3} of their rate, not {LEAST_RATIO}");
    Ok(())
}

/// The processes that take part.
struct Field {
    attacked: Process<Said>,
    _spared: Process<Said>,
    honest: Process<Said>,
    strangers: Process<Said>,
    readers: Process<Said>,
}

/// What came of a phase.
struct Phase {
    is_hostile: bool,
    called: Vec<Called>,
    sent: Vec<Sent>,
    read: readers::Done,
    /// The processor time of the servers.
    server: Duration,
}

impl Field {
    fn start(siege: &Siege) -> Result<Field> {
        let (near, far) = siege.options.pinned()[0].cores().unzip();
        let server = || -> Result<_> {
            let mut process = side::start("servers", far, None, &[])?;
            match process.hear()? {
                Said::Serving(places) => Ok((process, places)),
                said => bail!("it does not serve, but says {said:?}"),
            }
        };
        let ((attacked, places), (spared, others)) = (server()?, server()?);
        let other = |role: &str| {
            let mut process = side::start(role, near, Some([&places, &others]), &siege.without)?;
            match process.hear()? {
                Said::Ready => Ok(process),
                said => bail!("it is not ready, but says {said:?}"),
            }
        };
        let (honest, strangers, readers) = (other("honest")?, other("strangers")?, other("readers")?);
        Ok(Field { attacked, _spared: spared, honest, strangers, readers })
    }

    /// Makes honest calls at a server for that time, next to strangers.
    fn phase(&mut self, is_hostile: bool, time: Duration) -> Result<Phase> {
        let millis = time.as_millis();
        let (order, at) = if is_hostile { ("harm", "attacked") } else { ("form", "spared") };
        let within = time + PATIENCE;
        if is_hostile {
            self.strangers.order_within(&format!("prepare {millis}"), PATIENCE)?;
        }
        let server = if is_hostile { self.attacked.id() } else { self._spared.id() };
        let before = budget::processor(server);
        self.strangers.tell(&format!("{order} {millis}"))?;
        self.readers.tell(&format!("{} {millis}", if is_hostile { "hostile" } else { "honest" }))?;
        let called = self.honest.order_within(&format!("{at} {millis}"), within)?;
        let server = budget::processor(server).saturating_sub(before);
        let said = (called, self.strangers.hear_within(within)?, self.readers.hear_within(within)?);
        let (Said::Called(called), Said::Sent(sent), Said::Read(read)) = said else {
            bail!("they do not say what they did, but {said:?}")
        };
        Ok(Phase { is_hostile, called, sent, read, server })
    }
}

/// The results of all phases.
struct Phases {
    all: Vec<Phase>,
    /// For each kind of caller, the ratios of its rates in neighbouring phases: hostile to well-formed.
    ratios: Vec<Vec<f64>>,
    length: Duration,
}

impl Phases {
    fn measure(field: &mut Field, siege: &Siege) -> Result<Phases> {
        let length = Duration::from_millis(if siege.options.quick { 1_000 } else { 4_000 });
        let seconds = siege.minutes * 60.0;
        let groups = (seconds / length.as_secs_f64() / 2.0).ceil().max(1.0) as u64;
        let mut phases = Phases { all: Vec::new(), ratios: vec![Vec::new(); NAMES.len()], length };
        // The first calls of a conversation take longer.
        for is_hostile in [true, false] {
            let first = field.phase(is_hostile, length)?;
            phases.all.push(first);
        }
        let progress = ProgressBar::new(groups);
        for _ in 0..groups {
            let mut rates: Vec<Vec<f64>> = Vec::new();
            for is_hostile in [true, false, false, true] {
                let phase = field.phase(is_hostile, length)?;
                rates.push(phase.called.iter().map(|called| called.per_second).collect());
                phases.all.push(phase);
            }
            for (at, ratios) in phases.ratios.iter_mut().enumerate() {
                ratios.extend([rates[0][at] / rates[1][at], rates[3][at] / rates[2][at]]);
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(phases)
    }

    /// Returns the ratio of all callers with a rate: the geometric mean of theirs.
    fn overall(&self) -> Estimate {
        let pairs = self.ratios[0].len();
        let of = |pair: usize| {
            let logs: f64 = self.ratios[..RATED].iter().map(|ratios| ratios[pair].max(1e-9).ln()).sum();
            (logs / RATED as f64).exp()
        };
        estimate((0..pairs).map(of).collect()).unwrap_or(Estimate { low: 0.0, median: 0.0, high: 0.0 })
    }

    fn of(&self, is_hostile: bool) -> impl Iterator<Item = &Phase> {
        self.all.iter().filter(move |phase| phase.is_hostile == is_hostile)
    }

    fn failures(&self) -> Vec<String> {
        let callers = self.all.iter().flat_map(|phase| phase.called.iter().zip(NAMES));
        let callers = callers
            .flat_map(|(called, name)| called.failures.iter().map(move |why| format!("{name}: {why}")));
        let readers = self.all.iter().flat_map(|phase| phase.read.failures.iter().cloned());
        callers.chain(readers).collect()
    }

    fn rows(&self, overall: Estimate) -> Vec<Row> {
        let row = |name: &str, part: &str| Row {
            bench: "siege".into(),
            peer: "farcall".into(),
            operation: Some(name.into()),
            part: Some(part.into()),
            ..Row::default()
        };
        let mut rows = Vec::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            for (is_hostile, part) in [(true, "hostile"), (false, "well-formed")] {
                let rates = self.of(is_hostile).map(|phase| phase.called[at].per_second).collect();
                let mut one = row(name, part);
                one.per_second = estimate(rates).map(|rate| rate.median.round());
                if is_hostile {
                    estimate(self.ratios[at].clone()).into_iter().for_each(|ratio| one.set_ratio(ratio));
                }
                rows.push(one);
            }
        }
        let mut all = row("all with a rate", "hostile");
        all.set_ratio(overall);
        rows.push(all);
        rows
    }

    /// Returns a line for each load: what was called, and what strangers did beside it.
    fn lines(&self) -> Vec<String> {
        let line = |is_hostile: bool| {
            let time = self.of(is_hostile).count() as f64 * self.length.as_secs_f64();
            let calls: u64 =
                self.of(is_hostile).flat_map(|phase| &phase.called).map(|called| called.calls).sum();
            let longest = NAMES.iter().enumerate().map(|(at, name)| {
                let longest = self.of(is_hostile).map(|phase| phase.called[at].longest).max();
                format!("{name} {:.0} ms", longest.unwrap_or_default().as_secs_f64() * 1e3)
            });
            let longest: Vec<String> = longest.collect();
            let mut sent: Vec<String> = Vec::new();
            for (at, one) in self.all.first().map_or(&[][..], |phase| &phase.sent).iter().enumerate() {
                let sum = |of: fn(&Sent) -> u64| -> u64 {
                    self.of(is_hostile).filter_map(|phase| phase.sent.get(at)).map(of).sum()
                };
                let (units, failed) = (sum(|sent| sent.units), sum(|sent| sent.failed));
                sent.push(format!("{} {:.0} ({failed} failed)", one.name, units as f64 / time));
            }
            let read: u64 = self.of(is_hostile).map(|phase| phase.read.read).sum();
            let slowest = self.of(is_hostile).map(|phase| phase.read.longest).max().unwrap_or_default();
            let server: Duration = self.of(is_hostile).map(|phase| phase.server).sum();
            format!(
                "{}: {calls} honest calls in {time:.0} s, the longest: {}; beside them in a second: {}; registries and \
                 descriptions read: {read}, the longest {:.1} s; the servers' processor {:.2}",
                if is_hostile { "hostile" } else { "well-formed" },
                longest.join(", "),
                sent.join(", "),
                slowest.as_secs_f64(),
                server.as_secs_f64() / time
            )
        };
        [line(true), line(false)].into()
    }
}
