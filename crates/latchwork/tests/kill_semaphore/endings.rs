//! Flushes and deletions of semaphores of all kinds that are killed at each instruction.

use super::steps::{lasting_region, waiting};
use super::{all_binary, priority};
use latchwork::region::Region;
use latchwork::semaphore::{BinarySemaphore, CountingSemaphore, Discipline, MrspSemaphore};
use latchwork::semaphore::{ObtainError, SimpleBinarySemaphore, UseError};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Trial, priority::may_use_priorities};

/// A semaphore whose waits can be ended by a flush.
#[derive(Clone, Copy)]
enum Flushed {
    Counting(CountingSemaphore<'static>),
    Simple(SimpleBinarySemaphore<'static>),
    /// The test owns it while others wait.
    Binary(BinarySemaphore<'static>),
}

impl Flushed {
    fn obtain(self) -> Result<(), ObtainError> {
        match self {
            Self::Counting(semaphore) => semaphore.obtain(),
            Self::Simple(semaphore) => semaphore.obtain(),
            Self::Binary(semaphore) => semaphore.obtain().map(drop),
        }
    }

    fn flush(self) -> Result<u32, UseError> {
        match self {
            Self::Counting(semaphore) => semaphore.flush(),
            Self::Simple(semaphore) => semaphore.flush(),
            Self::Binary(semaphore) => semaphore.flush(),
        }
    }

    fn delete(self) -> Result<(), UseError> {
        match self {
            Self::Counting(semaphore) => semaphore.delete(),
            Self::Simple(semaphore) => semaphore.delete(),
            Self::Binary(semaphore) => semaphore.delete(),
        }
    }

    fn waiting(self) -> u32 {
        match self {
            Self::Counting(semaphore) => semaphore.waiting(),
            Self::Simple(semaphore) => semaphore.waiting(),
            Self::Binary(semaphore) => semaphore.waiting(),
        }
    }

    /// Nobody waits, and it can be had once if it is released.
    fn check(self, what: &str, point: Point) {
        assert_eq!(self.waiting(), 0, "{what}, killed at {point:?}");
        match self {
            Self::Counting(semaphore) => {
                assert!(matches!(
                    semaphore.try_obtain(),
                    Err(ObtainError::WouldBlock)
                ));
                semaphore.release().unwrap();
                semaphore.try_obtain().unwrap();
            }
            Self::Simple(semaphore) => {
                assert!(matches!(
                    semaphore.try_obtain(),
                    Err(ObtainError::WouldBlock)
                ));
                semaphore.release().unwrap();
                semaphore.try_obtain().unwrap();
            }
            Self::Binary(semaphore) => {
                semaphore.release().unwrap();
                let held = semaphore.try_obtain().unwrap();
                assert!(!held.owner_died(), "{what}, killed at {point:?}");
                held.keep();
            }
        }
    }
}

type Make = Box<dyn Fn() -> Flushed>;

/// Each kind that has waiters which sleep, each in a region of its own: a name refers to one kind.
fn all_flushed(trial: &Trial) -> Vec<(String, &'static Region, Make)> {
    let mut all: Vec<(String, &'static Region, Make)> = Vec::new();
    for discipline in [Discipline::Fifo, Discipline::Priority] {
        let region = lasting_region(trial);
        let make = move || {
            let semaphore = CountingSemaphore::create(region, "s", 0, discipline);
            Flushed::Counting(semaphore.unwrap())
        };
        all.push((format!("counting, {discipline:?}"), region, Box::new(make)));
        let region = lasting_region(trial);
        let make = move || {
            let semaphore = SimpleBinarySemaphore::create(region, "s", 0, discipline);
            Flushed::Simple(semaphore.unwrap())
        };
        all.push((format!("simple, {discipline:?}"), region, Box::new(make)));
    }
    for (name, options) in all_binary() {
        let region = lasting_region(trial);
        let make = move || {
            let semaphore = BinarySemaphore::create(region, "s", &options).unwrap();
            if semaphore.owner().is_none() {
                semaphore.obtain().unwrap().keep();
            }
            Flushed::Binary(semaphore)
        };
        all.push((name.into(), region, Box::new(make)));
    }
    all
}

fn recover(region: &Region, span: step::Span) {
    span.run(|| {
        region.join("recoverer").unwrap();
        region.sweep().unwrap();
    });
}

#[test]
fn a_flush_ends_all_waits_at_every_instruction() {
    let trial = Trial::begin("a_flush_ends_all_waits_at_every_instruction").across_namespaces();
    for (name, region, make) in all_flushed(&trial) {
        let semaphore = make();
        step::each_instruction_and_recovery(
            &trial,
            &format!("flush, {name}"),
            || {
                waiting(
                    &trial,
                    2,
                    || semaphore.waiting(),
                    move || semaphore.obtain(),
                )
            },
            |_, span| {
                region.join("stepped").unwrap();
                span.run(|| semaphore.flush().unwrap());
            },
            |_| false,
            |_, span| recover(region, span),
            |waiters, point| {
                // How many waits it has ended itself, nobody can say: they may have ended by now.
                semaphore.flush().unwrap();
                for waiter in waiters {
                    let ended = waiter.join().unwrap();
                    let right = matches!(ended, Err(ObtainError::Flushed));
                    assert!(right, "{name}, killed at {point:?}: {ended:?}");
                }
                semaphore.check(&name, point);
                "all waits have ended"
            },
        );
    }
}

/// Semaphores with a count are deleted while others wait; an owned one cannot be deleted, and then nobody waits.
#[test]
fn a_deletion_ends_all_waits_at_every_instruction() {
    let trial = Trial::begin("a_deletion_ends_all_waits_at_every_instruction").across_namespaces();
    for (name, region, make) in all_flushed(&trial) {
        step::each_instruction_and_recovery(
            &trial,
            &format!("delete, {name}"),
            || {
                let semaphore = make();
                let waiters = match semaphore {
                    Flushed::Binary(binary) => {
                        binary.release().unwrap();
                        Vec::new()
                    }
                    _ => waiting(
                        &trial,
                        2,
                        || semaphore.waiting(),
                        move || semaphore.obtain(),
                    ),
                };
                (semaphore, waiters)
            },
            |(semaphore, _), span| {
                region.join("stepped").unwrap();
                span.run(|| semaphore.delete().unwrap());
            },
            |_| false,
            |_, span| recover(region, span),
            |(semaphore, waiters), point| {
                let done = step::done(semaphore.delete().is_err());
                for waiter in waiters {
                    let ended = waiter.join().unwrap();
                    let right = matches!(ended, Err(ObtainError::Deleted));
                    assert!(right, "{name}, killed at {point:?}: {ended:?}");
                }
                assert!(matches!(semaphore.obtain(), Err(ObtainError::Deleted)));
                make().check(&name, point);
                done
            },
        );
    }
}

#[test]
fn a_deletion_of_an_mrsp_semaphore_is_all_or_nothing_at_every_instruction() {
    const NAME: &str = "a_deletion_of_an_mrsp_semaphore_is_all_or_nothing_at_every_instruction";
    if !may_use_priorities(NAME) {
        return;
    }
    let trial = Trial::begin(NAME).across_namespaces();
    let region = lasting_region(&trial);
    let make = || MrspSemaphore::create(region, "s", priority(50)).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "delete, MrsP",
        make,
        |semaphore, span| {
            region.join("stepped").unwrap();
            span.run(|| semaphore.delete().unwrap());
        },
        |_| false,
        |_, span| recover(region, span),
        |semaphore, _| {
            let done = step::done(semaphore.delete().is_err());
            assert!(matches!(semaphore.try_obtain(), Err(ObtainError::Deleted)));
            let next = make();
            assert!(!next.try_obtain().unwrap().owner_died());
            assert_eq!((next.owner(), next.waiting()), (None, 0));
            next.delete().unwrap();
            done
        },
    );
}
