//! Reader/writer locks of region locks: what only this kind promises. (`robust_rwlock.rs` and `kill_rwlock.rs` try what both
//! kinds of robust ones do.)
#![cfg(not(loom))]

use core::mem::forget;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::in_region::NotATask;
use latchwork::mutex::{LockFailure, Mutex};
use latchwork::region::{self, DetachError, Region, RegionOptions};
use latchwork::rwlock::{
    Entry, Event, LockError, RegionRwLock, Released, RobustReadGuard, RobustRwLock,
    RobustWriteGuard,
};
use latchwork_testkit::{Child, Exit, Mapped, ThreadId, Trial};
use std::thread;

type Lock = RegionRwLock<u64, 2>;
type Failure<'a> = LockError<'a, u64, 2, latchwork::rwlock::Uncounted, latchwork::mutex::InRegion>;

/// A wait that must fail: long enough for a lock that is free to be taken.
const SHORT: Duration = Duration::from_millis(30);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("region_rwlock")
        .create_anonymous()
        .unwrap()
}

fn lock_in(region: &Region) -> &Lock {
    let lock = region.object("lock", || Lock::in_region(0));
    lock.unwrap().get_ref()
}

fn leave_dead_writer(lock: &Lock) {
    Child::fork(|| forget(lock.write().unwrap())).succeed();
}

fn holding(region: &Region) -> usize {
    match region.clone().detach() {
        Ok(()) => 0,
        Err(DetachError::Holding { locks, .. }) => locks,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn it_is_words_in_lines_that_are_zero_when_free() {
    assert_eq!(size_of::<RegionRwLock<()>>(), 64 * 17);
    assert_eq!(size_of::<RegionRwLock<(), 3>>(), 64 * 4);
    let region = region();
    let lock = lock_in(&region);
    let is_zero = || {
        // SAFETY: words of the gate and of the seats, which no task changes meanwhile.
        #[allow(unsafe_code)]
        let words = [0, 64, 128].map(|at| unsafe {
            let word = core::ptr::from_ref(lock).cast::<u8>().add(at);
            word.cast::<u64>().read_volatile()
        });
        words == [0; 3]
    };
    let readers = [lock.read().unwrap(), lock.try_read().unwrap()];
    assert!(!is_zero());
    assert_eq!(
        format!("{lock:?}"),
        "RobustRwLock { writer: None, readers: 2, .. }"
    );
    drop(readers);
    assert!(is_zero());
    let writer = lock.write().unwrap();
    assert!(format!("{lock:?}").starts_with("RobustRwLock { writer: Some(("));
    drop(writer);
    assert!(is_zero());
}

#[test]
fn a_lock_outside_a_region_is_refused() {
    static OUTSIDE: Lock = Lock::in_region(0);
    let refused =
        |error: Failure<'_>| assert!(matches!(error, LockError::Refused(NotATask::NoRegion)));
    // Also in a process that has a region.
    for _ in 0..2 {
        refused(OUTSIDE.read().unwrap_err());
        refused(OUTSIDE.try_read().unwrap_err());
        refused(OUTSIDE.write().unwrap_err());
        refused(OUTSIDE.try_write().unwrap_err());
        drop(lock_in(&region()).read().unwrap());
    }
    let failure = LockFailure::from(OUTSIDE.write().unwrap_err());
    assert_eq!(failure, LockFailure::Refused(NotATask::NoRegion));
    let error: Box<dyn core::error::Error> = OUTSIDE.read().unwrap_err().into();
    let text = "the lock lies in no region of this process";
    assert_eq!(error.to_string(), text);
}

/// The vector moves its locks as it grows. The kernel would hand on 2048 robust locks at most.
#[test]
fn locks_move_while_they_are_free_and_a_task_can_hold_any_number() {
    const LOCKS: usize = 5_000;
    let trial = Trial::begin("locks_move_while_they_are_free_and_a_task_can_hold_any_number");
    let region = region();
    let make = || Mutex::in_region(region::Vec::<Lock>::new_in(&region));
    let locks = region.object("locks", make).unwrap();
    let mut all = locks.lock().unwrap();
    for count in 0..LOCKS {
        all.edit().push(Lock::in_region(0)).unwrap();
        *all[count / 2].write().unwrap() += 1;
    }
    let all: &[Lock] = &all;
    Child::fork(|| {
        for (index, lock) in all.iter().enumerate() {
            if index % 2 == 0 {
                forget(lock.write().unwrap());
            } else {
                forget(lock.read().unwrap());
            }
        }
    })
    .succeed();
    trial.progress();
    for (index, lock) in all.iter().enumerate() {
        match lock.write() {
            Ok(_) => assert_eq!(index % 2, 1),
            Err(LockError::OwnerDied(died)) => {
                assert_eq!(index % 2, 0);
                drop(died.make_consistent());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn data_that_must_not_move_is_changed_in_its_place() {
    let region = region();
    let make = || RegionRwLock::<_>::in_region(region::Vec::<u64>::new_in(&region));
    let lock = region.object("numbers", make).unwrap();
    lock.write().unwrap().edit().push(7).unwrap();
    assert_eq!(lock.read().unwrap()[0], 7);
    Child::fork(|| {
        let mut held = lock.write().unwrap();
        held.edit().push(8).unwrap();
        forget(held);
    })
    .succeed();
    match lock.read() {
        Err(LockError::OwnerDied(mut died)) => {
            assert_eq!(died[1], 8);
            died.edit().push(9).unwrap();
            let held = RobustWriteGuard::downgrade(died.make_consistent());
            assert_eq!(held[2], 9);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_does_not_leave_the_region_inside() {
    let region = region();
    let lock = lock_in(&region);
    let readers = [lock.read().unwrap(), lock.read().unwrap()];
    assert_eq!(holding(&region), 2);
    drop(readers);
    assert_eq!(holding(&region), 0);
    let writer = lock.write().unwrap();
    assert_eq!(holding(&region), 1);
    let reader = RobustWriteGuard::downgrade(writer);
    assert_eq!(holding(&region), 1);
    drop(reader);
    assert_eq!(holding(&region), 0);
    // Refused calls, and such as gave up, leave nothing.
    let reader = lock.read().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(lock.try_write(), Err(LockError::WouldBlock)));
            assert!(matches!(lock.write_for(SHORT), Err(LockError::TimedOut)));
            assert_eq!(holding(&region), 0);
        });
    });
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    drop(reader);
    assert_eq!(holding(&region), 0);
}

/// The tasks of all regions have equal identities.
#[test]
fn locks_of_several_regions_do_not_meet() {
    let _trial = Trial::begin("locks_of_several_regions_do_not_meet");
    thread::scope(|scope| {
        scope.spawn(|| {
            let regions = [region(), region(), region()];
            let locks = regions.each_ref().map(lock_in);
            let held = |regions: &[Region; 3]| regions.each_ref().map(holding);
            let mut writers = locks.map(|lock| Some(lock.write().unwrap()));
            assert_eq!(held(&regions), [1, 1, 1]);
            // The thread leaves the first region; then another is its first.
            writers[0] = None;
            assert_eq!(held(&regions), [0, 1, 1]);
            **writers[2].as_mut().unwrap() += 1;
            writers[2] = None;
            let readers = [locks[0].read().unwrap(), locks[2].read().unwrap()];
            assert_eq!(held(&regions), [1, 1, 1]);
            assert_eq!(*readers[1], 1);
            drop((writers, readers));
            assert_eq!(held(&regions), [0, 0, 0]);
        });
    });
}

#[test]
fn leaked_guards_stay_their_processs() {
    let trial = Trial::begin("leaked_guards_stay_their_processs");
    let region = region();
    let [read, written] = ["read", "written"].map(|name| {
        let lock = region.object(name, || Lock::in_region(0));
        lock.unwrap().get_ref()
    });
    let ended = Mapped::new(AtomicU32::new(0));
    let mut child = Child::fork(|| {
        let leak = || {
            forget(read.read().unwrap());
            forget(written.write().unwrap());
        };
        thread::scope(|scope| scope.spawn(leak).join().unwrap());
        ended.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| ended.load(SeqCst) == 1 || child.try_wait().is_some());
    region.sweep().unwrap();
    assert!(matches!(read.write_for(SHORT), Err(LockError::TimedOut)));
    assert!(matches!(written.read_for(SHORT), Err(LockError::TimedOut)));
    assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
    drop(read.write().unwrap());
    assert!(matches!(written.read(), Err(LockError::OwnerDied(_))));
}

/// Sleeps of all lengths: the first one watches no task of the region, and later ones watch all.
#[test]
fn sleeping_waiters_see_a_death() {
    let trial = Trial::begin("sleeping_waiters_see_a_death");
    let region = region();
    let lock = lock_in(&region);
    for writes in [false, true] {
        let is_inside = Mapped::new(AtomicU32::new(0));
        let mut holder = Child::fork(|| {
            let _held = if writes {
                (None, Some(lock.write().unwrap()))
            } else {
                (Some(lock.read().unwrap()), None)
            };
            is_inside.store(1, SeqCst);
            loop {
                thread::park();
            }
        });
        trial.wait_until(|| is_inside.load(SeqCst) == 1);
        let waiters = [(); 3].map(|()| {
            Child::fork(|| match lock.write() {
                Ok(mut data) => *data += 1,
                Err(LockError::OwnerDied(died)) => *died.make_consistent() += 1,
                Err(error) => panic!("{error}"),
            })
        });
        trial.wait_until(|| waiters.iter().all(Child::is_in_futex));
        thread::sleep(Duration::from_millis(10));
        holder.kill();
        waiters.into_iter().for_each(Child::succeed);
    }
    assert_eq!(*lock.read().unwrap(), 6);
}

/// Counts how often it is dropped.
struct Counted(&'static AtomicU32);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// SAFETY: the value is an address.
#[allow(unsafe_code)]
unsafe impl latchwork_sync::Relocatable for Counted {}
// SAFETY: forks see the same address.
#[allow(unsafe_code)]
unsafe impl region::Shareable for Counted {
    const FINGERPRINT: u64 = 1;
}

#[test]
fn an_exclusive_reference_makes_a_lock_usable_again() {
    let _trial = Trial::begin("an_exclusive_reference_makes_a_lock_usable_again");
    let region = region();
    let mut lock = region::Box::new_in(Lock::in_region(1), &region).unwrap();
    leave_dead_writer(&lock);
    drop(lock.read().unwrap_err());
    for _ in 0..2 {
        assert!(matches!(lock.read(), Err(LockError::NotRecoverable)));
        assert!(matches!(lock.try_write(), Err(LockError::NotRecoverable)));
    }
    Pin::new(&mut *lock).reset(2);
    assert_eq!(*lock.read().unwrap(), 2);
    // Whoever forgets a guard is inside for ever; an exclusive reference proves that no task is.
    forget((lock.read().unwrap(), lock.read().unwrap()));
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    Pin::new(&mut *lock).reset(3);
    forget(lock.write().unwrap());
    Pin::new(&mut *lock).reset(4);
    // Also outside all regions, and in another one.
    leave_dead_writer(&lock);
    let mut moved = lock.into_inner();
    Pin::new(&mut moved).reset(5);
    let other = self::region();
    let moved = region::Box::new_in(moved, &other).unwrap();
    assert_eq!(*moved.write().unwrap(), 5);
}

#[test]
fn torn_data_is_not_dropped_with_its_lock_and_whole_data_is() {
    let _trial = Trial::begin("torn_data_is_not_dropped_with_its_lock_and_whole_data_is");
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let region = region();
    let make = || {
        let lock = RegionRwLock::<_, 2>::in_region(Counted(&DROPS));
        region::Box::new_in(lock, &region).unwrap()
    };
    let lock = make();
    drop((lock.read().unwrap(), lock.try_read()));
    drop(lock);
    assert_eq!(DROPS.load(SeqCst), 1);
    for repairs in [false, true] {
        let mut lock = make();
        Child::fork(|| forget(lock.write().unwrap())).succeed();
        if repairs {
            Pin::new(&mut *lock).reset(Counted(&DROPS));
        }
        drop(lock);
        assert_eq!(DROPS.load(SeqCst), 1 + u32::from(repairs));
    }
}

#[test]
fn calls_say_how_a_task_entered_and_what_an_unlock_did() {
    let trial = Trial::begin("calls_say_how_a_task_entered_and_what_an_unlock_did");
    let region = region();
    let lock = lock_in(&region);
    // The first call makes the thread a task of the region.
    for _ in 0..2 {
        let (held, how) = lock.read_traced().unwrap();
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
        assert_eq!(RobustReadGuard::unlock_traced(held), Released::NoSleeper);
        let (held, how) = lock.write_traced().unwrap();
        assert_eq!((how.entry, how.sleeps), (Entry::Free, 0));
        assert_eq!(RobustWriteGuard::unlock_traced(held), Released::NoSleeper);
    }
    let waits = |writes: bool| {
        let id = ThreadId::default();
        thread::scope(|scope| {
            let (reading, writing) = if writes {
                (Some(lock.read().unwrap()), None)
            } else {
                (None, Some(lock.write().unwrap()))
            };
            let waiter = scope.spawn(|| {
                id.set();
                if writes {
                    lock.write_traced().unwrap().1
                } else {
                    lock.read_traced().unwrap().1
                }
            });
            trial.wait_until(|| id.is_in_futex());
            let released = match (reading, writing) {
                (Some(held), _) => RobustReadGuard::unlock_traced(held),
                (_, Some(held)) => RobustWriteGuard::unlock_traced(held),
                _ => unreachable!("one of them is held"),
            };
            let how = waiter.join().unwrap();
            let handed_off = released == Released::HandedOff;
            // On a busy machine the waiter may have waited at the gate for 5 ms.
            assert!(!handed_off || !writes && how.entry == Entry::HandedOff);
            assert!(handed_off || how.entry == Entry::Woken, "{how:?}");
            assert!(how.sleeps >= 1, "{how:?}");
        });
    };
    waits(true);
    waits(false);
}

#[test]
fn a_waiter_of_another_process_gets_the_lock_handed_off() {
    let trial = Trial::begin("a_waiter_of_another_process_gets_the_lock_handed_off");
    let region = region();
    let lock = lock_in(&region);
    for writes in [false, true] {
        let shown = || {
            let held = lock.write().unwrap();
            let mut waiter = Child::fork(|| {
                let entry = if writes {
                    lock.write_traced().unwrap().1.entry
                } else {
                    lock.read_traced().unwrap().1.entry
                };
                std::process::exit(i32::from(entry != Entry::HandedOff));
            });
            trial.wait_until(|| waiter.is_in_futex());
            // More than the 5 ms after which a waiter is overdue; it may be late.
            thread::sleep(Duration::from_millis(20));
            let released = RobustWriteGuard::unlock_traced(held);
            let got_it_so = waiter.wait() == Exit::Code(0);
            released == Released::HandedOff && got_it_so
        };
        while !shown() {}
    }
}

#[test]
fn a_lock_with_counters_counts_what_its_slow_paths_do() {
    let trial = Trial::begin("a_lock_with_counters_counts_what_its_slow_paths_do");
    let region = region();
    let make = || RobustRwLock::<u64, 2, _, _>::in_region_counted(0);
    let lock = region.object("counted", make).unwrap();
    assert_eq!(size_of_val(&*lock), 64 * 5);
    let counted = |event| lock.counters().of(event);
    thread::scope(|scope| {
        scope.spawn(|| {
            region.join("alone").unwrap();
            drop((lock.read().unwrap(), lock.try_read().unwrap()));
            *lock.write().unwrap() += 1;
        });
    });
    let slow_paths = counted(Event::ReadSlowPath) + counted(Event::WriteSlowPath);
    assert_eq!((slow_paths, counted(Event::UnlockSlowPath)), (0, 0));
    let id = ThreadId::default();
    thread::scope(|scope| {
        let held = lock.read().unwrap();
        scope.spawn(|| {
            id.set();
            *lock.write().unwrap() += 1;
        });
        trial.wait_until(|| id.is_in_futex());
        drop(held);
    });
    let events = [Event::WriteSlowPath, Event::Woken].map(counted);
    assert!(events == [1, 1] && counted(Event::Sleep) >= 1);
    assert_eq!(*lock.read().unwrap(), 2);
}
