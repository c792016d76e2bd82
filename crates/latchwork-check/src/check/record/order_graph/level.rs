//! A topological order of the graph, in which each edge leads from a lower node to a higher one, maintained as edges
//! are added.
//!
//! Source: D. J. Pearce and P. H. J. Kelly, *A dynamic topological sort algorithm for directed acyclic graphs*, ACM
//! Journal of Experimental Algorithmics 11 (2006). Each node has a *level*, no two the same. An edge to a higher level
//! agrees with the order: nothing is done, and it completes no cycle. Otherwise the nodes between the two levels are
//! visited, ahead of the one end and behind the other; those nodes exchange levels among themselves, and no others
//! move.
//!
//! *Cycles* stay in the graph, since most are harmless, and a later edge may complete another one. So the nodes that
//! lie on a cycle are joined into one *component* (strongly connected), and the order is one of components. Each
//! component has a root node that represents it, to which the others lead ([`Node::component`], a union-find forest).
//! The root has two rings of edges: those that leave the component and those that enter it. Two components are joined
//! by joining their rings; an edge that now lies within a component leaves its ring when a walk meets it there. Only an
//! edge within a component can complete a cycle.
//!
//! *Removed edges* leave the order valid for what remains. Components may be larger than needed until the graph is
//! [rebuilt](crate::check::record::order_graph::recycle). An edge is not removed when its task did not get the lock
//! after all: the task requested the lock, and would have waited.
//!
//! Invariants, while no task has the lock:
//! 1. Of an edge between two components, both ends of which count, the first end has the lower level.
//! 2. Two nodes that lead to each other along edges that count are of one component.
//! 3. The levels of the components' roots differ from each other.
//! 4. Each edge between two components that counts is in the rings of both.

use super::graph::{Edge, Graph, RETIRED, SPLIT};
use crate::atomic::{AtomicU64, Ordering};

/// How many edges and nodes were visited for orders so far.
static WORK: AtomicU64 = AtomicU64::new(0);

/// The work for lock orders so far, in visited edges and nodes: for tests.
#[doc(hidden)]
#[must_use]
pub fn order_work() -> u64 {
    WORK.load(Ordering::Relaxed)
}

/// Adds to the work counter. Under the lock.
pub(crate) fn count_work(count: u32) {
    WORK.store(
        WORK.load(Ordering::Relaxed) + u64::from(count),
        Ordering::Relaxed,
    );
}

/// The direction in which edges are followed; also an index: of rings and marks for each direction.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

/// A level and its node as one number, which sorts by level.
const fn pair(level: u32, node: u32) -> u64 {
    (level as u64) << 32 | node as u64
}

// Relaxed, in all of this file: under the lock.
impl Graph {
    /// The root of a node's component: the node that represents it.
    pub(crate) fn root(&self, mut number: u32) -> u32 {
        loop {
            let up = self.node(number).component.load(Ordering::Relaxed);
            if up == 0 {
                return number;
            }
            let above = self.node(up).component.load(Ordering::Relaxed);
            if above != 0 {
                self.node(number).component.store(above, Ordering::Relaxed);
            }
            number = up;
        }
    }

    fn level(&self, root: u32) -> u32 {
        self.node(root).level.load(Ordering::Relaxed)
    }

    /// Whether edges to and from a node count.
    pub(crate) fn counts(&self, number: u32) -> bool {
        !self.has(number, SPLIT | RETIRED)
    }

    /// Adds an edge between these nodes to the order. There is room in the lists for all nodes.
    pub(crate) fn place(&self, from: u32, to: u32) {
        count_work(1);
        let (from, to) = (self.root(from), self.root(to));
        let (high, low) = (self.level(from), self.level(to));
        if from == to || high < low {
            return;
        }
        let walk = self.head.walks.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: the caller has the lock, and nothing below calls `lists` again.
        #[allow(unsafe_code)]
        let [ahead, behind, levels] = unsafe { self.scratch.lists() };
        let ahead = self.walk(Direction::Forward, to, low..=high, walk, ahead);
        let behind = self.walk(Direction::Backward, from, low..=high, walk, behind);
        let is_in = |number: u64, way: Direction| {
            self.node(number as u32).seen[way as usize].load(Ordering::Relaxed) == walk
        };
        let is_ahead = |number: u64| is_in(number, Direction::Forward);
        let is_behind = |number: u64| is_in(number, Direction::Backward);
        // The levels of all of these nodes, which are distributed among them again.
        let only_ahead = ahead.iter().filter(|number| !is_behind(**number));
        let all = only_ahead.chain(behind.iter());
        let mut count = 0;
        for (place, number) in levels.iter_mut().zip(all) {
            *place = u64::from(self.level(*number as u32));
            count += 1;
        }
        let levels = &mut levels[..count];
        levels.sort_unstable();
        // A node that is both ahead and behind lies on a cycle through the new edge.
        let mut cycle = None;
        for number in ahead.iter().filter(|number| is_behind(**number)) {
            match cycle {
                None => cycle = Some(*number as u32),
                Some(root) => self.join(root, *number as u32),
            }
        }
        let behind = self.by_level(behind, |number| !is_ahead(number));
        let ahead = self.by_level(ahead, |number| !is_behind(number));
        // The nodes behind get the lowest levels, so none of them moves up; those ahead get the highest, so none moves
        // down.
        let set = |number: u64, level: u64| {
            let node = self.node(number as u32);
            node.level.store(level as u32, Ordering::Relaxed);
        };
        for (number, level) in behind.iter().zip(levels.iter()) {
            set(*number, *level);
        }
        if let Some(root) = cycle {
            set(root.into(), levels[behind.len()]);
        }
        let highest = levels.len() - ahead.len();
        for (number, level) in ahead.iter().zip(&levels[highest..]) {
            set(*number, *level);
        }
    }

    /// The components that edges lead to from one, within these levels. They are marked as visited.
    fn walk(
        &self,
        way: Direction,
        from: u32,
        levels: core::ops::RangeInclusive<u32>,
        walk: u32,
        list: &'static mut [u64],
    ) -> &'static mut [u64] {
        list[0] = from.into();
        self.node(from).seen[way as usize].store(walk, Ordering::Relaxed);
        let (mut count, mut at) = (1, 0);
        let mut visited = 0;
        while at < count {
            visited += 1;
            let root = list[at] as u32;
            self.walk_ring(root, way, |edge| {
                visited += 1;
                let (start, end) = edge.ends();
                let other = self.root(match way {
                    Direction::Forward => end,
                    Direction::Backward => start,
                });
                if other == root || !self.counts(start) || !self.counts(end) {
                    return false;
                }
                let is_seen = &self.node(other).seen[way as usize];
                if is_seen.load(Ordering::Relaxed) != walk && levels.contains(&self.level(other)) {
                    is_seen.store(walk, Ordering::Relaxed);
                    list[count] = other.into();
                    count += 1;
                }
                true
            });
            at += 1;
        }
        count_work(visited);
        &mut list[..count]
    }

    /// The wanted entries of a list, by ascending level.
    fn by_level<'l>(&self, list: &'l mut [u64], is_wanted: impl Fn(u64) -> bool) -> &'l [u64] {
        let mut count = 0;
        for at in 0..list.len() {
            if is_wanted(list[at]) {
                list[count] = pair(self.level(list[at] as u32), list[at] as u32);
                count += 1;
            }
        }
        let list = &mut list[..count];
        list.sort_unstable();
        for number in list.iter_mut() {
            *number &= u64::from(u32::MAX);
        }
        list
    }

    /// Walks round a ring of a component; `stays` decides whether an edge stays in it.
    fn walk_ring(&self, root: u32, way: Direction, mut stays: impl FnMut(&Edge) -> bool) {
        let ring = &self.node(root).rings[way as usize];
        let mut last = ring.load(Ordering::Relaxed);
        let mut before = last;
        while last != 0 {
            let link = &self.edge(before).next_in_rings[way as usize];
            let number = link.load(Ordering::Relaxed);
            let edge = self.edge(number);
            let is_last = number == last;
            if stays(edge) {
                before = number;
            } else {
                let after = edge.next_in_rings[way as usize].load(Ordering::Relaxed);
                link.store(after, Ordering::Relaxed);
                if is_last {
                    // The only edge of a ring links to itself.
                    last = if number == before { 0 } else { before };
                    ring.store(last, Ordering::Relaxed);
                }
            }
            if is_last {
                return;
            }
        }
    }

    /// Puts an edge into the rings of the components at both ends.
    pub(crate) fn put_in_rings(&self, number: u32) {
        let edge = self.edge(number);
        let (from, to) = edge.ends();
        for (node, way) in [(from, Direction::Forward), (to, Direction::Backward)] {
            edge.next_in_rings[way as usize].store(number, Ordering::Relaxed);
            self.join_ring(self.root(node), way, number);
        }
    }

    /// Joins the ring of an edge with a component's ring.
    fn join_ring(&self, root: u32, way: Direction, other: u32) {
        let ring = &self.node(root).rings[way as usize];
        let mine = ring.load(Ordering::Relaxed);
        if mine == 0 {
            ring.store(other, Ordering::Relaxed);
        } else {
            let [mine, theirs] =
                [mine, other].map(|number| &self.edge(number).next_in_rings[way as usize]);
            let next = mine.load(Ordering::Relaxed);
            mine.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
            theirs.store(next, Ordering::Relaxed);
        }
    }

    /// Joins two components; the first one's root becomes the root of both.
    fn join(&self, root: u32, other: u32) {
        for way in [Direction::Forward, Direction::Backward] {
            let theirs = self.node(other).rings[way as usize].swap(0, Ordering::Relaxed);
            if theirs != 0 {
                self.join_ring(root, way, theirs);
            }
        }
        self.node(other).component.store(root, Ordering::Relaxed);
    }

    /// Makes each node a component of its own, and gives them levels in the order that they had. There is room in the
    /// lists for all nodes.
    pub(crate) fn rebuild_levels(&self) {
        let nodes = self.head.nodes.load(Ordering::Relaxed);
        // SAFETY: the caller has the lock, and nothing below calls `lists` again.
        #[allow(unsafe_code)]
        let [list, ..] = unsafe { self.scratch.lists() };
        let list = &mut list[..nodes as usize];
        for (place, number) in list.iter_mut().zip(1..) {
            *place = pair(self.level(self.root(number)), number);
        }
        list.sort_unstable();
        for (level, number) in (1..).zip(list.iter()) {
            let node = self.node(*number as u32);
            node.level.store(level, Ordering::Relaxed);
            node.component.store(0, Ordering::Relaxed);
            for way in [Direction::Forward, Direction::Backward] {
                node.rings[way as usize].store(0, Ordering::Relaxed);
            }
        }
        self.head.levels.store(nodes, Ordering::Relaxed);
        count_work(nodes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::check::record::layout::zero;

    /// A small random number generator with Knuth's constants.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u32) -> u32 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) as u32 % limit
        }
    }

    /// Which nodes lead to which, along the edges that count.
    fn reach(graph: &Graph, count: u32) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; count as usize + 1]; count as usize + 1];
        for edge in graph.edges() {
            let (from, to) = edge.ends();
            reach[from as usize][to as usize] = graph.counts(from) && graph.counts(to);
        }
        for middle in 1..=count as usize {
            for from in 1..=count as usize {
                for to in 1..=count as usize {
                    reach[from][to] |= reach[from][middle] && reach[middle][to];
                }
            }
        }
        reach
    }

    /// Checks the invariants; if no edge was removed, components are also no larger than necessary.
    fn check(graph: &Graph, count: u32, is_exact: bool) {
        let reach = reach(graph, count);
        let mut levels: Vec<u32> = Vec::new();
        for one in 1..=count {
            if graph.root(one) == one {
                levels.push(graph.level(one));
            }
            for other in (1..=count).filter(|other| *other != one) {
                let [there, back] = [(one, other), (other, one)]
                    .map(|(from, to)| reach[from as usize][to as usize]);
                let is_same = graph.root(one) == graph.root(other);
                assert!(!(there && back) || is_same, "{one} {other}");
                assert!(!is_exact || !is_same || there && back, "{one} {other}");
                if there && !is_same {
                    let [low, high] = [one, other].map(|node| graph.level(graph.root(node)));
                    assert!(low < high, "{one} {other}");
                }
            }
        }
        let roots = levels.len();
        levels.sort_unstable();
        levels.dedup();
        assert_eq!(levels.len(), roots);
    }

    fn connect(graph: &Graph, from: u32, to: u32) {
        let key = pair(from, to);
        if from != to && graph.find(key).is_none() {
            let edge = graph.new_edge().expect("room");
            graph.publish(edge, key);
        }
    }

    const NODES: u32 = 24;

    fn new(seed: u64) -> (Graph, Random) {
        let graph = zero::<Graph>();
        for key in 1..=NODES {
            assert_eq!(graph.new_node(key.into(), u32::MAX - 1), Some(key));
        }
        (graph, Random(seed))
    }

    #[test]
    fn edges_lead_upwards_and_cycles_are_components() {
        for seed in 1..60 {
            let (graph, mut random) = new(seed);
            for _ in 0..40 {
                connect(&graph, 1 + random.below(NODES), 1 + random.below(NODES));
                check(&graph, NODES, true);
            }
        }
    }

    #[test]
    fn data_torn_by_a_fork_are_rebuilt() {
        for seed in 1..60 {
            let (graph, mut random) = new(seed);
            for _ in 0..30 {
                connect(&graph, 1 + random.below(NODES), 1 + random.below(NODES));
            }
            // As if an arbitrary subset of the stores had been copied.
            graph.head.changing.store(1, Ordering::Relaxed);
            for number in 1..=NODES {
                let node = graph.node(number);
                let [leaving, entering] = &node.rings;
                for part in [&node.first, leaving, entering, &node.level] {
                    if random.below(3) == 0 {
                        part.store(random.below(2), Ordering::Relaxed);
                    }
                }
            }
            graph.by_key.clear();
            graph.settle();
            check(&graph, NODES, true);
            for _ in 0..10 {
                connect(&graph, 1 + random.below(NODES), 1 + random.below(NODES));
                check(&graph, NODES, true);
            }
        }
    }

    #[test]
    fn order_remains_when_locks_are_destroyed() {
        for seed in 1..60 {
            let (graph, mut random) = new(seed);
            for round in 0..8 {
                for _ in 0..10 {
                    connect(&graph, 1 + random.below(NODES), 1 + random.below(NODES));
                }
                check(&graph, NODES, round == 0);
                let goes = 1 + random.below(NODES);
                graph.node(goes).flags.fetch_or(RETIRED, Ordering::Relaxed);
                graph.head.retired.fetch_add(1, Ordering::Relaxed);
                check(&graph, NODES, false);
                graph.drop_retired();
                check(&graph, NODES, true);
                assert_eq!(graph.new_node(1, u32::MAX - 1), Some(goes));
                check(&graph, NODES, true);
            }
        }
    }
}
