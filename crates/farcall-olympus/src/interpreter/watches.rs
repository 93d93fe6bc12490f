//! Which blocked nodes wait for which change of which place.

use crate::model::{NodeId, PlaceId};

/// The nodes that wait for changes. A watch is a node's interest in one of its places; it ends when it is
/// told.
#[derive(Clone, Debug)]
pub(super) struct Watches {
    places: Vec<PlaceWatches>,
    /// For each watch, in which of the two lists of its place it is.
    listed: Vec<[bool; 2]>,
}

#[derive(Clone, Debug, Default)]
struct PlaceWatches {
    /// The nodes that wait for tokens to come (0), and for tokens or reservations to go (1).
    lists: [Vec<(NodeId, u32)>; 2],
}

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    More = 0,
    Fewer = 1,
}

impl Watches {
    pub fn new(places: usize, watches: usize) -> Watches {
        Watches { places: vec![PlaceWatches::default(); places], listed: vec![[false; 2]; watches] }
    }

    /// Notes that a node waits for a change. The watch's number must be of this node and place.
    #[inline]
    pub fn add(&mut self, node: NodeId, place: PlaceId, watch: u32, change: Change) {
        let listed = &mut self.listed[watch as usize][change as usize];
        if !*listed {
            *listed = true;
            self.places[place.0 as usize].lists[change as usize].push((node, watch));
        }
    }

    /// Ends the watches for this change, and gives their nodes to `wake`.
    #[inline]
    pub fn tell(&mut self, place: PlaceId, change: Change, mut wake: impl FnMut(NodeId)) {
        let list = &mut self.places[place.0 as usize].lists[change as usize];
        if list.is_empty() {
            return;
        }
        for &(node, watch) in list.iter() {
            self.listed[watch as usize][change as usize] = false;
            wake(node);
        }
        list.clear();
    }
}
