//! Robust throughput mutexes whose owners are killed as they hand off, and whose top waiters are killed, at each instruction.
//! (`kill_in_region_throughput.rs` does the same with the region lock of this protocol.)

use super::Halves;
use core::cell::RefCell;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::throughput::Entry;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard, Throughput};
use latchwork::region::{Region, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Trial};

type Kind = Throughput<Shared>;
type Lock = Mutex<Halves, Robust<Kind>>;
type Held<'a> = RobustGuard<'a, Halves, Kind>;

#[derive(Shareable)]
#[repr(C)]
struct Marks {
    /// Deaths that were reported.
    told: AtomicU64,
    /// Hand-offs that the second waiter of a round has got.
    handed: AtomicU64,
    go: AtomicBool,
}

#[derive(Clone, Copy)]
struct Arena<'r> {
    region: &'r Region,
    lock: Pin<&'r Lock>,
    marks: &'r Marks,
}

impl<'r> Arena<'r> {
    fn new(region: &'r Region) -> Self {
        // A top waiter that sleeps has requested the hand-off.
        let lock = || {
            let lock = Robust::<Kind>::new().hand_off_after(Some(Duration::ZERO));
            Mutex::from_raw(lock, Halves { left: 0, right: 0 })
        };
        let marks = || Marks {
            told: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            go: AtomicBool::new(false),
        };
        Self {
            region,
            lock: region.object("lock", lock).unwrap(),
            marks: region.object("marks", marks).unwrap().get_ref(),
        }
    }

    fn begin_round(self) {
        self.region.sweep().unwrap();
        self.marks.told.store(0, SeqCst);
        self.marks.handed.store(0, SeqCst);
        self.marks.go.store(false, SeqCst);
    }

    /// Takes the lock, and repairs what a dead owner left.
    fn take(self) -> Held<'r> {
        match self.lock.lock_traced() {
            Ok((halves, how)) => {
                assert_eq!(halves.left, halves.right, "torn data without OwnerDied");
                if how.entry == Entry::HandedOff {
                    self.marks.handed.fetch_add(1, SeqCst);
                }
                halves
            }
            Err(LockError::OwnerDied(mut halves)) => {
                self.marks.told.fetch_add(1, SeqCst);
                halves.left = halves.left.max(halves.right);
                halves.right = halves.left;
                halves.make_consistent()
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Not whole in between.
    fn change(mut halves: Held<'_>) {
        halves.left += 1;
        core::sync::atomic::compiler_fence(SeqCst);
        halves.right += 1;
    }

    fn section(self) {
        Self::change(self.take());
    }

    /// Nobody has the lock, or waits for it, and it can be taken. Returns how many deaths were reported in this round: at most
    /// those that there were.
    fn check(self, point: Point) -> u64 {
        self.section();
        drop(self.lock.try_lock().unwrap());
        let told = self.marks.told.load(SeqCst);
        assert!(told <= point.kills(), "{told} reports, killed at {point:?}");
        told
    }
}

/// An unlock that hands off to a top waiter, which gets the lock in any case: handed off, or with the report.
#[test]
fn a_robust_hand_off_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_robust_hand_off_is_recoverable_at_every_instruction");
    let region = super::region();
    let arena = Arena::new(&region);
    step::each_instruction_and_recovery(
        &trial,
        "hand-off, robust",
        || {
            arena.begin_round();
            Child::fork(|| {
                // It waits for the victim to have the lock.
                while !arena.marks.go.load(SeqCst) {
                    std::thread::yield_now();
                }
                arena.section();
            })
        },
        |waiter, span| {
            let held = arena.take();
            arena.marks.go.store(true, SeqCst);
            while !waiter.is_in_futex() {
                std::thread::yield_now();
            }
            span.run(|| Arena::change(held));
        },
        |_| false,
        |_, span| span.run(|| arena.section()),
        |waiter, point| {
            waiter.succeed();
            let told = arena.check(point);
            let handed = arena.marks.handed.load(SeqCst);
            match (told, handed) {
                (0, 0) => {
                    assert_ne!(point, Point::Finished, "a request was ignored");
                    "no owner died, and another task had the lock before the waiter"
                }
                (0, _) => "handed off",
                _ => {
                    assert_ne!(point, Point::Finished, "no owner died");
                    step::reported(told)
                }
            }
        },
    );
}

/// The top waiter is killed, with another waiter asleep at the gate, which must get in. The lock is handed off to the top
/// waiter as soon as it sleeps.
#[test]
fn a_robust_top_waiter_is_recoverable_at_every_instruction() {
    let trial = Trial::begin("a_robust_top_waiter_is_recoverable_at_every_instruction");
    let region = super::region();
    let arena = Arena::new(&region);
    step::each_instruction_and_recovery(
        &trial,
        "top waiter, robust",
        || {
            arena.begin_round();
            RefCell::new((Some(arena.take()), None))
        },
        |_, span| {
            // The record of the thread is made before.
            arena.region.join("victim").unwrap();
            span.run(|| arena.section());
        },
        |world| {
            let mut world = world.borrow_mut();
            // The victim sleeps on the word. The first time, another waiter comes; it wakes the victim in the end.
            let Some(held) = world.0.take() else {
                return false;
            };
            let other = Child::fork(|| arena.section());
            trial.wait_until(|| other.is_in_futex());
            world.1 = Some(other);
            drop(held);
            true
        },
        |_, span| span.run(|| arena.section()),
        |world, point| {
            let (held, other) = world.into_inner();
            drop(held);
            if let Some(other) = other {
                other.succeed();
            }
            let told = arena.check(point);
            assert!(!(told > 0 && point == Point::Finished), "no owner died");
            match (told, point) {
                (0, Point::Finished) => "no task died",
                (0, _) => "a death before the lock was taken, or after its release",
                _ => step::reported(told),
            }
        },
    );
}

/// A top waiter that has requested the hand-off, and gives up. The other waiter gets the lock, and no death is reported.
#[test]
fn a_robust_top_waiter_that_gives_up_is_recoverable_at_every_instruction() {
    let trial =
        Trial::begin("a_robust_top_waiter_that_gives_up_is_recoverable_at_every_instruction");
    let region = super::region();
    let arena = Arena::new(&region);
    let in_vain = || {
        let taken = arena.lock.lock_for(Duration::from_millis(3));
        assert!(matches!(taken, Err(LockError::TimedOut)));
    };
    step::each_instruction_and_recovery(
        &trial,
        "top waiter that gives up, robust",
        || {
            arena.begin_round();
            RefCell::new((arena.take(), None))
        },
        |_, span| {
            arena.region.join("victim").unwrap();
            span.run(in_vain);
        },
        // The limit ends each of its sleeps.
        |world| {
            let mut world = world.borrow_mut();
            if world.1.is_none() {
                world.1 = Some(Child::fork(|| arena.section()));
            }
            true
        },
        |_, span| span.run(in_vain),
        |world, point| {
            let (held, other) = world.into_inner();
            drop(held);
            if let Some(other) = other {
                other.succeed();
            }
            assert_eq!(arena.check(point), 0, "no owner died, killed at {point:?}");
            "no owner died"
        },
    );
}
