//! Tasks that die at each of their steps with a robust lock of any protocol, or on the way to it.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::model::{RobustLock, SOON, Scene, Taken, as_task, somebody_died, step};
use latchwork::mutex::RobustProtocol;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

pub trait Kind: RobustProtocol + Default + 'static {}
impl<P: RobustProtocol + Default + 'static> Kind for P {}

pub struct Shared<P: Kind> {
    lock: RobustLock<P>,
    torn: UnsafeCell<bool>,
}

// SAFETY: the data is touched under the lock only; that is what the model checks.
unsafe impl<P: Kind> Sync for Shared<P> {}
// SAFETY: as above.
unsafe impl<P: Kind> Send for Shared<P> {}

impl<P: Kind> Default for Shared<P> {
    fn default() -> Self {
        Self {
            lock: RobustLock::default(),
            torn: UnsafeCell::new(false),
        }
    }
}

impl<P: Kind> Shared<P> {
    fn set_torn(&self, torn: bool) {
        // SAFETY: called with the lock held; loom reports two at once.
        self.torn.with_mut(|data| unsafe { *data = torn });
    }

    fn work_and_unlock(&self) {
        self.set_torn(true);
        step();
        self.set_torn(false);
        // SAFETY: called with the lock held.
        unsafe { self.lock.unlock() };
    }

    pub fn enter(&self) {
        match self.lock.lock(None) {
            Taken::Clean => {
                // SAFETY: the lock is held.
                let torn = self.torn.with(|data| unsafe { *data });
                assert!(!torn, "torn data, and nobody said so");
            }
            Taken::OwnerDied => {
                self.set_torn(false);
                self.lock.mark_consistent();
            }
            other => panic!("{other:?}"),
        }
        self.work_and_unlock();
    }

    /// A victim that gives up at its deadline.
    pub fn try_enter(&self) {
        if self.lock.lock(Some(SOON)) == Taken::Clean {
            self.work_and_unlock();
        }
    }
}

fn spawn<P: Kind>(
    shared: &Arc<Shared<P>>,
    number: usize,
    life: Option<usize>,
    body: fn(&Shared<P>),
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        as_task(number, life, || body(&shared));
    })
}

/// A victim and `survivors` others.
fn somebody_dies<P: Kind>(survivors: usize, life: usize, victim: fn(&Shared<P>)) {
    let shared = Arc::<Shared<P>>::default();
    let mut threads = vec![spawn(&shared, 1, Some(life), victim)];
    threads.extend((0..survivors).map(|number| spawn(&shared, 2 + number, None, Shared::enter)));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // As the last: whatever state they left, it can be entered.
    as_task(0, None, || shared.enter());
}

/// The model for each step at which the victim can die, until it has none left.
pub fn at_every_step<P: Kind>(
    scene: Scene,
    preemptions: usize,
    survivors: usize,
    victim: fn(&Shared<P>),
) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            somebody_dies(survivors, life, victim)
        });
        if !somebody_died() {
            assert!(life > 5, "the victim has more steps than that");
            return;
        }
    }
}

/// A lock whose owner died, and that two others give up, or find given up.
pub fn unrepaired_is_lost<P: Kind>(scene: Scene, preemptions: usize) {
    scene.explore(Some(preemptions), || {
        let shared = Arc::<Shared<P>>::default();
        assert!(!as_task(1, Some(4), || {
            shared.lock.lock(None);
            step();
            step();
        }));
        let give_up = |shared: &Shared<P>| match shared.lock.lock(None) {
            // SAFETY: the lock is held.
            Taken::OwnerDied => unsafe { shared.lock.unlock() },
            other => assert_eq!(other, Taken::NotRecoverable),
        };
        let threads = [2, 3].map(|number| spawn(&shared, number, None, give_up));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.lock.lock(None), Taken::NotRecoverable);
    });
}
