//! Finds the strongly connected components of a graph. They show which nodes contain themselves, and in which
//! order to visit the nodes.

/// The strongly connected components of a graph, by Tarjan's algorithm.
pub struct Components {
    /// The number of each node's component. A component has a smaller number than the components that refer
    /// to it.
    pub of: Vec<usize>,
    /// The number of nodes in each component.
    sizes: Vec<usize>,
    /// The number of nodes on the longest path that begins in each component.
    heights: Vec<usize>,
}

/// The mark of a node that has not been visited.
const NEW: usize = usize::MAX;

impl Components {
    pub fn of(edges: &[Vec<usize>]) -> Components {
        let mut components =
            Components { of: vec![NEW; edges.len()], sizes: Vec::new(), heights: Vec::new() };
        let (mut order, mut low) = (vec![NEW; edges.len()], vec![0; edges.len()]);
        let (mut open, mut next) = (Vec::new(), 0);
        for root in 0..edges.len() {
            // The path to the present node, with the number of edges that were followed from each node. There
            // is no recursion, because a file can declare long chains of types.
            let mut path = if order[root] == NEW { vec![(root, 0)] } else { Vec::new() };
            while let Some((node, followed)) = path.pop() {
                if followed == 0 {
                    (order[node], low[node]) = (next, next);
                    next += 1;
                    open.push(node);
                }
                if let Some(to) = edges[node].get(followed) {
                    path.push((node, followed + 1));
                    match order[*to] {
                        NEW => path.push((*to, 0)),
                        seen if components.of[*to] == NEW => low[node] = low[node].min(seen),
                        _ => {}
                    }
                    continue;
                }
                if low[node] == order[node] {
                    let at = open.iter().rposition(|member| *member == node).unwrap_or_default();
                    components.close(&open.split_off(at), edges);
                }
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
            }
        }
        components
    }

    fn close(&mut self, members: &[usize], edges: &[Vec<usize>]) {
        let below = members.iter().flat_map(|member| &edges[*member]).map(|to| self.of[*to]);
        let below = below.filter_map(|component| self.heights.get(component)).max();
        self.heights.push(below.unwrap_or(&0) + members.len());
        members.iter().for_each(|member| self.of[*member] = self.sizes.len());
        self.sizes.push(members.len());
    }

    /// Returns all nodes, each after the nodes that it refers to. Nodes of one component are in the order of
    /// their numbers.
    pub fn inner_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.of.len()).collect();
        order.sort_by_key(|node| self.of[*node]);
        order
    }

    /// Returns whether a path leads from the node back to it.
    pub fn is_cyclic(&self, node: usize, edges: &[Vec<usize>]) -> bool {
        self.sizes[self.of[node]] > 1 || edges[node].contains(&node)
    }

    /// Returns a node from which a path visits more than `depth` nodes.
    pub fn deeper_than(&self, depth: usize) -> Option<usize> {
        (0..self.of.len()).find(|node| self.heights[self.of[*node]] > depth)
    }
}
