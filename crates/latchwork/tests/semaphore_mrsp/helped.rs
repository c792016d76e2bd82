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
use latchwork::semaphore::TaskPriority as _;
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

/// Two processors, a semaphore with a ceiling, and what its users have to say.
struct Scene {
    region: Region,
    here: usize,
    there: usize,
    said: Page<[AtomicU32; 3]>,
}

impl Scene {
    fn new([here, there]: [usize; 2]) -> Self {
        Self {
            region: region(),
            here,
            there,
            said: Page::new(),
        }
    }

    /// 1: there is an owner. 2: it is to release.
    fn stage(&self) -> &AtomicU32 {
        &self.said[0]
    }

    /// The owner's thread, once there is one.
    fn owner(&self) -> u32 {
        self.said[1].load(SeqCst)
    }

    /// The same of who waits.
    fn waiter(&self) -> u32 {
        self.said[2].load(SeqCst)
    }

    fn semaphore(&self) -> MrspSemaphore<'_> {
        make(&self.region, "s", CEILING)
    }

    fn come_to(&self, stage: u32) {
        nap_until(|| self.stage().load(SeqCst) == stage);
    }

    fn waiter_is_at(&self, real_time: i32) {
        nap_until(|| self.waiter() != 0 && real_time_of(self.waiter()) == real_time);
    }

    /// Owns the semaphore here, asleep, until it is to release it; and is then as it was.
    fn own(&self) {
        let me = bound_task(&self.region, self.here, OWN);
        let held = self.semaphore().obtain().unwrap();
        self.said[1].store(thread_id(), SeqCst);
        self.stage().store(1, SeqCst);
        self.come_to(2);
        assert_eq!(real_time_of(0), REAL_CEILING);
        drop(held);
        check_at_home(&self.region, me, self.here);
    }

    /// Waits for the semaphore as soon as it is owned, at this home.
    fn wait(&self, home: usize) {
        let me = bound_task(&self.region, home, OWN);
        self.come_to(1);
        self.said[2].store(thread_id(), SeqCst);
        drop(self.semaphore().obtain().unwrap());
        check_at_home(&self.region, me, home);
    }
}

/// Plays a scene, if there are two processors for it.
fn play(name: &'static str, scene: impl FnOnce(&Scene)) {
    if let Some(processors) = two_processors(name) {
        let _trial = Trial::begin(name);
        scene(&Scene::new(processors));
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

#[test]
fn a_helpers_deadline_takes_its_processor_back() {
    play("a_helpers_deadline_takes_its_processor_back", |scene| {
        let helps = || {
            let me = bound_task(&scene.region, scene.there, OWN);
            scene.come_to(1);
            for milliseconds in [0, 1, 5, 20] {
                let patience = Duration::from_millis(milliseconds);
                assert!(matches!(
                    scene.semaphore().obtain_for(patience),
                    Err(ObtainError::TimedOut)
                ));
                check_at_home(&scene.region, me, scene.there);
                assert_eq!(processors_of(scene.owner()), [scene.here]);
            }
            scene.stage().store(2, SeqCst);
        };
        thread::scope(|scope| {
            scope.spawn(|| scene.own());
            scope.spawn(helps);
        });
    });
}

#[test]
fn a_waiter_spins_one_level_below_the_owner_whose_mask_has_its_processor() {
    const NAME: &str = "a_waiter_spins_one_level_below_the_owner_whose_mask_has_its_processor";
    play(NAME, |scene| {
        thread::scope(|scope| {
            scope.spawn(|| scene.own());
            scope.spawn(|| scene.wait(scene.there));
            scene.waiter_is_at(REAL_CEILING - 1);
            let mut both = [scene.here, scene.there];
            both.sort_unstable();
            assert_eq!(processors_of(scene.owner()), both);
            assert_eq!(real_time_of(scene.owner()), REAL_CEILING);
            assert_eq!(scene.semaphore().waiting(), 1);
            scene.stage().store(2, SeqCst);
        });
    });
}

/// An owner is bound to the other processor by other hands than the library's, at the beginning of its section or the
/// end; who waits for it is at home at `home`.
fn bound_elsewhere(scene: &Scene, begin: impl Fn() + Sync, end: impl Fn() + Sync, home: usize) {
    let owns = || {
        bound_task(&scene.region, scene.here, OWN);
        let held = scene.semaphore().obtain().unwrap();
        begin();
        scene.stage().store(1, SeqCst);
        end();
        drop(held);
        assert_eq!(processors_of(0), [scene.there]);
    };
    thread::scope(|scope| {
        scope.spawn(owns);
        scope.spawn(|| scene.wait(home));
    });
}

#[test]
fn a_section_that_somebody_bound_elsewhere_stays_there() {
    play(
        "a_section_that_somebody_bound_elsewhere_stays_there",
        |scene| {
            let begin = || bind(&[scene.there]);
            let end = || nap_until(|| scene.semaphore().waiting() == 1);
            bound_elsewhere(scene, begin, end, scene.here);
        },
    );
}

#[test]
fn a_section_that_somebody_bound_to_a_lent_processor_stays_there() {
    const NAME: &str = "a_section_that_somebody_bound_to_a_lent_processor_stays_there";
    play(NAME, |scene| {
        let end = || {
            nap_until(|| processors_of(0).len() == 2);
            bind(&[scene.there]);
        };
        bound_elsewhere(scene, || (), end, scene.there);
    });
}

#[test]
fn a_waiter_spins_below_an_owner_whose_priority_falls_in_mid_section() {
    const NAME: &str = "a_waiter_spins_below_an_owner_whose_priority_falls_in_mid_section";
    play(NAME, |scene| {
        let (semaphore, above) = (scene.semaphore(), priority(CEILING - 20));
        semaphore.set_ceiling(scene.there, above).unwrap();
        let inner = make(&scene.region, "inner", CEILING - 10);
        let owns = || {
            let me = bound_task(&scene.region, scene.here, OWN);
            let held = semaphore.obtain().unwrap();
            let section = inner.obtain().unwrap();
            scene.stage().store(1, SeqCst);
            scene.come_to(2);
            drop(section);
            assert_eq!(real_time_of(0), REAL_CEILING);
            scene.waiter_is_at(REAL_CEILING - 1);
            drop(held);
            check_at_home(&scene.region, me, scene.here);
        };
        thread::scope(|scope| {
            scope.spawn(owns);
            scope.spawn(|| scene.wait(scene.there));
            scene.waiter_is_at(REAL_CEILING + 9);
            scene.stage().store(2, SeqCst);
        });
    });
}

#[test]
fn a_waiter_behind_a_killed_helper_or_owner_is_served_on_its_home_cpu() {
    const NAME: &str = "a_waiter_behind_a_killed_helper_or_owner_is_served_on_its_home_cpu";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    // Those who wait are busy elsewhere.
    bind(&[here]);
    for kills_owner in [false, true] {
        for _ in 0..trial.times(3) {
            let scene = Scene::new([here, there]);
            let (region, semaphore) = (&scene.region, scene.semaphore());
            let owner = Child::fork(|| scene.own());
            trial.wait_until(|| scene.stage().load(SeqCst) == 1);
            let waits = |dies: bool, of: u8| {
                // Another may spin there already, ahead of ordinary tasks.
                assert!(try_real_time(ABOVE));
                let me = bound_task(region, there, of);
                let held = semaphore.obtain().unwrap();
                assert!(!dies);
                assert_eq!(held.owner_died(), kills_owner);
                drop(held);
                check_at_home(region, me, there);
            };
            let mut victims = Vec::new();
            let mut survivors = Vec::new();
            let first = Child::fork(|| waits(!kills_owner, OWN));
            trial.wait_until(|| processors_of(scene.owner()).len() == 2);
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
            scene.stage().store(2, SeqCst);
            survivors.into_iter().for_each(Child::succeed);
            assert!(semaphore.owner().is_none());
            trial.progress();
        }
    }
}
