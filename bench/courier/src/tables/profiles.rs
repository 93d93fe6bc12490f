//! Tables 5 to 8: where the client's processor time goes.

use farcall_bench_method::paper::{Entry, Table, Whose, number};

use super::{begin, heads, networks, old, or_blank, or_missing, printed};
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

pub fn tables(figures: &Figures) -> Vec<Table> {
    KINDS
        .iter()
        .flat_map(|kind| networks(figures).map(move |network| table(figures, kind, network)))
        .collect()
}

fn table(figures: &Figures, kind: &Kind, network: Network) -> Table {
    let Kind { name, way, numbers, paper, columns } = kind;
    let about = match old(network) {
        Some(place) => format!("Table {}", numbers[place]),
        None => format!("Tables {} and {} by loopback", numbers[0], numbers[1]),
    };
    let caption = format!("Execution profile of {name}: processor seconds of the client for 2000 calls");
    let mut table = begin(about, caption);
    match network {
        Network::Three => table = table.with("ucbkim to ucbarpa, 1983", Whose::Paper, columns),
        Network::Ten => table = table.with("ucbkim to ucbchip, 1983", Whose::Paper, columns),
        Network::Loopback => {}
    }
    table = table.with(network.name(), Whose::Now, columns);
    if old(network).is_some() {
        table = table.with("1983 ÷ now", Whose::Ratio, &["total"]);
    }
    for test in TESTS {
        let mut line = heads(test).to_vec();
        let before = old(network).and_then(|place| paper[place][test.row()]);
        if old(network).is_some() {
            line.extend(before.map_or([const { None }; 4], old_cells).map(or_blank));
        }
        let now = figures.times(network, *way, test);
        line.extend(now.map_or([const { None }; 4], new_cells).map(or_missing));
        if old(network).is_some() {
            line.push(Entry::ratio(before.map(|before| before.total), now.map(|now| now.total)));
        }
        table.line(line);
    }
    table
}

fn old_cells(profile: Profile) -> [Option<Entry>; 4] {
    let part = |(seconds, percent): (f64, f64)| {
        Some(Entry { text: format!("{} ({percent:.1}%)", printed(seconds).text), ..Entry::figure(seconds) })
    };
    [Some(printed(profile.total)), part(profile.write), part(profile.read), profile.swap.and_then(part)]
}

fn new_cells(times: Times) -> [Option<Entry>; 4] {
    let part = |seconds: f64| {
        let percent = seconds / times.total * 100.0;
        Some(Entry { text: format!("{} ({percent:.1}%)", number(seconds)), ..Entry::figure(seconds) })
    };
    [Some(Entry::figure(times.total)), part(times.write), part(times.read), part(times.codec)]
}
