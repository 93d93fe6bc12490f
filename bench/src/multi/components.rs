//! The components of a call of all members: the paper's table VI, and what its model needs.
use anyhow::{Context, Result};
use farcall_bench_group::{Counted, Kind, Order, Parts, Way};
use farcall_bench_method::Row;
use farcall_bench_method::stats::{estimate, midmean};

use super::{Cast, Multi, order, ours, row};
use crate::field::Field;
use crate::peers::{FARCALL, RAW};

/// How many members are called: as many as the paper had on one network.
const MEMBERS: usize = 20;

/// Measures and shows the components.
pub fn run(multi: &Multi) -> Result<()> {
    let field = Field::new(&[FARCALL.into()], multi.options.pinned().len())?;
    let mut rows = Vec::new();
    for pin in multi.options.pinned() {
        let trials = multi.options.groups() * 50;
        let program = std::env::current_exe()?;
        let sendtime = send_time(&mut Cast::start(&program, RAW, (MEMBERS, 1), pin)?, trials)?;
        let mut cast = ours((MEMBERS, 1), pin)?;
        for (part, nanoseconds) in components(&mut cast, trials, sendtime)? {
            rows.push(Row {
                part: Some(part.to_owned()),
                nanoseconds: Some(nanoseconds),
                ..row(FARCALL, MEMBERS, pin)
            });
        }
        field.progress.inc(1);
    }
    let method = format!(
        "null calls of {MEMBERS} members; medians. pack: until the arguments are encoded. cloh, for a member: from then until all \
         calls are sent. servoh: processor time of a server for a call. clproc, for a member: the client's processor \
         time without pack, cloh and unpack. unpack, for a member: decoding a reply, and a handler that does nothing. \
         sendtime, for a member: bare system calls that send datagrams to as many sleeping processes"
    );
    field.show(rows, method, &[], &multi.options).map(drop)
}

/// Returns the components in nanoseconds, by the paper's names, and the null calls of one member as
/// `rpctime`.
fn components(cast: &mut Cast, trials: usize, sendtime: f64) -> Result<Vec<(&'static str, f64)>> {
    let parts = cast.parts(multi(trials))?;
    let median = |of: fn(&Parts) -> u64| median(&parts, of);
    let members = MEMBERS as f64;
    let (pack, unpack) = (median(|parts| parts.pack)?, median(|parts| parts.unpack)? / members);
    let cloh = (median(|parts| parts.start)? - pack) / members;
    // The trials before the first counted one are a tenth.
    let server_time =
        |cast: &Cast| cast.server_time().context("this system does not tell the processor time of processes");
    let before = server_time(cast)?;
    let client = cast.number(multi(trials), Counted::Time)? as f64 / (trials as f64 * members);
    let servoh = (server_time(cast)? - before) as f64 / (1.1 * trials as f64 * members);
    let clproc = (client - pack / members - cloh - unpack).max(0.0);
    let one = Order { warm: trials / 10, ..order(Way::Iterative, Kind::Null, 1, trials) };
    let mut single: Vec<u32> =
        cast.time(one)?.into_iter().map(|ns| ns.try_into().unwrap_or(u32::MAX)).collect();
    let rpctime = midmean(&mut single);
    Ok(vec![
        ("pack", pack),
        ("cloh", cloh),
        ("servoh", servoh),
        ("clproc", clproc),
        ("unpack", unpack),
        ("sendtime", sendtime),
        ("rpctime", rpctime),
    ])
}

/// Returns how long the system call takes that sends a member's datagram.
fn send_time(raw: &mut Cast, trials: usize) -> Result<f64> {
    Ok(median(&raw.parts(multi(trials))?, |parts| parts.start)? / MEMBERS as f64)
}

fn multi(trials: usize) -> Order {
    Order { warm: trials / 10, ..order(Way::Multi, Kind::Null, MEMBERS, trials) }
}

fn median(parts: &[Parts], of: fn(&Parts) -> u64) -> Result<f64> {
    let values = parts.iter().map(|parts| of(parts) as f64).collect();
    estimate(values).map(|estimate| estimate.median).context("nothing was timed")
}
