//! Models of the throughput mutex: `src/mutex/throughput.rs` under the model checker.
//!
//! Properties: two tasks are never in the critical section at once; each task sees what the one before it wrote there;
//! every task gets in (a lost wake-up ends as loom's deadlock); and a top waiter that is the only one gets in at the first
//! unlock after its request. The models have top waiters that set the request and that do not, deadlines, and naps that
//! end, so that gates are taken away from their owners. Negative twins.
//!
//! Left out: all polls but one per step, turns, whether the owner runs, naps on the word, more than three tasks,
//! timing.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{SOON, Scene, WakeOrder, as_task, take_requests};
use latchwork::mutex::{RawLock, Throughput};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

struct Shared {
    lock: Throughput,
    data: UnsafeCell<u32>,
}

// SAFETY: the data is used only under the lock; the model checks just that.
unsafe impl Sync for Shared {}
// SAFETY: the data is used only under the lock, by one task at a time.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: Throughput::new(),
            data: UnsafeCell::new(0),
        })
    }

    fn add_and_unlock(&self) {
        // SAFETY: the caller holds the lock; loom reports it if two tasks do.
        self.data.with_mut(|data| unsafe { *data += 1 });
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
    }

    fn add(&self) -> u32 {
        self.lock.lock();
        self.add_and_unlock();
        1
    }

    fn add_three_times(&self) -> u32 {
        (0..3).map(|_| self.add()).sum()
    }

    /// Gives up at a deadline.
    fn add_before_deadline(&self) -> u32 {
        let taken = self.lock.lock_until(SOON);
        if taken {
            self.add_and_unlock();
        }
        u32::from(taken)
    }

    fn sum(&self) -> u32 {
        // All other tasks have ended: the lock is free, though it may be reserved.
        assert!(
            self.lock.try_lock(),
            "no task holds the lock, and it is not free"
        );
        // SAFETY: the lock is held.
        let sum = self.data.with(|data| unsafe { *data });
        // SAFETY: this task has taken the lock above.
        unsafe { self.lock.unlock() };
        sum
    }
}

type Body = fn(&Shared) -> u32;

fn spawn(shared: &Arc<Shared>, number: usize, body: Body) -> JoinHandle<u32> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut entered = 0;
        as_task(number, None, || entered = body(&shared));
        entered
    })
}

/// One task for each body; the first is the model's own task.
fn all_tasks_enter<const N: usize>(bodies: [Body; N]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new();
        let others: Vec<_> = (1..N)
            .map(|number| spawn(&shared, number, bodies[number]))
            .collect();
        let mut entered = bodies[0](&shared);
        for other in others {
            entered += other.join().unwrap();
        }
        assert_eq!(shared.sum(), entered);
    }
}

/// As [`all_tasks_enter`]. The tasks make at most `most` requests for a hand-off.
fn few_requests<const N: usize>(most: u32, bodies: [Body; N]) -> impl Fn() + Send + Sync + 'static {
    let body = all_tasks_enter(bodies);
    move || {
        take_requests();
        body();
        let made = take_requests();
        assert!(made <= most, "requested again: {made} requests");
    }
}

const THREE_TIMES_AND_ONCE: [Body; 2] = [Shared::add_three_times, Shared::add];
const TWO: [Body; 2] = [Shared::add; 2];
const THREE: [Body; 3] = [Shared::add; 3];

fn scene(hands_off: bool, naps_end: bool) -> Scene {
    Scene {
        hands_off,
        naps_end,
        ..Scene::default()
    }
}

#[test]
fn two_tasks_exclude_each_other_and_both_enter() {
    for hands_off in [false, true] {
        scene(hands_off, false).explore(None, all_tasks_enter(TWO));
    }
}

#[test]
fn two_tasks_survive_spurious_wakeups() {
    for hands_off in [false, true] {
        Scene {
            spurious: 1,
            ..scene(hands_off, false)
        }
        .explore(Some(3), all_tasks_enter(TWO));
    }
}

#[test]
fn three_tasks_exclude_each_other_and_all_enter() {
    for hands_off in [false, true] {
        for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
            Scene {
                wake_order,
                ..scene(hands_off, false)
            }
            .explore(Some(2), all_tasks_enter(THREE));
        }
    }
}

#[test]
fn all_enter_though_gates_are_taken_away() {
    for hands_off in [false, true] {
        scene(hands_off, true).explore(Some(2), all_tasks_enter(THREE));
    }
}

#[test]
fn a_top_waiter_that_gives_up_takes_nothing_with_it() {
    for hands_off in [false, true] {
        scene(hands_off, false).explore(
            Some(3),
            all_tasks_enter([Shared::add, Shared::add_before_deadline]),
        );
        scene(hands_off, false).explore(
            Some(2),
            all_tasks_enter([Shared::add, Shared::add_before_deadline, Shared::add]),
        );
    }
}

/// Each of two tasks waits for the other once. The waiter is the only top waiter: it gets the lock at the first unlock
/// after its request, however soon the other task locks again.
#[test]
fn a_request_keeps_newcomers_out() {
    scene(true, false).explore(Some(3), few_requests(2, THREE_TIMES_AND_ONCE));
}

/// A scene with a fault: the model must fail.
macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $scene:expr, $preemptions:expr, $bodies:expr) => {
        twin!(
            $name,
            $fault,
            $expected,
            $scene,
            $preemptions,
            all_tasks_enter($bodies),
            model
        );
    };
    ($name:ident, $fault:ident, $expected:expr, $scene:expr, $preemptions:expr, $body:expr, model) => {
        #[test]
        fn $name() {
            Scene {
                fault: Some(latchwork::model::Fault::$fault),
                ..$scene
            }
            .must_fail(stringify!($name), $expected, |scene| {
                scene.explore(Some($preemptions), $body);
            });
        }
    };
}
twin!(
    twin_lock_without_acquire_is_detected,
    ThroughputLockRelaxed,
    "Causality violation",
    scene(false, false),
    3,
    TWO
);
twin!(
    twin_unlock_without_release_is_detected,
    ThroughputUnlockRelaxed,
    "Causality violation",
    scene(false, false),
    3,
    TWO
);
twin!(
    twin_unlock_without_a_wake_up_is_detected,
    ThroughputUnlockWakesNobody,
    "deadlock",
    scene(false, false),
    3,
    TWO
);
twin!(
    twin_hand_off_without_a_wake_up_is_detected,
    ThroughputHandOffWakesNobody,
    "deadlock",
    scene(true, false),
    3,
    TWO
);
twin!(
    twin_taker_that_forgets_the_sleepers_is_detected,
    ThroughputTakerForgetsSleepers,
    "deadlock",
    scene(true, true),
    3,
    THREE
);
twin!(
    twin_top_waiter_that_keeps_its_gate_is_detected,
    ThroughputKeepsGate,
    "deadlock",
    scene(false, false),
    3,
    THREE
);
twin!(
    twin_gate_that_is_left_without_a_wake_is_detected,
    ThroughputGateWakesNobody,
    "deadlock",
    scene(false, false),
    3,
    THREE
);
twin!(
    twin_request_by_compare_and_swap_is_detected,
    ThroughputRequestByCas,
    "requested again",
    scene(true, false),
    3,
    few_requests(2, THREE_TIMES_AND_ONCE),
    model
);
twin!(
    twin_request_that_an_unlock_may_miss_is_detected,
    ThroughputRequestUnordered,
    "requested again",
    scene(true, false),
    3,
    few_requests(2, THREE_TIMES_AND_ONCE),
    model
);
