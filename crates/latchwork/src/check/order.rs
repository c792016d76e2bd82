//! The order in which locks are taken, and what would be a deadlock in another order of events.
//!
//! An *edge* A → B says that a task wanted B while it held A. Nodes are classes of locks (those of one name, or
//! that were initialised in one place), until two of a class are held together: then each of its locks becomes a node
//! of its own when it is next held together with another one. A cycle of edges is a potential deadlock, but for the following.
//!
//! | harmless | how it is told |
//! | --- | --- |
//! | B was taken by a call that never waits | no edge |
//! | two of the edges were made under one more lock, of which one keeps the other out | each edge keeps the locks that were held each time: its *gates* |
//! | too few tasks to have one in each place of the cycle | each edge keeps up to three tasks |
//! | readers, of whom one does not keep the other out | each edge keeps the modes; a cycle needs a pair that exclude each other at each lock |
//! | locks of one class, taken in one order | nodes of their own |
//! | locks of one class, of which each task takes its own only | each edge keeps whether a lock of its ends was *common*: taken by at least two tasks; each place of the cycle needs one of both edges |
//! | an address that another lock had before | a node ends with its lock; if nobody told, the next has one of its own |
//!
//! *One task so far.* A cycle whose edges one task has all made may be its own business, or the fault of a program of which
//! no other task has run yet. It is a finding of its own rule, [`OneTaskOrder`](super::Rule::OneTaskOrder), with less
//! confidence, if the very same locks form the cycle (of a class: those with which its edges were first made), if some
//! call has asked for each of them, other than the end of a wait for a condition, and if either all of
//! them are common, or none is: what one task takes within a lock that many take is most probably its own. It becomes
//! the usual finding when another task makes one of the edges. Of one shape (classes and places) one is reported, and no
//! more than [`SHAPES`](search) in all.
//!
//! *Steady state:* nothing is held: nothing is done. A chain of held locks that this thread has had before is
//! found by its hash in memory of its own; the hash goes by locks and nodes, so that what has become another node,
//! another lock at an address, or common, is looked at again. Otherwise each edge is looked up, without a lock, and is
//! changed under the one lock only if something about it is new. Nodes are kept in an order in which all edges lead
//! upwards ([`level`]), so a new edge that agrees with it costs nothing more; another one is put in order, and
//! only within what lies on cycles already a search goes from B back to A.
//!
//! *Bounds:* nodes and edges grow without moving ([`store`]), up to two million of each, as far as there is
//! memory. What locks have left that are no more is used again (`order/recycle.rs`), rather than more memory. If there is
//! no more room, further orders are not checked, which is said once, and counted. A search looks at 20,000
//! edges at most, and all of them together at a million and 64 more for each.
//!
//! *Fork:* the graph is copied. One that was being changed in that moment by another thread is derived anew from its nodes
//! and edges, and an edge that was being entered is whole, or not there. *Death:* the graph is one process's, and dies
//! with it. *Signals:* a handler finds its thread at work, and is not watched.

mod common;
mod graph;
mod level;
mod recycle;
mod search;
mod store;

pub(super) use common::{COMMON, NOBODY, used};
pub(super) use graph::Edge;
pub use level::order_work;
pub(super) use search::{Circle, forget_shapes};

use super::board;
use super::layout::Entry;
use super::own::{CHAINS, Mine, Own};
use crate::atomic::{AtomicU32, Ordering, fence};
use crate::hook::record::{READS, pack};
use crate::hook::{How, Lock, Mode, Site};
use crate::sys::thread;
use common::COMMON_NODE;
use graph::{ASKED, GRAPH, HELD_COMMON, RETIRED, SPLIT, WANTED_COMMON};

/// In a gate, beside its address: it was held as one of several readers. (Locks lie at even addresses.)
const READ_GATE: u64 = 1;

/// How many classes were split so far.
static SPLITS: AtomicU32 = AtomicU32::new(0);

/// Orders of locks that found no room, and are not checked.
pub(super) fn lost() -> u32 {
    GRAPH.head.lost.load(Ordering::Relaxed)
}

/// All edges, for whoever saves them.
pub(super) fn edges() -> impl Iterator<Item = &'static Edge> {
    GRAPH.edges()
}

/// A lock's node.
pub(super) fn node_of(entry: &Entry) -> u32 {
    entry.node.load(Ordering::Relaxed) & !COMMON_NODE
}

/// The node for a lock of a class that is known by `key`, at an address where one of node `before` was. Under the lock.
pub(super) fn node_for(key: u64, before: u32) -> u32 {
    GRAPH.settle();
    GRAPH.node_for(key, before)
}

/// A lock is no more: what was learned of it alone does not count for the next one there.
pub(super) fn retire(node: u32) {
    let node = node & !COMMON_NODE;
    if GRAPH.is_single(node)
        && GRAPH.node(node).flags.fetch_or(RETIRED, Ordering::Relaxed) & RETIRED == 0
    {
        GRAPH.head.retired.fetch_add(1, Ordering::Relaxed);
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

/// The calling task wants, or has just got, a lock: notes who takes it and, if the call may wait, in which order. A
/// cycle that follows from that now, and did not before.
#[inline]
pub(super) fn note(
    own: &Own,
    lock: Lock,
    entry: Option<&Entry>,
    mode: Mode,
    how: How,
    site: Site,
) -> Option<Circle> {
    let entry = entry?;
    if !lock.kind.has_owner() {
        return None;
    }
    let learned = used(own, lock, entry);
    if own.is_free() || how == How::Tried {
        return learned;
    }
    let node = entry.node.load(Ordering::Relaxed);
    let chain = chain(own, lock.address, pack(lock, mode), node);
    let [latest, before] = &own.chains[place_of(chain)];
    // What the end of a wait for a condition makes of a chain is not all that there is to it.
    let is_again = how == How::Again;
    if !is_again && (latest.get() == chain || before.get() == chain) {
        return learned;
    }
    let circle = note_chain(own, lock, entry, mode, is_again, site);
    if !is_again {
        before.set(latest.replace(chain));
    }
    worse(learned, circle)
}

/// The one of which there is more to be said.
fn worse(one: Option<Circle>, other: Option<Circle>) -> Option<Circle> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_by_one() => Some(other),
        (one, other) => one.or(other),
    }
}

#[cold]
fn note_chain(
    own: &Own,
    lock: Lock,
    wanted: &Entry,
    mode: Mode,
    is_again: bool,
    site: Site,
) -> Option<Circle> {
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
        let both = [entry, wanted];
        let [held_node, wanted_node] = both.map(node_of);
        if held_node == wanted_node || both.into_iter().any(|entry| GRAPH.is_to_be_single(entry)) {
            board::alone(|_| {
                GRAPH.settle();
                split(entry, wanted);
                GRAPH.single_out(entry);
                GRAPH.single_out(wanted);
            });
        }
        let flag = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
        let new = New {
            from: node_of(entry),
            to: node_of(wanted),
            modes: 1 << (held_mode as u32 * 2 + mode as u32)
                | flag(!is_again, ASKED)
                | flag(common::is_common(entry), HELD_COMMON)
                | flag(common::is_common(wanted), WANTED_COMMON),
            mine,
            lock,
            mode,
            site,
        };
        if new.from == 0 || new.to == 0 || new.from == new.to {
            continue;
        }
        let (edge, circle) = match new.known(own) {
            Some(edge) => (Some(edge), None),
            None => board::alone(|_| {
                GRAPH.settle();
                new.enter(own)
            })
            .unwrap_or_default(),
        };
        if let Some(edge) = edge {
            common::remember(entry, wanted, edge);
        }
        found = worse(found, circle);
    }
    found
}

/// Has locks of one class be nodes of their own from now on. Under the lock.
fn split(one: &Entry, other: &Entry) {
    let class = node_of(one);
    if class != 0 && class == node_of(other) && !GRAPH.has(class, SPLIT) {
        let flags = &GRAPH.node(class).flags;
        flags.fetch_or(SPLIT, Ordering::Relaxed);
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

    /// The edge, if nothing about it is new. (Gates only ever go, tasks, modes and flags only ever come: what is found
    /// is true, if not the latest.)
    fn known(&self, own: &Own) -> Option<u32> {
        let number = GRAPH.find(self.key())?;
        let edge = GRAPH.edge(number);
        let me = own.task.get();
        let is_known = edge.modes.load(Ordering::Relaxed) & self.modes == self.modes
            && (edge.has_many_tasks() || edge.tasks().any(|task| task == me))
            && edge.gates.iter().all(|gate| {
                let gate = gate.load(Ordering::Relaxed);
                gate == 0 || self.kept(own, gate) == gate
            });
        // It may have become another edge.
        fence(Ordering::Acquire);
        let is_it = edge.key.load(Ordering::Relaxed) == self.key();
        (is_known && is_it).then_some(number)
    }

    /// Enters what is new. The edge, unless there is no room; and a cycle that it closes. Under the lock.
    fn enter(&self, own: &Own) -> (Option<u32>, Option<Circle>) {
        let known = GRAPH.find(self.key());
        let Some(number) = known.or_else(|| GRAPH.new_edge()) else {
            return (None, None);
        };
        let edge = GRAPH.edge(number);
        let mut is_new = known.is_none();
        if is_new {
            self.describe(edge, own);
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
        is_new |= edge.modes.fetch_or(self.modes, Ordering::Relaxed) & self.modes != self.modes;
        is_new |= edge.add_task(own.task.get(), own.thread.get());
        common::count_task(&GRAPH.head.task, own.task.get());
        if known.is_none() {
            GRAPH.publish(number, self.key());
        }
        let circle = is_new.then(|| search::search(number)).flatten();
        (Some(number), circle)
    }

    /// Says who made an edge, and how: it is free, and will have no other tasks and modes.
    fn describe(&self, edge: &Edge, own: &Own) {
        edge.modes.store(0, Ordering::Relaxed);
        for (task, thread) in edge.tasks.iter().zip(&edge.threads) {
            task.store(0, Ordering::Relaxed);
            thread.store(0, Ordering::Relaxed);
        }
        let gates = self.gates(own).chain(core::iter::repeat(0));
        for (place, gate) in edge.gates.iter().zip(gates) {
            place.store(gate, Ordering::Relaxed);
        }
        edge.held_at.store(self.mine.site.raw(), Ordering::Relaxed);
        edge.wanted_at.store(self.site.raw(), Ordering::Relaxed);
        let (held, wanted) = (self.mine.address as u64, self.lock.address as u64);
        edge.held.store(held, Ordering::Relaxed);
        edge.wanted.store(wanted, Ordering::Relaxed);
        edge.held_what.store(self.mine.what, Ordering::Relaxed);
        let what = pack(self.lock, self.mode);
        edge.wanted_what.store(what, Ordering::Relaxed);
        // Threads mostly get their names after they have begun, and keep them then.
        let orders = own.orders.replace(own.orders.get().wrapping_add(1));
        if orders < 8 || orders.is_power_of_two() {
            let task_name = thread::name();
            own.publish(|record| record.set_name(&task_name));
        }
        for (place, task_name) in edge.name.iter().zip(&own.record().name) {
            place.store(task_name.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
