//! Tests `clerk`: a machine's clerk in a process of its own, and one that stands by.

use farcall::memory::{Memory, Rights, Settings};
use farcall::{Runtime, names};

use crate::common::Place;

#[test]
fn a_clerk_that_is_killed_is_replaced_by_one_that_stands_by() {
    let place = Place::new();
    let first = place.start(&["clerk"]);
    assert!(first.first.starts_with("this machine's clerk is at 127.0.0.1:"), "{}", first.first);
    let mut second = place.start(&["clerk", "--ask-after", "2", "--slots", "64"]);
    assert!(second.first.starts_with("standing by: another process has this machine's clerk, at 127.0.0.1:"));

    let runtime = || Runtime::builder().registry(names::File::at(place.registry())).build().unwrap();
    let exporter = runtime();
    let segment = exporter.export_segment("Load", Settings::new(64).anyone(Rights::READ)).unwrap();
    segment.store(0, 7).unwrap();
    assert_eq!(runtime().import_segment("Load").unwrap().load(0).unwrap(), 7);

    drop(first); // it is killed
    let line = second.line();
    assert!(line.starts_with("this machine's clerk is at 127.0.0.1:"), "{line}");
    assert_eq!(runtime().import_segment("Load").unwrap().load(0).unwrap(), 7, "from the exporter itself");
    let said = second.interrupt();
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}
