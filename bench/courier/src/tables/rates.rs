//! Tables 3 and 4: milliseconds for a call, and calls per second.

use farcall_bench_method::paper::{Entry, Table, Whose};

use super::{begin, heads, networks, old, or_blank, or_missing, printed};
use crate::figures::{Figures, PAPER_CALLS, Summary};
use crate::interface::TESTS;
use crate::network::Network;
use crate::paper::{Rate, TABLES_3_4};
use crate::ways::Way;

pub fn tables(figures: &Figures) -> Vec<Table> {
    networks(figures).map(|network| table(figures, network)).collect()
}

fn table(figures: &Figures, network: Network) -> Table {
    let (number, caption) = match network {
        Network::Three => ("Table 3", "Calls per second, VAX to VAX (old) and at 3 Mbit/s (new)"),
        Network::Ten => ("Table 4", "Calls per second, VAX to Sun (old) and at 10 Mbit/s (new)"),
        Network::Loopback => ("Tables 3 and 4 by loopback", "Calls per second"),
    };
    let mut table = begin(number, caption);
    for name in ["Courier", "PCourier", "corrected PCourier"] {
        if old(network).is_some() {
            table = table.with(&format!("{name}, 1983"), Whose::Paper, &["ms/call", "call/s"]);
        }
        table = table.with("now", Whose::Now, &["ms/call", "call/s"]);
        if old(network).is_some() {
            table = table.with("1983 ÷ now", Whose::Ratio, &["ms/call"]);
        }
    }
    for test in TESTS {
        let new = [
            figures.elapsed(network, Way::Courier, test),
            figures.elapsed(network, Way::Pcourier, test),
            figures.corrected(network, Way::Pcourier, test),
        ];
        let mut line = heads(test).to_vec();
        for (column, new) in new.into_iter().enumerate() {
            let (before, now) =
                (old(network).map(|place| TABLES_3_4[place][test.row()][column]), new.map(rate));
            if let Some(before) = before {
                line.extend(cells(before, printed, printed_whole).map(or_blank));
            }
            line.extend(cells(now, Entry::figure, rounded).map(or_missing));
            if let Some(before) = before {
                line.push(Entry::ratio(before.map(|before| before.0), now.map(|now| now.0)));
            }
        }
        table.line(line);
    }
    table
}

fn rate(elapsed: Summary) -> (f64, f64) {
    (elapsed.mean / PAPER_CALLS * 1e3, PAPER_CALLS / elapsed.mean)
}

fn rounded(rate: f64) -> Entry {
    Entry { text: format!("{rate:.0}"), ..Entry::figure(rate) }
}

/// Returns a rate as the paper prints it.
fn printed_whole(rate: f64) -> Entry {
    Entry { text: rate.to_string(), ..Entry::figure(rate) }
}

fn cells(rate: Rate, milliseconds: fn(f64) -> Entry, calls: fn(f64) -> Entry) -> [Option<Entry>; 2] {
    rate.map_or([const { None }; 2], |(each, rate)| [Some(milliseconds(each)), Some(calls(rate))])
}
