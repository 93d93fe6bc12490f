//! Positions for the places and nodes of a graph that have none.

use std::collections::{HashMap, HashSet};

use farcall_base::work;

use super::layers::{Items, mean, ordered};
use super::{COLUMN, NODE_HEIGHT, NODE_WIDTH, ROW};
use crate::model::{Graph, Position};

/// How often all items are moved towards their neighbours.
const SWEEPS: usize = 8;

/// Gives a position to each place and node that has none.
///
/// If others have positions, these stay, and the new ones are near them.
///
/// ```
/// use farcall_olympus::model::{Graph, Place};
///
/// let mut graph = Graph { places: vec![Place::default(); 2], ..Graph::default() };
/// farcall_olympus::draw::arrange(&mut graph);
/// assert_ne!(graph.places[0].at, graph.places[1].at);
/// ```
pub fn arrange(graph: &mut Graph) {
    let given: Vec<Option<Position>> = positions(graph).map(|at| *at).collect();
    if given.iter().all(Option::is_some) {
        return;
    }
    let drawn = drawn(graph);
    let moved = given.iter().zip(&drawn).filter_map(|(given, drawn)| Some((*given.as_ref()?, *drawn)));
    let by = |axis: fn(Position) -> i32| {
        mean(moved.clone().map(|(given, drawn)| f64::from(axis(given)) - f64::from(axis(drawn))))
    };
    let (x, y) = (by(|at| at.x).unwrap_or(0.0) as i32, by(|at| at.y).unwrap_or(0.0) as i32);
    let taken: HashSet<(i32, i32)> = given.iter().flatten().flat_map(|at| around(*at)).collect();
    let mut new: HashMap<(i32, i32), Position> = HashMap::new();
    // Where the search for a free position has ended that began in a column's row, so that many items at one
    // position do not each search past those before them.
    let mut ends: HashMap<(i32, i32), i32> = HashMap::new();
    for (at, drawn) in positions(graph).zip(drawn).filter(|(at, _)| at.is_none()) {
        let mut free = Position { x: drawn.x.saturating_add(x), y: drawn.y.saturating_add(y) };
        let mut passed = Vec::new();
        while (taken.contains(&cell(free)) || overlaps(free, &new)) && free.y < i32::MAX {
            work::step();
            let row = (free.x, cell(free).1);
            passed.push(row);
            let end = ends.get(&row).copied().unwrap_or(i32::MIN);
            free.y = free.y.saturating_add(NODE_HEIGHT).max(end);
        }
        ends.extend(passed.into_iter().map(|row| (row, free.y)));
        new.insert(cell(free), free);
        *at = Some(free);
    }
}

/// Returns the positions of all places, and then of all nodes.
fn positions(graph: &mut Graph) -> impl Iterator<Item = &mut Option<Position>> {
    graph.places.iter_mut().map(|place| &mut place.at).chain(graph.nodes.iter_mut().map(|node| &mut node.at))
}

/// Returns the part of the plane that an item at this position takes.
fn cell(at: Position) -> (i32, i32) {
    (at.x.div_euclid(NODE_WIDTH), at.y.div_euclid(NODE_HEIGHT))
}

/// Returns the part of the plane that an item takes, and those around it.
fn around(at: Position) -> impl Iterator<Item = (i32, i32)> {
    let (x, y) = cell(at);
    [-1, 0, 1].into_iter().flat_map(move |right| [-1, 0, 1].map(|down| (x + right, y + down)))
}

/// Returns whether an item at this position would overlap one of others, which do not overlap one another.
fn overlaps(at: Position, others: &HashMap<(i32, i32), Position>) -> bool {
    around(at).filter_map(|cell| others.get(&cell)).any(|other| {
        let is_beside = i64::from(at.x).abs_diff(i64::from(other.x)) >= NODE_WIDTH as u64;
        !is_beside && i64::from(at.y).abs_diff(i64::from(other.y)) < NODE_HEIGHT as u64
    })
}

/// Returns a position for each place, and then for each node.
fn drawn(graph: &Graph) -> Vec<Position> {
    let items = Items::new(graph);
    let layer_of = items.layers();
    let mut at = vec![Position::default(); layer_of.len()];
    // Both are used for each part, so that small parts cost little.
    let (mut places, mut heights) = (vec![0.0; layer_of.len()], vec![0.0; layer_of.len()]);
    // The parts are drawn below one another.
    let mut top = i64::from(ROW);
    for part in items.parts() {
        let layers = ordered(&items, &part, &layer_of, &mut places);
        set_heights(&items, &layers, &mut heights);
        let in_part = || part.iter().map(|item| heights[*item]);
        let (highest, lowest) = (in_part().fold(f64::MAX, f64::min), in_part().fold(f64::MIN, f64::max));
        for (layer, number) in layers.iter().zip(1..) {
            for item in layer {
                let x = i32::try_from(i64::from(COLUMN) * number).unwrap_or(i32::MAX);
                let y = top.saturating_add((heights[*item] - highest) as i64);
                at[*item] = Position { x, y: i32::try_from(y).unwrap_or(i32::MAX) };
            }
        }
        top = top.saturating_add((lowest - highest) as i64 + i64::from(ROW));
    }
    at
}

/// Sets the height of each item of a part: near the mean of its neighbours, in the order of its layer, and with
/// enough distance from the others of its layer.
fn set_heights(items: &Items, layers: &[Vec<usize>], heights: &mut [f64]) {
    for layer in layers {
        let middle = (layer.len() as f64 - 1.0) / 2.0;
        for (at, item) in layer.iter().enumerate() {
            heights[*item] = (at as f64 - middle) * f64::from(ROW);
        }
    }
    for sweep in 0..SWEEPS {
        for at in 0..layers.len() {
            let layer = &layers[if sweep % 2 == 0 { at } else { layers.len() - 1 - at }];
            let wanted = layer.iter().map(|item| {
                work::steps(1 + items.near(*item).len());
                mean(items.near(*item).iter().map(|near| heights[*near])).unwrap_or(heights[*item])
            });
            let apart = apart(wanted.collect());
            layer.iter().zip(apart).for_each(|(item, height)| heights[*item] = height);
        }
    }
}

/// Returns the heights that are nearest to the wanted ones, by least squares, and that grow by at least
/// [`ROW`] from each to the next. This is an isotonic regression, by pooling adjacent violators.
fn apart(wanted: Vec<f64>) -> Vec<f64> {
    let step = f64::from(ROW);
    // Runs of items whose distance is exactly the least: the sum of their heights without the steps, and how
    // many.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for (at, wanted) in wanted.into_iter().enumerate() {
        let mut run = (wanted - at as f64 * step, 1);
        while let Some(before) = runs.pop_if(|before| before.0 / before.1 as f64 >= run.0 / run.1 as f64) {
            run = (before.0 + run.0, before.1 + run.1);
        }
        runs.push(run);
    }
    let heights = runs.into_iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / count as f64, count));
    heights.enumerate().map(|(at, height)| height + at as f64 * step).collect()
}
