//! `rtems/sem/mrsp-obtain`: which tasks execute on the processors of two schedulers when a task obtains.
//!
//! Each of the schedulers has one processor, to which its tasks are bound. Without real-time priorities two states can
//! be brought about and seen: the obtaining task executes at home, and a third task executes on the other processor.

use super::group::{CEILING, LOW, LOWER, TaskGroup};
use super::{Class, ClassicSemaphores, Discipline, attribute, status};
use crate::conformance::{Combination, Driver, NotApplicable, Seen};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{JoinHandle, yield_now};

pub(super) fn driver<S: ClassicSemaphores>(semaphores: &Arc<S>) -> impl Driver + use<S> {
    let semaphores = Arc::clone(semaphores);
    move |combination: &Combination| run(&semaphores, combination)
}

fn run<S: ClassicSemaphores>(
    semaphores: &Arc<S>,
    combination: &Combination,
) -> Result<Seen, NotApplicable> {
    let group = TaskGroup::new(semaphores);
    group.need_schedulers(2)?;
    let [home, helping] = [0, 1].map(|place| group.schedulers()[place]);
    let task = group.member_in(0, LOW);
    // The ceiling that the task has already, by another semaphore.
    let available = match combination.pre("PriorityHome") {
        "NewHigh" => Some(CEILING + 5),
        "NewEqual" => Some(CEILING),
        _ => None,
    };
    if let Some(ceiling) = available {
        let other = group.create(task, Class::MrsP, Discipline::Priority, 1);
        group.set_ceiling(task, other, home, ceiling);
        assert_eq!(group.try_obtain(task, other), status::SUCCESSFUL);
        if combination.pre("PriorityHelping") == "Helping" {
            let helper = group.member_in(1, LOWER);
            assert_eq!(group.obtain(helper, other).result(), None);
        }
    }
    let id = group.create(task, Class::MrsP, Discipline::Priority, 1);
    let third = Third::start(
        semaphores,
        helping,
        match combination.pre("PriorityHelping") {
            "ThirdEqual" => CEILING,
            "ThirdLow" => CEILING - 5,
            _ => CEILING + 5,
        },
    );
    let (answer, [before, after]) = group.call_through(task, move |semaphores| {
        let before = semaphores.processor();
        let answer = semaphores.obtain(id, attribute::WAIT, 0);
        (answer, [before, semaphores.processor()])
    });
    let seen = Seen::new();
    if answer != status::SUCCESSFUL {
        return Ok(seen.state("Home", format!("status {answer}")));
    }
    let elsewhere = third.processor_after_now();
    Ok(seen
        .state(
            "Home",
            if after == before {
                "Task".to_owned()
            } else {
                format!("the task moved from {before} to {after}")
            },
        )
        .state(
            "Helping",
            if elsewhere == after {
                "the third task has moved"
            } else {
                "Third"
            },
        ))
}

/// A task that executes until it is dropped.
struct Third {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    rounds: AtomicU64,
    /// Where it was in the last round.
    processor: AtomicU32,
    ends: AtomicBool,
}

impl Third {
    fn start<S: ClassicSemaphores>(semaphores: &Arc<S>, scheduler: u32, priority: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let (own, semaphores) = (Arc::clone(&shared), Arc::clone(semaphores));
        let thread = std::thread::spawn(move || {
            semaphores.join(priority);
            let moved = semaphores.set_own_scheduler(scheduler, priority);
            assert_eq!(moved, status::SUCCESSFUL, "move a task to a scheduler");
            while !own.ends.load(Ordering::Relaxed) {
                own.processor
                    .store(semaphores.processor(), Ordering::Relaxed);
                // Release: pairs with the Acquire below.
                own.rounds.fetch_add(1, Ordering::Release);
            }
        });
        let third = Self {
            shared,
            thread: Some(thread),
        };
        third.processor_after_now();
        third
    }

    /// Waits until it has executed after this call began; returns where.
    fn processor_after_now(&self) -> u32 {
        let Shared {
            rounds, processor, ..
        } = &*self.shared;
        // A round that has begun before counts for the next.
        let enough = rounds.load(Ordering::Relaxed) + 2;
        while rounds.load(Ordering::Acquire) < enough {
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!has_ended, "the third task has ended");
            yield_now();
        }
        processor.load(Ordering::Relaxed)
    }
}

impl Drop for Third {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
