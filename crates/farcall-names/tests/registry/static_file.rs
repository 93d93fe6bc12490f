//! Tests the registry in a static file: what is found in it, and what happens when it changes.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::common::{Scratch, label};
use farcall_names::{Entry, Error, Owner, Registry, StaticFile, open, suite};

/// Returns the entry of a line.
fn entry(type_name: &str, instance: &str, port: u16) -> Entry {
    let address = format!("udp://10.0.0.7:{port}").parse().unwrap();
    let mut entry = Entry::new(label(type_name), label(instance), address, 0);
    entry.owner = Owner::NONE;
    entry
}

fn line(entry: &Entry) -> String {
    format!("{} {}\n", entry.name(), entry.address)
}

#[test]
fn a_static_file_keeps_the_rules_of_a_registry_that_is_read_only() {
    let scratch = Scratch::new();
    let entries: Vec<Entry> = ["Store", "Mail", "A-", "A", "A.b"]
        .iter()
        .flat_map(|type_name| ["z", "a-", "a"].map(|instance| entry(type_name, instance, 7000)))
        .collect();
    let path = scratch.join("names");
    fs::write(&path, entries.iter().map(line).collect::<String>()).unwrap();
    suite::check_read_only(StaticFile::at(&path), &entries);
    let place = format!("file://{}", path.display());
    suite::check_read_only(open(&place, |_| None).unwrap(), &entries);
    fs::write(&path, "").unwrap();
    suite::check_read_only(StaticFile::at(&path), &[]);
    assert!(open("file://names", |_| None).err().unwrap().to_string().contains("third slash"));
}

/// Each kind of change: in place with the same size, by renaming another file to it, and with the old file's
/// times.
#[test]
fn every_change_is_seen_by_the_next_question() {
    let scratch = Scratch::new();
    let (path, new) = (scratch.join("names"), scratch.join("new"));
    let (old, registry) = (SystemTime::now() - Duration::from_secs(3600), StaticFile::at(&path));
    let mut version = 0;
    for port in 1001..1200 {
        let expected = entry("Store", "a", port);
        if port % 3 == 0 {
            fs::write(&new, line(&expected)).unwrap();
            fs::rename(&new, &path).unwrap();
        } else {
            fs::write(&path, line(&expected)).unwrap();
        }
        if port % 2 == 0 {
            fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }
        let now = registry.version().unwrap();
        assert_ne!(now, version, "{port}");
        assert_eq!(registry.instances(&label("Store")).unwrap(), [expected], "{port}");
        assert_eq!(registry.version().unwrap(), now);
        version = now;
    }
    fs::write(&path, format!("# a comment\n{}", line(&entry("Store", "a", 1199)))).unwrap();
    assert_eq!(registry.version().unwrap(), version, "the entries are the same");
}

#[test]
fn a_file_that_becomes_bad_leaves_the_last_good_content() {
    let scratch = Scratch::new();
    let path = scratch.join("names");
    let registry = StaticFile::at(&path);
    let missing = registry.list().unwrap_err();
    assert!(matches!(missing, Error::Io { doing: "examining", .. }), "{missing:?}");
    fs::write(&path, "Store/a\n").unwrap();
    let corrupt = registry.list().unwrap_err();
    assert!(matches!(corrupt, Error::Corrupt { line: 1, .. }), "{corrupt:?}");
    assert_eq!(registry.fault(), Some(corrupt.to_string()));

    let good = entry("Store", "a", 7000);
    fs::write(&path, line(&good)).unwrap();
    assert_eq!((registry.list().unwrap().entries, registry.fault()), (vec![good.clone()], None));
    let version = registry.version().unwrap();
    for (bad, said) in
        [(Some("# x\nStore/b\n"), "names, line 2: "), (Some("?"), "line 1"), (None, "examining")]
    {
        match bad {
            Some(bad) => fs::write(&path, bad).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert_eq!(registry.instances(&label("Store")).unwrap(), std::slice::from_ref(&good));
        assert_eq!(registry.version().unwrap(), version);
        assert!(registry.fault().unwrap().contains(said), "{:?}", registry.fault());
    }
    fs::write(&path, line(&good)).unwrap();
    assert_eq!((registry.version().unwrap(), registry.fault()), (version, None));
}

#[test]
#[cfg(unix)]
fn a_pipe_or_a_directory_in_the_files_place_is_refused_without_blocking() {
    let scratch = Scratch::new();
    let path = scratch.join("names");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    for path in [path.as_path(), scratch.path()] {
        let refused = StaticFile::at(path).list().unwrap_err();
        assert!(matches!(refused, Error::Untrusted { .. }), "{refused:?}");
    }
}
