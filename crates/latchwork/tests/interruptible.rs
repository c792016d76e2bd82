//! A signal handler ends an interruptible wait, also one that was installed with `SA_RESTART`, and no
//! other wait.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::cell::Cell;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use latchwork::mutex::{
    InRegion, Mutex, RegionProtocol, Throughput, Unfinished, WaitWake, in_region,
};
use latchwork::region::RegionOptions;
use latchwork::rwlock::{LockError, RegionRwLock, RobustRwLock, RwLock, SeatLock, Uncounted};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::Watchdog;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Once, mpsc};
use std::thread;

thread_local!(static HANDLED: Cell<Option<&'static AtomicU32>> = const { Cell::new(None) });

/// Counts for the thread that it interrupts.
extern "C" fn count(_: i32) {
    if let Some(handled) = HANDLED.get() {
        handled.fetch_add(1, Ordering::Relaxed);
    }
}

fn install_restarting_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a handler that reads a thread-local constant-initialised cell, and does one atomic operation.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()),
                0
            );
        }
    });
}

/// Runs `wait` in a thread that gets one signal after the other until it has returned.
fn under_signals<R: Send + 'static>(wait: impl FnOnce() -> R + Send + 'static) -> R {
    install_restarting_handler();
    let thread = thread::spawn(wait);
    while !thread.is_finished() {
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, libc::SIGUSR1) };
        thread::sleep(Duration::from_micros(200));
    }
    thread.join().unwrap()
}

/// Declares the tests of one protocol; `$make` is a mutex of its own each time.
macro_rules! of_protocol {
    ($name:ident, $type:ty, $make:expr) => {
        mod $name {
            use super::*;

            fn leaked() -> &'static $type {
                Box::leak(Box::new($make))
            }

            #[test]
            fn a_handler_ends_an_interruptible_wait() {
                let _watchdog =
                    Watchdog::start(concat!(stringify!($name), " interruptible").into());
                let mutex = leaked();
                let held = mutex.lock();
                let ended = under_signals(|| mutex.lock_interruptible(None).map(drop));
                assert_eq!(ended, Err(Unfinished::Interrupted));
                drop(held);
                assert!(mutex.lock_interruptible(None).is_ok());
            }

            #[test]
            fn an_interruptible_wait_ends_at_its_deadline() {
                let _watchdog = Watchdog::start(concat!(stringify!($name), " deadline").into());
                let mutex = leaked();
                let held = mutex.lock();
                let soon = Deadline::after(Duration::from_millis(2));
                let ended = mutex.lock_interruptible(Some(soon)).map(drop);
                assert_eq!(ended, Err(Unfinished::TimedOut));
                assert!(soon.has_passed());
                drop(held);
            }

            #[test]
            fn no_handler_ends_any_other_wait() {
                let _watchdog = Watchdog::start(concat!(stringify!($name), " other").into());
                static FREE: AtomicBool = AtomicBool::new(false);
                static COUNT: AtomicU32 = AtomicU32::new(0);
                let mutex = leaked();
                let (held, is_held) = mpsc::channel();
                let holder = thread::spawn(move || {
                    let guard = mutex.lock();
                    held.send(()).unwrap();
                    while COUNT.load(Ordering::Relaxed) < 20 {
                        thread::yield_now();
                    }
                    FREE.store(true, Ordering::Relaxed);
                    drop(guard);
                });
                is_held.recv().unwrap();
                let was_free = under_signals(|| {
                    HANDLED.set(Some(&COUNT));
                    let _guard = mutex.lock();
                    FREE.load(Ordering::Relaxed)
                });
                assert!(was_free);
                holder.join().unwrap();
            }
        }
    };
}

of_protocol!(wait_wake, Mutex<u32>, Mutex::new(0));
of_protocol!(throughput, Mutex<u32, Throughput>, Mutex::throughput(0));
of_protocol!(throughput_shared, Mutex<u32, Throughput<Shared>>, Mutex::from_raw(Throughput::new(), 0));
of_protocol!(wait_wake_shared, Mutex<u32, WaitWake<Shared>>, Mutex::shared(0));

#[test]
fn a_handler_ends_an_interruptible_wait_for_a_reader_writer_lock() {
    let _watchdog = Watchdog::start("interruptible reader/writer lock".into());
    static LOCK: RwLock<u32> = RwLock::new(0);
    let held = LOCK.write();
    let ended = under_signals(|| LOCK.read_interruptible(None).map(drop));
    assert_eq!(ended, Err(Unfinished::Interrupted));
    let ended = under_signals(|| LOCK.write_interruptible(None).map(drop));
    assert_eq!(ended, Err(Unfinished::Interrupted));
    let soon = Deadline::after(Duration::from_millis(2));
    let ended = LOCK.read_interruptible(Some(soon)).map(drop);
    assert_eq!(ended, Err(Unfinished::TimedOut));
    drop(held);
    drop(LOCK.write_interruptible(None).unwrap());
    assert!(LOCK.read_interruptible(None).is_ok());
}

#[test]
fn a_handler_ends_an_interruptible_wait_for_a_robust_reader_writer_lock() {
    let _watchdog = Watchdog::start("interruptible robust reader/writer lock".into());
    static LOCK: RobustRwLock<u32, 1> = RobustRwLock::new(0);
    ends_waits_of(Pin::static_ref(&LOCK));
    let region = Box::leak(Box::new(RegionOptions::new().create_anonymous().unwrap()));
    let make = || RegionRwLock::<u32, 1>::in_region(0);
    ends_waits_of(region.object("readers and writers", make).unwrap());
}

fn ends_waits_of<K: SeatLock + Sync>(lock: Pin<&'static RobustRwLock<u32, 1, Uncounted, K>>) {
    let interrupted =
        |error: &LockError<'_, u32, 1, Uncounted, K>| matches!(error, LockError::Interrupted);
    let held = lock.read().unwrap();
    // For the gate's holder, and for a seat.
    assert!(under_signals(move || {
        lock.write_interruptible(None)
            .is_err_and(|error| interrupted(&error))
    }));
    assert!(under_signals(move || {
        lock.read_interruptible(None)
            .is_err_and(|error| interrupted(&error))
    }));
    drop(held);
    let held = lock.write_interruptible(None).unwrap();
    // For the gate.
    assert!(under_signals(move || {
        lock.read_interruptible(None)
            .is_err_and(|error| interrupted(&error))
    }));
    drop(held);
    assert!(lock.read_interruptible(None).is_ok());
}

fn a_handler_ends_the_wait_in_a_region<P: RegionProtocol>() {
    let _watchdog = Watchdog::start("interruptible region lock".into());
    install_restarting_handler();
    let region = Box::leak(Box::new(RegionOptions::new().create_anonymous().unwrap()));
    let lock = region
        .object("lock", || Mutex::from_raw(InRegion::<P>::new(), 0_u32))
        .unwrap();
    let held = lock.lock().unwrap();
    // In the first sleep of the wait, and in a later one.
    for quiet in [Duration::ZERO, Duration::from_millis(30)] {
        let waiter = thread::spawn(move || {
            let ended = lock.lock_interruptible(None);
            matches!(ended, Err(in_region::LockError::Interrupted))
        });
        thread::sleep(quiet);
        while !waiter.is_finished() {
            // SAFETY: the thread is not joined yet.
            unsafe { libc::pthread_kill(waiter.as_pthread_t() as libc::pthread_t, libc::SIGUSR1) };
            thread::sleep(Duration::from_millis(1));
        }
        assert!(waiter.join().unwrap());
    }
    drop(held);
    assert!(lock.lock_interruptible(None).is_ok());
}

#[test]
fn a_handler_ends_an_interruptible_wait_for_a_region_lock() {
    a_handler_ends_the_wait_in_a_region::<WaitWake<Shared>>();
}

#[test]
fn a_handler_ends_an_interruptible_wait_for_a_throughput_lock_of_a_region() {
    a_handler_ends_the_wait_in_a_region::<Throughput<Shared>>();
}
