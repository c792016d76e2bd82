//! Ceilings: what the owner of a semaphore with a ceiling gets, and semaphores that are created obtained.

use super::priorities::{INHERIT, make};
use super::semaphore_support::{current, me_at, priority, region, until, watched};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::region::TaskId;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, MrspSemaphore, ObtainError, SemaphoreError, UseError,
};
use latchwork_testkit::{Child, Exit};
use std::sync::Barrier;
use std::thread;

#[test]
fn an_owner_has_the_best_of_its_ceilings() {
    let region = region();
    let me = me_at(&region, 100);
    let at = |ceiling| {
        make(
            &region,
            &format!("at {ceiling}"),
            &BinaryOptions::new().ceiling(priority(ceiling)),
        )
    };
    let [ten, fifty, hundred] = [10, 50, 100].map(at);
    let held_fifty = fifty.obtain().unwrap();
    assert_eq!(current(&region, me), 50);
    let held_hundred = hundred.try_obtain();
    // Its own priority does not count, but the one that it has.
    assert!(matches!(
        held_hundred,
        Err(ObtainError::AboveCeiling { own, ceiling }) if own.get() == 50 && ceiling.get() == 100
    ));
    let held_ten = ten.obtain().unwrap();
    let nested = fifty.obtain().unwrap();
    assert_eq!(current(&region, me), 10);
    // In any order.
    drop(nested);
    drop(held_fifty);
    assert_eq!(current(&region, me), 10);
    drop(held_ten);
    assert_eq!(current(&region, me), 100);
    assert_eq!(me.priority(&region).unwrap().get(), 100);
    drop(hundred.obtain().unwrap());
    me_at(&region, 49);
    assert!(matches!(
        fifty.obtain(),
        Err(ObtainError::AboveCeiling { .. })
    ));
    assert_eq!(fifty.owner(), None);
}

/// The page that contains the records of other tasks cannot be read.
#[test]
#[allow(unsafe_code)]
fn an_owner_with_a_ceiling_and_no_waiters_reads_no_other_record() {
    /// Where the slots are: others' fill the first page of them.
    const SLOTS: usize = 4096;
    const OTHERS: usize = 8;
    let _watchdog = watched("an_owner_with_a_ceiling_and_no_waiters_reads_no_other_record");
    let region = region();
    region.join("first").unwrap();
    let [ready, end] = [0, 1].map(|_| Barrier::new(OTHERS + 1));
    thread::scope(|scope| {
        for _ in 0..OTHERS {
            scope.spawn(|| {
                region.join("other").unwrap();
                ready.wait();
                end.wait();
            });
        }
        ready.wait();
        let mut child = Child::fork(|| {
            let ceiling = make(
                &region,
                "ceiling",
                &BinaryOptions::new().ceiling(priority(1)),
            );
            let mrsp = MrspSemaphore::create(&region, "mrsp", priority(1)).unwrap();
            let all = || {
                let (_one, _other) = (ceiling.obtain().unwrap(), mrsp.obtain().unwrap());
                drop(make(&region, "inherit", &INHERIT).obtain().unwrap());
            };
            all();
            let page = region.base().wrapping_add(SLOTS).cast_mut().cast();
            // SAFETY: the region stays mapped; who looks there is killed, which is what is tested.
            assert_eq!(0, unsafe { libc::mprotect(page, 4096, libc::PROT_NONE) });
            all();
        });
        let exit = child.wait();
        end.wait();
        assert_eq!(exit, Exit::Code(0));
    });
}

#[test]
fn a_semaphore_can_be_made_obtained() {
    let region = region();
    let me = me_at(&region, 20);
    let options = BinaryOptions::new().obtained();
    let semaphore = make(&region, "plain", &options);
    assert_eq!(semaphore.owner(), Some(me));
    semaphore.release().unwrap();
    let above = BinarySemaphore::create(&region, "above", &options.ceiling(priority(21)));
    assert!(matches!(above, Err(SemaphoreError::AboveCeiling { .. })));
    let below = options.ceiling(priority(5));
    let semaphore = make(&region, "below", &below);
    assert_eq!(current(&region, me), 5);
    // Opened, not obtained again.
    make(&region, "below", &below);
    semaphore.release().unwrap();
    assert_eq!((current(&region, me), semaphore.owner()), (20, None));
}

#[test]
fn a_ceiling_that_changes_changes_the_owner_at_once() {
    let _watchdog = watched("a_ceiling_that_changes_changes_the_owner_at_once");
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", &BinaryOptions::new().ceiling(priority(50)));
    let held = semaphore.obtain().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(semaphore.set_ceiling(priority(3)).unwrap().get(), 50);
            assert_eq!(current(&region, me), 3);
            assert_eq!(semaphore.set_ceiling(priority(200)).unwrap().get(), 3);
            assert_eq!(current(&region, me), 100);
        });
    });
    semaphore.set_ceiling(priority(60)).unwrap();
    assert_eq!(current(&region, me), 60);
    drop(held);
    assert_eq!(current(&region, me), 100);
    assert_eq!(semaphore.ceiling(), Some(priority(60)));
    let none = make(&region, "none", &INHERIT);
    assert!(matches!(
        none.set_ceiling(priority(1)),
        Err(UseError::NoCeiling)
    ));
}

#[test]
fn the_heir_of_a_ceiling_has_it_at_once() {
    let _watchdog = watched("the_heir_of_a_ceiling_has_it_at_once");
    let region = region();
    let me = me_at(&region, 100);
    let semaphore = make(&region, "s", &BinaryOptions::new().ceiling(priority(5)));
    let held = semaphore.obtain().unwrap();
    let heir = AtomicU64::new(0);
    thread::scope(|scope| {
        let (region, heir) = (&region, &heir);
        scope.spawn(move || {
            // Above the ceiling: who queues is not asked.
            heir.store(me_at(region, 2).to_raw(), SeqCst);
            let held = semaphore.obtain().unwrap();
            until(|| heir.load(SeqCst) == 0);
            drop(held);
            assert_eq!(current(region, region.task_id().unwrap()), 200);
        });
        until(|| semaphore.waiting() == 1);
        let id = TaskId::from_raw(heir.load(SeqCst)).unwrap();
        id.set_priority(region, priority(200)).unwrap();
        assert_eq!(current(region, id), 200);
        drop(held);
        assert_eq!(current(region, id), 5);
        assert_eq!(current(region, me), 100);
        heir.store(0, SeqCst);
    });
}

/// A task obtains a semaphore whose ceiling does not raise it, while another task lowers its priority: one of the two
/// sees the change of the other.
#[test]
fn a_ceiling_and_a_change_of_its_owner_do_not_miss_each_other() {
    let _watchdog = watched("a_ceiling_and_a_change_of_its_owner_do_not_miss_each_other");
    let region = region();
    let semaphore = make(&region, "s", &BinaryOptions::new().ceiling(priority(10)));
    let me = region.task_id().unwrap();
    let round = AtomicU32::new(0);
    let done = AtomicU32::new(0);
    const ROUNDS: u32 = 2_000;
    // They are to meet within a few instructions.
    let spin_until = |word: &AtomicU32, value: u32| {
        let mut looks = 0_u32;
        while word.load(SeqCst) < value {
            looks += 1;
            if looks > 1_000 {
                thread::yield_now();
            }
            core::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            region.join("other").unwrap();
            for now in 1..=ROUNDS {
                spin_until(&round, now);
                for _ in 0..now % 64 {
                    core::hint::spin_loop();
                }
                me.set_priority(&region, priority(50)).unwrap();
                done.store(now, SeqCst);
            }
        });
        let missed = (1..=ROUNDS).find(|&now| {
            me.set_priority(&region, priority(10)).unwrap();
            round.store(now, SeqCst);
            for _ in 0..now / 64 % 64 {
                core::hint::spin_loop();
            }
            let held = semaphore.obtain().unwrap();
            spin_until(&done, now);
            let raised = current(&region, me);
            drop(held);
            (raised, current(&region, me)) != (10, 50)
        });
        // Lets the other one end.
        round.store(ROUNDS, SeqCst);
        assert_eq!(missed, None, "the round that went wrong");
    });
}
