//! Containers in a region behave like std's, and give back what they took.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{
    Box, HashMap, List, Region, RegionOptions, Shareable, String, TornSafe, Undo, UndoError, Vec,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A small region, so that running out of memory is soon reached.
fn region() -> Region {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap()
}

/// Runs a property against one region: proptest's cases all run on this thread, and each must leave
/// the heap as it found it.
fn for_all<S: Strategy>(strategy: S, property: impl Fn(&Region, S::Value)) {
    let region = RegionOptions::new()
        .max_bytes(64 << 20)
        .create_anonymous()
        .unwrap();
    region.join("test").unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 192,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&strategy, |input| {
        property(&region, input);
        region.check_heap().unwrap();
        assert_eq!(
            region.heap_stats().allocated_bytes,
            0,
            "something was leaked"
        );
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn word(number: u8) -> std::string::String {
    // Lengths from none to more than a small buffer, with characters of several bytes.
    "ä1".repeat(usize::from(number) % 23) + &number.to_string()
}

fn string(region: &Region, number: u8) -> String {
    String::from_str_in(&word(number), region).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Push(u8),
    PushFront(u8),
    Pop,
    PopFront,
    Insert(u8, u8),
    Remove(u8),
    SwapRemove(u8),
    Truncate(u8),
    Reserve(u8),
    Append(u8, u8),
    Retain(u8),
    Clear,
}

fn steps() -> impl Strategy<Value = std::vec::Vec<Step>> {
    use Step::*;
    let step = prop_oneof![
        8 => any::<u8>().prop_map(Push),
        4 => any::<u8>().prop_map(PushFront),
        2 => Just(Pop),
        2 => Just(PopFront),
        4 => any::<(u8, u8)>().prop_map(|(at, number)| Insert(at, number)),
        2 => any::<u8>().prop_map(Remove),
        2 => any::<u8>().prop_map(SwapRemove),
        1 => any::<u8>().prop_map(Truncate),
        1 => any::<u8>().prop_map(Reserve),
        2 => any::<(u8, u8)>().prop_map(|(at, number)| Append(at, number)),
        1 => any::<u8>().prop_map(Retain),
        1 => Just(Clear),
    ];
    prop::collection::vec(step, 0..80)
}

fn place(number: u8, len: usize) -> usize {
    usize::from(number) % len.max(1)
}

#[test]
fn vec_behaves_like_stds() {
    for_all(steps(), |region, steps| {
        let mut model = std::vec::Vec::<std::string::String>::new();
        let mut vec = Vec::<String>::new_in(region);
        for step in steps {
            let len = model.len();
            match step {
                Step::Push(number) => {
                    model.push(word(number));
                    vec.push(string(region, number)).unwrap();
                }
                Step::Insert(at, number) => {
                    model.insert(place(at, len), word(number));
                    vec.insert(place(at, len), string(region, number)).unwrap();
                }
                Step::Pop => assert_eq!(vec.pop().as_deref(), model.pop().as_deref()),
                Step::Remove(at) if len > 0 => {
                    assert_eq!(
                        *vec.remove(place(at, len)).unwrap(),
                        model.remove(place(at, len))
                    );
                }
                Step::SwapRemove(at) if len > 0 => {
                    assert_eq!(
                        *vec.swap_remove(place(at, len)),
                        model.swap_remove(place(at, len))
                    );
                }
                Step::Truncate(to) => {
                    model.truncate(to.into());
                    vec.truncate(to.into());
                }
                Step::Reserve(more) => {
                    vec.reserve(more.into()).unwrap();
                    assert!(vec.capacity() >= len + usize::from(more));
                }
                Step::Append(at, number) if len > 0 => {
                    model[place(at, len)].push_str(&word(number));
                    vec[place(at, len)].push_str(&word(number)).unwrap();
                }
                Step::Clear => {
                    model.clear();
                    vec.clear();
                }
                _ => {}
            }
            assert_eq!(vec.len(), model.len());
            assert!(
                vec.iter()
                    .zip(&model)
                    .all(|(ours, theirs)| **ours == **theirs)
            );
        }
    });
}

#[test]
fn list_behaves_like_a_deque() {
    for_all(steps(), |region, steps| {
        let mut model = VecDeque::<std::string::String>::new();
        let mut list = List::<String>::new_in(region);
        for step in steps {
            match step {
                Step::Push(number) => {
                    model.push_back(word(number));
                    list.push_back(string(region, number)).unwrap();
                }
                Step::PushFront(number) => {
                    model.push_front(word(number));
                    list.push_front(string(region, number)).unwrap();
                }
                Step::Pop => assert_eq!(list.pop_back().as_deref(), model.pop_back().as_deref()),
                Step::PopFront => {
                    assert_eq!(list.pop_front().as_deref(), model.pop_front().as_deref())
                }
                Step::Retain(number) => {
                    let keep = |len: usize| !(len + usize::from(number)).is_multiple_of(3);
                    model.retain(|text| keep(text.len()));
                    list.retain(|text| keep(text.len()));
                }
                Step::Append(_, number) => {
                    if let Some(first) = model.front_mut() {
                        first.push_str(&word(number));
                        list.front_mut().unwrap().push_str(&word(number)).unwrap();
                    }
                }
                Step::Clear => {
                    model.clear();
                    list.clear();
                }
                _ => {}
            }
            assert_eq!(list.len(), model.len());
            assert!(
                list.iter()
                    .map(|text| &**text)
                    .eq(model.iter().map(|text| &**text))
            );
            assert!(
                list.iter()
                    .rev()
                    .map(|text| &**text)
                    .eq(model.iter().rev().map(|text| &**text))
            );
        }
    });
}

#[test]
fn string_behaves_like_stds() {
    for_all(
        prop::collection::vec((any::<char>(), 0..6u8), 0..60),
        |region, steps| {
            let mut model = std::string::String::new();
            let mut ours = String::new_in(region);
            for (character, step) in steps {
                match step {
                    0 => assert_eq!(ours.pop(), model.pop()),
                    1 => {
                        let to = model
                            .char_indices()
                            .nth(model.len() / 4)
                            .map_or(0, |(at, _)| at);
                        model.truncate(to);
                        ours.truncate(to);
                    }
                    2 => {
                        let word = word(character as u8);
                        model.push_str(&word);
                        ours.push_str(&word).unwrap();
                    }
                    _ => {
                        model.push(character);
                        ours.push(character).unwrap();
                    }
                }
                assert_eq!(*ours, *model);
            }
            assert_eq!(ours.try_clone().unwrap(), ours);
        },
    );
}

#[test]
fn map_behaves_like_stds() {
    let step = (any::<u8>(), any::<u8>(), 0..10u8);
    for_all(prop::collection::vec(step, 0..300), |region, steps| {
        let mut model = std::collections::HashMap::<std::string::String, u8>::new();
        let mut map = HashMap::<String, Vec<u8>>::new_in(region);
        let value = |number: u8| {
            let mut value = Vec::new_in(region);
            value.push(number).unwrap();
            value
        };
        for (key, number, step) in steps {
            // Few keys, so that they meet often.
            let key = word(key % 50);
            match step {
                0..3 => {
                    let before = map
                        .insert(String::from_str_in(&key, region).unwrap(), value(number))
                        .unwrap();
                    assert_eq!(before.map(|before| before[0]), model.insert(key, number));
                }
                3..5 => {
                    let before = map.insert_str(&key, value(number)).unwrap();
                    assert_eq!(before.map(|before| before[0]), model.insert(key, number));
                }
                5 => {
                    let ours = map.get_or_insert_str_with(&key, || value(number)).unwrap();
                    assert_eq!(ours[0], *model.entry(key).or_insert(number));
                }
                6 => {
                    let own = String::from_str_in(&key, region).unwrap();
                    let ours = map.get_or_insert_with(own, || value(number)).unwrap();
                    ours[0] = ours[0].wrapping_add(1);
                    let theirs = model.entry(key).or_insert(number);
                    *theirs = theirs.wrapping_add(1);
                }
                7 if number < 8 => {
                    map.clear();
                    model.clear();
                }
                _ => assert_eq!(map.remove(&*key).map(|value| value[0]), model.remove(&key)),
            }
            assert_eq!(map.len(), model.len());
            assert_eq!(map.iter().count(), model.len());
            assert!(
                map.iter()
                    .all(|(key, value)| model.get(&**key) == Some(&value[0]))
            );
            assert!(
                model
                    .iter()
                    .all(|(key, value)| map.get(&**key).map(|ours| ours[0]) == Some(*value))
            );
        }
    });
}

#[test]
fn map_spreads_and_shrinks_tombstones() {
    let region = RegionOptions::new()
        .max_bytes(64 << 20)
        .create_anonymous()
        .unwrap();
    let mut map = HashMap::<u64, u64>::new_in(&region);
    for round in 0..40 {
        for key in 0..5000 {
            map.insert(round * 5000 + key, key).unwrap();
        }
        for key in 0..5000 {
            assert_eq!(map.remove(&(round * 5000 + key)), Some(key));
        }
    }
    assert!(map.is_empty());
    drop(map);
    assert_eq!(region.heap_stats().allocated_bytes, 0);
}

#[test]
fn what_does_not_fit_comes_back() {
    let region = region();
    let before = region.heap_stats().allocated_bytes;
    let mut hoard = std::vec::Vec::new();
    let mut full = Vec::<u64>::new_in(&region);
    let mut map = HashMap::<u64, u64>::new_in(&region);
    let mut list = List::<u64>::new_in(&region);
    let mut text = String::new_in(&region);
    map.insert(1, 1).unwrap();
    list.push_back(1).unwrap();
    text.push_str("x").unwrap();
    while let Ok(block) = Box::new_in([0u8; 4096], &region) {
        hoard.push(block);
    }
    while let Ok(block) = Box::new_in([0u8; 16], &region) {
        // Boxes of another size: the smallest classes run out, too.
        core::mem::forget(block);
    }
    let error = loop {
        if let Err(error) = full.push(7) {
            break error;
        }
    };
    assert_eq!(error.value, 7);
    let len = text.len();
    let error = loop {
        if let Err(error) = text.push_str("öffentlich") {
            break error;
        }
    };
    assert!(matches!(error, latchwork::region::StorageError::Alloc(_)));
    assert!(
        text.len() > len
            && text
                .strip_prefix('x')
                .unwrap()
                .replace("öffentlich", "")
                .is_empty()
    );
    let error = (2..).find_map(|key| map.insert(key, key).err()).unwrap();
    assert_eq!(error.value.0, error.value.1);
    assert_eq!(map.len() as u64, error.value.0 - 1);
    assert!(map.iter().all(|(key, value)| key == value));
    let error = (2..)
        .find_map(|number| list.push_back(number).err())
        .unwrap();
    assert!(list.iter().copied().eq(1..error.value));
    region.check_heap().unwrap();
    assert!(region.heap_stats().allocated_bytes > before);
}

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Library {
    names: HashMap<String, Vec<u32>>,
    queue: List<String>,
    title: String,
}

#[test]
fn containers_nest_and_live_in_objects() {
    let region = RegionOptions::new()
        .max_bytes(8 << 20)
        .create_anonymous()
        .unwrap();
    let make = || {
        Mutex::robust(Library {
            names: HashMap::new_in(&region),
            queue: List::new_in(&region),
            title: String::new_in(&region),
        })
    };
    let library: core::pin::Pin<&Mutex<Library, Robust>> = region.object("library", make).unwrap();
    let before = region.heap_stats().allocated_bytes;
    {
        let mut library = library.lock().unwrap();
        library.title.push_str("Faust").unwrap();
        for number in 0..100u32 {
            let name = number.to_string();
            library
                .names
                .get_or_insert_str_with(&name, || Vec::new_in(&region))
                .unwrap()
                .push(number)
                .unwrap();
            library
                .queue
                .push_back(String::from_str_in(&name, &region).unwrap())
                .unwrap();
        }
        // Whatever an object leads to outlives the task that made it.
        assert_eq!(region.heap_stats().private_blocks, 0);
        assert_eq!(library.names.get("42").unwrap()[..], [42]);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut library = library.lock().unwrap();
            assert_eq!(library.queue.iter().count(), 100);
            library.names.clear();
            library.queue.clear();
        });
    });
    // SAFETY: nobody uses it any more.
    #[allow(unsafe_code)]
    unsafe {
        region.remove::<Mutex<Library, Robust>>("library").unwrap();
    }
    assert!(region.heap_stats().allocated_bytes < before);
    assert_eq!(region.heap_stats().allocated_bytes, 0);
    region.check_heap().unwrap();
}

thread_local! {
    static DROPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts its drops, and panics in that of 3.
#[derive(Shareable)]
#[repr(C)]
struct Fuse(u32);
impl Drop for Fuse {
    fn drop(&mut self) {
        DROPS.set(DROPS.get() + 1);
        assert_ne!(self.0, 3, "fuse");
    }
}

#[test]
fn a_panicking_drop_drops_nothing_twice() {
    let region = region();
    let rounds: [fn(&Region); 3] = [
        |region| {
            let mut vec = Vec::new_in(region);
            (0..6).for_each(|number| vec.push(Fuse(number)).unwrap());
            assert!(catch_unwind(AssertUnwindSafe(|| vec.clear())).is_err());
            assert_eq!(vec.len(), 3);
        },
        |region| {
            let mut map = HashMap::new_in(region);
            (0..6u32)
                .for_each(|number| assert!(map.insert(number, Fuse(number)).unwrap().is_none()));
            assert!(catch_unwind(AssertUnwindSafe(|| map.clear())).is_err());
            assert!(map.get(&3).is_none());
        },
        |region| {
            let mut list = List::new_in(region);
            (0..6).for_each(|number| list.push_back(Fuse(number)).unwrap());
            assert!(catch_unwind(AssertUnwindSafe(|| list.retain(|fuse| fuse.0 != 3))).is_err());
            assert_eq!(list.len(), 5);
        },
    ];
    for round in rounds {
        DROPS.set(0);
        round(&region);
        assert_eq!(DROPS.get(), 6);
        assert_eq!(region.heap_stats().allocated_bytes, 0);
    }
}

#[test]
fn a_value_without_size_takes_no_room_of_its_own() {
    let region = region();
    let mut vec = Vec::<()>::new_in(&region);
    (0..1000).for_each(|_| vec.push(()).unwrap());
    assert_eq!((vec.len(), vec.pop()), (1000, Some(())));
    let mut list = List::<()>::new_in(&region);
    list.push_back(()).unwrap();
    assert_eq!(list.pop_back(), Some(()));
}

#[test]
fn an_aligned_value_is_aligned() {
    #[derive(Shareable)]
    #[repr(C, align(256))]
    struct Line(u8);
    let region = region();
    let mut vec = Vec::<Line>::new_in(&region);
    let mut map = HashMap::<u8, Line>::new_in(&region);
    for number in 0..20 {
        vec.push(Line(number)).unwrap();
        map.insert(number, Line(number)).unwrap();
    }
    let lines = vec.iter().chain(map.values());
    assert_eq!(
        lines
            .map(|line| usize::from(core::ptr::from_ref(line).addr() % 256 == 0 && line.0 < 20))
            .sum::<usize>(),
        40
    );
}

#[test]
fn a_box_frees_and_a_leaked_one_stays() {
    let region = region();
    let mut number = Box::new_in(AtomicU64::new(1), &region).unwrap();
    *number.get_mut() += 1;
    assert_eq!(region.heap_stats().private_blocks, 1);
    let number = number.leak();
    assert_eq!(
        (
            number.load(Relaxed),
            region.heap_stats().private_blocks,
            region.heap_stats().shared_blocks
        ),
        (2, 0, 1)
    );
    let raw = Box::new_in(7u32, &region).unwrap().into_raw();
    // SAFETY: given away just now.
    #[allow(unsafe_code)]
    let back = unsafe { Box::from_raw(raw, &region) };
    assert_eq!(back.into_inner(), 7);
    assert_eq!(
        region.heap_stats().shared_blocks + region.heap_stats().private_blocks,
        1
    );
    let lock = Box::new_in(Mutex::robust(5), &region).unwrap();
    assert_eq!(*lock.as_pin().lock().unwrap(), 5);
}

#[test]
fn an_update_is_undone_unless_it_is_committed() {
    // A reference that lives for ever can be captured by what picks a cell.
    let region: &Region = std::boxed::Box::leak(std::boxed::Box::new(region()));
    type Cells = Undo<HashMap<u32, AtomicU64>, 3>;
    let cells = region
        .object("cells", || {
            Mutex::robust(Cells::new(HashMap::new_in(region)))
        })
        .unwrap();
    let mut cells = cells.lock().unwrap();
    for key in 0..5 {
        cells.get_mut().insert(key, AtomicU64::new(0)).unwrap();
    }
    let all = |cells: &Cells| {
        (0..5)
            .map(|key| cells.get().get(&key).unwrap().load(Relaxed))
            .collect::<std::vec::Vec<_>>()
    };

    let mut update = cells.begin();
    update.store_at(|cells| cells, &0, 1).unwrap();
    update.store_at(|cells| cells, &1, 2).unwrap();
    update.store_at(|cells| cells, &1, 3).unwrap();
    assert_eq!(
        update.store_at(|cells| cells, &2, 4),
        Err(UndoError::Full { capacity: 3 })
    );
    assert_eq!(update.get().get(&1).unwrap().load(Relaxed), 3);
    drop(update);
    assert_eq!(all(&cells), [0, 0, 0, 0, 0]);

    let mut update = cells.begin();
    update.store_at(|cells| cells, &0, 1).unwrap();
    update.commit();
    assert_eq!(all(&cells), [1, 0, 0, 0, 0]);

    // What a dead owner leaves, as far as the log can tell.
    let mut update = cells.begin();
    update.store_at(|cells| cells, &4, 9).unwrap();
    core::mem::forget(update);
    assert_eq!(all(&cells), [1, 0, 0, 0, 9]);
    assert!(cells.roll_back());
    assert!(!cells.roll_back());
    assert_eq!(all(&cells), [1, 0, 0, 0, 0]);

    // A cell elsewhere could not be restored by another process.
    static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
    assert_eq!(
        cells.begin().store(|_| &ELSEWHERE, 1),
        Err(UndoError::Outside)
    );
    // One that is in the region, but not in the data, could go before the log does.
    type Other = (Vec<AtomicU64>, HashMap<u32, AtomicU64>);
    let mut other: Other = (Vec::new_in(region), HashMap::new_in(region));
    other.0.push(AtomicU64::new(0)).unwrap();
    other.1.insert(7, AtomicU64::new(0)).unwrap();
    let other: &Other = std::boxed::Box::leak(std::boxed::Box::new(other));
    let mut update = cells.begin();
    let outside = Err(UndoError::Outside);
    assert_eq!(update.store(|_| &other.0[0], 1), outside);
    assert_eq!(update.store_at(|_| &other.0, &0, 1), outside);
    assert_eq!(update.store_at(|_| &other.1, &7, 1), outside);
    let none = Err(UndoError::NoCell);
    assert_eq!(update.store_at(|cells| cells, &7, 1), none);
    drop(update);
    let mut nowhere = Undo::<AtomicU64>::new(AtomicU64::new(0));
    assert_eq!(
        nowhere.begin().store(|cell| cell, 1),
        Err(UndoError::Outside)
    );
}

#[test]
fn a_moved_log_rolls_back_nothing() {
    let region = region();
    let log = region
        .object("log", || {
            Mutex::robust(Undo::<AtomicU64>::new(AtomicU64::new(1)))
        })
        .unwrap();
    let mut log = log.lock().unwrap();
    let mut update = log.begin();
    update.store(|cell| cell, 2).unwrap();
    core::mem::forget(update);
    let mut moved = core::mem::replace(&mut *log, Undo::new(AtomicU64::new(5)));
    assert!(!moved.roll_back());
    assert_eq!((moved.get().load(Relaxed), log.get().load(Relaxed)), (2, 5));
}
