//! Robust mutexes beside pthread's: fork, raw clone, exec, signals, panics and thread exit.
//! (`kill_robust.rs` kills at random and at every instruction.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork_testkit::{Child, Exit, Trial, die, in_dying_thread};
use std::cell::RefCell;
use std::thread;

#[path = "../robust_support/mod.rs"]
mod robust_support;

mod forks;

use latchwork_testkit::Mapped;
use robust_support::{Kind, Lock, announced, list_is_empty};

type Ours = Mutex<u32, Robust>;

/// Takes the lock in a thread that dies with it.
fn leave_dead_owner(lock: Pin<&Ours>, value: u32) {
    in_dying_thread(|| {
        let mut guard = lock.lock().unwrap();
        *guard = value;
        forget(guard);
    });
}

fn expect_owner_died(lock: Pin<&Ours>) {
    match lock.lock() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    }
    drop(lock.lock().unwrap());
}

fn permutations(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![vec![]];
    }
    let shorter = permutations(of - 1);
    let insert = |order: &Vec<usize>, at: usize| [&order[..at], &[of - 1], &order[at..]].concat();
    shorter
        .iter()
        .flat_map(|order| (0..of).map(move |at| insert(order, at)))
        .collect()
}

/// All orders of taking four locks of three kinds, all orders of releasing them, all points at which
/// the thread may die.
#[test]
fn ours_and_pthreads_are_held_side_by_side_in_any_order() {
    let trial = Trial::begin("ours_and_pthreads_are_held_side_by_side_in_any_order");
    let locks = [Kind::Ours, Kind::Pthread, Kind::Ours, Kind::PthreadInherit].map(Lock::new);
    let orders = permutations(locks.len());
    for taken in &orders {
        for released in &orders {
            for count in 0..=locks.len() {
                in_dying_thread(|| {
                    taken.iter().for_each(|index| assert!(locks[*index].lock()));
                    released[..count]
                        .iter()
                        .for_each(|index| locks[*index].unlock());
                    assert_eq!(list_is_empty(), count == locks.len());
                    assert_eq!(announced(), 0);
                });
                for index in &released[count..] {
                    assert!(
                        locks[*index].recover(),
                        "{taken:?} {released:?} {count}: {index} is not reported"
                    );
                }
                for lock in &locks {
                    assert!(lock.lock());
                    lock.unlock();
                }
            }
        }
        trial.progress();
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, failure_persistence: None, ..Default::default() })]

    /// Each number takes or releases the lock of that number; in the end the thread dies.
    #[test]
    fn any_sequence_of_locks_and_unlocks_ends_with_held_locks_reported(
        steps in proptest::collection::vec(0..9_usize, 0..60),
    ) {
        let locks: Vec<Box<Lock>> = (0..9).map(|index| Lock::new([Kind::Ours, Kind::Pthread, Kind::PthreadInherit][index % 3])).collect();
        let mut held = [false; 9];
        in_dying_thread(|| {
            for step in steps {
                if held[step] {
                    locks[step].unlock();
                } else {
                    assert!(locks[step].lock());
                }
                held[step] = !held[step];
            }
        });
        for (lock, held) in locks.iter().zip(held) {
            if held {
                assert!(lock.recover());
            }
            assert!(lock.lock());
            lock.unlock();
        }
    }
}

#[test]
fn a_killed_process_leaves_all_its_locks_to_others() {
    let _trial = Trial::begin("a_killed_process_leaves_all_its_locks_to_others");
    let kinds = [
        Kind::Ours,
        Kind::Pthread,
        Kind::Ours,
        Kind::PthreadInherit,
        Kind::Ours,
        Kind::Pthread,
    ];
    let locks = Mapped::new(kinds.map(Lock::in_place));
    locks.iter().for_each(Lock::initialise);
    let mut child = Child::fork(|| {
        locks.iter().for_each(|lock| assert!(lock.lock()));
        die();
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
    assert!(locks.iter().all(Lock::recover));
    // And in a process that did not make them.
    let mut child = Child::fork(|| {
        locks.iter().for_each(|lock| assert!(lock.lock()));
        die();
    });
    child.wait();
    Child::fork(|| assert!(locks.iter().all(Lock::recover))).succeed();
}

#[test]
fn a_panic_of_the_owner_is_reported() {
    let _trial = Trial::begin("a_panic_of_the_owner_is_reported");
    let lock = pin!(Mutex::robust(0_u32));
    let lock = lock.as_ref();
    let panics = |body: &(dyn Fn() + Sync)| {
        thread::scope(|scope| assert!(scope.spawn(body).join().is_err()))
    };
    panics(&|| {
        let _guard = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new("while holding"));
    });
    // Dropped by another panic, it is inconsistent still; not given up.
    panics(&|| {
        let _died = lock.lock().unwrap_err();
        std::panic::resume_unwind(Box::new("while repairing"));
    });
    expect_owner_died(lock);

    struct LocksOnDrop<'a>(Pin<&'a Ours>);
    impl Drop for LocksOnDrop<'_> {
        fn drop(&mut self) {
            assert!(thread::panicking());
            *self.0.lock().unwrap() += 1;
        }
    }
    panics(&|| {
        let _late = LocksOnDrop(lock);
        std::panic::resume_unwind(Box::new("before"));
    });
    // Released while the thread panics: taken for torn, to be on the safe side.
    let Err(LockError::OwnerDied(died)) = lock.lock() else {
        panic!("the panic was not reported")
    };
    assert_eq!(*died.make_consistent(), 1);
    assert_eq!(*lock.lock().unwrap(), 1);
}

#[test]
fn torn_data_of_any_type_can_be_replaced() {
    let _trial = Trial::begin("torn_data_of_any_type_can_be_replaced");
    let lock = pin!(Mutex::robust(String::from("whole")));
    let lock = lock.as_ref();
    in_dying_thread(|| forget(lock.lock()));
    let Err(LockError::OwnerDied(mut died)) = lock.lock() else {
        panic!("the death was not reported")
    };
    // SAFETY: the owner did not touch the data.
    assert_eq!(unsafe { died.as_uninit().assume_init_ref() }, "whole");
    // SAFETY: a value takes the place of one that is dropped.
    unsafe {
        let place = died.as_uninit_mut();
        place.assume_init_drop();
        place.write(String::from("repaired"));
    }
    // SAFETY: as above.
    drop(unsafe { died.as_uninit().assume_init_read() });
    assert_eq!(*died.replace(String::from("new")), "new");
    assert_eq!(*lock.lock().unwrap(), "new");
}

#[test]
fn reset_makes_a_dead_owners_lock_usable() {
    let _trial = Trial::begin("reset_makes_a_dead_owners_lock_usable");
    let mut lock = pin!(Mutex::robust(0_u32));
    leave_dead_owner(lock.as_ref(), 3);
    lock.as_mut().reset(4);
    assert_eq!(*lock.as_ref().lock().unwrap(), 4);
}

/// And no failure of a lock counts as one held.
#[test]
fn more_locks_than_the_kernel_would_release_are_refused() {
    let _trial = Trial::begin("more_locks_than_the_kernel_would_release_are_refused");
    let lost = pin!(Mutex::robust(0_u32));
    let lost = lost.as_ref();
    leave_dead_owner(lost, 1);
    drop(lost.lock().unwrap_err());
    let locks: Vec<Ours> = (0..2048).map(|_| Mutex::robust(0)).collect();
    // SAFETY: the vector is neither moved nor changed below.
    let pinned = |index: usize| unsafe { Pin::new_unchecked(&locks[index]) };
    let count = in_dying_thread(|| {
        for _ in 0..3000 {
            assert!(matches!(lost.lock(), Err(LockError::NotRecoverable)));
        }
        let count = (0..locks.len())
            .take_while(|index| match pinned(*index).lock() {
                Ok(guard) => {
                    forget(guard);
                    true
                }
                Err(LockError::TooManyHeld) => false,
                Err(error) => panic!("{error}"),
            })
            .count();
        assert!(matches!(
            pinned(count).try_lock(),
            Err(LockError::TooManyHeld)
        ));
        count
    });
    assert!((1024..2048).contains(&count), "{count}");
    (0..count).for_each(|index| expect_owner_died(pinned(index)));
    (count..locks.len()).for_each(|index| drop(pinned(index).lock().unwrap()));
}

#[test]
fn a_fork_cannot_repair_what_its_parent_was_told_of() {
    let _trial = Trial::begin("a_fork_cannot_repair_what_its_parent_was_told_of");
    let lock = Mapped::new(Mutex::robust(0_u32));
    let lock = lock.pin();
    in_dying_thread(|| forget(lock.lock().unwrap()));
    let Err(LockError::OwnerDied(died)) = lock.lock() else {
        panic!("the owner's death is not reported");
    };
    // SAFETY: a valid guard; used in a child only, which that ends.
    let inherited = || unsafe { core::ptr::read(&died) };
    let aborts = |mut child: Child| assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    aborts(Child::fork(|| forget(inherited().make_consistent())));
    aborts(Child::fork(|| forget(inherited().replace(1))));
    drop(died);
    assert!(matches!(lock.lock(), Err(LockError::NotRecoverable)));
}

#[test]
fn destroying_a_held_lock_aborts() {
    let _trial = Trial::begin("destroying_a_held_lock_aborts");
    let mut child = Child::fork(|| {
        let lock = Box::pin(Mutex::robust(0_u32));
        forget(lock.as_ref().lock());
        drop(lock);
    });
    assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    // A lock whose owner died has no owner.
    let lock = Box::pin(Mutex::robust(0_u32));
    leave_dead_owner(lock.as_ref(), 1);
    drop(lock);
}

/// libc destroys a thread's variables in an order of its own: some may lock after ours are gone.
#[test]
fn a_thread_local_destructor_may_lock() {
    static LATE: Ours = Mutex::robust(0);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            *Pin::static_ref(&LATE).lock().unwrap() += 1;
        }
    }
    std::thread_local!(static EARLY_MADE: RefCell<Option<Late>> = const { RefCell::new(None) });
    let _trial = Trial::begin("a_thread_local_destructor_may_lock");
    for first in [true, false] {
        thread::spawn(move || {
            // In either order of making, so in either order of destroying.
            if first {
                EARLY_MADE.set(Some(Late));
            }
            drop(Pin::static_ref(&LATE).lock().unwrap());
            EARLY_MADE.set(None);
            EARLY_MADE.set(Some(Late));
        })
        .join()
        .unwrap();
    }
    assert_eq!(*Pin::static_ref(&LATE).lock().unwrap(), 3);
}

#[test]
fn a_guard_in_a_thread_local_is_released_at_the_threads_end() {
    static LOCK: Ours = Mutex::robust(0);
    thread_local! {
        static KEPT: RefCell<Option<RobustGuard<'static, u32>>> = const { RefCell::new(None) };
    }
    thread::spawn(|| {
        // Its destructor is known before the thread is a task, and so runs after that has ended.
        KEPT.with(|kept| assert!(kept.borrow().is_none()));
        let mut guard = Pin::static_ref(&LOCK).lock().unwrap();
        *guard = 1;
        KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
    })
    .join()
    .unwrap();
    assert_eq!(*Pin::static_ref(&LOCK).lock().unwrap(), 1);
}

#[test]
fn torn_data_is_neither_dropped_nor_lent_with_its_lock_and_whole_data_is() {
    #[derive(Debug)]
    struct Counted<'a>(&'a AtomicU32);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = AtomicU32::new(0);
    let make = || Box::pin(Mutex::robust(Counted(&drops)));
    let leave_dead_owner = |lock: Pin<&Mutex<Counted<'_>, Robust>>| {
        in_dying_thread(|| forget(lock.lock()));
    };
    let is_lent = |lock: Pin<&mut Mutex<Counted<'_>, Robust>>| {
        // SAFETY: nothing is moved.
        unsafe { lock.get_unchecked_mut() }.get_mut().is_some()
    };
    let mut lock = make();
    drop(lock.as_ref().lock());
    assert!(is_lent(lock.as_mut()));
    drop(lock);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let mut lock = make();
    leave_dead_owner(lock.as_ref());
    assert!(!is_lent(lock.as_mut()));
    drop(lock);
    let lock = make();
    leave_dead_owner(lock.as_ref());
    drop(lock.as_ref().lock());
    drop(lock);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let lock = make();
    leave_dead_owner(lock.as_ref());
    match lock.as_ref().lock() {
        Err(LockError::OwnerDied(died)) => drop(died.replace(Counted(&drops))),
        other => panic!("{other:?}"),
    }
    drop(lock);
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}
