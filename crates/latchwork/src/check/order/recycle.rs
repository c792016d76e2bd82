//! Room for new orders, by forgetting those of locks that are no more; and the graph derived anew.
//!
//! A lock of its own that ends leaves its node, and edges to it and from it, which count no more. They stay until more
//! memory would be needed, and they are a good part of what there is: then all of them are dropped at once, which
//! takes a look at everything.
//!
//! *Without a lock* edges are looked up meanwhile. Who does not find one looks again under the lock; who compares with
//! an edge looks at its key again in the end. A node gets its next lock only when no edge leads to it or from it; and all
//! threads forget which chains they know, in which the number may stand for the lock that was.

use super::SPLITS;
use super::graph::{Graph, RETIRED};
use crate::atomic::Ordering;
use crate::check::sink;

/// Fewer locks that have ended are not worth the look.
const WORTH: u32 = 1024;

/// In a node's flags: it is retired, and was so when this began. (Others are retired meanwhile.)
const GOES: u32 = 4;

/// The class of a node that is free.
const NONE: u32 = u32::MAX;

// Under the lock, all of it; so Relaxed does, but where others look without.
impl Graph {
    /// A node or an edge has found no room.
    pub(super) fn has_no_room(&self) {
        if self.head.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            sink::complain(format_args!(
                "no room for more orders of locks: new ones are not checked any more"
            ));
        }
    }

    /// Drops all edges of retired nodes, and frees these, if they are many.
    pub(super) fn drop_if_worth(&self) {
        let head = &self.head;
        let retired = head.retired.load(Ordering::Relaxed);
        let nodes = head.nodes.load(Ordering::Relaxed);
        if retired >= WORTH && retired >= nodes / 4 {
            self.drop_retired();
        }
    }

    pub(super) fn drop_retired(&self) {
        let nodes = self.head.nodes.load(Ordering::Relaxed);
        for number in (1..=nodes).filter(|number| self.has(*number, RETIRED)) {
            self.node(number).flags.fetch_or(GOES, Ordering::Relaxed);
        }
        self.rebuild();
        SPLITS.fetch_add(1, Ordering::Relaxed);
    }

    /// Derives all that follows from nodes and edges, without those that are to go. (There is room in the lists: each
    /// node has seen to that.)
    #[cold]
    pub(super) fn rebuild(&self) {
        self.change(|| {
            self.drop_what_goes();
            self.level_anew();
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

    /// Takes the keys of edges and nodes that go, and the lists of all.
    fn drop_what_goes(&self) {
        let head = &self.head;
        let edges = head.edges.load(Ordering::Relaxed);
        for number in 1..=edges {
            let edge = self.edge(number);
            let (from, to) = edge.ends();
            if self.has(from, GOES) || self.has(to, GOES) {
                // Release: who finds something else in the edge finds another key.
                edge.key.store(0, Ordering::Release);
            }
        }
        let nodes = head.nodes.load(Ordering::Relaxed);
        head.free_nodes.store(0, Ordering::Relaxed);
        for number in (1..=nodes).rev() {
            let node = self.node(number);
            node.first.store(0, Ordering::Relaxed);
            if self.has(number, GOES) {
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
