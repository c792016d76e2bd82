//! A region's heap and named objects, whose users are killed.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{
    ObjectError, Orphans, Region, RegionOptions, Shareable, TornSafe, each_pinned,
};
use latchwork_testkit::step;
use latchwork_testkit::{Child, Page, Storm, Trial, Worker, die, fastrand};

const NAMES: usize = 8;

/// A block of a worker's own, every word of which says whose it is.
struct Block {
    words: NonNull<u64>,
    count: usize,
    stamp: u64,
}

impl Block {
    fn new(region: &Region, bytes: usize, stamp: u64) -> Self {
        let layout = Layout::from_size_align(bytes.next_multiple_of(8), 8).unwrap();
        let block = Self {
            words: region.allocate(layout).unwrap().cast(),
            count: layout.size() / 8,
            stamp,
        };
        // SAFETY: allocated just now with this size.
        unsafe { block.words().iter_mut().for_each(|word| *word = stamp) };
        block
    }

    /// # Safety
    /// The block is not freed, and no other task refers to it.
    #[allow(clippy::mut_from_ref)]
    unsafe fn words(&self) -> &mut [u64] {
        // SAFETY: by the contract.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_ptr(), self.count) }
    }

    fn free(self, region: &Region) {
        // SAFETY: this block is the worker's own, freed here and once.
        unsafe {
            assert!(
                self.words().iter().all(|word| *word == self.stamp),
                "a block belongs to two"
            );
            region.deallocate(self.words.cast()).unwrap();
        }
    }
}

/// A named object; equal words, for it is made and removed whole.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Named {
    words: [u64; 300],
}

type Locks = [Mutex<(), Robust>; NAMES];

fn locked(locks: Pin<&Locks>, name: usize) -> RobustGuard<'_, ()> {
    let lock = each_pinned(locks).nth(name).unwrap();
    match lock.lock() {
        Ok(guard) => guard,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

fn name(index: usize) -> String {
    format!("object {index}")
}

/// Looks the object up, and removes it; false if there was none.
fn remove(region: &Region, index: usize) -> bool {
    match region.find::<Named>(&name(index)) {
        Ok(object) => {
            assert!(
                object.words.iter().all(|word| *word == object.words[0]),
                "an object is not whole"
            );
            // SAFETY: the name's lock is held, or there is no other task; `object` is used no more.
            unsafe { region.remove::<Named>(&name(index)).unwrap() };
            true
        }
        Err(ObjectError::NotFound) => false,
        Err(error) => panic!("{error}"),
    }
}

fn size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(..20) {
        0 => rng.usize(64 << 10..300 << 10),
        1..4 => rng.usize(4 << 10..40 << 10),
        _ => rng.usize(8..2048),
    }
}

fn region(trial: &Trial, bytes: u64) -> Region {
    RegionOptions::new()
        .max_bytes(bytes)
        .max_tasks(32)
        .max_names(64)
        .label("kill_heap")
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

fn storm_over_the_heap(title: &'static str, seats: usize, kills: u64, recoverers: bool) {
    let trial = Trial::begin(title);
    let region = region(&trial, 64 << 20);
    let locks = region
        .object::<Locks>("locks", || [const { Mutex::robust(()) }; NAMES])
        .unwrap();
    let progress = Page::<[AtomicU64; 8]>::new();
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        let mut blocks: Vec<Block> = Vec::new();
        loop {
            let stamp = rng.u64(..);
            match rng.u32(..9) {
                8 => _ = region.trim().unwrap(),
                0 => {
                    let index = rng.usize(..NAMES);
                    let _guard = locked(locks, index);
                    if !remove(&region, index) {
                        region
                            .object(&name(index), || Named {
                                words: [stamp; 300],
                            })
                            .unwrap();
                    }
                }
                1..4 if !blocks.is_empty() => {
                    blocks.swap_remove(rng.usize(..blocks.len())).free(&region)
                }
                _ if blocks.len() < 24 => blocks.push(Block::new(&region, size(&mut rng), stamp)),
                _ => blocks.drain(..12).for_each(|block| block.free(&region)),
            }
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let before = region.heap_stats().allocated_bytes;
    let mut storm = Storm::start(&trial, seats, work);
    let kills = trial.times(kills);
    while storm.kills() < kills {
        for _ in 0..6 {
            let _ = if recoverers {
                storm.kill_recoverers()
            } else {
                storm.kill()
            };
            storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
        }
        storm.kill_all();
        region.sweep().unwrap();
        region.check_heap().unwrap();
        for index in 0..NAMES {
            remove(&region, index);
        }
        region.check_heap().unwrap();
        let stats = region.heap_stats();
        assert_eq!(
            stats.allocated_bytes, before,
            "after a sweep, with all objects removed: {stats:?}"
        );
        if storm.kills() < kills {
            storm.refill_all();
        }
    }
    storm.finish();
}

#[test]
fn nothing_that_dead_tasks_allocated_stays_allocated() {
    storm_over_the_heap(
        "nothing_that_dead_tasks_allocated_stays_allocated",
        4,
        250,
        false,
    );
}

#[test]
fn killing_sweepers_loses_no_memory() {
    storm_over_the_heap("killing_sweepers_loses_no_memory", 5, 250, true);
}

#[test]
fn kept_blocks_outlive_their_task() {
    let trial = Trial::begin("kept_blocks_outlive_their_task");
    let region = region(&trial, 64 << 20);
    region.join("test").unwrap();
    for _ in 0..trial.times(10) {
        let before = region.heap_stats().allocated_bytes;
        let place = Page::<AtomicU64>::new();
        let mut child = Child::fork(|| {
            region.on_death(Orphans::Keep).unwrap();
            let block = Block::new(&region, 1000, 42);
            place.store(block.words.addr().get() as u64, SeqCst);
            loop {
                std::thread::park();
            }
        });
        trial.wait_until(|| place.load(SeqCst) != 0);
        child.kill();
        assert_eq!(region.sweep().unwrap().dead.len(), 1);
        assert!(region.heap_stats().allocated_bytes >= before + 1000);
        let words = NonNull::new(core::ptr::with_exposed_provenance_mut(
            place.load(SeqCst) as usize
        ))
        .unwrap();
        Block {
            words,
            count: 125,
            stamp: 42,
        }
        .free(&region);
        assert_eq!(region.heap_stats().allocated_bytes, before);
    }
}

/// After a kill at any instruction nothing is lost, and names are free or whole.
fn step_through(
    trial: &Trial,
    title: &str,
    prepare: impl Fn(&Region),
    operation: impl Fn(&Region),
) {
    let region = region(trial, 64 << 20);
    region.join("test").unwrap();
    // The parent's own caches are warm.
    Block::new(&region, 64, 1).free(&region);
    let before = region.heap_stats().allocated_bytes;
    step::each_instruction_and_recovery(
        trial,
        title,
        || prepare(&region),
        |(), span| {
            region.join("stepped").unwrap();
            span.run(|| operation(&region));
            // It ended well, but not its last block: that goes with it.
            die();
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                (0..NAMES).for_each(|index| _ = remove(&region, index));
            });
            die();
        },
        |(), point| {
            let blocks = region.heap_stats().private_blocks;
            region.sweep().unwrap();
            let freed = blocks - region.heap_stats().private_blocks;
            let objects = (0..NAMES).filter(|index| remove(&region, *index)).count();
            region
                .check_heap()
                .unwrap_or_else(|error| panic!("{title}, killed at {point:?}: {error}"));
            let stats = region.heap_stats();
            assert_eq!(
                stats.allocated_bytes, before,
                "{title}, killed at {point:?}: {stats:?}"
            );
            format!("{objects} objects, the sweep freed {freed} blocks")
        },
    );
}

#[test]
fn allocate_and_free_lose_nothing_at_any_instruction() {
    let trial =
        Trial::begin("allocate_and_free_lose_nothing_at_any_instruction").across_namespaces();
    let sizes = [
        ("small", 64),
        ("medium", 20_000),
        ("one span", 64 << 10),
        ("a run of spans", 300 << 10),
    ];
    for (title, bytes) in sizes {
        step_through(
            &trial,
            &format!("allocate and free, {title}"),
            |_| (),
            |region| {
                let layout = Layout::from_size_align(bytes, 16).unwrap();
                let blocks = [
                    region.allocate(layout).unwrap(),
                    region.allocate(layout).unwrap(),
                ];
                // SAFETY: allocated above, freed once.
                unsafe { region.deallocate(blocks[0]).unwrap() };
            },
        );
    }
}

/// A victim is killed anywhere in an allocation for which the region grows; then another task makes it grow.
#[test]
fn a_region_grows_after_a_kill_at_any_instruction_of_its_growth() {
    let trial = Trial::begin("a_region_grows_after_a_kill_at_any_instruction_of_its_growth")
        .across_namespaces();
    let spans = |count: usize| Layout::from_size_align(count << 16, 16).unwrap();
    let committed = core::cell::Cell::new(0);
    step::each_instruction_and_recovery(
        &trial,
        "allocate, where the region grows",
        // Each in a region of its own, which has not grown yet.
        || {
            let region = region(&trial, 64 << 20);
            region.join("test").unwrap();
            committed.set(region.heap_stats().committed_bytes);
            region
        },
        |region, span| {
            region.join("stepped").unwrap();
            span.run(|| region.allocate(spans(40)).unwrap());
            die();
        },
        |_| false,
        |region, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                region.allocate(spans(40)).unwrap();
            });
            die();
        },
        |region, point| {
            let has_grown = region.heap_stats().committed_bytes > committed.get();
            // Twice: the first growth may take over from the dead task.
            let blocks = [100, 200].map(|count| {
                let before = region.heap_stats().committed_bytes;
                let block = region.allocate(spans(count)).unwrap();
                let has_grown = region.heap_stats().committed_bytes > before;
                assert!(has_grown, "killed at {point:?}: it did not have to grow");
                block
            });
            for block in blocks {
                // SAFETY: allocated above, freed once.
                unsafe { region.deallocate(block).unwrap() };
            }
            region.sweep().unwrap();
            region
                .check_heap()
                .unwrap_or_else(|error| panic!("killed at {point:?}: {error}"));
            let stats = region.heap_stats();
            assert_eq!(stats.allocated_bytes, 0, "killed at {point:?}: {stats:?}");
            match has_grown {
                true => "the region had grown",
                false => "the region had not grown",
            }
        },
    );
}

/// The only free blocks are in a span without owner. A victim is killed anywhere in an allocation that adopts it.
#[test]
fn a_span_without_owner_is_adopted_after_a_kill_at_any_instruction() {
    let trial = Trial::begin("a_span_without_owner_is_adopted_after_a_kill_at_any_instruction")
        .across_namespaces();
    let small = Layout::from_size_align(64, 16).unwrap();
    let span_size = Layout::from_size_align(64 << 10, 16).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "allocate, from a span without owner",
        // Each in a region of its own, which is full.
        || {
            let region = region(&trial, 1 << 20);
            region.join("test").unwrap();
            // Its block outlives the thread, and with it the span.
            let leaves = || {
                region.allocate(small).unwrap();
            };
            std::thread::scope(|scope| scope.spawn(leaves).join().unwrap());
            while region.allocate(span_size).is_ok() {}
            region
        },
        |region, span| {
            region.join("stepped").unwrap();
            span.run(|| region.allocate(small).unwrap());
            die();
        },
        |_| false,
        |region, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                region.allocate(small).unwrap();
            });
            die();
        },
        |region, point| {
            region.sweep().unwrap();
            if let Err(error) = region.allocate(small) {
                panic!("killed at {point:?}: {error}");
            }
            region
                .check_heap()
                .unwrap_or_else(|error| panic!("killed at {point:?}: {error}"));
            "allocated"
        },
    );
}

#[test]
fn named_objects_are_made_and_removed_whole_at_any_instruction() {
    let trial = Trial::begin("named_objects_are_made_and_removed_whole_at_any_instruction")
        .across_namespaces();
    let make = |region: &Region| {
        region
            .object(&name(0), || Named { words: [7; 300] })
            .unwrap();
    };
    step_through(&trial, "make an object", |_| (), make);
    let make_all = |region: &Region| {
        (0..3).for_each(|index| {
            region
                .object(&name(index), || Named { words: [7; 300] })
                .unwrap();
        })
    };
    step_through(&trial, "find an object", make_all, |region| {
        region.find::<Named>(&name(2)).unwrap();
    });
    step_through(&trial, "remove an object", make_all, |region| {
        assert!(remove(region, 1))
    });
}

/// A victim is killed anywhere in making or removing an object, and its recoverer anywhere in
/// recovering that.
#[test]
fn recovery_of_heap_and_directory_can_be_repeated_from_every_instruction() {
    let trial =
        Trial::begin("recovery_of_heap_and_directory_can_be_repeated_from_every_instruction");
    let region = region(&trial, 64 << 20);
    region.join("test").unwrap();
    let before = region.heap_stats().allocated_bytes;
    let victim = |span: step::Span| {
        region.join("victim").unwrap();
        span.run(|| {
            let _private = Block::new(&region, 500, 3);
            region
                .object(&name(0), || Named { words: [7; 300] })
                .unwrap();
            assert!(remove(&region, 0));
            region
                .object(&name(1), || Named { words: [8; 300] })
                .unwrap();
        });
        die();
    };
    let clean_up = || {
        region.sweep().unwrap();
        (0..NAMES).filter(|index| remove(&region, *index)).count()
    };
    let Some(places) = step::Places::record(victim) else {
        println!("skipped: {}: ptrace is forbidden here", trial.name());
        return;
    };
    clean_up();
    let rng = core::cell::RefCell::new(trial.seed().rng(1));
    step::each_instruction(
        &trial,
        "sweep, and repair of the directory",
        || places.kill(&mut rng.borrow_mut(), victim),
        |(), span| {
            span.run(|| {
                region.sweep().unwrap();
                remove(&region, 1);
            });
            die();
        },
        |()| false,
        |(), point| {
            let objects = clean_up();
            region
                .check_heap()
                .unwrap_or_else(|error| panic!("killed at {point:?}: {error}"));
            let stats = region.heap_stats();
            assert_eq!(
                stats.allocated_bytes, before,
                "killed at {point:?}: {stats:?}"
            );
            format!("{objects} objects were left")
        },
    );
}
