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
            seconds: [5, 1],
        },
        measured(
            "accesses, a core for each side",
            |quick| memory(quick, "accesses", TWO_CORES, "udp,mapped"),
            [310, 36],
        ),
        measured("accesses, one core", |quick| memory(quick, "accesses", ONE_CORE, "udp"), [60, 10]),
        Step {
            what: "reads answered by the kernel",
            package: "farcall-bench-kernel",
            arguments: |quick| vec!["--rounds", if quick { "10" } else { "40" }],
            gives: Gives::Rows,
            seconds: [50, 13],
        },
        measured("the name service", |quick| memory(quick, "names", ONE_CORE, "udp"), [35, 4]),
        measured("names that collide, one core", |_| memory(true, "collisions", ONE_CORE, "udp"), [20, 20]),
        measured(
            "names that collide, a core for each side",
            |_| memory(true, "collisions", TWO_CORES, "udp"),
            [106, 106],
        ),
        measured(
            "operations of a file service",
            |_| memory(true, "service", ONE_CORE, "udp,mapped"),
            [50, 50],
        ),
        measured("the server's work", |quick| memory(quick, "server", ONE_CORE, "udp"), [160, 21]),
    ],
    items,
};

/// Returns a step that `farcall-bench memory` measures.
const fn measured(what: &'static str, arguments: fn(bool) -> Vec<&'static str>, seconds: [u64; 2]) -> Step {
    Step { what, package: "farcall-bench", arguments, gives: Gives::Rows, seconds }
}

/// Client and server have a core each. A core that has nothing to do sleeps, and is woken for each request.
const TWO_CORES: &str = "0,1";
/// Client and server share a core, so none sleeps.
const ONE_CORE: &str = "0,0";

/// Returns the arguments that run a part of `farcall-bench memory` on these cores. What has many peers is
/// always quick, so that all papers together take less than an hour.
fn memory(quick: bool, part: &'static str, cores: &'static str, carriers: &'static str) -> Vec<&'static str> {
    let mut words = vec!["memory", "--part", part, "--pin", cores, "--transport", carriers];
    words.extend(quick.then_some("--quick"));
    words
}

/// What the failed steps leave out.
const FAILED: &str = "the program that measures it failed";

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let rows = |step: usize| found.get(step).and_then(|found| Some(&found.as_ref().ok()?.rows));
    let mut items: Vec<Item> = found.iter().take(1).flatten().flat_map(|found| found.items.clone()).collect();
    items.extend([
        accesses(&Accesses { apart: rows(1), together: rows(2), kernel: rows(3) }),
        names(rows(4)),
        collisions(rows(5), rows(6)),
        latency(rows(7)),
        server(rows(8)),
    ]);
    items
}

/// What was measured of accesses.
struct Accesses<'a> {
    apart: Option<&'a Rows>,
    together: Option<&'a Rows>,
    kernel: Option<&'a Rows>,
}

impl Accesses<'_> {
    /// Returns the times of a peer in microseconds: with a core for each side, and with one core.
    fn times(&self, peer: &str, bytes: u32) -> [Option<f64>; 2] {
        [self.apart, self.together].map(|rows| median(rows?, peer, bytes))
    }

    /// Returns how long it takes until the exporter is notified, beyond the access. That time does not
    /// contain the second half of the access's round trip.
    fn notified(&self) -> [Option<f64>; 2] {
        let [notices, writes] = ["memory-notify", "memory-write"].map(|peer| self.times(peer, 32));
        std::array::from_fn(|place| Some(notices[place]? - writes[place]? / 2.0))
    }

    /// Returns the time of a read of 32 bytes that the kernel answers; the faster of the two modes.
    fn kernel(&self) -> Option<f64> {
        let rows = self.kernel?.all().filter(|row| row.text("peer") == Some("kernel"));
        rows.filter_map(|row| row.figure("p50_us")).reduce(f64::min)
    }

    /// Says of the paper's findings what the figures say.
    fn finding(&self) -> String {
        let old = "A read, write or swap of another machine's memory took some tens of microseconds, little more than \
                   the network and its controllers took, and telling the other process of it took several times the \
                   access: so services should move data without it.";
        let [apart, together] = self.times("memory-read", 32);
        let [notice_apart, notice_together] = self.notified();
        let new = || {
            let (apart, together) = (apart?, together?);
            let notice = match (notice_apart? < apart / 2.0, notice_together? < together / 2.0) {
                (true, true) => "a notice adds less than half an access",
                (true, false) => "a notice adds hardly anything to that, unless both share a core",
                _ => "a notice adds at least half an access to that",
            };
            let kernel = self.kernel().map_or(String::new(), |kernel| {
                format!(
                    " As in the paper, the other process need not run at all where its kernel answers: such a read took \
                     {kernel:.1} µs between two network namespaces, while the process was stopped."
                )
            });
            Some(format!(
                "Today most of an access over UDP is waking the process that serves it ({apart:.0} µs if its core sleeps, \
                 {together:.1} µs if both share one), so {notice}.{kernel} Mapped memory is a few nanoseconds away."
            ))
        };
        format!("{old} {}", new().unwrap_or_default()).trim_end().to_owned()
    }
}

/// Table 2, in microseconds and Mbit/s.
fn accesses(measured: &Accesses<'_>) -> Item {
    let all = [measured.apart, measured.together, measured.kernel];
    let about = About {
        finding: measured.finding(),
        changed: "an access has 32 bytes, not 40; between processes of one machine instead of two machines on an \
                  ATM network, over loopback (reads that the kernel answers: over a virtual cable); blocks of 4 KiB \
                  with 64 under way over UDP"
            .into(),
        ..about(&all, "Table 2", "Performance of remote memory operations")
    };
    let mut table = Table::new(about, &["operation"])
        .with("1994", Whose::Paper, &[""])
        .with("over UDP", Whose::Now, &["a core each", "one core"])
        .with("by the kernel", Whose::Now, &[""])
        .with("mapped", Whose::Now, &[""])
        .with("1994 ÷ UDP", Whose::Ratio, &["a core each", "one core"]);
    let mut line = |name: &str, old: f64, udp: [Option<f64>; 2], kernel: Entry, mapped: Entry| {
        // A notice is a difference of two times, which may be too small to be measured.
        let small = |time: &Option<f64>| time.is_some_and(|time| time <= 0.0);
        let too_small = || Entry::missing("too short, beside an access, to be measured");
        let cells = udp.map(|time| if small(&time) { too_small() } else { entry(time) });
        let ratios = udp.map(|time| if small(&time) { too_small() } else { Entry::ratio(Some(old), time) });
        let cells = [Entry::name(name), Entry::printed(old)].into_iter().chain(cells);
        table.line(cells.chain([kernel, mapped]).chain(ratios));
    };
    for (name, old, operation) in
        [("read", 45.0, "read"), ("write", 30.0, "write"), ("compare and swap", 38.0, "cas")]
    {
        let kernel = match operation {
            "read" => entry(measured.kernel()),
            _ => Entry::missing("the kernel answers reads alone: what changes memory must not be done twice"),
        };
        let [mapped, _] = measured.times(&format!("mapped-{operation}"), 32);
        let udp = measured.times(&format!("memory-{operation}"), 32);
        line(&format!("{name}, µs"), old, udp, kernel, entry(mapped));
    }
    let rate = |peer: &str| measured.times(peer, 4096).map(|time| Some(4096.0 * 8.0 / time?));
    line(
        "throughput, 4 KiB written, Mbit/s",
        35.4,
        rate("memory-write-64"),
        Entry::missing("the kernel answers reads alone, of up to 192 bytes"),
        entry(rate("mapped-write-bytes")[0]),
    );
    line(
        "notification, beyond the access, µs",
        260.0,
        measured.notified(),
        Entry::missing("the kernel wakes nobody"),
        Entry::missing("a mapped access never notifies; one with notice goes over UDP"),
    );
    Item::Table(table)
}

/// Table 3, in microseconds.
fn names(rows: Option<&Rows>) -> Item {
    let time = |name: &str| median(rows?, &format!("names-{name}"), 128);
    let (cached, uncached, asking) = (time("import-cached"), time("import"), time("look-up-asking"));
    let new = || {
        Some(format!(
            " Today an import that reads takes {:.1} µs longer than a cached one, and a remote read {:.1} µs; asking \
             takes {:.1} µs, reading alone {:.1} µs.",
            uncached? - cached?,
            median(rows?, "memory-read", 128)?,
            asking?,
            time("look-up")?,
        ))
    };
    let about = About {
        finding: format!(
            "An import that has to read the other machine's table took 68 µs longer than a cached one, hardly more \
             than a remote read; asking the other clerk, with control transfer, took twice as long as the whole \
             import.{}",
            new().unwrap_or_default()
        ),
        changed: "export, import and revoke include this program's own work for a segment: mapping memory, and the \
                  question to the exporter that proves that the entry is true. Client and server share a core"
            .into(),
        ..about(&[rows], "Table 3", "Performance of the name server, in microseconds")
    };
    let mut table = Table::new(about, &["operation"])
        .with("1994", Whose::Paper, &["cached", "uncached"])
        .with("now", Whose::Now, &["cached", "uncached"])
        .with("1994 ÷ now", Whose::Ratio, &["cached", "uncached"]);
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
    table.line([
        Entry::name("Import (LOOKUP)"),
        Entry::printed(196.0),
        Entry::printed(264.0),
        entry(cached),
        entry(uncached),
        Entry::ratio(Some(196.0), cached),
        Entry::ratio(Some(264.0), uncached),
    ]);
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
fn collisions(together: Option<&Rows>, apart: Option<&Rows>) -> Item {
    const WAYS: [(&str, &str); 3] =
        [("read", "probe"), ("ask", "transfer control"), ("read-then-ask", "probe, then transfer")];
    let panel = |caption: &str, rows: Option<&Rows>| {
        let at = |way: &str, count: u32| median(rows?, &format!("names-{way}-{count}"), 128);
        let curves = WAYS.map(|(way, name)| Curve {
            name: name.to_owned(),
            points: (0..=8).filter_map(|count| Some((f64::from(count), at(way, count)?))).collect(),
            thin: false,
        });
        Panel { caption: caption.to_owned(), curves: curves.into() }
    };
    let finding = format!(
        "From some seven collisions on, the authors would ask the other clerk instead of reading further places of \
         its table. Here a clerk reads eight places at once after the first, so up to eight collisions cost it one \
         more read. Where both sides share a core, {}; where each has one, and any request has to wake the other \
         side, {}.",
        crossing(together),
        crossing(apart),
    );
    let about = About {
        finding,
        ..about(
            &[together, apart],
            "Section 4.2",
            "Look-up of a name that collides with others, for each of the three options",
        )
    };
    let panels = vec![panel("Look-up, one core", together), panel("Look-up, a core for each side", apart)];
    Item::Curves(Curves { about, axes: ("collisions".into(), "µs".into()), panels })
}

/// Says from how many collisions on asking is faster than reading.
fn crossing(rows: Option<&Rows>) -> String {
    let at = |way: &str, count: u32| median(rows?, &format!("names-{way}-{count}"), 128);
    let first = (0..=8).find(|first| {
        (*first..=8)
            .all(|count| at("ask", count).zip(at("read", count)).is_some_and(|(ask, read)| ask < read))
    });
    match first {
        Some(1) => "asking is faster from one collision on".to_owned(),
        Some(count) => format!("asking is faster from {count} collisions on"),
        None => "asking is not faster with up to eight collisions".to_owned(),
    }
}

/// The operations of figures 2 and 3, in their order.
const OPERATIONS: [&str; 7] = ["getattr", "lookup", "readlink", "read-8k", "read-4k", "readdir", "write"];
const STRUCTURES: [&str; 4] = ["RPC", "HY", "DX", "WR"];

/// Figure 2.
fn latency(rows: Option<&Rows>) -> Item {
    let time = |transport: &str, structure: &str, operation: &str| {
        let row = rows?.find(&[
            ("operation", operation.into()),
            ("structure", structure.into()),
            ("transport", transport.into()),
        ]);
        row?.figure("p50_us")
    };
    let panels = [("udp", "over UDP"), ("mapped", "by mapped memory, and calls through shared memory")];
    let panels = panels.map(|(transport, name)| {
        let bar =
            |structure: &str, operation: &str| time(transport, structure, operation).into_iter().collect();
        Bars {
            caption: format!("Latency, {name}"),
            unit: "µs".into(),
            bars: STRUCTURES.map(str::to_owned).into(),
            groups: groups(&bar),
        }
    });
    let slower = |transport: &str| {
        let slower = |operation: &&str| {
            let times = time(transport, "DX", operation).zip(time(transport, "HY", operation));
            times.is_none_or(|(dx, hy)| dx >= hy)
        };
        match OPERATIONS.into_iter().filter(slower).collect::<Vec<_>>() {
            none if none.is_empty() => "in all operations".to_owned(),
            some if some.len() < OPERATIONS.len() => format!("in all operations but {}", some.join(", ")),
            _ => "in no operation".to_owned(),
        }
    };
    let about = About {
        finding: format!(
            "In all cases reading the server's memory (DX) was significantly faster than the structure with control \
             transfer (HY), the less so the more data is moved. Today DX is faster than HY {} over UDP, and {} if the \
             memory is mapped. DX writes a block by three accesses, because a token guards it; the paper's wrote it \
             by one. A server that pushes changed entries to its clerks (WR) makes most operations local.",
            slower("udp"),
            slower("mapped"),
        ),
        changed: "client and server share a core, because waking a core that sleeps costs several times what the \
                  structures differ by; the paper's figure has bars without numbers, so it is not drawn again; whole remote calls (RPC) and \
                  pushed entries (WR, section 5.1) stand beside its two structures"
            .into(),
        ..about(&[rows], "Figure 2", "Request processing latency seen by a client")
    };
    Item::Bars(BarChart { about, panels: panels.into() })
}

/// Figure 3.
fn server(rows: Option<&Rows>) -> Item {
    const COMPONENTS: [&str; 4] = ["data reception", "control transfer", "procedure", "data reply"];
    let parts = |structure: &str, operation: &str| -> Option<Vec<f64>> {
        let part = |component: &&str| {
            let row = rows?.find(&[
                ("operation", operation.into()),
                ("structure", structure.into()),
                ("part", (*component).into()),
            ])?;
            row.figure("server_cpu_us")
        };
        COMPONENTS.iter().map(part).collect()
    };
    let panel = Bars {
        caption: format!("The server's work. From below, ever paler: {}", COMPONENTS.join(", ")),
        unit: "µs".into(),
        bars: STRUCTURES.map(str::to_owned).into(),
        groups: groups(&|structure, operation| parts(structure, operation).unwrap_or_default()),
    };
    // Writing is left out, because DX does it by three accesses.
    let reading = || OPERATIONS.into_iter().filter(|operation| *operation != "write");
    let whole = |structure: &str| {
        reading().map(|operation| Some(parts(structure, operation)?.iter().sum::<f64>())).sum::<Option<f64>>()
    };
    let transfer = || reading().map(|operation| Some(parts("HY", operation)?[1])).sum::<Option<f64>>();
    let new = || {
        let (dx, hy) = (whole("DX")?, whole("HY")?);
        Some(format!(
            " Today, over the six operations that read, it does {:.2} of that; control transfer is {:.0} % of what it does \
             with it.",
            dx / hy,
            100.0 * transfer()? / hy
        ))
    };
    let about = About {
        finding: format!(
            "With accesses alone (DX) the server did less than half of what it did with control transfer (HY).{}",
            new().unwrap_or_default()
        ),
        changed:
            "client and server share a core. Only over UDP, because a mapped access costs the server nothing"
                .into(),
        ..about(&[rows], "Figure 3", "Breakdown of server activity: processor time of an operation")
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

/// Returns what stands around what was made of the rows of these steps.
fn about(steps: &[Option<&Rows>], number: &str, caption: &str) -> About {
    let steps = || steps.iter().copied().flatten();
    let is_void = steps().any(|rows| rows.all().any(Row::is_void));
    let void = is_void
        .then(|| "raw datagrams were not as fast as themselves, so other programs were running".into());
    let mut conditions = Vec::new();
    for line in steps().flat_map(Rows::conditions) {
        if !conditions.contains(&line) {
            conditions.push(line);
        }
    }
    About { conditions, void: void.into_iter().collect(), ..About::new(number, caption) }
}
