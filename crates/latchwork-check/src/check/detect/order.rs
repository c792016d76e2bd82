//! The lock order: which locks are taken while others are held, and which orders could deadlock under another sequence
//! of events.
//!
//! An *edge* A → B says that a task wanted B while it held A. Nodes are classes of locks (those of one name, or
//! initialised in one place). When two locks of a class are held together, the class is split: from then on each of its
//! locks becomes a node of its own when it is next held together with another lock. A cycle of edges is a potential
//! deadlock, except in these cases:
//!
//! | harmless | how it is recognised |
//! | --- | --- |
//! | B was taken by a call that never waits | no edge |
//! | two of the edges were made while a further lock was held that excludes one from the other | each edge keeps the locks that were held every time it was made: its *gates* |
//! | there are too few tasks for one in each place of the cycle | each edge keeps up to three tasks |
//! | the locks were taken by readers, which do not exclude each other | each edge keeps the modes; a cycle needs a pair of modes that exclude each other at each lock |
//! | the locks are of one class and are taken in one order | nodes of their own |
//! | the locks are of one class, and each task takes only its own | each edge keeps whether a lock at its ends was *common*, that is, taken by at least two tasks; each place of the cycle needs a common lock on both edges |
//! | another lock had the same address before | a node ends with its lock; if the end of the lock was not reported, the next lock gets a node of its own |
//!
//! *Other locks of a class.* If the tasks of a cycle have taken different locks of a class, the deadlock is only suspected:
//! the class may contain locks that have nothing to do with each other, such as all that a wrapper of the lock call takes.
//!
//! *One task so far.* A cycle whose edges were all made by one task may be harmless, or be the fault of a program whose
//! other tasks have not run yet. It breaks a rule of its own, [`OneTaskOrder`](crate::check::Rule::OneTaskOrder), which
//! has less confidence. It is reported if three conditions hold. The very same locks form the cycle (for a class: those
//! with which its edges were first made). Each of the locks was requested by some call other than the end of a wait for
//! a condition. And all of the locks are common, or none is, since a lock that one task takes within a lock that many
//! take is most probably private to it. The cycle becomes a finding of the usual rule when another task makes one of
//! the edges. Of cycles of one shape (classes and places) one is reported, and at most as many as [`SHAPES`](search)
//! has room for.
//!
//! *Steady state:* if the thread holds nothing, nothing is done. A chain of held locks that this thread has had before
//! is found by its hash in the thread's own memory. The hash covers locks and nodes, so a chain is checked again when
//! one of its locks becomes another node, is replaced by another lock at its address, or becomes common. Otherwise each
//! edge is looked up without a lock, and is changed under the one lock only if something about it is new. Nodes are
//! kept in an order in which all edges lead upwards ([`level`]), so a new edge that agrees with it costs nothing more.
//! An edge that does not agree makes some nodes move; and only if it lies within nodes that are on cycles already, a
//! search goes from B back to A.
//!
//! *Bounds:* nodes and edges grow without moving ([`store`]), up to two million of each, as far as there is memory. The
//! nodes and edges of locks that no longer exist are recycled (`order/recycle.rs`) before more memory is taken. If
//! there is no room left, further orders are not checked, which is reported once, and counted. A search visits at most
//! 20,000 edges, and all searches together visit at most a million, plus 64 for each search. An edge keeps up to eight
//! gates; one that had more each time counts as excluded from every edge that has a gate.
//!
//! *Fork:* the graph is copied. If another thread was changing it at that moment, the child rebuilds it from its nodes
//! and edges; an edge that was being entered is either whole or absent. *Death:* the graph belongs to one process and
//! ends with it. *Signals:* a handler finds that its thread is in the checker, and is not checked.

mod common;
mod search;

pub(crate) use search::{OrderCycle, forget_shapes};

use crate::atomic::{Ordering, fence};
use crate::check::record::board;
use crate::check::record::layout::Entry;
use crate::check::record::order_graph::graph::{
    ASKED, Edge, GATE_GENERATION, GATES, GRAPH, HELD_COMMON, MANY_GATES, READ_GATE, SPLIT, SPLITS,
    WANTED_COMMON, count_task, is_common, node_of,
};
use crate::check::record::own::{CHAINS, HeldEntry, Own};
use crate::hook::record::{READS, pack};
use crate::hook::{How, Lock, Mode, Site};
use crate::sys::thread;
use common::used;
use search::more_important;

/// A hash of the locks that the thread holds, in order, and the one that it takes now. It changes when a lock becomes
/// another node, or when a class is split.
#[inline(always)]
fn chain(own: &Own, address: usize, what: u32, node: u32) -> u64 {
    let step = |hash: u64, address: usize, node: u32, what: u32| {
        (hash ^ address as u64 ^ u64::from(node) << 47 ^ u64::from(what & READS) << 47)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    };
    // Relaxed, here and below: a thread that sees the change late notes the chain the next time.
    let first = 1 + u64::from(SPLITS.load(Ordering::Relaxed));
    let mut hash = first;
    for mine in own.locks() {
        hash = step(hash, mine.address, mine.node, mine.what);
    }
    step(hash, address, node, what) | 1
}

/// Whether the thread, which holds something, has taken these locks in this order before. (It remembers only some
/// chains.)
#[inline(always)]
pub(crate) fn is_known(own: &Own, address: usize, what: u32, node: u32) -> bool {
    let chain = chain(own, address, what, node);
    let [latest, before] = &own.chains[place_of(chain)];
    latest.get() == chain || before.get() == chain
}

const fn place_of(chain: u64) -> usize {
    (chain >> 32) as usize % CHAINS
}

/// The calling task wants, or has just got, a lock. Notes the task and, if the call may wait, the order. Returns a
/// cycle that this completes.
#[inline]
pub(crate) fn note(
    own: &Own,
    lock: Lock,
    entry: Option<&Entry>,
    mode: Mode,
    how: How,
    site: Site,
) -> Option<OrderCycle> {
    let entry = entry?;
    if !lock.kind.has_owner() {
        return None;
    }
    let learned = used(own, lock, entry);
    if own.is_free() || how == How::Tried {
        return learned;
    }
    let node = entry.node.load(Ordering::Relaxed);
    let chain = chain(own, lock.address(), pack(lock, mode), node);
    let [latest, before] = &own.chains[place_of(chain)];
    // The end of a wait for a condition does not add all that an ordinary call for the chain would.
    let is_again = how == How::Again;
    if !is_again && (latest.get() == chain || before.get() == chain) {
        return learned;
    }
    let cycle = note_chain(own, lock, entry, mode, is_again, site);
    if !is_again {
        before.set(latest.replace(chain));
    }
    more_important(learned, cycle)
}

#[cold]
fn note_chain(
    own: &Own,
    lock: Lock,
    wanted: &Entry,
    mode: Mode,
    is_again: bool,
    site: Site,
) -> Option<OrderCycle> {
    let board = board::board()?;
    let mut found = None;
    for mine in own.locks() {
        let (held, held_mode) = mine.lock();
        if held.address() == lock.address() || !held.kind.has_owner() {
            continue;
        }
        let Some(entry) = board.lock(held.address()) else {
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
                | flag(is_common(entry), HELD_COMMON)
                | flag(is_common(wanted), WANTED_COMMON),
            mine,
            lock,
            mode,
            site,
        };
        if new.from == 0 || new.to == 0 || new.from == new.to {
            continue;
        }
        let (edge, cycle) = match new.known(own) {
            Some(edge) => (Some(edge), None),
            None => board::alone(|_| {
                GRAPH.settle();
                new.enter(own)
            }),
        };
        if let Some(edge) = edge {
            common::remember(entry, wanted, edge);
        }
        found = more_important(found, cycle);
    }
    found
}

/// Splits a class: its locks become nodes of their own from now on. Under the lock.
fn split(one: &Entry, other: &Entry) {
    let class = node_of(one);
    if class != 0 && class == node_of(other) && !GRAPH.has(class, SPLIT) {
        let flags = &GRAPH.node(class).flags;
        flags.fetch_or(SPLIT, Ordering::Relaxed);
        SPLITS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The lock as a gate.
fn gate_of(held: &HeldEntry) -> u64 {
    let generation = |entry: &Entry| entry.generation.load(Ordering::Relaxed);
    let generation = held.entry.map_or(0, generation);
    held.address as u64 | u64::from(generation) << GATE_GENERATION
}

/// An edge that may be new.
struct New {
    from: u32,
    to: u32,
    modes: u32,
    mine: HeldEntry,
    lock: Lock,
    mode: Mode,
    site: Site,
}

impl New {
    fn key(&self) -> u64 {
        u64::from(self.from) << 32 | u64::from(self.to)
    }

    /// The locks that the task holds besides the two; those that it holds exclusively come first.
    fn gates<'o>(&self, own: &'o Own) -> impl Iterator<Item = u64> + use<'o> {
        let held = self.mine.address;
        let wanted = self.lock.address();
        let is_beside = move |mine: &HeldEntry| mine.address != held && mine.address != wanted;
        let beside = own.locks().filter(is_beside);
        let alone = beside.clone().filter(|mine| !mine.reads());
        let read = beside.filter(HeldEntry::reads);
        let read = read.map(|mine| gate_of(&mine) | READ_GATE);
        alone.map(|mine| gate_of(&mine)).chain(read)
    }

    /// Whether the edge has more gates than fit now, too.
    fn has_many_gates(&self, own: &Own) -> bool {
        self.gates(own).nth(GATES).is_some()
    }

    /// What remains of a gate, given the locks that the task holds now; 0 for nothing.
    fn kept(&self, own: &Own, gate: u64) -> u64 {
        let is_it = |held: &u64| held | READ_GATE == gate | READ_GATE;
        let held = self.gates(own).find(is_it);
        held.map_or(0, |held| held | gate)
    }

    /// The edge, if nothing about it is new. (Gates are only ever removed; tasks, modes and flags are only ever added.
    /// So what is read is true, though perhaps not the latest.)
    fn known(&self, own: &Own) -> Option<u32> {
        let number = GRAPH.find(self.key())?;
        let edge = GRAPH.edge(number);
        let me = own.task.get();
        let is_known = edge.modes.load(Ordering::Relaxed) & self.modes == self.modes
            && (edge.has_many_tasks() || edge.tasks().any(|task| task == me))
            && (!edge.has(MANY_GATES) || self.has_many_gates(own))
            && edge.gates.iter().all(|gate| {
                let gate = gate.load(Ordering::Relaxed);
                gate == 0 || self.kept(own, gate) == gate
            });
        // The edge may have been reused for another key meanwhile.
        fence(Ordering::Acquire);
        let is_it = edge.key.load(Ordering::Relaxed) == self.key();
        (is_known && is_it).then_some(number)
    }

    /// Enters what is new. Returns the edge, unless there is no room, and a cycle that it completes. Under the lock.
    fn enter(&self, own: &Own) -> (Option<u32>, Option<OrderCycle>) {
        let known = GRAPH.find(self.key());
        let Some(number) = known.or_else(|| GRAPH.new_edge()) else {
            return (None, None);
        };
        let edge = GRAPH.edge(number);
        let mut is_new = known.is_none();
        if is_new {
            self.describe(edge, own);
        } else if edge.has(MANY_GATES) {
            // Each of those that are held now may have been held each time. More were not.
            if !self.has_many_gates(own) {
                self.record_gates(edge, own);
                is_new = true;
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
        is_new |= edge.modes.fetch_or(self.modes, Ordering::Relaxed) & self.modes != self.modes;
        is_new |= edge.add_task(own.task.get(), own.thread.get());
        count_task(&GRAPH.head.task, own.task.get());
        if known.is_none() {
            GRAPH.publish(number, self.key());
        }
        let cycle = is_new.then(|| search::search(number)).flatten();
        (Some(number), cycle)
    }

    /// Records the gates that are held now, if they fit.
    fn record_gates(&self, edge: &Edge, own: &Own) {
        let many = self.has_many_gates(own);
        let fitting = self.gates(own).filter(|_| !many);
        let gates = fitting.chain(core::iter::repeat(0));
        for (place, gate) in edge.gates.iter().zip(gates) {
            place.store(gate, Ordering::Relaxed);
        }
        match many {
            true => edge.modes.fetch_or(MANY_GATES, Ordering::Relaxed),
            false => edge.modes.fetch_and(!MANY_GATES, Ordering::Relaxed),
        };
    }

    /// Describes who made an edge, and how. The edge is free, and gets no other tasks and modes.
    fn describe(&self, edge: &Edge, own: &Own) {
        edge.modes.store(0, Ordering::Relaxed);
        for (task, thread) in edge.tasks.iter().zip(&edge.threads) {
            task.store(0, Ordering::Relaxed);
            thread.store(0, Ordering::Relaxed);
        }
        self.record_gates(edge, own);
        let (held, wanted) = (self.mine.address as u64, self.lock.address() as u64);
        edge.held.store(held, self.mine.what, self.mine.site);
        let what = pack(self.lock, self.mode);
        edge.wanted.store(wanted, what, self.site);
        // Threads mostly get their names after they have begun, and keep them then, so the name is not read each time.
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
