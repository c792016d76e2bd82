//! What may befall a condition variable: several mutexes at once, panics, forks, signal handlers.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::cell::Cell;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::{InheritPlain, Mutex, RawLock, Robust, WaitWake};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Trial, Watchdog, install};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, Scope, ScopedJoinHandle};

use latchwork_testkit::{Mapped, ThreadId};

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers below are made for it.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        let set = libc::sigaction(signal, &raw const action, core::ptr::null_mut());
        assert_eq!(set, 0);
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// A thread that waits for a number to become 1, asleep by now.
fn waiter<'scope>(
    scope: &'scope Scope<'scope, '_>,
    changed: &'scope Condvar,
    number: &'scope Mutex<u32>,
) -> ScopedJoinHandle<'scope, ()> {
    let id: &ThreadId = Box::leak(Box::default());
    let thread = scope.spawn(|| {
        let guard = number.lock();
        id.set();
        drop(changed.wait_while(guard, |number| *number == 0));
    });
    id.wait_until_in_futex();
    thread
}

#[test]
fn a_single_notification_reaches_the_last_of_three_mutexes() {
    let _watchdog = Watchdog::start("a_single_notification_reaches_the_last_of_three".into());
    let numbers = [const { Mutex::new(0) }; 3];
    let changed = Condvar::new();
    thread::scope(|scope| {
        let threads = numbers
            .each_ref()
            .map(|number| waiter(scope, &changed, number));
        for (number, thread) in numbers.iter().zip(threads).rev() {
            *number.lock() = 1;
            changed.notify_one();
            thread.join().unwrap();
        }
    });
}

/// One with the same mutex as those in the gathering is in the crowd, too.
#[test]
fn a_single_notification_reaches_a_waiter_behind_one_with_another_mutex() {
    let _watchdog = Watchdog::start("a_single_notification_reaches_who_came_behind".into());
    handle(libc::SIGUSR1, nothing);
    let (first, second) = (Mutex::new(0), Mutex::new(0));
    let changed = Condvar::new();
    let id = ThreadId::default();
    thread::scope(|scope| {
        let interrupted = scope.spawn(|| {
            let guard = second.lock();
            id.set();
            drop(changed.wait(guard));
        });
        id.wait_until_in_futex();
        waiter(scope, &changed, &first);
        while !interrupted.is_finished() {
            id.signal(libc::SIGUSR1);
            thread::yield_now();
        }
        waiter(scope, &changed, &first);
        let last = waiter(scope, &changed, &second);
        *second.lock() = 1;
        changed.notify_one();
        last.join().unwrap();
        *first.lock() = 1;
        changed.notify_all();
    });
}

/// A lock that refuses some who come back from a wait, in the way of a bug.
#[derive(Default)]
struct Refusing(WaitWake<Shared>);

thread_local!(static HAS_WAITED: Cell<bool> = const { Cell::new(false) });
static REFUSALS: AtomicU32 = AtomicU32::new(2);

// SAFETY: the lock is that of the field.
unsafe impl RawLock for Refusing {
    fn lock(&self) {
        let refuse = |left: u32| left.checked_sub(1);
        let is_refused = HAS_WAITED.get()
            && REFUSALS
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuse)
                .is_ok();
        assert!(!is_refused, "refused, as intended");
        RawLock::lock(&self.0);
    }
    fn try_lock(&self) -> bool {
        RawLock::try_lock(&self.0)
    }
    fn lock_until(&self, deadline: Deadline) -> bool {
        RawLock::lock_until(&self.0, deadline)
    }
    unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { RawLock::unlock(&self.0) };
    }
}

#[test]
fn a_lock_that_panics_stops_no_waiter_behind_it() {
    const WAITERS: usize = 6;
    let _watchdog = Watchdog::start("a_lock_that_panics_stops_no_waiter_behind_it".into());
    let number = Mutex::from_raw(Refusing::default(), 0);
    let refusals = AtomicU32::new(0);
    let changed = Condvar::new();
    let ids: [ThreadId; WAITERS] = Default::default();
    thread::scope(|scope| {
        for id in &ids {
            let (number, changed, refusals) = (&number, &changed, &refusals);
            scope.spawn(move || {
                let guard = number.lock();
                id.set();
                HAS_WAITED.set(true);
                let wait = || drop(changed.wait_while(guard, |number| *number == 0));
                if catch_unwind(AssertUnwindSafe(wait)).is_err() {
                    refusals.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        ids.iter().for_each(ThreadId::wait_until_in_futex);
        *number.lock() = 1;
        changed.notify_all();
    });
    assert_eq!(refusals.into_inner(), 2);
    assert_eq!(format!("{changed:?}"), "Condvar { waiters: 0 }");
}

/// The child has a copy of the waiters' number, and none of the waiters.
#[test]
fn a_notification_in_a_child_that_has_unmapped_the_mutex_returns() {
    let trial = Trial::begin("a_notification_in_a_child_that_has_unmapped_the_mutex_returns");
    let number = Mapped::new(Mutex::<u32, InheritPlain>::inherit_plain(0));
    let changed = Condvar::new();
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = number.lock().unwrap();
            id.set();
            drop(changed.wait_while(guard, |number| *number == 0).unwrap());
        });
        trial.wait_until(|| id.is_in_futex());
        for all in [false, true] {
            let mut child = Child::fork(|| {
                let address = core::ptr::from_ref(&*number).cast_mut();
                // SAFETY: the child's own mapping, which it does not use again.
                assert_eq!(unsafe { libc::munmap(address.cast(), 4) }, 0);
                if all {
                    changed.notify_all();
                } else {
                    changed.notify_one();
                }
            });
            trial.wait_until(|| child.try_wait().is_some());
            child.succeed();
        }
        *number.lock().unwrap() = 1;
        changed.notify_one();
    });
}

/// From now on a futex call of this process with one of these operations answers `ENOSYS`.
fn forbid_futexes(operations: [libc::c_int; 2]) {
    let step = |code: u32, k, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // Where `seccomp_data` has the call, and the low half of its second argument.
    let second = 24 + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut program = [
        step(load, 0, 0, 0),
        step(is, libc::SYS_futex as u32, 0, 4),
        step(load, second, 0, 0),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x7f, 0, 0),
        step(is, operations[0] as u32, 2, 0),
        step(is, operations[1] as u32, 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(answer, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
    ];
    install(&mut program);
}

/// Whether the sandbox comes before or after the first wait.
#[test]
fn a_sandbox_without_requeueing_to_an_owner_lets_waiters_pass() {
    let _trial = Trial::begin("a_sandbox_without_requeueing_to_an_owner_lets_waiters_pass");
    for waits_before in [false, true] {
        let child = Child::fork(|| {
            let number = Mutex::inherit_plain(0);
            let changed = Condvar::new();
            if waits_before {
                let past = Deadline::from_nanoseconds(1);
                drop(changed.wait_until(number.lock().unwrap(), past).unwrap());
            }
            forbid_futexes([libc::FUTEX_WAIT_REQUEUE_PI, libc::FUTEX_CMP_REQUEUE_PI]);
            let ids: [ThreadId; 3] = Default::default();
            thread::scope(|scope| {
                for id in &ids {
                    let (number, changed) = (&number, &changed);
                    scope.spawn(move || {
                        let guard = number.lock().unwrap();
                        id.set();
                        drop(changed.wait_while(guard, |number| *number == 0).unwrap());
                    });
                }
                ids.iter().for_each(ThreadId::wait_until_in_futex);
                *number.lock().unwrap() = 1;
                changed.notify_all();
            });
        });
        child.succeed();
    }
}

static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn fork(_: libc::c_int) {
    // SAFETY: the child goes on to the end of a wait, and ends.
    let child = unsafe { libc::fork() };
    CHILD.store(child, Ordering::Release);
}

/// Parent and child come back from the same wait; who is left is counted still.
#[test]
fn a_wait_that_a_fork_doubles_ends_once() {
    let trial = Trial::begin("a_wait_that_a_fork_doubles_ends_once");
    handle(libc::SIGUSR2, fork);
    let number = Mapped::new(Mutex::shared(0_u32));
    let changed = Mapped::new(Condvar::shared());
    let ids: [ThreadId; 2] = Default::default();
    let parent = std::process::id();
    thread::scope(|scope| {
        let doubled = scope.spawn(|| {
            let guard = number.lock();
            ids[0].set();
            drop(changed.wait(guard));
            if std::process::id() != parent {
                // SAFETY: no preconditions.
                unsafe { libc::_exit(0) };
            }
        });
        scope.spawn(|| {
            let guard = number.lock();
            ids[1].set();
            drop(changed.wait_while(guard, |number| *number == 0));
        });
        trial.wait_until(|| ids.iter().all(ThreadId::is_in_futex));
        assert_eq!(format!("{:?}", *changed), "Condvar { waiters: 2 }");
        ids[0].signal(libc::SIGUSR2);
        doubled.join().unwrap();
        let child = CHILD.load(Ordering::Acquire);
        assert!(child > 0);
        // SAFETY: a child of this process, that nobody else waits for.
        let ended = unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        assert_eq!(ended, child);
        assert_eq!(format!("{:?}", *changed), "Condvar { waiters: 1 }");
        *number.lock() = 1;
        changed.notify_all();
    });
}

/// Keeps how its wait ended.
struct WaitsWhenDropped<'a>(Pin<&'a Mutex<u32, Robust>>, &'a Cell<Option<Waited>>);

impl Drop for WaitsWhenDropped<'_> {
    fn drop(&mut self) {
        let guard = self.0.lock().unwrap();
        let past = Deadline::from_nanoseconds(1);
        let ended = Condvar::new().wait_robust_until(guard, past);
        self.1.set(ended.map(|(_, waited)| waited).ok());
    }
}

#[test]
fn a_wait_in_a_destructor_during_a_panic_reports_no_death() {
    let number = pin!(Mutex::robust(0));
    let waited = Cell::new(None);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _waits = WaitsWhenDropped(number.as_ref(), &waited);
        panic!("as intended");
    }));
    assert!(ended.is_err());
    assert_eq!(waited.get(), Some(Waited::TimedOut));
}
