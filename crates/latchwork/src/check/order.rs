//! The order in which locks are taken, and what would be a deadlock in another order of events.
//!
//! An *edge* A → B says that a task wanted B while it held A. Nodes are classes of locks (those of one name, or
//! that were initialised in one place), until two of a class are held together: then each of its locks becomes a node
//! of its own when it is next held together with another one. A circle of edges is a potential deadlock, but for the following.
//!
//! | harmless | how it is told |
//! | --- | --- |
//! | B was taken by a call that never waits | no edge |
//! | two of the edges were made under one more lock, of which one keeps the other out | each edge keeps the locks that were held each time: its *gates* |
//! | too few tasks to have one in each place of the circle | each edge keeps up to three tasks |
//! | readers, of whom one does not keep the other out | each edge keeps the modes; a circle needs a pair that exclude each other at each lock |
//! | locks of one class, taken in one order | nodes of their own |
//! | an address that another lock had before | a node ends with its lock; if nobody told, the next has one of its own |
//!
//! *Steady state:* nothing is held: nothing is done. A chain of held locks that this thread has had before is
//! found by its hash in memory of its own; the hash goes by locks and nodes, so that what has become another node, or
//! another lock at an address, is looked at again. Otherwise each edge is looked up, without a lock, and is changed
//! under the one lock only if something about it is new. Then a search goes from B back to A: no order is kept
//! up for that, since a new edge is rare, and stays known for ever.
//!
//! *Bounds:* [`NODES`] classes and locks of their own, and twice [`EDGES`] orders. What locks have left that are no more
//! is used again when there is no more room (`order/recycle.rs`); if that is too little, further orders are not
//! checked, which is said once, and counted.
//!
//! *Fork:* edges are copied. One that was being entered in that moment by another thread is whole, or not there.
#![allow(unsafe_code)]

mod search;

pub(super) use search::Circle;

use super::board;
use super::layout::{Entry, REMADE};
use super::own::{CHAINS, Mine, Own};
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::hook::record::{READS, pack};
use crate::hook::{Lock, Mode, Site};
use crate::sys::{board as memory, thread};
use core::ptr::{self, NonNull};

/// Edges that there is room for.
pub(super) const EDGES: usize = 1 << 15;
/// Nodes that there is room for.
pub(super) const NODES: usize = 1 << 16;

mod recycle;

const TASKS: usize = 3;
const GATES: usize = 4;

/// In [`Node::flags`]: the locks of this class are nodes of their own. Its edges count no more.
const SPLIT: u32 = 1;
/// The lock is no more, and its edges do not count.
const RETIRED: u32 = 2;
/// An [`Edge::key`]: there was an edge, and others that found this place taken stand behind.
const DROPPED: u64 = u64::MAX;
/// In a gate, beside its address: it was held as one of several readers. (Locks lie at even addresses.)
const READ_GATE: u64 = 1;
/// In [`Edge::modes`]: more tasks than fit have made this edge.
const MANY: u32 = 1 << 8;

/// A class, or a lock of its own.
#[repr(C)]
pub(super) struct Node {
    /// What a class is known by: the key of its name, or a site.
    key: AtomicU64,
    /// The first edge that begins here, + 1.
    first: AtomicU32,
    flags: AtomicU32,
    /// Of a lock of its own: its class's node.
    pub(super) class: AtomicU32,
    /// The search that found nothing behind it.
    dead: AtomicU32,
}

/// See the head of this file.
#[repr(C, align(64))]
pub(super) struct Edge {
    /// Both nodes; 0: free; [`DROPPED`].
    key: AtomicU64,
    /// The next edge from the same node, + 1.
    next: AtomicU32,
    /// A bit for each pair of modes: how the one was held, and the other wanted.
    modes: AtomicU32,
    /// The locks that were held each time, beside.
    gates: [AtomicU64; GATES],
    tasks: [AtomicU32; TASKS],
    /// Their threads.
    threads: [AtomicU32; TASKS],
    pub(super) held_at: AtomicU64,
    pub(super) wanted_at: AtomicU64,
    /// The two locks, and what they are, when it was made.
    pub(super) held: AtomicU64,
    pub(super) wanted: AtomicU64,
    pub(super) held_what: AtomicU32,
    pub(super) wanted_what: AtomicU32,
    name: [AtomicU64; 2],
}

/// The graph, in an arena that a fork copies.
#[derive(Clone, Copy)]
pub(super) struct Graph(NonNull<u8>);

// SAFETY: atomics, in memory that stays.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

#[repr(C)]
struct Head {
    nodes: AtomicU32,
    searches: AtomicU32,
    /// Edges and nodes that found no room.
    lost: AtomicU32,
    /// Nodes that are retired, and not free yet.
    retired: AtomicU32,
    /// The first node that is free again; each leads to the next by its first edge.
    free: AtomicU32,
}

const NODES_AT: usize = 4096;
const EDGES_AT: usize = NODES_AT + NODES * size_of::<Node>();
/// Twice the edges, so that searches are short.
const SLOTS: usize = EDGES * 2;
const BYTES: usize = EDGES_AT + SLOTS * size_of::<Edge>();

static GRAPH: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// How many classes were split so far.
static SPLITS: AtomicU32 = AtomicU32::new(0);

/// The graph; made at its first use. Under the lock when `make`.
fn graph(make: bool) -> Option<Graph> {
    // Acquire: pairs with the Release below.
    match NonNull::new(GRAPH.load(Ordering::Acquire)) {
        Some(base) => Some(Graph(base)),
        None if make => {
            let base = memory::arena(BYTES).ok()?;
            GRAPH.store(base.as_ptr(), Ordering::Release);
            Some(Graph(base))
        }
        None => None,
    }
}

impl Graph {
    fn at<T>(self, offset: usize) -> &'static T {
        // SAFETY: within the arena, which stays; atomics, for which zero is a value.
        unsafe { self.0.add(offset).cast().as_ref() }
    }

    fn head(self) -> &'static Head {
        self.at(0)
    }

    pub(super) fn node(self, number: u32) -> &'static Node {
        self.at(NODES_AT + (number as usize % NODES) * size_of::<Node>())
    }

    fn slot(self, index: usize) -> &'static Edge {
        self.at(EDGES_AT + (index % SLOTS) * size_of::<Edge>())
    }

    /// The edge, or the place for it.
    fn find(self, key: u64) -> (Option<usize>, Option<usize>) {
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2())) as usize;
        let mut free = None;
        for index in first..first + 256 {
            // Acquire: pairs with the Release in `enter`.
            match self.slot(index).key.load(Ordering::Acquire) {
                0 => return (None, free.or(Some(index % SLOTS))),
                found if found == key => return (Some(index % SLOTS), None),
                DROPPED => free = free.or(Some(index % SLOTS)),
                _ => {}
            }
        }
        (None, free)
    }

    /// All edges, for whoever saves them.
    pub(super) fn edges(self) -> impl Iterator<Item = &'static Edge> {
        (0..SLOTS)
            .map(move |index| self.slot(index))
            .filter(|edge| ![0, DROPPED].contains(&edge.key.load(Ordering::Acquire)))
    }

    /// A new node. Under the lock.
    fn new_node(self, key: u64, class: u32) -> Option<u32> {
        let mut number = self.head().nodes.load(Ordering::Relaxed) + 1;
        if (number as usize) < NODES {
            self.head().nodes.store(number, Ordering::Relaxed);
        } else {
            number = self.recycled_node()?;
        }
        let node = self.node(number);
        node.class.store(class, Ordering::Relaxed);
        node.key.store(key, Ordering::Relaxed);
        Some(number)
    }

    /// The node of a class. Under the lock.
    fn class(self, key: u64) -> Option<u32> {
        let known = self.head().nodes.load(Ordering::Relaxed);
        let is_it = |number: &u32| {
            let node = self.node(*number);
            node.class.load(Ordering::Relaxed) == 0 && node.key.load(Ordering::Relaxed) == key
        };
        // Locks are met once; classes are few.
        (1..=known).find(is_it).or_else(|| self.new_node(key, 0))
    }

    fn has(self, number: u32, flags: u32) -> bool {
        self.node(number).flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Whether a lock is to have a node of its own, and has its class's: that is split; or where it is first taken
    /// says nothing of what it is, as with one that follows others on a stack.
    fn is_to_be_single(self, entry: &Entry) -> bool {
        let node = entry.node.load(Ordering::Relaxed);
        let is_class = node != 0 && self.node(node).class.load(Ordering::Relaxed) == 0;
        is_class && (self.has(node, SPLIT) || entry.what.load(Ordering::Relaxed) & REMADE != 0)
    }

    /// Gives a lock a node of its own, if it is to have one. Under the lock.
    fn single_out(self, entry: &Entry) {
        if self.is_to_be_single(entry) {
            let class = entry.node.load(Ordering::Relaxed);
            let key = self.node(class).key.load(Ordering::Relaxed);
            let own = self.new_node(key, class).unwrap_or(0);
            entry.node.store(own, Ordering::Relaxed);
        }
    }
}

/// Orders of locks that found no room, and are not checked.
pub(super) fn lost() -> u32 {
    graph(false).map_or(0, |graph| graph.head().lost.load(Ordering::Relaxed))
}

/// The saved graph, if there is one.
pub(super) fn current() -> Option<Graph> {
    graph(false)
}

/// The node for a lock of a class that is known by `key`. If the one before it at its address, of node `before`, had
/// one of its own, so has this one from the beginning: threads know their chains by nodes. Under the lock.
pub(super) fn node_for(key: u64, before: u32) -> u32 {
    let find = |graph: Graph| {
        let class = graph.class(key)?;
        let is_single = graph.node(before).class.load(Ordering::Relaxed) != 0;
        let own = is_single.then(|| graph.new_node(key, class));
        own.flatten().or(Some(class))
    };
    graph(true).and_then(find).unwrap_or(0)
}

/// A lock is no more: what was learned of it alone does not count for the next one there.
pub(super) fn retire(node: u32) {
    if let Some(graph) = graph(false)
        && graph.node(node).class.load(Ordering::Relaxed) != 0
        && graph.node(node).flags.fetch_or(RETIRED, Ordering::Relaxed) & RETIRED == 0
    {
        graph.head().retired.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the thread holds and now takes, in this order, as a number: another one when a lock has become another node,
/// or when a class was split.
#[inline(always)]
fn chain(own: &Own, address: usize, what: u32, node: u32) -> u64 {
    let step = |hash: u64, address: usize, node: u32, what: u32| {
        (hash ^ address as u64 ^ u64::from(node) << 47 ^ u64::from(what & READS) << 47)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    };
    // Relaxed, here and below: who sees the change late notes the chain at its next turn.
    let first = 1 + u64::from(SPLITS.load(Ordering::Relaxed));
    let mut hash = first;
    for mine in own.locks() {
        hash = step(hash, mine.address, mine.node, mine.what);
    }
    step(hash, address, node, what) | 1
}

/// Whether the thread, which holds something, has taken these locks in this order before. (It keeps some chains.)
#[inline(always)]
pub(super) fn is_known(own: &Own, address: usize, what: u32, node: u32) -> bool {
    let chain = chain(own, address, what, node);
    let [latest, before] = &own.chains[place_of(chain)];
    latest.get() == chain || before.get() == chain
}

const fn place_of(chain: u64) -> usize {
    (chain >> 32) as usize % CHAINS
}

/// The calling task wants, or has just got, a lock by a call that may wait: notes the order, and returns a
/// circle that is one edge longer now.
#[inline]
pub(super) fn note(
    own: &Own,
    lock: Lock,
    entry: Option<&Entry>,
    mode: Mode,
    site: Site,
) -> Option<Circle> {
    let entry = entry?;
    if own.is_free() || !lock.kind.has_owner() {
        return None;
    }
    let node = entry.node.load(Ordering::Relaxed);
    let chain = chain(own, lock.address, pack(lock, mode), node);
    let [latest, before] = &own.chains[place_of(chain)];
    if latest.get() == chain || before.get() == chain {
        return None;
    }
    let circle = note_chain(own, lock, entry, mode, site);
    before.set(latest.replace(chain));
    circle
}

#[cold]
fn note_chain(own: &Own, lock: Lock, wanted: &Entry, mode: Mode, site: Site) -> Option<Circle> {
    let board = board::board()?;
    let mut found = None;
    for mine in own.locks() {
        let (held, held_mode) = mine.lock();
        if held.address == lock.address || !held.kind.has_owner() {
            continue;
        }
        let Some(entry) = board.lock(held.address) else {
            continue;
        };
        let nodes = [entry, wanted].map(|entry| entry.node.load(Ordering::Relaxed));
        let is_to_be_single =
            |entry| graph(false).is_some_and(|graph| graph.is_to_be_single(entry));
        if nodes[0] == nodes[1] || [entry, wanted].into_iter().any(is_to_be_single) {
            board::alone(|_| {
                let graph = graph(true)?;
                split(graph, entry, wanted);
                graph.single_out(entry);
                graph.single_out(wanted);
                Some(())
            });
        }
        let new = New {
            from: entry.node.load(Ordering::Relaxed),
            to: wanted.node.load(Ordering::Relaxed),
            modes: 1 << (held_mode as u32 * 2 + mode as u32),
            mine,
            lock,
            mode,
            site,
        };
        if new.from == 0 || new.to == 0 || new.from == new.to || new.is_known(own) {
            continue;
        }
        let circle = board::alone(|_| {
            let graph = graph(true)?;
            new.enter(graph, own)
                .then(|| search::search(graph, new.from, new.to))
                .flatten()
        });
        found = found.or(circle.flatten());
    }
    found
}

/// Has locks of one class be nodes of their own from now on. Under the lock.
fn split(graph: Graph, one: &Entry, other: &Entry) {
    let class = one.node.load(Ordering::Relaxed);
    if class != 0 && class == other.node.load(Ordering::Relaxed) && !graph.has(class, SPLIT) {
        graph.node(class).flags.fetch_or(SPLIT, Ordering::Relaxed);
        SPLITS.fetch_add(1, Ordering::Relaxed);
    }
}

/// An edge that may be new.
struct New {
    from: u32,
    to: u32,
    modes: u32,
    mine: Mine,
    lock: Lock,
    mode: Mode,
    site: Site,
}

impl New {
    fn key(&self) -> u64 {
        u64::from(self.from) << 32 | u64::from(self.to)
    }

    /// The locks that the task holds beside the two; those that it holds alone first.
    fn gates<'o>(&self, own: &'o Own) -> impl Iterator<Item = u64> + use<'o> {
        let held = self.mine.address;
        let wanted = self.lock.address;
        let beside = own
            .locks()
            .filter(move |mine| mine.address != held && mine.address != wanted);
        let alone = beside.clone().filter(|mine| !mine.reads());
        let read = beside.filter(Mine::reads);
        alone
            .map(|mine| mine.address as u64)
            .chain(read.map(|mine| mine.address as u64 | READ_GATE))
    }

    /// What is left of a gate, as the task holds it now; 0: nothing.
    fn kept(&self, own: &Own, gate: u64) -> u64 {
        let is_it = |held: &u64| held | READ_GATE == gate | READ_GATE;
        let held = self.gates(own).find(is_it);
        held.map_or(0, |held| held | gate)
    }

    /// Whether nothing about it is new. (Gates only ever go, tasks and modes only ever come: what is found
    /// is true, if not the latest.)
    fn is_known(&self, own: &Own) -> bool {
        let Some(graph) = graph(false) else {
            return false;
        };
        let (Some(index), _) = graph.find(self.key()) else {
            return false;
        };
        let edge = graph.slot(index);
        let modes = edge.modes.load(Ordering::Relaxed);
        let me = own.task.get();
        let tasks = edge.tasks.iter().map(|task| task.load(Ordering::Relaxed));
        modes & self.modes != 0
            && (modes & MANY != 0 || tasks.into_iter().any(|task| task == me))
            && edge.gates.iter().all(|gate| {
                let gate = gate.load(Ordering::Relaxed);
                gate == 0 || self.kept(own, gate) == gate
            })
            // It may have become another edge.
            && edge.key.load(Ordering::Acquire) == self.key()
    }

    /// Enters what is new; whether anything is. Under the lock.
    fn enter(&self, graph: Graph, own: &Own) -> bool {
        let (known, free) = graph.find(self.key());
        let index = known.or(free);
        let Some(index) = index.or_else(|| graph.recycled_edge(self.key())) else {
            return false;
        };
        let edge = graph.slot(index);
        let mut is_new = false;
        if known.is_none() {
            is_new = true;
            let gates = self.gates(own).chain(core::iter::repeat(0));
            for (place, gate) in edge.gates.iter().zip(gates) {
                place.store(gate, Ordering::Relaxed);
            }
            edge.held_at.store(self.mine.site.0, Ordering::Relaxed);
            edge.wanted_at.store(self.site.0, Ordering::Relaxed);
            edge.held.store(self.mine.address as u64, Ordering::Relaxed);
            edge.wanted
                .store(self.lock.address as u64, Ordering::Relaxed);
            edge.held_what.store(self.mine.what, Ordering::Relaxed);
            let what = pack(self.lock, self.mode);
            edge.wanted_what.store(what, Ordering::Relaxed);
            // Threads mostly get their names after they have begun.
            let task_name = thread::name();
            own.publish(|record| record.set_name(&task_name));
            for (place, task_name) in edge.name.iter().zip(&own.record().name) {
                place.store(task_name.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        } else {
            for place in &edge.gates {
                let gate = place.load(Ordering::Relaxed);
                let kept = if gate == 0 { 0 } else { self.kept(own, gate) };
                if kept != gate {
                    place.store(kept, Ordering::Relaxed);
                    is_new = true;
                }
            }
        }
        is_new |= edge.modes.fetch_or(self.modes, Ordering::Relaxed) & self.modes == 0;
        is_new |= edge.add_task(own.task.get(), own.thread.get());
        if known.is_none() {
            let from = graph.node(self.from);
            edge.next
                .store(from.first.load(Ordering::Relaxed), Ordering::Relaxed);
            // Release: who finds it by its key finds all of it. The list is gone along under the lock.
            edge.key.store(self.key(), Ordering::Release);
            from.first.store(index as u32 + 1, Ordering::Relaxed);
        }
        is_new
    }
}

impl Edge {
    /// Whether the task is a new one.
    fn add_task(&self, task: u32, thread: u32) -> bool {
        if self.modes.load(Ordering::Relaxed) & MANY != 0 {
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

    /// Whether two tasks cannot make the two at the same time: by a lock that both hold, one of them alone.
    fn excludes(&self, other: &Self) -> bool {
        let gates = |edge: &Self| {
            edge.gates
                .each_ref()
                .map(|gate| gate.load(Ordering::Relaxed))
        };
        let theirs = gates(other);
        gates(self)
            .into_iter()
            .filter(|mine| *mine != 0)
            .any(|mine| {
                let is_it = |gate: &&u64| **gate | READ_GATE == mine | READ_GATE;
                theirs
                    .iter()
                    .find(is_it)
                    .is_some_and(|gate| gate & mine & READ_GATE == 0)
            })
    }

    pub(super) fn ends(&self) -> (u32, u32) {
        let key = self.key.load(Ordering::Relaxed);
        ((key >> 32) as u32, key as u32)
    }

    fn tasks(&self) -> impl Iterator<Item = u32> {
        self.tasks
            .iter()
            .map(|task| task.load(Ordering::Relaxed))
            .filter(|task| *task != 0)
    }

    /// The thread of a task that has made it; 0: not known.
    pub(super) fn thread_of(&self, task: u32) -> u32 {
        let is_it = |place: &AtomicU32| place.load(Ordering::Relaxed) == task;
        let place = self.tasks.iter().position(is_it).filter(|_| task != 0);
        place.map_or(0, |place| self.threads[place].load(Ordering::Relaxed))
    }

    /// Whether a task was the first to make it.
    pub(super) fn is_by(&self, task: u32) -> bool {
        self.tasks[0].load(Ordering::Relaxed) == task
    }

    fn has_many_tasks(&self) -> bool {
        self.modes.load(Ordering::Relaxed) & MANY != 0
    }

    /// The thread's name that made it first.
    pub(super) fn name(&self) -> [u8; 16] {
        let mut name = [0; 16];
        for (place, eight) in self.name.iter().zip(name.chunks_exact_mut(8)) {
            eight.copy_from_slice(&place.load(Ordering::Relaxed).to_le_bytes());
        }
        name
    }
}
