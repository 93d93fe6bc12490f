//! Tests `clerk`: a machine's clerk in a process of its own, and one that stands by.

use farcall::memory::{Memory, Rights, Settings};
use farcall::{Runtime, names};

use crate::common::Place;
#[cfg(feature = "secure")]
use crate::common::Said;

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

/// Clerks of several keys and of none run beside one another, and programs with keys whose files say nothing
/// about clerks export and import beside them, and after them.
#[test]
#[cfg(all(unix, feature = "secure"))]
fn clerks_with_other_keys_or_none_are_in_nobodys_way() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let make = |who: &str| {
        let mut command = place.command(&["keys", "make"]);
        let key = Said::of(command.env("FARCALL_KEYS", place.path(who)).output().unwrap()).ok();
        let key = key.trim().to_owned();
        for (file, line) in [
            ("known_servers", format!("Memory/Load* {key}")),
            ("authorized_keys", format!("{key} me type=Memory instance=Load*")),
        ] {
            let path = place.write(&format!("{who}/{file}"), line + "\n");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    };
    make("ours");
    make("theirs");
    let clerk = |keys: Option<&str>| {
        place.start_with(&["clerk"], |command| match keys {
            Some(keys) => command.env("FARCALL_KEYS", place.path(keys)),
            None => command,
        })
    };
    let clerks = [clerk(None), clerk(Some("theirs")), clerk(Some("ours"))];
    for clerk in &clerks {
        assert!(clerk.first.starts_with("this machine's clerk is at 127.0.0.1:"), "{}", clerk.first);
    }
    let spare = clerk(Some("ours"));
    assert!(spare.first.starts_with("standing by: another process has"), "{}", spare.first);

    let program = |keys: Option<&str>| {
        let builder = Runtime::builder().registry(names::File::at(place.registry()));
        let keyed = keys.map(|keys| farcall::Keys::open(place.path(keys)).unwrap());
        match keyed {
            Some(keys) => builder.keys(keys),
            None => builder,
        }
        .build()
        .unwrap()
    };
    let exporter = program(Some("ours"));
    let segment = exporter.export_segment("Load", Settings::new(64).anyone(Rights::READ)).unwrap();
    segment.store(0, 7).unwrap();
    let read = || program(Some("ours")).import_segment("Load").unwrap().load(0).unwrap();
    assert_eq!(read(), 7);
    let open = program(None);
    let _open = open.export_segment("Open", Settings::new(64).anyone(Rights::READ)).unwrap();
    assert_eq!(program(None).import_segment("Open").unwrap().size(), 64);
    // An importer that does not believe the exporter's key finds nothing.
    assert!(program(Some("theirs")).import_segment("Load").is_err());
    drop((clerks, spare)); // they are killed
    assert_eq!(read(), 7);
    assert_eq!(program(None).import_segment("Open").unwrap().size(), 64);
}
