//! A marking: which tokens each place has, and how many are reserved for firings under way.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::{Graph, PlaceId, Token};

/// The most tokens of a place for which the graph gives no capacity, or a greater one.
pub const MAX_PLACE_TOKENS: u32 = 1 << 20;

/// The tokens of all places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Marking {
    places: Vec<PlaceMarking>,
}

/// The tokens of a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceMarking {
    /// The tokens, the first to leave first.
    pub tokens: VecDeque<Token>,
    /// How many tokens the firings under way may still put here.
    pub reserved: u32,
    /// The most tokens that the place may have, with those that are reserved.
    pub capacity: u32,
}

impl Marking {
    /// Makes the marking with which a graph begins.
    pub fn of(graph: &Graph) -> Marking {
        let place = |place: &crate::model::Place| PlaceMarking {
            tokens: place.tokens.iter().cloned().collect(),
            reserved: 0,
            capacity: place.capacity.unwrap_or(MAX_PLACE_TOKENS).min(MAX_PLACE_TOKENS),
        };
        Marking { places: graph.places.iter().map(place).collect() }
    }

    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether the graph has no place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the marking of a place, or `None` if the graph has no such place.
    pub fn get(&self, place: PlaceId) -> Option<&PlaceMarking> {
        self.places.get(place.0 as usize)
    }

    /// Returns how many tokens a place has: 0 if the graph has no such place.
    pub fn count(&self, place: PlaceId) -> u32 {
        self.get(place).map_or(0, PlaceMarking::count)
    }

    /// Returns how many tokens each place has.
    pub fn counts(&self) -> Vec<u32> {
        self.places.iter().map(PlaceMarking::count).collect()
    }

    /// Returns the place, which the graph must have.
    pub(crate) fn place(&mut self, place: PlaceId) -> &mut PlaceMarking {
        &mut self.places[place.0 as usize]
    }
}

impl PlaceMarking {
    /// Returns how many tokens the place has.
    pub fn count(&self) -> u32 {
        // (A place has fewer than 2^32 tokens: each puts only what was reserved or taken before.)
        self.tokens.len() as u32
    }

    /// Returns how many tokens more the place may get.
    pub fn room(&self) -> u32 {
        self.capacity.saturating_sub(self.count().saturating_add(self.reserved))
    }
}
