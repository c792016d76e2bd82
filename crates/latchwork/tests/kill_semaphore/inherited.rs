//! What is inherited, while somebody stands still or is killed at each instruction of what it follows from.

use super::{priority, region};
use core::time::Duration;
use latchwork::region::{Region, TaskId};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, ObtainError};
use latchwork_testkit::Trial;
use latchwork_testkit::step;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// Of owners.
const OWN: u8 = 100;

#[derive(Clone, Copy)]
struct Scene {
    region: &'static Region,
    semaphore: BinarySemaphore<'static>,
}

impl Scene {
    /// Threads of the test outlive any borrow.
    fn new(trial: &Trial) -> Self {
        let region: &Region = Box::leak(Box::new(region(trial)));
        region.join("test").unwrap();
        let options = BinaryOptions::new().inherit();
        let semaphore = BinarySemaphore::create(region, "s", &options).unwrap();
        Self { region, semaphore }
    }

    fn me_at(self, own: u8) -> TaskId {
        let me = self.region.task_id().unwrap();
        me.set_priority(self.region, priority(own)).unwrap();
        me
    }

    fn current(self, task: TaskId) -> u8 {
        task.current_priority(self.region).unwrap().get()
    }

    fn until(self, task: TaskId, due: u8) {
        while self.current(task) != due {
            thread::yield_now();
        }
    }

    /// A task that owns the semaphore until it has inherited `due`.
    fn owner_until(self, due: u8) -> (TaskId, JoinHandle<()>) {
        let (told, id) = mpsc::channel();
        let owner = thread::spawn(move || {
            let me = self.me_at(OWN);
            self.semaphore.obtain().unwrap().keep();
            told.send(me).unwrap();
            self.until(me, due);
            self.semaphore.release().unwrap();
            // Whoever works it out at this moment may have begun before.
            let own = me.priority(self.region).unwrap().get();
            self.until(me, own);
        });
        (id.recv().unwrap(), owner)
    }

    /// A task that obtains the semaphore as soon as another owns it, and releases it when the sender is dropped.
    fn waiter(self, own: u8) -> (TaskId, mpsc::Sender<()>, JoinHandle<()>) {
        let (told, id) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waiter = thread::spawn(move || {
            let me = self.me_at(own);
            told.send(me).unwrap();
            while self.semaphore.owner().is_none() {
                thread::yield_now();
            }
            let held = self.semaphore.obtain().unwrap();
            let _ = ended.recv();
            drop(held);
            assert_eq!(self.current(me), me.priority(self.region).unwrap().get());
        });
        (id.recv().unwrap(), end, waiter)
    }
}

/// Runs it beside one that stands still, and may be in its way.
fn try_beside(what: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let beside = thread::spawn(what);
    for _ in 0..10 {
        if beside.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    beside
}

#[test]
fn what_a_waiter_lends_is_not_lost_wherever_it_stands_still() {
    let trial = Trial::begin("what_a_waiter_lends_is_not_lost_wherever_it_stands_still")
        .across_namespaces();
    let scene = Scene::new(&trial);
    step::each_standstill(
        &trial,
        "obtain what is owned",
        || {
            scene.region.sweep().unwrap();
            (scene.owner_until(10).1, None)
        },
        |_, span| {
            scene.me_at(10);
            span.run(|| drop(scene.semaphore.obtain().unwrap()));
        },
        |(_, other)| {
            // It has the owner's priority worked out twice, the second time with nobody left but the other.
            *other = Some(try_beside(move || {
                scene.me_at(50);
                let waited = scene.semaphore.obtain_for(Duration::from_micros(100));
                assert!(matches!(waited, Ok(_) | Err(ObtainError::TimedOut)));
            }));
        },
        |(owner, other), _| {
            owner.join().unwrap();
            if let Some(other) = other {
                other.join().unwrap();
            }
        },
    );
}

#[test]
fn an_inherited_priority_is_not_lost_wherever_a_refresh_is_stopped() {
    let trial = Trial::begin("an_inherited_priority_is_not_lost_wherever_a_refresh_is_stopped")
        .across_namespaces();
    let scene = Scene::new(&trial);
    step::each_standstill(
        &trial,
        "set_priority of an owner",
        || {
            scene.region.sweep().unwrap();
            let (id, owner) = scene.owner_until(10);
            let waiter = scene.waiter(60);
            scene.until(id, 60);
            (id, owner, waiter, None)
        },
        |(id, ..), span| {
            scene.region.join("stepped").unwrap();
            // It may have released, and ended.
            span.run(|| id.set_priority(scene.region, priority(90)).is_ok());
        },
        |(_, _, _, second)| *second = Some(scene.waiter(10)),
        |(_, owner, first, second), _| {
            let second = second.unwrap_or_else(|| scene.waiter(10));
            owner.join().unwrap();
            for (_, end, waiter) in [second, first] {
                drop(end);
                waiter.join().unwrap();
            }
        },
    );
}

#[test]
fn an_heir_inherits_from_the_remaining_waiters_wherever_the_last_owner_is_stopped() {
    let trial = Trial::begin(
        "an_heir_inherits_from_the_remaining_waiters_wherever_the_last_owner_is_stopped",
    )
    .across_namespaces();
    let scene = Scene::new(&trial);
    step::each_standstill(
        &trial,
        "release to the first of two",
        || {
            scene.region.sweep().unwrap();
            (scene.waiter(10), scene.waiter(50), None)
        },
        |_, span| {
            scene.me_at(OWN);
            scene.semaphore.obtain().unwrap().keep();
            while scene.semaphore.waiting() < 2 {
                thread::yield_now();
            }
            span.run(|| scene.semaphore.release().unwrap());
        },
        |((heir, ..), _, change)| {
            let heir = *heir;
            *change = Some(try_beside(move || {
                heir.set_priority(scene.region, priority(200)).unwrap();
            }));
        },
        |((heir, end, first), (_, next_end, second), change), point| {
            match change {
                // Whoever owns it has 50, its own or that of who waits.
                Some(change) => {
                    change.join().unwrap();
                    let owner = scene.semaphore.owner().unwrap();
                    assert_eq!(scene.current(owner), 50, "stopped at {point:?}");
                }
                None => assert_eq!(scene.semaphore.owner(), Some(heir)),
            }
            drop((end, next_end));
            first.join().unwrap();
            second.join().unwrap();
        },
    );
}

#[test]
fn what_a_killed_waiter_lent_is_taken_back_at_every_instruction() {
    let trial = Trial::begin("what_a_killed_waiter_lent_is_taken_back_at_every_instruction")
        .across_namespaces();
    let scene = Scene::new(&trial);
    let me = scene.me_at(OWN);
    step::each_instruction_and_recovery(
        &trial,
        "obtain what another waits for",
        || {
            scene.semaphore.obtain().unwrap().keep();
            let other = scene.waiter(50);
            scene.until(me, 50);
            other
        },
        |_, span| {
            scene.me_at(10);
            span.run(|| drop(scene.semaphore.obtain().unwrap()));
        },
        |_| false,
        |_, span| {
            span.run(|| {
                scene.region.join("recoverer").unwrap();
                scene.region.sweep().unwrap();
                scene.semaphore.waiting()
            });
        },
        |(_, end, other), _| {
            let has_lent = scene.current(me) < 50;
            trial.wait_until(|| scene.current(me) == 50);
            drop(end);
            scene.semaphore.release().unwrap();
            assert_eq!(scene.current(me), OWN);
            other.join().unwrap();
            match has_lent {
                true => "the owner had its priority for some time",
                false => "the owner did not have its priority",
            }
        },
    );
}

#[test]
fn an_inherited_priority_survives_a_kill_of_the_refreshing_task_at_every_instruction() {
    let trial = Trial::begin(
        "an_inherited_priority_survives_a_kill_of_the_refreshing_task_at_every_instruction",
    )
    .across_namespaces();
    let scene = Scene::new(&trial);
    let me = scene.me_at(OWN);
    step::each_instruction_and_recovery(
        &trial,
        "set_priority of an owner that others wait for",
        || {
            scene.me_at(OWN);
            scene.semaphore.obtain().unwrap().keep();
            let first = scene.waiter(60);
            scene.until(me, 60);
            first
        },
        |_, span| {
            scene.region.join("stepped").unwrap();
            span.run(|| me.set_priority(scene.region, priority(90)).unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                scene.region.join("recoverer").unwrap();
                scene.region.sweep().unwrap();
                scene.semaphore.waiting()
            });
        },
        |first, _| {
            let is_done = me.priority(scene.region).unwrap().get() == 90;
            // A refresh finds the waiter that was there before the kill.
            me.set_priority(scene.region, priority(91)).unwrap();
            assert_eq!(scene.current(me), 60);
            let second = scene.waiter(10);
            trial.wait_until(|| scene.current(me) == 10);
            scene.semaphore.release().unwrap();
            assert_eq!(scene.current(me), 91);
            for (_, end, waiter) in [second, first] {
                drop(end);
                waiter.join().unwrap();
            }
            step::done(is_done)
        },
    );
}
