//! What the kernel makes of it: owners that are helped, and where everybody is afterwards.

use super::bound::{
    bind, bound_task, processor, processors_of, real_time_of, thread_id, try_real_time,
    two_processors,
};
use super::make;
use super::semaphore_support::{current, priority, region};
use core::hint::spin_loop;
use core::time::Duration;
use latchwork::region::{Region, TaskId};
use latchwork::semaphore::{Helping, MrspSemaphore, ObtainError};
use latchwork_testkit::{Child, Page, Trial};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

/// Of the tasks, and the ceiling; a third that preempts them all.
const OWN: u8 = 60;
const CEILING: u8 = 50;
const ABOVE: i32 = 80;
/// As the kernel has them.
const REAL_CEILING: i32 = 50;

fn nap() {
    thread::sleep(Duration::from_micros(50));
}

fn nap_until(condition: impl Fn() -> bool) {
    while !condition() {
        nap();
    }
}

/// The calling task is what it was before it obtained anything.
fn check_at_home(region: &Region, me: TaskId, home: usize) {
    assert_eq!(processors_of(0), [home]);
    assert_eq!(processor(), home);
    let own = me.priority(region).unwrap().get();
    assert_eq!(real_time_of(0), 100 - i32::from(own));
    assert_eq!(current(region, me), own);
}

/// Takes a processor from all tasks of lower priority, from one moment to another.
fn hog(begin: impl Fn() -> bool, begun: impl Fn(), end: impl Fn() -> bool) {
    nap_until(begin);
    begun();
    while !end() {
        spin_loop();
    }
}

/// When the owner is preempted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preempted {
    WhenHelped,
    BeforeAnybodyComes,
}

fn owner_goes_on_elsewhere(trial: &Trial, [here, there]: [usize; 2], when: Preempted) {
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    // 1: obtained; 2: it has run elsewhere; 3: somebody else has it.
    let stage = AtomicU32::new(0);
    let is_taken = AtomicBool::new(false);
    // Where they belong, before anybody spins.
    let at_home = AtomicU32::new(0);
    let all_at_home = || {
        at_home.fetch_add(1, SeqCst);
        nap_until(|| at_home.load(SeqCst) == 3);
    };
    let owner = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let me = bound_task(&region, here, OWN);
            all_at_home();
            assert_eq!(semaphore.helping().unwrap(), Helping::Works);
            owner.store(thread_id(), SeqCst);
            let held = semaphore.obtain().unwrap();
            assert_eq!(real_time_of(0), REAL_CEILING);
            assert_eq!(processors_of(0), [here]);
            stage.store(1, SeqCst);
            // There is one other place where it may ever run.
            while processor() == here {
                spin_loop();
            }
            assert_eq!(processor(), there);
            stage.store(2, SeqCst);
            drop(held);
            check_at_home(&region, me, here);
        });
        scope.spawn(|| {
            bind(&[here]);
            assert!(try_real_time(ABOVE));
            all_at_home();
            // Each look from that processor preempts the owner, too.
            let begin = || match (stage.load(SeqCst), when) {
                (0, _) => false,
                (1, Preempted::WhenHelped) => processors_of(owner.load(SeqCst)).len() == 2,
                _ => true,
            };
            let begun = || is_taken.store(true, SeqCst);
            hog(begin, begun, || stage.load(SeqCst) == 3);
        });
        scope.spawn(|| {
            let me = bound_task(&region, there, OWN);
            all_at_home();
            nap_until(|| match when {
                Preempted::WhenHelped => stage.load(SeqCst) == 1,
                Preempted::BeforeAnybodyComes => is_taken.load(SeqCst),
            });
            let held = semaphore.obtain().unwrap();
            assert_eq!(stage.swap(3, SeqCst), 2);
            assert_eq!(real_time_of(0), REAL_CEILING);
            drop(held);
            check_at_home(&region, me, there);
        });
    });
    trial.progress();
}

#[test]
fn an_owner_that_is_preempted_goes_on_in_the_waiters_place() {
    const NAME: &str = "an_owner_that_is_preempted_goes_on_in_the_waiters_place";
    let Some(processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    for when in [Preempted::WhenHelped, Preempted::BeforeAnybodyComes] {
        for _ in 0..trial.times(5) {
            owner_goes_on_elsewhere(&trial, processors, when);
        }
    }
}

/// An owner at home that sleeps until it is told to release, and is then as it was.
fn sleeping_owner(
    region: &Region,
    semaphore: MrspSemaphore<'_>,
    home: usize,
    stage: &AtomicU32,
    thread: &AtomicU32,
) {
    let me = bound_task(region, home, OWN);
    let held = semaphore.obtain().unwrap();
    thread.store(thread_id(), SeqCst);
    stage.store(1, SeqCst);
    nap_until(|| stage.load(SeqCst) == 2);
    assert_eq!(real_time_of(0), REAL_CEILING);
    drop(held);
    check_at_home(region, me, home);
}

#[test]
fn a_helpers_deadline_takes_its_processor_back() {
    const NAME: &str = "a_helpers_deadline_takes_its_processor_back";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    let (stage, owner) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| sleeping_owner(&region, semaphore, here, &stage, &owner));
        scope.spawn(|| {
            let me = bound_task(&region, there, OWN);
            nap_until(|| stage.load(SeqCst) == 1);
            for milliseconds in [0, 1, 5, 20] {
                let patience = Duration::from_millis(milliseconds);
                assert!(matches!(
                    semaphore.obtain_for(patience),
                    Err(ObtainError::TimedOut)
                ));
                check_at_home(&region, me, there);
                assert_eq!(processors_of(owner.load(SeqCst)), [here]);
            }
            stage.store(2, SeqCst);
        });
    });
    drop(trial);
}

#[test]
fn a_waiter_spins_one_level_below_the_owner_whose_mask_has_its_processor() {
    const NAME: &str = "a_waiter_spins_one_level_below_the_owner_whose_mask_has_its_processor";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let _trial = Trial::begin(NAME);
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    let (stage, owner, waiter) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| sleeping_owner(&region, semaphore, here, &stage, &owner));
        scope.spawn(|| {
            let me = bound_task(&region, there, OWN);
            nap_until(|| stage.load(SeqCst) == 1);
            waiter.store(thread_id(), SeqCst);
            drop(semaphore.obtain().unwrap());
            check_at_home(&region, me, there);
        });
        nap_until(|| waiter.load(SeqCst) != 0);
        nap_until(|| real_time_of(waiter.load(SeqCst)) == REAL_CEILING - 1);
        let mut both = [here, there];
        both.sort_unstable();
        assert_eq!(processors_of(owner.load(SeqCst)), both);
        assert_eq!(real_time_of(owner.load(SeqCst)), REAL_CEILING);
        assert_eq!(semaphore.waiting(), 1);
        stage.store(2, SeqCst);
    });
}

#[test]
fn a_section_that_somebody_bound_elsewhere_stays_there() {
    const NAME: &str = "a_section_that_somebody_bound_elsewhere_stays_there";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let _trial = Trial::begin(NAME);
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    let stage = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            bound_task(&region, here, OWN);
            let held = semaphore.obtain().unwrap();
            // Not what the library knows of.
            bind(&[there]);
            stage.store(1, SeqCst);
            nap_until(|| semaphore.waiting() == 1);
            drop(held);
            assert_eq!(processors_of(0), [there]);
        });
        scope.spawn(|| {
            let me = bound_task(&region, here, OWN);
            nap_until(|| stage.load(SeqCst) == 1);
            drop(semaphore.obtain().unwrap());
            check_at_home(&region, me, here);
        });
    });
}

#[test]
fn a_section_that_somebody_bound_to_a_lent_processor_stays_there() {
    const NAME: &str = "a_section_that_somebody_bound_to_a_lent_processor_stays_there";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let _trial = Trial::begin(NAME);
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    let stage = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            bound_task(&region, here, OWN);
            let held = semaphore.obtain().unwrap();
            stage.store(1, SeqCst);
            nap_until(|| processors_of(0).len() == 2);
            bind(&[there]);
            drop(held);
            assert_eq!(processors_of(0), [there]);
        });
        scope.spawn(|| {
            let me = bound_task(&region, there, OWN);
            nap_until(|| stage.load(SeqCst) == 1);
            drop(semaphore.obtain().unwrap());
            check_at_home(&region, me, there);
        });
    });
}

#[test]
fn a_waiter_spins_below_an_owner_whose_priority_falls_in_mid_section() {
    const NAME: &str = "a_waiter_spins_below_an_owner_whose_priority_falls_in_mid_section";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let _trial = Trial::begin(NAME);
    let region = region();
    let semaphore = make(&region, "s", CEILING);
    semaphore
        .set_ceiling(there, priority(CEILING - 20))
        .unwrap();
    let inner = make(&region, "inner", CEILING - 10);
    let (stage, waiter) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let me = bound_task(&region, here, OWN);
            let held = semaphore.obtain().unwrap();
            let section = inner.obtain().unwrap();
            stage.store(1, SeqCst);
            nap_until(|| stage.load(SeqCst) == 2);
            drop(section);
            assert_eq!(real_time_of(0), REAL_CEILING);
            nap_until(|| real_time_of(waiter.load(SeqCst)) == REAL_CEILING - 1);
            drop(held);
            check_at_home(&region, me, here);
        });
        scope.spawn(|| {
            let me = bound_task(&region, there, OWN);
            nap_until(|| stage.load(SeqCst) == 1);
            waiter.store(thread_id(), SeqCst);
            drop(semaphore.obtain().unwrap());
            check_at_home(&region, me, there);
        });
        nap_until(|| waiter.load(SeqCst) != 0);
        nap_until(|| real_time_of(waiter.load(SeqCst)) == REAL_CEILING + 9);
        stage.store(2, SeqCst);
    });
}

#[test]
fn who_waits_behind_a_killed_helper_or_owner_is_served_and_at_home() {
    const NAME: &str = "who_waits_behind_a_killed_helper_or_owner_is_served_and_at_home";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    // Those who wait are busy elsewhere.
    bind(&[here]);
    for kills_owner in [false, true] {
        for _ in 0..trial.times(3) {
            let region = region();
            let semaphore = make(&region, "s", CEILING);
            let stage = Page::<AtomicU32>::new();
            let thread = Page::<AtomicU32>::new();
            let owner = Child::fork(|| sleeping_owner(&region, semaphore, here, &stage, &thread));
            trial.wait_until(|| stage.load(SeqCst) == 1);
            let waits = |dies: bool, of: u8| {
                // Another may spin there already, ahead of ordinary tasks.
                assert!(try_real_time(ABOVE));
                let me = bound_task(&region, there, of);
                let held = semaphore.obtain().unwrap();
                assert!(!dies);
                assert_eq!(held.owner_died(), kills_owner);
                drop(held);
                check_at_home(&region, me, there);
            };
            let mut victims = Vec::new();
            let mut survivors = Vec::new();
            let first = Child::fork(|| waits(!kills_owner, OWN));
            trial.wait_until(|| processors_of(thread.load(SeqCst)).len() == 2);
            if kills_owner {
                survivors.push(first);
                victims.push(owner);
            } else {
                let second = Child::fork(|| waits(false, CEILING));
                trial.wait_until(|| semaphore.waiting() == 2);
                survivors.extend([owner, second]);
                victims.push(first);
            }
            for mut victim in victims {
                victim.kill();
            }
            stage.store(2, SeqCst);
            survivors.into_iter().for_each(Child::succeed);
            assert!(semaphore.owner().is_none());
            trial.progress();
        }
    }
}
