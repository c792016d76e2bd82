//! Containers whose owner is killed: at each instruction of an operation, and at random moments.
//!
//! What the successor finds must be what was there before the operation or what it makes, nothing
//! may be leaked, and the heap must be sound.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{
    Box, HashMap, List, Region, RegionOptions, Shareable, String, TornSafe, Undo, Vec,
};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Things {
    numbers: Vec<u64>,
    words: Vec<String>,
    text: String,
    counts: HashMap<u64, u64>,
    index: HashMap<String, Vec<u64>>,
    jobs: List<u64>,
    names: List<String>,
    cells: Undo<[AtomicU64; 3], 4>,
}

impl Things {
    fn new(region: &Region) -> Self {
        Self {
            numbers: Vec::new_in(region),
            words: Vec::new_in(region),
            text: String::new_in(region),
            counts: HashMap::new_in(region),
            index: HashMap::new_in(region),
            jobs: List::new_in(region),
            names: List::new_in(region),
            cells: Undo::new([const { AtomicU64::new(0) }; 3]),
        }
    }

    /// What a successor does.
    fn repair(&mut self) {
        self.numbers.repair();
        self.words.repair();
        self.text.repair();
        self.counts.repair();
        self.index.repair();
        self.jobs.repair();
        self.names.repair();
        self.cells.roll_back();
    }

    /// Looks at everything in every way there is.
    fn look(&self) -> Model {
        let Self {
            numbers,
            words,
            text,
            counts,
            index,
            jobs,
            names,
            cells,
        } = self;
        assert_eq!(counts.iter().count(), counts.len());
        assert_eq!(index.iter().count(), index.len());
        assert!(
            counts
                .iter()
                .all(|(key, value)| counts.get(key) == Some(value))
        );
        assert!(
            index
                .iter()
                .all(|(key, value)| index.get(&**key) == Some(value))
        );
        let back: VecDeque<u64> = jobs.iter().rev().copied().collect();
        assert!(back.iter().rev().eq(jobs.iter()) && back.len() == jobs.len());
        assert_eq!(names.iter().rev().count(), names.len());
        Model {
            numbers: numbers.to_vec(),
            words: words.iter().map(ToString::to_string).collect(),
            text: core::str::from_utf8(text.as_bytes()).unwrap().to_owned(),
            counts: counts.iter().map(|(key, value)| (*key, *value)).collect(),
            index: index
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_vec()))
                .collect(),
            jobs: jobs.iter().copied().collect(),
            names: names.iter().map(ToString::to_string).collect(),
            cells: cells.get().each_ref().map(|cell| cell.load(Relaxed)),
        }
    }
}

/// The same in std's types.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    numbers: std::vec::Vec<u64>,
    words: std::vec::Vec<std::string::String>,
    text: std::string::String,
    counts: BTreeMap<u64, u64>,
    index: BTreeMap<std::string::String, std::vec::Vec<u64>>,
    jobs: VecDeque<u64>,
    names: std::vec::Vec<std::string::String>,
    cells: [u64; 3],
}

type Shared = Mutex<Things, Robust>;

struct World {
    region: Region,
    /// Bytes that are allocated while everything is empty.
    empty: usize,
}

impl World {
    fn new() -> Self {
        let region = RegionOptions::new()
            .max_bytes(16 << 20)
            .create_anonymous()
            .unwrap();
        region
            .object("things", || Mutex::robust(Things::new(&region)))
            .unwrap();
        let empty = region.heap_stats().allocated_bytes;
        Self { region, empty }
    }

    fn things(&self) -> Pin<&Shared> {
        self.region.find::<Shared>("things").unwrap()
    }

    /// Locks as a successor would.
    fn lock<'a>(&'a self, things: Pin<&'a Shared>) -> RobustGuard<'a, Things> {
        match things.lock() {
            Ok(things) => things,
            Err(LockError::OwnerDied(died)) => {
                let mut things = died.make_consistent();
                things.repair();
                things
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn reset(&self) {
        let things = self.things();
        let mut things = self.lock(things);
        *things = Things::new(&self.region);
        drop(things);
        self.region.sweep().unwrap();
        self.region.check_heap().unwrap();
        assert_eq!(
            self.region.heap_stats().allocated_bytes,
            self.empty,
            "something was leaked"
        );
    }
}

/// An operation, and whether it is all or nothing (or so for each element).
struct Operation {
    name: &'static str,
    setup: fn(&mut Things, &Region),
    run: fn(&mut Things, &Region),
    whole: bool,
}

fn numbers(count: u64) -> impl Fn(&mut Things) {
    move |things| (0..count).for_each(|number| things.numbers.push(number * 3).unwrap())
}

fn counts(things: &mut Things, count: u64) {
    (0..count).for_each(|key| assert!(things.counts.insert(key, key * 5).is_ok()));
}

fn index(things: &mut Things, region: &Region) {
    for key in ["Ada", "Grace", "Barbara"] {
        things
            .index
            .get_or_insert_str_with(key, || Vec::new_in(region))
            .unwrap()
            .push(key.len() as u64)
            .unwrap();
    }
}

fn jobs(things: &mut Things, _: &Region) {
    (0..3).for_each(|job| things.jobs.push_back(job).unwrap());
}

fn names(things: &mut Things, region: &Region) {
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
        run: |things, _| things.index.get_mut("Ada").unwrap().push(5).unwrap(),
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
            let mut update = things.cells.begin();
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
            let mut update = things.cells.begin();
            update.store(|cells| &cells[0], 7).unwrap();
            update.store(|cells| &cells[2], 7).unwrap();
            update.roll_back();
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
        (operation.setup)(&mut world.lock(things), &world.region);
        let before = world.lock(things).look();
        (operation.run)(&mut world.lock(things), &world.region);
        let after = world.lock(things).look();
        let covered = step::each_instruction(
            &trial,
            operation.name,
            || {
                world.reset();
                (operation.setup)(&mut world.lock(things), &world.region);
            },
            |(), span| {
                let mut things = world.lock(things);
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
            |(), point| {
                let found = world.lock(things).look();
                let done = found == after
                    || (point != Point::Finished && (found == before || !operation.whole));
                assert!(done, "{} at {point:?}: {found:?}", operation.name);
                // The successor goes on.
                (operation.setup)(&mut world.lock(things), &world.region);
                world.lock(things).look();
            },
        );
        world.reset();
        if covered.is_none() {
            return;
        }
    }
}

/// A random operation on both; each takes effect as a whole.
fn advance(
    (kind, number): (u32, u64),
    model: &mut Model,
    mut ours: Option<(&mut Things, &Region)>,
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
                    .get_or_insert_str_with(&name, || Vec::new_in(region))
                    .is_ok()
            ));
        }
        11 => {
            if let Some(values) = model.index.get_mut(&name) {
                values.push(number);
                ours!(|things, region| things.index.get_mut(&*name).unwrap().push(number).unwrap());
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
                let mut update = things.cells.begin();
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
                    Some((&mut things, &world.region)),
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
                things.repair();
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
