//! Region locks whose owners, waiters and recoverers are killed.
#![cfg(not(loom))]

use core::cell::RefCell;
use core::mem::forget;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionGuard, RegionProtocol, Throughput, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable, TornSafe};
use latchwork::sharing::Shared;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Storm, Trial, Worker, fastrand};

/// Equal, unless an owner died between the two stores.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Halves {
    left: u64,
    right: u64,
}

type Lock<P> = Mutex<Halves, InRegion<P>>;
type Guard<'a, P> = RegionGuard<'a, Halves, P>;

trait Form: RegionProtocol + Shareable {}
impl<P: RegionProtocol + Shareable> Form for P {}

macro_rules! with_every_form {
    ($($name:ident)*) => {
        mod wait_wake {
            $(#[test]
            fn $name() {
                super::$name::<super::WaitWake<super::Shared>>();
            })*
        }
        mod throughput {
            $(#[test]
            fn $name() {
                super::$name::<super::Throughput<super::Shared>>();
            })*
        }
    };
}
with_every_form!(
    every_survivor_makes_progress_after_each_kill
    many_waiters_survive_each_others_deaths
    recoverers_may_be_killed
    lock_and_unlock_are_recoverable_at_every_instruction
    a_first_lock_call_is_recoverable_at_every_instruction
    a_wait_is_recoverable_at_every_instruction
    an_unlock_with_a_sleeper_is_recoverable_at_every_instruction
    a_takeover_is_recoverable_at_every_instruction
    giving_up_is_never_half_done
    a_forgotten_guard_is_recoverable_at_every_instruction
);

#[derive(Shareable)]
#[repr(C)]
struct Arena<P: RegionProtocol> {
    lock: Lock<P>,
    /// The process that believes to be inside, or 0.
    inside: AtomicU32,
    torn: AtomicU64,
    died: AtomicU64,
    progress: [AtomicU64; 16],
}

impl<P: Form> Arena<P> {
    fn new() -> Self {
        Self {
            lock: new_lock(),
            inside: AtomicU32::new(0),
            torn: AtomicU64::new(0),
            died: AtomicU64::new(0),
            progress: [const { AtomicU64::new(0) }; 16],
        }
    }

    fn lock(&self) -> Guard<'_, P> {
        self.entered(self.lock.lock())
    }

    fn entered<'a>(
        &'a self,
        taken: Result<Guard<'a, P>, LockError<'a, Halves, P>>,
    ) -> Guard<'a, P> {
        match taken {
            Ok(halves) => {
                assert_eq!(halves.left, halves.right, "torn data without OwnerDied");
                let inside = self.inside.load(SeqCst);
                assert_eq!(inside, 0, "inside beside a task, or after a dead one");
                halves
            }
            Err(LockError::OwnerDied(mut halves)) => {
                self.died.fetch_add(1, SeqCst);
                self.inside.store(0, SeqCst);
                if halves.left != halves.right {
                    self.torn.fetch_add(1, SeqCst);
                    halves.left = halves.left.max(halves.right);
                    halves.right = halves.left;
                }
                halves.make_consistent()
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn change(&self) {
        let mut halves = self.lock();
        halves.left += 1;
        core::sync::atomic::compiler_fence(SeqCst);
        halves.right += 1;
    }
}

fn new_lock<P: RegionProtocol>() -> Lock<P> {
    Mutex::from_raw(InRegion::new(), Halves { left: 0, right: 0 })
}

fn arena<P: Form>(region: &Region) -> &Arena<P> {
    region.object("arena", Arena::new).unwrap().get_ref()
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_in_region")
        .create_anonymous()
        .unwrap()
}

fn dawdle(rng: &mut fastrand::Rng) {
    match rng.u32(..32) {
        // For longer than the first sleep of a waiter.
        0 => std::thread::sleep(Duration::from_millis(rng.u64(..6))),
        // Off the processor with the lock held: the others go to sleep.
        1 | 2 => std::thread::sleep(Duration::from_micros(rng.u64(..150))),
        3 | 4 => std::thread::yield_now(),
        turns => (0..turns * 10).for_each(|_| core::hint::spin_loop()),
    }
}

fn section<P: Form>(arena: &Arena<P>, rng: &mut fastrand::Rng) {
    let guard = if rng.u32(..8) == 0 {
        match arena.lock.lock_for(Duration::from_micros(rng.u64(..300))) {
            Err(LockError::TimedOut) => return,
            taken => arena.entered(taken),
        }
    } else {
        arena.lock()
    };
    let mut halves = guard;
    let me = std::process::id();
    arena.inside.store(me, SeqCst);
    halves.left += 1;
    dawdle(rng);
    halves.right += 1;
    assert_eq!(arena.inside.load(SeqCst), me, "two tasks are inside");
    arena.inside.store(0, SeqCst);
}

fn storm<P: Form>(name: &'static str, seats: usize, kills: u64) {
    let trial = Trial::begin(name);
    let region = region();
    let arena = arena::<P>(&region);
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            section(arena, &mut rng);
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
    drop(arena.lock());
    storm.finish();
    println!(
        "{name}: {} owners died, {} left torn data",
        arena.died.load(SeqCst),
        arena.torn.load(SeqCst)
    );
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

fn every_survivor_makes_progress_after_each_kill<P: Form>() {
    storm::<P>("every_survivor_makes_progress_after_each_kill", 4, 150);
}

fn many_waiters_survive_each_others_deaths<P: Form>() {
    storm::<P>("many_waiters_survive_each_others_deaths", 12, 60);
}

/// The tasks that take over from a dead owner are killed as they repair.
fn recoverers_may_be_killed<P: Form>() {
    let trial = Trial::begin("recoverers_may_be_killed");
    let region = region();
    let arena = arena::<P>(&region);
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            section(arena, &mut rng);
            arena.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 5, work);
    let kills = trial.times(100);
    while storm.kills() < kills {
        storm.kill_recoverers();
        storm.wait_for_progress(|seat| arena.progress[seat].load(SeqCst));
    }
    storm.finish();
    drop(arena.lock());
}

fn lock_and_unlock_are_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("lock_and_unlock_are_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    let covered = step::each_instruction(
        &trial,
        "free lock",
        || (),
        |(), span| {
            drop(arena.lock());
            span.run(|| arena.change());
        },
        |()| false,
        |(), point| {
            let before = arena.died.load(SeqCst);
            arena.change();
            let dead = arena.died.load(SeqCst) - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            drop(arena.lock.try_lock().unwrap());
        },
    );
    println!("{covered:?}");
}

/// The lock call by which a thread becomes a task of the region.
fn a_first_lock_call_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_first_lock_call_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    step::each_instruction(
        &trial,
        "first lock",
        || (),
        |(), span| span.run(|| arena.change()),
        |()| false,
        |(), _| {
            arena.change();
            drop(arena.lock.try_lock().unwrap());
        },
    );
}

/// A task that waits, and is killed; with another one asleep, which must get in.
fn a_wait_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_wait_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    let before = || {
        let held = arena.lock();
        let waiter = Child::fork(|| arena.change());
        trial.wait_until(|| waiter.is_in_futex());
        RefCell::new((Some(held), Some(waiter)))
    };
    let covered = step::each_instruction(
        &trial,
        "with another waiter asleep",
        before,
        |_, span| {
            region.join("victim").unwrap();
            span.run(|| arena.change());
        },
        |world| world.borrow_mut().0.take().is_some(),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            arena.change();
        },
    );
    println!("{covered:?}");
}

/// An unlock that has a sleeper to wake.
fn an_unlock_with_a_sleeper_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("an_unlock_with_a_sleeper_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    let go = region.object("go", || AtomicU32::new(0)).unwrap();
    step::each_instruction(
        &trial,
        "unlock",
        || {
            go.store(0, SeqCst);
            // It waits for the victim to hold the lock.
            Some(Child::fork(|| {
                while go.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                arena.change();
            }))
        },
        |waiter, span| {
            let held = arena.lock();
            go.store(1, SeqCst);
            while !waiter.as_ref().unwrap().is_in_futex() {
                std::thread::yield_now();
            }
            span.run(|| drop(held));
        },
        |_| false,
        |waiter, _| {
            go.store(1, SeqCst);
            waiter.unwrap().succeed();
            arena.change();
        },
    );
}

/// The first and the second task that takes over from a dead owner.
fn a_takeover_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_takeover_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    step::each_instruction(
        &trial,
        "takeover",
        || Child::fork(|| forget(arena.lock())).succeed(),
        |(), span| {
            // As another task would, so that only the lock passes on.
            region.sweep().unwrap();
            span.run(|| arena.change());
        },
        |()| false,
        |(), point| {
            let before = arena.died.load(SeqCst);
            arena.change();
            let dead = arena.died.load(SeqCst) - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
        },
    );
}

/// Whoever takes over from a dead owner gives the lock up, and may be killed while doing so.
fn giving_up_is_never_half_done<P: Form>() {
    let trial = Trial::begin("giving_up_is_never_half_done");
    let region = region();
    let mut round = 0;
    step::each_instruction(
        &trial,
        "give up",
        || {
            round += 1;
            let lock = region.object(&format!("lock {}", round % 1000), new_lock::<P>);
            let lock = lock.unwrap();
            if round <= 1000 {
                Child::fork(|| forget(lock.lock().unwrap())).succeed();
            }
            lock
        },
        |lock, span| {
            span.run(|| match lock.lock() {
                Err(LockError::OwnerDied(died)) => drop(died),
                other => drop(other),
            });
        },
        |_| false,
        |lock, _| match lock.lock() {
            Ok(_) => panic!("unrepaired data was passed on as consistent"),
            Err(LockError::OwnerDied(died)) => drop(died),
            Err(LockError::NotRecoverable) => {}
            Err(error) => panic!("{error}"),
        },
    );
}

/// A task that has forgotten a guard, and may not leave.
fn a_forgotten_guard_is_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("a_forgotten_guard_is_recoverable_at_every_instruction");
    let region = region();
    let arena = arena::<P>(&region);
    step::each_instruction(
        &trial,
        "leave with a forgotten guard",
        || (),
        |(), span| {
            region.join("victim").unwrap();
            span.run(|| {
                forget(arena.lock());
                assert!(region.clone().detach().is_err());
            });
        },
        |()| false,
        |(), _| {
            let before = arena.died.load(SeqCst);
            arena.change();
            assert!(arena.died.load(SeqCst) - before <= 1);
        },
    );
}
