//! The special properties of the robust forms of the protocols: locks of several libraries side by side, owners that
//! are missing from the robust list, deadlocks, priorities and ceilings, signals. (`robust_protocols.rs` has the common
//! properties.)
//!
//! Real-time priorities need a privilege: without it, those tests are skipped, and say so.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, forget};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use latchwork::mutex::{
    Inherit, Interruptible, LockError, Mutex, Protect, ProtectFault, RobustGuard, Throughput,
    WaitWake,
};
use latchwork::sharing::{Private, Shared};
use latchwork_testkit::{Child, Trial};
use std::thread;

mod inherit_support;
mod robust_kinds;
mod robust_support;
use inherit_support::{Task, make_real_time, may_be_real_time, ordinary};
use latchwork_testkit::priority::{
    OTHER, fair, fifo, in_thread, may_use_priorities, now, with_priorities,
};
use latchwork_testkit::{Mapped, ThreadId, in_dying_thread};
use robust_kinds::{Kind, Lock, leave_dead_owner};
use robust_support::{announced, list_is_empty};

/// A robust lock of any library.
trait AnyLock: Sync {
    /// Takes the lock; whether it was clean.
    fn lock(&self) -> bool;
    /// Releases the lock; the calling thread holds it.
    fn unlock(&self);
}

impl AnyLock for robust_support::Lock {
    fn lock(&self) -> bool {
        self.lock()
    }
    fn unlock(&self) {
        self.unlock();
    }
}

/// One of ours, which keeps its guard.
struct Kept<K: Kind> {
    mutex: Pin<Box<Lock<K>>>,
    guard: UnsafeCell<MaybeUninit<RobustGuard<'static, u32, K>>>,
}

// SAFETY: the guard is touched by the holder only.
unsafe impl<K: Kind> Sync for Kept<K> {}

impl<K: Kind> Kept<K> {
    fn boxed() -> Box<dyn AnyLock> {
        Box::new(Self {
            mutex: Box::pin(K::mutex(0)),
            guard: UnsafeCell::new(MaybeUninit::uninit()),
        })
    }
}

impl<K: Kind> AnyLock for Kept<K> {
    fn lock(&self) -> bool {
        // SAFETY: the box outlives the guard, which it is kept with.
        let mutex: Pin<&'static Lock<K>> = unsafe { core::mem::transmute(self.mutex.as_ref()) };
        let (guard, was_clean) = match mutex.lock() {
            Ok(guard) => (guard, true),
            Err(LockError::OwnerDied(died)) => (died.make_consistent(), false),
            Err(error) => panic!("{error}"),
        };
        // SAFETY: the holder is the caller.
        unsafe { (*self.guard.get()).write(guard) };
        was_clean
    }

    fn unlock(&self) {
        // SAFETY: as above; written by `lock`, and taken out once.
        drop(unsafe { (*self.guard.get()).assume_init_read() });
    }
}

fn locks_of_all_protocols(with_ceilings: bool) -> Vec<Box<dyn AnyLock>> {
    let pthread = |kind| -> Box<dyn AnyLock> { robust_support::Lock::new(kind) };
    let mut locks = vec![
        Kept::<WaitWake<Shared>>::boxed(),
        pthread(robust_support::Kind::Pthread),
        Kept::<Inherit<Shared>>::boxed(),
        pthread(robust_support::Kind::PthreadInherit),
        Kept::<Inherit<Private>>::boxed(),
        Kept::<Throughput<Shared>>::boxed(),
        Kept::<WaitWake<Private>>::boxed(),
    ];
    if with_ceilings {
        locks.push(Kept::<Protect<Shared>>::boxed());
    }
    locks
}

/// Taken and released in random orders, until the thread ends: what it held is reported, and nothing else.
#[test]
fn all_protocols_and_pthreads_are_held_side_by_side_in_any_order() {
    let trial = Trial::begin("all_protocols_and_pthreads_are_held_side_by_side_in_any_order");
    let locks = locks_of_all_protocols(may_use_priorities(
        "the part with ceilings of all_protocols_and_pthreads_are_held_side_by_side_in_any_order",
    ));
    let mut rng = trial.seed().rng(0);
    for _ in 0..trial.times(3_000) {
        let steps: Vec<usize> = (0..rng.usize(..50))
            .map(|_| rng.usize(..locks.len()))
            .collect();
        let held = in_dying_thread(|| {
            let mut held = vec![false; locks.len()];
            for step in steps {
                if held[step] {
                    locks[step].unlock();
                } else {
                    assert!(locks[step].lock());
                }
                held[step] = !held[step];
                assert!(robust_support::list_is_whole(0));
            }
            assert_eq!(list_is_empty(), !held.contains(&true));
            assert_eq!(announced(), 0);
            held
        });
        for (lock, held) in locks.iter().zip(held) {
            assert_eq!(lock.lock(), !held);
            lock.unlock();
            assert!(lock.lock());
            lock.unlock();
        }
        trial.progress();
    }
}

/// Real-time tasks go past the gate, so that several ask the kernel for the word at once.
#[test]
fn several_waiters_that_detect_such_an_owner_exclude_each_other() {
    const TASKS: u32 = 4;
    let name = "several_waiters_that_detect_such_an_owner_exclude_each_other";
    if !may_be_real_time(name) {
        return;
    }
    let trial = Trial::begin(name);
    let lock = pin!(Mutex::robust_inherit(0_u32));
    let lock = lock.as_ref();
    // SAFETY: the word is the lock's first.
    let word = unsafe { &*core::ptr::from_ref(lock.get_ref()).cast::<AtomicU32>() };
    let gone = ThreadId::default();
    in_thread(|| gone.set());
    let inside = AtomicU32::new(0);
    let both = std::sync::Barrier::new(TASKS as usize + 1);
    let rounds = trial.times(1_000);
    thread::scope(|scope| {
        for task in 0..TASKS {
            let (inside, both) = (&inside, &both);
            scope.spawn(move || {
                assert!(make_real_time(0, 1 + task as i32 % 3));
                for _ in 0..rounds {
                    both.wait();
                    let held = match lock.lock() {
                        Ok(held) => held,
                        Err(LockError::OwnerDied(died)) => died.make_consistent(),
                        Err(error) => panic!("{error}"),
                    };
                    assert_eq!(inside.swap(1 + task, Ordering::AcqRel), 0);
                    for _ in 0..500 {
                        core::hint::spin_loop();
                    }
                    assert_eq!(inside.swap(0, Ordering::AcqRel), 1 + task);
                    drop(held);
                    both.wait();
                }
            });
        }
        for _ in 0..rounds {
            word.store(gone.number().cast_unsigned(), Ordering::Release);
            both.wait();
            both.wait();
            trial.progress();
        }
    });
}

#[test]
fn sleepers_at_the_gate_pass_a_stopped_top_waiter_also_under_signals() {
    let trial = Trial::begin("sleepers_at_the_gate_pass_a_stopped_top_waiter_also_under_signals");
    let lock = Mapped::new(Mutex::robust_throughput(0_u32));
    let held = lock.pin().lock().unwrap();
    let mut top = Child::fork(|| drop(lock.pin().lock()));
    trial.wait_until(|| top.is_in_futex());
    let next = Child::fork(|| {
        handle_nothing(libc::SIGALRM);
        let often = libc::timeval {
            tv_sec: 0,
            tv_usec: 10_000,
        };
        let timer = libc::itimerval {
            it_interval: often,
            it_value: often,
        };
        // SAFETY: the kernel reads the times; the signal has a handler.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, core::ptr::null_mut()) };
        drop(lock.pin().lock().unwrap());
    });
    trial.wait_until(|| next.is_in_futex());
    top.signal(libc::SIGSTOP);
    drop(held);
    next.succeed();
    top.kill();
}

/// A handler for a signal that is to interrupt sleeps, and nothing else.
fn handle_nothing(signal: libc::c_int) {
    // SAFETY: all-zero is a valid sigaction; the handler is safe to run anywhere.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, core::ptr::null_mut());
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

#[test]
fn a_signal_handler_ends_an_interruptible_wait_and_leaves_no_boost() {
    fn wait_is_ended<K: Kind + Interruptible>(trial: &Trial) {
        let lock = pin!(K::mutex(0));
        let lock = lock.as_ref();
        let held = lock.lock().unwrap();
        let (id, ended) = (ThreadId::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                OTHER.give(0);
                id.set();
                let result = lock.lock_interruptible(None);
                assert!(matches!(result, Err(LockError::Interrupted)));
                assert_eq!(now(), OTHER);
                assert!(list_is_empty());
                ended.store(true, Ordering::Release);
            });
            trial.wait_until(|| id.is_in_futex());
            // One that comes between two sleeps ends nothing.
            trial.wait_until(|| {
                id.signal(libc::SIGUSR1);
                ended.load(Ordering::Acquire)
            });
        });
        drop(held);
        drop(lock.lock_interruptible(None).unwrap());
    }
    let name = "a_signal_handler_ends_an_interruptible_wait_and_leaves_no_boost";
    let trial = Trial::begin(name);
    handle_nothing(libc::SIGUSR1);
    wait_is_ended::<WaitWake<Shared>>(&trial);
    wait_is_ended::<Throughput<Shared>>(&trial);
    if may_use_priorities(name) {
        wait_is_ended::<Protect<Shared>>(&trial);
    }
}

#[test]
fn a_deadlock_of_robust_inherit_locks_is_reported() {
    let _trial = Trial::begin("a_deadlock_of_robust_inherit_locks_is_reported");
    for _ in 0..30 {
        let locks = [(); 2].map(|()| Box::pin(Mutex::robust_inherit(0)));
        let (both, reports) = (std::sync::Barrier::new(2), AtomicU32::new(0));
        thread::scope(|scope| {
            for task in 0..2 {
                let (locks, both, reports) = (&locks, &both, &reports);
                scope.spawn(move || {
                    let _mine = locks[task].as_ref().lock().unwrap();
                    both.wait();
                    match locks[1 - task].as_ref().lock() {
                        Ok(_) => {}
                        Err(LockError::Deadlock) => drop(reports.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        // Both get the report if they complete the cycle at the same moment.
        assert!((1..=2).contains(&reports.into_inner()));
        for lock in &locks {
            drop(lock.as_ref().try_lock().unwrap());
        }
    }
}

#[test]
fn the_owner_of_a_robust_lock_runs_at_its_waiters_priority_also_after_an_owner_death() {
    let name = "the_owner_of_a_robust_lock_runs_at_its_waiters_priority_also_after_an_owner_death";
    if !may_be_real_time(name) {
        return;
    }
    let trial = Trial::begin(name);
    let lock = pin!(Mutex::robust_inherit(0));
    let lock = lock.as_ref();
    for died in [false, true] {
        if died {
            leave_dead_owner(lock, 1);
        }
        let (holder, done) = (Task::new(), AtomicBool::new(false));
        let id = ThreadId::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = match lock.lock() {
                    Ok(held) => held,
                    Err(LockError::OwnerDied(held)) => held.make_consistent(),
                    Err(error) => panic!("{error}"),
                };
                holder.begin();
                trial.wait_until(|| done.load(Ordering::Acquire));
                drop(held);
            });
            holder.wait_for_priority(ordinary());
            scope.spawn(|| {
                assert!(make_real_time(0, 20));
                id.set();
                drop(lock.lock().unwrap());
            });
            trial.wait_until(|| id.is_in_futex());
            holder.wait_for_priority(-21);
            done.store(true, Ordering::Release);
        });
    }
}

/// After every way out of a lock call the priority is the task's own again.
#[test]
fn a_robust_critical_section_runs_at_the_ceiling_also_after_an_owner_death() {
    with_priorities(|trial| {
        for own in [OTHER, fair(libc::SCHED_BATCH), fifo(10), fifo(30)] {
            own.give(0);
            Protect::priority_changed();
            let lock = pin!(Mutex::robust_protect(30, 0));
            let lock = lock.as_ref();
            assert_eq!(lock.ceiling(), 30);
            let inside = |guard: RobustGuard<'_, u32, Protect<Shared>>| {
                assert_eq!(now().priority, 30);
                drop(guard);
                assert_eq!(now(), own);
            };
            inside(lock.lock().unwrap());
            inside(lock.try_lock().unwrap());
            in_dying_thread(|| forget(lock.lock()));
            match lock.lock() {
                Err(LockError::OwnerDied(died)) => inside(died.make_consistent()),
                other => panic!("{other:?}"),
            }
            // Nested with others, released in the other order.
            let outer = pin!(Mutex::robust_protect(40, 0));
            let first = lock.lock().unwrap();
            let second = outer.as_ref().lock().unwrap();
            drop(first);
            assert_eq!(now().priority, 40);
            drop(second);
            assert_eq!(now(), own);
            // A waiter gets in at the ceiling, and sleeps at its own priority.
            let held = lock.lock().unwrap();
            let (id, waiter) = (ThreadId::default(), latchwork_testkit::priority::Now::of);
            thread::scope(|scope| {
                scope.spawn(|| {
                    own.give(0);
                    id.set();
                    inside(lock.lock().unwrap());
                });
                trial.wait_until(|| id.is_in_futex());
                assert_eq!(waiter(id.number()), own);
                drop(held);
            });
            // Given up.
            in_dying_thread(|| forget(lock.lock()));
            drop(lock.lock());
            for _ in 0..3 {
                assert!(matches!(lock.lock(), Err(LockError::NotRecoverable)));
                assert_eq!(now(), own);
            }
        }
    });
}

#[test]
fn a_task_above_the_ceiling_is_refused_and_leaves_the_robust_lock_free() {
    with_priorities(|_| {
        fifo(40).give(0);
        let lock = pin!(Mutex::robust_protect(30, 0));
        let lock = lock.as_ref();
        for result in [lock.lock(), lock.try_lock()] {
            let Err(LockError::Refused(fault)) = result else {
                panic!("{result:?}")
            };
            assert_eq!(
                fault,
                ProtectFault::AboveCeiling {
                    own: 40,
                    ceiling: 30
                }
            );
        }
        assert!(list_is_empty());
        assert_eq!(now(), fifo(40));
        in_thread(|| {
            fifo(10).give(0);
            drop(lock.lock().unwrap());
        });
    });
}

/// Whoever was woken and may not enter any more passes that on.
#[test]
fn a_waiter_raised_above_the_ceiling_leaves_no_sleeper_behind() {
    with_priorities(|trial| {
        let lock = pin!(Mutex::robust_protect(30, 0));
        let lock = lock.as_ref();
        let held = lock.lock().unwrap();
        let ids: [ThreadId; 3] = Default::default();
        thread::scope(|scope| {
            for (index, id) in ids.iter().enumerate() {
                scope.spawn(move || {
                    fifo(10).give(0);
                    id.set();
                    match lock.lock() {
                        Ok(guard) => drop(guard),
                        Err(LockError::Refused(ProtectFault::AboveCeiling { .. })) => {
                            assert!(index < 2);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    assert!(list_is_empty());
                });
                trial.wait_until(|| id.is_in_futex());
            }
            fifo(50).give(ids[0].number());
            fifo(50).give(ids[1].number());
            drop(held);
        });
    });
}
