//! Cycles of edges, and which of them are harmless: see the head of [`order`](crate::check::detect::order).
//!
//! A search is bounded: by the length of a cycle, and by the number of edges that it visits. Shorter cycles are tried
//! first.

use crate::atomic::{AtomicU64, Ordering};
use crate::check::record::board;
use crate::check::record::layout::COMMON;
use crate::check::record::order_graph::graph::{
    ASKED, Edge, GRAPH, Graph, HELD_COMMON, WANTED_COMMON, is_common,
};
use crate::check::record::order_graph::level::count_work;
use crate::check::record::standard_error::complain;

/// The longest cycle that is searched for.
const LONGEST: usize = 32;
/// The most edges that a search visits.
const BUDGET: u32 = 20_000;
/// The same after a cycle of one task was found, for a worse one.
const BUDGET_FOR_WORSE: u32 = 2_000;
/// The most edges that all searches together visit,
const BUDGET_OF_ALL: u32 = 1 << 20;
/// plus this many for each search.
const EACH: u32 = 64;

/// The shapes of the reported cycles of one task, up to this many.
static SHAPES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Forgets the reported shapes, so that they are reported again.
pub(crate) fn forget_shapes() {
    for place in &SHAPES {
        // Relaxed: tests run one after the other.
        place.store(0, Ordering::Relaxed);
    }
}

/// A cycle of edges, each of which begins where the one before ends; with a task for each.
#[derive(Clone, Copy)]
pub(crate) struct OrderCycle {
    edges: [u32; LONGEST],
    tasks: [u32; LONGEST],
    length: usize,
    /// Whether one task has made all of them.
    pub(crate) is_of_one_task: bool,
    /// Whether the very same locks form it. If not, two locks of a class do not have to be the same one ever.
    pub(crate) is_of_same_locks: bool,
}

impl OrderCycle {
    /// The edges, each with a task that has made it.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&'static Edge, u32)> + Clone {
        let pairs = self.edges.iter().zip(&self.tasks).take(self.length);
        pairs.map(|(edge, task)| (GRAPH.edge(*edge), *task))
    }
}

/// The more important of two cycles.
pub(super) fn more_important(
    one: Option<OrderCycle>,
    other: Option<OrderCycle>,
) -> Option<OrderCycle> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_of_one_task => Some(other),
        (one, other) => one.or(other),
    }
}

/// Searches for a cycle through an edge that is not harmless. Under the lock.
pub(super) fn search(edge: u32) -> Option<OrderCycle> {
    let (from, to) = GRAPH.edge(edge).ends();
    let root = GRAPH.root(from);
    if root != GRAPH.root(to) || !GRAPH.counts(from) || !GRAPH.counts(to) {
        return None;
    }
    // Relaxed: under the lock, as all accesses here.
    let debt = &GRAPH.head.debt;
    let owed = debt.load(Ordering::Relaxed).saturating_sub(EACH);
    let budget = BUDGET.min(BUDGET_OF_ALL.saturating_sub(owed));
    let mut search = Search {
        graph: &GRAPH,
        goal: from,
        root,
        budget,
        visited: 0,
        path: [0; LONGEST],
        of_one_task: None,
    };
    search.path[0] = edge;
    let found = search.two_edge_cycle(from, to).or_else(|| {
        let short = search.go(4);
        short.or_else(|| search.go(LONGEST))
    });
    debt.store(owed + search.visited, Ordering::Relaxed);
    count_work(search.visited);
    found.or_else(|| search.of_one_task.filter(is_new_shape))
}

struct Search {
    graph: &'static Graph,
    goal: u32,
    /// The root of the component in which all cycles through the edge lie.
    root: u32,
    budget: u32,
    visited: u32,
    path: [u32; LONGEST],
    /// The first cycle found whose edges one task has made.
    of_one_task: Option<OrderCycle>,
}

impl Search {
    /// The cycle of two edges, if there is one.
    fn two_edge_cycle(&mut self, from: u32, to: u32) -> Option<OrderCycle> {
        let back = self.graph.find(u64::from(to) << 32 | u64::from(from))?;
        self.path[1] = back;
        self.judge(2)
    }

    /// Follows all paths up to a length. Returns the first cycle that more than one task has made.
    fn go(&mut self, longest: usize) -> Option<OrderCycle> {
        let first_after = |edge: u32| {
            let (_, to) = self.graph.edge(edge).ends();
            self.graph.node(to).first.load(Ordering::Relaxed)
        };
        let mut next = first_after(self.path[0]);
        let mut length = 1;
        while self.budget > 0 {
            if next == 0 {
                length -= 1;
                if length == 0 {
                    break;
                }
                let edge = self.graph.edge(self.path[length]);
                next = edge.next.load(Ordering::Relaxed);
                continue;
            }
            self.budget -= 1;
            self.visited += 1;
            let edge = self.graph.edge(next);
            let (_, to) = edge.ends();
            self.path[length] = next;
            if to == self.goal {
                // Cycles of two edges were judged before.
                let cycle = (length > 1).then(|| self.judge(length + 1)).flatten();
                if cycle.is_some() {
                    return cycle;
                }
            } else if length + 1 < longest && self.may_extend(to, length) {
                length += 1;
                next = self.graph.node(to).first.load(Ordering::Relaxed);
                continue;
            }
            next = edge.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Whether the path, of so many edges, may go on through a node: the node may be part of a cycle, and is not on the
    /// path.
    fn may_extend(&self, node: u32, length: usize) -> bool {
        let mut path = self.path[..length].iter();
        self.graph.counts(node)
            && self.graph.root(node) == self.root
            && path.all(|edge| self.graph.edge(*edge).ends().0 != node)
    }

    /// The first edges of the path.
    fn edges(&self, length: usize) -> impl Iterator<Item = &'static Edge> + Clone {
        let edges = self.path[..length].iter();
        edges.map(|number| self.graph.edge(*number))
    }

    /// The same, each with the next one in the cycle.
    fn pairs(&self, length: usize) -> impl Iterator<Item = (&'static Edge, &'static Edge)> {
        let edges = self.edges(length);
        let next = edges.clone().skip(1).chain(edges.clone().take(1));
        edges.zip(next)
    }

    /// Returns the path as a cycle, unless it is harmless; a cycle of one task is kept aside.
    fn judge(&mut self, length: usize) -> Option<OrderCycle> {
        // Two edges, each with its task, at the same time: this is what a common gate forbids.
        let is_gated = |(number, edge): (usize, &Edge)| {
            let mut others = self.edges(length).skip(number + 1);
            others.any(|other| edge.excludes(other))
        };
        if self.edges(length).enumerate().any(is_gated) {
            return None;
        }
        // At each lock, the mode in which one task wants it excludes the mode in which the other holds it.
        let excludes = |(edge, next): (&Edge, &Edge)| edge.has(0b0101) || next.has(0b0011);
        if !self.pairs(length).all(excludes) {
            return None;
        }
        let mut cycle = OrderCycle {
            edges: self.path,
            tasks: [0; LONGEST],
            length,
            is_of_one_task: false,
            is_of_same_locks: self.is_of_same_locks(length),
        };
        let is_of_common = |(edge, next): (&Edge, &Edge)| self.is_of_common(edge, next);
        if self.pairs(length).all(is_of_common) && self.assign(&mut cycle.tasks[..length], 0) {
            return Some(cycle);
        }
        if self.of_one_task.is_none()
            && let Some(task) = self.only_task(length)
        {
            cycle.tasks = [task; LONGEST];
            cycle.is_of_one_task = true;
            if !is_known_shape(&cycle) {
                self.of_one_task = Some(cycle);
                let several = self.graph.head.task.load(Ordering::Relaxed) == COMMON;
                let left = if several { BUDGET_FOR_WORSE } else { 0 };
                self.budget = self.budget.min(left);
            }
        }
        None
    }

    /// Whether the locks at the node between two edges were taken by at least two tasks.
    fn is_of_common(&self, edge: &Edge, next: &Edge) -> bool {
        // The lock of a single lock's node was taken by the tasks of both edges.
        self.graph.is_single(edge.ends().1)
            || (edge.has(WANTED_COMMON) || is_common_now(&edge.wanted.lock))
                && (next.has(HELD_COMMON) || is_common_now(&next.held.lock))
    }

    /// Whether the very same locks form the cycle: for a class, those with which its edges were first made.
    fn is_of_same_locks(&self, length: usize) -> bool {
        let load = |address: &AtomicU64| address.load(Ordering::Relaxed);
        self.pairs(length).all(|(edge, next)| {
            self.graph.is_single(edge.ends().1) || load(&edge.wanted.lock) == load(&next.held.lock)
        })
    }

    /// A task that has made all edges of the path, with the very same locks; see the head of
    /// [`order`](crate::check::detect::order).
    fn only_task(&self, length: usize) -> Option<u32> {
        let edges = || self.edges(length);
        let is_common = |edge: &&Edge| is_common_now(&edge.held.lock);
        let common = edges().filter(is_common).count();
        let is_plain = edges().all(|edge| edge.has(ASKED))
            && self.is_of_same_locks(length)
            && (common == 0 || common == length);
        let mut tasks = edges().next()?.tasks();
        tasks.find(|task| is_plain && edges().all(|edge| edge.tasks().any(|one| one == *task)))
    }

    /// Finds a task for each edge, no two the same.
    fn assign(&self, tasks: &mut [u32], at: usize) -> bool {
        if at == tasks.len() {
            return true;
        }
        let edge = self.graph.edge(self.path[at]);
        for task in edge.tasks() {
            if !tasks[..at].contains(&task) {
                tasks[at] = task;
                if self.assign(tasks, at + 1) {
                    return true;
                }
            }
        }
        // There are more tasks, which were not recorded.
        tasks[at] = 0;
        edge.has_many_tasks() && self.assign(tasks, at + 1)
    }
}

/// Whether the lock at an address is common.
fn is_common_now(address: &AtomicU64) -> bool {
    let address = address.load(Ordering::Relaxed) as usize;
    let entry = board::board().and_then(|board| board.lock(address));
    entry.is_some_and(is_common)
}

/// A hash of a cycle's classes and places, independent of where it begins.
fn shape(cycle: &OrderCycle) -> u64 {
    let of_edge = |(edge, _): (&Edge, u32)| {
        let (from, to) = edge.ends();
        let key = |node: u32| GRAPH.node(node).key.load(Ordering::Relaxed);
        let site = |site: &AtomicU64| site.load(Ordering::Relaxed);
        let sites = [site(&edge.held.site), site(&edge.wanted.site)];
        let parts = [key(from), key(to)].into_iter().chain(sites);
        parts.fold(0, |hash: u64, part| {
            (hash ^ part)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
    };
    cycle.edges().map(of_edge).fold(1, u64::wrapping_add).max(1)
}

fn is_known_shape(cycle: &OrderCycle) -> bool {
    let shape = shape(cycle);
    let mut all = SHAPES.iter().map(|place| place.load(Ordering::Relaxed));
    all.any(|known| known == shape)
}

/// Whether a cycle is to be reported, as the first one of its shape.
fn is_new_shape(cycle: &OrderCycle) -> bool {
    let is_free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
    let Some((number, place)) = SHAPES.iter().enumerate().find(|(_, place)| is_free(place)) else {
        return false;
    };
    place.store(shape(cycle), Ordering::Relaxed);
    if number + 1 == SHAPES.len() {
        complain(format_args!(
            "too many contradictory lock orders within single tasks: no more of them are reported"
        ));
    }
    true
}
