//! What docs/real-time.md says of real-time tasks, as far as no other test shows it.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::mutex::{Mutex, Protocol, RawLock, WaitWake};
use latchwork::sharing::{Private, Shared};
use latchwork::spin::Spin;
use latchwork_testkit::priority::{fifo, may_use_priorities};
use latchwork_testkit::{ThreadId, Trial};
use std::sync::Mutex as StdMutex;
use std::thread;

/// Binds the calling thread, and those that it starts, to the processor on which it runs.
fn bind_here() {
    // SAFETY: all-zero is a valid cpu_set_t; the kernel reads it.
    let bound = unsafe {
        let mut here: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        libc::sched_setaffinity(0, size_of_val(&here), &raw const here)
    };
    assert_eq!(bound, 0);
}

/// A yield lets no task of a lower priority run: the waiter has to sleep.
#[test]
fn a_spinning_real_time_task_lets_an_owner_of_lower_priority_run() {
    let trial = Trial::begin("a_spinning_real_time_task_lets_an_owner_of_lower_priority_run");
    if !may_use_priorities(trial.name()) {
        return;
    }
    let (data, is_at_lock) = (Mutex::from_raw(Spin::new(), 0_u32), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            bind_here();
            fifo(1).give(0);
            let mut owned = data.lock();
            thread::scope(|inner| {
                let waiter = inner.spawn(|| {
                    fifo(2).give(0);
                    is_at_lock.store(true, Ordering::Release);
                    *data.lock() += 1;
                });
                // With one processor for both, the owner runs again only when the waiter sleeps.
                while !is_at_lock.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                *owned += 1;
                drop(owned);
                waiter.join().unwrap();
            });
        });
    });
    assert_eq!(*data.lock(), 2);
}

fn sleepers_wake_in_the_order_of_their_priorities<P: Protocol + RawLock + Sync>(
    trial: &Trial,
    lock: P,
) {
    let data = Mutex::from_raw(lock, ());
    let order = StdMutex::new(Vec::new());
    thread::scope(|scope| {
        let owned = data.lock();
        for priority in [10, 30, 20, 40] {
            let id: &ThreadId = Box::leak(Box::default());
            let (data, order) = (&data, &order);
            scope.spawn(move || {
                fifo(priority).give(0);
                id.set();
                let _owned = data.lock();
                order.lock().unwrap().push(priority);
            });
            trial.wait_until(|| id.is_in_futex());
        }
        drop(owned);
    });
    assert_eq!(order.into_inner().unwrap(), [40, 30, 20, 10]);
}

#[test]
fn sleepers_of_a_plain_mutex_wake_in_the_order_of_their_priorities() {
    let trial = Trial::begin("sleepers_of_a_plain_mutex_wake_in_the_order_of_their_priorities");
    if may_use_priorities(trial.name()) {
        sleepers_wake_in_the_order_of_their_priorities(&trial, WaitWake::<Private>::new());
        sleepers_wake_in_the_order_of_their_priorities(&trial, WaitWake::<Shared>::new());
    }
}
