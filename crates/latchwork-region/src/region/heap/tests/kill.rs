//! Every operation is killed at each point between two shared stores, other tasks go on in some way, and the dead
//! task is recovered; then recovery is killed at each of its points and repeated. Nothing may be lost, allocated
//! twice or overwritten.
//!
//! Not covered: points between two stores whose order the compiler alone chose (a single-stepping test covers these),
//! and preemption of living tasks.

mod scenarios;
mod successor;

use std::cell::RefCell;

use super::super::fault::kill_at;
use super::*;
use crate::atomic::AtomicUsize;
use scenarios::SCENARIOS;

const A: u16 = 1;
const B: u16 = 2;
const C: u16 = 100;

/// A region with a victim A and bystanders B and C.
struct World {
    region: Region,
    /// A shared block of links to shared blocks.
    links: NonNull<[AtomicUsize; 4]>,
    /// Private blocks of B and C.
    others: RefCell<Vec<NonNull<u8>>>,
    /// Private blocks of A that the operation does not touch.
    own: RefCell<Vec<NonNull<u8>>>,
    /// Blocks that the operation frees or keeps and that no link names.
    loose: RefCell<Vec<NonNull<u8>>>,
}

/// Prepares the world and returns the operation that A is killed in.
type Scenario = fn(&World) -> Box<dyn FnOnce(&World)>;

impl World {
    fn new() -> Self {
        let region = Region::new(40);
        region.heap.publish_committed(4);
        let links = region.alloc(owner(C), size_of::<[AtomicUsize; 4]>());
        // SAFETY: a fresh block of that size, which is not freed.
        unsafe {
            links.write_bytes(0, size_of::<[AtomicUsize; 4]>());
            region.heap.keep(links);
        }
        Self {
            region,
            links: links.cast(),
            others: RefCell::default(),
            own: RefCell::default(),
            loose: RefCell::default(),
        }
    }

    fn link(&self, index: usize) -> &AtomicUsize {
        // SAFETY: the block of links lives as long as the region.
        unsafe { &self.links.as_ref()[index] }
    }

    fn alloc(&self, slot: u16, bytes: usize) -> NonNull<u8> {
        let block = self.region.alloc(owner(slot), bytes);
        fill(&self.region.heap, block);
        block
    }

    fn others(&self, slot: u16, bytes: usize) -> NonNull<u8> {
        let block = self.alloc(slot, bytes);
        self.others.borrow_mut().push(block);
        block
    }

    fn own(&self, bytes: usize) -> NonNull<u8> {
        let block = self.alloc(A, bytes);
        self.own.borrow_mut().push(block);
        block
    }

    fn loose(&self, slot: u16, bytes: usize) -> NonNull<u8> {
        let block = self.alloc(slot, bytes);
        self.loose.borrow_mut().push(block);
        block
    }

    fn linked(&self, slot: u16, bytes: usize, index: usize) -> NonNull<u8> {
        let block = self.alloc(slot, bytes);
        self.publish(slot, block, index);
        block
    }

    /// Makes an orphan span with a linked block.
    fn orphaned(&self, bytes: usize, index: usize) -> NonNull<u8> {
        let ghost = 50 + index as u16;
        let block = self.linked(ghost, bytes, index);
        self.region.recover(owner(ghost), OnDeath::Free);
        block
    }

    fn publish(&self, slot: u16, block: NonNull<u8>, index: usize) {
        let task = self.region.task(owner(slot));
        let address = block.addr().get();
        // SAFETY: only one task at a time changes links.
        unsafe {
            self.region
                .heap
                .publish(&task, block, self.link(index), address);
        }
    }

    fn retire(&self, slot: u16, block: NonNull<u8>, index: usize) {
        let task = self.region.task(owner(slot));
        // SAFETY: only one task at a time changes links.
        unsafe { self.region.heap.retire(&task, block, self.link(index), 0) }
    }

    fn replace(&self, slot: u16, old: NonNull<u8>, new: NonNull<u8>, index: usize) {
        let task = self.region.task(owner(slot));
        let address = new.addr().get();
        // SAFETY: only one task at a time changes links.
        unsafe {
            self.region
                .heap
                .replace(&task, Some(old), Some(new), self.link(index), address);
        }
    }

    fn take(&self, slot: u16, block: NonNull<u8>, index: usize) {
        self.loose.borrow_mut().push(block);
        let task = self.region.task(owner(slot));
        // SAFETY: only one task at a time changes links.
        let taken = unsafe { self.region.heap.take(&task, block, self.link(index), 0) };
        assert!(taken, "the block can be the task's own");
    }

    /// Makes spans that were used, and are free or trimmed now.
    fn free_spans(&self, trimmed: bool) {
        let blocks: Vec<_> = (0..6).map(|_| self.alloc(B, 64 << 10)).collect();
        self.others(C, 64 << 10);
        let run = self.alloc(B, 200 << 10);
        for block in blocks.into_iter().chain([run]) {
            self.region.free(owner(B), block);
        }
        if trimmed {
            self.region.heap.trim(&self.region.task(owner(C)));
        }
    }

    /// B and C search for blocks to collect and allocate what they can reuse.
    fn busy(&self) {
        for slot in [B, C] {
            self.region.heap.reclaim(&self.region.task(owner(slot)));
            for bytes in [64, 64, 1024, 1024, 30_000, 30_000, 64 << 10, 150 << 10] {
                self.others(slot, bytes);
            }
        }
    }

    fn linked_blocks(&self) -> Vec<NonNull<u8>> {
        (0..4)
            .filter_map(|index| NonNull::new(self.link(index).load(Relaxed) as *mut u8))
            .collect()
    }

    /// Checks the world after A's recovery, then ends it and checks that all memory is free again. `slack`: the
    /// number of blocks that A may have allocated unknown to the test.
    fn verify(self, policy: OnDeath, slack: usize) {
        let heap = &self.region.heap;
        heap.check().unwrap();
        self.region.assert_backed();
        let linked = self.linked_blocks();
        let others = self.others.borrow();
        let own = self.own.borrow();
        let loose: Vec<_> = self.loose.borrow().clone();
        let loose: Vec<_> = loose
            .into_iter()
            .filter(|&b| self.region.is_live(b))
            .collect();
        let mut all: Vec<_> = linked
            .iter()
            .chain(&*others)
            .chain(&loose)
            .copied()
            .collect();
        if policy != OnDeath::Free {
            all.extend(&*own);
        }
        for (index, &block) in all.iter().enumerate() {
            assert!(self.region.is_live(block), "a live block was freed");
            assert!(!all[..index].contains(&block), "a block was given twice");
            assert_intact(heap, block);
        }
        for &block in &linked {
            assert!(
                heap.is_shared(block.addr().get()),
                "a linked block is private"
            );
        }
        let stats = heap.stats();
        let live = stats.private_blocks + stats.shared_blocks;
        let known = all.len() + 1;
        let slack = if policy == OnDeath::Free { 0 } else { slack };
        assert!((known..=known + slack).contains(&live), "{known} {stats:?}");
        // The remaining task frees everything.
        for block in all {
            self.region.free(owner(C), block);
        }
        self.region.free(owner(C), self.links.cast());
        self.region.recover(owner(B), OnDeath::Free);
        self.region.recover(owner(C), OnDeath::Free);
        heap.check().unwrap();
        self.region.assert_backed();
        let stats = heap.stats();
        // The blocks that A allocated just before its kill belong to C, or to no task.
        let kept = if policy == OnDeath::Keep {
            live - known
        } else {
            0
        };
        assert_eq!((stats.private_blocks, stats.shared_blocks), (0, kept));
        if kept == 0 {
            assert_eq!(stats.free_spans, heap.committed() as usize, "{stats:?}");
        }
    }
}

/// What happens between the kill and the recovery.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Busy,
    /// B dies first, and its spans become orphans.
    BDies,
    /// B dies first, and C adopts its spans.
    BIsAdopted,
}

/// Prepares a world and runs the operation, killed at its point number `at`. Also returns whether it was killed.
fn killed_world(scenario: Scenario, at: u32, meanwhile: Meanwhile) -> (World, bool) {
    let world = World::new();
    let operation = scenario(&world);
    let killed = kill_at(at, || operation(&world)).is_none();
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Busy => world.busy(),
        Meanwhile::BDies => {
            world.region.recover(owner(B), OnDeath::Keep);
            world.busy();
        }
        Meanwhile::BIsAdopted => {
            world.region.recover(owner(B), OnDeath::Adopt(owner(C)));
            world.busy();
        }
    }
    (world, killed)
}

fn forget_linked(world: &World) {
    let linked = world.linked_blocks();
    world
        .loose
        .borrow_mut()
        .retain(|block| !linked.contains(block));
    // A freed loose block may have been allocated by a bystander.
    let others = world.others.borrow();
    world
        .loose
        .borrow_mut()
        .retain(|block| !others.contains(block));
}

const POLICIES: [OnDeath; 3] = [
    OnDeath::Free,
    OnDeath::Keep,
    OnDeath::Adopt(Owner::new(C, NonZero::<u32>::MIN.saturating_add(6))),
];

/// Whether the exhausted scenario leaves no room for bystanders.
fn is_tight(name: &str) -> bool {
    name.contains("run out")
}

#[test]
fn kill_at_every_step_loses_no_block_and_doubles_none() {
    let mut kills = 0;
    for &(name, slack, scenario) in SCENARIOS {
        for policy in POLICIES {
            for meanwhile in [
                Meanwhile::Nothing,
                Meanwhile::Busy,
                Meanwhile::BDies,
                Meanwhile::BIsAdopted,
            ] {
                if is_tight(name) && !matches!(meanwhile, Meanwhile::Nothing) {
                    continue;
                }
                for at in 0.. {
                    let context = Context(format!("{name}, {policy:?}, {meanwhile:?}, at {at}"));
                    let (world, killed) = killed_world(scenario, at, meanwhile);
                    world.region.recover(owner(A), policy);
                    forget_linked(&world);
                    world.verify(policy, slack);
                    drop(context);
                    kills += u32::from(killed);
                    if !killed {
                        break;
                    }
                }
            }
        }
    }
    assert!(kills > 1000, "{kills}");
}

#[test]
fn kill_of_the_recoverer_at_every_step_loses_no_block_and_doubles_none() {
    for &(name, slack, scenario) in SCENARIOS {
        for policy in POLICIES {
            let meanwhile = match is_tight(name) {
                true => Meanwhile::Nothing,
                false => Meanwhile::Busy,
            };
            for at in 0.. {
                let mut operation_killed = true;
                for then in 0.. {
                    let context = Context(format!("{name}, {policy:?}, at {at}, then {then}"));
                    let (world, killed) = killed_world(scenario, at, meanwhile);
                    operation_killed = killed;
                    let recovery =
                        kill_at(then, || world.region.recover(owner(A), policy)).is_some();
                    if matches!(meanwhile, Meanwhile::Busy) {
                        for slot in [B, C] {
                            let task = world.region.task(owner(slot));
                            world.region.heap.reclaim(&task);
                            world.others(slot, 64);
                            world.others(slot, 30_000);
                        }
                    }
                    world.region.recover(owner(A), policy);
                    forget_linked(&world);
                    world.verify(policy, slack);
                    drop(context);
                    if recovery {
                        break;
                    }
                }
                if !operation_killed {
                    break;
                }
            }
        }
    }
}

/// Frees `block` of A as B, which is killed before it notifies A.
fn free_without_notice(region: &Region, block: NonNull<u8>) {
    let killed = kill_at(0, || region.free(owner(B), block)).is_none();
    assert!(killed && !region.is_live(block));
}

#[test]
fn block_whose_freer_was_killed_is_found_when_memory_runs_out() {
    let region = Region::new(3);
    let blocks: Vec<_> = (0..6).map(|_| region.alloc(owner(A), 30_000)).collect();
    for &block in &blocks[1..6] {
        free_without_notice(&region, block);
        region.recover(owner(B), OnDeath::Free);
    }
    let again: Vec<_> = (1..6).map(|_| region.alloc(owner(A), 30_000)).collect();
    assert!(!again.contains(&blocks[0]));
    region.heap.check().unwrap();
}

#[test]
fn orphan_span_whose_freer_was_killed_is_found_when_memory_runs_out() {
    let region = Region::new(2);
    let blocks: Vec<_> = (0..4).map(|_| region.alloc(owner(A), 30_000)).collect();
    region.recover(owner(A), OnDeath::Keep);
    for block in blocks {
        // As a task does that read A as the owner just before A was recovered.
        let address = block.addr().get();
        let Some(Block::Small { span, class, .. }) = region.heap.find(address) else {
            unreachable!("it is allocated");
        };
        region.heap.free_remote_commit(span, class, address);
    }
    assert_eq!(region.heap.stats().orphan_spans, 2);
    region.alloc(owner(C), 2 * SPAN_BYTES);
}

/// Prints where a test failed.
struct Context(String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}
