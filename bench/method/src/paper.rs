//! Tables and figures of a paper that are measured again: the paper's figures beside the new ones.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::chart::{Bars, Panel};

/// A table or a figure of a paper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Item {
    /// A table.
    Table(Table),
    /// Curves, a picture for each set.
    Curves(Curves),
    /// Bars, a picture for each set.
    Bars(BarChart),
}

/// What stands above and below a table or a figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The number by which the paper calls it: `Table 1a`, `Figure 8`.
    pub number: String,
    /// What it shows.
    pub caption: String,
    /// What the authors did that is done otherwise here, and why.
    #[serde(default)]
    pub changed: String,
    /// What the authors found, and whether that still holds.
    #[serde(default)]
    pub finding: String,
    /// Under which conditions it was measured.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Why what was measured does not count.
    #[serde(default)]
    pub void: Vec<String>,
}

/// A table: groups of columns, and lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// What stands around it.
    pub about: About,
    /// The groups of columns. The first columns name the lines.
    pub groups: Vec<Group>,
    /// The lines. Each has a cell for each column.
    pub lines: Vec<Vec<Entry>>,
}

/// Whose figures a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// The names of the lines.
    Head,
    /// The paper's figures.
    Paper,
    /// The figures that were measured now.
    Now,
    /// The paper's figure divided by the one measured now.
    Ratio,
}

/// Columns that belong together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// What stands above them.
    pub name: String,
    /// Whose figures they have.
    pub whose: Whose,
    /// The name of each, with its unit.
    pub columns: Vec<String>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What is shown.
    pub text: String,
    /// The figure, unless it is a name or missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Its standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// A figure of curves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curves {
    /// What stands around it.
    pub about: About,
    /// The names of the axes, with their units.
    pub axes: (String, String),
    /// The curves; each set has axes of its own.
    pub panels: Vec<Panel>,
}

/// A figure of bars.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BarChart {
    /// What stands around it.
    pub about: About,
    /// The bars; each set has axes of its own.
    pub panels: Vec<Bars>,
}

impl Item {
    /// Returns what stands around it.
    pub fn about(&self) -> &About {
        match self {
            Item::Table(table) => &table.about,
            Item::Curves(curves) => &curves.about,
            Item::Bars(bars) => &bars.about,
        }
    }

    /// Returns what stands around it, to be changed.
    pub fn about_mut(&mut self) -> &mut About {
        match self {
            Item::Table(table) => &mut table.about,
            Item::Curves(curves) => &mut curves.about,
            Item::Bars(bars) => &mut bars.about,
        }
    }
}

impl About {
    /// Names a table or a figure.
    pub fn new(number: &str, caption: impl Into<String>) -> About {
        About { number: number.to_owned(), caption: caption.into(), ..About::default() }
    }
}

impl Table {
    /// Begins a table whose lines have names of these kinds.
    pub fn new(about: About, heads: &[&str]) -> Table {
        Table { about, ..Table::default() }.with("", Whose::Head, heads)
    }

    /// Adds columns.
    #[must_use]
    pub fn with(mut self, name: &str, whose: Whose, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        self.groups.push(Group { name: name.to_owned(), whose, columns });
        self
    }

    /// Adds a line.
    pub fn line(&mut self, cells: impl IntoIterator<Item = Entry>) {
        self.lines.push(cells.into_iter().collect());
    }

    /// Returns how many cells have neither a figure nor a reason.
    pub fn unexplained(&self) -> usize {
        let whose: Vec<Whose> =
            self.groups.iter().flat_map(|group| group.columns.iter().map(|_| group.whose)).collect();
        let cells = self.lines.iter().flat_map(|line| line.iter().zip(&whose));
        cells
            .filter(|(cell, whose)| **whose == Whose::Now && cell.value.is_none() && cell.missing.is_none())
            .count()
    }
}

impl fmt::Display for Table {
    /// Writes the table for a terminal: its caption, its columns and its lines, aligned.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.groups.iter().flat_map(|group| &group.columns).map(String::as_str).collect();
        let cell =
            |line: &[Entry], column: usize| line.get(column).map_or(String::new(), |cell| cell.text.clone());
        let mut widths: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = self.lines.iter().map(|line| cell(line, column).chars().count());
                cells.chain([names[column].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        // A group is at least as wide as its name.
        let mut first = 0;
        for Group { name, columns, .. } in &self.groups {
            let last = first + columns.len();
            let width = widths[first..last].iter().sum::<usize>() + columns.len().saturating_sub(1);
            if let Some(widest) = widths[first..last].first_mut() {
                *widest += name.chars().count().saturating_sub(width);
            }
            first = last;
        }
        let line = |text: &dyn Fn(usize) -> String| {
            let mut column = 0;
            let groups = self.groups.iter().map(|group| {
                let range = column..column + group.columns.len();
                column = range.end;
                range.map(|at| format!("{:>1$}", text(at), widths[at])).collect::<Vec<_>>().join(" ")
            });
            groups.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
        };
        let mut column = 0;
        let heads = self.groups.iter().map(|Group { name, columns, .. }| {
            let width = widths[column..column + columns.len()].iter().sum::<usize>() + columns.len() - 1;
            column += columns.len();
            format!("{name:^width$}")
        });
        let heads = heads.collect::<Vec<_>>().join(" | ").trim_end().to_owned();
        writeln!(f, "{}. {}", self.about.number, self.about.caption)?;
        writeln!(f, "{heads}\n{}", line(&|at| names[at].to_owned()))?;
        self.lines.iter().try_for_each(|cells| writeln!(f, "{}", line(&|at| cell(cells, at))))
    }
}

impl Entry {
    /// Returns a name.
    pub fn name(text: impl Into<String>) -> Entry {
        Entry { text: text.into(), ..Entry::default() }
    }

    /// Returns a figure with about four digits.
    pub fn figure(value: f64) -> Entry {
        Entry { text: number(value), value: Some(value), ..Entry::default() }
    }

    /// Returns a figure as the paper prints it.
    pub fn printed(value: f64) -> Entry {
        Entry { text: value.to_string(), value: Some(value), ..Entry::default() }
    }

    /// Returns the figure with its standard deviation.
    #[must_use]
    pub fn deviating(self, by: f64) -> Entry {
        Entry { text: format!("{} ± {}", self.text, number(by)), deviation: Some(by), ..self }
    }

    /// Returns the figure with its standard deviation as the paper prints it, with two digits after the
    /// point.
    #[must_use]
    pub fn deviating_as_printed(self, by: f64) -> Entry {
        Entry { text: format!("{} ± {by:.2}", self.text), deviation: Some(by), ..self }
    }

    /// Returns a cell without a figure, and why.
    pub fn missing(why: impl Into<String>) -> Entry {
        Entry { text: "–".into(), missing: Some(why.into()), ..Entry::default() }
    }

    /// Returns the ratio of two figures, or a cell without one.
    pub fn ratio(old: Option<f64>, new: Option<f64>) -> Entry {
        match (old, new) {
            (Some(old), Some(new)) if new != 0.0 => Entry::figure(old / new),
            _ => Entry::missing("one of the two figures is missing"),
        }
    }
}

/// Writes tables and figures to a file, as JSON.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, items: Vec<Item>) -> Result<()> {
    let text = serde_json::to_string_pretty(&items)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a number with about four digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        to if to < 0.001 => format!("{value:.6}"),
        to if to < 0.1 => format!("{value:.5}"),
        to if to < 1.0 => format!("{value:.4}"),
        to if to < 10.0 => format!("{value:.3}"),
        to if to < 100.0 => format!("{value:.2}"),
        to if to < 10_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(About::new("Table 1", "A table"), &["bytes", "result?"]);
        table = table.with("a long name", Whose::Now, &["min.", "max."]);
        table.line(["400", "Yes"].map(Entry::name).into_iter().chain([1.25, 12.0].map(Entry::figure)));
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "              | a long name");
        assert_eq!(lines[2], "bytes result? |   min.  max.");
        assert_eq!(lines[3], "  400     Yes |  1.250 12.00");
    }

    #[test]
    fn numbers_have_about_four_digits() {
        let values = [0.0, 0.000_012, 0.012_34, 0.5, 1.5, 12.345, 376.72];
        let texts = ["0", "0.000012", "0.01234", "0.5000", "1.500", "12.35", "376.7"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn what_has_no_figure_says_why() {
        let mut table =
            Table::new(About::new("Table 1", "A table"), &["bytes"]).with("", Whose::Now, &["ms"]);
        table.line([Entry::name("1"), Entry::missing("the hardware is gone")]);
        assert_eq!(table.unexplained(), 0);
        table.line([Entry::name("2"), Entry::default()]);
        assert_eq!(table.unexplained(), 1);
    }
}
