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
    published: "ACM Transactions on Computer Systems 2(1), February 1984",
    about: "x",
    steps: &[Step {
        what: "table I and section 4",
        package: "farcall-bench-cedar",
        arguments: |quick| if quick { vec!["--quick"] } else { vec![] },
        gives: Gives::Items,
        seconds: [240, 60],
    }],
    items,
};

fn items(found: &[Result<Found>]) -> Vec<Item> {
    let mut items = as_written(found);
    say(&mut items, &["Table I"], "", "");
    items
}
