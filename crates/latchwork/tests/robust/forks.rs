//! Children by fork, `_Fork` and raw clone, and exec: which locks they hold, and whose death is reported.

use super::robust_support::{Kind, Lock};
use super::{die, expect_owner_died};
use core::mem::forget;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use latchwork::mutex::{LockError, Mutex};
use latchwork_testkit::Mapped;
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

#[test]
fn a_forked_child_holds_nothing_and_owns_what_it_locks() {
    let _trial = Trial::begin("a_forked_child_holds_nothing_and_owns_what_it_locks");
    let locks = Mapped::new([const { Mutex::robust(0_u32) }; 2]);
    let [parents, childs] = locks.each();
    let pthread = Lock::new(Kind::Pthread);
    assert!(pthread.lock());
    let guard = parents.lock().unwrap();
    let mut child = Child::fork(|| {
        assert!(matches!(parents.try_lock(), Err(LockError::WouldBlock)));
        assert!(matches!(
            parents.lock_for(Duration::from_millis(1)),
            Err(LockError::TimedOut)
        ));
        *childs.lock().unwrap() = 1;
        assert!(matches!(childs.lock(), Ok(guard) if *guard == 1));
        forget(childs.lock().unwrap());
        die();
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
    expect_owner_died(childs);
    // The parent's own is still its own, and not reported as a dead one's.
    assert!(matches!(parents.lock(), Err(LockError::Deadlock)));
    drop(guard);
    drop(parents.lock().unwrap());
    pthread.unlock();
}

#[test]
fn an_inherited_guard_aborts_the_child_and_leaves_the_parents_lock_alone() {
    let _trial =
        Trial::begin("an_inherited_guard_aborts_the_child_and_leaves_the_parents_lock_alone");
    let lock = Mapped::new(Mutex::robust(0_u32));
    let guard = lock.pin().lock().unwrap();
    // SAFETY: a copy of the guard, as the child of a fork has it.
    let inherited = || unsafe { core::ptr::read(&raw const guard) };
    let aborts = |mut child: Child| assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    aborts(Child::fork(|| drop(inherited())));
    // Also when the child is a task of its own by then, and in a grandchild.
    let other = Mapped::new(Mutex::robust(0_u32));
    aborts(Child::fork(|| {
        drop(other.pin().lock().unwrap());
        drop(inherited());
    }));
    Child::fork(|| aborts(Child::fork(|| drop(inherited())))).succeed();
    assert!(matches!(lock.pin().lock(), Err(LockError::Deadlock)));
    drop(guard);
    drop(lock.pin().lock().unwrap());
}

unsafe extern "C" {
    fn _Fork() -> libc::pid_t;
}

#[test]
fn children_of_every_kind_own_their_own_locks() {
    let _trial = Trial::begin("children_of_every_kind_own_their_own_locks");
    let locks = Mapped::new([const { Mutex::robust(0_u32) }; 3]);
    let [first, second, parents] = locks.each();
    let take_both_and_die = || {
        forget(first.lock());
        forget(second.lock());
        die();
    };
    let guard = parents.lock().unwrap();
    let check = || {
        expect_owner_died(first);
        expect_owner_died(second);
        assert!(matches!(parents.lock(), Err(LockError::Deadlock)));
    };
    assert_eq!(
        Child::clone_raw(take_both_and_die).wait(),
        Exit::Signal(libc::SIGKILL)
    );
    check();
    // SAFETY: the child takes locks and dies: nothing that another thread's state could disturb.
    let pid = unsafe { _Fork() };
    if pid == 0 {
        take_both_and_die();
    }
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, core::ptr::null_mut(), 0) }, pid);
    check();
    // A raw clone of a raw clone.
    Child::clone_raw(|| {
        drop(first.lock().unwrap());
        assert_eq!(
            Child::clone_raw(take_both_and_die).wait(),
            Exit::Signal(libc::SIGKILL)
        );
        expect_owner_died(first);
        expect_owner_died(second);
    })
    .succeed();
    drop(guard);
}

#[test]
fn a_raw_clone_of_an_unregistered_thread_can_own_locks() {
    let _trial = Trial::begin("a_raw_clone_of_an_unregistered_thread_can_own_locks");
    let lock = Mapped::new(Mutex::robust(0_u32));
    let end = thread::scope(|scope| {
        let newcomer = scope.spawn(|| {
            Child::clone_raw(|| {
                forget(lock.pin().lock());
                die();
            })
            .wait()
        });
        newcomer.join().unwrap()
    });
    assert_eq!(end, Exit::Signal(libc::SIGKILL));
    expect_owner_died(lock.pin());
}

/// Its list head lies in memory of ours, which the kernel needs until the very end.
#[test]
fn a_raw_clone_of_an_unregistered_thread_may_exit_with_a_lock() {
    let _trial = Trial::begin("a_raw_clone_of_an_unregistered_thread_may_exit_with_a_lock");
    let lock = Mapped::new(Mutex::robust(0_u32));
    let end = thread::scope(|scope| {
        let newcomer = scope.spawn(|| {
            Child::clone_raw(|| {
                forget(lock.pin().lock());
                std::process::exit(3)
            })
            .wait()
        });
        newcomer.join().unwrap()
    });
    assert_eq!(end, Exit::Code(3));
    expect_owner_died(lock.pin());
}

/// (A second thread that calls exec itself is another matter, see `src/mutex/robust.rs`.)
#[test]
fn exec_counts_as_death_of_all_threads() {
    let trial = Trial::begin("exec_counts_as_death_of_all_threads");
    let locks =
        Mapped::new([Kind::Ours, Kind::Pthread, Kind::Ours, Kind::Pthread].map(Lock::in_place));
    locks.iter().for_each(Lock::initialise);
    let (mains, seconds) = locks.split_at(2);
    Child::fork(|| {
        let held = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                seconds.iter().for_each(|lock| assert!(lock.lock()));
                held.store(true, Ordering::Release);
                loop {
                    thread::park();
                }
            });
            mains.iter().for_each(|lock| assert!(lock.lock()));
            trial.wait_until(|| held.load(Ordering::Acquire));
            let path = c"/bin/true";
            // SAFETY: a path, and a list of arguments that ends with null.
            unsafe {
                libc::execl(
                    path.as_ptr(),
                    path.as_ptr(),
                    core::ptr::null::<libc::c_char>(),
                )
            };
        });
    })
    .succeed();
    assert!(locks.iter().all(Lock::recover));
}

/// A signal handler that forks, in the middle of a lock call, goes on in the child with the parent's `Me`. Its record
/// is wiped there: no correction of the budget may claim that it has a robust list.
#[test]
fn a_wiped_record_gets_no_budget() {
    let _trial = Trial::begin("a_wiped_record_gets_no_budget");
    let lock = Mapped::new(Mutex::robust(0_u32));
    let me = latchwork_sync::task::Me::get().unwrap();
    let corrections: [fn(latchwork_sync::task::Me); 3] =
        [|me| _ = me.recount(), |me| me.refund(), |me| me.spend()];
    for correct in corrections {
        Child::fork(|| {
            correct(me);
            assert_eq!(me.budget(), 0);
            *lock.pin().lock().unwrap() += 1;
        })
        .succeed();
    }
    Child::fork(|| {
        // SAFETY: the child only returns from the operation, and ends.
        let child = me.rely_on_attachment(|| unsafe { libc::fork() });
        if child != 0 {
            let mut status = 0;
            // SAFETY: a child of this process, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    })
    .succeed();
    assert_eq!(*lock.pin().lock().unwrap(), 3);
}

/// musl has the pointer to them where glibc's list has a link of its head.
#[test]
fn a_forked_child_that_locks_keeps_the_values_of_its_threads_keys() {
    const VALUE: usize = 0x1238;
    thread::spawn(|| {
        let mut key = 0;
        // SAFETY: a place for the key, without a destructor; the values are never used as pointers.
        unsafe {
            assert_eq!(libc::pthread_key_create(&raw mut key, None), 0);
            libc::pthread_setspecific(key, core::ptr::without_provenance(VALUE));
        }
        // musl now registers its head.
        let pthread = Lock::new(Kind::Pthread);
        assert!(pthread.lock());
        pthread.unlock();
        let lock = Mapped::new(Mutex::robust(0_u32));
        let lock = lock.pin();
        drop(lock.lock().unwrap());
        Child::fork(|| {
            drop(lock.lock().unwrap());
            // SAFETY: as above.
            assert_eq!(unsafe { libc::pthread_getspecific(key) }.addr(), VALUE);
        })
        .succeed();
    })
    .join()
    .unwrap();
}
