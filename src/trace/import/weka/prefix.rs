//! A tree of prompts by their block ids, which answers how far a prompt repeats earlier ones.
//!
//! Prompts are runs of consecutive ids, and so are the tree's edges: what a step costs depends on
//! the number of runs and branches, never on the number of blocks.

use std::collections::BTreeMap;

/// Consecutive block ids: `first`, `first + 1`, … (`count` of them, at least one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdRun {
    pub(super) first: u64,
    pub(super) count: u64,
}

/// The number of ids in a prompt.
pub(super) fn blocks(runs: &[IdRun]) -> u64 {
    runs.iter().map(|run| run.count).sum()
}

/// What a tree remembers at each of its nodes.
pub(super) trait Mark: Default {
    /// The mark of a node put in above one that has this mark, on the same edge.
    fn above(&self) -> Self;
}

/// Position of a node in its tree; 0 is the root.
pub(super) type NodeId = usize;

/// The root: the empty prompt.
pub(super) const ROOT: NodeId = 0;

/// One place where prompts end or part.
#[derive(Debug, Default)]
pub(super) struct Node<M> {
    /// The node before it; the root is its own.
    pub(super) parent: NodeId,
    /// Blocks from the start of the prompt to here.
    pub(super) depth: u64,
    /// Its mark.
    pub(super) mark: M,
    label: Vec<IdRun>,
    children: BTreeMap<u64, NodeId>,
}

impl<M> Node<M> {
    /// How many edges lead on.
    pub(super) fn fan_out(&self) -> usize {
        self.children.len()
    }
}

/// Prompts by their block ids.
#[derive(Debug)]
pub(super) struct Tree<M> {
    nodes: Vec<Node<M>>,
}

impl<M: Mark> Tree<M> {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::default()] }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node<M> {
        &self.nodes[id]
    }

    /// Leading blocks of `runs` that some prompt in the tree has, and the node at their end or,
    /// where that lies on an edge, the node behind it. The prompts that have these blocks are the
    /// ones through that node.
    pub(super) fn longest(&self, runs: &[IdRun]) -> (u64, NodeId) {
        let (mut node, mut rest) = (ROOT, Cursor::new(runs));
        loop {
            let depth = self.nodes[node].depth;
            let Some(child) = rest.id().and_then(|id| self.nodes[node].children.get(&id)) else {
                return (depth, node);
            };
            node = *child;
            let common = rest.skip_common(&self.nodes[node].label);
            if depth + common < self.nodes[node].depth {
                return (depth + common, node);
            }
        }
    }

    /// Adds a prompt and gives the node at its end.
    pub(super) fn insert(&mut self, runs: &[IdRun]) -> NodeId {
        let (mut node, mut rest) = (ROOT, Cursor::new(runs));
        while let Some(id) = rest.id() {
            let depth = self.nodes[node].depth;
            let Some(&child) = self.nodes[node].children.get(&id) else {
                let label = rest.remaining();
                let depth = depth + blocks(&label);
                return self.add(id, Node { parent: node, depth, label, ..Node::default() });
            };
            let common = rest.skip_common(&self.nodes[child].label);
            node = if depth + common < self.nodes[child].depth {
                self.split(id, child, common)
            } else {
                child
            };
        }
        node
    }

    /// Applies `change` to the marks of a node and of all before it.
    pub(super) fn mark_up(&mut self, mut node: NodeId, mut change: impl FnMut(&mut M)) {
        while node != ROOT {
            change(&mut self.nodes[node].mark);
            node = self.nodes[node].parent;
        }
    }

    /// A node's mark, to be changed.
    pub(super) fn mark_mut(&mut self, node: NodeId) -> &mut M {
        &mut self.nodes[node].mark
    }

    fn add(&mut self, first_id: u64, node: Node<M>) -> NodeId {
        let id = self.nodes.len();
        self.nodes[node.parent].children.insert(first_id, id);
        self.nodes.push(node);
        id
    }

    /// Puts a node on the edge to `child`, `at` blocks behind the edge's start.
    fn split(&mut self, first_id: u64, child: NodeId, at: u64) -> NodeId {
        let (upper, lower) = split_runs(&self.nodes[child].label, at);
        let parent = self.nodes[child].parent;
        let middle = self.add(
            first_id,
            Node {
                parent,
                depth: self.nodes[parent].depth + at,
                mark: self.nodes[child].mark.above(),
                label: upper,
                children: BTreeMap::from([(lower[0].first, child)]),
            },
        );
        self.nodes[child].parent = middle;
        self.nodes[child].label = lower;
        middle
    }
}

fn split_runs(runs: &[IdRun], at: u64) -> (Vec<IdRun>, Vec<IdRun>) {
    let mut rest = Cursor::new(runs);
    let mut upper = Vec::new();
    let mut missing = at;
    while missing > 0 {
        let Some(piece) = rest.piece() else { break };
        let count = piece.count.min(missing);
        upper.push(IdRun { first: piece.first, count });
        rest.skip(count);
        missing -= count;
    }
    (upper, rest.remaining())
}

/// What is left of a prompt.
struct Cursor<'a> {
    runs: &'a [IdRun],
    /// Ids of the first run that are behind the cursor already.
    used: u64,
}

impl<'a> Cursor<'a> {
    fn new(runs: &'a [IdRun]) -> Self {
        Self { runs, used: 0 }
    }

    fn piece(&self) -> Option<IdRun> {
        let run = self.runs.first()?;
        Some(IdRun { first: run.first + self.used, count: run.count - self.used })
    }

    fn id(&self) -> Option<u64> {
        self.piece().map(|piece| piece.first)
    }

    /// Moves on by `count` ids of the first piece.
    fn skip(&mut self, count: u64) {
        self.used += count;
        if self.runs.first().is_some_and(|run| run.count == self.used) {
            self.runs = &self.runs[1..];
            self.used = 0;
        }
    }

    /// Moves on as far as `other` says the same, and says how far that was.
    fn skip_common(&mut self, other: &[IdRun]) -> u64 {
        let mut other = Cursor::new(other);
        let mut common = 0;
        while let (Some(mine), Some(theirs)) = (self.piece(), other.piece()) {
            if mine.first != theirs.first {
                break;
            }
            let count = mine.count.min(theirs.count);
            self.skip(count);
            other.skip(count);
            common += count;
        }
        common
    }

    fn remaining(&self) -> Vec<IdRun> {
        let tail = self.runs.get(1..).unwrap_or_default();
        self.piece().into_iter().chain(tail.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Mark for Vec<u32> {
        fn above(&self) -> Self {
            self.clone()
        }
    }

    fn runs(pairs: &[(u64, u64)]) -> Vec<IdRun> {
        pairs.iter().map(|&(first, count)| IdRun { first, count }).collect()
    }

    fn filled(prompts: &[&[(u64, u64)]]) -> Tree<Vec<u32>> {
        let mut tree = Tree::new();
        for (number, prompt) in prompts.iter().enumerate() {
            let end = tree.insert(&runs(prompt));
            tree.mark_up(end, |mark: &mut Vec<u32>| mark.push(number as u32));
        }
        tree
    }

    fn answer(tree: &Tree<Vec<u32>>, prompt: &[(u64, u64)]) -> (u64, Vec<u32>) {
        let (common, node) = tree.longest(&runs(prompt));
        (common, tree.node(node).mark.clone())
    }

    #[test]
    fn the_longest_match_ends_at_a_node_on_an_edge_or_nowhere() {
        let tree = filled(&[&[(1, 10)], &[(1, 20)], &[(1, 12), (50, 4)]]);
        assert_eq!(answer(&tree, &[(1, 10)]), (10, vec![0, 1, 2]));
        assert_eq!(answer(&tree, &[(1, 11), (90, 5)]), (11, vec![1, 2]));
        assert_eq!(answer(&tree, &[(1, 5)]), (5, vec![0, 1, 2]));
        assert_eq!(answer(&tree, &[(1, 40)]), (20, vec![1]));
        assert_eq!(answer(&tree, &[(2, 40)]), (0, vec![]));
    }

    #[test]
    fn how_runs_are_cut_makes_no_difference() {
        let tree = filled(&[&[(1, 3), (4, 7)]]);
        assert_eq!(answer(&tree, &[(1, 10), (30, 1)]), (10, vec![0]));
        assert_eq!(answer(&tree, &[(1, 1), (2, 2), (4, 1), (9, 1)]), (4, vec![0]));
    }

    #[test]
    fn an_id_at_another_place_is_another_prompt() {
        let tree = filled(&[&[(1, 2), (7, 3)]]);
        assert_eq!(answer(&tree, &[(7, 3)]), (0, vec![]));
        assert_eq!(answer(&tree, &[(1, 2), (8, 2)]), (2, vec![0]));
    }
}
