//! MrsP semaphores whose owners and helpers are killed at each instruction, while processors are lent. (In one PID namespace:
//! a processor is lent to a task by its thread ID.)

use super::bound::{bind, bound_task, processors_of, real_time_of, thread_id, two_processors};
use super::{priority, region};
use latchwork::region::{Region, TaskId};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, MrspSemaphore, ObtainError};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Page, Trial};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;

const OWN: u8 = 60;
/// Of a waiter, as the kernel has it.
const SPINS: i32 = 49;

/// Threads of the test outlive any borrow.
fn semaphore(trial: &Trial) -> (&'static Region, MrspSemaphore<'static>) {
    let region: &Region = Box::leak(Box::new(region(trial)));
    (
        region,
        MrspSemaphore::create(region, "s", priority(50)).unwrap(),
    )
}

/// The calling task is what it was before it obtained anything.
fn check_at_home(home: usize, what: &str, point: Point) {
    assert_eq!(processors_of(0), [home], "{what}, killed at {point:?}");
    let now = real_time_of(0);
    assert_eq!(now, 100 - i32::from(OWN), "{what}, killed at {point:?}");
}

/// The outcome of a round: the owner has so many processors after its helper's death.
fn lent(processors: usize) -> &'static str {
    match processors {
        1 => "the owner had its own processor alone",
        _ => "the owner had the dead helper's processor, until its release",
    }
}

#[test]
fn a_helped_owner_passes_it_on_at_every_instruction() {
    const NAME: &str = "a_helped_owner_passes_it_on_at_every_instruction";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore(&trial);
    // The helper's is busy.
    bind(&[here]);
    step::each_instruction_and_recovery(
        &trial,
        "release to a helper",
        || {
            std::thread::spawn(move || {
                bound_task(region, there, OWN);
                while semaphore.owner().is_none() {
                    std::thread::sleep(core::time::Duration::from_micros(50));
                }
                let held = semaphore.obtain().unwrap();
                let told = held.owner_died();
                drop(held);
                (told, processors_of(0), real_time_of(0))
            })
        },
        |_, span| {
            bound_task(region, here, OWN);
            semaphore.obtain().unwrap().keep();
            while processors_of(0).len() < 2 {
                std::thread::sleep(core::time::Duration::from_micros(50));
            }
            span.run(|| semaphore.release().unwrap());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |helper, point| {
            let (told, processors, now) = helper.join().unwrap();
            assert!(point != Point::Finished || !told);
            assert_eq!(processors, [there], "killed at {point:?}");
            assert_eq!(now, 100 - i32::from(OWN), "killed at {point:?}");
            assert!(!semaphore.try_obtain().unwrap().owner_died());
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
            step::reported(told.into())
        },
    );
}

#[test]
fn a_helper_leaves_no_processor_behind_at_any_instruction() {
    const NAME: &str = "a_helper_leaves_no_processor_behind_at_any_instruction";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore(&trial);
    bound_task(region, here, OWN);
    step::each_instruction_and_recovery(
        &trial,
        "lend a processor, and take it back",
        || semaphore.obtain().unwrap().keep(),
        |(), span| {
            bound_task(region, there, OWN);
            span.run(|| {
                let patience = core::time::Duration::from_micros(1);
                assert!(matches!(
                    semaphore.obtain_for(patience),
                    Err(ObtainError::TimedOut)
                ));
            });
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |(), point| {
            let processors = processors_of(0).len();
            semaphore.release().unwrap();
            check_at_home(here, "lend", point);
            assert!(!semaphore.try_obtain().unwrap().owner_died());
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
            lent(processors)
        },
    );
}

#[test]
fn a_killed_helper_keeps_no_other_from_helping_at_any_instruction() {
    const NAME: &str = "a_killed_helper_keeps_no_other_from_helping_at_any_instruction";
    let Some(mut processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore(&trial);
    step::each_instruction_and_recovery(
        &trial,
        "lend a processor to an owner that has moved",
        || {
            processors.reverse();
            bound_task(region, processors[0], OWN);
            semaphore.obtain().unwrap().keep();
            processors
        },
        |[_, there], span| {
            bound_task(region, *there, OWN);
            span.run(|| {
                let patience = core::time::Duration::from_micros(1);
                assert!(matches!(
                    semaphore.obtain_for(patience),
                    Err(ObtainError::TimedOut)
                ));
            });
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                semaphore.waiting()
            });
        },
        |[here, there], point| {
            let processors = processors_of(0).len();
            let (told, next) = std::sync::mpsc::channel();
            let helper = std::thread::spawn(move || {
                bound_task(region, there, OWN);
                told.send(thread_id()).unwrap();
                drop(semaphore.obtain().unwrap());
                processors_of(0)
            });
            let next = next.recv().unwrap();
            trial.wait_until(|| real_time_of(next) == SPINS);
            assert_eq!(processors_of(0).len(), 2, "killed at {point:?}");
            semaphore.release().unwrap();
            assert_eq!(helper.join().unwrap(), [there]);
            check_at_home(here, "lend", point);
            lent(processors)
        },
    );
}

#[test]
fn a_creator_that_owns_the_semaphore_is_helped_from_every_instruction_on() {
    const NAME: &str = "a_creator_that_owns_the_semaphore_is_helped_from_every_instruction_on";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    const CEILING: u8 = 50;
    let trial = Trial::begin(NAME);
    let (region, _) = semaphore(&trial);
    region.join("test").unwrap();
    bind(&[here]);
    let maker = Page::<AtomicU32>::new();
    let last = RefCell::new(None::<JoinHandle<()>>);
    let begin = || {
        if let Some(helper) = last.take() {
            helper.join().unwrap();
        }
        if let Ok(made) = MrspSemaphore::open(region, "made") {
            trial.wait_until(|| made.delete().is_ok());
        }
    };
    step::each_standstill(
        &trial,
        "create obtained",
        || {
            begin();
            None
        },
        |_, span| {
            bound_task(region, here, CEILING);
            maker.store(thread_id(), SeqCst);
            let create = || MrspSemaphore::create_obtained(region, "made", priority(CEILING));
            let made = span.run(|| create().unwrap());
            made.release().unwrap();
        },
        |helper| {
            let (told, thread) = std::sync::mpsc::channel();
            *last.borrow_mut() = Some(std::thread::spawn(move || {
                bound_task(region, there, CEILING);
                told.send(thread_id()).unwrap();
                let made = loop {
                    match MrspSemaphore::open(region, "made") {
                        Ok(made) if made.owner().is_some() => break made,
                        _ => std::thread::sleep(core::time::Duration::from_micros(50)),
                    }
                };
                drop(made.obtain().unwrap());
            }));
            let thread = thread.recv().unwrap();
            // It may have to wait for the one that stands still.
            for _ in 0..5 {
                if real_time_of(thread) == SPINS {
                    break;
                }
                std::thread::sleep(core::time::Duration::from_millis(1));
            }
            *helper = Some(thread);
        },
        |helper, point| {
            if let Some(helper) = helper {
                trial.wait_until(|| real_time_of(helper) == SPINS);
                let processors = processors_of(maker.load(SeqCst));
                assert_eq!(processors.len(), 2, "stopped at {point:?}");
            }
        },
    );
    begin();
}

#[test]
fn an_owner_has_the_ceiling_at_every_instruction_of_its_release() {
    const NAME: &str = "an_owner_has_the_ceiling_at_every_instruction_of_its_release";
    let trial = Trial::begin(NAME);
    let (region, shared) = semaphore(&trial);
    let ceiling = BinaryOptions::new().ceiling(priority(50));
    let plain = BinarySemaphore::create(region, "plain", &ceiling).unwrap();
    region.join("test").unwrap();
    check_release(
        &trial,
        "release, MrsP",
        region,
        move || (shared.owner(), shared.waiting()),
        move || shared.obtain().unwrap().keep(),
        move || shared.release().unwrap(),
    );
    check_release(
        &trial,
        "release, with a ceiling",
        region,
        move || (plain.owner(), plain.waiting()),
        move || plain.obtain().unwrap().keep(),
        move || plain.release().unwrap(),
    );
}

/// Whoever comes by works an owner's priority out, and finds the ceiling, 50. `look`: the owner, and how many wait.
fn check_release(
    trial: &Trial,
    name: &str,
    region: &'static Region,
    look: impl Fn() -> (Option<TaskId>, u32) + Copy + Send + 'static,
    obtain: impl Fn() + Copy + Send + 'static,
    release: impl Fn() + Copy + Send + 'static,
) {
    for waits in [false, true] {
        step::each_standstill(
            trial,
            name,
            || {
                region.sweep().unwrap();
                let waiter = waits.then(|| {
                    std::thread::spawn(move || {
                        while look().0.is_none() {
                            std::thread::yield_now();
                        }
                        obtain();
                        release();
                    })
                });
                (waiter, None, None)
            },
            |_, span| {
                let me = region.task_id().unwrap();
                me.set_priority(region, priority(80)).unwrap();
                obtain();
                while look().1 != u32::from(waits) {
                    std::thread::yield_now();
                }
                span.run(release);
            },
            |(_, passer_by, low)| {
                let Some(owner) = look().0 else {
                    return;
                };
                let passes = std::thread::spawn(move || {
                    // There may be none by now.
                    let _ = owner.set_priority(region, priority(80));
                });
                // It may have to wait for the one that stands still.
                for _ in 0..5 {
                    if passes.is_finished() {
                        break;
                    }
                    std::thread::sleep(core::time::Duration::from_millis(1));
                }
                let is_done = passes.is_finished();
                let now = owner.current_priority(region).map(|now| now.get());
                // Of the child, or of who waited for it.
                if is_done && look().0 == Some(owner) && now != Ok(50) {
                    *low = now.ok();
                }
                *passer_by = Some(passes);
            },
            |(waiter, passer_by, low), point| {
                for other in [waiter, passer_by].into_iter().flatten() {
                    other.join().unwrap();
                }
                assert_eq!(low, None, "{name}, stopped at {point:?}");
            },
        );
    }
}

/// The calling thread's processors and real-time priority.
fn place() -> (Vec<usize>, i32) {
    place_of(0)
}

fn place_of(thread: u32) -> (Vec<usize>, i32) {
    (processors_of(thread), real_time_of(thread))
}

fn at_home(home: usize) -> (Vec<usize>, i32) {
    (vec![home], 100 - i32::from(OWN))
}

#[test]
fn an_owner_is_at_home_wherever_its_helper_stands_still() {
    const NAME: &str = "an_owner_is_at_home_wherever_its_helper_stands_still";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore(&trial);
    // Ahead of ordinary tasks: it is many steps.
    bound_task(region, here, OWN);
    let helper = Page::<AtomicU32>::new();
    step::each_standstill(
        &trial,
        "lend a processor, and take it back",
        || {
            region.sweep().unwrap();
            let (told, owns) = std::sync::mpsc::channel();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let owner = std::thread::spawn(move || {
                bound_task(region, here, OWN);
                semaphore.obtain().unwrap().keep();
                told.send(()).unwrap();
                let _ = released.recv();
                semaphore.release().unwrap();
                place()
            });
            owns.recv().unwrap();
            (owner, Some(release))
        },
        |_, span| {
            bound_task(region, there, OWN);
            helper.store(thread_id(), SeqCst);
            let patience = core::time::Duration::from_micros(1);
            span.run(|| drop(semaphore.obtain_for(patience)));
        },
        |(owner, release)| {
            drop(release.take());
            // It may have to wait for the one that stands still.
            for _ in 0..5 {
                if owner.is_finished() {
                    break;
                }
                std::thread::sleep(core::time::Duration::from_millis(1));
            }
        },
        |(owner, release), point| {
            drop(release);
            assert_eq!(owner.join().unwrap(), at_home(here), "stopped at {point:?}");
            let helper = helper.load(SeqCst);
            assert_eq!(place_of(helper), at_home(there), "stopped at {point:?}");
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
        },
    );
}

#[test]
fn a_helper_leaves_an_owner_at_home_wherever_that_stands_still() {
    const NAME: &str = "a_helper_leaves_an_owner_at_home_wherever_that_stands_still";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore(&trial);
    // Ahead of ordinary tasks: it is many steps.
    bound_task(region, here, OWN);
    let owner = Page::<AtomicU32>::new();
    step::each_standstill(
        &trial,
        "obtain and release",
        || {
            region.sweep().unwrap();
            None
        },
        |_, span| {
            bound_task(region, here, OWN);
            owner.store(thread_id(), SeqCst);
            span.run(|| drop(semaphore.obtain().unwrap()));
        },
        |helper| {
            let comes = std::thread::spawn(move || {
                bound_task(region, there, OWN);
                drop(semaphore.obtain().unwrap());
                place()
            });
            for _ in 0..5 {
                if comes.is_finished() {
                    break;
                }
                std::thread::sleep(core::time::Duration::from_millis(1));
            }
            *helper = Some(comes);
        },
        |helper: Option<JoinHandle<_>>, point| {
            let owner = owner.load(SeqCst);
            assert_eq!(place_of(owner), at_home(here), "stopped at {point:?}");
            if let Some(helper) = helper {
                assert_eq!(
                    helper.join().unwrap(),
                    at_home(there),
                    "stopped at {point:?}"
                );
            }
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
        },
    );
}
