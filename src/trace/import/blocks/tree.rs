//! A tree of prompts by their block ids, which answers how far a prompt repeats earlier ones.
//!
//! Prompts are runs of consecutive ids, and so are the tree's edges: what a step costs depends on
//! the number of runs and branches, never on the number of blocks.

use std::collections::BTreeMap;

use super::ids::{IdRun, blocks};

/// What a tree remembers at each of its nodes.
pub(in crate::trace::import) trait Mark: Default {
    /// The mark of a node put in above one that has this mark, on the same edge.
    fn above(&self) -> Self;
}

/// Position of a node in its tree.
pub(in crate::trace::import) type NodeId = u32;

/// One place where prompts end or part.
#[derive(Debug, Default)]
pub(in crate::trace::import) struct Node<M> {
    /// The node before it; a root is its own.
    pub(in crate::trace::import) parent: NodeId,
    /// Blocks from the start of the prompt to here; 0 at a root.
    pub(in crate::trace::import) depth: u64,
    /// Its mark.
    pub(in crate::trace::import) mark: M,
    label: Box<[IdRun]>,
    children: BTreeMap<u64, NodeId>,
}

impl<M> Node<M> {
    /// How many edges lead on.
    pub(in crate::trace::import) fn fan_out(&self) -> usize {
        self.children.len()
    }
}

/// Prompts by their block ids: one tree for each space in which ids mean the same.
#[derive(Debug)]
pub(in crate::trace::import) struct Tree<M> {
    nodes: Vec<Node<M>>,
}

impl<M: Mark> Tree<M> {
    pub(in crate::trace::import) fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The root of a new space: the empty prompt.
    pub(in crate::trace::import) fn root(&mut self) -> NodeId {
        let id = self.nodes.len() as NodeId;
        self.nodes.push(Node { parent: id, ..Node::default() });
        id
    }

    pub(in crate::trace::import) fn node(&self, id: NodeId) -> &Node<M> {
        &self.nodes[id as usize]
    }

    /// Adds a prompt to the space of `root` and gives the node at its end.
    pub(in crate::trace::import) fn insert(&mut self, root: NodeId, runs: &[IdRun]) -> NodeId {
        let (mut node, mut rest) = (root, Cursor::new(runs));
        while let Some(id) = rest.id() {
            let depth = self.node(node).depth;
            let Some(&child) = self.node(node).children.get(&id) else {
                let label = rest.remaining();
                let depth = depth + blocks(&label);
                let label = label.into_boxed_slice();
                return self.add(id, Node { parent: node, depth, label, ..Node::default() });
            };
            let common = rest.skip_common(&self.node(child).label);
            node = if depth + common < self.node(child).depth {
                self.split(id, child, common)
            } else {
                child
            };
        }
        node
    }

    /// The first node from `node` on towards its root that has what is asked for; else the root.
    pub(in crate::trace::import) fn upwards(
        &self,
        mut node: NodeId,
        found: impl Fn(&Node<M>) -> bool,
    ) -> NodeId {
        while self.node(node).depth > 0 && !found(self.node(node)) {
            node = self.node(node).parent;
        }
        node
    }

    /// Applies `change` to the marks of a node and of all before it.
    pub(in crate::trace::import) fn mark_up(
        &mut self,
        mut node: NodeId,
        mut change: impl FnMut(&mut M),
    ) {
        while self.node(node).depth > 0 {
            change(&mut self.nodes[node as usize].mark);
            node = self.node(node).parent;
        }
    }

    /// A node's mark, to be changed.
    pub(in crate::trace::import) fn mark_mut(&mut self, node: NodeId) -> &mut M {
        &mut self.nodes[node as usize].mark
    }

    fn add(&mut self, first_id: u64, node: Node<M>) -> NodeId {
        let id = self.nodes.len() as NodeId;
        self.nodes[node.parent as usize].children.insert(first_id, id);
        self.nodes.push(node);
        id
    }

    /// Puts a node on the edge to `child`, `at` blocks behind the edge's start.
    fn split(&mut self, first_id: u64, child: NodeId, at: u64) -> NodeId {
        let (upper, lower) = split_runs(&self.node(child).label, at);
        let parent = self.node(child).parent;
        let middle = self.add(
            first_id,
            Node {
                parent,
                depth: self.node(parent).depth + at,
                mark: self.node(child).mark.above(),
                label: upper.into_boxed_slice(),
                children: BTreeMap::from([(lower[0].first, child)]),
            },
        );
        let child = &mut self.nodes[child as usize];
        child.parent = middle;
        child.label = lower.into_boxed_slice();
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

    /// Who shares how many leading blocks with the last of the prompts, longest first.
    fn shared(prompts: &[&[(u64, u64)]]) -> Vec<(u64, Vec<u32>)> {
        let mut tree: Tree<Vec<u32>> = Tree::new();
        let root = tree.root();
        let mut node = root;
        for (number, prompt) in prompts.iter().enumerate() {
            node = tree.insert(root, &runs(prompt));
            tree.mark_up(node, |mark: &mut Vec<u32>| mark.push(number as u32));
        }
        let mut found = Vec::new();
        while tree.node(node).depth > 0 {
            found.push((tree.node(node).depth, tree.node(node).mark.clone()));
            node = tree.node(node).parent;
        }
        found
    }

    #[test]
    fn prompts_meet_at_a_node_where_they_part_or_one_ends() {
        let first: [&[(u64, u64)]; 3] = [&[(1, 10)], &[(1, 20)], &[(1, 12), (50, 4)]];
        let with = |last| shared(&[first[0], first[1], first[2], last]);
        assert_eq!(with(&[(1, 10)]), [(10, vec![0, 1, 2, 3])]);
        assert_eq!(
            with(&[(1, 11), (90, 5)]),
            [(16, vec![3]), (11, vec![1, 2, 3]), (10, vec![0, 1, 2, 3])]
        );
        assert_eq!(with(&[(1, 5)]), [(5, vec![0, 1, 2, 3])]);
        assert_eq!(with(&[(2, 40)]), [(40, vec![3])]);
    }

    #[test]
    fn how_runs_are_cut_makes_no_difference() {
        let whole: &[(u64, u64)] = &[(1, 3), (4, 7)];
        assert_eq!(shared(&[whole, &[(1, 10)]]), [(10, vec![0, 1])]);
        let cut: &[(u64, u64)] = &[(1, 1), (2, 2), (4, 1), (9, 1)];
        assert_eq!(shared(&[whole, cut]), [(5, vec![1]), (4, vec![0, 1])]);
    }

    #[test]
    fn an_id_at_another_place_is_another_prompt() {
        assert_eq!(shared(&[&[(1, 2), (7, 3)], &[(7, 3)]]), [(3, vec![1])]);
        assert_eq!(shared(&[&[(1, 2), (7, 3)], &[(1, 2), (8, 2)]])[1], (2, vec![0, 1]));
    }

    #[test]
    fn spaces_know_nothing_of_each_other() {
        let mut tree: Tree<Vec<u32>> = Tree::new();
        let ends = [tree.root(), tree.root()].map(|root| tree.insert(root, &runs(&[(1, 3)])));
        assert_ne!(ends[0], ends[1]);
        assert_eq!(tree.upwards(ends[1], |_| false), 1);
    }
}
