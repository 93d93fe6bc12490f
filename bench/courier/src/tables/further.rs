//! What the paper has in its text, and the ways that it did not have.

use super::{NONE, Table, heads, networks, number, or_none, printed};
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

pub fn print(figures: &Figures) {
    networks(figures).for_each(|network| all(figures, network));
    local(figures);
    exchanges(figures);
}

/// Prints each way beside its bound.
fn all(figures: &Figures, network: Network) {
    let caption = format!(
        "All ways, {}: milliseconds for a call, those of as many bytes without a protocol, and the median \
         ratio",
        network.name()
    );
    let mut table = Table::new(caption);
    for (_, name) in WAYS {
        table.group(name, &["ms", "bare", "ratio"]);
    }
    for test in TESTS {
        let mut line = heads(test).to_vec();
        for (way, _) in WAYS {
            let each = |way| Some(number(figures.elapsed(network, way, test)?.mean / PAPER_CALLS * 1e3));
            let bound = way.bound();
            line.push(or_none(each(way)));
            line.push(or_none(bound.filter(|_| each(way).is_some()).and_then(each)));
            let ratio = bound.and_then(|bound| figures.ratio(network, way, bound, test));
            line.push(or_none(ratio.map(|ratio| format!("{:.2}", ratio.median))));
        }
        table.line(line);
    }
    table.print();
}

/// Prints the processor time of local calls (section 4.4).
fn local(figures: &Figures) {
    let Some(network) = networks(figures).last() else { return };
    let mut table = Table::new(
        "Section 4.4. Local calls that copy their argument: processor seconds for 2000 calls, without the \
         loop",
    );
    table.group("", &["1983", "now"]);
    for test in TESTS.into_iter().filter(|test| test.has_result) {
        let of = |way| {
            Some(figures.cell(network, way, test)?.cpu_seconds()? * PAPER_CALLS / f64::from(figures.calls))
        };
        let now = of(Way::Local).map(|local| (local - of(Way::Loop).unwrap_or_default()).max(0.0));
        let old = LOCAL_CPU.iter().find(|old| old.0 == test.bytes());
        let cells = [old.map_or(NONE.into(), |old| printed(old.1)), or_none(now.map(number))];
        table.line(heads(test).into_iter().chain(cells));
    }
    table.print();
}

/// Prints how many exchanges a stream carries (section 5).
fn exchanges(figures: &Figures) {
    let Some(test) = TESTS.into_iter().find(|test| test.size == Size::Zero && test.has_result) else {
        return;
    };
    println!(
        "Section 5. Exchanges per second over a stream: {STREAM_EXCHANGES_PER_SECOND} between two VAXes \
         (Hagmann 1983)"
    );
    for network in networks(figures) {
        if let Some(elapsed) = figures.elapsed(network, Way::CourierBound, test) {
            println!("  {}: {:.0}", network.name(), PAPER_CALLS / elapsed.mean);
        }
    }
    println!();
}
