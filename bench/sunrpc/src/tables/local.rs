//! Table 2: local calls.

use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};

use crate::figures::Figures;
use crate::grid::ITERATIONS;
use crate::local::Body;
use crate::paper::TABLE_2;
use crate::ways::Language;

const COLUMNS: [&str; 4] = ["empty loop", "no arg", "2 byte", "4 byte"];

pub fn item(figures: &Figures) -> Item {
    let about = About::new("Table 2", "Function calls: microseconds of processor time for an iteration");
    let mut table = Table::new(about, &["iterations"])
        .with("C, 1989", Whose::Paper, &COLUMNS)
        .with("C, now", Whose::Now, &COLUMNS)
        .with("Rust, now", Whose::Now, &COLUMNS)
        .with("1989 ÷ now, C", Whose::Ratio, &COLUMNS);
    for (iterations, old) in ITERATIONS.into_iter().zip(TABLE_2) {
        let now = |language| Body::ALL.map(|body| figures.local(language, body, iterations));
        let c = now(Language::C);
        let ratios = old
            .iter()
            .zip(&c)
            .map(|(old, now)| Entry::ratio(Some(*old), now.as_ref().ok().map(|now| now.median)));
        let ratios: Vec<Entry> = ratios.collect();
        let mut line = vec![Entry::name(iterations.to_string())];
        line.extend(old.map(Entry::printed));
        line.extend(c.into_iter().chain(now(Language::Rust)).map(super::summary_cell));
        line.extend(ratios);
        table.line(line);
    }
    Item::Table(table)
}
