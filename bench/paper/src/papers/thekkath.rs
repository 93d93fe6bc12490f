//! Thekkath, Levy & Lazowska 1994: data and control apart. `farcall-bench memory` measures, and
//! `farcall-bench-nfs mix` counts what a file server does.

use anyhow::Result;
use farcall_bench_method::chart::{Bars, Curve, Panel};
use farcall_bench_method::paper::{About, BarChart, Curves, Entry, Item, Table, Whose};

use super::{Name, Paper};
use crate::rows::{Row, Rows};
use crate::run::{Found, Gives, Step};

pub const PAPER: Paper = Paper {
    name: Name::Thekkath,
    key: "thekkath",
    title: "Separating Data and Control Transfer in Distributed Operating Systems",
    authors: "Thekkath, Levy and Lazowska",
    year: 1994,
    published: "ASPLOS VI, October 1994",
    about: "Processes read, write, and compare and swap words of one another's memory, without a call, and without \
            the other process having to run; services are built of that. Here accesses go over UDP to the \
            exporter's runtime, which executes them without any procedure, or, on one machine, straight to mapped \
            memory.",
    steps: &[
        Step {
            what: "a day of a file server",
            package: "farcall-bench-nfs",
            arguments: |quick| vec!["mix", "--operations", if quick { "3000" } else { "40000" }],
            gives: Gives::Items,
            seconds: [40, 5],
        },
        memory("accesses", "accesses", [120, 30]),
        memory("the name service", "names", [60, 15]),
        memory("look-ups of names that collide", "collisions", [90, 25]),
        memory("operations of a file service", "service", [180, 45]),
        memory("the server's work", "server", [60, 30]),
    ],
    items,
};

/// Returns the step that runs a part of `farcall-bench memory`.
const fn memory(what: &'static str, part: &'static str, seconds: [u64; 2]) -> Step {
    // (A pointer to a function cannot hold the part's name.)
    let arguments: fn(bool) -> Vec<&'static str> = match part.as_bytes() {
        b"accesses" => |quick| of("accesses", quick),
        b"names" => |quick| of("names", quick),
        b"collisions" => |quick| of("collisions", quick),
        b"service" => |quick| of("service", quick),
        _ => |quick| of("server", quick),
    };
    Step { what, package: "farcall-bench", arguments, gives: Gives::Rows, seconds }
}

fn of(part: &'static str, quick: bool) -> Vec<&'static str> {
    let mut words = vec!["memory", "--part", part, "--pin", "0,1"];
    words.extend(quick.then_some("--quick"));
    words
}

/// What the failed steps leave out.
const FAILED: &str = "the program that measures it failed";

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let rows = |step: usize| found.get(step).and_then(|found| Some(&found.as_ref().ok()?.rows));
    let mut items: Vec<Item> = found.iter().take(1).flatten().flat_map(|found| found.items.clone()).collect();
    items.extend([accesses(rows(1)), names(rows(2)), collisions(rows(3)), latency(rows(4)), server(rows(5))]);
    items
}

/// Table 2, in microseconds and Mbit/s.
fn accesses(rows: Option<&Rows>) -> Item {
    let about = About {
        finding: "A read, write or swap of another machine's memory took a small multiple of what a local access \
                  took, and telling the other process of it took several times the access. Both hold: over UDP an \
                  access takes about what a bare round trip of datagrams takes, mapped a few nanoseconds, and a \
                  notice, which has to wake a thread, costs more than the access."
            .into(),
        changed: "an access has 32 bytes, not 40; between processes of one machine instead of two machines on an \
                  ATM network; blocks of 4 KiB with 64 under way over UDP"
            .into(),
        ..about(rows, "Table 2", "Performance of remote memory operations")
    };
    let mut table = Table::new(about, &["operation"])
        .with("1994", Whose::Paper, &[""])
        .with("over UDP", Whose::Now, &[""])
        .with("mapped", Whose::Now, &[""])
        .with("1994 ÷ UDP", Whose::Ratio, &[""]);
    let time = |peer: &str, bytes: u32| median(rows?, peer, bytes);
    let rate = |peer: &str| Some(4096.0 * 8.0 / time(peer, 4096)?);
    let mut line = |name: &str, old: f64, udp: Option<f64>, mapped: Option<f64>, ratio: Entry| {
        table.line([Entry::name(name), Entry::printed(old), entry(udp), entry(mapped), ratio]);
    };
    for (name, old, operation) in
        [("read", 45.0, "read"), ("write", 30.0, "write"), ("compare and swap", 38.0, "cas")]
    {
        let (udp, mapped) =
            (time(&format!("memory-{operation}"), 32), time(&format!("mapped-{operation}"), 32));
        line(&format!("{name}, µs"), old, udp, mapped, Entry::ratio(Some(old), udp));
    }
    let (udp, mapped) = (rate("memory-write-64"), rate("mapped-write-bytes"));
    line("throughput, 4 KiB written, Mbit/s", 35.4, udp, mapped, Entry::ratio(Some(35.4), udp));
    // The time until the exporter is notified does not contain the second half of the write's round trip.
    let notified = || Some(time("memory-notify", 32)? - time("memory-write", 32)? / 2.0);
    let notified = notified();
    table.line([
        Entry::name("notification, beyond the access, µs"),
        Entry::printed(260.0),
        entry(notified),
        Entry::missing("a mapped access never notifies; one with notice goes over UDP"),
        Entry::ratio(Some(260.0), notified),
    ]);
    Item::Table(table)
}

/// Table 3, in microseconds.
fn names(rows: Option<&Rows>) -> Item {
    let about = About {
        finding: "Finding a name on another machine took hardly longer than one remote read, and asking the other \
                  clerk, with control transfer, more than twice as long. Both hold."
            .into(),
        changed: "export, import and revoke include this program's own work for a segment: mapping memory, and the \
                  question to the exporter that proves that the entry is true"
            .into(),
        ..about(rows, "Table 3", "Performance of the name server, in microseconds")
    };
    let mut table = Table::new(about, &["operation"])
        .with("1994", Whose::Paper, &["cached", "uncached"])
        .with("now", Whose::Now, &["cached", "uncached"])
        .with("1994 ÷ now", Whose::Ratio, &["cached", "uncached"]);
    let time = |name: &str| median(rows?, &format!("names-{name}"), 128);
    let none = || Entry::missing("it is never cached, as in the paper");
    for (name, old, peer) in [("Export (ADDNAME)", 665.0, "export"), ("Revoke (DELETENAME)", 307.0, "revoke")]
    {
        let new = time(peer);
        table.line([
            Entry::name(name),
            Entry::printed(old),
            none(),
            entry(new),
            none(),
            Entry::ratio(Some(old), new),
            none(),
        ]);
    }
    let (cached, uncached) = (time("import-cached"), time("import"));
    table.line([
        Entry::name("Import (LOOKUP)"),
        Entry::printed(196.0),
        Entry::printed(264.0),
        entry(cached),
        entry(uncached),
        Entry::ratio(Some(196.0), cached),
        Entry::ratio(Some(264.0), uncached),
    ]);
    let asking = time("look-up-asking");
    table.line([
        Entry::name("LOOKUP with notification"),
        none(),
        Entry::printed(524.0),
        none(),
        entry(asking),
        none(),
        Entry::ratio(Some(524.0), asking),
    ]);
    Item::Table(table)
}

/// Section 4.2: what a look-up costs when names collide.
fn collisions(rows: Option<&Rows>) -> Item {
    const WAYS: [(&str, &str); 3] =
        [("read", "probe"), ("ask", "transfer control"), ("read-then-ask", "probe, then transfer")];
    let at = |way: &str, count: u32| median(rows?, &format!("names-{way}-{count}"), 128);
    let curves = WAYS.map(|(way, name)| Curve {
        name: name.to_owned(),
        points: (0..=8).filter_map(|count| Some((f64::from(count), at(way, count)?))).collect(),
        thin: false,
    });
    let crossing = (0..=8).find(|first| {
        (*first..=8)
            .all(|count| at("ask", count).zip(at("read", count)).is_some_and(|(ask, read)| ask < read))
    });
    let crossing = match crossing {
        Some(count) => format!("Here asking is faster from {count} collisions on"),
        None => "Here asking is not faster with up to 8 collisions".to_owned(),
    };
    let finding = format!(
        "From some seven collisions on, the authors would ask the other clerk instead of reading further places of \
         its table. {crossing}, because a clerk reads eight places at once after the first."
    );
    let about = About {
        finding,
        ..about(
            rows,
            "Section 4.2",
            "Look-up of a name that collides with others, for each of the three options",
        )
    };
    let panel = Panel { caption: "Look-up".into(), curves: curves.into() };
    Item::Curves(Curves { about, axes: ("collisions".into(), "µs".into()), panels: vec![panel] })
}

/// The operations of figures 2 and 3, in their order.
const OPERATIONS: [&str; 7] = ["getattr", "lookup", "readlink", "read-8k", "read-4k", "readdir", "write"];
const STRUCTURES: [&str; 4] = ["RPC", "HY", "DX", "WR"];

/// Figure 2.
fn latency(rows: Option<&Rows>) -> Item {
    let panels = [("udp", "over UDP"), ("mapped", "by mapped memory, and calls through shared memory")];
    let panels = panels.map(|(transport, name)| {
        let bar = |structure: &str, operation: &str| {
            let row = rows.and_then(|rows| {
                rows.find(&[
                    ("operation", operation.into()),
                    ("structure", structure.into()),
                    ("transport", transport.into()),
                ])
            });
            row.and_then(|row| row.figure("p50_us")).into_iter().collect()
        };
        Bars {
            caption: format!("Latency, {name}"),
            unit: "µs".into(),
            bars: STRUCTURES.map(str::to_owned).into(),
            groups: groups(&bar),
        }
    });
    let about = About {
        finding: "In all cases reading the server's memory (DX) was significantly faster than the structure with \
                  control transfer (HY), the less so the more data is moved. That holds. A server that pushes \
                  changed entries to its clerks (WR) makes most operations local."
            .into(),
        changed: "the paper's figure has bars without numbers, so it is not drawn again; whole remote calls (RPC) and \
                  pushed entries (WR, section 5.1) stand beside its two structures"
            .into(),
        ..about(rows, "Figure 2", "Request processing latency seen by a client")
    };
    Item::Bars(BarChart { about, panels: panels.into() })
}

/// Figure 3.
fn server(rows: Option<&Rows>) -> Item {
    const COMPONENTS: [&str; 4] = ["data reception", "control transfer", "procedure", "data reply"];
    let bar = |structure: &str, operation: &str| {
        let part = |component: &&str| {
            let row = rows?.find(&[
                ("operation", operation.into()),
                ("structure", structure.into()),
                ("part", (*component).into()),
            ])?;
            Some((row.figure("server_user_instructions")? + row.figure("server_kernel_instructions")?) / 1e3)
        };
        COMPONENTS.iter().filter_map(part).collect()
    };
    let panel = Bars {
        caption: format!("The server's work. From below, ever paler: {}", COMPONENTS.join(", ")),
        unit: "thousands of instructions".into(),
        bars: STRUCTURES.map(str::to_owned).into(),
        groups: groups(&bar),
    };
    let about = About {
        finding: "With accesses alone the server did less than half of what it did with control transfer. The \
                  kernel's part of receiving and sending a datagram is nearly all of the server's work now, so the \
                  difference is smaller for a single operation."
            .into(),
        changed: "instructions instead of time, user's and kernel's; only over UDP, because a mapped access costs the \
                  server nothing"
            .into(),
        ..about(rows, "Figure 3", "Breakdown of server activity")
    };
    Item::Bars(BarChart { about, panels: vec![panel] })
}

fn groups(bar: &dyn Fn(&str, &str) -> Vec<f64>) -> Vec<(String, Vec<Vec<f64>>)> {
    let group = |operation: &str| {
        (operation.to_owned(), STRUCTURES.iter().map(|structure| bar(structure, operation)).collect())
    };
    OPERATIONS.into_iter().map(group).collect()
}

/// Returns the median time of a peer, in microseconds.
fn median(rows: &Rows, peer: &str, bytes: u32) -> Option<f64> {
    rows.find(&[("peer", peer.into()), ("bytes", bytes.into())])?.figure("p50_us")
}

fn entry(value: Option<f64>) -> Entry {
    value.map_or_else(|| Entry::missing(FAILED), Entry::figure)
}

fn about(rows: Option<&Rows>, number: &str, caption: &str) -> About {
    let is_void = rows.is_some_and(|rows| rows.all().any(Row::is_void));
    let void = is_void
        .then(|| "raw datagrams were not as fast as themselves, so other programs were running".into());
    About {
        conditions: rows.map(Rows::conditions).unwrap_or_default(),
        void: void.into_iter().collect(),
        ..About::new(number, caption)
    }
}
