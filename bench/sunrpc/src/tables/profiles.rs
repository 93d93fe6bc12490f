//! Tables 4a, 4b and 5: where the processor time goes, by function and by part.

use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};

use crate::figures::Figures;
use crate::paper::{Line, TABLE_4A, TABLE_4B, TABLE_5, TABLE_5_LAST, TABLE_5_SECONDS, TABLES_4_SECONDS};
use crate::parts::Part;
use crate::profile::Shares;
use crate::ways::{Language, Way};

/// Functions that the paper does not name are shown from this share on.
const SHOWN: f64 = 0.005;

/// How many calls the paper's profiles are of.
const CALLS: f64 = 3_000.0;

/// A profile of the paper.
#[derive(Clone, Copy)]
struct Old<'a> {
    lines: &'a [Line],
    /// The seconds of all functions together.
    seconds: f64,
}

impl Old<'_> {
    /// Returns the microseconds of an iteration.
    fn micros(self) -> f64 {
        self.seconds * 1e6 / CALLS
    }
}

/// One side of a profile, or why it is missing.
type Column<'a> = (String, Result<&'a Shares, String>);

/// The functions of today that do what a function of the paper did, and how the line is called.
const RENAMED: [(&str, &str, &[&str]); 7] = [
    ("sendto", "sendto", &["sendto", "sendmsg"]),
    ("recvfrom", "recvfrom", &["recvfrom", "recvmsg"]),
    ("select", "select (now poll)", &["poll", "ppoll", "select"]),
    ("main", "main (now the loop)", &["bench_call_datagrams", "bench_call_sun", "custom::Datagrams"]),
    ("bcopy", "bcopy (now memcpy)", &["memcpy", "memmove"]),
    ("callrpc", "callrpc (now the stubs)", &["none_1", "two_1", "four_1"]),
    ("xdr_long", "xdr_long (now xdr_int too)", &["xdr_long", "xdr_int32_t", "xdr_int"]),
];

pub fn items(figures: &Figures) -> Vec<Item> {
    let mut items = vec![custom(figures, false), custom(figures, true), sun(figures), ours(figures)];
    items.push(parts(figures));
    items.into_iter().map(Item::Table).collect()
}

/// Returns table 4a or 4b.
fn custom(figures: &Figures, polls: bool) -> Table {
    let (number, caption, lines): (_, _, &[Line]) = match polls {
        false => ("Table 4a", "Program 3 (UDP), blocking: the client's processor time", &TABLE_4A),
        true => ("Table 4b", "Program 3 (UDP) with select: the client's processor time", &TABLE_4B),
    };
    let column = |language, name: &str| {
        let way = Way::Custom { language, tcp: false, polls };
        (name.to_owned(), figures.profile(way).map(|profile| &profile.client))
    };
    let columns = [column(Language::C, "now, C"), column(Language::Rust, "now, Rust")];
    let old = Old { lines, seconds: TABLES_4_SECONDS[usize::from(polls)] };
    by_function(About::new(number, caption), Some(old), &columns)
}

/// Returns table 5.
fn sun(figures: &Figures) -> Table {
    let lines: Vec<Line> = TABLE_5.into_iter().chain([TABLE_5_LAST]).collect();
    let caption = "Program 2 (RPC): the client's processor time, and the server's too";
    let columns = sides(figures, Way::Tirpc, "now, libtirpc");
    let old = Old { lines: &lines, seconds: TABLE_5_SECONDS };
    by_function(About::new("Table 5", caption), Some(old), &columns)
}

/// Returns what table 5 is for farcall-onc.
fn ours(figures: &Figures) -> Table {
    let caption = "Program 2 (RPC) by farcall-onc: processor time by system call and by module";
    let columns = sides(figures, Way::Farcall, "now, farcall-onc");
    by_function(About::new("Table 5, farcall-onc", caption), None, &columns)
}

fn sides<'a>(figures: &'a Figures, way: Way, name: &str) -> [Column<'a>; 2] {
    let profile = figures.profile(way);
    [
        (format!("{name}, client"), profile.clone().map(|profile| &profile.client)),
        (format!("{name}, server"), profile.map(|profile| &profile.server)),
    ]
}

/// Returns a table with a line for each function: the paper's in its order, then others.
fn by_function(about: About, old: Option<Old<'_>>, columns: &[Column<'_>]) -> Table {
    let mut table = Table::new(about, &["function"]);
    if old.is_some() {
        table = table.with("client, 1989", Whose::Paper, &["% of time", "ms/call"]);
    }
    for (name, _) in columns {
        table = table.with(name, Whose::Now, &["% of time", "µs/iteration"]);
    }
    let lines = old.map_or(&[][..], |old| old.lines);
    if old.is_some() {
        table = table.with("1989 ÷ now", Whose::Ratio, &["client's time"]);
    }
    for &(name, percent, each) in lines {
        let (title, names) = today(name);
        let mut line = vec![Entry::name(title), Entry::printed(percent)];
        line.push(each.map_or_else(|| Entry::missing("the paper has no figure"), Entry::printed));
        line.extend(columns.iter().flat_map(|(_, shares)| cells(shares, &names)));
        let micros = old.map(|old| percent / 100.0 * old.micros());
        line.push(Entry::ratio(micros, line.get(4).and_then(|now| now.value)));
        table.line(line);
    }
    for name in others(lines, columns) {
        let mut line = vec![Entry::name(name.clone())];
        if old.is_some() {
            line.extend(["not among the paper's functions"; 2].map(Entry::missing));
        }
        line.extend(columns.iter().flat_map(|(_, shares)| cells(shares, &[&name])));
        line.extend(old.map(|_| Entry::ratio(None, None)));
        table.line(line);
    }
    table.line(total(old, columns));
    table
}

/// Returns how the line of a function of the paper is called, and which functions do its work today.
fn today(name: &'static str) -> (&'static str, Vec<&'static str>) {
    match RENAMED.iter().find(|(old, ..)| *old == name) {
        Some((_, title, names)) => (title, names.to_vec()),
        None => (name, vec![name]),
    }
}

/// Returns the share of these functions together, and their microseconds in each iteration.
fn cells(shares: &Result<&Shares, String>, names: &[&str]) -> [Entry; 2] {
    let shares = match shares {
        Ok(shares) => shares,
        Err(why) => return [Entry::missing(why.clone()), Entry::missing(why.clone())],
    };
    let here = shares.functions.iter().filter(|(function, _)| names.contains(&&*function.name));
    let share = here.fold(0.0, |sum, (_, share)| sum + share);
    if share == 0.0 {
        return ["it took no sample, or does not exist"; 2].map(Entry::missing);
    }
    [percent(share), Entry::figure(share * shares.micros)]
}

fn percent(share: f64) -> Entry {
    let value = share * 100.0;
    let text = if value != 0.0 && value < 1.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    Entry { text, ..Entry::figure(value) }
}

/// Returns the functions that the paper does not name, the dearest first.
fn others(lines: &[Line], columns: &[Column<'_>]) -> Vec<String> {
    let known: Vec<&str> = lines.iter().flat_map(|&(name, ..)| today(name).1).collect();
    let mut found: Vec<(f64, String)> = Vec::new();
    for (function, share) in
        columns.iter().flat_map(|(_, shares)| shares).flat_map(|shares| &shares.functions)
    {
        if *share < SHOWN || known.contains(&&*function.name) {
            continue;
        }
        match found.iter_mut().find(|(_, name)| *name == function.name) {
            Some((largest, _)) => *largest = largest.max(*share),
            None => found.push((*share, function.name.clone())),
        }
    }
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns the line of all functions together.
fn total(old: Option<Old<'_>>, columns: &[Column<'_>]) -> Vec<Entry> {
    let mut line = vec![Entry::name("all together, of an iteration")];
    if let Some(old) = old {
        line.extend([Entry::printed(100.0), Entry::figure(old.micros() / 1e3)]);
    }
    line.extend(columns.iter().flat_map(|(_, shares)| match shares {
        Ok(shares) => [Entry::printed(100.0), Entry::figure(shares.micros)],
        Err(why) => [Entry::missing(why.clone()), Entry::missing(why.clone())],
    }));
    let now = line.get(4).and_then(|now| now.value);
    line.extend(old.map(|old| Entry::ratio(Some(old.micros()), now)));
    line
}

/// Returns the shares by part.
fn parts(figures: &Figures) -> Table {
    let caption = "The same profiles by part: per cent of the processor time of each side";
    let mut table = Table::new(About::new("Tables 4 and 5, by part", caption), &["part"]);
    table =
        table.with("1989, clients", Whose::Paper, &["program 3, block", "program 3, select", "program 2"]);
    let custom = |polls| Way::Custom { language: Language::C, tcp: false, polls };
    let programs = [
        ("program 3 in C, block", custom(false)),
        ("program 3 in C, poll", custom(true)),
        ("program 2, libtirpc", Way::Tirpc),
        ("program 2, farcall-onc", Way::Farcall),
    ];
    for (name, _) in programs {
        table = table.with(&format!("now, {name}"), Whose::Now, &["client", "server"]);
    }
    for part in Part::ALL {
        let mut line = vec![Entry::name(part.name())];
        for lines in [&TABLE_4A[..], &TABLE_4B[..], &TABLE_5[..]] {
            line.push(percent(old_percent(lines, part) / 100.0));
        }
        for (_, way) in programs {
            match figures.profile(way) {
                Ok(profile) => {
                    line.extend([&profile.client, &profile.server].map(|side| percent(side.of(part))));
                }
                Err(why) => line.extend([Entry::missing(why.clone()), Entry::missing(why)]),
            }
        }
        table.line(line);
    }
    table
}

/// Returns the percentage of a part in a profile of the paper, which counts parts as section 4 does.
pub fn old_percent(lines: &[Line], part: Part) -> f64 {
    let of = |name: &str| match name {
        "sendto" | "recvfrom" | "select" => Part::Communication,
        "getsockname" | "ioctl" | "fstat" | "write" | "sbrk" => Part::Kernel,
        "callrpc" | "strcmp" => Part::Dispatch,
        "bcopy" | "seterr_reply" => Part::Xdr,
        name if name.starts_with("xdr") => Part::Xdr,
        _ => Part::Rest,
    };
    lines.iter().filter(|(name, ..)| of(name) == part).fold(0.0, |sum, (_, percent, _)| sum + percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4: 14 % for XDR and 3 % for dispatch, of the time of a call.
    #[test]
    fn parts_of_the_paper_are_as_it_says() {
        let percent = |part| old_percent(&TABLE_5, part);
        assert!((12.0..14.0).contains(&percent(Part::Xdr)));
        assert!((2.0..3.0).contains(&percent(Part::Dispatch)));
        assert!((72.0..73.0).contains(&percent(Part::Communication)));
    }
}
