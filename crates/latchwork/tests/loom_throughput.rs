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

use core::mem::forget;
use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::model::{HandsOff, SOON, Scene, WakeOrder, as_task, requests, take_requests};
use latchwork::mutex::throughput::Entry;
use latchwork::mutex::{Mutex, RawLock, Throughput};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// When a top waiter is overdue.
const HANDS_OFF: [HandsOff; 3] = [HandsOff::Never, HandsOff::AtOnce, HandsOff::AfterSleep];

const OVERTAKEN: &str = "a newcomer entered after the request";

struct Shared {
    lock: Mutex<(), Throughput>,
    /// Whether the task that waits has the lock, or had it. (No step of the model.)
    waiter_is_in: AtomicBool,
    data: UnsafeCell<u32>,
}

// SAFETY: the data is used only under the lock; the model checks just that.
unsafe impl Sync for Shared {}
// SAFETY: the data is used only under the lock, by one task at a time.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: Mutex::from_raw(Throughput::new(), ()),
            waiter_is_in: AtomicBool::new(false),
            data: UnsafeCell::new(0),
        })
    }

    fn raw(&self) -> &Throughput {
        self.lock.protocol()
    }

    fn add_and_unlock(&self) {
        // SAFETY: the caller holds the lock; loom reports it if two tasks do.
        self.data.with_mut(|data| unsafe { *data += 1 });
        // SAFETY: the caller holds the lock.
        unsafe { self.raw().unlock() };
    }

    fn add(&self) -> u32 {
        self.raw().lock();
        self.add_and_unlock();
        1
    }

    fn wait_and_add(&self) -> u32 {
        self.raw().lock();
        self.waiter_is_in.store(true, Ordering::Relaxed);
        self.add_and_unlock();
        1
    }

    /// Each of these newcomers is kept out if it comes between the request of [`Self::wait_and_add`] and that task's
    /// entry.
    fn add_as_newcomer(&self, attempts: u32, takes: impl Fn() -> Option<Entry>) -> u32 {
        let attempts = (0..attempts).filter(|_| {
            let is_requested = requests() > 0;
            let entry = takes();
            let overtakes = is_requested
                && !self.waiter_is_in.load(Ordering::Relaxed)
                && matches!(entry, Some(Entry::Free | Entry::Stolen));
            assert!(!overtakes, "{OVERTAKEN}");
            if entry.is_some() {
                self.add_and_unlock();
            }
            entry.is_some()
        });
        attempts.count() as u32
    }

    fn try_to_add_three_times(&self) -> u32 {
        self.add_as_newcomer(3, || self.raw().try_lock().then_some(Entry::Free))
    }

    fn add_twice_as_newcomer(&self) -> u32 {
        self.add_as_newcomer(2, || {
            let (guard, how) = self.lock.lock_traced();
            forget(guard);
            Some(how.entry)
        })
    }

    /// Gives up at a deadline.
    fn add_before_deadline(&self) -> u32 {
        let taken = self.raw().lock_until(SOON);
        if taken {
            self.add_and_unlock();
        }
        u32::from(taken)
    }

    fn sum(&self) -> u32 {
        // All other tasks have ended: the lock is free, though it may be reserved.
        assert!(
            self.raw().try_lock(),
            "no task holds the lock, and it is not free"
        );
        // SAFETY: the lock is held.
        let sum = self.data.with(|data| unsafe { *data });
        // SAFETY: this task has taken the lock above.
        unsafe { self.raw().unlock() };
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
        assert!(made <= most, "too many requests: {made}");
    }
}

const TWO: [Body; 2] = [Shared::add; 2];
const THREE: [Body; 3] = [Shared::add; 3];

fn scene(hands_off: HandsOff, naps_end: bool) -> Scene {
    Scene {
        hands_off,
        naps_end,
        ..Scene::default()
    }
}

#[test]
fn two_tasks_exclude_each_other_and_both_enter() {
    for hands_off in HANDS_OFF {
        scene(hands_off, false).explore(None, all_tasks_enter(TWO));
    }
}

#[test]
fn two_tasks_survive_spurious_wakeups() {
    for hands_off in HANDS_OFF {
        Scene {
            spurious: 1,
            ..scene(hands_off, false)
        }
        .explore(Some(3), all_tasks_enter(TWO));
    }
}

#[test]
fn three_tasks_exclude_each_other_and_all_enter() {
    for hands_off in HANDS_OFF {
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
    for hands_off in HANDS_OFF {
        scene(hands_off, true).explore(Some(2), all_tasks_enter(THREE));
    }
}

#[test]
fn a_top_waiter_that_gives_up_takes_nothing_with_it() {
    for hands_off in HANDS_OFF {
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

/// A newcomer that comes after the request does not get in before the waiter, which is the only top waiter. A task that
/// requests after a sleep has set the bit before it: an unlock may be under way that has read no request.
#[test]
fn a_request_keeps_newcomers_out() {
    for (hands_off, naps_end) in REQUESTS {
        let scene = scene(hands_off, naps_end);
        scene.explore(Some(4), newcomers_are_kept_out(TRIES));
        scene.explore(Some(3), newcomers_are_kept_out(LOCKS));
    }
}

const REQUESTS: [(HandsOff, bool); 3] = [
    (HandsOff::AtOnce, false),
    (HandsOff::AfterSleep, false),
    (HandsOff::AfterSleep, true),
];
const TRIES: Body = Shared::try_to_add_three_times;
const LOCKS: Body = Shared::add_twice_as_newcomer;

fn newcomers_are_kept_out(newcomer: Body) -> impl Fn() + Send + Sync + 'static {
    few_requests(u32::MAX, [newcomer, Shared::wait_and_add])
}

/// A sleep that the kernel refuses since the word has changed.
fn refused() -> Scene {
    Scene {
        refused: 1,
        ..scene(HandsOff::AfterSleep, false)
    }
}

/// The waiter sleeps, and gets in when it is woken.
#[test]
fn a_refused_sleep_makes_no_task_overdue() {
    refused().explore(Some(3), few_requests(0, TWO));
}

/// The number of the model's real-time task.
const REAL_TIME: usize = 3;

/// One real-time task, and `others`. Only the real-time task is ever overdue: it has set its request before each of its
/// sleeps, and sleeps nowhere but on the word.
fn a_real_time_task_is_overdue_at_once(others: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        take_requests();
        let mutex = Arc::new(Mutex::<(), Throughput>::from_raw(Throughput::new(), ()));
        let waiter = {
            let mutex = Arc::clone(&mutex);
            thread::spawn(move || {
                let mut sleeps = 0;
                as_task(REAL_TIME, None, || sleeps = mutex.lock_traced().1.sleeps);
                sleeps
            })
        };
        let others: Vec<_> = (1..others)
            .map(|number| {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || {
                    as_task(number, None, || drop(mutex.lock()));
                })
            })
            .collect();
        drop(mutex.lock());
        let sleeps = waiter.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        let requests = take_requests();
        assert!(
            sleeps <= requests,
            "{sleeps} sleeps and {requests} requests"
        );
    }
}

#[test]
fn a_real_time_task_is_overdue_at_once_whether_the_gate_is_free_or_held() {
    let scene = scene(HandsOff::Never, false);
    scene.explore(Some(3), a_real_time_task_is_overdue_at_once(1));
    scene.explore(Some(2), a_real_time_task_is_overdue_at_once(2));
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
    scene(HandsOff::Never, false),
    3,
    TWO
);
twin!(
    twin_unlock_without_release_is_detected,
    ThroughputUnlockRelaxed,
    "Causality violation",
    scene(HandsOff::Never, false),
    3,
    TWO
);
twin!(
    twin_unlock_without_a_wake_up_is_detected,
    ThroughputUnlockWakesNobody,
    "deadlock",
    scene(HandsOff::Never, false),
    3,
    TWO
);
twin!(
    twin_hand_off_without_a_wake_up_is_detected,
    ThroughputHandOffWakesNobody,
    "deadlock",
    scene(HandsOff::AtOnce, false),
    3,
    TWO
);
twin!(
    twin_taker_that_forgets_the_sleepers_is_detected,
    ThroughputTakerForgetsSleepers,
    "deadlock",
    scene(HandsOff::AtOnce, true),
    3,
    THREE
);
twin!(
    twin_top_waiter_that_keeps_its_gate_is_detected,
    ThroughputKeepsGate,
    "deadlock",
    scene(HandsOff::Never, false),
    3,
    THREE
);
twin!(
    twin_gate_that_is_left_without_a_wake_is_detected,
    ThroughputGateWakesNobody,
    "deadlock",
    scene(HandsOff::Never, false),
    3,
    THREE
);
twin!(
    twin_request_by_compare_and_swap_is_detected,
    ThroughputRequestByCas,
    OVERTAKEN,
    scene(HandsOff::AtOnce, false),
    4,
    newcomers_are_kept_out(TRIES),
    model
);
twin!(
    twin_request_that_an_unlock_may_miss_is_detected,
    ThroughputRequestUnordered,
    OVERTAKEN,
    scene(HandsOff::AtOnce, false),
    4,
    newcomers_are_kept_out(TRIES),
    model
);
twin!(
    twin_request_that_is_read_once_is_detected,
    ThroughputRequestReadOnce,
    OVERTAKEN,
    scene(HandsOff::AfterSleep, true),
    4,
    newcomers_are_kept_out(TRIES),
    model
);
twin!(
    twin_refused_sleep_that_counts_is_detected,
    ThroughputRefusedSleepCounts,
    "too many requests",
    refused(),
    3,
    few_requests(0, TWO),
    model
);
twin!(
    twin_real_time_task_in_the_gate_is_detected,
    ThroughputRealTimeEntersGate,
    "1 sleeps and 0 requests",
    scene(HandsOff::Never, false),
    3,
    a_real_time_task_is_overdue_at_once(1),
    model
);
