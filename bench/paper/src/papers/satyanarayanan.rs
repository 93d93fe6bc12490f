//! Satyanarayanan & Siegel 1990: MultiRPC, one call of many servers. `farcall-bench multi` measures.

use anyhow::Result;
use farcall_bench_group::{Distribution, paper};
use farcall_bench_method::chart::{Curve, Panel};
use farcall_bench_method::paper::{About, Curves, Entry, Item, Table, Whose};
use serde_json::Value;

use super::{Name, Paper};
use crate::rows::{Row, Rows};
use crate::run::{Found, Gives, Step};

pub const PAPER: Paper = Paper {
    name: Name::Satyanarayanan,
    key: "satyanarayanan",
    title: "Parallel Communication in a Large Distributed Environment",
    authors: "Satyanarayanan and Siegel",
    year: 1990,
    published: "IEEE Transactions on Computers 39(3), March 1990",
    about: "MultiRPC makes one call of many servers at once (m), instead of a call of each, one after the other \
            (r). The measure is r/m for n servers that take 10, 20 or 50 ms to compute. Here the servers are \
            processes of one machine that share one core and sleep for those times; the client has another core. \
            RPC2 2.38, measured before on a machine of the same kind over loopback, stands beside where its \
            figures are known.",
    steps: &[
        Step {
            what: "the null call",
            package: "farcall-bench",
            arguments: |quick| {
                with(quick, &["multi", "--members", "1", "--computation", "0", "--peers", "none"])
            },
            gives: Gives::Rows,
            seconds: [20, 10],
        },
        Step {
            what: "the components of a call",
            package: "farcall-bench",
            arguments: |quick| with(quick, &["multi", "--components"]),
            gives: Gives::Rows,
            seconds: [10, 5],
        },
        Step {
            what: "servers that compute",
            package: "farcall-bench",
            arguments: |quick| {
                let mut words = vec!["multi", "--alone", "--computation", "10,20,50", "--members", MEMBERS];
                words.extend(["--trials", if quick { "1" } else { "6" }]);
                with(quick, &words)
            },
            gives: Gives::Rows,
            seconds: [530, 100],
        },
        Step {
            what: "replies through a slow router",
            package: "farcall-bench",
            arguments: |quick| {
                let all = "constant,normal,exponential";
                let words =
                    ["multi", "--router", "--computation", "2", "--members", ROUTED, "--distribution", all];
                with(quick, &words)
            },
            gives: Gives::Rows,
            seconds: [60, 30],
        },
    ],
    items,
};

/// The numbers of servers of all rows of the paper's tables.
const MEMBERS: &str = "1,2,5,7,10,13,15,17,19,20,25,50,75,100";

/// The numbers of servers behind the router.
const ROUTED: &str = "1,2,5,10,20,25,50,100";

/// What the failed steps leave out.
const FAILED: &str = "the program that measures it failed";

fn with(quick: bool, words: &[&'static str]) -> Vec<&'static str> {
    let mut words = words.to_vec();
    words.extend(["--pin", "0,1"]);
    words.extend(quick.then_some("--quick"));
    words
}

/// What was measured.
struct Measured<'a> {
    null: Option<&'a Rows>,
    parts: Option<&'a Rows>,
    working: Option<&'a Rows>,
    routed: Option<&'a Rows>,
}

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let rows = |step: usize| found.get(step).and_then(|found| Some(&found.as_ref().ok()?.rows));
    let measured = Measured { null: rows(0), parts: rows(1), working: rows(2), routed: rows(3) };
    let mut items = vec![null(&measured), components(&measured), predicted(&measured)];
    items.extend([
        working(&measured, "Table VIII", Distribution::Constant),
        working(&measured, "Table IX", Distribution::Normal),
        working(&measured, "Table X", Distribution::Exponential),
        routed(&measured),
    ]);
    items.push(prediction(&measured));
    items.extend(
        [9, 10, 11].into_iter().zip(paper::COMPUTATION).map(|(number, ms)| fit(&measured, number, ms)),
    );
    items.extend([
        speedup(&measured, 12, Distribution::Constant),
        speedup(&measured, 13, Distribution::Normal),
        speedup(&measured, 14, Distribution::Exponential),
    ]);
    items
}

impl Measured<'_> {
    fn null(&self) -> Option<Row<'_>> {
        self.null?.find(&[("peer", "farcall".into()), ("members", 1.into())])
    }

    /// Returns a component in milliseconds.
    fn part(&self, name: &str) -> Option<f64> {
        let row = self.parts?.find(&[("part", name.into())])?;
        row.figure("nanoseconds").map(|nanoseconds| nanoseconds / 1e6)
    }

    fn parts(&self) -> Option<[f64; 6]> {
        let mut parts = [0.0; 6];
        for (part, (name, _)) in parts.iter_mut().zip(paper::COMPONENTS) {
            *part = self.part(name)?;
        }
        Some(parts)
    }

    fn working(&self, members: usize, ms: u32, distribution: Distribution) -> Option<Row<'_>> {
        self.working?.find(&[
            ("peer", "farcall".into()),
            ("members", Value::from(members)),
            ("computation_ms", ms.into()),
            ("distribution", distribution.name().into()),
        ])
    }

    /// Returns a figure of calls through the router, all at once or one by one.
    fn routed(&self, members: usize, one: Distribution, part: &str, figure: &str) -> Option<f64> {
        let row = self.routed?.find(&[
            ("members", Value::from(members)),
            ("distribution", one.name().into()),
            ("part", part.into()),
        ])?;
        row.figure(figure)
    }

    /// Returns r/m as measured.
    fn speedup(&self, members: usize, ms: u32, distribution: Distribution) -> Option<f64> {
        let row = self.working(members, ms, distribution)?;
        Some(row.figure("iterative_ms")? / row.figure("multi_ms")?)
    }

    /// Returns m and r by the paper's model from today's components.
    fn predicted(&self, members: usize, ms: u32) -> Option<(f64, f64)> {
        let multi = paper::model(&self.parts()?, members, f64::from(ms));
        Some((multi, members as f64 * (self.part("rpctime")? + f64::from(ms))))
    }
}

/// Table V.
fn null(measured: &Measured<'_>) -> Item {
    let about = About {
        conditions: conditions(measured.null),
        void: void(measured.null),
        finding: "A call of one server by MultiRPC took hardly longer than by RPC2, so simple calls did not pay for \
                  the new facility. That holds: a group of one member is called as a single call is."
            .into(),
        changed: "deviations are those of the means of blocks, because single calls are too short to be timed well"
            .into(),
        ..About::new("Table V", "Null calls of one server, in milliseconds, with their standard deviations")
    };
    let mut table = Table::new(about, &[""])
        .with("1990", Whose::Paper, &["ms"])
        .with("now", Whose::Now, &["ms"])
        .with("1990 ÷ now", Whose::Ratio, &["ms"])
        .with("RPC2 2.38", Whose::Paper, &["ms"]);
    let rpc2 = paper::rpc2(1, 0, Distribution::Constant);
    let row = measured.null();
    for (name, old, deviation, field) in [
        ("all at once (m)", paper::NULL.multi, paper::NULL.multi_deviation, "multi"),
        ("one after the other (r)", paper::NULL.iterative, paper::NULL.iterative_deviation, "iterative"),
    ] {
        let new = row.and_then(|row| row.figure(&format!("{field}_ms")));
        let by = row.and_then(|row| row.figure(&format!("{field}_deviation_ms")));
        table.line([
            Entry::name(name),
            fixed(old).deviating_as_printed(deviation),
            entry(new, by),
            Entry::ratio(Some(old), new),
            rpc2.map_or_else(not_measured, |(multi, iterative)| {
                Entry::printed(if field == "multi" { multi } else { iterative })
            }),
        ]);
    }
    let ratio = row.and_then(|row| Some(row.figure("iterative_ms")? / row.figure("multi_ms")?));
    table.line([
        Entry::name("r/m"),
        fixed(0.96),
        entry(ratio, None),
        Entry::missing("a ratio of ratios says nothing"),
        rpc2.map_or_else(not_measured, |(multi, iterative)| fixed(iterative / multi)),
    ]);
    Item::Table(table)
}

/// Table VI.
fn components(measured: &Measured<'_>) -> Item {
    let about = About {
        conditions: conditions(measured.parts),
        finding: "Sending a request and receiving a reply took nearly all of the client's time, and a server took \
                  two thirds of a null call: so what runs in parallel are the servers. Today sending and receiving \
                  are nearly all of the client's time too; packing arguments and unpacking replies is hardly \
                  anything."
            .into(),
        changed: "each component is measured from outside, as the conditions say; a null call has no arguments, so \
                  that packing is the cost of preparing a call"
            .into(),
        ..About::new("Table VI", "The components of a call of all servers, in milliseconds")
    };
    let mut table = Table::new(about, &["component"])
        .with("1990", Whose::Paper, &["ms"])
        .with("now", Whose::Now, &["ms"])
        .with("1990 ÷ now", Whose::Ratio, &["ms"]);
    for (name, old) in paper::COMPONENTS {
        let new = measured.part(name);
        table.line([Entry::name(name), fixed(old), entry(new, None), Entry::ratio(Some(old), new)]);
    }
    Item::Table(table)
}

/// Table VII.
fn predicted(measured: &Measured<'_>) -> Item {
    let about = About {
        conditions: conditions(measured.parts),
        finding: "By the model, the speedup saturates, because requests are sent and replies are received one after \
                  the other; the more a server computes, the later. By today's components a client sends to a \
                  hundred servers in a fraction of a computation, so in this range of n nothing saturates."
            .into(),
        changed: "the same formula, with waittime, and the components of table VI as measured now; r has today's \
                  null call"
            .into(),
        ..About::new("Table VII", "Performance as predicted by the model, in milliseconds")
    };
    let mut table = Table::new(about, &["servers"]);
    for ms in paper::COMPUTATION {
        table = table.with(&format!("{ms} ms, 1990"), Whose::Paper, &["m", "r", "r/m"]).with(
            &format!("{ms} ms, now"),
            Whose::Now,
            &["m", "r", "r/m"],
        );
    }
    for (members, old) in paper::PREDICTED {
        let mut line = vec![Entry::name(members.to_string())];
        for ((multi, iterative), ms) in old.into_iter().zip(paper::COMPUTATION) {
            line.extend([fixed(multi), fixed(iterative), fixed(iterative / multi)]);
            let new = measured.predicted(members, ms);
            line.extend([
                entry(new.map(|new| new.0), None),
                entry(new.map(|new| new.1), None),
                entry(new.map(|new| new.1 / new.0), None),
            ]);
        }
        table.line(line);
    }
    Item::Table(table)
}

/// Tables VIII to X.
fn working(measured: &Measured<'_>, number: &str, distribution: Distribution) -> Item {
    let caption = format!(
        "Measured times of calls with {} computation times, in milliseconds",
        described(distribution)
    );
    let about = About {
        conditions: conditions(measured.working),
        finding: format!(
            "MultiRPC was always faster than RPC2, but beyond 25 servers, on several networks, the speedup fell and \
             the deviations grew, because replies that arrived together were lost and requests sent again. {}",
            at_scale(measured, distribution)
        ),
        changed:
            "servers sleep instead of computing, since they share one core; all are on one machine, so no \
                  router loses their replies (section VI-B3 below has one). A row is measured also where the paper \
                  has a star"
                .into(),
        ..About::new(number, caption)
    };
    let mut table = Table::new(about, &["servers"]);
    for ms in paper::COMPUTATION {
        table = table
            .with(&format!("{ms} ms, 1990"), Whose::Paper, &["m", "r", "r/m"])
            .with(&format!("{ms} ms, now"), Whose::Now, &["m", "r", "r/m"])
            .with("1990 ÷ now", Whose::Ratio, &["m"]);
        if distribution == Distribution::Constant {
            table = table.with("RPC2 2.38", Whose::Paper, &["m", "r", "r/m"]);
        }
    }
    for (members, old) in paper::table(distribution) {
        let mut line = vec![Entry::name(members.to_string())];
        for (old, ms) in old.iter().zip(paper::COMPUTATION) {
            match old {
                Some(old) => line.extend([
                    fixed(old.multi).deviating_as_printed(old.multi_deviation),
                    fixed(old.iterative).deviating_as_printed(old.iterative_deviation),
                    fixed(old.iterative / old.multi),
                ]),
                None => line.extend([const { "the paper has a star here" }; 3].map(Entry::missing)),
            }
            let row = measured.working(*members, ms, distribution);
            let figure = |name: &str| row.and_then(|row| row.figure(name));
            line.extend([
                entry(figure("multi_ms"), figure("multi_deviation_ms")),
                entry(figure("iterative_ms"), figure("iterative_deviation_ms")),
                entry(measured.speedup(*members, ms, distribution), None),
                Entry::ratio(old.map(|old| old.multi), figure("multi_ms")),
            ]);
            if distribution == Distribution::Constant {
                line.extend(match paper::rpc2(*members, ms, distribution) {
                    Some((multi, iterative)) => {
                        [multi, iterative].map(Entry::printed).into_iter().chain([fixed(iterative / multi)])
                    }
                    None => [(); 2].map(|()| not_measured()).into_iter().chain([not_measured()]),
                });
            }
        }
        table.line(line);
    }
    Item::Table(table)
}

/// Section VI-B3: the share of what is sent again.
fn routed(measured: &Measured<'_>) -> Item {
    let rows = measured.routed;
    let is_void = rows.is_some_and(|rows| rows.all().any(Row::is_void));
    let about = About {
        conditions: conditions(rows),
        void: conditions(rows).iter().filter_map(|line| Some(line.strip_prefix("void: ")?.to_owned())).collect(),
        finding: format!(
            "Retries were rare below some 25 servers, and sometimes a quarter of all packets beyond 50. The authors \
             supposed that routers were overloaded by replies that arrive together, and found that computation times \
             which vary do not help. {}",
            retries(measured)
        ),
        changed: "one router between network namespaces, slow by intention, is there instead of the campus network. \
                  It takes 0.8 ms for a reply of whatever length: the replies of a hundred servers take 4 times the \
                  shortest retransmission time of farcall (20 ms), as they took 4.3 times that of RPC2 (236 ms by its \
                  defaults; the paper does not tell it). Servers compute for 2 ms, which is as long beside that time \
                  as the paper's 20 ms. The router queues 25 replies, so where losses begin is set, not found; how \
                  much is sent again is found. Requests do not wait there: today's client sends a hundred in less \
                  than a millisecond, and would lose them where the paper's, which took 6 ms for each, lost none. \
                  Farcall asks a server that is known to execute a call by a probe, where RPC2 sent the call again, \
                  so probes are counted too"
            .into(),
        ..About::new(
            "Section VI-B3",
            "Packets sent again, in percent of all that the client sends; servers compute for 2 ms",
        )
    };
    let mut table = Table::new(about, &["servers"]).with("1990", Whose::Paper, &["all at once, at most %"]);
    for one in DISTRIBUTIONS {
        let columns = ["all at once, %", "one by one, %", "m, ms", "r, ms"];
        table = table.with(&format!("{}, now", described(one)), Whose::Now, &columns);
    }
    for members in ROUTED.split(',').filter_map(|members| members.parse().ok()) {
        let old = paper::retries(members).map(Entry::printed);
        let old = old.unwrap_or_else(|| Entry::missing("the paper says only that retries increased"));
        let mut line = vec![Entry::name(members.to_string()), old];
        for one in DISTRIBUTIONS {
            let figure = |part, name| measured.routed(members, one, part, name);
            let cell = |value: Option<f64>, deviation| match value {
                None if is_void => Entry::missing("it is void, as is said below"),
                value => entry(value, deviation),
            };
            line.extend([
                cell(figure(AT_ONCE, "again_percent"), None),
                cell(figure(ONE_BY_ONE, "again_percent"), None),
                cell(figure(AT_ONCE, "multi_ms"), figure(AT_ONCE, "multi_deviation_ms")),
                cell(figure(ONE_BY_ONE, "iterative_ms"), figure(ONE_BY_ONE, "iterative_deviation_ms")),
            ]);
        }
        table.line(line);
    }
    Item::Table(table)
}

const DISTRIBUTIONS: [Distribution; 3] =
    [Distribution::Constant, Distribution::Normal, Distribution::Exponential];

/// The rows of calls of all servers at once.
const AT_ONCE: &str = "all at once";
/// The rows of calls of one server after the other.
const ONE_BY_ONE: &str = "one by one";

/// Returns what is sent again now.
fn retries(measured: &Measured<'_>) -> String {
    let most = |members: &dyn Fn(usize) -> bool| {
        let known = ROUTED.split(',').filter_map(|text| text.parse().ok()).filter(|n| members(*n));
        let percents =
            known.flat_map(|n| DISTRIBUTIONS.map(|one| measured.routed(n, one, AT_ONCE, "again_percent")));
        percents.flatten().reduce(f64::max)
    };
    let constant = |part, figure| measured.routed(100, Distribution::Constant, part, figure);
    let times = constant(AT_ONCE, "multi_ms").zip(constant(ONE_BY_ONE, "iterative_ms"));
    let (Some(few), Some(many), Some((m, r))) = (most(&|n| n < 25), most(&|n| n > 50), times) else {
        return "It was not measured now.".to_owned();
    };
    let worth = match m < r {
        true => "still less than one by one",
        false => "more than one by one, which loses nothing, whereas the paper's m was always less than r",
    };
    format!(
        "Now it is at most {few:.1} % below 25 servers, and up to {many:.1} % at 100, and every call succeeds. Calls \
         whose replies were lost together are sent again at about the same time, and some lose their replies again. \
         With each try farcall waits twice as long for that call. So a hundred servers take {m:.0} ms at once: \
         {worth} ({r:.0} ms)."
    )
}

/// Figure 8.
fn prediction(measured: &Measured<'_>) -> Item {
    let panel = |caption: &str, of: &dyn Fn(usize, u32) -> Option<f64>| Panel {
        caption: caption.to_owned(),
        curves: paper::COMPUTATION.map(|ms| curve(format!("{ms} ms"), |n| of(n, ms), false)).into(),
    };
    let old = |n: usize, ms: u32| {
        let components = paper::COMPONENTS.map(|(_, milliseconds)| milliseconds);
        let multi = paper::model(&components, n, f64::from(ms));
        Some(n as f64 * (paper::NULL.iterative + f64::from(ms)) / multi)
    };
    let new = |n: usize, ms: u32| measured.predicted(n, ms).map(|(multi, iterative)| iterative / multi);
    let about = About {
        finding:
            "The speedup rises, and then stays where it is. With today's components it has not reached that \
                  level at 100 servers."
                .into(),
        ..About::new("Figure 8", "Performance as predicted by the model, constant computation times")
    };
    figure(about, vec![panel("1990", &old), panel("now", &new)])
}

/// Figures 9 to 11.
fn fit(measured: &Measured<'_>, number: u8, ms: u32) -> Item {
    let components = paper::COMPONENTS.map(|(_, milliseconds)| milliseconds);
    let old = |n: usize| {
        let multi = paper::model(&components, n, f64::from(ms));
        (n <= 20).then(|| n as f64 * (paper::NULL.iterative + f64::from(ms)) / multi)
    };
    let panels = vec![
        Panel {
            caption: format!("{ms} ms, 1990"),
            curves: vec![
                curve(
                    "measured".into(),
                    |n| theirs(n, ms, Distribution::Constant).filter(|_| n <= 20),
                    false,
                ),
                curve("predicted".into(), old, true),
            ],
        },
        Panel {
            caption: format!("{ms} ms, now"),
            curves: vec![
                curve("measured".into(), |n| measured.speedup(n, ms, Distribution::Constant), false),
                curve("predicted".into(), |n| measured.predicted(n, ms).map(|(m, r)| r / m), true),
            ],
        },
    ];
    let about = About {
        finding:
            "The model predicted slightly better performance than was measured, and the fit was good. Where \
                  the curves part now, the machine's two cores are busy with as many servers as there were \
                  workstations, which the model does not know."
                .into(),
        ..About::new(
            &format!("Figure {number}"),
            format!("Predicted and measured performance, computation of {ms} ms"),
        )
    };
    figure(about, panels)
}

/// Figures 12 to 14.
fn speedup(measured: &Measured<'_>, number: u8, distribution: Distribution) -> Item {
    let panel = |caption: &str, of: &dyn Fn(usize, u32) -> Option<f64>| Panel {
        caption: caption.to_owned(),
        curves: paper::COMPUTATION.map(|ms| curve(format!("{ms} ms"), |n| of(n, ms), false)).into(),
    };
    let about = About {
        finding:
            "The speedup fell beyond some 25 to 50 servers, where packets were lost. On one machine it does \
                  not fall."
                .into(),
        ..About::new(
            &format!("Figure {number}"),
            format!("Measured performance with {} computation times", described(distribution)),
        )
    };
    let panels = vec![
        panel("1990", &|n, ms| theirs(n, ms, distribution)),
        panel("now", &|n, ms| measured.speedup(n, ms, distribution)),
    ];
    figure(about, panels)
}

/// Returns what the figures say of the speedup beyond 50 servers.
fn at_scale(measured: &Measured<'_>, distribution: Distribution) -> &'static str {
    let at = |members: usize, ms: u32| measured.speedup(members, ms, distribution);
    let grows = |ms: &u32| at(100, *ms).zip(at(50, *ms)).map(|(most, half)| most > half);
    match paper::COMPUTATION.iter().map(grows).collect::<Option<Vec<bool>>>() {
        None => "It was not measured now.",
        Some(grown) if grown.iter().all(|grown| *grown) => "Here 100 servers give a higher speedup than 50.",
        Some(grown) if grown.iter().any(|grown| *grown) => {
            "Here 100 servers give a higher speedup than 50 for some of the computation times."
        }
        Some(_) => "Here too, 100 servers give no higher speedup than 50.",
    }
}

/// Returns r/m as the paper has it.
fn theirs(members: usize, ms: u32, distribution: Distribution) -> Option<f64> {
    let line = paper::table(distribution).iter().find(|line| line.0 == members)?;
    let column = paper::COMPUTATION.iter().position(|known| *known == ms)?;
    line.1[column].map(|figure| figure.iterative / figure.multi)
}

/// Returns a curve through all numbers of servers that have a value.
fn curve(name: String, value: impl Fn(usize) -> Option<f64>, thin: bool) -> Curve {
    let point = |members: &str| members.parse().ok().and_then(|n: usize| Some((n as f64, value(n)?)));
    Curve { name, points: MEMBERS.split(',').filter_map(point).collect(), thin }
}

fn figure(about: About, panels: Vec<Panel>) -> Item {
    Item::Curves(Curves { about, axes: ("servers".into(), "r/m".into()), panels })
}

fn described(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Constant => "constant",
        Distribution::Normal => "normally distributed",
        Distribution::Exponential => "exponentially distributed",
    }
}

/// Returns an old figure with two digits after the point, as the paper prints it.
fn fixed(value: f64) -> Entry {
    Entry { text: format!("{value:.2}"), ..Entry::figure(value) }
}

/// Returns a new figure.
fn entry(value: Option<f64>, deviation: Option<f64>) -> Entry {
    match (value, deviation) {
        (Some(value), Some(deviation)) => Entry::figure(value).deviating(deviation),
        (Some(value), None) => Entry::figure(value),
        (None, _) => Entry::missing(FAILED),
    }
}

/// Returns the cell of a row for which RPC2 has no figure.
fn not_measured() -> Entry {
    Entry::missing("RPC2 2.38 was not measured with so many servers")
}

fn conditions(rows: Option<&Rows>) -> Vec<String> {
    rows.map(Rows::conditions).unwrap_or_default()
}

fn void(rows: Option<&Rows>) -> Vec<String> {
    let is_void = rows.is_some_and(|rows| rows.all().any(Row::is_void));
    is_void
        .then(|| "the raw loop is not as fast as itself, so other programs were running".to_owned())
        .into_iter()
        .collect()
}
