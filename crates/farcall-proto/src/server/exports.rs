//! The server's exports, found by identifier on each call, and by name when a client binds.

use std::collections::HashMap;

use super::Export;

/// The exports of a server.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// The exports, by ascending identifier.
    all: Vec<Export>,
    /// The identifiers of the exports that answer to each `Type` and to each `Type/instance`, in the order of
    /// export.
    named: HashMap<String, Vec<u64>>,
}

impl Exports {
    pub(super) fn add(&mut self, export: Export) {
        let Err(place) = self.place(export.id) else { return };
        for name in export.names() {
            self.named.entry(name).or_default().push(export.id);
        }
        self.all.insert(place, export);
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Ok(place) = self.place(id) else { return };
        for name in self.all.remove(place).names() {
            let Some(ids) = self.named.get_mut(&name) else { continue };
            ids.retain(|named| *named != id);
            if ids.is_empty() {
                self.named.remove(&name);
            }
        }
    }

    #[inline(always)]
    pub(super) fn contains(&self, id: u64) -> bool {
        self.place(id).is_ok()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Export> {
        self.all.get(self.place(id).ok()?)
    }

    /// Returns the export that answers to `Type`, the oldest of several, or to `Type/instance`.
    pub(super) fn named(&self, name: &[u8]) -> Option<u64> {
        self.named.get(std::str::from_utf8(name).ok()?)?.first().copied()
    }

    #[inline(always)]
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.all.binary_search_by_key(&id, |export| export.id)
    }
}

impl Export {
    pub(super) fn names(&self) -> [String; 2] {
        [self.type_name.clone(), format!("{}/{}", self.type_name, self.instance)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(id: u64, type_name: &str, instance: &str) -> Export {
        Export { id, type_name: type_name.into(), instance: instance.into(), procedures: Vec::new() }
    }

    #[test]
    fn found_by_identifier_and_by_name_until_removed() {
        let mut exports = Exports::default();
        for (id, instance) in [(9, "a"), (3, "b"), (5, "c")] {
            exports.add(export(id, "Store", instance));
        }
        assert!([3, 5, 9].into_iter().all(|id| exports.contains(id) && exports.get(id).unwrap().id == id));
        assert!(!exports.contains(4) && exports.get(10).is_none());
        assert_eq!(exports.named(b"Store"), Some(9), "the one exported first");
        assert_eq!(exports.named(b"Store/b"), Some(3));
        assert_eq!(exports.named(b"Stor"), None);
        assert_eq!(exports.named(b"\xff"), None);
        exports.remove(9);
        exports.remove(9);
        assert_eq!((exports.named(b"Store"), exports.named(b"Store/a")), (Some(3), None));
        exports.remove(3);
        exports.remove(5);
        assert_eq!(exports.named(b"Store"), None);
    }

    #[test]
    fn an_export_of_memory_is_found_like_the_others() {
        let mut exports = Exports::default();
        exports.add(export(3, "Store", "a"));
        exports.add(export(5, "Memory", "counters"));
        assert!(exports.contains(3) && exports.contains(5) && !exports.contains(4));
        assert_eq!(exports.get(5).map(|export| &export.instance[..]), Some("counters"));
        assert_eq!(exports.named(b"Memory/counters"), Some(5));
    }
}
