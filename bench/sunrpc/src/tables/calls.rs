//! Table 3: all programs, local and remote, blocking and with select.

use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};

use crate::ends::Place;
use crate::figures::{Clock, Figures};
use crate::paper::{TABLE_3_CUSTOM, TABLE_3_SUN};
use crate::ways::{Language, Size, Way};

/// A cell is uncertain if the middle half of its runs is wider than this part of the median.
const TOO_WIDE: f64 = 0.33;

/// A cell with fewer runs says too little.
const MIN_RUNS: usize = 5;

/// Why program 2 has no figure in the lines of blocking programs.
const SELECTS: &str = "Sun RPC has no blocking variant: it stands in the lines of select";

pub fn items(figures: &Figures) -> Vec<Item> {
    let elapsed = About::new("Table 3", "Remote calls, 1,000 iterations: microseconds for a call, elapsed");
    let caption = "The same runs: microseconds of the client's processor for a call";
    let processor = About::new("Table 3, processor", caption);
    [(elapsed, Clock::Elapsed), (processor, Clock::Processor)]
        .map(|(about, clock)| Item::Table(table(about, figures, clock)))
        .into()
}

fn table(about: About, figures: &Figures, clock: Clock) -> Table {
    let c = ["3: UDP", "2: libtirpc", "4: TCP"];
    let rust = ["3: UDP", "2: farcall-onc", "4: TCP"];
    let old = ["3: UDP", "2: RPC", "4: TCP"];
    let mut table = Table::new(about, &["machine", "wait", "bytes"])
        .with("programs, 1989", Whose::Paper, &old)
        .with("programs, now in C", Whose::Now, &c)
        .with("programs, now in Rust", Whose::Now, &rust)
        .with("1989 ÷ now, C", Whose::Ratio, &old);
    for (at, place) in Place::ALL.into_iter().enumerate() {
        for (polls, how) in [(false, "block"), (true, "select")] {
            for (size, argument) in Size::ALL.into_iter().zip(0..) {
                let sun = TABLE_3_SUN[at][argument];
                let [udp, tcp] = TABLE_3_CUSTOM.map(|program| program[at][usize::from(polls)][argument]);
                let cell = |way| figures.call((place, way, size), clock);
                let ways = |language: Language, sun: Way| {
                    let custom = |tcp| Way::Custom { language, tcp, polls };
                    let sun = if polls { cell(sun) } else { Err(SELECTS.to_owned()) };
                    [cell(custom(false)), sun, cell(custom(true))]
                };
                let now = ways(Language::C, Way::Tirpc);
                let ratios = [udp, sun, tcp].into_iter().zip(&now).map(|(old, now)| match now {
                    Ok(now) => Entry::ratio(Some(old), Some(now.median)),
                    Err(why) => Entry::missing(why.clone()),
                });
                let ratios: Vec<Entry> = ratios.collect();
                let sun = if polls { Entry::printed(sun) } else { Entry::missing(SELECTS) };
                let mut line = vec![Entry::name(place.name()), Entry::name(how)];
                line.push(Entry::name(size.bytes().to_string()));
                line.extend([Entry::printed(udp), sun, Entry::printed(tcp)]);
                let rust = ways(Language::Rust, Way::Farcall);
                line.extend(now.into_iter().chain(rust).map(super::summary_cell));
                line.extend(ratios);
                table.line(line);
            }
        }
    }
    table.about.void.extend(void(figures, clock));
    table
}

/// Returns why the table does not count, if it does not.
fn void(figures: &Figures, clock: Clock) -> Option<String> {
    let fewest = figures.calls.values().map(Vec::len).min().unwrap_or(0);
    if fewest < MIN_RUNS {
        return Some(format!(
            "a cell has only {fewest} runs, because the machine did other work, or one failed"
        ));
    }
    let all = figures.calls.keys().filter_map(|&cell| figures.call(cell, clock).ok());
    let (wide, cells) =
        all.fold((0, 0), |(wide, cells), summary| (wide + usize::from(summary.middle > TOO_WIDE), cells + 1));
    (wide * 10 > cells).then(|| {
        format!(
            "in {wide} of {cells} cells the middle half of the runs is wider than a third of their median: \
             the machine did other work"
        )
    })
}
