//! The paper's tables 1 to 5 and the percentages of its conclusions, old figures beside new ones.
//!
//! ```text
//! spread    table 1                 local    table 2      calls     table 3
//! profiles  tables 4a, 4b and 5     summary  section 4
//! ```

mod calls;
mod local;
mod profiles;
mod spread;
mod summary;

use farcall_bench_method::paper::{Entry, Item};

use crate::figures::{Figures, Summary};

/// Returns all tables with the conditions under which they were measured.
pub fn items(figures: &Figures, conditions: &[String]) -> Vec<Item> {
    let mut items = spread::items(figures);
    items.push(local::item(figures));
    items.extend(calls::items(figures));
    items.extend(profiles::items(figures));
    items.push(summary::item(figures));
    for item in &mut items {
        item.about_mut().conditions = conditions.to_vec();
    }
    items
}

/// Prints all tables.
pub fn print(items: &[Item]) {
    println!("Old figures are those of Elliott and Nutt 1989: Sun 3/50s on an Ethernet.\n");
    for item in items {
        if let Item::Table(table) = item {
            println!("{table}");
        }
    }
}

/// Returns a cell that was measured, or one that says why it was not.
fn or_missing(figure: Result<f64, String>) -> Entry {
    figure.map_or_else(Entry::missing, Entry::figure)
}

/// Returns the cell of a median, with the standard deviation of the runs.
fn summary_cell(summary: Result<Summary, String>) -> Entry {
    summary.map_or_else(Entry::missing, |summary| Entry::figure(summary.median).deviating(summary.deviation))
}
