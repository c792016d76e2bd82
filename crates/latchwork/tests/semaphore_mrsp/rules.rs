//! The rules, which hold with privileges and without.

use super::bound::{bind, processors_of};
use super::make;
use super::semaphore_support::{current, me_at, priority, region, until, watched};
use core::time::Duration;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinarySemaphore, Helping, MrspSemaphore, ObtainError, ReleaseError, SemaphoreError, UseError,
};
use latchwork_testkit::{Child, Page};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

const SOON: Duration = Duration::from_millis(5);

#[test]
fn an_owner_has_the_ceiling_and_then_its_own_priority_again() {
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", 50);
    for _ in 0..3 {
        let held = semaphore.obtain().unwrap();
        assert_eq!((current(&region, me), semaphore.owner()), (50, Some(me)));
        assert_eq!(me.priority(&region).unwrap().get(), 100);
        drop(held);
        assert_eq!((current(&region, me), semaphore.owner()), (100, None));
    }
}

#[test]
fn of_several_ceilings_the_best_counts_in_any_order_of_releases() {
    let region = region();
    let me = me_at(&region, 5);
    let [four, three, two, one] =
        [4, 3, 2, 1].map(|ceiling| make(&region, &format!("{ceiling}"), ceiling));
    for (semaphore, now) in [(four, 4), (three, 3), (two, 2), (one, 1)] {
        semaphore.obtain().unwrap().keep();
        assert_eq!(current(&region, me), now);
    }
    for (semaphore, now) in [(three, 1), (one, 2), (two, 4), (four, 5)] {
        semaphore.release().unwrap();
        assert_eq!(current(&region, me), now);
    }
}

#[test]
fn an_owner_is_refused_whether_it_waits_or_not() {
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", 50);
    let held = semaphore.obtain().unwrap();
    for again in [
        semaphore.obtain(),
        semaphore.try_obtain(),
        semaphore.obtain_for(SOON),
    ] {
        assert!(matches!(again, Err(ObtainError::Deadlock)));
    }
    assert_eq!((current(&region, me), semaphore.waiting()), (50, 0));
    drop(held);
    assert!(semaphore.owner().is_none());
}

#[test]
fn a_priority_above_the_ceiling_is_refused_before_it_queues() {
    let region = region();
    let semaphore = make(&region, "s", 50);
    let above = |obtained: Result<_, _>| {
        matches!(obtained.map(drop), Err(ObtainError::AboveCeiling { own, ceiling })
            if own.get() == 49 && ceiling.get() == 50)
    };
    thread::scope(|scope| {
        let task = || {
            let me = me_at(&region, 49);
            assert!(above(semaphore.obtain()) && above(semaphore.try_obtain()));
            assert_eq!(current(&region, me), 49);
        };
        scope.spawn(task).join().unwrap();
        me_at(&region, 60);
        let _held = semaphore.obtain().unwrap();
        let task = || {
            let me = me_at(&region, 49);
            assert!(above(semaphore.obtain()) && above(semaphore.obtain_for(SOON)));
            assert!(matches!(
                semaphore.try_obtain(),
                Err(ObtainError::WouldBlock)
            ));
            assert_eq!((current(&region, me), semaphore.waiting()), (49, 0));
        };
        scope.spawn(task).join().unwrap();
    });
}

#[test]
fn waiters_have_the_ceiling_and_are_served_in_order_of_arrival() {
    let _watched = watched("waiters_have_the_ceiling_and_are_served_in_order_of_arrival");
    let region = region();
    let semaphore = make(&region, "s", 20);
    let served = Mutex::new(Vec::new());
    let owns = AtomicU32::new(0);
    thread::scope(|scope| {
        let me = me_at(&region, 90);
        let held = semaphore.obtain().unwrap();
        for (number, of) in [70, 30, 50, 60, 20].into_iter().enumerate() {
            let (served, owns, region) = (&served, &owns, &region);
            scope.spawn(move || {
                let me = me_at(region, of);
                let held = semaphore.obtain().unwrap();
                assert_eq!((owns.fetch_add(1, SeqCst), current(region, me)), (0, 20));
                served.lock().unwrap().push(number);
                owns.fetch_sub(1, SeqCst);
                drop(held);
                assert_eq!(current(region, me), of);
            });
            until(|| semaphore.waiting() == number as u32 + 1);
        }
        assert_eq!(current(&region, me), 20);
        drop(held);
        assert_eq!(current(&region, me), 90);
    });
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_waiter_is_at_the_ceiling_until_its_deadline() {
    let _watched = watched("a_waiter_is_at_the_ceiling_until_its_deadline");
    let region = region();
    let semaphore = make(&region, "s", 20);
    let me = me_at(&region, 90);
    let held = semaphore.obtain().unwrap();
    thread::scope(|scope| {
        let task = || {
            let me = me_at(&region, 70);
            assert!(matches!(
                semaphore.obtain_for(SOON),
                Err(ObtainError::TimedOut)
            ));
            assert_eq!((current(&region, me), semaphore.waiting()), (70, 0));
        };
        scope.spawn(task).join().unwrap();
    });
    assert_eq!(current(&region, me), 20);
    drop(held);
    assert_eq!(current(&region, me), 90);
}

#[test]
fn a_wait_for_cycle_is_refused() {
    let _watched = watched("a_wait_for_cycle_is_refused");
    let region = region();
    let [a, b] = ["a", "b"].map(|name| make(&region, name, 20));
    let me = me_at(&region, 90);
    thread::scope(|scope| {
        let held = a.obtain().unwrap();
        let other = scope.spawn(|| {
            me_at(&region, 80);
            let held = b.obtain().unwrap();
            let both = a.obtain().unwrap();
            assert!(!both.owner_died());
            drop((both, held));
        });
        until(|| a.waiting() == 1);
        assert!(matches!(b.obtain(), Err(ObtainError::Deadlock)));
        assert!(matches!(b.try_obtain(), Err(ObtainError::WouldBlock)));
        assert_eq!(current(&region, me), 20);
        drop(held);
        other.join().unwrap();
    });
    assert_eq!(current(&region, me), 90);
}

#[test]
fn a_new_ceiling_counts_from_the_next_obtain_on() {
    let _watched = watched("a_new_ceiling_counts_from_the_next_obtain_on");
    let region = region();
    let semaphore = make(&region, "s", 50);
    let me = me_at(&region, 90);
    let set = |ceiling| {
        for processor in 0..1024 {
            semaphore.set_ceiling(processor, priority(ceiling)).unwrap();
        }
    };
    let held = semaphore.obtain().unwrap();
    set(40);
    assert_eq!(semaphore.ceiling(0).get(), 40);
    assert_eq!(current(&region, me), 50);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let me = me_at(&region, 80);
            let held = semaphore.obtain().unwrap();
            assert_eq!(current(&region, me), 40);
            drop(held);
            assert_eq!(current(&region, me), 80);
        });
        until(|| semaphore.waiting() == 1);
        set(30);
        drop(held);
        waiter.join().unwrap();
    });
    assert!(matches!(
        semaphore.set_ceiling(1024, priority(1)),
        Err(UseError::NoCeiling)
    ));
    let _held = semaphore.obtain().unwrap();
    assert_eq!(current(&region, me), 30);
}

#[test]
fn each_processor_has_a_ceiling_of_its_own() {
    let region = region();
    let semaphore = make(&region, "s", 50);
    for (number, processor) in processors_of(0).into_iter().take(8).enumerate() {
        let ceiling = 10 + number as u8;
        let before = semaphore.set_ceiling(processor, priority(ceiling)).unwrap();
        assert_eq!(before.get(), 50);
        thread::scope(|scope| {
            scope.spawn(|| {
                bind(&[processor]);
                let me = me_at(&region, 90);
                let _held = semaphore.obtain().unwrap();
                assert_eq!(current(&region, me), ceiling);
            });
        });
    }
}

#[test]
fn one_that_is_owned_cannot_be_deleted() {
    let region = region();
    let semaphore = make(&region, "s", 50);
    let held = semaphore.obtain().unwrap();
    assert!(matches!(semaphore.delete(), Err(UseError::InUse)));
    drop(held);
    semaphore.delete().unwrap();
    assert!(matches!(semaphore.obtain(), Err(ObtainError::Deleted)));
    assert!(matches!(semaphore.delete(), Err(UseError::Deleted)));
    let next = make(&region, "s", 60);
    assert_eq!(next.ceiling(0).get(), 60);
    assert!(matches!(semaphore.try_obtain(), Err(ObtainError::Deleted)));
    drop(next.obtain().unwrap());
}

#[test]
fn one_that_is_made_obtained_is_its_makers() {
    let region = region();
    let me = me_at(&region, 40);
    assert!(matches!(
        MrspSemaphore::create_obtained(&region, "low", priority(41)),
        Err(SemaphoreError::AboveCeiling { .. })
    ));
    let semaphore = MrspSemaphore::create_obtained(&region, "s", priority(30)).unwrap();
    assert_eq!((current(&region, me), semaphore.owner()), (30, Some(me)));
    thread::scope(|scope| {
        let task = || assert!(matches!(semaphore.release(), Err(ReleaseError::NotOwner)));
        scope.spawn(task).join().unwrap();
    });
    semaphore.release().unwrap();
    assert_eq!((current(&region, me), semaphore.owner()), (40, None));
    assert!(matches!(semaphore.release(), Err(ReleaseError::NotOwner)));
}

#[test]
fn a_name_stands_for_one_kind() {
    let region = region();
    make(&region, "s", 50);
    assert!(BinarySemaphore::open(&region, "s").is_err());
    assert!(MrspSemaphore::open(&region, "s").is_ok());
    assert!(MrspSemaphore::open(&region, "other").is_err());
}

#[test]
fn the_next_owner_gets_a_report_of_a_death_or_a_panic() {
    let _watched = watched("the_next_owner_gets_a_report_of_a_death_or_a_panic");
    let region = region();
    let semaphore = make(&region, "s", 50);
    let me = me_at(&region, 90);
    let stage = Page::<AtomicU32>::new();
    for waits in [false, true] {
        stage.store(0, SeqCst);
        let mut owner = Child::fork(|| {
            let _held = semaphore.obtain().unwrap();
            stage.store(1, SeqCst);
            loop {
                thread::park();
            }
        });
        until(|| stage.load(SeqCst) == 1);
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let me = me_at(&region, 80);
                if !waits {
                    until(|| stage.load(SeqCst) == 2);
                }
                assert!(semaphore.obtain().unwrap().owner_died());
                assert_eq!(current(&region, me), 80);
            });
            until(|| !waits || semaphore.waiting() == 1);
            owner.kill();
            stage.store(2, SeqCst);
            next.join().unwrap();
        });
        assert!(!semaphore.obtain().unwrap().owner_died());
    }
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _held = semaphore.obtain().unwrap();
            panic!("on purpose");
        });
        assert!(panics.join().is_err());
    });
    assert_eq!(current(&region, me), 90);
    assert!(semaphore.try_obtain().unwrap().owner_died());
    assert!(!semaphore.try_obtain().unwrap().owner_died());
}

#[test]
fn a_task_that_is_not_mirrored_and_bound_to_one_cpu_is_not_helped() {
    let region = region();
    let semaphore = make(&region, "s", 50);
    let me = me_at(&region, 90);
    assert_eq!(semaphore.helping().unwrap(), Helping::NotMirrored);
    me.mirror(&region, true).unwrap();
    let all = processors_of(0);
    if all.len() > 1 {
        assert_eq!(semaphore.helping().unwrap(), Helping::NotPinned);
    }
    bind(&all[..1]);
    let helping = semaphore.helping().unwrap();
    assert!(
        matches!(helping, Helping::Works | Helping::NoPrivilege),
        "{helping:?}"
    );
    assert_eq!(current(&region, me), 90);
    let low = make(&region, "low", 98);
    assert!(matches!(low.helping().unwrap(), Helping::LowCeiling));
}
