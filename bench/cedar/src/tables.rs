//! Table I and section 4, the paper's figures beside the new ones.

use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};
use farcall_bench_method::stats::Estimate;

use crate::bare::Script;
use crate::bulk::{self, CALL_BYTES, RAW_RATE, Rate};
use crate::paper::{BULK, ETHERNET, TABLE_I};
use crate::peers::Way;
use crate::table1::{Line, Times};

/// The bytes of the headers of UDP and IP, which the datagrams do not have.
const HEADERS: usize = 8 + 20;
/// Why the paper has no figure.
const NOT_IN_THE_PAPER: &str = "the paper has no figure";

/// All that was measured.
pub struct Found {
    pub lines: Vec<Line>,
    /// The rates of transfers, or why none was measured.
    pub rates: Result<Vec<Rate>, String>,
    pub calls: u32,
    pub conditions: Vec<String>,
}

impl Found {
    /// Returns all tables.
    pub fn items(&self) -> Vec<Item> {
        let tables = [self.table_1(), self.packets(), self.further(), self.bulk()].into_iter();
        let items = tables.map(|mut table| {
            table.about.conditions.clone_from(&self.conditions);
            Item::Table(table)
        });
        items.collect()
    }

    /// Table I as the paper has it.
    fn table_1(&self) -> Table {
        let columns = ["minimum", "median", "transmission", "local-only"];
        let caption = format!("Remote calls over UDP, in microseconds; {} calls each", self.calls);
        let mut table = Table::new(About::new("Table I", caption), &["procedure"])
            .with("1984, Ethernet", Whose::Paper, &columns)
            .with("now, UDP", Whose::Now, &columns)
            .with("1984 ÷ now", Whose::Ratio, &["median"]);
        for (line, old) in self.lines.iter().zip(TABLE_I) {
            let (udp, local) = (line.times(Way::Udp), line.times(Way::Local));
            let median = udp.map(|times| times.median);
            let cells = old.map(Entry::printed).into_iter().chain([
                figure(udp.map(|times| times.min)),
                figure(median),
                Entry::figure(transmission(&line.open)),
                figure(local.map(|times| times.median)),
                Entry::ratio(Some(old[1]), median),
            ]);
            table.line([Entry::name(line.procedure.name())].into_iter().chain(cells));
        }
        table.about.void = self.void();
        table
    }

    /// The packets of the same calls, and bare UDP.
    fn packets(&self) -> Table {
        let caption = "Packets and bytes of a call, and its time ÷ that of as many equally long datagrams by \
                       system calls alone; microseconds";
        let columns = ["packets", "bytes", "÷ bare UDP"];
        let mut table = Table::new(About::new("Table I, packets", caption), &["procedure"])
            .with("now, bare UDP", Whose::Now, &["minimum", "median", "÷ itself"])
            .with("now, UDP", Whose::Now, &columns)
            .with("now, UDP with keys", Whose::Now, &columns);
        for line in &self.lines {
            let ratio = |way| estimate(line.times(way).and_then(|times| times.ratio));
            let mut cells = vec![Entry::name(line.procedure.name())];
            cells.extend(min_and_median(Some(line.bare)));
            cells.push(estimate(line.control));
            for (way, script) in [(Way::Udp, &line.open), (Way::UdpKeys, &line.sealed)] {
                cells.extend([script.datagrams(), bytes(script)].map(|count| Entry::printed(count as f64)));
                cells.push(ratio(way));
            }
            table.line(cells);
        }
        table.about.void = self.void();
        table
    }

    /// The calls of table I, made by other carriers and with keys.
    fn further(&self) -> Table {
        const WAYS: [(Way, &str); 4] = [
            (Way::Udp, "now, UDP"),
            (Way::UdpKeys, "now, UDP with keys"),
            (Way::Shared, "now, shared memory"),
            (Way::SharedKeys, "now, shared memory with keys"),
        ];
        let caption = "The same calls with keys, and through shared memory, in microseconds";
        let mut table = Table::new(About::new("Table I, other ways", caption), &["procedure"]);
        for (_, name) in WAYS {
            table = table.with(name, Whose::Now, &["minimum", "median"]);
        }
        for line in &self.lines {
            let cells = WAYS.into_iter().flat_map(|(way, _)| min_and_median(line.times(way)));
            table.line([Entry::name(line.procedure.name())].into_iter().chain(cells));
        }
        table.about.void = self.void();
        table
    }

    fn void(&self) -> Vec<String> {
        self.lines.iter().filter_map(Line::void).collect()
    }

    /// Section 4's transfer of much data.
    fn bulk(&self) -> Table {
        let caption = format!(
            "Data between main memories on a network of 3 Mbit/s, and its share of the network's rate; calls \
             have arguments of {CALL_BYTES} bytes"
        );
        let columns = ["Mbit/s", "share, %"];
        let mut table = Table::new(About::new("Section 4", caption), &["transfer"])
            .with("1984", Whose::Paper, &columns)
            .with("now", Whose::Now, &[columns[0], columns[1], "bytes sent ÷ data", "÷ byte stream"])
            .with("1984 ÷ now", Whose::Ratio, &["Mbit/s"]);
        let rates = self.rates.as_deref().unwrap_or_default();
        for way in &bulk::Way::ALL[1..] {
            let rate = rates.iter().find(|rate| rate.way == *way);
            let old = matches!(way, bulk::Way::Stream | bulk::Way::Calls(8)).then_some(BULK);
            let paper = |value: Option<Entry>| value.unwrap_or_else(|| Entry::missing(NOT_IN_THE_PAPER));
            let now = |value: Option<Entry>| value.unwrap_or_else(|| Entry::missing(self.why_no_rates()));
            let mbits = rate.map(|rate| rate.mbits);
            table.line([
                Entry::name(way.name()),
                paper(old.map(Entry::printed)),
                paper(old.map(|old| percent(old / ETHERNET))),
                now(mbits.map(Entry::figure)),
                now(mbits.map(|mbits| percent(mbits / RAW_RATE))),
                now(rate.map(|rate| Entry::figure(rate.sent))),
                now(rate.map(|rate| estimate(rate.to_stream))),
                paper(old.map(|old| Entry::ratio(Some(old), mbits))),
            ]);
        }
        table.about.void = rates.iter().filter_map(Rate::void).collect();
        table
    }

    fn why_no_rates(&self) -> &str {
        self.rates.as_ref().err().map_or("it was not measured", String::as_str)
    }
}

/// Returns the microseconds that the packets of a call take on the paper's Ethernet.
fn transmission(script: &Script) -> f64 {
    bytes(script) as f64 * 8.0 / ETHERNET
}

/// Returns the bytes of the packets of a call, with the headers of UDP and IP.
fn bytes(script: &Script) -> usize {
    script.bytes() + HEADERS * script.datagrams()
}

fn min_and_median(times: Option<Times>) -> [Entry; 2] {
    [figure(times.map(|times| times.min)), figure(times.map(|times| times.median))]
}

fn figure(value: Option<f64>) -> Entry {
    value.map_or_else(|| Entry::missing("it was not measured"), Entry::figure)
}

fn percent(share: f64) -> Entry {
    let percent = share * 100.0;
    Entry { text: format!("{percent:.0}"), ..Entry::figure(percent) }
}

/// Returns a median with its interval.
fn estimate(estimate: Option<Estimate>) -> Entry {
    let Some(Estimate { low, median, high }) = estimate else {
        return Entry::missing("there were too few blocks");
    };
    Entry { text: format!("{median:.2} [{low:.2}, {high:.2}]"), ..Entry::figure(median) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmission_is_that_of_whole_packets() {
        // 24 bytes each way are what the paper's null call has.
        let bare = |length| Script(vec![[length, length]]);
        assert_eq!(bytes(&bare(24)), 104);
        assert!((transmission(&bare(24)) - 104.0 * 8.0 / 2.94).abs() < 1e-9);
    }

    #[test]
    fn what_could_not_be_measured_says_why() {
        let found = Found {
            lines: Vec::new(),
            rates: Err("a network namespace needs root".into()),
            calls: 1,
            conditions: Vec::new(),
        };
        let table = found.bulk();
        assert_eq!((table.unexplained(), table.lines.len()), (0, bulk::Way::ALL.len() - 1));
        assert_eq!(table.lines[0][3].missing.as_deref(), Some("a network namespace needs root"));
    }
}
