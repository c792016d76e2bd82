//! Tasks that die at each of their steps with a region lock of any form, or on the way to it.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::model::{RegionLock, SOON, Scene, Taken, as_task, somebody_died, step};
use latchwork::mutex::RegionProtocol;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

pub struct Shared<P: RegionProtocol> {
    pub lock: RegionLock<P>,
    torn: UnsafeCell<bool>,
}

// SAFETY: the data is touched under the lock only; that is what the model checks.
unsafe impl<P: RegionProtocol> Sync for Shared<P> {}
// SAFETY: as above.
unsafe impl<P: RegionProtocol> Send for Shared<P> {}

impl<P: RegionProtocol> Default for Shared<P> {
    fn default() -> Self {
        Self {
            lock: RegionLock::default(),
            torn: UnsafeCell::new(false),
        }
    }
}

/// What a task does, with a lock of a form.
pub type Body<P> = fn(&Shared<P>);

impl<P: RegionProtocol> Shared<P> {
    fn set_torn(&self, torn: bool) {
        // SAFETY: called with the lock held; loom reports two at once.
        self.torn.with_mut(|data| unsafe { *data = torn });
    }

    fn assert_whole(&self) {
        // SAFETY: called with the lock held.
        let torn = self.torn.with(|data| unsafe { *data });
        assert!(!torn, "torn data, and nobody said so");
    }

    pub fn work_and_unlock(&self) {
        self.set_torn(true);
        step();
        self.set_torn(false);
        // SAFETY: called with the lock held.
        unsafe { self.lock.unlock() };
    }

    pub fn enter(&self) {
        self.enter_by(|taken| assert_eq!(taken, Taken::OwnerDied));
    }

    pub fn enter_by(&self, otherwise: impl FnOnce(Taken)) {
        match self.lock.lock(None) {
            Taken::Clean => self.assert_whole(),
            taken => {
                otherwise(taken);
                self.set_torn(false);
                self.lock.mark_consistent();
            }
        }
        self.work_and_unlock();
    }

    /// A victim that gives up at its deadline.
    pub fn try_enter(&self) {
        if self.lock.lock(Some(SOON)) == Taken::Clean {
            self.work_and_unlock();
        }
    }

    /// A task that passes a death on to the next one.
    pub fn pass_on(&self) {
        match self.lock.lock(None) {
            Taken::Clean => self.work_and_unlock(),
            taken => {
                assert_eq!(taken, Taken::OwnerDied);
                self.lock.pass_on();
            }
        }
    }
}

pub fn spawn<P: RegionProtocol>(
    shared: &Arc<Shared<P>>,
    number: usize,
    life: Option<usize>,
    body: Body<P>,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        as_task(number, life, || body(&shared));
    })
}

/// A victim and other tasks.
fn somebody_dies<P: RegionProtocol>(survivors: &[Body<P>], life: usize, victim: Body<P>) {
    let shared = Arc::<Shared<P>>::default();
    let mut threads = vec![spawn(&shared, 1, Some(life), victim)];
    let others = survivors.iter().enumerate();
    threads.extend(others.map(|(number, body)| spawn(&shared, 2 + number, None, *body)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // As the last: whatever state they left, it can be entered.
    as_task(0, None, || shared.enter());
}

/// The model for each step at which the victim can die, until it has none left.
pub fn at_every_step<P: RegionProtocol>(
    scene: Scene,
    preemptions: usize,
    survivors: &'static [Body<P>],
    victim: Body<P>,
) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            somebody_dies(survivors, life, victim)
        });
        if !somebody_died() {
            assert!(life > 2, "the victim has more steps than that");
            return;
        }
    }
}

/// An owner dies, and its slot has a new task at once.
pub fn has_a_successor<P: RegionProtocol>(scene: Scene) {
    for life in 1..6 {
        scene.explore(Some(3), move || {
            let shared = Arc::<Shared<P>>::default();
            let in_slot_1 = Arc::clone(&shared);
            let slot_1 = thread::spawn(move || {
                as_task(1, Some(life), || in_slot_1.enter());
                as_task(1, None, || in_slot_1.enter());
            });
            let other = spawn(&shared, 2, None, Shared::enter);
            slot_1.join().unwrap();
            other.join().unwrap();
        });
    }
}

/// The owner dies before the others come, or while they wait.
pub fn unrepaired_is_lost<P: RegionProtocol>(scene: Scene) {
    for (waits_for_death, preemptions) in [(true, 3), (false, 2)] {
        scene.explore(Some(preemptions), move || {
            let shared = Arc::<Shared<P>>::default();
            let mut threads = vec![spawn(&shared, 1, Some(2), |shared| {
                shared.lock.lock(None);
                shared.set_torn(true);
                step();
                step();
            })];
            if waits_for_death {
                threads.remove(0).join().unwrap();
            }
            let give_up = |shared: &Shared<P>| match shared.lock.lock(None) {
                Taken::Clean => {
                    shared.assert_whole();
                    // SAFETY: the lock is held.
                    unsafe { shared.lock.unlock() };
                }
                Taken::OwnerDied => shared.lock.give_up(),
                other => assert_eq!(other, Taken::NotRecoverable),
            };
            threads.extend([2, 3].map(|number| spawn(&shared, number, None, give_up)));
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            // As the last: the owner may have been; or it died before it had the lock.
            as_task(0, None, || give_up(&shared));
            if waits_for_death {
                assert_eq!(shared.lock.lock(None), Taken::NotRecoverable);
            }
        });
    }
}

/// A model that must fail with a fault, in a way of which this is said.
macro_rules! region_twin {
    ($name:ident, $fault:ident, $expected:expr, $model:expr) => {
        #[test]
        fn $name() {
            let fault = latchwork::model::Fault::$fault;
            let scene = Scene {
                fault: Some(fault),
                ..Scene::default()
            };
            scene.must_fail(stringify!($name), $expected, $model);
        }
    };
}
