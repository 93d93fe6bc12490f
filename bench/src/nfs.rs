//! NFS: READs by libnfs from our server (`examples/nfs`), compared with those from nfs-ganesha.
use anyhow::Result;
use farcall_bench_method::interleave::abba;
use farcall_bench_method::stats::estimate;
use farcall_bench_method::{Cannot, Carry, Cell, Load, Mode, Options, Row, Setup, Tally, chart};

use crate::field::{Contender, Field, begin_group};
use crate::network;

/// The anchor.
const GANESHA: &str = "nfs-ganesha";
/// Shell commands that make the network in which ganesha's ports are free, with a /run in which ganesha finds
/// the port mapper.
const NETWORK: &str = "ip link set lo up && mount -t tmpfs none /run";
/// `examples/nfs`.
const OURS: &str = "farcall-nfs";

#[derive(Debug, clap::Args)]
pub struct Nfs {
    #[command(flatten)]
    options: Options,
    /// The number of bytes that one READ requests.
    #[arg(long, value_delimiter = ',', default_values_t = [64 << 10])]
    bytes: Vec<usize>,
    /// The number of READs that a client has outstanding.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    outstanding: Vec<usize>,
    /// Set in the run in a network of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Measures all cells that the options select, and shows them.
pub fn run(nfs: &Nfs) -> Result<()> {
    let options = &nfs.options;
    let pin = options.pinned()[0];
    // The programs are built first, because the new network has no access to registries.
    let mut field = Field::new(
        &[GANESHA, OURS].map(str::to_owned),
        nfs.bytes.len() * nfs.outstanding.len() * options.groups(),
    )?;
    let alone = if nfs.inside { None } else { Some(network::enter(NETWORK)) };
    if let Some(why) = &alone {
        field.leave_out(GANESHA, Cannot(format!("no network of its own: {why:#}")).into())?;
    }
    let mut rows = Vec::new();
    for &bytes in &nfs.bytes {
        for &outstanding in &nfs.outstanding {
            let setup = Setup { bytes, carry: Carry::Result, mode: Mode::Block, outstanding };
            let contenders = field.some(&Cell { setup, pin }, |name| alone.is_none() || name != GANESHA)?;
            rows.extend(measure(contenders, &mut field, options)?);
        }
    }
    let (ratios, calls) = (2 * options.groups(), options.block().calls);
    let method = format!(
        "each ratio, of the time for a READ to ganesha's, the median of {ratios} pairs of blocks of {calls}"
    );
    let (rows, conditions) = field.show(rows, method, &[], options)?;
    match &options.svg {
        Some(path) => chart::ratios(path, "READs by libnfs", "ratio to nfs-ganesha", &rows, &conditions),
        None => Ok(()),
    }
}

/// The results of the blocks of one server.
#[derive(Default)]
struct Results {
    tally: Tally,
    /// The mean time of a READ in each block, in microseconds.
    times: Vec<f64>,
    ratios: Vec<f64>,
}

/// Measures both servers in one cell, or the one that is available.
fn measure(mut contenders: Vec<Contender>, field: &mut Field, options: &Options) -> Result<Vec<Row>> {
    let mut results: Vec<Results> = contenders.iter().map(|_| Results::default()).collect();
    for group in 0..options.groups() {
        begin_group(group, options.groups(), &mut contenders);
        match (&mut contenders[..], &mut results[..]) {
            ([ganesha, ours], [anchors, results]) => {
                let ratios = abba(|| anchors.block(ganesha, options), || results.block(ours, options))?;
                results.ratios.extend(ratios);
            }
            (some, results) => {
                some.iter_mut()
                    .zip(results)
                    .try_for_each(|(one, results)| results.block(one, options).map(drop))?;
            }
        }
        field.progress.inc(1);
    }
    contenders.iter_mut().zip(results).map(|(contender, results)| results.row(contender)).collect()
}

impl Results {
    /// Runs a block, and returns the time of a READ.
    fn block(&mut self, contender: &mut Contender, options: &Options) -> Result<f64> {
        let (outstanding, block) = (contender.cell.setup.outstanding, options.block());
        let nanoseconds = contender.block(|pair| {
            if outstanding == 1 {
                return pair.time(block, &mut self.tally);
            }
            let [warm, load] = [block.warm, block.calls].map(|calls| Load::Window { outstanding, calls });
            Ok(1e9 / pair.rate(warm, load)?.0)
        })?;
        self.times.push(nanoseconds / 1e3);
        Ok(nanoseconds)
    }

    fn row(self, contender: &mut Contender) -> Result<Row> {
        let cell = contender.cell;
        let mut row = Row { operation: Some("READ".into()), ..contender.pair()?.row("nfs", &cell) };
        row.outstanding = Some(cell.setup.outstanding);
        if cell.setup.outstanding == 1 {
            self.tally.enter(&mut row);
            // Ganesha is a process of its own, whose processor time is not measured.
            row.server_cpu_us = None;
        }
        if let Some(time) = estimate(self.times) {
            row.p50_us = row.p50_us.or(Some((time.median * 1e3).round() / 1e3));
            row.gbit_per_second = Some(cell.setup.bytes as f64 * 8.0 / time.median / 1e3);
        }
        estimate(self.ratios).into_iter().for_each(|ratio| row.set_ratio(ratio));
        Ok(row)
    }
}
