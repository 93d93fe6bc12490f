//! Tables 9 to 11: Courier beside PCourier, the slow network beside the fast one.

use farcall_bench_method::paper::{Entry, Table, Whose};

use super::{begin, heads, networks, old, or_blank, or_missing, printed};
use crate::figures::{Figures, Summary, Times};
use crate::interface::{TESTS, Test};
use crate::network::Network;
use crate::paper::{Ratios, TABLE_9, TABLE_10, TABLE_11};
use crate::ways::Way;

pub fn tables(figures: &Figures) -> Vec<Table> {
    let streams = networks(figures).map(|network| streams_and_packets(figures, network));
    let processor = networks(figures).map(|network| processor(figures, network));
    streams.chain([networks_beside(figures)]).chain(processor).collect()
}

/// A column of ratios: the old ones, if the paper has them, and the new.
struct Column<'a> {
    name: String,
    old: Option<&'a Ratios>,
    new: Vec<Option<f64>>,
}

/// Table 9.
fn streams_and_packets(figures: &Figures, network: Network) -> Table {
    let courier = |test| Some(figures.elapsed(network, Way::Courier, test)?.mean);
    let packets = |test| Some(figures.elapsed(network, Way::Pcourier, test)?.mean);
    let corrected = |test| Some(figures.corrected(network, Way::Pcourier, test)?.mean);
    let paper = old(network).map(|place| &TABLE_9[place]);
    let columns = [
        Column {
            name: "Courier/PC".into(),
            old: paper.map(|paper| &paper[0]),
            new: ratios(courier, packets),
        },
        Column {
            name: "Courier/corrected PC".into(),
            old: paper.map(|paper| &paper[1]),
            new: ratios(courier, corrected),
        },
    ];
    let caption = format!("Ratio of Courier's and PCourier's (PC) elapsed time, {}", network.name());
    table("Table 9", caption, &columns)
}

/// Table 10.
fn networks_beside(figures: &Figures) -> Table {
    let kinds: [(&str, Way, bool, &Ratios); 3] = [
        ("Courier", Way::Courier, false, &TABLE_10[0]),
        ("PCourier", Way::Pcourier, false, &TABLE_10[1]),
        ("corrected PCourier", Way::Pcourier, true, &TABLE_10[2]),
    ];
    let mut columns = Vec::new();
    for (name, way, corrected, paper) in kinds {
        let on = |network: Network| {
            move |test: Test| match corrected {
                true => Some(figures.corrected(network, way, test)?.mean),
                false => Some(figures.elapsed(network, way, test)?.mean),
            }
        };
        columns.push(Column {
            name: format!("{name} 3/10"),
            old: Some(paper),
            new: ratios(on(Network::Three), on(Network::Ten)),
        });
        columns.push(Column {
            name: "10/loopback".into(),
            old: None,
            new: ratios(on(Network::Ten), on(Network::Loopback)),
        });
    }
    table("Table 10", "Ratio of elapsed time on networks of different speed".into(), &columns)
}

/// Table 11.
fn processor(figures: &Figures, network: Network) -> Table {
    let of =
        |way: Way, part: fn(&Times) -> f64| move |test: Test| Some(part(&figures.times(network, way, test)?));
    let both = |part| ratios(of(Way::Courier, part), of(Way::Pcourier, part));
    // Like the paper, compare receiving only where something is received.
    let mut receiving = both(|times| times.read);
    for (test, ratio) in TESTS.into_iter().zip(&mut receiving) {
        ratio.take_if(|_| !test.has_result);
    }
    // The paper's figures are those between the VAXes.
    let paper = |column: usize| (network == Network::Three).then_some(&TABLE_11[column]);
    let columns = [
        Column { name: "total".into(), old: paper(0), new: both(|times| times.total) },
        Column { name: "sending".into(), old: paper(1), new: both(|times| times.write) },
        Column { name: "receiving".into(), old: paper(2), new: receiving },
    ];
    let caption = format!("Ratio of processor time, Courier/PCourier, {}", network.name());
    table("Table 11", caption, &columns)
}

fn ratios(one: impl Fn(Test) -> Option<f64>, other: impl Fn(Test) -> Option<f64>) -> Vec<Option<f64>> {
    TESTS.into_iter().map(|test| Some(one(test)? / other(test).filter(|other| *other > 0.0)?)).collect()
}

fn table(number: &str, caption: String, columns: &[Column<'_>]) -> Table {
    let mut table = begin(number, caption);
    for column in columns {
        match column.old {
            Some(_) => {
                table = table.with(&column.name, Whose::Paper, &["1983"]).with("", Whose::Now, &["now"])
            }
            None => table = table.with(&column.name, Whose::Now, &["now"]),
        }
    }
    for (row, test) in TESTS.into_iter().enumerate() {
        let cells = columns.iter().flat_map(|column| {
            let old = column.old.map(|old| or_blank(old.tests[row].map(printed)));
            old.into_iter().chain([or_missing(column.new[row].map(rounded))])
        });
        table.line(heads(test).into_iter().chain(cells));
    }
    let means = columns.iter().flat_map(|column| {
        let old = column.old.map(|old| match old.deviation {
            Some(by) => Entry { text: format!("{} ± {by}", printed(old.mean).text), ..printed(old.mean) },
            None => printed(old.mean),
        });
        let new = Summary::of(column.new.iter().copied().flatten());
        old.into_iter().chain([or_missing(new.map(mean))])
    });
    table.line([Entry::name("Avg."), Entry::name("")].into_iter().chain(means));
    table
}

fn rounded(ratio: f64) -> Entry {
    Entry { text: format!("{ratio:.2}"), ..Entry::figure(ratio) }
}

fn mean(Summary { mean, deviation, .. }: Summary) -> Entry {
    Entry { text: format!("{mean:.2} ± {deviation:.2}"), ..Entry::figure(mean).deviating(deviation) }
}
