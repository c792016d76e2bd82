//! Circles of edges, and which of them are harmless: see the head of [`order`](super).
//!
//! A search is bounded: by the length of a circle, and by the edges that it looks at.

use super::{Edge, Graph, RETIRED, SPLIT, graph};
use crate::atomic::Ordering;

/// The longest circle that is looked for.
const LONGEST: usize = 12;
/// How many edges a search looks at.
const BUDGET: u32 = 20_000;

/// Edges of which each begins where the last one ends, in a circle; with a task for each.
#[derive(Clone, Copy)]
pub(in crate::check) struct Circle {
    edges: [usize; LONGEST],
    tasks: [u32; LONGEST],
    length: usize,
}

impl Circle {
    /// The edges, with a task that has made each.
    pub(in crate::check) fn edges(&self) -> impl Iterator<Item = (&'static Edge, u32)> + Clone {
        let graph = graph(false);
        let pairs = self.edges.iter().zip(&self.tasks).take(self.length);
        pairs.filter_map(move |(edge, task)| Some((graph?.slot(*edge), *task)))
    }
}

/// A circle through an edge that is not harmless. Under the lock.
pub(super) fn search(graph: Graph, from: u32, to: u32) -> Option<Circle> {
    let number = graph.head().searches.fetch_add(1, Ordering::Relaxed) + 1;
    let (Some(first), _) = graph.find(u64::from(from) << 32 | u64::from(to)) else {
        return None;
    };
    let mut search = Search {
        graph,
        number,
        goal: from,
        budget: BUDGET,
        path: [0; LONGEST],
        length: 1,
        result: None,
    };
    search.path[0] = first;
    search.go(to);
    search.result
}

struct Search {
    graph: Graph,
    number: u32,
    goal: u32,
    budget: u32,
    path: [usize; LONGEST],
    length: usize,
    result: Option<Circle>,
}

impl Search {
    /// Goes on from a node; whether the goal lies behind it at all.
    fn go(&mut self, at: u32) -> bool {
        if at == self.goal {
            self.result = self.judge();
            return true;
        }
        let node = self.graph.node(at);
        if node.dead.load(Ordering::Relaxed) == self.number
            || self.graph.has(at, SPLIT | RETIRED)
            || self.length == LONGEST
        {
            return false;
        }
        let mut leads = false;
        let mut next = node.first.load(Ordering::Relaxed);
        while next != 0 && self.budget > 0 && self.result.is_none() {
            self.budget -= 1;
            let index = next as usize - 1;
            let edge = self.graph.slot(index);
            let to = edge.ends().1;
            let is_on_path = self.path[..self.length]
                .iter()
                .any(|known| self.graph.slot(*known).ends().0 == to && to != self.goal);
            if !is_on_path {
                self.path[self.length] = index;
                self.length += 1;
                leads |= self.go(to);
                self.length -= 1;
            }
            next = edge.next.load(Ordering::Relaxed);
        }
        if !leads && self.budget > 0 && self.length < LONGEST / 2 {
            node.dead.store(self.number, Ordering::Relaxed);
        }
        leads
    }

    /// The path as a circle, unless it is harmless.
    fn judge(&self) -> Option<Circle> {
        let edges = || {
            self.path[..self.length]
                .iter()
                .map(|index| self.graph.slot(*index))
        };
        // Two of them, each with its task, at the same time: that is what one gate forbids.
        let is_gated = |(number, edge): (usize, &Edge)| {
            edges().skip(number + 1).any(|other| edge.excludes(other))
        };
        if edges().enumerate().any(is_gated) {
            return None;
        }
        let next = edges().skip(1).chain(edges().take(1));
        // At each lock: wanted by the one in a mode that the other's hold excludes.
        let excludes = edges().zip(next).all(|(edge, next)| {
            let wanted_alone = edge.modes.load(Ordering::Relaxed) & 0b0101 != 0;
            let held_alone = next.modes.load(Ordering::Relaxed) & 0b0011 != 0;
            wanted_alone || held_alone
        });
        let mut circle = Circle {
            edges: self.path,
            tasks: [0; LONGEST],
            length: self.length,
        };
        (excludes && self.assign(&mut circle.tasks, 0)).then_some(circle)
    }

    /// Finds a task for each edge, no two the same.
    fn assign(&self, tasks: &mut [u32; LONGEST], at: usize) -> bool {
        if at == self.length {
            return true;
        }
        let edge = self.graph.slot(self.path[at]);
        for task in edge.tasks() {
            if !tasks[..at].contains(&task) {
                tasks[at] = task;
                if self.assign(tasks, at + 1) {
                    return true;
                }
            }
        }
        // There are others, whose names were not kept.
        tasks[at] = 0;
        edge.has_many_tasks() && self.assign(tasks, at + 1)
    }
}
