//! A throughput mutex whose owner is dead stays locked, and a waiter says so on standard error: once, with the lock, the
//! owner and the waiter. A living owner is not reported, however long it holds the lock.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::time::Duration;
use latchwork::mutex::{Mutex, Throughput};
use latchwork::sharing::{Shared, Sharing};
use latchwork_testkit::{Child, Exit, Mapped, Trial};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::thread;

/// Shorter than any nap of a waiter, and longer: a waiter looks when either ends.
const WAITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(250)];

/// What children write to standard error.
struct Said(File);

impl Said {
    fn new() -> Self {
        // SAFETY: makes a file without a name, which nobody else owns.
        let file = unsafe {
            let file = libc::memfd_create(c"said".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0);
            File::from_raw_fd(file)
        };
        Self(file)
    }

    /// Runs a body in a child that writes there.
    fn child(&self, body: impl FnOnce()) -> Child {
        Child::fork(|| {
            // SAFETY: replaces the child's own standard error.
            unsafe { assert_eq!(libc::dup2(self.0.as_raw_fd(), 2), 2) };
            body();
        })
    }

    fn text(&self) -> String {
        let mut bytes = vec![0; self.0.metadata().unwrap().len() as usize];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Asserts that it is one line, of this lock and its owner, and returns the line.
    #[track_caller]
    fn is_one_report<S: Sharing>(&self, lock: &Throughput<S>, owner: u32, why: &str) -> String {
        let text = self.text();
        let address = core::ptr::from_ref(lock).addr();
        let expected = format!(
            "latchwork: the throughput mutex at {address:#x} is held by task {owner}, which {why}; task "
        );
        assert!(
            text.starts_with(&expected),
            "{text:?} instead of {expected:?}"
        );
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        text
    }
}

type SharedMutex = Mapped<Mutex<u64, Throughput<Shared>>>;

fn shared() -> SharedMutex {
    Mapped::new(Mutex::from_raw(Throughput::new(), 0))
}

/// A child that holds the lock until it is killed.
fn owner_of(trial: &Trial, mutex: &SharedMutex) -> Child {
    let owner = Child::fork(|| {
        let _guard = mutex.lock();
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| mutex.protocol().owner().is_some());
    owner
}

/// Waits in vain, several times.
fn wait_in_vain<S: Sharing>(mutex: &Mutex<u64, Throughput<S>>) {
    for wait in WAITS {
        for _ in 0..3 {
            assert!(mutex.lock_for(wait).is_none());
        }
    }
}

#[test]
fn a_killed_owner_is_reported_once_and_a_living_one_never() {
    let trial = Trial::begin("a_killed_owner_is_reported");
    let mutex = shared();
    let mut owner = owner_of(&trial, &mutex);
    let said = Said::new();
    said.child(|| wait_in_vain(&mutex)).succeed();
    assert_eq!(said.text(), "", "the owner lives");
    assert_eq!(owner.kill(), Exit::Signal(libc::SIGKILL));
    let waiter = said.child(|| wait_in_vain(&mutex));
    let pid = waiter.pid();
    waiter.succeed();
    let line = said.is_one_report(mutex.protocol(), owner.pid().cast_unsigned(), "has ended");
    assert!(
        line.contains(&format!("; task {pid} waits for it ")),
        "{line}"
    );
    // It is still locked.
    assert!(mutex.try_lock().is_none());
    assert!(mutex.protocol().owner_is_gone());
}

/// The owner is killed while the waiter sleeps, without a deadline.
#[test]
fn a_waiter_without_a_deadline_reports_its_owners_death_and_waits_on() {
    let trial = Trial::begin("a_waiter_without_a_deadline");
    let mutex = shared();
    let mut owner = owner_of(&trial, &mutex);
    let said = Said::new();
    let mut waiter = said.child(|| drop(mutex.lock()));
    trial.wait_until(|| waiter.is_in_futex());
    owner.kill();
    trial.wait_until(|| said.text().ends_with('\n'));
    trial.wait_until(|| waiter.is_in_futex());
    assert_eq!(waiter.try_wait(), None, "it does not take the lock");
    assert_eq!(waiter.kill(), Exit::Signal(libc::SIGKILL));
    said.is_one_report(mutex.protocol(), owner.pid().cast_unsigned(), "has ended");
}

#[test]
fn a_thread_that_ended_with_the_lock_is_reported_once_by_many_waiters() {
    let _trial = Trial::begin("a_thread_that_ended");
    let mutex = Mutex::throughput(0);
    let said = Said::new();
    let found = Mapped::new(core::sync::atomic::AtomicU32::new(0));
    said.child(|| {
        thread::scope(|scope| {
            scope.spawn(|| forget(mutex.lock())).join().unwrap();
        });
        let owner = mutex.protocol().owner().unwrap();
        found.store(owner, core::sync::atomic::Ordering::Relaxed);
        // `join` may return before the thread's end is complete.
        while !mutex.protocol().owner_is_gone() {
            thread::yield_now();
        }
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| wait_in_vain(&mutex));
            }
        });
    })
    .succeed();
    let owner = found.load(core::sync::atomic::Ordering::Relaxed);
    said.is_one_report(mutex.protocol(), owner, "is no thread of this process");
}

/// The copy of a private lock in the child of a fork is held by a thread that the child does not have.
#[test]
fn a_child_of_a_fork_reports_the_lock_of_its_parents_thread() {
    let _trial = Trial::begin("a_child_of_a_fork");
    let mutex = Mutex::throughput(0);
    let said = Said::new();
    let guard = mutex.lock();
    let owner = mutex.protocol().owner().unwrap();
    said.child(|| wait_in_vain(&mutex)).succeed();
    said.is_one_report(mutex.protocol(), owner, "is no thread of this process");
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

/// Threads of one process that hold it for longer than waiters nap.
#[test]
fn a_thread_that_holds_the_lock_for_long_is_not_reported() {
    let _trial = Trial::begin("holds_the_lock_for_long");
    let said = Said::new();
    said.child(|| {
        let mutex = Mutex::throughput(0);
        let _guard = mutex.lock();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| wait_in_vain(&mutex));
            }
        });
    })
    .succeed();
    assert_eq!(said.text(), "");
}
