//! What only a robust reader/writer lock does: it finds the dead, says so, and refuses what would wait
//! for itself. (`rwlock.rs` asks what every such lock must do, `region_rwlock.rs` what only that of region locks does, `kill_rwlock.rs` kills at random and at
//! every instruction.) The tests in `both!` try both kinds: that of the kernel's list, and that of region locks.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::mutex::{InRegion, Robust};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{
    LockError, RegionRwLock, RobustRwLock, RobustWriteGuard, SeatLock, Uncounted,
};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use latchwork_testkit::{Mapped, ThreadId, in_dying_thread};

type Lock<K = Robust> = RobustRwLock<u32, 2, Uncounted, K>;

/// The kinds of robust mutexes that a lock is made of.
trait Kind: SeatLock + Sync {
    /// A lock of two seats that forks share, and that lasts as long as the process.
    fn lock() -> Pin<&'static Lock<Self>>;
}

impl Kind for Robust {
    fn lock() -> Pin<&'static Lock> {
        Box::leak(Box::new(lock())).pin()
    }
}

impl Kind for InRegion {
    fn lock() -> Pin<&'static Lock<Self>> {
        let region: &'static Region = Box::leak(Box::new(region()));
        let lock = region.object("lock", || RegionRwLock::in_region(0));
        lock.unwrap()
    }
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("robust_rwlock")
        .create_anonymous()
        .unwrap()
}

fn lock() -> Mapped<Lock> {
    Mapped::new(Lock::new(0))
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(2))
}

fn in_a_thread(body: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(body).join().unwrap());
}

fn leave_dead_writer<K: Kind>(lock: Pin<&Lock<K>>, value: u32) {
    in_dying_thread(|| {
        let mut guard = lock.write().unwrap();
        *guard = value;
        forget(guard);
    });
}

fn leave_dead_reader<K: Kind>(lock: Pin<&Lock<K>>) {
    in_dying_thread(|| forget(lock.read().unwrap()));
}

fn a_dead_writer_is_reported_to_the_next_task_whatever_it_came_for<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    leave_dead_writer(lock, 7);
    match lock.read() {
        Err(LockError::OwnerDied(mut died)) => {
            assert_eq!(*died, 7);
            *died += 1;
            let guard = died.make_consistent();
            let guard = RobustWriteGuard::downgrade(guard);
            assert_eq!((*guard, *lock.read().unwrap()), (8, 8));
        }
        other => panic!("{other:?}"),
    }
    leave_dead_writer(lock, 9);
    match lock.write() {
        Err(LockError::OwnerDied(died)) => *died.replace(1) += 1,
        other => panic!("{other:?}"),
    }
    leave_dead_writer(lock, 9);
    match lock.try_read() {
        // SAFETY: a number.
        Err(LockError::OwnerDied(died)) => drop(unsafe { died.make_consistent_unchecked() }),
        other => panic!("{other:?}"),
    }
    assert_eq!(*lock.write().unwrap(), 9);
}

fn a_dead_readers_seat_is_released_without_a_report<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    // More than there are seats.
    for _ in 0..5 {
        leave_dead_reader(lock);
        drop(lock.write().unwrap());
        leave_dead_reader(lock);
    }
    for _ in 0..5 {
        leave_dead_reader(lock);
        let others = [lock.try_read().unwrap(), lock.read().unwrap()];
        assert!(matches!(lock.try_read(), Err(LockError::WouldBlock)));
        drop(others);
    }
    drop(lock.try_write().unwrap());
}

#[test]
fn a_lock_that_is_not_recoverable_stays_so_until_it_is_reset() {
    let _trial = Trial::begin("a_lock_that_is_not_recoverable_stays_so_until_it_is_reset");
    let mut lock = Box::pin(Lock::new(0));
    leave_dead_writer(lock.as_ref(), 7);
    match lock.as_ref().read() {
        Err(LockError::OwnerDied(died)) => drop(died),
        other => panic!("{other:?}"),
    }
    for _ in 0..2 {
        let lock = lock.as_ref();
        assert!(matches!(lock.read(), Err(LockError::NotRecoverable)));
        assert!(matches!(lock.try_write(), Err(LockError::NotRecoverable)));
    }
    lock.as_mut().reset(3);
    assert_eq!(*lock.as_ref().read().unwrap(), 3);
    lock.as_mut().reset(4);
    assert_eq!(*lock.as_ref().write().unwrap(), 4);
    leave_dead_writer(lock.as_ref(), 7);
    lock.as_mut().reset(5);
    assert_eq!(*lock.as_ref().write().unwrap(), 5);
}

fn a_panic_of_a_writer_is_reported_and_that_of_a_reader_is_not<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    let panics = |body: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    panics(&|| {
        let _guard = lock.read().unwrap();
        panic!("expected");
    });
    drop(lock.write().unwrap());
    let writer = || {
        let _guard = lock.write();
        panic!("expected");
    };
    panics(&writer);
    // Whoever panics with what it was told passes it on.
    panics(&writer);
    match lock.write() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    }
    drop(lock.read().unwrap());
}

fn a_task_that_would_wait_for_itself_is_refused<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let lock = K::lock();
    let writing = lock.write().unwrap();
    assert!(matches!(lock.read(), Err(LockError::Deadlock)));
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    drop(writing);
    let reading = lock.read().unwrap();
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    // A second time, as long as nobody waits.
    let again = lock.read().unwrap();
    // The last seat is taken, by the one that would wait.
    assert!(matches!(lock.read(), Err(LockError::Deadlock)));
    assert!(matches!(lock.try_read(), Err(LockError::WouldBlock)));
    drop(again);
    let writer = Child::fork(|| drop(lock.write().unwrap()));
    trial.wait_until(|| writer.is_in_futex());
    assert!(matches!(lock.read(), Err(LockError::Deadlock)));
    // It has the gate, and waits for the seat.
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    assert!(matches!(lock.write_until(soon()), Err(LockError::Deadlock)));
    assert!(matches!(lock.try_write(), Err(LockError::WouldBlock)));
    drop(reading);
    writer.succeed();
    drop(lock.write().unwrap());
}

fn two_readers_that_both_begin_to_write_are_refused<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let lock = K::lock();
    let [inside, refused] = [(); 2].map(|()| Page::<AtomicU32>::new());
    let meet = |page: &AtomicU32| {
        page.fetch_add(1, Ordering::SeqCst);
        while page.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
    };
    let body = || {
        let _reading = lock.read().unwrap();
        meet(&inside);
        assert!(matches!(lock.write(), Err(LockError::Deadlock)));
        // Neither leaves before both have asked.
        meet(&refused);
    };
    let other = Child::fork(body);
    body();
    other.succeed();
    trial.progress();
    drop(lock.write().unwrap());
}

/// Counts how often it is dropped.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn torn_data_is_not_dropped_with_its_lock_and_whole_data_is() {
    let _trial = Trial::begin("torn_data_is_not_dropped_with_its_lock_and_whole_data_is");
    let drops = AtomicU32::new(0);
    let make = || Box::pin(RobustRwLock::<_, 2>::new(Counted(&drops)));
    let lock = make();
    drop((lock.as_ref().read().unwrap(), lock.as_ref().try_read()));
    drop(lock);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let lock = make();
    in_dying_thread(|| forget(lock.as_ref().write().unwrap()));
    drop(lock);
    let mut lock = make();
    in_dying_thread(|| forget(lock.as_ref().write().unwrap()));
    drop(lock.as_ref().read());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    lock.as_mut().reset(Counted(&drops));
    drop(lock);
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}

fn one_more_reader_than_there_are_seats_waits_for_one<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let lock = K::lock();
    let mut others: Vec<Child> = Vec::new();
    let inside = Page::<AtomicU32>::new();
    for count in 1..=2 {
        others.push(Child::fork(|| {
            let _guard = lock.read().unwrap();
            inside.fetch_add(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }));
        trial.wait_until(|| inside.load(Ordering::SeqCst) == count);
    }
    assert!(matches!(lock.try_read(), Err(LockError::WouldBlock)));
    assert!(matches!(lock.read_until(soon()), Err(LockError::TimedOut)));
    assert!(matches!(lock.write_until(soon()), Err(LockError::TimedOut)));
    let waits = Child::fork(|| drop(lock.read().unwrap()));
    trial.wait_until(|| waits.is_in_futex());
    // Whichever of the two it is, it gets its seat.
    others.pop().unwrap().kill();
    waits.succeed();
    others.pop().unwrap().kill();
    drop(lock.write().unwrap());
}

fn a_writer_killed_while_it_waits_has_torn_nothing<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let lock = K::lock();
    for _ in 0..trial.times(10) {
        let reading = lock.read().unwrap();
        let mut writer = Child::fork(|| drop(lock.write().unwrap()));
        trial.wait_until(|| writer.is_in_futex());
        let readers: Vec<Child> = (0..3)
            .map(|_| Child::fork(|| drop(lock.read().unwrap())))
            .collect();
        for reader in &readers {
            trial.wait_until(|| reader.is_in_futex());
        }
        assert_eq!(writer.kill(), Exit::Signal(libc::SIGKILL));
        // They enter, although one is inside.
        readers.into_iter().for_each(Child::succeed);
        drop(reading);
        drop(lock.write().unwrap());
    }
}

/// A guard as the child of a fork has it, with its parent's lock.
fn inherited<G>(guard: &G) -> G {
    // SAFETY: a valid guard; used in a child only, which its drop ends.
    unsafe { core::ptr::read(guard) }
}

fn a_fork_holds_nothing_and_its_inherited_guards_abort<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    let aborts = |mut child: Child| assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    let guard = lock.write().unwrap();
    aborts(Child::fork(|| drop(inherited(&guard))));
    aborts(Child::fork(|| {
        drop(RobustWriteGuard::downgrade(inherited(&guard)));
    }));
    Child::fork(|| assert!(matches!(lock.try_read(), Err(LockError::WouldBlock)))).succeed();
    let guard = RobustWriteGuard::downgrade(guard);
    aborts(Child::fork(|| drop(inherited(&guard))));
    Child::fork(|| {
        assert!(matches!(lock.try_write(), Err(LockError::WouldBlock)));
        drop(lock.read().unwrap());
    })
    .succeed();
    drop(guard);
    drop(lock.write().unwrap());
}

fn a_child_cannot_repair_data_that_was_reported_to_its_parent<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    leave_dead_writer(lock, 7);
    let Err(LockError::OwnerDied(died)) = lock.write() else {
        panic!("the death was not reported");
    };
    let aborts = |mut child: Child| assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    aborts(Child::fork(|| forget(inherited(&died).make_consistent())));
    aborts(Child::fork(|| forget(inherited(&died).replace(1))));
    assert_eq!(*died, 7);
    drop(died);
    assert!(matches!(lock.read(), Err(LockError::NotRecoverable)));
}

/// The first clone's robust list lies in its thread's record, which the second one finds wiped.
fn a_raw_clone_of_a_raw_clone_can_lock_if_the_thread_had_used_no_lock<K: Kind>(name: &'static str) {
    let _trial = Trial::begin(name);
    let lock = K::lock();
    in_a_thread(|| {
        Child::clone_raw(|| {
            drop(lock.write().unwrap());
            Child::clone_raw(|| drop(lock.write().unwrap())).succeed();
        })
        .succeed();
    });
}

#[test]
fn destroying_a_held_lock_aborts() {
    let _trial = Trial::begin("destroying_a_held_lock_aborts");
    let hold: [fn(Pin<&Lock>); 2] = [|lock| forget(lock.read()), |lock| forget(lock.write())];
    for hold in hold {
        let mut child = Child::fork(|| {
            let lock = Box::pin(Lock::new(0));
            hold(lock.as_ref());
            drop(lock);
        });
        assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    }
}

#[test]
fn it_takes_a_cache_line_for_the_gate_and_one_for_each_reader() {
    assert_eq!(size_of::<RobustRwLock<()>>(), 64 * 17);
    assert_eq!(size_of::<RobustRwLock<(), 3>>(), 64 * 4);
    let lock = lock();
    let _guard = lock.pin().read().unwrap();
    assert_eq!(
        format!("{:?}", *lock),
        "RobustRwLock { writer: None, readers: 1, .. }"
    );
}

/// Who releases takes the lock again long before who was woken gets there, unless it was handed over.
fn writers_do_not_pass_a_task_that_has_waited_for_long<K: Kind>(name: &'static str) {
    let trial = Trial::begin(name);
    let lock = K::lock();
    for writes in [false, true] {
        let (has_entered, id) = (AtomicU32::new(0), ThreadId::default());
        thread::scope(|scope| {
            let mut guard = lock.write().unwrap();
            scope.spawn(|| {
                id.set();
                if writes {
                    let _guard = lock.write().unwrap();
                    has_entered.store(1, Ordering::SeqCst);
                } else {
                    let _guard = lock.read().unwrap();
                    has_entered.store(1, Ordering::SeqCst);
                }
            });
            let mut sections = 0;
            while has_entered.load(Ordering::SeqCst) == 0 {
                // It has come, or has tried in vain.
                trial.wait_until(|| id.is_in_futex());
                // More than the threshold; a busy machine may make the other one late, so not once only.
                thread::sleep(Duration::from_millis(20));
                drop(guard);
                guard = lock.write().unwrap();
                sections += 1;
                assert!(
                    sections < 100,
                    "{} still waits",
                    if writes { "a writer" } else { "a reader" }
                );
            }
        });
    }
}

/// A test of each, for both kinds.
macro_rules! both {
    ($($test:ident)*) => {
        mod listed {
            $(#[test]
            fn $test() {
                super::$test::<super::Robust>(concat!("listed::", stringify!($test)));
            })*
        }
        mod in_region {
            $(#[test]
            fn $test() {
                super::$test::<super::InRegion>(concat!("in_region::", stringify!($test)));
            })*
        }
    };
}
both! {
    writers_do_not_pass_a_task_that_has_waited_for_long
    a_dead_writer_is_reported_to_the_next_task_whatever_it_came_for
    a_dead_readers_seat_is_released_without_a_report
    a_panic_of_a_writer_is_reported_and_that_of_a_reader_is_not
    a_task_that_would_wait_for_itself_is_refused
    two_readers_that_both_begin_to_write_are_refused
    one_more_reader_than_there_are_seats_waits_for_one
    a_writer_killed_while_it_waits_has_torn_nothing
    a_fork_holds_nothing_and_its_inherited_guards_abort
    a_child_cannot_repair_data_that_was_reported_to_its_parent
    a_raw_clone_of_a_raw_clone_can_lock_if_the_thread_had_used_no_lock
}
