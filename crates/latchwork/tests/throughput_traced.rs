//! What calls of a throughput mutex say of themselves, in both forms: how a lock was taken, and what an unlock did for
//! the waiters. (`throughput.rs` and `throughput_hand_off.rs` have the rest of what only this lock does.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::{forget, size_of};
use core::pin::{Pin, pin};
use core::time::Duration;
use latchwork::mutex::throughput::{Acquisition, Counters, Entry, Event, Released};
use latchwork::mutex::{LockError, Mutex, MutexGuard, Robust, RobustGuard, Throughput};
use latchwork::region::Shareable;
use latchwork::sharing::Shared;
use latchwork_testkit::{Child, Exit, Mapped, ThreadId, Trial, Watchdog, in_dying_thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

mod throughput_support;
use throughput_support::{AT_ONCE, Counted, count, counted, wait_until};

type RobustCounted = Mutex<u64, Robust<Throughput<Shared, Counters>>>;

fn robust_counted(threshold: Option<Duration>) -> RobustCounted {
    Mutex::from_raw(Robust::counted().hand_off_after(threshold), 0)
}

/// A lock of either form.
trait Traced: Sync {
    fn count(&self, event: Event) -> u64;
    /// How the lock is taken, and how it is released after `inside`.
    fn section(self: Pin<&Self>, inside: impl FnOnce()) -> (Acquisition, Released);
}

impl Traced for Counted {
    fn count(&self, event: Event) -> u64 {
        count(self, event)
    }

    fn section(self: Pin<&Self>, inside: impl FnOnce()) -> (Acquisition, Released) {
        let (mut guard, how) = self.get_ref().lock_traced();
        *guard += 1;
        inside();
        (how, MutexGuard::unlock_traced(guard))
    }
}

impl Traced for RobustCounted {
    fn count(&self, event: Event) -> u64 {
        self.protocol().counters().of(event)
    }

    fn section(self: Pin<&Self>, inside: impl FnOnce()) -> (Acquisition, Released) {
        let (mut guard, how) = self.lock_traced().unwrap();
        *guard += 1;
        inside();
        (how, RobustGuard::unlock_traced(guard))
    }
}

fn a_free_lock(lock: Pin<&impl Traced>) {
    // A thread's first call takes the slow path: it has no record yet.
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.section(|| ()));
        let (how, released) = first.join().unwrap();
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
        assert_eq!(released, Released::NoSleeper);
    });
    let (how, released) = lock.section(|| ());
    assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
    assert_eq!(released, Released::NoSleeper);
    for event in [Event::LockSlowPath, Event::UnlockSlowPath, Event::Stolen] {
        assert_eq!(lock.count(event), 0, "{event:?}");
    }
}

#[test]
fn a_free_lock_is_taken_and_released_without_waiters() {
    a_free_lock(pin!(counted(AT_ONCE)).as_ref());
    a_free_lock(pin!(robust_counted(AT_ONCE)).as_ref());
}

/// How a task that sleeps on the word is treated: by the unlock, and by its own account.
fn with_a_sleeper(lock: Pin<&impl Traced>) -> (Released, Entry) {
    let sleeper = ThreadId::default();
    thread::scope(|scope| {
        let mut waiter = None;
        let (_, released) = lock.section(|| {
            waiter = Some(scope.spawn(|| {
                sleeper.set();
                lock.section(|| ()).0
            }));
            wait_until(|| lock.count(Event::TopSleep) > 0 && sleeper.is_in_futex());
        });
        let how = waiter.unwrap().join().unwrap();
        assert!(how.sleeps > 0);
        assert_eq!(lock.count(Event::LockSlowPath), 1);
        assert!(lock.count(Event::UnlockSlowPath) > 0);
        (released, how.entry)
    })
}

/// Repeats an attempt until it ends as expected. In the others an overdue waiter was seen before it had made its
/// request, or a waiter's nap ended in the middle of the unlock.
fn shows(expected: (Released, Entry), mut attempt: impl FnMut() -> (Released, Entry)) {
    let mut shown = || {
        let seen = attempt();
        // What was handed off is taken as such. A waiter may also reserve what was freed.
        let (released, entry) = seen;
        assert!(released != Released::NoSleeper, "{seen:?}");
        assert!(
            entry == Entry::HandedOff || entry == Entry::TopWaiter && released == Released::Woke,
            "{seen:?}"
        );
        seen == expected
    };
    while !shown() {}
}

#[test]
fn a_hand_off_shows_in_the_unlock_and_in_the_lock() {
    let _watchdog = Watchdog::start("hand-off".into());
    let both = (Released::HandedOff, Entry::HandedOff);
    shows(both, || with_a_sleeper(pin!(counted(AT_ONCE)).as_ref()));
    shows(both, || {
        let lock = pin!(robust_counted(AT_ONCE));
        let seen = with_a_sleeper(lock.as_ref());
        let handed_off = u64::from(seen.1 == Entry::HandedOff);
        assert_eq!(lock.count(Event::HandedOff), handed_off);
        seen
    });
}

#[test]
fn a_wake_up_shows_in_the_unlock_and_in_the_lock() {
    let _watchdog = Watchdog::start("wake-up".into());
    let both = (Released::Woke, Entry::TopWaiter);
    shows(both, || with_a_sleeper(pin!(counted(None)).as_ref()));
    let lock = pin!(robust_counted(None));
    assert_eq!(with_a_sleeper(lock.as_ref()), both);
    assert_eq!(lock.count(Event::TopWaiter), 1);
}

#[test]
fn a_robust_lock_is_handed_off_between_processes() {
    let trial = Trial::begin("handed off between processes");
    shows((Released::HandedOff, Entry::HandedOff), || {
        let lock = Mapped::new(robust_counted(AT_ONCE));
        // SAFETY: not moved while it is mapped.
        let lock = unsafe { Pin::new_unchecked(&*lock) };
        let (guard, _) = lock.lock_traced().unwrap();
        let waiter = Child::fork(|| {
            lock.section(|| ());
        });
        trial.wait_until(|| lock.count(Event::TopSleep) > 0 && waiter.is_in_futex());
        let released = RobustGuard::unlock_traced(guard);
        waiter.succeed();
        if lock.count(Event::HandedOff) == 1 {
            (released, Entry::HandedOff)
        } else {
            assert_eq!(lock.count(Event::TopWaiter), 1);
            (released, Entry::TopWaiter)
        }
    });
}

#[test]
fn the_lock_of_a_dead_owner_is_reported_by_a_traced_call_too() {
    let trial = Trial::begin("dead owner, traced");
    let lock = pin!(robust_counted(AT_ONCE));
    let lock = lock.as_ref();
    in_dying_thread(|| forget(lock.lock()));
    match lock.lock_traced() {
        Err(LockError::OwnerDied(died)) => {
            // The word still says that the owner died: the unlock takes the slow path, for no sleeper.
            let guard = died.make_consistent();
            assert_eq!(RobustGuard::unlock_traced(guard), Released::NoSleeper);
        }
        other => panic!("{:?}", other.map(|(_, how)| how)),
    }
    assert_eq!(lock.section(|| ()).0.entry, Entry::Free);
    trial.progress();
}

/// Releases the lock in its destructor.
struct Releases<'a>(Option<RobustGuard<'a, u64, Throughput<Shared, Counters>>>);

impl Drop for Releases<'_> {
    fn drop(&mut self) {
        let released = self.0.take().map(RobustGuard::unlock_traced);
        assert_eq!(released, Some(Released::NoSleeper));
    }
}

#[test]
fn an_unlock_during_a_panic_leaves_the_data_inconsistent() {
    let lock = pin!(robust_counted(AT_ONCE));
    let lock = lock.as_ref();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _releases = Releases(lock.lock().ok());
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(caught.is_err());
    match lock.lock_traced() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{:?}", other.map(|(_, how)| how)),
    }
}

#[test]
fn a_locked_mutex_is_not_locked_again() {
    let lock = pin!(robust_counted(AT_ONCE));
    let lock = lock.as_ref();
    let _guard = lock.lock();
    assert!(matches!(lock.lock_traced(), Err(LockError::Deadlock)));
    assert_eq!(lock.count(Event::LockSlowPath), 0);
}

#[test]
fn the_guard_of_a_parent_is_not_unlocked_by_its_child() {
    let _trial = Trial::begin("the guard of a parent");
    let plain = Mapped::new(Mutex::from_raw(Throughput::<Shared>::new(), 0));
    let robust = pin!(robust_counted(AT_ONCE));
    let (mut held, mut robust_held) = (Some(plain.lock()), robust.as_ref().lock().ok());
    let mut plain_child = Child::fork(|| {
        held.take().map(MutexGuard::unlock_traced);
    });
    assert_eq!(plain_child.wait(), Exit::Signal(libc::SIGABRT));
    let mut robust_child = Child::fork(|| {
        robust_held.take().map(RobustGuard::unlock_traced);
    });
    assert_eq!(robust_child.wait(), Exit::Signal(libc::SIGABRT));
    assert_eq!(
        held.take().map(MutexGuard::unlock_traced),
        Some(Released::NoSleeper)
    );
}

#[test]
fn counters_take_memory_only_where_they_are() {
    const fn size_in_a_region<T: Shareable>() -> usize {
        size_of::<T>()
    }
    assert_eq!(size_in_a_region::<Robust<Throughput<Shared>>>(), 40);
    assert_eq!(
        size_in_a_region::<Robust<Throughput<Shared, Counters>>>(),
        104
    );
    assert_eq!(size_in_a_region::<Throughput<Shared>>(), 16);
}
