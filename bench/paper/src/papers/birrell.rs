//! Birrell & Nelson 1984: Cedar RPC. `farcall-bench-cedar` measures and makes the tables.

use anyhow::Result;
use farcall_bench_method::paper::Item;

use super::{Name, Paper, as_written, say};
use crate::run::{Found, Gives, Step};

pub const PAPER: Paper = Paper {
    name: Name::Birrell,
    key: "birrell",
    title: "Implementing Remote Procedure Calls",
    authors: "Birrell and Nelson",
    year: 1984,
    published: "ACM Transactions on Computer Systems 2(1), February 1984, pages 39 to 59",
    about: "The remote procedure call package of the Cedar project: stubs that a program makes, a packet \
            protocol for calls alone, and binding through Grapevine. Its table I has twelve procedures, each \
            called 12,000 times between two Dorados on an Ethernet of 2.94 Mbit/s. Here client and server \
            are processes of one machine, with a core each, that call each other over loopback. Much data is \
            transferred between two network namespaces, by a cable of 3 Mbit/s.",
    steps: &[Step {
        what: "table I and section 4",
        package: "farcall-bench-cedar",
        arguments: |quick| if quick { vec!["--quick"] } else { Vec::new() },
        gives: Gives::Items,
        seconds: [300, 105],
    }],
    items,
};

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let mut items = as_written(found);
    say(
        &mut items,
        &["Table I"],
        "Birrell and Nelson found that a null call took about a millisecond, of which its two packets spent \
         an eighth on the Ethernet; that most of what arguments and results added was their transmission; \
         and that an exception, which needs two packets more, made a call two to three times as long. The \
         packets are still two and four, and a call with an exception now takes about twice as long as a \
         null call, whether it is resumed or unwound. What a call costs is elsewhere: it is some fifteen \
         times as fast or more, its time is that of sending packets and waking processes, and 100 words \
         hardly show in it. On their Ethernet its packets, longer by the headers of \
         UDP and IP, would take many times as long as the whole call takes now. A local call became \
         thousands of times as fast, so a null call, which then took as long as a hundred local ones, now \
         takes as long as tens of thousands. Only the local calls with an exception, for each of which a \
         thread starts here, gained little.",
        "packets go over loopback, not an Ethernet, so the elapsed times have no transmission in them. \
         Transmission is computed as in the paper, from the sizes of our packets at 2.94 Mbit/s; they are \
         read off between client and server, and 28 bytes of UDP and IP headers are added to each. A word of \
         16 bits has 4 bytes in XDR. A local call is shorter than a reading of the clock, so it is timed in \
         laps of 1,000. The local calls with an exception go through a stub in the same process, because a \
         signal is raised in a call; a thread starts for each.",
    );
    say(
        &mut items,
        &["Table I, packets"],
        "The authors made a protocol for calls alone, and held it possible that it is ten times as fast \
         as one made for streams. A call now takes little longer than as many equally long datagrams take by \
         system calls alone, so such a protocol costs nearly nothing beside the kernel's work, with an \
         exception as without. The paper's calls had no encryption. Here keys add eight bytes to \
         each packet.",
        "the paper has no such figures.",
    );
    say(
        &mut items,
        &["Table I, other ways"],
        "The paper's calls had no encryption, though its package offered it. Keys now add a small part to \
         the time of a call. Shared memory saves little of such short calls where both sides sleep while \
         they wait, because most of the time is that of waking them.",
        "the paper has no such figures.",
    );
    say(
        &mut items,
        &["Section 4"],
        "Birrell and Nelson reached two thirds of the Ethernet's rate by parallel calls from several \
         processes, as much as their best byte stream. They hid the time that a process waits for its \
         result, then a millisecond of the processors for each call. That is now a small part of the three \
         milliseconds that 1,024 bytes take on such a network, so one process comes near the rate of eight, \
         unless other programs keep the processors busy. Calls of several processes come within about a \
         tenth of TCP's rate, and no longer reach it, because the stream now fills nearly the whole network, \
         and packets of calls have more bytes beside their data. One call with all data as its argument \
         comes a little nearer.",
        "the paper says neither how many processes called nor how long the arguments were: its figure stands \
         beside 8 processes. The cable has no collisions and no other users, and carries both directions at \
         once. It is a token bucket that holds one packet: after a pause a packet passes at once, so on this \
         cable a single process does not lose, as it would on a wire, the tenth of its time in which a \
         result travels.",
    );
    items
}
