//! Tables 1 and 2: elapsed time.

use farcall_bench_method::paper::{Entry, Table, Whose};

use super::{begin, heads, networks, old, or_blank, or_missing, printed};
use crate::figures::{Figures, Summary};
use crate::interface::TESTS;
use crate::network::Network;
use crate::paper::{Elapsed, TABLE_1, TABLE_2, TABLE_2_LOST};
use crate::ways::Way;

/// Where the paper's networks lead.
const ENDS: [&str; 2] = ["kim to arpa, 1983", "kim to rob, 1983"];

/// A table of the paper.
struct Kind {
    number: &'static str,
    name: &'static str,
    way: Way,
    paper: &'static [Elapsed; 2],
    lost: Option<&'static [[Option<u64>; 8]; 2]>,
}

const KINDS: [Kind; 2] = [
    Kind { number: "Table 1", name: "Courier", way: Way::Courier, paper: &TABLE_1, lost: None },
    Kind {
        number: "Table 2",
        name: "PCourier",
        way: Way::Pcourier,
        paper: &TABLE_2,
        lost: Some(&TABLE_2_LOST),
    },
];

pub fn tables(figures: &Figures) -> Vec<Table> {
    KINDS
        .iter()
        .flat_map(|kind| networks(figures).map(move |network| table(figures, kind, network)))
        .collect()
}

fn table(figures: &Figures, kind: &Kind, network: Network) -> Table {
    let (name, place) = (network.name(), old(network));
    let caption = format!("{}, {name}: elapsed seconds for 2000 calls ± standard deviation", kind.name);
    let mut table = begin(kind.number, caption);
    let columns = match kind.lost {
        Some(_) => &["min.", "max.", "avg.", "lost"][..],
        None => &["min.", "max.", "avg."],
    };
    if let Some(place) = place {
        table = table.with(ENDS[place], Whose::Paper, columns);
    }
    table = table.with(name, Whose::Now, columns).with("corrected", Whose::Now, &["min.", "max.", "avg."]);
    if place.is_some() {
        table = table.with("1983 ÷ now", Whose::Ratio, &["avg."]);
    }
    for test in TESTS {
        let mut line = heads(test).to_vec();
        let before = place.and_then(|place| kind.paper[place][test.row()]);
        if let Some(place) = place {
            line.extend(summary(before, printed).map(or_blank));
            line.extend(kind.lost.map(|lost| or_blank(lost[place][test.row()].map(count))));
        }
        let now = figures.elapsed(network, kind.way, test);
        line.extend(summary(now, Entry::figure).map(or_missing));
        line.extend(kind.lost.map(|_| or_missing(figures.lost(network, kind.way, test).map(count))));
        line.extend(summary(figures.corrected(network, kind.way, test), Entry::figure).map(or_missing));
        if place.is_some() {
            line.push(Entry::ratio(before.map(|before| before.mean), now.map(|now| now.mean)));
        }
        table.line(line);
    }
    table
}

fn count(lost: u64) -> Entry {
    Entry { text: lost.to_string(), ..Entry::figure(lost as f64) }
}

/// Returns the cells of a summary.
fn summary(summary: Option<Summary>, figure: fn(f64) -> Entry) -> [Option<Entry>; 3] {
    let Some(Summary { min, max, mean, deviation }) = summary else { return [const { None }; 3] };
    let deviating = figure(mean).deviating(deviation);
    [
        figure(min),
        figure(max),
        Entry { text: format!("{} ± {}", figure(mean).text, figure(deviation).text), ..deviating },
    ]
    .map(Some)
}
