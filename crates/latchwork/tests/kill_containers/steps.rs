//! Each operation, killed at each of its instructions.

use super::World;
use super::things::{Editors, Log};
use core::sync::atomic::AtomicU64;
use latchwork::region::{Box, Region, String, Vec};
use latchwork_testkit::Trial;
use latchwork_testkit::step::{self, Point};

/// An operation, and whether it is all or nothing (or so for each element).
struct Operation {
    name: &'static str,
    setup: fn(&mut Editors<'_>, &Region),
    run: fn(&mut Editors<'_>, &Region),
    whole: bool,
}

fn numbers(count: u64) -> impl Fn(&mut Editors<'_>) {
    move |things| (0..count).for_each(|number| things.numbers.push(number * 3).unwrap())
}

fn counts(things: &mut Editors<'_>, count: u64) {
    (0..count).for_each(|key| assert!(things.counts.insert(key, key * 5).is_ok()));
}

fn index(things: &mut Editors<'_>, region: &Region) {
    for key in ["Ada", "Grace", "Barbara"] {
        things
            .index
            .get_pin_mut_or_insert_str_with(key, || Vec::new_in(region))
            .unwrap()
            .edit()
            .push(key.len() as u64)
            .unwrap();
    }
}

fn jobs(things: &mut Editors<'_>, _: &Region) {
    (0..3).for_each(|job| things.jobs.push_back(job).unwrap());
}

fn names(things: &mut Editors<'_>, region: &Region) {
    for name in ["Karl", "Olga", "Marie"] {
        things
            .names
            .push_back(String::from_str_in(name, region).unwrap())
            .unwrap();
        things
            .words
            .push(String::from_str_in(name, region).unwrap())
            .unwrap();
    }
}

fn log(number: u64) -> Log {
    Log::new([AtomicU64::new(number), AtomicU64::new(number)])
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "vec push into nothing",
        setup: |_, _| (),
        run: |things, _| things.numbers.push(1).unwrap(),
        whole: true,
    },
    Operation {
        name: "vec push that grows",
        setup: |things, _| {
            numbers(1)(things);
            while things.numbers.len() < things.numbers.capacity() {
                things.numbers.push(1).unwrap();
            }
        },
        run: |things, _| things.numbers.push(1).unwrap(),
        whole: true,
    },
    Operation {
        name: "vec push with room",
        setup: |things, _| things.numbers.reserve(9).unwrap(),
        run: |things, _| things.numbers.push(1).unwrap(),
        whole: true,
    },
    Operation {
        name: "vec pop",
        setup: |things, _| numbers(3)(things),
        run: |things, _| assert_eq!(things.numbers.pop(), Some(6)),
        whole: true,
    },
    Operation {
        name: "vec swap_remove of numbers",
        setup: |things, _| numbers(5)(things),
        run: |things, _| assert_eq!(things.numbers.swap_remove(1), 3),
        whole: true,
    },
    Operation {
        name: "vec insert",
        setup: |things, _| numbers(5)(things),
        run: |things, _| things.numbers.insert(2, 7).unwrap(),
        whole: true,
    },
    Operation {
        name: "vec remove",
        setup: |things, _| numbers(5)(things),
        run: |things, _| assert_eq!(things.numbers.remove(2).unwrap(), 6),
        whole: true,
    },
    Operation {
        name: "vec of strings clear",
        setup: names,
        run: |things, _| things.words.clear(),
        whole: false,
    },
    Operation {
        name: "vec shrink_to_fit",
        setup: |things, _| {
            numbers(3)(things);
            things.numbers.reserve(500).unwrap();
        },
        run: |things, _| things.numbers.shrink_to_fit().unwrap(),
        whole: true,
    },
    Operation {
        name: "vec shrink_to_fit to nothing",
        setup: |things, _| things.numbers.reserve(500).unwrap(),
        run: |things, _| things.numbers.shrink_to_fit().unwrap(),
        whole: true,
    },
    Operation {
        name: "map shrink_to_fit",
        setup: |things, _| {
            counts(things, 2);
            things.counts.reserve(500).unwrap();
        },
        run: |things, _| things.counts.shrink_to_fit().unwrap(),
        whole: true,
    },
    Operation {
        name: "map shrink_to_fit to nothing",
        setup: |things, _| things.counts.reserve(50).unwrap(),
        run: |things, _| things.counts.shrink_to_fit().unwrap(),
        whole: true,
    },
    Operation {
        name: "trim",
        setup: |_, region| drop(Box::unfilled_in(2 << 20, region).unwrap()),
        run: |_, region| assert_ne!(region.trim().unwrap(), 0),
        whole: true,
    },
    Operation {
        name: "vec push into trimmed memory",
        setup: |_, region| {
            drop(Box::unfilled_in(2 << 20, region).unwrap());
            region.trim().unwrap();
        },
        run: |things, _| things.numbers.reserve(30_000).unwrap(),
        whole: true,
    },
    Operation {
        name: "string push_str",
        setup: |things, _| things.text.push_str("abc").unwrap(),
        run: |things, _| things.text.push_str("üöä").unwrap(),
        whole: true,
    },
    Operation {
        name: "string push_str that grows",
        setup: |things, _| things.text.push_str("abc").unwrap(),
        run: |things, _| things.text.push_str(&"ü".repeat(99)).unwrap(),
        whole: true,
    },
    Operation {
        name: "string pop",
        setup: |things, _| things.text.push_str("abcü").unwrap(),
        run: |things, _| assert_eq!(things.text.pop(), Some('ü')),
        whole: true,
    },
    Operation {
        name: "map insert into nothing",
        setup: |_, _| (),
        run: |things, _| counts(things, 1),
        whole: true,
    },
    Operation {
        name: "map insert",
        setup: |things, _| counts(things, 2),
        run: |things, _| assert_eq!(things.counts.insert(9, 9).unwrap(), None),
        whole: true,
    },
    Operation {
        name: "map insert that grows",
        setup: |things, _| counts(things, 7),
        run: |things, _| assert_eq!(things.counts.insert(9, 9).unwrap(), None),
        whole: true,
    },
    Operation {
        name: "map replace",
        setup: |things, _| counts(things, 2),
        run: |things, _| assert_eq!(things.counts.insert(1, 9).unwrap(), Some(5)),
        whole: true,
    },
    Operation {
        name: "map remove",
        setup: |things, _| counts(things, 2),
        run: |things, _| assert_eq!(things.counts.remove(&1), Some(5)),
        whole: true,
    },
    Operation {
        name: "map clear",
        setup: |things, _| counts(things, 3),
        run: |things, _| things.counts.clear(),
        whole: false,
    },
    Operation {
        name: "map of strings insert_str",
        setup: index,
        run: |things, region| {
            assert!(
                things
                    .index
                    .insert_str("Emmy", Vec::new_in(region))
                    .unwrap()
                    .is_none()
            )
        },
        whole: true,
    },
    Operation {
        name: "map of strings push to a value",
        setup: index,
        run: |things, _| {
            things
                .index
                .get_pin_mut("Ada")
                .unwrap()
                .edit()
                .push(5)
                .unwrap()
        },
        whole: true,
    },
    Operation {
        name: "map of strings clear",
        setup: index,
        run: |things, _| things.index.clear(),
        whole: false,
    },
    Operation {
        name: "list push_back into nothing",
        setup: |_, _| (),
        run: |things, _| things.jobs.push_back(1).unwrap(),
        whole: true,
    },
    Operation {
        name: "list push_back",
        setup: jobs,
        run: |things, _| things.jobs.push_back(9).unwrap(),
        whole: true,
    },
    Operation {
        name: "list push_front",
        setup: jobs,
        run: |things, _| things.jobs.push_front(9).unwrap(),
        whole: true,
    },
    Operation {
        name: "list pop_front",
        setup: jobs,
        run: |things, _| assert_eq!(things.jobs.pop_front(), Some(0)),
        whole: true,
    },
    Operation {
        name: "list pop_back",
        setup: jobs,
        run: |things, _| assert_eq!(things.jobs.pop_back(), Some(2)),
        whole: true,
    },
    Operation {
        name: "list retain in the middle",
        setup: names,
        run: |things, _| things.names.retain(|name| *name != "Olga"),
        whole: true,
    },
    Operation {
        name: "list clear",
        setup: names,
        run: |things, _| things.names.clear(),
        whole: false,
    },
    Operation {
        name: "undo, committed",
        setup: |_, _| (),
        run: |things, _| {
            let mut update = things.cells.as_mut().begin();
            for cell in 0..3 {
                update.store(|cells| &cells[cell], 7).unwrap();
            }
            update.commit();
        },
        whole: true,
    },
    Operation {
        name: "undo, rolled back",
        setup: |_, _| (),
        run: |things, _| {
            let mut update = things.cells.as_mut().begin();
            update.store(|cells| &cells[0], 7).unwrap();
            update.store(|cells| &cells[2], 7).unwrap();
            update.roll_back();
        },
        whole: true,
    },
    Operation {
        name: "undo, moved in an update",
        setup: |things, _| (0..2).for_each(|number| assert!(things.logs.push(log(number)).is_ok())),
        run: |things, _| {
            let mut update = things.logs.get_pin_mut(0).unwrap().edit().begin();
            for cell in 0..2 {
                update.store(|cells| &cells[cell], 7).unwrap();
            }
            core::mem::forget(update);
            assert!(things.logs.insert(0, log(9)).is_ok());
        },
        whole: true,
    },
];

#[test]
fn an_operation_killed_at_any_instruction_is_done_or_not() {
    let trial = Trial::begin("an_operation_killed_at_any_instruction_is_done_or_not");
    let world = World::new();
    for operation in OPERATIONS {
        let things = world.things();
        (operation.setup)(&mut world.lock(things).as_mut().editors(), &world.region);
        let before = world.lock(things).look();
        (operation.run)(&mut world.lock(things).as_mut().editors(), &world.region);
        let after = world.lock(things).look();
        let covered = step::each_instruction_and_recovery(
            &trial,
            operation.name,
            || {
                world.reset();
                (operation.setup)(&mut world.lock(things).as_mut().editors(), &world.region);
            },
            |(), span| {
                let mut things = world.lock(things);
                let mut things = things.as_mut().editors();
                // What a task does once is not what is tested here: that it attaches, and takes its
                // first block of a size. (These are private, and go with it.)
                macro_rules! warm {
                    ($($bytes:literal)*) => {$(
                        core::mem::forget(Box::new_in([0u8; $bytes], &world.region).unwrap());
                    )*};
                }
                warm!(16 32 48 64 80 96 112 128 160 192 224 256 320 384 512);
                span.run(|| (operation.run)(&mut things, &world.region));
            },
            |()| false,
            |(), span| {
                span.run(|| world.lock(things).look());
            },
            |(), point| {
                let found = world.lock(things).look();
                let done = found == after
                    || (point != Point::Finished && (found == before || !operation.whole));
                assert!(done, "{} at {point:?}: {found:?}", operation.name);
                // The successor goes on.
                (operation.setup)(&mut world.lock(things).as_mut().editors(), &world.region);
                world.lock(things).look();
                match () {
                    () if before == after => "as before, which is as after",
                    () if found == after => step::done(true),
                    () if found == before => step::done(false),
                    () => "done in part",
                }
            },
        );
        world.reset();
        if covered.is_none() {
            return;
        }
    }
}
