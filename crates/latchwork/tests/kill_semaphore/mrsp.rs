//! MrsP semaphores whose owners and helpers are killed at each instruction, while processors are lent.

use super::bound::{bind, bound_task, processors_of, real_time_of, two_processors};
use super::{priority, region};
use latchwork::region::Region;
use latchwork::semaphore::{MrspSemaphore, ObtainError};
use latchwork_testkit::Trial;
use latchwork_testkit::step::{self, Point};

const OWN: u8 = 60;

/// Threads of the test outlive any borrow.
fn semaphore() -> (&'static Region, MrspSemaphore<'static>) {
    let region: &Region = Box::leak(Box::new(region()));
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

#[test]
fn a_helped_owner_passes_it_on_at_every_instruction() {
    const NAME: &str = "a_helped_owner_passes_it_on_at_every_instruction";
    let Some([here, there]) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let (region, semaphore) = semaphore();
    // The helper's is busy.
    bind(&[here]);
    step::each_instruction(
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
        |helper, point| {
            let (told, processors, now) = helper.join().unwrap();
            assert!(point != Point::Finished || !told);
            assert_eq!(processors, [there], "killed at {point:?}");
            assert_eq!(now, 100 - i32::from(OWN), "killed at {point:?}");
            assert!(!semaphore.try_obtain().unwrap().owner_died());
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
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
    let (region, semaphore) = semaphore();
    bound_task(region, here, OWN);
    step::each_instruction(
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
        |(), point| {
            semaphore.release().unwrap();
            check_at_home(here, "lend", point);
            assert!(!semaphore.try_obtain().unwrap().owner_died());
            assert_eq!((semaphore.owner(), semaphore.waiting()), (None, 0));
        },
    );
}
