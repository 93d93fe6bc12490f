//! Tables 1 and 2: elapsed time.

use super::{NONE, Table, heads, networks, number, old, or_none, printed};
use crate::figures::{Figures, Summary};
use crate::interface::TESTS;
use crate::paper::{Elapsed, TABLE_1, TABLE_2, TABLE_2_LOST};
use crate::ways::Way;

/// Where the paper's networks lead.
const ENDS: [&str; 2] = ["kim to arpa, 1983", "kim to rob, 1983"];

pub fn print(figures: &Figures) {
    table(figures, "Table 1. Courier", Way::Courier, &TABLE_1, None);
    table(figures, "Table 2. PCourier", Way::Pcourier, &TABLE_2, Some(&TABLE_2_LOST));
}

fn table(
    figures: &Figures,
    caption: &str,
    way: Way,
    paper: &[Elapsed; 2],
    lost: Option<&[[Option<u64>; 8]; 2]>,
) {
    for network in networks(figures) {
        let name = network.name();
        let caption = format!("{caption}, {name}: elapsed seconds for 2000 calls ± standard deviation");
        let mut table = Table::new(caption);
        let place = old(network);
        let columns = match lost {
            Some(_) => &["min.", "max.", "avg.", "lost"][..],
            None => &["min.", "max.", "avg."],
        };
        if let Some(place) = place {
            table.group(ENDS[place], columns);
        }
        table.group(name, columns);
        table.group("corrected", &["min.", "max.", "avg."]);
        for test in TESTS {
            let mut line = heads(test).to_vec();
            if let Some(place) = place {
                line.extend(summary(paper[place][test.row()], printed));
                line.extend(lost.map(|lost| or_none(lost[place][test.row()].map(|lost| lost.to_string()))));
            }
            line.extend(summary(figures.elapsed(network, way, test), number));
            line.extend(lost.map(|_| or_none(figures.lost(network, way, test).map(|lost| lost.to_string()))));
            line.extend(summary(figures.corrected(network, way, test), number));
            table.line(line);
        }
        table.print();
    }
}

/// Returns the cells of a summary.
fn summary(summary: Option<Summary>, number: fn(f64) -> String) -> [String; 3] {
    match summary {
        Some(Summary { min, max, mean, deviation }) => {
            [number(min), number(max), format!("{} ± {}", number(mean), number(deviation))]
        }
        None => [NONE; 3].map(str::to_owned),
    }
}
