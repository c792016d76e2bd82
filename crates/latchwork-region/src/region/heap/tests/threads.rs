//! Tasks as concurrent threads.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::atomic::AtomicUsize;
use crate::atomic::Ordering::{Acquire, Release};

/// A block on its way to another thread.
struct Sent(NonNull<u8>);
// SAFETY: the holder of the message owns the block.
unsafe impl Send for Sent {}

/// A shared reference to a `Region`, whose parts are shared.
struct Shared<'a>(&'a Region);
// SAFETY: the heap is Sync, task heaps are atomics, and each thread has its own.
unsafe impl Send for Shared<'_> {}

impl<'a> Shared<'a> {
    fn get(&self) -> &'a Region {
        self.0
    }
}

fn next(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed as usize
}

#[test]
fn blocks_passed_between_threads_stay_intact_and_are_all_freed() {
    const TASKS: u16 = 4;
    let region = Region::new(512);
    let at_work = AtomicUsize::new(TASKS as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..TASKS).map(|_| mpsc::channel::<Sent>()).unzip();
    thread::scope(|scope| {
        // Meanwhile free spans are returned to the system.
        let (all, at_work) = (Shared(&region), &at_work);
        scope.spawn(move || {
            let region = all.get();
            while at_work.load(Acquire) > 0 {
                region.heap.trim(&region.task(owner(50)));
                thread::yield_now();
            }
        });
        for (index, receiver) in receivers.into_iter().enumerate() {
            let next_task = senders[(index + 1) % TASKS as usize].clone();
            let region = Shared(&region);
            scope.spawn(move || {
                let region = region.get();
                let me = owner(index as u16 + 1);
                let mut seed = 0x1234_5678 + index as u64;
                for _ in 0..20_000 {
                    let size = SIZES[next(&mut seed) % SIZES.len()].min(70_000);
                    let layout = Layout::from_size_align(size, 16).unwrap();
                    if let Ok(block) = region.heap.alloc(&region.task(me), layout) {
                        fill(&region.heap, block);
                        if next(&mut seed).is_multiple_of(2) {
                            // If the receiver has ended, the block comes back.
                            let Err(mpsc::SendError(Sent(block))) = next_task.send(Sent(block))
                            else {
                                continue;
                            };
                            region.free(me, block);
                        } else {
                            assert_intact(&region.heap, block);
                            region.free(me, block);
                        }
                    }
                    while let Ok(Sent(block)) = receiver.try_recv() {
                        assert_intact(&region.heap, block);
                        region.free(me, block);
                    }
                }
                drop(next_task);
                // Until the previous thread has ended.
                while let Ok(Sent(block)) = receiver.recv() {
                    assert_intact(&region.heap, block);
                    region.free(me, block);
                }
                at_work.fetch_sub(1, Release);
            });
        }
        drop(senders);
    });
    region.heap.check().unwrap();
    assert_eq!(region.heap.stats().allocated_bytes, 0);
    region.assert_empty(&(1..=TASKS).map(owner).collect::<Vec<_>>());
}

#[test]
fn shared_blocks_outlive_tasks_that_die_and_restart() {
    const LINKS: usize = 64;
    let region = Region::new(512);
    let links = [const { AtomicUsize::new(0) }; LINKS];
    let locks = [const { AtomicBool::new(false) }; LINKS];
    let sweep = Mutex::new(());
    thread::scope(|scope| {
        for index in 0..4u16 {
            let region = Shared(&region);
            let (links, locks, sweep) = (&links, &locks, &sweep);
            scope.spawn(move || {
                let region = region.get();
                let mut seed = 0x9876_5432 + u64::from(index);
                for life in 1..=100 {
                    let me = Owner::new(index + 1, NonZero::new(life).unwrap());
                    let task = region.task(me);
                    for _ in 0..100 {
                        let at = next(&mut seed) % LINKS;
                        if locks[at].swap(true, Acquire) {
                            continue;
                        }
                        let size = SIZES[next(&mut seed) % SIZES.len()].min(70_000);
                        let layout = Layout::from_size_align(size, 16).unwrap();
                        let old = NonNull::new(links[at].load(Relaxed) as *mut u8);
                        if let Some(old) = old {
                            assert_intact(&region.heap, old);
                        }
                        let new = region.heap.alloc(&task, layout).ok();
                        // A private block, which is freed with the task.
                        let _ = region.heap.alloc(&task, layout);
                        if let Some(new) = new {
                            fill(&region.heap, new);
                        }
                        let value = new.map_or(0, |new| new.addr().get());
                        // SAFETY: the link's lock is held.
                        unsafe {
                            match (old, new) {
                                (Some(old), Some(new)) => {
                                    region.heap.replace(
                                        &task,
                                        Some(old),
                                        Some(new),
                                        &links[at],
                                        value,
                                    );
                                }
                                (Some(old), None) => {
                                    region.heap.retire(&task, old, &links[at], 0);
                                }
                                (None, Some(new)) => {
                                    region.heap.publish(&task, new, &links[at], value);
                                }
                                (None, None) => {}
                            }
                        }
                        locks[at].store(false, Release);
                    }
                    let _guard = sweep.lock().unwrap();
                    region.recover(me, OnDeath::Free);
                }
            });
        }
    });
    region.heap.check().unwrap();
    let linked: Vec<_> = links
        .iter()
        .filter_map(|link| NonNull::new(link.load(Relaxed) as *mut u8))
        .collect();
    let stats = region.heap.stats();
    assert_eq!(
        (stats.private_blocks, stats.shared_blocks),
        (0, linked.len())
    );
    for block in linked {
        assert_intact(&region.heap, block);
        region.free(owner(9), block);
    }
    region.assert_empty(&[owner(9)]);
}
