//! Tables 5 to 8: where the client's processor time goes.

use super::{NONE, Table, heads, networks, number, old, printed};
use crate::figures::{Figures, Times};
use crate::interface::TESTS;
use crate::network::Network;
use crate::paper::{Profile, TABLES_5_6, TABLES_7_8};
use crate::ways::Way;

/// A kind of call whose profile the paper has.
struct Kind {
    name: &'static str,
    way: Way,
    /// The numbers of its tables.
    numbers: [u8; 2],
    paper: &'static [[Option<Profile>; 8]; 2],
    /// What its columns are called.
    columns: [&'static str; 4],
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "Courier",
        way: Way::Courier,
        numbers: [5, 6],
        paper: &TABLES_5_6,
        columns: ["total", "write", "read", "swapping bytes"],
    },
    Kind {
        name: "PCourier",
        way: Way::Pcourier,
        numbers: [7, 8],
        paper: &TABLES_7_8,
        columns: ["total", "sendto", "recv + select", "swapping bytes"],
    },
];

pub fn print(figures: &Figures) {
    for kind in &KINDS {
        networks(figures).for_each(|network| table(figures, kind, network));
    }
}

fn table(figures: &Figures, kind: &Kind, network: Network) {
    let Kind { name, way, numbers, paper, columns } = kind;
    let caption = match old(network) {
        Some(place) => format!("Table {}. Execution profile of {name}", numbers[place]),
        None => format!("Tables {} and {} by loopback. Execution profile of {name}", numbers[0], numbers[1]),
    };
    let mut table = Table::new(format!("{caption}: processor seconds of the client for 2000 calls"));
    match network {
        Network::Three => table.group("ucbkim to ucbarpa, 1983", columns),
        Network::Ten => table.group("ucbkim to ucbchip, 1983", columns),
        Network::Loopback => {}
    }
    table.group(network.name(), columns);
    for test in TESTS {
        let mut line = heads(test).to_vec();
        if let Some(place) = old(network) {
            line.extend(paper[place][test.row()].map_or(none(), old_cells));
        }
        line.extend(figures.times(network, *way, test).map_or(none(), new_cells));
        table.line(line);
    }
    table.print();
}

fn none() -> [String; 4] {
    [NONE; 4].map(str::to_owned)
}

fn old_cells(profile: Profile) -> [String; 4] {
    let part = |(seconds, percent): (f64, f64)| format!("{} ({percent:.1}%)", printed(seconds));
    let swap = profile.swap.map_or(NONE.into(), part);
    [printed(profile.total), part(profile.write), part(profile.read), swap]
}

fn new_cells(times: Times) -> [String; 4] {
    let part = |seconds: f64| format!("{} ({:.1}%)", number(seconds), seconds / times.total * 100.0);
    [number(times.total), part(times.write), part(times.read), part(times.codec)]
}
