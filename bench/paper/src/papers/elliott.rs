//! Elliott and Nutt 1989: the cost of Sun RPC. `farcall-bench-sunrpc` measures and makes the tables.

use anyhow::Result;
use farcall_bench_method::paper::Item;

use super::{Name, Paper, as_written, say};
use crate::run::{Found, Gives, Step};

pub const PAPER: Paper = Paper {
    name: Name::Elliott,
    key: "elliott",
    title: "Remarks on the Cost of Using a Remote Procedure Call Facility",
    authors: "Elliott and Nutt",
    year: 1989,
    published: "University of Colorado at Boulder, CU-CS-426-89",
    about: "What Sun RPC costs beside local calls (program 1) and beside servers that the authors wrote on \
        bare sockets, over UDP (program 3) and over TCP (program 4), between Sun 3/50s on an Ethernet: is \
        it worth while to leave out XDR, time-outs and general dispatch? Here program 2 is libtirpc, with \
        stubs by rpcgen, and farcall-onc; programs 1, 3 and 4 are in C and in Rust. Local is loopback, \
        remote is another network namespace.",
    steps: &[Step {
        what: "tables 1 to 5",
        package: "farcall-bench-sunrpc",
        arguments: |quick| if quick { vec!["--quick"] } else { Vec::new() },
        gives: Gives::Items,
        seconds: [240, 50],
    }],
    items,
};

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let mut items = as_written(found);
    measurement(&mut items);
    profiles(&mut items);
    items
}

/// Says what tables 1 to 3 show.
fn measurement(items: &mut [Item]) {
    say(
        items,
        &["Table 1"],
        "The same run, made again and again, deviated by up to 5 % from its average, which the authors put \
         down to other activity of the system. That still holds: a single run is uncertain by some per cent \
         on a quiet machine and by far more on a busy one. The programs of table 3 differ by little more \
         than that today, so only medians of many runs that took turns can tell them apart.",
        "more runs. Of today's times, each line is an interval; the last has the slowest twentieth.",
    );
    say(
        items,
        &["Table 1, drawn"],
        "In 1989 all runs lay within 6 % of their average. Where bars of today stand at the ends of the \
         picture, the machine was busy with other work.",
        "",
    );
    say(
        items,
        &["Table 2"],
        "A call of a local procedure took 4 to 5.5 µs with its loop. Today it takes one or two nanoseconds, \
         in C as in Rust: a few thousand times less. An argument of 2 or 4 bytes, which took another \
         microsecond, no longer costs anything that matters.",
        "the compilers optimise, but neither leaves out nor inlines the call: C has the procedures in \
         another file, Rust calls them through pointers.",
    );
    say(
        items,
        &["Table 3"],
        "A local Sun RPC took 4.2 ms, a thousand times as long as a local call. A custom server over UDP \
         was faster by more than a quarter, and remote calls took a quarter longer than local ones. Today a \
         call takes some tens of microseconds on an idle machine, and nearly all of that is the kernel's: \
         it wakes one process, then the other. All programs pay for that alike, so they lie close together, \
         libtirpc and farcall-onc among them. Local calls have become far cheaper still, so a remote call \
         is now worth tens of thousands of them. A virtual cable costs hardly more than loopback, because \
         it is no wire.",
        "remote is a network namespace beside a virtual cable (veth) of the same machine, not a \
         second machine on an Ethernet. Select is poll. No port mapper is asked: client and server are \
         given their sockets. Cells are medians of runs that took turns, with the standard deviation.",
    );
    say(
        items,
        &["Table 3, processor"],
        "The authors took their times by clock(), which counts the processor time of the process. Their \
         profile of program 2 adds up to 4.4 ms for a call, with the profiler's own part; that is what \
         table 3 says a call takes. So their times are most likely the client's processor time without its \
         waits for the server, and this table has the same for today. Here too the programs lie close \
         together.",
        "as in table 3.",
    );
}

/// Says what tables 4 and 5 and the conclusions show.
fn profiles(items: &mut [Item]) {
    let sampled = "perf samples instead of gprof's counts and samples. The kernel's time in a system call \
                   counts for that call, as it did for gprof. Times of today, and the ratios, are for one \
                   iteration, not for one call of the function; small shares rest on few samples.";
    say(
        items,
        &["Table 4a", "Table 4b"],
        "System calls took 97 % of the custom client's time, and select a quarter of it; but it added less \
         than half of that to a call, because recvfrom then took less. System calls still take nearly all. \
         What the client spends on going to sleep and waking moves from recvfrom to poll, and the receive \
         that follows is cheap: together they take little more than the blocking receive alone.",
        sampled,
    );
    say(
        items,
        &["Table 5"],
        "XDR's routines took an eighth of the client's time, callrpc and its comparison of names a \
         fortieth. The routines are the same today, but take only a few per cent of it at most: encoding \
         became cheaper with the processors, sending and waiting did not as much. Dispatch can hardly be \
         seen.",
        sampled,
    );
    say(
        items,
        &["Table 5, farcall-onc"],
        "The paper has no such table. Farcall-onc's client and server spend their time in the same two \
         system calls. At the server the largest part of its own is the memory of replies, by which a \
         repeated call does not run twice; libtirpc's server has none unless it is asked.",
        "functions are grouped by module, because the compiler inlines most of them; debugging information \
         tells what was inlined.",
    );
    say(
        items,
        &["Tables 4 and 5, by part"],
        "Communication by sockets was about 80 % of a Sun RPC, XDR 14 % and dispatch 3 %. Communication is \
         more than that today, at the client and at the server; XDR and dispatch are a few per cent \
         together, whether by libtirpc or by farcall-onc.",
        "the paper's shares are sums of its tables' lines; the profiler's own part is among the rest.",
    );
    say(
        items,
        &["Section 4"],
        "The authors gained 29 % by leaving out RPC's functions, 20 % if they kept select, and advised \
         against it for all but simple programs. Today there is some per cent to gain, and the advice holds \
         all the more. What they said of the whole holds too: the way to be faster is not to call remotely.",
        "ratios are medians over runs that were neighbours in time, then means over sizes and places. \
         Shares of elapsed time count the client's processor alone; the rest is the server's and the \
         kernel's waking of both. The paper prints 584 µs for XDR; its lines add up to 1,644 ms for 3,000 \
         calls, which is 548 µs, or 13 %.",
    );
}
