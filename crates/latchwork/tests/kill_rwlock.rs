//! Robust reader/writer locks whose readers, writers and waiters are killed.

use core::cell::RefCell;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::region::{Region, RegionOptions, Shareable, TornSafe};
use latchwork::rwlock::{LockError, RobustReadGuard, RobustRwLock, RobustWriteGuard};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Storm, Trial, Worker, fastrand};

/// Equal, unless a writer died between the two stores.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Halves {
    left: u64,
    right: u64,
}

const READERS: usize = 3;

type Lock = RobustRwLock<Halves, READERS>;
type Reading<'a> = RobustReadGuard<'a, Halves, READERS>;
type Writing<'a> = RobustWriteGuard<'a, Halves, READERS>;

#[derive(Shareable)]
#[repr(C)]
struct Arena {
    lock: Lock,
    /// The process that believes to be inside as a writer, or 0.
    writer: AtomicU32,
    torn: AtomicU64,
    died: AtomicU64,
    progress: [AtomicU64; 16],
}

impl Arena {
    fn new() -> Self {
        Self {
            lock: Lock::new(Halves { left: 0, right: 0 }),
            writer: AtomicU32::new(0),
            torn: AtomicU64::new(0),
            died: AtomicU64::new(0),
            progress: [const { AtomicU64::new(0) }; 16],
        }
    }

    fn lock(&self) -> Pin<&Lock> {
        // SAFETY: part of a named object, which does not move.
        #[allow(unsafe_code)]
        unsafe {
            Pin::new_unchecked(&self.lock)
        }
    }

    fn check(&self, halves: &Halves) {
        assert_eq!(halves.left, halves.right, "torn data without OwnerDied");
        let writer = self.writer.load(SeqCst);
        assert_eq!(writer, 0, "inside beside a writer, or after a dead one");
    }

    /// Gets in to read; or, told of a dead writer, repairs what it left, and goes on as a reader.
    fn read(&self) -> Reading<'_> {
        match self.lock().read() {
            Ok(halves) => {
                self.check(&halves);
                halves
            }
            Err(error) => Writing::downgrade(self.repair(error)),
        }
    }

    fn write(&self) -> Writing<'_> {
        match self.lock().write() {
            Ok(halves) => {
                self.check(&halves);
                halves
            }
            Err(error) => self.repair(error),
        }
    }

    fn repair<'a>(&'a self, error: LockError<'a, Halves, READERS>) -> Writing<'a> {
        let LockError::OwnerDied(mut halves) = error else {
            panic!("{error}");
        };
        self.died.fetch_add(1, SeqCst);
        self.writer.store(0, SeqCst);
        if halves.left != halves.right {
            self.torn.fetch_add(1, SeqCst);
            halves.left = halves.left.max(halves.right);
            halves.right = halves.left;
        }
        halves.make_consistent()
    }

    fn change(&self) {
        let mut halves = self.write();
        halves.left += 1;
        core::sync::atomic::compiler_fence(SeqCst);
        halves.right += 1;
    }
}

fn arena(region: &Region) -> &Arena {
    region.object("arena", Arena::new).unwrap().get_ref()
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_rwlock")
        .create_anonymous()
        .unwrap()
}

fn dawdle(rng: &mut fastrand::Rng) {
    match rng.u32(..16) {
        // Off the CPU with the lock held: the others go to sleep.
        0 => std::thread::sleep(core::time::Duration::from_micros(rng.u64(..150))),
        1 => std::thread::yield_now(),
        turns => (0..turns * 10).for_each(|_| core::hint::spin_loop()),
    }
}

fn write_section(arena: &Arena, rng: &mut fastrand::Rng, downgrades: bool) {
    let me = std::process::id();
    let mut halves = arena.write();
    arena.writer.store(me, SeqCst);
    halves.left += 1;
    dawdle(rng);
    halves.right += 1;
    assert_eq!(arena.writer.load(SeqCst), me, "two writers are inside");
    arena.writer.store(0, SeqCst);
    if downgrades {
        let halves = Writing::downgrade(halves);
        dawdle(rng);
        arena.check(&halves);
    }
}

fn read_section(arena: &Arena, rng: &mut fastrand::Rng) {
    let halves = arena.read();
    let before = halves.left;
    dawdle(rng);
    arena.check(&halves);
    assert_eq!(before, halves.left, "changed beside a reader");
}

/// A storm over tasks of which `write_pct` of the sections write.
fn storm_over_the_lock(name: &'static str, seats: usize, kills: u64, write_pct: u32) {
    let trial = Trial::begin(name);
    let region = region();
    let arena = arena(&region);
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            if rng.u32(..100) < write_pct {
                let downgrades = rng.bool();
                write_section(arena, &mut rng, downgrades);
            } else {
                read_section(arena, &mut rng);
            }
            arena.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, seats, work);
    let kills = trial.times(kills);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| arena.progress[seat].load(SeqCst));
    }
    storm.kill_all();
    drop(arena.write());
    storm.finish();
    println!(
        "{name}: {} writers died, {} left torn data",
        arena.died.load(SeqCst),
        arena.torn.load(SeqCst)
    );
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

#[test]
fn every_survivor_makes_progress_after_each_kill() {
    storm_over_the_lock("every_survivor_makes_progress_after_each_kill", 4, 300, 50);
}

#[test]
fn many_readers_and_few_writers_survive_each_others_deaths() {
    // More than there are seats for.
    storm_over_the_lock(
        "many_readers_and_few_writers_survive_each_others_deaths",
        8,
        200,
        30,
    );
}

#[test]
fn readers_alone_survive_each_others_deaths() {
    storm_over_the_lock("readers_alone_survive_each_others_deaths", 6, 150, 0);
}

/// Kills `section`, and lets `then` be done by another process afterwards. Nobody is told of the death,
/// but where `may_tear`.
fn free_lock_killed_at_every_instruction(name: &'static str, section: fn(&Arena), may_tear: bool) {
    let trial = Trial::begin(name);
    let region = region();
    let arena = arena(&region);
    let mut died = 0;
    step::each_instruction(
        &trial,
        "free lock",
        || (),
        |(), span| {
            // Thread record and robust list are set up: `kill_robust.rs` kills that.
            drop(arena.write());
            span.run(|| section(arena));
        },
        |()| false,
        |(), point| {
            let before = arena.died.load(SeqCst);
            match died % 3 {
                0 => drop(arena.read()),
                _ => arena.change(),
            }
            let dead = arena.died.load(SeqCst) - before;
            assert!(dead <= 1 && (point != Point::Finished && may_tear || dead == 0));
            died += 1;
            // All seats are free.
            let readers: Vec<_> = (0..READERS).map(|_| arena.read()).collect();
            drop(readers);
            drop(arena.lock().try_write().unwrap());
        },
    );
}

#[test]
fn reading_is_recoverable_at_every_instruction() {
    free_lock_killed_at_every_instruction(
        "reading_is_recoverable_at_every_instruction",
        |arena| drop(arena.read()),
        false,
    );
}

#[test]
fn writing_is_recoverable_at_every_instruction() {
    free_lock_killed_at_every_instruction(
        "writing_is_recoverable_at_every_instruction",
        Arena::change,
        true,
    );
}

#[test]
fn a_downgrade_is_recoverable_at_every_instruction() {
    free_lock_killed_at_every_instruction(
        "a_downgrade_is_recoverable_at_every_instruction",
        |arena| drop(Writing::downgrade(arena.write())),
        true,
    );
}

/// What keeps the others out until it is dropped.
enum Held<'a> {
    Reading(#[allow(dead_code, reason = "held")] Reading<'a>),
    Writing(#[allow(dead_code, reason = "held")] Writing<'a>),
}

/// A task that waits, and is killed; with another one asleep, which must get in.
fn waiting_killed_at_every_instruction(
    name: &'static str,
    hold: fn(&Arena) -> Vec<Held<'_>>,
    section: fn(&Arena),
    other: fn(&Arena),
) {
    let trial = Trial::begin(name);
    let region = region();
    let arena = arena(&region);
    let before = || {
        let held = hold(arena);
        let waiter = Child::fork(|| other(arena));
        trial.wait_until(|| waiter.is_in_futex());
        RefCell::new((held, Some(waiter)))
    };
    step::each_instruction(
        &trial,
        "with another waiter asleep",
        before,
        |_, span| span.run(|| section(arena)),
        |world| !core::mem::take(&mut world.borrow_mut().0).is_empty(),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            drop(arena.read());
            arena.change();
        },
    );
}

#[test]
fn a_reader_that_waits_for_a_writer_is_recoverable_at_every_instruction() {
    waiting_killed_at_every_instruction(
        "a_reader_that_waits_for_a_writer_is_recoverable_at_every_instruction",
        |arena| vec![Held::Writing(arena.write())],
        |arena| drop(arena.read()),
        |arena| drop(arena.read()),
    );
}

#[test]
fn a_writer_that_waits_for_a_reader_is_recoverable_at_every_instruction() {
    waiting_killed_at_every_instruction(
        "a_writer_that_waits_for_a_reader_is_recoverable_at_every_instruction",
        |arena| vec![Held::Reading(arena.read())],
        Arena::change,
        Arena::change,
    );
}

#[test]
fn a_reader_that_waits_for_a_seat_is_recoverable_at_every_instruction() {
    waiting_killed_at_every_instruction(
        "a_reader_that_waits_for_a_seat_is_recoverable_at_every_instruction",
        |arena| (0..READERS).map(|_| Held::Reading(arena.read())).collect(),
        |arena| drop(arena.read()),
        Arena::change,
    );
}

/// Whoever takes over from a dead writer gives the lock up, and may be killed while doing so.
#[test]
fn giving_up_is_never_half_done() {
    let trial = Trial::begin("giving_up_is_never_half_done");
    let region = region();
    let mut round = 0;
    step::each_instruction(
        &trial,
        "give up",
        || {
            round += 1;
            let lock = region
                .object(&format!("lock {}", round % 1000), || {
                    Lock::new(Halves { left: 0, right: 0 })
                })
                .unwrap();
            if round <= 1000 {
                Child::fork(|| core::mem::forget(lock.write().unwrap())).succeed();
            }
            lock
        },
        |lock, span| {
            span.run(|| match lock.read() {
                Err(LockError::OwnerDied(died)) => drop(died),
                other => drop(other),
            });
        },
        |_| false,
        |lock, _| match lock.write() {
            Ok(_) => panic!("unrepaired data was passed on as consistent"),
            Err(LockError::OwnerDied(died)) => drop(died),
            Err(LockError::NotRecoverable) => {}
            Err(error) => panic!("{error}"),
        },
    );
}
