//! Random operations, killed at random moments.

use super::World;
use super::things::{Editors, Model};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::LockError;
use latchwork::region::{Region, Vec};
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::time::{Duration, Instant};

/// A random operation on both; each takes effect as a whole.
fn advance(
    (kind, number): (u32, u64),
    model: &mut Model,
    mut ours: Option<(&mut Editors<'_>, &Region)>,
) {
    let key = number % 24;
    let name = "ß".repeat(key as usize) + &key.to_string();
    macro_rules! ours {
        (|$things:ident, $region:ident| $run:expr) => {
            if let Some(($things, $region)) = &mut ours {
                let _: &Region = $region;
                $run
            }
        };
    }
    let some = |len: usize| number as usize % len.max(1);
    match kind {
        0..3 => {
            model.numbers.push(number);
            ours!(|things, region| things.numbers.push(number).unwrap());
        }
        3 => {
            let at = some(model.numbers.len());
            model.numbers.insert(at, number);
            ours!(|things, region| things.numbers.insert(at, number).unwrap());
        }
        4 if !model.numbers.is_empty() => {
            let at = some(model.numbers.len());
            let expected = model.numbers.swap_remove(at);
            ours!(|things, region| assert_eq!(things.numbers.swap_remove(at), expected));
        }
        5 if !model.numbers.is_empty() => {
            let at = some(model.numbers.len());
            let expected = model.numbers.remove(at);
            ours!(|things, region| assert_eq!(things.numbers.remove(at).unwrap(), expected));
        }
        6 => {
            if model.text.len() > 500 {
                model.text.clear();
                ours!(|things, region| things.text.clear());
            } else {
                model.text.push_str(&name);
                ours!(|things, region| things.text.push_str(&name).unwrap());
            }
        }
        7..9 => {
            let expected = model.counts.insert(key, number);
            ours!(|things, region| assert_eq!(
                things.counts.insert(key, number).unwrap(),
                expected
            ));
        }
        9 => {
            let expected = model.counts.remove(&key);
            ours!(|things, region| assert_eq!(things.counts.remove(&key), expected));
        }
        10 => {
            model.index.entry(name.clone()).or_default();
            ours!(|things, region| assert!(
                things
                    .index
                    .get_pin_mut_or_insert_str_with(&name, || Vec::new_in(region))
                    .is_ok()
            ));
        }
        11 => {
            if let Some(values) = model.index.get_mut(&name) {
                values.push(number);
                ours!(|things, region| things
                    .index
                    .get_pin_mut(&*name)
                    .unwrap()
                    .edit()
                    .push(number)
                    .unwrap());
            }
        }
        12 => {
            model.jobs.push_back(number);
            ours!(|things, region| things.jobs.push_back(number).unwrap());
        }
        13 => {
            model.jobs.push_front(number);
            ours!(|things, region| things.jobs.push_front(number).unwrap());
        }
        14 => {
            let expected = if number % 2 == 0 {
                model.jobs.pop_front()
            } else {
                model.jobs.pop_back()
            };
            ours!(|things, region| {
                let popped = if number % 2 == 0 {
                    things.jobs.pop_front()
                } else {
                    things.jobs.pop_back()
                };
                assert_eq!(popped, expected);
            });
        }
        _ => {
            model.cells = [number, key, number + key];
            ours!(|things, region| {
                let mut update = things.cells.as_mut().begin();
                for (cell, value) in [number, key, number + key].into_iter().enumerate() {
                    update.store(|cells| &cells[cell], value).unwrap();
                }
                update.commit();
            });
        }
    }
}

#[test]
fn what_was_committed_survives_kills_at_random_moments() {
    let trial = Trial::begin("what_was_committed_survives_kills_at_random_moments");
    let world = World::new();
    let things = world.things();
    let done = Page::<AtomicU64>::new();
    let mut moments = trial.seed().rng(0);
    let mut model = Model::default();
    let (mut operations, mut locked) = (0, 0);
    let kills = trial.times(400);
    for kill in 1..=kills {
        done.store(0, Relaxed);
        let mut child = Child::fork(|| {
            let mut rng = trial.seed().rng(kill);
            // Only expectations come from it.
            let mut model = model.clone();
            loop {
                let mut things = things.lock().unwrap();
                advance(
                    (rng.u32(..16), rng.u64(..1000)),
                    &mut model,
                    Some((&mut things.as_mut().editors(), &world.region)),
                );
                done.fetch_add(1, Relaxed);
            }
        });
        trial.wait_until(|| done.load(Relaxed) > 0);
        let end = Instant::now() + Duration::from_nanos(moments.u64(..300_000));
        while Instant::now() < end {
            core::hint::spin_loop();
        }
        assert_eq!(child.kill(), Exit::Signal(9));
        let found = match things.lock() {
            Ok(things) => things.look(),
            Err(LockError::OwnerDied(died)) => {
                locked += 1;
                let mut things = died.make_consistent();
                things.as_mut().repair();
                things.look()
            }
            Err(error) => panic!("{error}"),
        };
        let mut rng = trial.seed().rng(kill);
        for _ in 0..done.load(Relaxed) {
            advance((rng.u32(..16), rng.u64(..1000)), &mut model, None);
            operations += 1;
        }
        if found != model {
            advance((rng.u32(..16), rng.u64(..1000)), &mut model, None);
        }
        assert_eq!(
            found,
            model,
            "kill {kill}, after {} operations",
            done.load(Relaxed)
        );
        world.region.sweep().unwrap();
        world.region.check_heap().unwrap();
        trial.progress();
        if kill % 8 == 0 {
            world.reset();
            model = Model::default();
        }
    }
    world.reset();
    println!(
        "{}: {kills} kills, {locked} of them of the lock's owner, {operations} operations",
        trial.name()
    );
}
