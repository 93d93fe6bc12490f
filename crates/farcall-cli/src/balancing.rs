//! The balancers of a process: asks for them, and prints them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use farcall::balance::MemberState;
use farcall::dynamic::{Balancing, balancers};
use farcall::{Kind, Runtime};
use serde_json::{Value, json};

use crate::text::{count, counted, duration, printable, rounded};

/// How long to wait for the state of a process's balancers. It is asked for by an ordinary call, which a
/// server cannot answer while all of its threads are stuck.
const WITHIN: Duration = Duration::from_secs(1);

/// Returns the balancers of the process at an address; none if it is of a version that shows none.
pub fn balancers_of(runtime: &Runtime, address: SocketAddr) -> farcall::Result<Vec<Balancing>> {
    match balancers(runtime, address, WITHIN) {
        Err(farcall::Error::CallFailed(why)) if why.kind() == Kind::NoSuchProcedure => Ok(Vec::new()),
        asked => asked,
    }
}

/// Returns the text that shows balancers.
pub fn balancers_table(balancers: &[Balancing]) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        let _ = writeln!(page, "{}", printable(&text));
    };
    for Balancing { group, members, untold, .. } in balancers {
        let all = members.len() as u64 + u64::from(*untold);
        line(format!("balances {group}  {}", counted(all, "member")));
        line(format!(
            "{:>11} {:>6} {:>9} {:>11} {:>8}  MEMBER",
            "CALLS", "SHARE", "FAILURES", "OUTSTANDING", "LATENCY"
        ));
        for member in members {
            let MemberState { name, calls, share, failures, outstanding, latency, out, .. } = member;
            let near = if member.on_this_machine { " (on its machine)" } else { "" };
            let out = out.map_or_else(String::new, |out| format!("  {out}"));
            line(format!(
                "{:>11} {:>4.0} % {:>9} {:>11} {:>8}  {name}{near}{out}",
                count(*calls),
                100.0 * share.clamp(0.0, 1.0),
                count(*failures),
                count(u64::from(*outstanding)),
                latency.map_or_else(String::new, duration),
            ));
        }
        if *untold > 0 {
            line(format!("{untold} more members, which are not shown"));
        }
    }
    page
}

/// Returns what `--json` prints of balancers.
pub fn balancers_json(balancers: &[Balancing]) -> Value {
    let member = |member: &MemberState| {
        let out = member.out.map(|out| {
            json!({
                "why": out.why.word(), "left_s": rounded(out.left.as_secs_f64(), 3), "times": out.times,
            })
        });
        json!({
            "name": &*member.name, "on_its_machine": member.on_this_machine, "calls": member.calls,
            "share": rounded(member.share, 4), "failures": member.failures, "outstanding": member.outstanding,
            "latency_us": member.latency.map(|latency| rounded(latency.as_secs_f64() * 1e6, 1)), "out": out,
        })
    };
    let balancer = |Balancing { group, members, untold, .. }: &Balancing| {
        json!({
            "group": group, "members": members.iter().map(member).collect::<Vec<_>>(), "untold": untold,
        })
    };
    balancers.iter().map(balancer).collect()
}
