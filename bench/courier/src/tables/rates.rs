//! Tables 3 and 4: milliseconds for a call, and calls per second.

use super::{NONE, Table, heads, networks, number, old, printed};
use crate::figures::{Figures, PAPER_CALLS, Summary};
use crate::interface::TESTS;
use crate::network::Network;
use crate::paper::{Rate, TABLES_3_4};
use crate::ways::Way;

pub fn print(figures: &Figures) {
    for network in networks(figures) {
        let caption = match network {
            Network::Three => "Table 3. Calls per second, VAX to VAX (old) and at 3 Mbit/s (new)",
            Network::Ten => "Table 4. Calls per second, VAX to Sun (old) and at 10 Mbit/s (new)",
            Network::Loopback => "Tables 3 and 4 by loopback. Calls per second",
        };
        let mut table = Table::new(caption);
        for name in ["Courier", "PCourier", "corrected PCourier"] {
            if old(network).is_some() {
                table.group(format!("{name}, 1983"), &["ms/call", "call/s"]);
            }
            table.group("now", &["ms/call", "call/s"]);
        }
        for test in TESTS {
            let new = [
                figures.elapsed(network, Way::Courier, test),
                figures.elapsed(network, Way::Pcourier, test),
                figures.corrected(network, Way::Pcourier, test),
            ];
            let mut line = heads(test).to_vec();
            for (column, new) in new.into_iter().enumerate() {
                line.extend(old(network).into_iter().flat_map(|place| {
                    let rate = TABLES_3_4[place][test.row()][column];
                    cells(rate, printed, |rate| rate.to_string())
                }));
                line.extend(cells(new.map(rate), number, |rate| format!("{rate:.0}")));
            }
            table.line(line);
        }
        table.print();
    }
}

fn rate(elapsed: Summary) -> (f64, f64) {
    (elapsed.mean / PAPER_CALLS * 1e3, PAPER_CALLS / elapsed.mean)
}

fn cells(rate: Rate, milliseconds: fn(f64) -> String, calls: fn(f64) -> String) -> [String; 2] {
    rate.map_or([NONE; 2].map(str::to_owned), |(each, rate)| [milliseconds(each), calls(rate)])
}
