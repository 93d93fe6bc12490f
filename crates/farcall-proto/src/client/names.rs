//! The names that were bound in a conversation with secrets, and what the server has shown for each
//! (docs/protocol.md, section 11.2). What the server has shown belongs to the conversation in which it has
//! proven its key, and to the name that was asked for.

use std::sync::Arc;

use farcall_base::{Evidence, Principal};

/// What a server has shown for a name, at most this often. A server shows other grants after it got new ones.
const MAX_SHOWN: usize = 4;

/// The bound names, at most as many as the program has asked for.
#[derive(Debug, Default)]
pub(super) struct BoundNames(Vec<BoundName>);

#[derive(Debug)]
struct BoundName {
    name: Box<str>,
    export: u64,
    /// Who the server is for this name, as it has shown at different times. The newest is the last. The name
    /// stands while one of them does.
    shown: Vec<Arc<Principal>>,
}

impl BoundNames {
    /// Notes that a name was bound to an export, for which the server has shown this. Returns the former
    /// export of the name, if that was another one.
    pub fn note(&mut self, name: &str, export: u64, shown: &Arc<Principal>) -> Option<u64> {
        let at = self.0.binary_search_by(|bound| (*bound.name).cmp(name)).unwrap_or_else(|at| {
            if self.0.is_empty() {
                // Most conversations have one name.
                self.0.reserve_exact(1);
            }
            self.0.insert(at, BoundName { name: name.into(), export, shown: Vec::with_capacity(1) });
            at
        });
        let bound = &mut self.0[at];
        let former = std::mem::replace(&mut bound.export, export);
        let digest = |principal: &Principal| principal.evidence().map(Evidence::digest);
        bound.shown.retain(|former| digest(former) != digest(shown));
        if bound.shown.len() >= MAX_SHOWN {
            bound.shown.remove(0);
        }
        bound.shown.push(shown.clone());
        Some(former).filter(|former| *former != export)
    }

    /// Forgets what does not stand any more, and the names for which nothing stands. Another name of the same
    /// export has to be bound again, too: a call does not say by which name its export was bound. Returns
    /// whether a name is gone.
    pub fn recheck(&mut self, stands: impl Fn(&Principal) -> bool) -> bool {
        let mut fallen = Vec::new();
        for bound in &mut self.0 {
            bound.shown.retain(|shown| stands(shown));
            if bound.shown.is_empty() {
                fallen.push(bound.export);
            }
        }
        fallen.sort_unstable();
        self.0.retain(|bound| fallen.binary_search(&bound.export).is_err());
        !fallen.is_empty()
    }

    /// Returns who the server is that answers for an export, as it has shown last.
    pub fn server_of(&self, export: u64) -> Option<&Arc<Principal>> {
        self.0.iter().find(|bound| bound.export == export)?.shown.last()
    }

    /// Returns who the server is that answers for a name, as it has shown last.
    pub fn server_for(&self, name: &str) -> Option<&Arc<Principal>> {
        let at = self.0.binary_search_by(|bound| (*bound.name).cmp(name)).ok()?;
        self.0[at].shown.last()
    }

    /// Returns the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|bound| &*bound.name)
    }

    /// Returns the exports.
    pub fn exports(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|bound| bound.export)
    }

    /// Returns one of those that the server has shown to be.
    pub fn any(&self) -> Option<&Arc<Principal>> {
        self.0.iter().find_map(|bound| bound.shown.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(digest: u8) -> Arc<Principal> {
        let evidence = Evidence::new(Arc::new(()), [digest; 32]);
        Arc::new(Principal::new("server", [1; 32]).with_evidence(evidence))
    }

    fn digest(principal: &Principal) -> u8 {
        principal.evidence().map_or(0, |evidence| evidence.digest()[0])
    }

    #[test]
    fn a_name_stands_while_something_that_was_shown_for_it_does() {
        let mut names = BoundNames::default();
        names.note("Store/b", 2, &shown(2));
        names.note("Store/a", 1, &shown(1));
        names.note("Store/a", 1, &shown(3));
        assert!(!names.recheck(|shown| digest(shown) != 3));
        assert_eq!(names.server_of(1).map(|shown| digest(shown)), Some(1));
        assert!(names.recheck(|shown| digest(shown) != 1));
        assert!(names.server_for("Store/a").is_none() && names.server_of(1).is_none());
        assert_eq!((names.exports().collect::<Vec<_>>(), names.any().is_some()), (vec![2], true));
    }

    #[test]
    fn a_name_of_an_export_that_another_name_has_is_bound_again_when_that_falls() {
        let mut names = BoundNames::default();
        names.note("Store", 1, &shown(1));
        names.note("Store/a", 1, &shown(2));
        assert!(names.recheck(|shown| digest(shown) != 2));
        assert_eq!(names.exports().next(), None);
    }

    #[test]
    fn what_is_kept_of_a_name_is_bounded_and_the_oldest_goes_first() {
        let mut names = BoundNames::default();
        (1..=40).chain(37..=40).for_each(|digest| {
            names.note("Store", u64::from(digest), &shown(digest));
        });
        assert_eq!((names.0.len(), names.0[0].shown.len(), names.0[0].export), (1, MAX_SHOWN, 40));
        assert!(!names.recheck(|shown| digest(shown) == 37), "the four newest are kept");
    }
}
