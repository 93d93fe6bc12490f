//! The names of memory segments, and of the clerks that find them: for what an end believes its own key.
//!
//! Programs with the same key share a machine's clerk. Whoever has the key could do everything that they may
//! do, so it is believed for clerks although no line and no grant says so.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The type under which segments are exported.
const TYPE: &str = "Memory";

/// Who the own key is, where no line and no grant says so. No principal can have this name.
pub(crate) const OWN_KEY: &str = "own key";

/// Returns whether a name is that of a segment.
pub(crate) fn is_segment(type_name: &str) -> bool {
    type_name == TYPE
}

/// Returns whether a name is one of those of each clerk: of its table, its letter box, its procedures, or of
/// its table in a registry.
pub(crate) fn is_of_clerk(type_name: &str, instance: &str) -> bool {
    let name = without_machine(type_name, instance).unwrap_or(instance);
    let is_key = |key: &str| key.len() == 16 && key.bytes().all(|digit| digit.is_ascii_hexdigit());
    let rest = name.strip_prefix("clerk").filter(|_| is_segment(type_name));
    rest.is_some_and(|rest| match rest.strip_prefix('-') {
        None => rest.is_empty(),
        Some(rest) => rest == "names" || rest == "post" || is_key(rest),
    })
}

/// Returns the name of a segment that a registry lists with the address of its machine, as in
/// `Load.127.0.0.1` or `Load.--1`. Returns `None` for every other name.
pub(crate) fn without_machine<'a>(type_name: &str, instance: &'a str) -> Option<&'a str> {
    if !is_segment(type_name) {
        return None;
    }
    let version_4 = instance.rmatch_indices('.').nth(3);
    let version_4 = version_4.filter(|(at, _)| instance[at + 1..].parse::<Ipv4Addr>().is_ok());
    let version_6 = instance.rmatch_indices('.').next();
    let version_6 =
        version_6.filter(|(at, _)| instance[at + 1..].replace('-', ":").parse::<Ipv6Addr>().is_ok());
    version_4.or(version_6).map(|(at, _)| &instance[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_segment_is_named_without_its_machine() {
        for (instance, name) in [
            ("Load.127.0.0.1", Some("Load")),
            ("Load.127.0.0.1.10.0.0.7", Some("Load.127.0.0.1")),
            ("Load.--1", Some("Load")),
            ("Load.fe80--1-2", Some("Load")),
            ("a.Load.2001-db8--7", Some("a.Load")),
            ("Load", None),
            ("Load.v1", None),
            ("Load.1.2.3", None),
            ("Load.127.0.0.256", None),
        ] {
            assert_eq!(without_machine("Memory", instance), name, "{instance}");
            assert_eq!(without_machine("Store", instance), None);
        }
    }

    #[test]
    fn the_names_of_clerks_are_these() {
        let names = ["clerk", "clerk-names", "clerk-post", "clerk-0123456789abcdef", "clerk.10.0.0.7"];
        for name in names.into_iter().chain(["clerk-0123456789abcdef.--1"]) {
            assert!(is_of_clerk("Memory", name), "{name}");
            assert!(!is_of_clerk("Store", name) && !is_of_clerk("", name));
        }
        for name in ["", "Load", "clerks", "clerk-", "clerk-0123", "clerk-0123456789abcdeg", "clerk.Load"] {
            assert!(!is_of_clerk("Memory", name), "{name}");
        }
    }
}
