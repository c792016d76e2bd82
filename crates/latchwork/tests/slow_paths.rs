//! What a thread's lock calls are counted as, for every lock: a wait, its sleeps, and the wake-up.
#![cfg(not(loom))]

use core::pin::{Pin, pin};
use latchwork::SlowPaths;
use latchwork::mutex::{Mutex, RecursiveMutex, WaitWake};
use latchwork::rwlock::{RobustRwLock, RwLock};
use latchwork_testkit::{ThreadId, Watchdog};
use std::thread;

fn counted(calls: impl FnOnce()) -> SlowPaths {
    let before = SlowPaths::of_this_thread();
    calls();
    SlowPaths::of_this_thread().since(before)
}

/// Where the slow paths of a lock are.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Latchwork,
    Kernel,
}

/// One thread holds the lock (`hold`) until another one sleeps for it (`wait`).
fn check<H, W>(name: &str, place: In, hold: impl Fn() -> H, wait: impl Fn() -> W + Sync) {
    let _watchdog = Watchdog::start(name.into());
    // A thread's first call may make its record.
    drop(hold());
    let free = counted(|| drop(hold()));
    assert_eq!(free, SlowPaths::default(), "{name}: a free pair");

    let sleeper = ThreadId::default();
    let (mut of_waiter, mut of_holder) = <(SlowPaths, SlowPaths)>::default();
    let ready = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            drop(wait());
            ready.wait();
            ready.wait();
            sleeper.set();
            counted(|| drop(wait()))
        });
        ready.wait();
        of_holder = counted(|| {
            let held = hold();
            ready.wait();
            sleeper.wait_until_in_futex();
            drop(held);
        });
        of_waiter = waiter.join().unwrap();
    });
    assert_eq!(of_holder.acquisitions, 0, "{name}");
    assert_eq!(of_waiter.acquisitions, 1, "{name}");
    let of = |counts: SlowPaths, ours: u64| match place {
        In::Latchwork => ours,
        In::Kernel => counts.inheriting,
    };
    assert!(of(of_waiter, of_waiter.sleeps) > 0, "{name}: {of_waiter:?}");
    assert!(of(of_holder, of_holder.wakes) > 0, "{name}: {of_holder:?}");
    if place == In::Latchwork {
        assert_eq!(of_waiter.inheriting + of_holder.inheriting, 0, "{name}");
    }
}

/// The same for readers and writers.
macro_rules! check {
    ($name:literal, $place:ident, || $lock:expr) => {
        check($name, In::$place, || $lock, || $lock)
    };
}

#[test]
fn waits_for_plain_mutexes_are_counted() {
    let lock = Mutex::<_, WaitWake>::new(());
    check!("wait-wake", Latchwork, || lock.lock());
    let lock = Mutex::throughput(());
    check!("throughput", Latchwork, || lock.lock());
    let lock = RecursiveMutex::<_>::new(());
    check!("recursive", Latchwork, || lock.lock());
    let lock = Mutex::protect(1, ());
    // It needs a privilege.
    if lock.lock().is_ok() {
        check!("protect", Latchwork, || lock.lock().unwrap());
    }
}

#[test]
fn waits_for_locks_of_the_kernel_are_counted_as_its_calls() {
    let lock = Mutex::inherit(());
    check!("inherit", Kernel, || lock.lock().unwrap());
    let lock = Mutex::inherit_plain(());
    check!("inherit-plain", Kernel, || lock.lock().unwrap());
    let lock = pin!(Mutex::robust_inherit(()));
    let lock = lock.as_ref();
    check!("robust inherit", Kernel, || lock.lock().unwrap());
}

#[test]
fn waits_for_robust_mutexes_are_counted() {
    let lock = pin!(Mutex::robust(()));
    let lock = lock.as_ref();
    check!("robust", Latchwork, || lock.lock().unwrap());
    let lock = pin!(Mutex::robust_throughput(()));
    let lock = lock.as_ref();
    check!("robust throughput", Latchwork, || lock.lock().unwrap());
    let lock = pin!(Mutex::robust_protect(1, ()));
    let lock = lock.as_ref();
    if lock.lock().is_ok() {
        check!("robust protect", Latchwork, || lock.lock().unwrap());
    }
}

#[test]
fn waits_for_reader_writer_locks_are_counted() {
    let lock = RwLock::new(());
    check(
        "rwlock, writers",
        In::Latchwork,
        || lock.write(),
        || lock.write(),
    );
    check(
        "rwlock, reader and writer",
        In::Latchwork,
        || lock.read(),
        || lock.write(),
    );
    check(
        "rwlock, writer and reader",
        In::Latchwork,
        || lock.write(),
        || lock.read(),
    );
    let lock = pin!(RobustRwLock::<_>::new(()));
    let lock: Pin<&RobustRwLock<()>> = lock.as_ref();
    let (read, write) = (|| lock.read().unwrap(), || lock.write().unwrap());
    check("robust rwlock, writers", In::Latchwork, write, write);
    check(
        "robust rwlock, reader and writer",
        In::Latchwork,
        read,
        write,
    );
    check(
        "robust rwlock, writer and reader",
        In::Latchwork,
        write,
        read,
    );
}
