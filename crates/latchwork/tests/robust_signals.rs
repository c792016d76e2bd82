//! Robust mutexes in signal handlers that interrupt the taking and releasing of others.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork_testkit::Trial;
use std::process::abort;
use std::thread;

mod lock_support;
mod robust_support;
use lock_support::ThreadId;
use robust_support::{announced, list_is_empty};

type Ours = Mutex<u32, Robust>;

static HANDLERS: Ours = Mutex::robust(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static AFTER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take_another_lock(_: libc::c_int) {
    BEFORE.store(announced(), Ordering::Relaxed);
    let Ok(mut runs) = Pin::static_ref(&HANDLERS).lock() else {
        abort()
    };
    *runs += 1;
    drop(runs);
    AFTER.store(announced(), Ordering::Relaxed);
}

fn install_handler() {
    // SAFETY: all-zero is a valid sigaction; the handler is safe to run anywhere.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = take_another_lock as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
    }
}

#[test]
fn a_signal_handlers_lock_leaves_the_interrupted_announcement_as_it_was() {
    let trial =
        Trial::begin("a_signal_handlers_lock_leaves_the_interrupted_announcement_as_it_was");
    install_handler();
    let lock = pin!(Mutex::robust(0_u32));
    let lock = lock.as_ref();
    let guard = lock.lock().unwrap();
    let id = ThreadId::default();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            id.set();
            drop(lock.lock().unwrap());
            assert_eq!(announced(), 0);
            assert!(list_is_empty());
        });
        trial.wait_until(|| id.is_in_futex());
        AFTER.store(0, Ordering::Relaxed);
        id.signal(libc::SIGUSR1);
        trial.wait_until(|| AFTER.load(Ordering::Relaxed) != 0);
        assert_eq!(
            AFTER.load(Ordering::Relaxed),
            BEFORE.load(Ordering::Relaxed)
        );
        trial.wait_until(|| id.is_in_futex());
        drop(guard);
        waiter.join().unwrap();
    });
}

#[test]
fn signal_handlers_may_lock_at_any_point_of_a_lock_or_unlock() {
    const SIGNALS: u32 = 1000;
    let trial = Trial::begin("signal_handlers_may_lock_at_any_point_of_a_lock_or_unlock");
    install_handler();
    let lock = pin!(Mutex::robust(0_u32));
    let lock = lock.as_ref();
    let id = ThreadId::default();
    let runs = || *Pin::static_ref(&HANDLERS).lock().unwrap();
    let begin = runs();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // The first use allocates: no signal before it.
            drop(lock.lock().unwrap());
            id.set();
            while !end.load(Ordering::Relaxed) {
                *lock.lock().unwrap() += 1;
            }
            assert_eq!(announced(), 0);
            assert!(list_is_empty());
            forget(lock.lock());
        });
        trial.wait_until(|| id.is_set());
        for sent in 1..=SIGNALS {
            id.signal(libc::SIGUSR1);
            trial.wait_until(|| runs() >= begin + sent);
        }
        end.store(true, Ordering::Relaxed);
        worker.join().unwrap();
    });
    assert!(matches!(lock.lock(), Err(LockError::OwnerDied(_))));
}
