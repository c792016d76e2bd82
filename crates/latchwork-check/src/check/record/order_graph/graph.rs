//! The graph: nodes, edges, and how they are found.
//!
//! The primary data are the nodes' keys, classes and flags, and the edges that have a key. All else is derived from
//! them: the lists of edges of each node, the index, components and levels. While derived data are being changed,
//! [`Head::changing`] is set; the child of a fork that finds it set derives all of them again ([`Graph::settle`]).

use super::store::{Index, Rows, Scratch};
use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::check::record::layout::{COMMON, Entry, NO_TASK, REMADE, plain, zero};
use crate::hook::record::unpack;
use crate::hook::{Lock, Mode, RecordedSite, Site};

/// In a gate, beside its address: the lock was held as one of several readers. (Locks lie at even addresses.)
pub(crate) const READ_GATE: u64 = 1;
/// Above the address: the lock's generation, since another lock may have been at the address before.
pub(crate) const GATE_GENERATION: u32 = 48;

/// How many classes were split so far.
pub(crate) static SPLITS: AtomicU32 = AtomicU32::new(0);

/// In [`Entry::node`]: the lock is common.
pub(crate) const COMMON_NODE: u32 = 1 << 31;

pub(crate) fn is_common(entry: &Entry) -> bool {
    let what = entry.what.load(Ordering::Relaxed);
    entry.task.load(Ordering::Relaxed) == COMMON || unpack(0, what).0.is_shared()
}

/// Counts a task in a word that names the only task, or records that there are several.
pub(crate) fn count_task(word: &AtomicU32, task: u32) {
    // Relaxed: under the lock.
    match word.load(Ordering::Relaxed) {
        NO_TASK => word.store(task, Ordering::Relaxed),
        known if known == task => {}
        _ => word.store(COMMON, Ordering::Relaxed),
    }
}

/// A lock's node.
pub(crate) fn node_of(entry: &Entry) -> u32 {
    entry.node.load(Ordering::Relaxed) & !COMMON_NODE
}

pub(crate) const TASKS: usize = 3;
pub(crate) const GATES: usize = 8;

/// In [`Node::flags`]: the class is split, its locks are nodes of their own. Its edges no longer count.
pub(crate) const SPLIT: u32 = 1;
/// The lock no longer exists, and its edges do not count.
pub(crate) const RETIRED: u32 = 2;

/// In [`Edge::modes`]: more tasks than fit have made this edge.
pub(crate) const MANY: u32 = 1 << 8;
/// A call that could wait for the lock has made it, other than the end of a wait for a condition.
pub(crate) const ASKED: u32 = 1 << 9;
/// It was made while the held lock was common.
pub(crate) const HELD_COMMON: u32 = 1 << 10;
/// The same for the wanted lock.
pub(crate) const WANTED_COMMON: u32 = 1 << 11;

/// More gates were held whenever it was made than fit; none is recorded.
pub(crate) const MANY_GATES: u32 = 1 << 12;

/// A class, or a lock with a node of its own.
#[repr(C)]
pub(crate) struct Node {
    /// The key of a class: that of its name, or a site.
    pub(crate) key: AtomicU64,
    /// The first edge that begins here; for a free node, the next free node.
    pub(crate) first: AtomicU32,
    pub(crate) flags: AtomicU32,
    /// The node of its class, if this is a lock's own node; else 0.
    pub(crate) class: AtomicU32,
    /// Its level in the order, if it is the root of its component.
    pub(crate) level: AtomicU32,
    /// A node nearer to the root of its component; 0 if it is the root.
    pub(crate) component: AtomicU32,
    /// If it is the root, the last edge of the ring of edges that leave its component, and the same for those that
    /// enter it; 0 if there is none.
    pub(crate) rings: [AtomicU32; 2],
    /// The latest walk along edges that has come here, and the latest one against the edges.
    pub(crate) seen: [AtomicU32; 2],
}

/// See the head of [`order`](crate::check::detect::order). The fields that searches read come first.
#[repr(C)]
pub(crate) struct Edge {
    /// Both nodes; 0 if the edge is free.
    pub(crate) key: AtomicU64,
    /// The next edge from the same node; for a free edge, the next free one.
    pub(crate) next: AtomicU32,
    /// The next edge that leaves the same component, and the next one that enters the same component.
    pub(crate) next_in_rings: [AtomicU32; 2],
    /// A bit for each pair of modes (held, wanted), and the flags above.
    pub(crate) modes: AtomicU32,
    pub(crate) tasks: [AtomicU32; TASKS],
    /// Their threads.
    pub(crate) threads: [AtomicU32; TASKS],
    /// The further locks that were held each time.
    pub(crate) gates: [AtomicU64; GATES],
    pub(crate) held: End,
    pub(crate) wanted: End,
    /// The name of the thread that made it first.
    pub(crate) name: [AtomicU64; 2],
}

/// One of the two locks of an edge, as it was when the edge was made.
#[repr(C)]
pub(crate) struct End {
    pub(crate) lock: AtomicU64,
    /// Where it was taken, or wanted.
    pub(crate) site: AtomicU64,
    pub(crate) what: AtomicU32,
}

/// Changed under the lock, except `lost`.
pub(crate) struct Head {
    /// How many numbers of nodes and of edges are in use, including free ones among them; numbers begin at 1.
    pub(crate) nodes: AtomicU32,
    pub(crate) edges: AtomicU32,
    /// The first free node; each leads to the next.
    pub(crate) free_nodes: AtomicU32,
    pub(crate) free_edges: AtomicU32,
    /// How many nodes are retired, and not free yet.
    pub(crate) retired: AtomicU32,
    /// The highest level that was given.
    pub(crate) levels: AtomicU32,
    pub(crate) walks: AtomicU32,
    /// The only task that has made edges so far; or [`COMMON`].
    pub(crate) task: AtomicU32,
    /// How many edges searches have visited, beyond what new edges have allowed them.
    pub(crate) debt: AtomicU32,
    /// How many orders found no room.
    pub(crate) lost: AtomicU32,
    /// Set while data that are derived from nodes and edges are being changed.
    pub(crate) changing: AtomicU32,
}

/// The graph of this process. A fork copies it. Zeros are an empty graph.
pub(crate) struct Graph {
    nodes: Rows<Node>,
    edges: Rows<Edge>,
    /// The edges, by both nodes.
    pub(crate) by_key: Index,
    /// The classes, by key.
    classes: Index,
    pub(crate) scratch: Scratch,
    pub(crate) head: Head,
}

plain!(Node, Edge, Graph);

pub(crate) static GRAPH: Graph = zero();

impl Graph {
    /// A node by its number; number 0 is a node without edges.
    pub(crate) fn node(&self, number: u32) -> &'static Node {
        static NONE: Node = Node {
            flags: AtomicU32::new(RETIRED),
            ..zero()
        };
        let row = number.checked_sub(1).and_then(|row| self.nodes.get(row));
        row.unwrap_or(&NONE)
    }

    /// An edge by its number; number 0 is a free edge.
    pub(crate) fn edge(&self, number: u32) -> &'static Edge {
        static NONE: Edge = zero();
        let row = number.checked_sub(1).and_then(|row| self.edges.get(row));
        row.unwrap_or(&NONE)
    }

    /// The edge between two nodes, both of which its key names.
    pub(crate) fn find(&self, key: u64) -> Option<u32> {
        // Acquire: pairs with the Release in `publish`.
        let is_it = |number: u32| self.edge(number).key.load(Ordering::Acquire) == key;
        self.by_key.find(key, is_it)
    }

    /// All edges, for saving them.
    pub(crate) fn edges(&self) -> impl Iterator<Item = &'static Edge> {
        let count = self.head.edges.load(Ordering::Acquire);
        let edges = (1..=count).map(|number| self.edge(number));
        edges.filter(|edge| edge.key.load(Ordering::Acquire) != 0)
    }

    /// Runs a change of the derived data. Under the lock.
    pub(crate) fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        let changing = &self.head.changing;
        changing.store(1, Ordering::Relaxed);
        // A fork by another thread copies no part of the change without the mark,
        fence(Ordering::SeqCst);
        let result = change();
        // and copies the cleared mark only with all of the change.
        fence(Ordering::SeqCst);
        changing.store(0, Ordering::Relaxed);
        result
    }

    /// Repairs what a thread of the parent was changing when this process was forked. Under the lock, before all else.
    pub(crate) fn settle(&self) {
        if self.head.changing.load(Ordering::Relaxed) != 0 {
            self.rebuild();
            SPLITS.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A new node. Under the lock.
    pub(crate) fn new_node(&self, key: u64, class: u32) -> Option<u32> {
        let head = &self.head;
        let next = head.nodes.load(Ordering::Relaxed) + 1;
        let is_free = || head.free_nodes.load(Ordering::Relaxed) != 0;
        if !is_free() && Rows::<Node>::begins_piece(next - 1) {
            self.drop_retired_if_worth();
        }
        let number = if is_free() {
            take_free(&head.free_nodes, |number| &self.node(number).first)
        } else {
            if !self.nodes.make(next - 1) || !self.scratch.make_room(next as usize) {
                return self.has_no_room();
            }
            head.nodes.store(next, Ordering::Relaxed);
            next
        };
        let node = self.node(number);
        let level = head.levels.fetch_add(1, Ordering::Relaxed) + 1;
        node.level.store(level, Ordering::Relaxed);
        node.class.store(class, Ordering::Relaxed);
        node.key.store(key, Ordering::Relaxed);
        Some(number)
    }

    /// A free edge. Under the lock.
    pub(crate) fn new_edge(&self) -> Option<u32> {
        let head = &self.head;
        let is_free = || head.free_edges.load(Ordering::Relaxed) != 0;
        let next = head.edges.load(Ordering::Relaxed) + 1;
        if !is_free() && Rows::<Edge>::begins_piece(next - 1) {
            self.drop_retired_if_worth();
        }
        let key_of = |number: u32| self.edge(number).key.load(Ordering::Relaxed);
        if !self.by_key.make_room(key_of) {
            return self.has_no_room();
        }
        if is_free() {
            let next = |number| &self.edge(number).next;
            return Some(take_free(&head.free_edges, next));
        }
        if !self.edges.make(next - 1) {
            return self.has_no_room();
        }
        // Release: pairs with `edges`.
        head.edges.store(next, Ordering::Release);
        Some(next)
    }

    /// Publishes an edge, all of which but its key is stored. Under the lock.
    pub(crate) fn publish(&self, number: u32, key: u64) {
        let edge = self.edge(number);
        self.change(|| {
            // Release: a reader that finds the key finds the rest of the edge.
            edge.key.store(key, Ordering::Release);
            self.link(number);
            self.by_key.enter(key, number);
        });
    }

    /// Enters an edge into the list of its first node, and into the order. Under the lock.
    pub(crate) fn link(&self, number: u32) {
        let edge = self.edge(number);
        let (from, to) = edge.ends();
        // Relaxed: the list is read only under the lock.
        let before = self.node(from).first.swap(number, Ordering::Relaxed);
        edge.next.store(before, Ordering::Relaxed);
        if self.counts(from) && self.counts(to) {
            self.put_in_rings(number);
            self.place(from, to);
        }
    }

    /// The node of a class. Under the lock.
    fn class(&self, key: u64) -> Option<u32> {
        let key_of = |number: u32| self.node(number).key.load(Ordering::Relaxed);
        let known = self.classes.find(key, |number| key_of(number) == key);
        known.or_else(|| {
            if !self.classes.make_room(key_of) {
                return self.has_no_room();
            }
            let number = self.new_node(key, 0)?;
            self.classes.enter(key, number);
            Some(number)
        })
    }

    /// A lock was destroyed: the orders that were learned of it alone do not count for the next lock at its address.
    pub(crate) fn retire(&self, node: u32) {
        let node = node & !COMMON_NODE;
        if self.is_single(node)
            && self.node(node).flags.fetch_or(RETIRED, Ordering::Relaxed) & RETIRED == 0
        {
            self.head.retired.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, number: u32, flags: u32) -> bool {
        self.node(number).flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Whether a node belongs to a single lock.
    pub(crate) fn is_single(&self, number: u32) -> bool {
        self.node(number).class.load(Ordering::Relaxed) != 0
    }

    /// Whether a lock must get a node of its own and still has its class's: because the class is split, or because the
    /// place of its first use does not identify it, as with a lock that follows others on a stack.
    pub(crate) fn is_to_be_single(&self, entry: &Entry) -> bool {
        let node = node_of(entry);
        let is_class = node != 0 && !self.is_single(node);
        is_class && (self.has(node, SPLIT) || entry.what.load(Ordering::Relaxed) & REMADE != 0)
    }

    /// Gives a lock a node of its own, if it must have one. Under the lock.
    pub(crate) fn single_out(&self, entry: &Entry) {
        if self.is_to_be_single(entry) {
            let class = node_of(entry);
            let key = self.node(class).key.load(Ordering::Relaxed);
            let own = self.new_node(key, class).unwrap_or(0);
            entry.node.store(own, Ordering::Relaxed);
        }
    }

    /// The node for a lock of the class `key`. If the lock before it at its address, of node `before`, had a node of
    /// its own, this one gets one from the beginning, since threads know their chains by nodes. Under the lock.
    pub(crate) fn node_for(&self, key: u64, before: u32) -> u32 {
        self.settle();
        let find = || {
            let class = self.class(key)?;
            let own = self.is_single(before).then(|| self.new_node(key, class));
            own.flatten().or(Some(class))
        };
        find().unwrap_or(0)
    }
}

/// Takes the first number from a list of free ones, which is not empty. Under the lock.
fn take_free(list: &AtomicU32, next: impl FnOnce(u32) -> &'static AtomicU32) -> u32 {
    let number = list.load(Ordering::Relaxed);
    let after = next(number).swap(0, Ordering::Relaxed);
    list.store(after, Ordering::Relaxed);
    number
}

impl End {
    pub(crate) fn store(&self, lock: u64, what: u32, site: Site) {
        self.lock.store(lock, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
        self.site.store(site.raw(), Ordering::Relaxed);
    }

    /// The lock, the mode in which it was taken or wanted, and where.
    pub(crate) fn load(&self) -> (Lock, Mode, RecordedSite) {
        let what = self.what.load(Ordering::Relaxed);
        let (lock, mode) = unpack(self.lock.load(Ordering::Relaxed), what);
        let site = self.site.load(Ordering::Relaxed);
        (lock, mode, RecordedSite::new(site))
    }
}

impl Edge {
    /// Adds a task. Returns whether it is new.
    pub(crate) fn add_task(&self, task: u32, thread: u32) -> bool {
        if self.has_many_tasks() {
            return false;
        }
        for (place, its_thread) in self.tasks.iter().zip(&self.threads) {
            match place.load(Ordering::Relaxed) {
                0 => {
                    its_thread.store(thread, Ordering::Relaxed);
                    place.store(task, Ordering::Relaxed);
                    return true;
                }
                known if known == task => return false,
                _ => {}
            }
        }
        self.modes.fetch_or(MANY, Ordering::Relaxed);
        true
    }

    /// Whether two tasks cannot make both edges at the same time, because both hold a common gate, one of them
    /// exclusively. (If one has more gates than fit, each gate of the other may be among them.)
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let load = |gate: &AtomicU64| gate.load(Ordering::Relaxed);
        let gates = |edge: &Self| edge.gates.each_ref().map(load);
        let theirs = gates(other);
        let is_gated = |edge: &Self| edge.has(MANY_GATES) || gates(edge) != [0; GATES];
        if self.has(MANY_GATES) && is_gated(other) || other.has(MANY_GATES) && is_gated(self) {
            return true;
        }
        let excludes = |mine: u64| {
            let is_it = |gate: &&u64| **gate | READ_GATE == mine | READ_GATE;
            let same = theirs.iter().find(is_it);
            mine != 0 && same.is_some_and(|gate| gate & mine & READ_GATE == 0)
        };
        gates(self).into_iter().any(excludes)
    }

    pub(crate) fn ends(&self) -> (u32, u32) {
        let key = self.key.load(Ordering::Relaxed);
        ((key >> 32) as u32, key as u32)
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.modes.load(Ordering::Relaxed) & flags != 0
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = u32> {
        let tasks = self.tasks.iter().map(|task| task.load(Ordering::Relaxed));
        tasks.filter(|task| *task != 0)
    }

    /// The thread of a task that has made the edge; 0 if unknown.
    pub(crate) fn thread_of(&self, task: u32) -> u32 {
        let is_it = |place: &AtomicU32| place.load(Ordering::Relaxed) == task;
        let place = self.tasks.iter().position(is_it).filter(|_| task != 0);
        place.map_or(0, |place| self.threads[place].load(Ordering::Relaxed))
    }

    /// Whether a task was the first to make the edge.
    pub(crate) fn is_by(&self, task: u32) -> bool {
        self.tasks[0].load(Ordering::Relaxed) == task
    }

    pub(crate) fn has_many_tasks(&self) -> bool {
        self.has(MANY)
    }
}
