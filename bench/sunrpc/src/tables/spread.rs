//! Table 1: the same run again and again.

use farcall_bench_method::chart::Bars;
use farcall_bench_method::paper::{About, BarChart, Entry, Item, Table, Whose, number};

use crate::figures::{Clock, Figures, Summary};
use crate::paper::{TABLE_1, TABLE_1_AVERAGE};
use crate::ways::Way;

/// The implementations, and their names.
const WAYS: [(Way, &str); 2] = [(Way::Tirpc, "now, libtirpc"), (Way::Farcall, "now, farcall-onc")];

/// A figure of a summary.
type Figure = fn(&Summary) -> f64;

/// The width of a group of bars, in per cent of the average.
const STEP: f64 = 2.0;
/// How many groups there are on each side of the average.
const STEPS: i32 = 5;

pub fn items(figures: &Figures) -> Vec<Item> {
    vec![Item::Table(table(figures)), Item::Bars(bars(figures))]
}

fn table(figures: &Figures) -> Table {
    let about = About::new(
        "Table 1",
        "How often a run of 1,000 local calls without an argument by Sun RPC took which time, in \
         microseconds for a call",
    );
    let mut table = Table::new(about, &["line"]).with("1989", Whose::Paper, &["occurrences", "µs"]);
    for (_, name) in WAYS {
        table = table.with(name, Whose::Now, &["occurrences", "µs"]);
    }
    let columns = WAYS.map(|(way, _)| bins(figures, way));
    for (at, (occurrences, time)) in TABLE_1.into_iter().enumerate() {
        let mut line = vec![Entry::name((at + 1).to_string())];
        line.extend([Entry::printed(occurrences.into()), Entry::printed(time)]);
        line.extend(columns.iter().flat_map(|column| match column {
            Ok(bins) => bins[at].clone(),
            Err(why) => [Entry::missing(why.clone()), Entry::missing(why.clone())],
        }));
        table.line(line);
    }
    let (average, largest) = TABLE_1_AVERAGE;
    let runs: u32 = TABLE_1.iter().map(|(occurrences, _)| occurrences).sum();
    let old = Summary::of(&old_runs());
    let deviation = old.map_or(0.0, |old| old.deviation);
    let lines: [(&str, f64, Figure); 3] = [
        ("average", average, |summary| summary.mean),
        ("largest deviation", largest, |summary| {
            (summary.max - summary.mean).max(summary.mean - summary.min)
        }),
        ("standard deviation", deviation, |summary| summary.deviation),
    ];
    for (name, old, figure) in lines {
        let mut line = vec![Entry::name(name), Entry::printed(runs.into()), Entry::figure(old)];
        for (way, _) in WAYS {
            let runs = runs_of(figures, way);
            let count = runs.clone().map(|runs| runs.len() as f64);
            let value = runs.and_then(|runs| Summary::of(&runs).ok_or_else(|| "no runs".to_owned()));
            line.push(count.map_or_else(Entry::missing, Entry::printed));
            line.push(super::or_missing(value.map(|summary| figure(&summary))));
        }
        table.line(line);
    }
    table
}

/// Returns the paper's runs.
fn old_runs() -> Vec<f64> {
    TABLE_1.iter().flat_map(|(occurrences, time)| vec![*time; *occurrences as usize]).collect()
}

fn runs_of(figures: &Figures, way: Way) -> Result<Vec<f64>, String> {
    let missing = || way.missing().unwrap_or("it was not run").to_owned();
    figures.repeated.get(&way).map(|runs| Clock::Elapsed.of(runs)).ok_or_else(missing)
}

/// Returns as many lines as the paper has: all but the last have the same width, and 95 % of the runs.
fn bins(figures: &Figures, way: Way) -> Result<[[Entry; 2]; TABLE_1.len()], String> {
    let mut runs = runs_of(figures, way)?;
    runs.sort_by(f64::total_cmp);
    let first = runs.first().copied().ok_or("no runs")?;
    let end = runs[(runs.len() - 1) * 95 / 100];
    let last = TABLE_1.len() - 1;
    let width = ((end - first) / last as f64).max(f64::MIN_POSITIVE);
    Ok(std::array::from_fn(|at| {
        let (from, to) = (first + width * at as f64, first + width * (at + 1) as f64);
        let here = |time: &&f64| {
            let bin = ((**time - first) / width) as usize;
            bin.min(last) == at
        };
        let occurrences = runs.iter().filter(here).count() as f64;
        let text = match at == last {
            true => format!("from {}", number(from)),
            false => format!("{} – {}", number(from), number(to)),
        };
        [Entry::printed(occurrences), Entry { text, ..Entry::figure((from + to) / 2.0) }]
    }))
}

fn bars(figures: &Figures) -> BarChart {
    let caption = "The same runs by how far they are from their average: how many per cent of the runs";
    let mut panel = Bars {
        caption: "deviation from the average, in per cent".into(),
        unit: "% of the runs".into(),
        bars: vec!["Sun RPC, 1989".into()],
        groups: (-STEPS..=STEPS).map(|step| (label(step), Vec::new())).collect(),
    };
    add(&mut panel, &old_runs());
    for (way, name) in WAYS {
        if let Ok(runs) = runs_of(figures, way) {
            panel.bars.push(name.into());
            add(&mut panel, &runs);
        }
    }
    BarChart { about: About::new("Table 1, drawn", caption), panels: vec![panel] }
}

fn label(step: i32) -> String {
    let percent = f64::from(step) * STEP;
    match step {
        step if step == -STEPS => format!("≤ {percent:+}"),
        step if step == STEPS => format!("≥ {percent:+}"),
        0 => "0".into(),
        _ => format!("{percent:+}"),
    }
}

/// Adds a bar to each group.
fn add(panel: &mut Bars, runs: &[f64]) {
    let mean = runs.iter().sum::<f64>() / runs.len().max(1) as f64;
    let steps: Vec<i32> = runs
        .iter()
        .map(|run| ((run / mean - 1.0) * 100.0 / STEP).round().clamp(-f64::from(STEPS), STEPS.into()) as i32)
        .collect();
    for (step, (_, bars)) in (-STEPS..=STEPS).zip(&mut panel.groups) {
        let here = steps.iter().filter(|at| **at == step).count();
        bars.push(vec![here as f64 * 100.0 / runs.len().max(1) as f64]);
    }
}
