//! What calls of a reader/writer lock say of themselves, in both forms: how a task entered, and what an unlock did for the
//! waiters; and what is counted.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::{forget, size_of};
use core::pin::{Pin, pin};
use core::time::Duration;
use latchwork::region::Shareable;
use latchwork::rwlock::{
    Acquisition, Counters, Entry, Event, LockError, Preference, Released, RobustReadGuard,
    RobustRwLock, RobustWriteGuard, RwLock, Uncounted, WritersFirst,
};
use latchwork::rwlock::{ReadGuard, WriteGuard};
use latchwork::sharing::{Private, Shared};
use latchwork_testkit::{Child, Exit, Mapped, ThreadId, Trial, Watchdog, in_dying_thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// A waiter starves as soon as it sleeps.
struct AtOnce;
impl Preference for AtOnce {
    const READERS_FIRST: bool = false;
    const STARVES_AFTER: Duration = Duration::ZERO;
}

/// No waiter of a test starves.
struct Patient;
impl Preference for Patient {
    const READERS_FIRST: bool = true;
    const STARVES_AFTER: Duration = Duration::from_secs(3600);
}

type Counted<P> = RwLock<u64, Private, P, Counters<Event>>;
type RobustCounted = RobustRwLock<u64, 4, Counters<Event>>;

/// What one section says: how the task entered, and what its release did.
type Account = (Acquisition, Released);

/// A lock of either form.
trait Traced: Sync {
    fn count(&self, event: Event) -> u64;
    fn reads(self: Pin<&Self>, inside: impl FnOnce()) -> Account;
    fn writes(self: Pin<&Self>, inside: impl FnOnce()) -> Account;
    /// How many sleeps show that a waiter that is asleep now starves, if this lock's waiters do.
    const SLEEPS: u64;
}

impl<P: Preference> Traced for Counted<P> {
    fn count(&self, event: Event) -> u64 {
        self.counters().of(event)
    }

    fn reads(self: Pin<&Self>, inside: impl FnOnce()) -> Account {
        let (guard, how) = self.get_ref().read_traced();
        inside();
        (how, ReadGuard::unlock_traced(guard))
    }

    fn writes(self: Pin<&Self>, inside: impl FnOnce()) -> Account {
        let (mut guard, how) = self.get_ref().write_traced();
        *guard += 1;
        inside();
        (how, WriteGuard::unlock_traced(guard))
    }

    const SLEEPS: u64 = if P::STARVES_AFTER.is_zero() { 2 } else { 1 };
}

impl Traced for RobustCounted {
    fn count(&self, event: Event) -> u64 {
        self.counters().of(event)
    }

    fn reads(self: Pin<&Self>, inside: impl FnOnce()) -> Account {
        let (guard, how) = self.read_traced().unwrap();
        inside();
        (how, RobustReadGuard::unlock_traced(guard))
    }

    fn writes(self: Pin<&Self>, inside: impl FnOnce()) -> Account {
        let (mut guard, how) = self.write_traced().unwrap();
        *guard += 1;
        inside();
        (how, RobustWriteGuard::unlock_traced(guard))
    }

    const SLEEPS: u64 = 0;
}

fn robust_counted(threshold: Option<Duration>) -> RobustCounted {
    RobustCounted::counted(0).hand_off_after(threshold)
}

const ALL: [Event; 8] = [
    Event::ReadSlowPath,
    Event::WriteSlowPath,
    Event::UnlockSlowPath,
    Event::Polled,
    Event::Woken,
    Event::HandedOff,
    Event::Sleep,
    Event::GivenUp,
];

fn a_free_lock(lock: Pin<&impl Traced>) {
    for section in 0..4 {
        let (how, released) = if section % 2 == 0 {
            lock.reads(|| ())
        } else {
            lock.writes(|| ())
        };
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
        assert_eq!(released, Released::NoSleeper);
    }
    // Readers do not keep each other out.
    lock.reads(|| {
        thread::scope(|scope| {
            let other = scope.spawn(|| lock.reads(|| ()));
            assert_eq!(other.join().unwrap().0.sleeps, 0);
        });
    });
}

#[test]
fn a_free_lock_is_acquired_and_released_without_waiters() {
    let plain = pin!(Counted::<Patient>::counted(0));
    a_free_lock(plain.as_ref());
    for event in ALL {
        assert_eq!(plain.count(event), 0, "{event:?}");
    }
    a_free_lock(pin!(robust_counted(None)).as_ref());
}

/// Whether the waiter is a writer; the holder is one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waiter {
    Reader,
    Writer,
}
use Waiter::{Reader, Writer};

/// How a task that sleeps is treated: by a writer's unlock, and by its own account.
fn with_a_sleeper(lock: Pin<&impl Traced>, waiter: Waiter) -> (Released, Acquisition) {
    fn sleeps_of<L: Traced>(_: Pin<&L>) -> u64 {
        L::SLEEPS
    }
    let sleeper = ThreadId::default();
    let counted = |event| lock.count(event);
    let before = counted(Event::Sleep);
    thread::scope(|scope| {
        let mut waiting = None;
        let (_, released) = lock.writes(|| {
            waiting = Some(scope.spawn(|| {
                sleeper.set();
                match waiter {
                    Reader => lock.reads(|| ()).0,
                    Writer => lock.writes(|| ()).0,
                }
            }));
            while counted(Event::Sleep) < before + sleeps_of(lock) || !sleeper.is_in_futex() {
                thread::yield_now();
            }
        });
        (released, waiting.unwrap().join().unwrap())
    })
}

/// Repeats an attempt until it ends as expected. In the others the waiter saw the free lock before the kernel put it to
/// sleep, or was served while awake.
fn shows(expected: (Released, Entry), attempt: impl Fn() -> (Released, Acquisition)) {
    let shown = || {
        let (released, how) = attempt();
        assert_ne!(how.entry, Entry::Free);
        assert_eq!(
            how.entry == Entry::Woken,
            how.sleeps > 0 && how.entry != Entry::HandedOff
        );
        (released, how.entry) == expected
    };
    while !shown() {}
}

#[test]
fn a_wake_up_shows_in_the_unlock_and_in_the_waiter() {
    let _watchdog = Watchdog::start("woken".into());
    for waiter in [Reader, Writer] {
        let lock = pin!(Counted::<Patient>::counted(0));
        let lock = lock.as_ref();
        let expected = (Released::Woke, Entry::Woken);
        shows(expected, || with_a_sleeper(lock, waiter));
        let slow = lock.count(Event::ReadSlowPath) + lock.count(Event::WriteSlowPath);
        let ended = lock.count(Event::Polled) + lock.count(Event::Woken);
        assert_eq!((slow, lock.count(Event::HandedOff)), (ended, 0));
        assert!(lock.count(Event::UnlockSlowPath) > 0);
        assert_eq!(lock.count(Event::ReadSlowPath) > 0, waiter == Reader);

        let lock = pin!(robust_counted(None));
        shows(expected, || with_a_sleeper(lock.as_ref(), waiter));
        assert!(lock.count(Event::Woken) > 0 && lock.count(Event::Sleep) > 0);
        assert!(lock.count(Event::UnlockSlowPath) > 0);
    }
}

#[test]
fn a_hand_over_shows_in_the_unlock_and_in_the_waiter() {
    let _watchdog = Watchdog::start("handed over".into());
    for waiter in [Reader, Writer] {
        let lock = pin!(Counted::<AtOnce>::counted(0));
        let expected = (Released::HandedOff, Entry::HandedOff);
        shows(expected, || with_a_sleeper(lock.as_ref(), waiter));
        assert!(lock.count(Event::HandedOff) > 0);

        let lock = pin!(robust_counted(Some(Duration::ZERO)));
        shows(expected, || with_a_sleeper(lock.as_ref(), waiter));
        assert!(lock.count(Event::HandedOff) > 0);
    }
}

/// A writer waits for a reader, whose unlock wakes it: also in the robust form, where it waits for the reader's seat.
fn a_writer_waits_for_a_reader(lock: Pin<&impl Traced>) {
    let expected = (Released::Woke, Entry::Woken);
    shows(expected, || {
        let sleeper = ThreadId::default();
        thread::scope(|scope| {
            let mut writer = None;
            let (_, released) = lock.reads(|| {
                writer = Some(scope.spawn(|| {
                    sleeper.set();
                    lock.writes(|| ()).0
                }));
                sleeper.wait_until_in_futex();
            });
            (released, writer.unwrap().join().unwrap())
        })
    });
    assert!(lock.count(Event::WriteSlowPath) > 0 && lock.count(Event::UnlockSlowPath) > 0);
}

#[test]
fn the_last_reader_says_that_it_woke_a_writer() {
    let _watchdog = Watchdog::start("last reader".into());
    a_writer_waits_for_a_reader(pin!(Counted::<Patient>::counted(0)).as_ref());
    a_writer_waits_for_a_reader(pin!(robust_counted(None)).as_ref());
}

#[test]
fn a_call_that_gives_up_is_counted() {
    let soon = Duration::from_millis(1);
    let lock = Counted::<Patient>::counted(0);
    let held = lock.write();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.read_for(soon).is_none() && lock.write_for(soon).is_none());
            // A call that does not wait is no slow path.
            assert!(lock.try_read().is_none() && lock.try_write().is_none());
        });
    });
    drop(held);
    let robust = pin!(robust_counted(None));
    let robust = robust.as_ref();
    let held = robust.write().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(robust.read_for(soon), Err(LockError::TimedOut)));
            assert!(matches!(robust.write_for(soon), Err(LockError::TimedOut)));
            assert!(matches!(robust.try_read(), Err(LockError::WouldBlock)));
            assert!(matches!(robust.try_write(), Err(LockError::WouldBlock)));
        });
    });
    drop(held);
    for of in [lock.counters(), robust.get_ref().counters()] {
        assert_eq!(of.of(Event::ReadSlowPath), 1);
        assert_eq!(of.of(Event::WriteSlowPath), 1);
        assert_eq!(of.of(Event::GivenUp), 2);
        assert!(of.of(Event::Sleep) >= 1);
    }
}

#[test]
fn a_downgrade_counts_as_no_release() {
    let lock = RwLock::new(0);
    let (held, _) = lock.write_traced();
    let held = WriteGuard::downgrade(held);
    assert!(lock.try_read().is_some());
    assert_eq!(ReadGuard::unlock_traced(held), Released::NoSleeper);
    let robust = pin!(RobustRwLock::<u64, 2>::new(0));
    let (held, _) = robust.as_ref().write_traced().unwrap();
    let held = RobustWriteGuard::downgrade(held);
    assert_eq!(RobustReadGuard::unlock_traced(held), Released::NoSleeper);
    assert!(robust.as_ref().try_write().is_ok());
}

#[test]
fn a_dead_writer_is_reported_by_traced_calls_too() {
    let trial = Trial::begin("dead writer, traced");
    let lock = pin!(robust_counted(None));
    let lock = lock.as_ref();
    in_dying_thread(|| forget(lock.write()));
    match lock.read_traced() {
        Err(LockError::OwnerDied(died)) => {
            let guard = died.make_consistent();
            assert_eq!(RobustWriteGuard::unlock_traced(guard), Released::NoSleeper);
        }
        other => panic!("{:?}", other.map(|(_, how)| how)),
    }
    // A reader's death is no report.
    in_dying_thread(|| forget(lock.read()));
    assert_eq!(lock.writes(|| ()).0.sleeps, 0);
    trial.progress();
}

#[test]
fn an_unlock_during_a_panic_leaves_the_data_torn() {
    struct Releases<'a>(Option<RobustWriteGuard<'a, u64, 4, Counters<Event>>>);
    impl Drop for Releases<'_> {
        fn drop(&mut self) {
            let released = self.0.take().map(RobustWriteGuard::unlock_traced);
            assert_eq!(released, Some(Released::NoSleeper));
        }
    }
    let lock = pin!(robust_counted(None));
    let lock = lock.as_ref();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _releases = Releases(lock.write().ok());
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(caught.is_err());
    assert!(matches!(lock.write_traced(), Err(LockError::OwnerDied(_))));
}

#[test]
fn a_robust_lock_is_handed_over_between_processes() {
    let trial = Trial::begin("handed over between processes");
    let shown = || {
        let lock = Mapped::new(robust_counted(Some(Duration::ZERO)));
        // SAFETY: not moved while it is mapped.
        let lock = unsafe { Pin::new_unchecked(&*lock) };
        let (guard, _) = lock.write_traced().unwrap();
        let waiter = Child::fork(|| {
            lock.writes(|| ());
        });
        trial.wait_until(|| waiter.is_in_futex());
        let released = RobustWriteGuard::unlock_traced(guard);
        waiter.succeed();
        assert_eq!(lock.count(Event::WriteSlowPath), 1);
        released == Released::HandedOff && lock.count(Event::HandedOff) == 1
    };
    while !shown() {}
}

#[test]
fn the_guards_of_a_parent_are_not_unlocked_by_its_child() {
    let _trial = Trial::begin("the guards of a parent");
    let lock = pin!(RobustRwLock::<u64, 2>::new(0));
    let mut held = lock.as_ref().write().ok();
    let mut child = Child::fork(|| {
        held.take().map(RobustWriteGuard::unlock_traced);
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    drop(held);
    let mut held = lock.as_ref().read().ok();
    let mut child = Child::fork(|| {
        held.take().map(RobustReadGuard::unlock_traced);
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
}

#[test]
fn counters_take_memory_only_where_they_are() {
    const fn size_in_a_region<T: Shareable>() -> usize {
        size_of::<T>()
    }
    type Of<C> = RwLock<(), Shared, WritersFirst, C>;
    assert_eq!(size_in_a_region::<Of<Uncounted>>(), 8);
    assert_eq!(size_in_a_region::<Of<Counters<Event>>>(), 72);
    assert_eq!(size_in_a_region::<RobustRwLock<(), 3>>(), 256);
    assert_eq!(
        size_in_a_region::<RobustRwLock<(), 3, Counters<Event>>>(),
        320
    );
}
