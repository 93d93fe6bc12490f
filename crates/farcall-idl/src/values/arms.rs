//! Finds the arms of wide unions without looking at each: a list of values may choose an arm for each element.

use std::cell::RefCell;
use std::collections::HashMap;

use farcall_base::work;
use farcall_xdr::schema::Arm;

/// Unions with at most this many arms are searched from the first arm to the last.
const FEW: usize = 16;

/// The arms of the unions of one table, by the index of the union there.
#[derive(Default)]
pub(super) struct ArmIndex<'a>(RefCell<HashMap<u32, Known<'a>>>);

struct Known<'a> {
    tags: HashMap<Option<i32>, usize>,
    names: HashMap<&'a str, usize>,
}

impl<'a> ArmIndex<'a> {
    /// Returns the index of the first arm that this integer selects, or of the default arm for `None`.
    pub(super) fn by_tag(&self, place: u32, arms: &'a [Arm], tag: Option<i32>) -> Option<usize> {
        match arms.len() {
            ..=FEW => arms.iter().position(|arm| arm.tag == tag),
            _ => self.known(place, arms, |known| known.tags.get(&tag).copied()),
        }
    }

    /// Returns the index of the first arm of this name.
    pub(super) fn by_name(&self, place: u32, arms: &'a [Arm], name: &str) -> Option<usize> {
        match arms.len() {
            ..=FEW => arms.iter().position(|arm| arm.name == name),
            _ => self.known(place, arms, |known| known.names.get(name).copied()),
        }
    }

    fn known<T>(&self, place: u32, arms: &'a [Arm], find: impl FnOnce(&Known<'a>) -> T) -> T {
        let mut all = self.0.borrow_mut();
        let known = all.entry(place).or_insert_with(|| {
            let mut known = Known { tags: HashMap::new(), names: HashMap::new() };
            for (index, arm) in arms.iter().enumerate() {
                work::step();
                known.tags.entry(arm.tag).or_insert(index);
                known.names.entry(&arm.name).or_insert(index);
            }
            known
        });
        find(known)
    }
}
