//! Groups: one call of all members at once (m), compared with calls of one member after the other (r), as in
//! Satyanarayanan & Siegel 1990.
mod cast;
mod components;
mod costs;
mod farcall;
mod faults;
mod null;
mod raw;
mod router;
mod show;
mod working;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use farcall_bench_group::{Calls, Distribution, Kind, Order, Server, Side, Way};
use farcall_bench_method::{Options, Pin, Row};
use farcall_crypto::Level;

use crate::field::Field;
use crate::peers::{self, AWAKE, CONTROL, FARCALL, FARCALL_AUTHENTICATED, FARCALL_SECURE, RAW};
use cast::Cast;

#[derive(Debug, clap::Args)]
pub struct Multi {
    #[command(flatten)]
    options: Options,
    /// The number of called members. Each is a process.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 5, 10, 20, 50, 100])]
    members: Vec<usize>,
    /// The mean time for which a member computes, in milliseconds; 0 is the null call.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 20, 50])]
    computation: Vec<u32>,
    /// The distributions of these times.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Distribution::Constant, Distribution::Normal, Distribution::Exponential])]
    distribution: Vec<Distribution>,
    /// How often all computing members are called, in both ways. [default: 10, as in the paper; with --quick
    /// 3]
    #[arg(long)]
    trials: Option<usize>,
    /// Measure the cost of a member instead: instructions, system calls, memory; large results and arguments.
    #[arg(long)]
    costs: bool,
    /// Measure what a dead and a hung member cost the others, instead.
    #[arg(long)]
    faults: bool,
    /// Call only members that compute, and only by farcall.
    #[arg(long)]
    alone: bool,
    /// Measure the components of a call instead, as in the paper's table VI.
    #[arg(long)]
    components: bool,
    /// Measure instead how much is sent again when all replies pass a router that is slow and drops packets.
    #[arg(long)]
    router: bool,
}

/// Measures what the options select, and shows it.
pub fn run(multi: &Multi) -> Result<()> {
    if multi.costs {
        return costs::run(multi);
    }
    if multi.faults {
        return faults::run(multi);
    }
    if multi.components {
        return components::run(multi);
    }
    if multi.router {
        return router::run(multi);
    }
    let works = working::works(multi);
    let null = multi.computation.contains(&0) && !multi.alone;
    let names = match multi.alone {
        true => vec![FARCALL.to_owned()],
        false => peers::names(&[RAW, CONTROL, FARCALL, AWAKE], &with_tonic(&multi.options)),
    };
    let working = names.iter().filter(|name| *name != CONTROL).count();
    let steps = if null { multi.members.len() * multi.options.groups() } else { 0 };
    let mut field = Field::new(&names, steps + works.len() * multi.members.len() * working)?;
    let (mut rows, mut void) = (Vec::new(), Vec::new());
    for pin in multi.options.pinned() {
        let most = multi.members.iter().copied().max().unwrap_or(1);
        let mut casts = casts(&mut field, (most, 1), pin)?;
        if null {
            let (measured, reasons) = null::measure(multi, &mut field, &mut casts, pin)?;
            rows.extend(measured);
            void.extend(reasons);
        }
        casts.retain(|cast| cast.0 != CONTROL);
        rows.extend(working::measure(multi, &works, &mut field, &mut casts, pin)?);
    }
    show::show(multi, field, rows, &void)
}

/// Returns the options with tonic as the only other peer, because only tonic has a program for groups.
fn with_tonic(options: &Options) -> Options {
    let peers = options.peers.clone().unwrap_or_else(|| vec!["tonic".into()]);
    Options { peers: Some(peers), ..options.clone() }
}

type Named = (String, Cast);

/// Starts the processes of all peers that can take part.
fn casts(field: &mut Field, shape: (usize, usize), pin: Pin) -> Result<Vec<Named>> {
    let mut casts = Vec::new();
    for (name, program) in field.programs() {
        field.progress.set_message(format!("starting {} servers of {name}", shape.0 * shape.1));
        match Cast::start(&program, &name, shape, pin) {
            Ok(cast) => {
                field.version(&name, &cast.version);
                casts.push((name, cast));
            }
            Err(why) => field.leave_out(&name, why)?,
        }
    }
    Ok(casts)
}

/// Measures the null call of all members at once by two programs: their blocks alternate.
pub fn beside(field: &mut Field, members: usize, pin: Pin, options: &Options) -> Result<Vec<Row>> {
    let mut casts = casts(field, (members, 1), pin)?;
    null::cell(members, options, field, &mut casts, pin)
}

/// Returns this program's own path.
fn ours(shape: (usize, usize), pin: Pin) -> Result<Cast> {
    let program: PathBuf = std::env::current_exe()?;
    Cast::start(&program, FARCALL, shape, pin)
}

/// Returns an order that is timed.
fn order(way: Way, kind: Kind, members: usize, trials: usize) -> Order {
    Order { way, kind, members: (0, members), warm: 0, trials, counted: None }
}

fn row(peer: &str, members: usize, pin: Pin) -> Row {
    let transport = if peer == "tonic" { "http/2 tcp" } else { "udp" };
    Row {
        bench: "multi".into(),
        peer: peer.into(),
        transport: Some(transport.into()),
        members: Some(members),
        pin: Some(pin.to_string()),
        ..Row::default()
    }
}

/// Runs one side of a peer in this program.
pub fn side(side: &Side) -> ExitCode {
    type Serve = fn(&[u64]) -> Result<Box<dyn Server>>;
    type Connect = fn(&[String]) -> Result<Box<dyn Calls>>;
    let (serve, connect): (Serve, Connect) = match &side.peer[..] {
        RAW | CONTROL => (raw::serve, raw::connect),
        AWAKE => (raw::serve, raw::connect_awake),
        FARCALL if side.apart => (farcall::serve_apart, |to| farcall::connect(None, to)),
        FARCALL => (|seeds| farcall::serve(None, seeds), |to| farcall::connect(None, to)),
        FARCALL_AUTHENTICATED => (
            |seeds| farcall::serve(Some(Level::Authenticated), seeds),
            |to| farcall::connect(Some(Level::Authenticated), to),
        ),
        FARCALL_SECURE => (
            |seeds| farcall::serve(Some(Level::Secure), seeds),
            |to| farcall::connect(Some(Level::Secure), to),
        ),
        _ => (|_| bail!("it has no part here"), |_| bail!("it has no part here")),
    };
    farcall_bench_group::main(side, serve, connect)
}
