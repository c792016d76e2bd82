//! Room for new orders, by forgetting those of locks that are no more.
//!
//! A lock of its own that ends leaves its node, and edges to it and from it, which count no more. They stay until a node
//! or an edge finds no room: then all of them are dropped at once, which takes a look at everything.
//!
//! *Without a lock* edges are looked up meanwhile. One that is dropped keeps its place in the hash table marked as taken,
//! so that searches go on behind it, until nothing stands there. Who compares with an edge looks at its key again in the
//! end. A node gets its next lock only when no edge leads to it or from it; and all threads forget which chains they
//! know, in which the number may stand for the lock that was.

use super::{DROPPED, Graph, NODES, RETIRED, SLOTS, SPLITS};
use crate::atomic::Ordering;
use crate::check::sink;

/// Fewer locks that have ended are not worth the look.
const WORTH: u32 = NODES as u32 / 64;

/// In a node's flags: it is retired, and was so when this began. (Others are retired meanwhile.)
const GOES: u32 = 4;

/// The class of a node that is free.
const NONE: u32 = u32::MAX;

// Under the lock, all of it; so Relaxed does, but where others look without.
impl Graph {
    /// A node that is free again, as new.
    pub(super) fn recycled_node(self) -> Option<u32> {
        let head = self.head();
        if head.free.load(Ordering::Relaxed) == 0 {
            self.drop_retired();
        }
        let number = head.free.load(Ordering::Relaxed);
        if number == 0 {
            self.has_no_room();
            return None;
        }
        let first = &self.node(number).first;
        head.free
            .store(first.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        Some(number)
    }

    /// A place for an edge that found none.
    pub(super) fn recycled_edge(self, key: u64) -> Option<usize> {
        self.drop_retired();
        let (_, free) = self.find(key);
        if free.is_none() {
            self.has_no_room();
        }
        free
    }

    fn has_no_room(self) {
        if self.head().lost.fetch_add(1, Ordering::Relaxed) == 0 {
            sink::complain(format_args!(
                "no room for more orders of locks: new ones are not checked any more"
            ));
        }
    }

    /// Drops all edges of retired nodes, and frees these.
    fn drop_retired(self) {
        let head = self.head();
        if head.retired.load(Ordering::Relaxed) < WORTH {
            return;
        }
        let nodes = head.nodes.load(Ordering::Relaxed);
        for number in (1..=nodes).filter(|number| self.has(*number, RETIRED)) {
            self.node(number).flags.fetch_or(GOES, Ordering::Relaxed);
        }
        let is_free = |number| self.node(number).class.load(Ordering::Relaxed) == NONE;
        for number in (1..=nodes).filter(|number| !is_free(*number)) {
            self.drop_edges_from(number);
        }
        for number in (1..=nodes).filter(|number| self.has(*number, GOES)) {
            head.retired.fetch_sub(1, Ordering::Relaxed);
            let node = self.node(number);
            node.key.store(0, Ordering::Relaxed);
            node.class.store(NONE, Ordering::Relaxed);
            node.dead.store(0, Ordering::Relaxed);
            node.flags.store(0, Ordering::Relaxed);
            let next = head.free.load(Ordering::Relaxed);
            node.first.store(next, Ordering::Relaxed);
            head.free.store(number, Ordering::Relaxed);
        }
        // Nothing stands behind the last place of a run.
        for index in (0..SLOTS).rev() {
            let key = &self.slot(index).key;
            if key.load(Ordering::Relaxed) == DROPPED
                && self.slot(index + 1).key.load(Ordering::Relaxed) == 0
            {
                key.store(0, Ordering::Relaxed);
            }
        }
        SPLITS.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops those edges that begin at a node and lead to one that goes, or all, if the node itself does.
    fn drop_edges_from(self, number: u32) {
        let is_gone = self.has(number, GOES);
        let mut link = &self.node(number).first;
        loop {
            let next = link.load(Ordering::Relaxed);
            let Some(index) = next.checked_sub(1) else {
                return;
            };
            let edge = self.slot(index as usize);
            if is_gone || self.has(edge.ends().1, GOES) {
                // First: in the child of a fork that comes in between it is in no list, but not in two.
                link.store(edge.next.load(Ordering::Relaxed), Ordering::Relaxed);
                edge.modes.store(0, Ordering::Relaxed);
                for (task, thread) in edge.tasks.iter().zip(&edge.threads) {
                    task.store(0, Ordering::Relaxed);
                    thread.store(0, Ordering::Relaxed);
                }
                edge.key.store(DROPPED, Ordering::Release);
            } else {
                link = &edge.next;
            }
        }
    }
}
