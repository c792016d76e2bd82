//! Robust mutexes of every protocol, whose holders, waiters and recoverers are killed: at random moments, and
//! at every instruction.

use core::cell::{Cell, RefCell};
use core::mem::forget;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{
    Inherit, LockError, Mutex, Protect, Robust, RobustGuard, Throughput, WaitWake,
};
use latchwork::region::{Region, RegionOptions, Shareable, TornSafe};
use latchwork::sharing::Shared;
use latchwork_testkit::bodies::kill::{self, Found};
use latchwork_testkit::step::{self, Point, Span};
use latchwork_testkit::{Child, Exit, Storm, Trial, Worker, die, fastrand};

#[path = "../kill_support/mod.rs"]
mod kill_support;
#[path = "../robust_kinds/mod.rs"]
mod robust_kinds;
mod throughput_hand_off;
use kill_support::fresh;
use latchwork_testkit::priority::{OTHER, now};
use robust_kinds::Kind;

/// Declares each body as the tests of all protocols, and those after the `;` as those of all but the
/// wait-wake protocol, of which `kill_robust.rs` has them.
macro_rules! of_each_kind {
    ($($all:ident)*; $($body:ident)*) => {
        of_each_kind!(@ wait_wake: WaitWake<Shared>; $($all)*);
        of_each_kind!(@ inherit: Inherit<Shared>; $($all)* $($body)*);
        of_each_kind!(@ protect: Protect<Shared>; $($all)* $($body)*);
        of_each_kind!(@ throughput: Throughput<Shared>; $($all)* $($body)*);
    };
    (@ $module:ident: $kind:ty; $($body:ident)*) => {
        mod $module {
            use super::*;
            $(#[test]
            fn $body() {
                let name = concat!(stringify!($body), " of ", stringify!($kind));
                if <$kind>::may_be_used(name) {
                    let region = region();
                    super::$body::<$kind>(&Trial::begin(name), &Arena::new(&region));
                    assert_eq!(now(), OTHER, "the priority is not restored");
                    region.sweep().unwrap();
                    region.check_heap().unwrap();
                }
            })*
        }
    };
}

of_each_kind! {
    recovery_is_recoverable_at_every_instruction
    a_timed_wait_is_recoverable_at_every_instruction
    ;
    every_survivor_makes_progress_after_each_kill
    many_waiters_are_all_freed_in_turn
    a_chain_of_deaths_reaches_the_last_waiter
    a_waiter_killed_asleep_is_not_waited_for
    lock_and_unlock_are_recoverable_at_every_instruction
    a_contended_lock_is_recoverable_at_every_instruction
    a_contended_lock_is_recoverable_at_every_instruction_with_another_waiter_asleep
    becoming_not_recoverable_is_atomic
}

/// Equal, unless a holder died between the two stores.
#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Halves {
    left: u64,
    right: u64,
}

#[derive(Shareable)]
#[repr(C)]
struct Marks {
    /// Who believes to hold the lock: process ID, or 0.
    owner: AtomicU32,
    torn: AtomicU64,
    died: AtomicU64,
    progress: [AtomicU64; 16],
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_robust")
        .create_anonymous()
        .unwrap()
}

struct Arena<'a, K: Kind + Shareable> {
    region: &'a Region,
    lock: Pin<&'a Mutex<Halves, Robust<K>>>,
    marks: &'a Marks,
    /// The deaths that were in an outcome.
    counted: Cell<u64>,
}

impl<'a, K: Kind + Shareable> Arena<'a, K> {
    fn new(region: &'a Region) -> Self {
        let halves = || Mutex::from_raw(K::robust(), Halves { left: 0, right: 0 });
        let marks = || Marks {
            owner: AtomicU32::new(0),
            torn: AtomicU64::new(0),
            died: AtomicU64::new(0),
            progress: [const { AtomicU64::new(0) }; 16],
        };
        Self {
            region,
            lock: region.object("lock", halves).unwrap(),
            marks: region.object("marks", marks).unwrap().get_ref(),
            counted: Cell::new(0),
        }
    }

    /// The outcome of a round.
    fn outcome(&self) -> &'static str {
        let died = self.marks.died.load(SeqCst);
        step::reported(died - self.counted.replace(died))
    }

    /// Takes the lock, and repairs what a dead holder left.
    fn take(&self) -> RobustGuard<'a, Halves, K> {
        match self.lock.lock() {
            Ok(halves) => {
                assert_eq!(halves.left, halves.right, "torn data without OwnerDied");
                assert_eq!(
                    self.marks.owner.load(SeqCst),
                    0,
                    "taken without OwnerDied from one who did not release it"
                );
                halves
            }
            Err(LockError::OwnerDied(mut halves)) => {
                self.marks.died.fetch_add(1, SeqCst);
                self.marks.owner.store(0, SeqCst);
                if halves.left != halves.right {
                    self.marks.torn.fetch_add(1, SeqCst);
                    halves.left = halves.left.max(halves.right);
                    halves.right = halves.left;
                }
                halves.make_consistent()
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn section(&self) {
        let mut halves = self.take();
        halves.left += 1;
        core::sync::atomic::compiler_fence(SeqCst);
        halves.right += 1;
    }

    fn random_section(&self, rng: &mut fastrand::Rng) {
        let me = std::process::id();
        let mut halves = self.take();
        self.marks.owner.store(me, SeqCst);
        halves.left += 1;
        match rng.u32(..16) {
            // Off the CPU with the lock held: the others go to sleep.
            0 => std::thread::sleep(Duration::from_micros(rng.u64(..150))),
            1 => std::thread::yield_now(),
            turns => (0..turns * 10).for_each(|_| core::hint::spin_loop()),
        }
        halves.right += 1;
        assert_eq!(self.marks.owner.load(SeqCst), me, "two tasks hold the lock");
        assert_eq!(halves.left, halves.right);
        self.marks.owner.store(0, SeqCst);
    }
}

fn storm<K: Kind + Shareable>(trial: &Trial, arena: &Arena<'_, K>, seats: usize, kills: u64) {
    let progress = &arena.marks.progress;
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            arena.random_section(&mut rng);
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(trial, seats, work);
    let kills = trial.times(kills);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
    }
    storm.kill_all();
    drop(arena.take());
    let sections = arena.lock.try_lock().unwrap().left;
    let counted: u64 = progress.iter().map(|count| count.load(SeqCst)).sum();
    assert!(
        sections >= counted,
        "{counted} sections were completed, but the data knows of {sections}"
    );
    storm.finish();
    println!(
        "{}: {} owners died, {} left torn data",
        trial.name(),
        arena.marks.died.load(SeqCst),
        arena.marks.torn.load(SeqCst)
    );
}

fn every_survivor_makes_progress_after_each_kill<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    storm(trial, arena, 4, 200);
}

fn many_waiters_are_all_freed_in_turn<K: Kind + Shareable>(trial: &Trial, arena: &Arena<'_, K>) {
    storm(trial, arena, 12, 200);
}

/// Each waiter dies in its turn, while it holds the lock, and the next one gets the report.
fn a_chain_of_deaths_reaches_the_last_waiter<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    const LINKS: u64 = 8;
    for _ in 0..trial.times(10) {
        arena.marks.died.store(0, SeqCst);
        let held = arena.take();
        let mut links: Vec<Child> = (0..LINKS)
            .map(|_| {
                Child::fork(|| {
                    let mut halves = arena.take();
                    halves.left += 1;
                    die();
                })
            })
            .collect();
        for link in &links {
            trial.wait_until(|| link.is_in_futex());
        }
        drop(held);
        for link in &mut links {
            assert_eq!(link.wait(), Exit::Signal(libc::SIGKILL));
        }
        drop(arena.take());
        // All but the first took it from a dead one, and so did we.
        assert_eq!(arena.marks.died.load(SeqCst), LINKS);
    }
}

/// Whichever it is: the top waiter, the owner of the gate, or one behind them.
fn a_waiter_killed_asleep_is_not_waited_for<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    for round in 0..trial.times(21) {
        let held = arena.take();
        let mut waiters: Vec<Child> = (0..3)
            .map(|_| {
                let waiter = Child::fork(|| drop(arena.take()));
                trial.wait_until(|| waiter.is_in_futex());
                waiter
            })
            .collect();
        let mut victim = waiters.remove(round as usize % 3);
        assert_eq!(victim.kill(), Exit::Signal(libc::SIGKILL));
        if round % 2 == 0 {
            drop(held);
        } else {
            // The others are there already.
            assert!(matches!(arena.lock.try_lock(), Err(LockError::Deadlock)));
            drop(held);
            drop(arena.take());
        }
        waiters.into_iter().for_each(Child::succeed);
        drop(arena.lock.try_lock().unwrap());
    }
    assert_eq!(arena.marks.died.load(SeqCst), 0, "no holder died");
}

fn lock_and_unlock_are_recoverable_at_every_instruction<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    let mut died = 0;
    let covered = step::each_instruction_and_recovery(
        trial,
        "lock and unlock",
        || (),
        |(), span| {
            // Thread record and robust list are set up before.
            arena.section();
            span.run(|| arena.section());
        },
        |()| false,
        |(), span| span.run(|| arena.section()),
        |(), point| {
            let before = arena.marks.died.load(SeqCst);
            arena.section();
            let dead = arena.marks.died.load(SeqCst) - before;
            assert!(dead <= 1 && (point != Point::Finished || dead == 0));
            died += dead;
            step::reported(dead)
        },
    );
    assert!(died > 0 || covered.is_none(), "no kill hit a holder");
}

fn a_contended_lock_is_recoverable_at_every_instruction<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    let section = || drop(arena.take());
    // We hold the lock until the child is asleep; a second waiter must get it in any case.
    step::each_instruction_and_recovery(
        trial,
        "contended",
        || RefCell::new(Some(arena.take())),
        |_, span| span.run(section),
        |held| held.borrow_mut().take().is_some(),
        |_, span| span.run(section),
        |held, _| {
            let other = Child::fork(section);
            drop(held);
            other.succeed();
            section();
            arena.outcome()
        },
    );
}

fn a_contended_lock_is_recoverable_at_every_instruction_with_another_waiter_asleep<
    K: Kind + Shareable,
>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    let section = || drop(arena.take());
    let contended = || {
        let held = arena.take();
        let waiter = Child::fork(section);
        trial.wait_until(|| waiter.is_in_futex());
        RefCell::new((Some(held), Some(waiter)))
    };
    step::each_instruction_and_recovery(
        trial,
        "contended, with another waiter asleep",
        contended,
        |_, span| span.run(section),
        |world| world.borrow_mut().0.take().is_some(),
        |_, span| span.run(section),
        |world, _| {
            let (held, waiter) = world.into_inner();
            drop(held);
            waiter.unwrap().succeed();
            section();
            arena.outcome()
        },
    );
}

/// A task that waits for a limited time, in vain, and is killed; with another one asleep, which must get the lock.
fn a_timed_wait_is_recoverable_at_every_instruction<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    let in_vain = |span: Span| {
        let lock = arena.lock;
        let taken = span.run(move || lock.lock_for(Duration::from_millis(3)));
        assert!(matches!(taken, Err(LockError::TimedOut)));
    };
    step::each_instruction_and_recovery(
        trial,
        "timed lock, in vain",
        || {
            let held = arena.take();
            let waiter = Child::fork(|| drop(arena.take()));
            trial.wait_until(|| waiter.is_in_futex());
            (held, waiter)
        },
        |_, span| {
            // The record of the thread is made before.
            let _ = arena.region.join("victim");
            in_vain(span);
        },
        // The limit ends each of its sleeps.
        |_| true,
        |_, span| in_vain(span),
        |(held, waiter), _| {
            drop(held);
            waiter.succeed();
            arena.section();
            drop(arena.lock.try_lock().unwrap());
            assert_eq!(arena.marks.died.load(SeqCst), 0, "no owner died");
            arena.outcome()
        },
    );
}

/// The task that recovers the lock of a dead owner is killed, too: the next owner gets the report, unless all was
/// repaired.
fn recovery_is_recoverable_at_every_instruction<K: Kind + Shareable>(
    trial: &Trial,
    arena: &Arena<'_, K>,
) {
    let leave_torn = || {
        let owner = Child::fork(|| {
            let mut halves = arena.take();
            halves.left += 1;
            forget(halves);
        });
        owner.succeed();
    };
    step::each_instruction_and_recovery(
        trial,
        "recovery",
        leave_torn,
        |(), span| {
            // The record of the thread is made before.
            let _ = arena.region.join("recoverer");
            span.run(|| drop(arena.take()));
        },
        |()| false,
        |(), span| span.run(|| drop(arena.take())),
        |(), _| {
            let before = arena.marks.died.load(SeqCst);
            arena.section();
            drop(arena.lock.try_lock().unwrap());
            step::reported(arena.marks.died.load(SeqCst) - before)
        },
    );
}

/// Whoever takes over a dead holder's lock gives it up, and may be killed while doing so.
fn becoming_not_recoverable_is_atomic<K: Kind + Shareable>(trial: &Trial, arena: &Arena<'_, K>) {
    kill::giving_up_is_never_half_done(
        trial,
        || fresh(arena.region, || K::mutex(0_u64)),
        |lock| forget(lock.lock().unwrap()),
        |lock| give_up(*lock),
        |lock| give_up(*lock),
    );
}

fn give_up<K: Kind + Shareable>(lock: Pin<&Mutex<u64, Robust<K>>>) -> Found {
    match lock.lock() {
        Ok(_) => Found::NoDeath,
        Err(LockError::OwnerDied(died)) => {
            drop(died);
            Found::OwnerDied
        }
        Err(LockError::NotRecoverable) => Found::NotRecoverable,
        Err(error) => panic!("{error}"),
    }
}
