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

use crate::figures::Figures;
use crate::interface::Test;
use crate::network::Network;

/// What stands where the paper or the measurement has no figure.
const NONE: &str = "-";

/// Prints all tables.
pub fn print(figures: &Figures) {
    println!(
        "Old figures are those of Larus 1983: VAX-11/780s under 4.1c BSD, kim to arpa by an Ethernet of 3 \
         Mbit/s, kim to\nrob or chip (Suns) by one of 10 Mbit/s. New figures are for 2000 calls, scaled from \
         {}. \"corrected\" is without\nthe waits for lost packets and without the loop.\n",
        figures.calls
    );
    elapsed::print(figures);
    rates::print(figures);
    profiles::print(figures);
    ratios::print(figures);
    further::print(figures);
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
fn heads(test: Test) -> [String; 2] {
    [test.bytes().to_string(), if test.has_result { "Yes" } else { "No" }.to_owned()]
}

/// Returns a number with about four digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        to if to < 0.001 => format!("{value:.6}"),
        to if to < 0.1 => format!("{value:.5}"),
        to if to < 1.0 => format!("{value:.4}"),
        to if to < 10.0 => format!("{value:.3}"),
        to if to < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// Returns an old figure, with the digits that the paper has: one after the point at least.
fn printed(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.into())
}

/// A table: a caption, groups of columns, and lines.
struct Table {
    caption: String,
    /// The groups, each with its columns.
    groups: Vec<(String, Vec<&'static str>)>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Begins a table of the tests.
    fn new(caption: impl Into<String>) -> Table {
        let groups = vec![(String::new(), vec!["bytes", "result?"])];
        Table { caption: caption.into(), groups, lines: Vec::new() }
    }

    /// Adds columns.
    fn group(&mut self, name: impl Into<String>, columns: &[&'static str]) {
        self.groups.push((name.into(), columns.to_vec()));
    }

    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    fn print(&self) {
        println!("{}", self.text());
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.groups.iter().flat_map(|(_, columns)| columns.iter().copied()).collect();
        let cell = |line: &Vec<String>, column: usize| line.get(column).cloned().unwrap_or_default();
        let mut widths: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = self.lines.iter().map(|line| cell(line, column).chars().count());
                cells.chain([names[column].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        // A group is at least as wide as its name.
        let mut first = 0;
        for (name, columns) in &self.groups {
            let last = first + columns.len();
            let width = widths[first..last].iter().sum::<usize>() + columns.len().saturating_sub(1);
            if let Some(widest) = widths[first..last].first_mut() {
                *widest += name.chars().count().saturating_sub(width);
            }
            first = last;
        }
        let line = |text: &dyn Fn(usize) -> String| {
            let mut column = 0;
            let groups = self.groups.iter().map(|(_, columns)| {
                let range = column..column + columns.len();
                column = range.end;
                range.map(|at| format!("{:>1$}", text(at), widths[at])).collect::<Vec<_>>().join(" ")
            });
            groups.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
        };
        let mut column = 0;
        let heads = self.groups.iter().map(|(name, columns)| {
            let width = widths[column..column + columns.len()].iter().sum::<usize>() + columns.len() - 1;
            column += columns.len();
            format!("{name:^width$}")
        });
        let heads = heads.collect::<Vec<_>>().join(" | ").trim_end().to_owned();
        let mut lines = vec![self.caption.clone(), heads, line(&|at| names[at].to_owned())];
        lines.extend(self.lines.iter().map(|cells| line(&|at| cell(cells, at))));
        lines.push(String::new());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new("A table");
        table.group("a long name", &["min.", "max."]);
        table.line(["400", "Yes", "1.25", "12"].map(str::to_owned));
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "              | a long name");
        assert_eq!(lines[2], "bytes result? |   min. max.");
        assert_eq!(lines[3], "  400     Yes |   1.25   12");
    }

    #[test]
    fn numbers_have_about_four_digits() {
        let values = [0.0, 0.000_012, 0.012_34, 0.5, 1.5, 12.345, 376.72];
        let texts = ["0", "0.000012", "0.01234", "0.5000", "1.500", "12.35", "376.7"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn old_figures_are_as_the_paper_prints_them() {
        assert_eq!([193.0, 0.84, 8.57].map(printed), ["193.0", "0.84", "8.57"]);
    }
}
