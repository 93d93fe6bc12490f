//! Tables 9 to 11: Courier beside PCourier, the slow network beside the fast one.

use super::{Table, heads, networks, old, or_none, printed};
use crate::figures::{Figures, Summary, Times};
use crate::interface::{TESTS, Test};
use crate::network::Network;
use crate::paper::{Ratios, TABLE_9, TABLE_10, TABLE_11};
use crate::ways::Way;

pub fn print(figures: &Figures) {
    streams_and_packets(figures);
    networks_beside(figures);
    processor(figures);
}

/// A column of ratios: the old ones, if the paper has them, and the new.
struct Column<'a> {
    name: String,
    old: Option<&'a Ratios>,
    new: Vec<Option<f64>>,
}

/// Table 9.
fn streams_and_packets(figures: &Figures) {
    for network in networks(figures) {
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
        print_columns(
            format!("Table 9. Ratio of Courier's and PCourier's (PC) elapsed time, {}", network.name()),
            &columns,
        );
    }
}

/// Table 10.
fn networks_beside(figures: &Figures) {
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
    print_columns("Table 10. Ratio of elapsed time on networks of different speed".into(), &columns);
}

/// Table 11.
fn processor(figures: &Figures) {
    for network in networks(figures) {
        let of = |way: Way, part: fn(&Times) -> f64| {
            move |test: Test| Some(part(&figures.times(network, way, test)?))
        };
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
        print_columns(
            format!("Table 11. Ratio of processor time, Courier/PCourier, {}", network.name()),
            &columns,
        );
    }
}

fn ratios(one: impl Fn(Test) -> Option<f64>, other: impl Fn(Test) -> Option<f64>) -> Vec<Option<f64>> {
    TESTS.into_iter().map(|test| Some(one(test)? / other(test).filter(|other| *other > 0.0)?)).collect()
}

fn print_columns(caption: String, columns: &[Column<'_>]) {
    let mut table = Table::new(caption);
    for column in columns {
        match column.old {
            Some(_) => table.group(column.name.clone(), &["1983", "now"]),
            None => table.group(column.name.clone(), &["now"]),
        }
    }
    for (row, test) in TESTS.into_iter().enumerate() {
        let cells = columns.iter().flat_map(|column| {
            let old = column.old.map(|old| or_none(old.tests[row].map(printed)));
            let new = or_none(column.new[row].map(|new| format!("{new:.2}")));
            old.into_iter().chain([new])
        });
        table.line(heads(test).into_iter().chain(cells));
    }
    let means = columns.iter().flat_map(|column| {
        let deviation =
            |old: &Ratios| old.deviation.map_or(String::new(), |by| format!(" ± {}", printed(by)));
        let old = column.old.map(|old| format!("{}{}", printed(old.mean), deviation(old)));
        let new = Summary::of(column.new.iter().copied().flatten());
        old.into_iter().chain([or_none(new.map(|new| format!("{:.2} ± {:.2}", new.mean, new.deviation)))])
    });
    table.line(["Avg.".to_owned(), String::new()].into_iter().chain(means));
    table.print();
}
