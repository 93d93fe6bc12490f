//! The paper's tables 1 to 11, old figures beside new ones, and a table of the ways that the paper did not
//! have.
//!
//! ```text
//! elapsed  tables 1 and 2       rates     tables 3 and 4      profiles  tables 5 to 8
//! ratios   tables 9 to 11       further   local calls, farcall's packets, the XSIS mode, the bounds
//! ```

mod elapsed;
mod further;
mod profiles;
mod rates;
mod ratios;

use farcall_bench_method::paper::{About, Entry, Item, Table};

use crate::figures::Figures;
use crate::interface::Test;
use crate::network::Network;

/// Why the paper has no figure.
const NOT_IN_THE_PAPER: &str = "the paper has no figure";
/// Why there is no new figure.
const NOT_MEASURED: &str =
    "one packet carries no call of this length, as in the paper, or this way was not run";

/// Returns all tables.
pub fn all(figures: &Figures) -> Vec<Table> {
    let mut tables = elapsed::tables(figures);
    tables.extend(rates::tables(figures));
    tables.extend(profiles::tables(figures));
    tables.extend(ratios::tables(figures));
    tables.extend(further::tables(figures));
    tables
}

/// Returns all tables with the conditions under which they were measured.
pub fn items(figures: &Figures, conditions: &[String]) -> Vec<Item> {
    let conditions = conditions.to_vec();
    all(figures)
        .into_iter()
        .map(|mut table| {
            table.about.conditions.clone_from(&conditions);
            Item::Table(table)
        })
        .collect()
}

/// Prints all tables.
pub fn print(figures: &Figures) {
    println!(
        "Old figures are those of Larus 1983: VAX-11/780s under 4.1c BSD, kim to arpa by an Ethernet of 3 \
         Mbit/s, kim to\nrob or chip (Suns) by one of 10 Mbit/s. New figures are for 2000 calls, scaled from \
         {}. \"corrected\" is without\nthe waits for lost packets and without the loop.\n",
        figures.calls
    );
    all(figures).iter().for_each(|table| println!("{table}"));
}

/// Begins a table of the tests.
fn begin(number: impl Into<String>, caption: impl Into<String>) -> Table {
    let about = About { number: number.into(), caption: caption.into(), ..About::default() };
    Table::new(about, &["bytes", "result?"])
}

/// Returns the place of a network in the paper's tables, which have two.
fn old(network: Network) -> Option<usize> {
    match network {
        Network::Three => Some(0),
        Network::Ten => Some(1),
        Network::Loopback => None,
    }
}

/// Returns the networks on which something was measured.
fn networks(figures: &Figures) -> impl Iterator<Item = Network> {
    Network::ALL.into_iter().filter(|network| figures.has(*network))
}

/// Returns the two first cells of a test's line.
fn heads(test: Test) -> [Entry; 2] {
    [Entry::name(test.bytes().to_string()), Entry::name(if test.has_result { "Yes" } else { "No" })]
}

/// Returns an old figure, with the digits that the paper has: one after the point at least.
fn printed(value: f64) -> Entry {
    let text = if value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() };
    Entry { text, ..Entry::figure(value) }
}

/// Returns the paper's cell, which may be empty.
fn or_blank(cell: Option<Entry>) -> Entry {
    cell.unwrap_or_else(|| Entry::missing(NOT_IN_THE_PAPER))
}

/// Returns a cell that was measured, unless it could not be.
fn or_missing(cell: Option<Entry>) -> Entry {
    cell.unwrap_or_else(|| Entry::missing(NOT_MEASURED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_figures_are_as_the_paper_prints_them() {
        assert_eq!([193.0, 0.84, 8.57].map(|value| printed(value).text), ["193.0", "0.84", "8.57"]);
    }
}
