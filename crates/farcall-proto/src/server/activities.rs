//! For each activity of a conversation: its last call, and its work (the call's state until the call is
//! over). The last call of activity 0 is in the conversation's entry.
//!
//! Clients use activity numbers from the lowest up, so most numbers in use are consecutive. Those are kept in
//! a vector, the row. An activity with a far higher number is kept in a map, so that memory depends on how
//! many activities were used, and not on their numbers.
//!
//! An activity is a numbered slot of a conversation; in it, the client makes one call after the other.

use std::collections::BTreeMap;

use super::work::{Last, Work};
use crate::{Mutant, Rule};

/// An activity other than the first: 16 bytes when idle.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub last: Last,
    pub work: Option<Box<Work>>,
}

/// The row grows for an activity whose number is at most twice the count of used activities plus this.
/// Activities with higher numbers are kept in the map.
const ROW_AHEAD: usize = 4;

/// The memory that an activity in the map takes, as a multiple of a slot of the row.
pub(super) const MAP_COST: usize = 4;

/// The activities of a conversation. The conversation's entry has the last call of the first activity.
#[derive(Debug, Default)]
pub(super) struct Activities {
    /// The work of activity 0.
    pub first: Option<Box<Work>>,
    /// The row: the slots of the activities from 1 on.
    row: Vec<Slot>,
    /// The map: the slots of activities beyond the end of the row.
    apart: BTreeMap<u32, Slot>,
    /// The number of activities beyond the first that were used.
    pub used: usize,
}

impl Activities {
    /// Returns whether no activity beyond the first was used.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the memory that the activities take, as a multiple of a slot of the row.
    pub fn cost(&self) -> usize {
        self.row.len() + MAP_COST * self.apart.len()
    }

    #[inline(always)]
    pub fn get(&self, activity: u32) -> Option<&Slot> {
        match self.row.get(activity as usize - 1) {
            None if !self.apart.is_empty() => self.apart.get(&activity),
            slot => slot,
        }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, activity: u32) -> Option<&mut Slot> {
        match self.row.get_mut(activity as usize - 1) {
            None if !self.apart.is_empty() => self.apart.get_mut(&activity),
            slot => slot,
        }
    }

    /// Returns the last call of an activity, or `None` if the activity was not used or is beyond the row.
    #[inline(always)]
    pub fn used_mut(&mut self, activity: u32) -> Option<&mut Last> {
        let slot = self.row.get_mut(activity as usize - 1)?;
        if slot.last == Last::default() { None } else { Some(&mut slot.last) }
    }

    /// Stores the last call of an activity, and makes a slot for the activity if it has none.
    pub fn set_first(&mut self, activity: u32, last: Last, mutant: Mutant) {
        let wanted = activity as usize;
        let in_row = wanted <= 2 * self.used + ROW_AHEAD || mutant.breaks(Rule::HighActivityReserves);
        if wanted > self.row.len() && in_row {
            self.lengthen(wanted);
        }
        let slot = match self.row.get_mut(wanted - 1) {
            Some(slot) => slot,
            None => self.apart.entry(activity).or_default(),
        };
        self.used += usize::from(slot.last == Last::default());
        slot.last = last;
    }

    fn lengthen(&mut self, len: usize) {
        self.row.resize_with(len, Slot::default);
        while let Some(first) = self.apart.first_entry().filter(|first| *first.key() as usize <= len) {
            let (activity, slot) = first.remove_entry();
            self.row[activity as usize - 1] = slot;
        }
    }

    /// Returns the next activity after `activity` that has a slot, or 0 if there is none.
    pub fn after(&self, activity: u32) -> u32 {
        let next = activity + 1;
        if next as usize <= self.row.len() {
            return next;
        }
        self.apart.range(next..).next().map_or(0, |(activity, _)| *activity)
    }

    /// Returns the greatest number of a call of these activities, the first one excepted.
    pub fn latest(&self) -> u64 {
        let all = self.row.iter().chain(self.apart.values());
        all.map(|slot| slot.last.sequence()).max().unwrap_or_default()
    }

    /// Returns the work of an activity.
    #[inline]
    pub fn work(&self, activity: u32) -> Option<&Work> {
        match activity {
            0 => self.first.as_deref(),
            n => self.get(n)?.work.as_deref(),
        }
    }

    /// Returns the work of an activity, mutably.
    #[inline]
    pub fn work_mut(&mut self, activity: u32) -> Option<&mut Work> {
        self.home(activity)?.as_deref_mut()
    }

    /// Returns where the activity's work is kept, or `None` if the activity has no slot.
    #[inline]
    pub fn home(&mut self, activity: u32) -> Option<&mut Option<Box<Work>>> {
        match activity {
            0 => Some(&mut self.first),
            n => Some(&mut self.get_mut(n)?.work),
        }
    }

    /// Returns the works of all activities.
    pub fn works(&self) -> impl Iterator<Item = &Work> {
        let rest = self.row.iter().chain(self.apart.values()).map(|slot| &slot.work);
        [&self.first].into_iter().chain(rest).filter_map(Option::as_deref)
    }

    /// Returns the works of all activities, mutably.
    pub fn works_mut(&mut self) -> impl Iterator<Item = &mut Work> {
        let rest = self.row.iter_mut().chain(self.apart.values_mut()).map(|slot| &mut slot.work);
        [&mut self.first].into_iter().chain(rest).filter_map(Option::as_deref_mut)
    }

    pub fn into_works(self) -> impl Iterator<Item = Box<Work>> {
        let rest = self.row.into_iter().chain(self.apart.into_values()).map(|slot| slot.work);
        [self.first].into_iter().chain(rest).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(n: u64) -> Last {
        Last::new(n, false)
    }

    #[test]
    fn they_are_found_by_number_in_whatever_order_they_were_used() {
        let mut x = 1u64;
        for round in 0..200u32 {
            let (mut activities, mut model) = (Activities::default(), BTreeMap::new());
            for n in 1..300u64 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                // In order, within a few, and anywhere.
                let activity = match round % 3 {
                    0 => n as u32,
                    1 => (n as u32 + (x % 16) as u32).max(1),
                    _ => 1 + (x % 16_383) as u32,
                };
                activities.set_first(activity, last(n), Mutant::NONE);
                model.insert(activity, n);
                assert_eq!(activities.used, model.len());
                assert!(activities.cost() <= MAP_COST * model.len() + 2 * model.len() + ROW_AHEAD);
            }
            for (activity, n) in &model {
                assert_eq!(activities.get(*activity).unwrap().last, last(*n));
            }
            let (mut activity, mut found) = (activities.after(0), Vec::new());
            while activity != 0 {
                found.extend(model.contains_key(&activity).then_some(activity));
                activity = activities.after(activity);
            }
            assert!(found.iter().eq(model.keys()), "round {round}");
        }
    }

    #[test]
    fn those_that_were_used_in_order_cost_a_place_each() {
        let mut activities = Activities::default();
        for n in 1..1000 {
            activities.set_first(n, last(1), Mutant::NONE);
        }
        assert_eq!((activities.cost(), activities.apart.len()), (999, 0));
    }

    #[test]
    fn the_row_is_twice_as_long_as_the_count_of_used_activities_and_four_more() {
        for used in [0, 1, 10, 100] {
            let last_in_row = 2 * used + ROW_AHEAD as u32;
            for (activity, in_row) in [(last_in_row, true), (last_in_row + 1, false)] {
                let mut activities = Activities::default();
                (1..=used).for_each(|n| activities.set_first(n, last(1), Mutant::NONE));
                activities.set_first(activity, last(2), Mutant::NONE);
                let row = activities.row.len();
                assert_eq!((row == activity as usize, activities.apart.is_empty()), (in_row, in_row));
                let slot = activities.get(activity).unwrap();
                assert_eq!((slot.last, activities.used), (last(2), used as usize + 1));
                assert_eq!(activities.cost(), row + if in_row { 0 } else { MAP_COST });
            }
        }
    }

    #[test]
    fn a_high_number_costs_no_more_than_another() {
        let mut activities = Activities::default();
        activities.set_first(16_383, last(1), Mutant::NONE);
        assert_eq!((activities.cost(), activities.row.capacity()), (MAP_COST, 0));
        assert!(activities.get(16_382).is_none() && activities.get_mut(1).is_none());
    }
}
