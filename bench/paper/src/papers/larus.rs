//! Larus 1983: Courier under 4.1c BSD. `farcall-bench-courier` measures and makes the tables.

use anyhow::Result;
use farcall_bench_method::paper::Item;

use super::{Name, Paper, as_written, say};
use crate::run::{Found, Gives, Step};

pub const PAPER: Paper = Paper {
    name: Name::Larus,
    key: "larus",
    title: "On the Performance of Courier Remote Procedure Calls Under 4.1c BSD",
    authors: "Larus",
    year: 1983,
    published: "University of California, Berkeley, UCB/CSD 83/123",
    about: "Calls by Xerox's Courier over TCP and, as an experiment, over one UDP packet each way, of 0, 4, 400 \
            and 4,000 bytes, with and without a result, between VAXes and Suns on Ethernets of 3 and 10 Mbit/s. \
            Here client and server are processes of one machine, in two network namespaces with a cable of \
            those rates, and on loopback.",
    steps: &[Step {
        what: "tables 1 to 11",
        package: "farcall-bench-courier",
        arguments: |quick| match quick {
            true => vec!["--calls", "100", "--runs", "2", "--profiles", "1"],
            false => vec!["--calls", "400", "--runs", "4", "--profiles", "2"],
        },
        gives: Gives::Items,
        seconds: [480, 60],
    }],
    items,
};

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let mut items = as_written(found);
    say(
        &mut items,
        &["Table 1", "Table 2"],
        "Larus found that a call by stream took two to three times as long as one by packets, and that lost \
         packets, each of which cost a wait of seconds, made the averages of PCourier. Today a call \
         with a result takes up to half as long again by stream on a slow cable, where TCP's longer headers count, \
         and hardly longer on a fast one. A call without a result is faster by stream on a slow cable, because \
         TCP puts many into a packet. Nothing is lost between two namespaces.",
        "the cables of the experiment are virtual, and have its rates but not its collisions; there are fewer \
         calls in a run, and all times are scaled to 2,000.",
    );
    say(
        &mut items,
        &["Table 3", "Table 4"],
        "Per call, processors then took most of the time, even on the slow network. Today a slow cable takes \
         nearly all of it, and loopback shows what the program and the kernel take.",
        "",
    );
    say(
        &mut items,
        &["Table 5", "Table 6", "Table 7", "Table 8"],
        "System calls for sending took most of the client's processor time, and swapping the bytes of 4,000-byte \
         arguments three quarters of it. System calls still take most; swapping bytes is a small part now.",
        "processor time is read from the thread's clock around each system call in runs of their own, where \
         the paper used gprof. The total is of other runs, so shares may add up to more than 100 %.",
    );
    say(
        &mut items,
        &["Table 9", "Table 10", "Table 11"],
        "Courier over TCP cost two to four times what packets cost, and the faster network changed little, \
         because the processors were the limit. Now the network is the limit on both cables, so its speed shows.",
        "",
    );
    items
}
