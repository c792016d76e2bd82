//! Owners and waiters in other processes: killed, stopped, forked.

use super::inherit_support::{Lock, wait_until_asleep, wait_until_asleep_at};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::mutex::{Inherit, InheritFault, InheritPlain, Mutex};
use latchwork::sharing::{Private, Shared};
use latchwork_testkit::Mapped;
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

/// A child that sleeps on the word of a lock.
fn asleep(lock: &impl Lock, body: impl FnOnce()) -> Child {
    let child = Child::fork(body);
    wait_until_asleep(child.pid(), lock.word());
    child
}

/// A child that sleeps at the gate of a lock; or on its word, if its nap at the gate is over.
fn behind(lock: &impl Lock, body: impl FnOnce()) -> Child {
    let child = Child::fork(body);
    wait_until_asleep_at(child.pid(), &[lock.gate(), lock.word()]);
    child
}

fn killed_owners_are_reported<L: Lock>(trial: &Trial) {
    for with_waiters in [true, false] {
        let lock = Mapped::new(L::default());
        let mut owner = Child::fork(|| {
            lock.lock();
            loop {
                thread::park();
            }
        });
        trial.wait_until(|| lock.holder().is_some());
        let is_reported = || assert_eq!(lock.acquire(), Err(InheritFault::OwnerGone));
        let waiters = with_waiters.then(|| [(); 3].map(|()| behind(&*lock, is_reported)));
        owner.kill();
        if with_waiters {
            waiters.into_iter().flatten().for_each(Child::succeed);
        } else {
            assert_eq!(lock.try_acquire(), Ok(false), "nobody has noticed");
        }
        is_reported();
        assert_eq!(lock.try_acquire(), Err(InheritFault::OwnerGone));
    }
}

#[test]
fn a_killed_owner_is_reported_in_every_process() {
    let trial = Trial::begin("a_killed_owner_is_reported_in_every_process");
    for _ in 0..trial.times(5) {
        killed_owners_are_reported::<Inherit<Shared>>(&trial);
        killed_owners_are_reported::<InheritPlain<Shared>>(&trial);
    }
}

#[test]
fn the_death_of_the_gates_owner_frees_the_gate() {
    let trial = Trial::begin("the_death_of_the_gates_owner_frees_the_gate");
    for with_heir in [true, false] {
        for _ in 0..trial.times(5) {
            let lock = Mapped::new(Inherit::<Shared>::new());
            lock.lock();
            let mut owner = asleep(&*lock, || lock.enter());
            let next = || behind(&*lock, || lock.enter());
            let heir = with_heir.then(next);
            owner.kill();
            let second = asleep(&*lock, || lock.enter());
            lock.unlock();
            heir.into_iter().chain([second]).for_each(Child::succeed);
            assert!(lock.try_lock());
        }
    }
}

#[test]
fn a_stopped_owner_of_the_gate_delays_waiters_for_a_bounded_time() {
    let _trial = Trial::begin("a_stopped_owner_of_the_gate_delays_waiters_for_a_bounded_time");
    let lock = Mapped::new(Inherit::<Shared>::new());
    lock.lock();
    let owner = asleep(&*lock, || lock.enter());
    owner.signal(libc::SIGSTOP);
    let other = behind(&*lock, || lock.enter());
    wait_until_asleep(other.pid(), lock.word());
    lock.unlock();
    other.succeed();
    lock.enter();
    owner.signal(libc::SIGCONT);
    owner.succeed();
    assert!(lock.try_lock());
}

#[test]
fn the_child_of_a_fork_takes_over_the_gate_of_a_thread_of_its_parent() {
    let _trial = Trial::begin("the_child_of_a_fork_takes_over_the_gate_of_a_thread_of_its_parent");
    let parent = std::process::id();
    Child::fork(|| {
        let lock = Inherit::<Private>::new();
        // SAFETY: the lock's second word, which outlives the scope.
        let gate = unsafe { AtomicU32::from_ptr(lock.gate() as *mut u32) };
        gate.store(parent, Ordering::Relaxed);
        lock.lock();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.enter());
            while gate.load(Ordering::Relaxed) & libc::FUTEX_TID_MASK == parent {
                assert!(!waiter.is_finished());
                thread::yield_now();
            }
            lock.unlock();
        });
        assert_eq!(gate.load(Ordering::Relaxed), 0);
    })
    .succeed();
}

#[test]
fn an_inherited_guard_aborts_the_child_and_leaves_the_parents_lock_alone() {
    let _trial = Trial::begin("an_inherited_inheriting_guard_aborts_the_child");
    let aborts = |mut child: Child| assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    let private = Mutex::inherit(0_u32);
    let shared = Mapped::new(Mutex::from_raw(InheritPlain::<Shared>::new(), 0_u32));
    let (mine, ours) = (private.lock().unwrap(), shared.lock().unwrap());
    // SAFETY: copies of the guards, as the child of a fork has them.
    let (my_copy, our_copy) = unsafe {
        (
            || core::ptr::read(&raw const mine),
            || core::ptr::read(&raw const ours),
        )
    };
    aborts(Child::fork(|| drop(my_copy())));
    aborts(Child::fork(|| drop(our_copy())));
    // Also when the child is a task of its own by then.
    aborts(Child::fork(|| {
        *Mutex::inherit(0).lock().unwrap() += 1;
        drop(our_copy());
    }));
    drop((mine, ours));
    assert!(private.try_lock().unwrap().is_some() && shared.try_lock().unwrap().is_some());
    Child::fork(|| *shared.lock().unwrap() += 1).succeed();
    assert_eq!(*shared.lock().unwrap(), 1);
}
