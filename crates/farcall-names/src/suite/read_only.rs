//! The rules for a registry that can only be read.

use super::subject::{broken, expect, require};
use crate::{Entry, Error, Label, Registry};

/// Checks a registry that can only be read, and that has these entries, in any order, and no others of their
/// types. While the check runs, the entries must not change.
///
/// # Panics
/// If the registry breaks a rule of [`Registry`], does not refuse a change, or has other entries. The message
/// names the rule.
pub fn check_read_only(registry: impl Registry, entries: &[Entry]) {
    let mut expected = entries.to_vec();
    expected.sort_by(|a, b| (&a.type_name, &a.instance).cmp(&(&b.type_name, &b.instance)));
    check_reads(&registry, &expected);
    let free = super::subject::entry("Free", "free");
    for entry in expected.iter().chain([&free]) {
        check_refusals(&registry, entry);
    }
    check_reads(&registry, &expected);
}

/// Checks that all ways to read find the same.
fn check_reads(registry: &impl Registry, expected: &[Entry]) {
    for same_type in expected.chunk_by(|a, b| a.type_name == b.type_name) {
        let type_name = &same_type[0].type_name;
        expect("the instances of a type are all its entries, by ascending name", same_type.to_vec(), || {
            registry.instances(type_name)
        });
        expect("an instance that does not exist is not found", None, || {
            registry.lookup(type_name, &nobody(same_type))
        });
    }
    for entry in expected {
        expect("each entry is found by its name", Some(entry.clone()), || {
            registry.lookup(&entry.type_name, &entry.instance)
        });
    }
    let listing = registry
        .list()
        .unwrap_or_else(|why| panic!("{}: the error is {why:?}", broken("a registry can be listed")));
    expect("the list has all entries, by ascending type and instance", expected.to_vec(), || {
        Ok(listing.entries)
    });
    expect("a version stays while nothing changes", listing.version, || registry.version());
}

/// Returns an instance that none of the entries has.
fn nobody(entries: &[Entry]) -> Label {
    let names = (0..=entries.len()).map(|which| super::subject::label(&format!("nobody-{which}")));
    let mut free = names.filter(|name| entries.iter().all(|entry| entry.instance != *name));
    free.next().expect("one of more names than entries is free")
}

/// Checks that publishing and withdrawing are refused as read-only.
fn check_refusals(registry: &impl Registry, entry: &Entry) {
    let attempts = [
        ("a publication", registry.publish(entry).map(drop)),
        ("a withdrawal", registry.withdraw(&entry.type_name, &entry.instance).map(drop)),
    ];
    for (what, answer) in attempts {
        let rule = format!("{what} is refused as not permitted, with \"read-only\" in the reason");
        let is_refused = matches!(&answer, Err(Error::NotPermitted { why, .. }) if why.contains("read-only"));
        require(&rule, is_refused, || format!("the answer for {} is {answer:?}", entry.name()));
    }
}
