//! Semaphores of all kinds, and numbers.

use arbitrary::Arbitrary;
use latchwork::region::Region;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, Held, ObtainError, Priority,
    ReleaseError, SemaphoreError, SimpleBinarySemaphore, UseError,
};
use std::time::Duration;

#[derive(Arbitrary, Debug)]
pub enum Step {
    Create { which: u8, count: u32, form: u8 },
    Obtain { which: u8, waits: bool },
    Release(u8),
    Flush(u8),
    Delete(u8),
}

enum Object<'r> {
    Counting(CountingSemaphore<'r>, u32),
    Simple(SimpleBinarySemaphore<'r>, u32),
    Binary(BinarySemaphore<'r>, Vec<Held<'r>>),
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

pub fn run(region: &Region, steps: Vec<Step>) {
    let mut objects: [Option<Object<'_>>; 4] = [const { None }; 4];
    for step in steps.into_iter().take(64) {
        match step {
            Step::Create { which, count, form } => {
                let (name, object) = (
                    NAMES[usize::from(which) % 4],
                    &mut objects[usize::from(which) % 4],
                );
                if object.is_none() {
                    *object = create(region, name, count, form);
                }
            }
            Step::Obtain { which, waits } => {
                if let Some(object) = &mut objects[usize::from(which) % 4] {
                    obtain(object, waits);
                }
            }
            Step::Release(which) => {
                if let Some(object) = &mut objects[usize::from(which) % 4] {
                    release(object);
                }
            }
            Step::Flush(which) => {
                let flushed = match &objects[usize::from(which) % 4] {
                    Some(Object::Counting(it, _)) => it.flush(),
                    Some(Object::Simple(it, _)) => it.flush(),
                    Some(Object::Binary(it, _)) => it.flush(),
                    None => continue,
                };
                assert_eq!(flushed.unwrap(), 0);
            }
            Step::Delete(which) => delete(&mut objects[usize::from(which) % 4]),
        }
    }
    for object in &mut objects {
        if let Some(Object::Binary(_, held)) = object {
            held.clear();
        }
        delete(object);
    }
}

fn create<'r>(region: &'r Region, name: &str, count: u32, form: u8) -> Option<Object<'r>> {
    let order = if form & 4 == 0 {
        Discipline::Fifo
    } else {
        Discipline::Priority
    };
    Some(match form % 4 {
        0 => Object::Counting(
            CountingSemaphore::create(region, name, count, order).unwrap(),
            count,
        ),
        1 => match SimpleBinarySemaphore::create(region, name, count, order) {
            Ok(simple) => Object::Simple(simple, count),
            Err(SemaphoreError::Count(refused)) => {
                assert!(refused == count && count > 1);
                return None;
            }
            Err(error) => panic!("{error}"),
        },
        2 => {
            let options = BinaryOptions::new();
            let options = if form & 8 != 0 {
                options.by_priority()
            } else {
                options
            };
            let options = if form & 16 != 0 {
                options.inherit()
            } else {
                options
            };
            Object::Binary(
                BinarySemaphore::create(region, name, &options).unwrap(),
                Vec::new(),
            )
        }
        _ => {
            let ceiling = Priority::new((form >> 3).max(1));
            let options = BinaryOptions::new().ceiling(ceiling.unwrap());
            Object::Binary(
                BinarySemaphore::create(region, name, &options).unwrap(),
                Vec::new(),
            )
        }
    })
}

fn obtain(object: &mut Object<'_>, waits: bool) {
    let soon = Duration::from_micros(1);
    let (got, count) = match object {
        Object::Counting(it, count) => (
            if waits {
                it.obtain_for(soon)
            } else {
                it.try_obtain()
            },
            count,
        ),
        Object::Simple(it, count) => (
            if waits {
                it.obtain_for(soon)
            } else {
                it.try_obtain()
            },
            count,
        ),
        Object::Binary(it, held) => {
            // A new semaphore with a ceiling may be above a task that has one of another semaphore.
            match if waits {
                it.obtain_for(soon)
            } else {
                it.try_obtain()
            } {
                Ok(guard) => {
                    assert!(!guard.owner_died());
                    held.push(guard);
                }
                Err(ObtainError::AboveCeiling { own, ceiling }) => assert!(own != ceiling),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(it.owner().is_some(), !held.is_empty());
            return;
        }
    };
    match got {
        Ok(()) => *count = count.checked_sub(1).expect("a unit"),
        Err(ObtainError::WouldBlock) => assert!(*count == 0 && !waits),
        Err(ObtainError::TimedOut) => assert!(*count == 0 && waits),
        Err(error) => panic!("{error}"),
    }
}

fn release(object: &mut Object<'_>) {
    match object {
        Object::Counting(it, count) => match it.release() {
            Ok(()) => *count += 1,
            Err(ReleaseError::Overflow) => assert_eq!(*count, u32::MAX),
            Err(error) => panic!("{error}"),
        },
        Object::Simple(it, count) => {
            it.release().unwrap();
            *count = 1;
        }
        Object::Binary(it, held) => match held.pop() {
            Some(guard) => drop(guard),
            None => assert!(matches!(it.release(), Err(ReleaseError::NotOwner))),
        },
    }
    match object {
        Object::Counting(it, count) => assert_eq!(it.count(), *count),
        Object::Simple(it, count) => assert_eq!(it.count(), *count),
        Object::Binary(it, held) => assert_eq!(it.owner().is_some(), !held.is_empty()),
    }
}

fn delete(place: &mut Option<Object<'_>>) {
    match place {
        None => return,
        Some(Object::Counting(it, _)) => {
            it.delete().unwrap();
            assert!(matches!(it.try_obtain(), Err(ObtainError::Deleted)));
        }
        Some(Object::Simple(it, _)) => {
            it.delete().unwrap();
            assert!(matches!(it.release(), Err(ReleaseError::Deleted)));
        }
        Some(Object::Binary(it, held)) if !held.is_empty() => {
            assert!(matches!(it.delete(), Err(UseError::InUse)));
            return;
        }
        Some(Object::Binary(it, _)) => {
            it.delete().unwrap();
            assert!(matches!(it.try_obtain(), Err(ObtainError::Deleted)));
            assert!(matches!(it.delete(), Err(UseError::Deleted)));
        }
    }
    *place = None;
}
