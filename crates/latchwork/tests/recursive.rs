//! The recursive mutex.
#![cfg(not(loom))]

use core::cell::Cell;
use core::time::Duration;
use latchwork::mutex::{Mutex, RecursiveMutex, WaitWake};
use latchwork::sharing::{Private, Shared};
use latchwork::spin::Spin;
use latchwork_testkit::Watchdog;
use std::thread;

fn counts_with<P: latchwork::mutex::RawLock + Send + Sync>(raw: P) {
    let _watchdog = Watchdog::start("recursive".into());
    let mutex = RecursiveMutex::from_raw(raw, Cell::new((0u64, 0u64)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let outer = mutex.lock();
                    let (left, right) = outer.get();
                    assert_eq!(left, right, "two tasks were inside at once");
                    outer.set((left + 1, right));
                    let inner = mutex.try_lock().expect("held by this very task");
                    drop(outer);
                    // Still held: the guards may go in any order.
                    let again = mutex
                        .lock_for(Duration::ZERO)
                        .expect("held by this very task");
                    again.set((left + 1, right + 1));
                    drop(inner);
                    drop(again);
                }
            });
        }
    });
    assert_eq!(mutex.lock().get(), (20_000, 20_000));
}

#[test]
fn guards_of_one_task_exclude_all_others() {
    counts_with(WaitWake::<Shared>::new());
    counts_with(WaitWake::<Private>::new());
    counts_with(Spin::new());
}

#[test]
fn the_lock_is_held_until_the_last_guard_is_dropped() {
    let _watchdog = Watchdog::start("recursive others".into());
    static MUTEX: RecursiveMutex<()> = RecursiveMutex::new(());
    let others = || thread::spawn(|| MUTEX.try_lock().is_some()).join().unwrap();
    let outer = MUTEX.lock();
    let inner = MUTEX.lock();
    assert!(!others());
    drop(outer);
    assert!(!others());
    let timed_out = thread::spawn(|| MUTEX.lock_for(Duration::from_millis(2)).is_none());
    assert!(timed_out.join().unwrap());
    drop(inner);
    assert!(others());
    assert!(others(), "each lock was released");
}

#[test]
fn a_panic_releases_the_lock() {
    let mutex = RecursiveMutex::new(());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _outer = mutex.lock();
        let _inner = mutex.lock();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panic.is_err());
    thread::scope(|scope| {
        assert!(scope.spawn(|| mutex.try_lock().is_some()).join().unwrap());
    });
}

#[test]
fn a_task_can_hold_it_together_with_other_mutexes() {
    let plain = Mutex::new(1);
    let recursive = RecursiveMutex::new(Cell::new(1));
    let outer = recursive.lock();
    let mut plain = plain.lock();
    *plain += recursive.lock().get();
    outer.set(*plain);
    assert_eq!(outer.get(), 2);
}
