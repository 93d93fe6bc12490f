//! Bars: what figures of a run must be at most or at least, so that a run can fail.
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use farcall_bench_method::Row;

/// The peer that the bars are about.
const JUDGED: &str = "farcall";

/// A line of a file of bars. It is about each row that it matches.
#[derive(Debug, PartialEq)]
struct Bar {
    /// The operation, or the beginning of it before a `*`.
    operation: String,
    /// The part of the transfer, or `*`.
    part: String,
    /// The round trips in milliseconds and the losses in percent, or `*`.
    round_trips: Option<Vec<f64>>,
    losses: Option<Vec<f64>>,
    figure: Figure,
    /// Whether the figure must not exceed the limit. Otherwise it must not be below it.
    at_most: bool,
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    /// The end of the ratio's interval that is the less favourable.
    Ratio,
    Share,
    Used,
    Dropped,
}

/// Reads a file of bars. Empty lines and what follows a `#` say nothing.
pub fn read(path: &Path) -> Result<Bars> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().map_err(anyhow::Error::msg).with_context(|| format!("{}", path.display()))
}

/// The bars of a run.
#[derive(Debug, PartialEq)]
pub struct Bars(Vec<Bar>);

impl FromStr for Bars {
    type Err = String;

    fn from_str(text: &str) -> Result<Bars, String> {
        let lines = text.lines().enumerate();
        let lines = lines.map(|(n, line)| (n + 1, line.split('#').next().unwrap_or_default().trim()));
        let bars = lines.filter(|(_, line)| !line.is_empty());
        bars.map(|(n, line)| line.parse().map_err(|why| format!("line {n}: {why}")))
            .collect::<Result<_, _>>()
            .map(Bars)
    }
}

impl FromStr for Bar {
    type Err = String;

    fn from_str(line: &str) -> Result<Bar, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [operation, part, round_trips, losses, figure, sign, limit] = words[..] else {
            return Err(format!("expected OPERATION PART RTTS LOSSES FIGURE SIGN LIMIT, not {line:?}"));
        };
        let numbers = |text: &str| match text {
            "*" => Ok(None),
            text => text.split(',').map(number).collect::<Result<Vec<f64>, _>>().map(Some),
        };
        Ok(Bar {
            // Operations have spaces, which separate words here.
            operation: operation.replace('_', " "),
            part: part.into(),
            round_trips: numbers(round_trips)?,
            losses: numbers(losses)?,
            figure: match figure {
                "ratio" => Figure::Ratio,
                "share" => Figure::Share,
                "used" => Figure::Used,
                "dropped" => Figure::Dropped,
                other => return Err(format!("ratio, share, used or dropped, not {other:?}")),
            },
            at_most: match sign {
                "<=" => true,
                ">=" => false,
                other => return Err(format!("<= or >=, not {other:?}")),
            },
            limit: number(limit)?,
        })
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

impl Bars {
    /// Returns what misses a bar. A row that has not ended in time, or has no figure, misses all of its bars.
    pub fn missed(&self, rows: &[Row]) -> Vec<String> {
        let judged = rows.iter().filter(|row| row.peer == JUDGED);
        judged.flat_map(|row| self.0.iter().filter_map(|bar| bar.missed(row))).collect()
    }
}

impl Bar {
    fn matches(&self, row: &Row) -> bool {
        let operation = row.operation.as_deref().unwrap_or_default();
        let named = match self.operation.strip_suffix('*') {
            Some(beginning) => operation.starts_with(beginning),
            None => operation == self.operation,
        };
        let part = self.part == "*" || row.part.as_deref() == Some(&*self.part);
        let among = |list: &Option<Vec<f64>>, value: Option<f64>| match list {
            None => true,
            Some(list) => value.is_some_and(|value| list.iter().any(|one| (one - value).abs() < 1e-9)),
        };
        named && part && among(&self.round_trips, row.round_trip_ms) && among(&self.losses, row.loss_percent)
    }

    fn missed(&self, row: &Row) -> Option<String> {
        if !self.matches(row) {
            return None;
        }
        let figure = match self.figure {
            Figure::Ratio if self.at_most => row.ratio_high,
            Figure::Ratio => row.ratio_low,
            Figure::Share => row.share,
            Figure::Used => row.link_used,
            Figure::Dropped => row.dropped_percent,
        };
        let holds = |figure: f64| if self.at_most { figure <= self.limit } else { figure >= self.limit };
        if row.unfinished.is_none() && figure.is_some_and(holds) {
            return None;
        }
        let sign = if self.at_most { "<=" } else { ">=" };
        let is = match (row.unfinished, figure) {
            (Some(_), _) => "not finished in time".into(),
            (None, Some(figure)) => format!("{figure:.3}"),
            (None, None) => "not measured".into(),
        };
        Some(format!(
            "{} {}, {} ms, {} %: {:?} {is}, not {sign} {}",
            row.operation.as_deref().unwrap_or_default(),
            row.part.as_deref().unwrap_or_default(),
            row.round_trip_ms.unwrap_or_default(),
            row.loss_percent.unwrap_or_default(),
            self.figure,
            self.limit
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64) -> Row {
        Row {
            peer: JUDGED.into(),
            operation: Some("result-1m".into()),
            part: Some("warm".into()),
            round_trip_ms: Some(80.0),
            loss_percent: Some(0.0),
            ratio_low: Some(ratio - 0.1),
            ratio_high: Some(ratio + 0.1),
            ..Row::default()
        }
    }

    fn missed(bars: &str, row: Row) -> usize {
        bars.parse::<Bars>().unwrap().missed(&[row]).len()
    }

    #[test]
    fn the_less_favourable_end_of_the_interval_decides() {
        let bars = "# what\nresult-* warm 20,80 0 ratio <= 1.1 # TCP\n\n";
        assert_eq!(missed(bars, row(1.0)), 0);
        assert_eq!(missed(bars, row(1.05)), 1);
        assert_eq!(missed("result-1m * * * ratio >= 0.5", row(0.55)), 1);
    }

    #[test]
    fn a_bar_is_about_the_rows_that_it_names() {
        for other in
            ["bulk-* warm 80 0", "result-1m first 80 0", "result-1m warm 20 0", "result-1m warm 80 1"]
        {
            assert_eq!(missed(&format!("{other} ratio <= 0.1"), row(1.0)), 0, "{other}");
        }
        let of_tcp = Row { peer: "tcp-cubic".into(), ..row(1.0) };
        assert_eq!(missed("* * * * ratio <= 0.1", of_tcp), 0);
    }

    #[test]
    fn what_was_not_measured_or_has_not_ended_misses_its_bar() {
        assert_eq!(missed("* * * * share >= 0.1", row(1.0)), 1);
        assert_eq!(missed("* * * * ratio <= 9", Row { unfinished: Some(1), ..row(1.0) }), 1);
    }

    #[test]
    fn a_line_that_says_something_else_is_refused() {
        for line in
            ["a b", "* * x * ratio <= 1", "* * * * ratio < 1", "* * * * speed <= 1", "* * * * ratio <= x"]
        {
            let why = format!("\n{line}").parse::<Bars>().unwrap_err();
            assert!(why.starts_with("line 2: "), "{why}");
        }
    }
}
