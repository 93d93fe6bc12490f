//! What the paper has in its text, and the ways that it did not have.

use farcall_bench_method::paper::{About, Entry, Table, Whose};

use super::{begin, heads, networks, or_blank, or_missing, printed};
use crate::figures::{Figures, PAPER_CALLS};
use crate::interface::{Size, TESTS};
use crate::network::Network;
use crate::paper::{LOCAL_CPU, STREAM_EXCHANGES_PER_SECOND};
use crate::ways::Way;

/// The ways in the order of the columns, and what they are called.
const WAYS: [(Way, &str); 4] = [
    (Way::Courier, "Courier (TCP)"),
    (Way::Xsis, "XSIS (TCP)"),
    (Way::Pcourier, "PCourier (UDP)"),
    (Way::Farcall, "farcall (UDP)"),
];

pub fn tables(figures: &Figures) -> Vec<Table> {
    let all = networks(figures).map(|network| all(figures, network));
    all.chain(local(figures)).chain(exchanges(figures)).collect()
}

/// Returns each way beside its bound.
fn all(figures: &Figures, network: Network) -> Table {
    let caption = "milliseconds for a call, those of as many bytes without a protocol, and the median ratio";
    let mut table = begin(format!("All ways, {}", network.name()), caption);
    for (_, name) in WAYS {
        table = table.with(name, Whose::Now, &["ms", "bare", "ratio"]);
    }
    for test in TESTS {
        let mut line = heads(test).to_vec();
        for (way, _) in WAYS {
            let each =
                |way| Some(Entry::figure(figures.elapsed(network, way, test)?.mean / PAPER_CALLS * 1e3));
            let bound = way.bound();
            line.push(or_missing(each(way)));
            line.push(or_missing(bound.filter(|_| each(way).is_some()).and_then(each)));
            let ratio = bound.and_then(|bound| figures.ratio(network, way, bound, test));
            line.push(or_missing(
                ratio.map(|ratio| Entry {
                    text: format!("{:.2}", ratio.median),
                    ..Entry::figure(ratio.median)
                }),
            ));
        }
        table.line(line);
    }
    table
}

/// Returns the processor time of local calls (section 4.4).
fn local(figures: &Figures) -> Option<Table> {
    let network = networks(figures).last()?;
    let caption = "Local calls that copy their argument: processor seconds for 2000 calls, without the loop";
    let mut table =
        begin("Section 4.4", caption).with("", Whose::Paper, &["1983"]).with("", Whose::Now, &["now"]);
    for test in TESTS.into_iter().filter(|test| test.has_result) {
        let of = |way| {
            Some(figures.cell(network, way, test)?.cpu_seconds()? * PAPER_CALLS / f64::from(figures.calls))
        };
        let now = of(Way::Local).map(|local| (local - of(Way::Loop).unwrap_or_default()).max(0.0));
        let old = LOCAL_CPU.iter().find(|old| old.0 == test.bytes());
        let cells = [or_blank(old.map(|old| printed(old.1))), or_missing(now.map(Entry::figure))];
        table.line(heads(test).into_iter().chain(cells));
    }
    Some(table)
}

/// Returns how many exchanges a stream carries (section 5).
fn exchanges(figures: &Figures) -> Option<Table> {
    let test = TESTS.into_iter().find(|test| test.size == Size::Zero && test.has_result)?;
    let about =
        About::new("Section 5", "Exchanges per second over a stream without a protocol (Hagmann 1983)");
    let mut table = Table::new(about, &["network"])
        .with("", Whose::Paper, &["1983"])
        .with("", Whose::Now, &["now"])
        .with("", Whose::Ratio, &["1983 ÷ now"]);
    for network in networks(figures) {
        let rate =
            figures.elapsed(network, Way::CourierBound, test).map(|elapsed| PAPER_CALLS / elapsed.mean);
        table.line([
            Entry::name(network.name()),
            printed(STREAM_EXCHANGES_PER_SECOND),
            or_missing(rate.map(|rate| Entry { text: format!("{rate:.0}"), ..Entry::figure(rate) })),
            Entry::ratio(Some(STREAM_EXCHANGES_PER_SECOND), rate),
        ]);
    }
    Some(table)
}
