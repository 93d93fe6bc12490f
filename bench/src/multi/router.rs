//! The share of what the client sends that it sends again, by the number of members, when all replies pass a
//! router (Satyanarayanan & Siegel 1990, section VI-B3).
use std::time::Duration;

use anyhow::Result;
use farcall_bench_group::{Kind, Sent, Way, Work, paper};
use farcall_bench_method::{Pin, Row};

use super::cast::Cast;
use super::working::{self, moments};
use super::{Multi, order, row};
use crate::field::Field;
use crate::peers::FARCALL;

/// The shortest time after which farcall sends a call again (`ClientConfig::min_retransmit`). RPC2's is about
/// 236 ms.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// The time that the router takes for a reply: 0.8 ms, so that replies take as many retransmission times as in
/// the paper. (There a call and its reply took 10.1 ms of the client's time.) A computation of 2 ms is as long
/// beside a retransmission time as the paper's 20 ms were: 20 ms * 20 / 236.
const EACH: Duration = Duration::from_micros(20_000 / paper::REPLIES_IN_FIRST_RETRY as u64);
const _: () = assert!(EACH.as_micros() * paper::REPLIES_IN_FIRST_RETRY as u128 == FIRST_RETRY.as_micros());

/// How many replies the router queues. The paper does not tell this of its routers. This is as many as take a
/// retransmission time to pass, so that losses begin beyond 25 servers, as retries did there.
const QUEUE: usize = paper::REPLIES_IN_FIRST_RETRY as usize;

/// Measures and shows the shares.
pub fn run(multi: &Multi) -> Result<()> {
    let works = working::works(multi);
    let mut field = Field::new(&[FARCALL.into()], works.len() * multi.members.len())?;
    let (mut rows, mut void) = (Vec::new(), Vec::new());
    for pin in multi.options.pinned() {
        for &members in &multi.members {
            field.progress.set_message(format!("{members} members"));
            match Cast::apart(&std::env::current_exe()?, FARCALL, members, (EACH, QUEUE), pin) {
                Ok(cast) => rows.extend(measure(cast, (members, pin), &works, multi, &mut field)?),
                Err(why) => {
                    void.push(format!("no network with a router for a group of {members}: {why:#}"));
                    rows.push(Row { void: Some(true), ..row(FARCALL, members, pin) });
                }
            }
        }
    }
    let mut method = format!(
        "three network namespaces: of the client, of one process with all servers, which sleep instead of \
         computing, and of a router. It forwards a packet to the client each {} µs, queues {QUEUE}, and drops \
         those that find no room. What the client sends it forwards at once. Farcall has its defaults, and sends \
         a call again after {} ms at the earliest. Sent: the client's datagrams for one call of all. Again: the \
         percentage of them that were calls sent again, or probes of calls that a server executes",
        EACH.as_micros(),
        FIRST_RETRY.as_millis(),
    );
    void.first().into_iter().for_each(|why| method.push_str(&format!("; void: {why}")));
    field.show(rows, method, &void, &multi.options).map(drop)
}

/// Returns a row for each computation and for both ways of calling.
fn measure(
    mut cast: Cast,
    (members, pin): (usize, Pin),
    works: &[Work],
    multi: &Multi,
    field: &mut Field,
) -> Result<Vec<Row>> {
    let trials = multi.trials.unwrap_or(if multi.options.quick { 2 } else { 10 });
    field.version(FARCALL, &cast.version);
    // Each member is bound first, one after the other: what binding costs is not counted.
    cast.time(order(Way::Iterative, Kind::Null, members, 1))?;
    let mut rows = Vec::new();
    for &work in works {
        // Calls of one after the other take n times as long and lose nothing, so fewer show that.
        for (way, part, trials) in
            [(Way::Multi, "all at once", trials), (Way::Iterative, "one by one", trials.div_ceil(10))]
        {
            let (took, sent) = cast.sent(order(way, Kind::Work(work), members, trials))?;
            rows.push(enter(
                Row { part: Some(part.into()), ..row(FARCALL, members, pin) },
                work,
                &took,
                sent,
            ));
        }
        field.progress.inc(1);
    }
    Ok(rows)
}

fn enter(mut row: Row, work: Work, took: &[u64], sent: Sent) -> Row {
    let each = |count: u64| Some(count as f64 / took.len() as f64);
    row.computation_ms = Some(work.milliseconds);
    row.distribution = Some(work.distribution.name().into());
    (row.datagrams, row.retransmitted, row.probes) =
        (each(sent.datagrams), each(sent.again), each(sent.probes));
    row.again_percent = Some((sent.again + sent.probes) as f64 * 100.0 / sent.datagrams.max(1) as f64);
    let milliseconds: Vec<f64> = took.iter().map(|&ns| ns as f64 / 1e6).collect();
    match row.part.as_deref() {
        Some("one by one") => (row.iterative_ms, row.iterative_deviation_ms) = moments(&milliseconds),
        _ => (row.multi_ms, row.multi_deviation_ms) = moments(&milliseconds),
    }
    row
}
