//! The layers of a drawing: which items are in one, and in which order.

use farcall_base::work;

use crate::model::{Graph, InputKind};

/// How often the order of all layers is improved.
const SWEEPS: usize = 8;

/// The items of a graph, places first and then nodes, and their neighbours.
pub struct Items {
    /// For each item, the items to which arcs lead from it.
    next: Vec<Vec<usize>>,
    /// For each item, the items from which arcs lead to it.
    before: Vec<Vec<usize>>,
    /// For each item, the items that it is connected with by any arc, also one that only reads or inhibits.
    near: Vec<Vec<usize>>,
    /// The items at which a drawing begins: first those to which no arc leads.
    starts: Vec<usize>,
}

impl Items {
    pub fn new(graph: &Graph) -> Items {
        let places = graph.places.len();
        let count = places + graph.nodes.len();
        let (mut next, mut before) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let mut near = next.clone();
        for (node, at) in graph.nodes.iter().zip(places..) {
            for input in node.inputs.iter().filter(|input| (input.place.0 as usize) < places) {
                let place = input.place.0 as usize;
                near[place].push(at);
                near[at].push(place);
                // An arc that only looks at a place often looks back.
                if input.kind == InputKind::Take {
                    next[place].push(at);
                    before[at].push(place);
                }
            }
            for output in node.outputs.iter().filter(|output| (output.place.0 as usize) < places) {
                let place = output.place.0 as usize;
                near[place].push(at);
                near[at].push(place);
                // A place that has tokens at the beginning is drawn there, and tokens come back to it.
                if graph.places[place].tokens.is_empty() {
                    next[at].push(place);
                    before[place].push(at);
                }
            }
        }
        let mut starts: Vec<usize> = (0..count).filter(|item| before[*item].is_empty()).collect();
        starts.extend(0..count);
        Items { next, before, near, starts }
    }

    /// Returns the items with which an item is connected.
    pub fn near(&self, item: usize) -> &[usize] {
        &self.near[item]
    }

    /// Returns the parts of the graph that no arc connects. The items of each are in the order in which the
    /// arcs lead to them.
    pub fn parts(&self) -> Vec<Vec<usize>> {
        let mut seen = vec![false; self.near.len()];
        let mut parts = Vec::new();
        for start in &self.starts {
            if seen[*start] {
                continue;
            }
            seen[*start] = true;
            let mut part = vec![*start];
            let mut done = 0;
            while let Some(item) = part.get(done).copied() {
                done += 1;
                for other in &self.near[item] {
                    if !std::mem::replace(&mut seen[*other], true) {
                        part.push(*other);
                    }
                }
            }
            parts.push(part);
        }
        parts
    }

    /// Returns the layer of each item.
    pub fn layers(&self) -> Vec<usize> {
        let order = self.order();
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, item)| rank[*item] = at);
        // Arcs that lead back in the order close a circle, and are ignored.
        let mut layers = vec![0_usize; order.len()];
        for item in &order {
            for next in self.next[*item].iter().filter(|next| rank[**next] > rank[*item]) {
                layers[*next] = layers[*next].max(layers[*item] + 1);
            }
        }
        // What nothing leads to is drawn just before what it leads to.
        for item in order.iter().rev().filter(|item| self.before[**item].is_empty()) {
            if let Some(first) = self.next[*item].iter().map(|next| layers[*next]).min() {
                layers[*item] = first.saturating_sub(1);
            }
        }
        // What only looks at places is drawn just after them.
        for item in order.iter().filter(|item| self.before[**item].is_empty() && self.next[**item].is_empty())
        {
            if let Some(last) = self.near[*item].iter().map(|near| layers[*near]).max() {
                layers[*item] = last + 1;
            }
        }
        layers
    }

    /// Returns the items in an order in which arcs lead forward, except those that close a circle: the
    /// reverse of the order in which a depth-first search leaves them.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.next.len());
        let mut seen = vec![false; self.next.len()];
        // The items that are being visited, each with the number of arcs that were followed.
        let mut visited: Vec<(usize, usize)> = Vec::new();
        for start in &self.starts {
            if std::mem::replace(&mut seen[*start], true) {
                continue;
            }
            visited.push((*start, 0));
            while let Some((item, followed)) = visited.last_mut() {
                let Some(next) = self.next[*item].get(*followed).copied() else {
                    order.push(*item);
                    visited.pop();
                    continue;
                };
                *followed += 1;
                if !std::mem::replace(&mut seen[next], true) {
                    visited.push((next, 0));
                }
            }
        }
        order.reverse();
        order
    }
}

/// Returns the items of a part by layers, in an order in which few arcs cross: each item is drawn near the
/// mean of its neighbours in the layers that were ordered just before. `places` has room for all items.
pub fn ordered(items: &Items, part: &[usize], layer_of: &[usize], places: &mut [f64]) -> Vec<Vec<usize>> {
    let first = part.iter().map(|item| layer_of[*item]).min().unwrap_or(0);
    let last = part.iter().map(|item| layer_of[*item]).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); last - first + 1];
    part.iter().for_each(|item| layers[layer_of[*item] - first].push(*item));
    // `places` says where each item is in its layer, from the layer's middle.
    layers.iter().for_each(|layer| note(layer, places));
    for sweep in 0..SWEEPS {
        let forward = sweep % 2 == 0;
        for at in 0..layers.len() {
            let at = if forward { at } else { layers.len() - 1 - at };
            let layer = &mut layers[at];
            let mut wanted: Vec<(f64, usize)> = layer
                .iter()
                .map(|item| {
                    let is_done = |other: &&usize| (layer_of[**other] < layer_of[*item]) == forward;
                    let near = items.near(*item).iter().filter(is_done).map(|other| places[*other]);
                    (mean(near).unwrap_or(places[*item]), *item)
                })
                .collect();
            wanted.sort_by(|one, other| one.0.total_cmp(&other.0));
            *layer = wanted.into_iter().map(|(_, item)| item).collect();
            note(layer, places);
        }
    }
    layers
}

fn note(layer: &[usize], places: &mut [f64]) {
    let middle = (layer.len() as f64 - 1.0) / 2.0;
    work::steps(layer.len());
    layer.iter().enumerate().for_each(|(at, item)| places[*item] = at as f64 - middle);
}

/// Returns the mean, or `None` if there are no numbers.
pub fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = numbers.fold((0.0, 0), |(sum, count), number| (sum + number, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
