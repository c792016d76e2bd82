//! Recycling of nodes and edges: the orders of destroyed locks are dropped, and the graph is rebuilt.
//!
//! When a lock with a node of its own is destroyed, its node and edges stay, and no longer count. They stay until more
//! memory would be needed and they are a good part of the graph. Then all of them are dropped at once, in one pass over
//! everything.
//!
//! *Lookups without the lock* go on meanwhile. A task that does not find an edge searches again under the lock; a task
//! that compares with an edge reads its key again at the end. A node gets a new lock only when no edge leads to it or
//! from it; and all threads forget their known chains, in which its number may stand for the old lock.

use super::graph::{Graph, RETIRED, SPLITS};
use crate::atomic::Ordering;
use crate::check::record::standard_error::complain;

/// With fewer destroyed locks than this, a pass is not worth its cost.
const WORTH: u32 = 1024;

/// In a node's flags: it was retired when this pass began. (Others are retired meanwhile.)
const DROPPED: u32 = 4;

/// The class of a free node.
const NONE: u32 = u32::MAX;

// All of this runs under the lock; so Relaxed suffices, except where others read without it.
impl Graph {
    /// A node or an edge has found no room.
    pub(crate) fn has_no_room<T>(&self) -> Option<T> {
        if self.head.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            complain(format_args!(
                "no room for more lock orders: new ones are not checked"
            ));
        }
        None
    }

    /// Drops all edges of retired nodes, and frees these nodes, if they are many.
    pub(crate) fn drop_retired_if_worth(&self) {
        let head = &self.head;
        let retired = head.retired.load(Ordering::Relaxed);
        let nodes = head.nodes.load(Ordering::Relaxed);
        if retired >= WORTH && retired >= nodes / 4 {
            self.drop_retired();
        }
    }

    pub(crate) fn drop_retired(&self) {
        let nodes = self.head.nodes.load(Ordering::Relaxed);
        for number in (1..=nodes).filter(|number| self.has(*number, RETIRED)) {
            self.node(number).flags.fetch_or(DROPPED, Ordering::Relaxed);
        }
        self.rebuild();
        SPLITS.fetch_add(1, Ordering::Relaxed);
    }

    /// Rebuilds all derived data from nodes and edges, without those that are to be dropped. (There is room in the
    /// lists: the creation of each node has reserved it.)
    #[cold]
    pub(crate) fn rebuild(&self) {
        self.change(|| {
            self.clear_dropped();
            self.rebuild_levels();
            self.by_key.clear();
            let edges = self.head.edges.load(Ordering::Relaxed);
            self.head.free_edges.store(0, Ordering::Relaxed);
            for number in (1..=edges).rev() {
                let edge = self.edge(number);
                let key = edge.key.load(Ordering::Relaxed);
                if key == 0 {
                    let next = self.head.free_edges.swap(number, Ordering::Relaxed);
                    edge.next.store(next, Ordering::Relaxed);
                } else {
                    self.link(number);
                    self.by_key.enter(key, number);
                }
            }
        });
    }

    /// Clears the keys of edges and nodes that are to be dropped, and all lists.
    fn clear_dropped(&self) {
        let head = &self.head;
        let edges = head.edges.load(Ordering::Relaxed);
        for number in 1..=edges {
            let edge = self.edge(number);
            let (from, to) = edge.ends();
            if self.has(from, DROPPED) || self.has(to, DROPPED) {
                // Release: a reader that finds other contents in the edge finds another key.
                edge.key.store(0, Ordering::Release);
            }
        }
        let nodes = head.nodes.load(Ordering::Relaxed);
        head.free_nodes.store(0, Ordering::Relaxed);
        for number in (1..=nodes).rev() {
            let node = self.node(number);
            node.first.store(0, Ordering::Relaxed);
            if self.has(number, DROPPED) {
                head.retired.fetch_sub(1, Ordering::Relaxed);
                node.key.store(0, Ordering::Relaxed);
                node.class.store(NONE, Ordering::Relaxed);
                node.flags.store(0, Ordering::Relaxed);
            }
            if node.class.load(Ordering::Relaxed) == NONE {
                let next = head.free_nodes.swap(number, Ordering::Relaxed);
                node.first.store(next, Ordering::Relaxed);
            }
        }
    }
}
