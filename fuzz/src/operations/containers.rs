//! Containers of a region, and those of the standard library.

use arbitrary::Arbitrary;
use core::sync::atomic::{AtomicU64, Ordering};
use latchwork::region::{HashMap, List, Region, String, Undo, UndoError, Vec};
use std::collections::{BTreeMap, VecDeque};

#[derive(Arbitrary, Debug)]
pub enum Step {
    Push(u64),
    Pop,
    Insert(u8, u64),
    Remove(u8),
    SwapRemove(u8),
    Truncate(u8),
    Extend([u64; 5]),
    Reserve(u8),
    Shrink,
    Sort,
    MapInsert(u8, u64),
    MapGet(u8),
    MapOrInsert(u8, u64),
    MapRemove(u8),
    MapDiscard(u8),
    MapClear,
    MapReserve(u8),
    MapShrink,
    PushFront(u32),
    PushBack(u32),
    PopFront,
    PopBack,
    Retain(u32),
    ListClear,
    Say(char),
    SayAll(std::string::String),
    Unsay,
    Cut(u8),
    Change {
        cells: std::vec::Vec<(u8, u64)>,
        commits: bool,
    },
    Repair,
}

type Numbers = [AtomicU64; 6];
const LOG: usize = 4;

struct Ours {
    numbers: Vec<u64>,
    map: HashMap<String, u64>,
    list: List<u32>,
    text: String,
}

#[derive(Default)]
struct Model {
    numbers: std::vec::Vec<u64>,
    map: BTreeMap<std::string::String, u64>,
    list: VecDeque<u32>,
    text: std::string::String,
    cells: [u64; 6],
}

pub fn run(region: &Region, steps: std::vec::Vec<Step>) {
    let mut ours = Ours {
        numbers: Vec::new_in(region),
        map: HashMap::new_in(region),
        list: List::new_in(region),
        text: String::new_in(region),
    };
    let undo = latchwork::region::Box::new_in(
        Undo::<Numbers, LOG>::new([const { AtomicU64::new(0) }; 6]),
        region,
    );
    let mut undo = undo.unwrap();
    let mut model = Model::default();
    for step in steps.into_iter().take(128) {
        match step {
            Step::Change { cells, commits } => change(&mut undo, &mut model, cells, commits),
            step => act(&mut ours, &mut model, step),
        }
        assert_eq!(*ours.numbers, *model.numbers);
        assert_eq!(ours.map.len(), model.map.len());
        assert!(
            ours.map
                .iter()
                .all(|(key, value)| model.map.get(&**key) == Some(value))
        );
        assert_eq!(ours.list.len(), model.list.len());
        assert!(
            ours.list.iter().eq(model.list.iter())
                && ours.list.iter().rev().eq(model.list.iter().rev())
        );
        assert_eq!(&*ours.text, model.text);
        let cells = undo
            .get()
            .each_ref()
            .map(|cell| cell.load(Ordering::Relaxed));
        assert_eq!(cells, model.cells);
    }
    drop((ours, undo));
    region.check_heap().unwrap();
    assert_eq!(region.heap_stats().allocated_bytes, 0);
}

fn change(
    undo: &mut Undo<Numbers, LOG>,
    model: &mut Model,
    cells: std::vec::Vec<(u8, u64)>,
    commits: bool,
) {
    let mut update = undo.begin();
    let mut after = model.cells;
    let mut logged = 0;
    for (cell, value) in cells {
        let cell = usize::from(cell) % after.len();
        match update.store(|numbers| &numbers[cell], value) {
            Ok(()) => {
                after[cell] = value;
                logged += 1;
            }
            Err(UndoError::Full { capacity }) => assert!(capacity == LOG && logged >= LOG),
            Err(error) => panic!("{error}"),
        }
    }
    if commits {
        update.commit();
        model.cells = after;
    }
}

fn key(number: u8) -> std::string::String {
    // Some of them are longer than a block of the smallest class.
    format!("{:1$}", number % 32, usize::from(number % 32) * 3)
}

fn act(ours: &mut Ours, model: &mut Model, step: Step) {
    let count = model.numbers.len();
    let place = |which: u8, most: usize| usize::from(which).checked_rem(most);
    match step {
        Step::Push(number) => {
            ours.numbers.push(number).unwrap();
            model.numbers.push(number);
        }
        Step::Pop => assert_eq!(ours.numbers.pop(), model.numbers.pop()),
        Step::Insert(which, number) => {
            let index = usize::from(which) % (count + 1);
            ours.numbers.insert(index, number).unwrap();
            model.numbers.insert(index, number);
        }
        Step::Remove(which) => {
            if let Some(index) = place(which, count) {
                assert_eq!(
                    ours.numbers.remove(index).unwrap(),
                    model.numbers.remove(index)
                );
            }
        }
        Step::SwapRemove(which) => {
            if let Some(index) = place(which, count) {
                assert_eq!(
                    ours.numbers.swap_remove(index),
                    model.numbers.swap_remove(index)
                );
            }
        }
        Step::Truncate(length) => {
            ours.numbers.truncate(length.into());
            model.numbers.truncate(length.into());
        }
        Step::Extend(numbers) => {
            ours.numbers.extend_from_slice(&numbers).unwrap();
            model.numbers.extend(numbers);
        }
        Step::Reserve(more) => {
            ours.numbers.reserve(more.into()).unwrap();
            assert!(ours.numbers.capacity() >= count + usize::from(more));
        }
        Step::Shrink => ours.numbers.shrink_to_fit().unwrap(),
        Step::Sort => {
            ours.numbers.sort_unstable();
            model.numbers.sort_unstable();
        }
        Step::MapInsert(number, value) => {
            let key = key(number);
            assert_eq!(
                ours.map.insert_str(&key, value).unwrap(),
                model.map.insert(key, value)
            );
        }
        Step::MapGet(number) => {
            let key = key(number);
            assert_eq!(ours.map.get(key.as_str()), model.map.get(&key));
            assert_eq!(
                ours.map.contains_key(key.as_str()),
                model.map.contains_key(&key)
            );
            assert_eq!(ours.map.get_mut(key.as_str()), model.map.get_mut(&key));
        }
        Step::MapOrInsert(number, value) => {
            let key = key(number);
            let got = *ours.map.get_or_insert_str_with(&key, || value).unwrap();
            assert_eq!(got, *model.map.entry(key).or_insert(value));
        }
        Step::MapRemove(number) => {
            let key = key(number);
            assert_eq!(ours.map.remove(key.as_str()), model.map.remove(&key));
        }
        Step::MapDiscard(number) => {
            let key = key(number);
            assert_eq!(
                ours.map.discard(key.as_str()),
                model.map.remove(&key).is_some()
            );
        }
        Step::MapClear => {
            ours.map.clear();
            model.map.clear();
        }
        Step::MapReserve(more) => ours.map.reserve(more.into()).unwrap(),
        Step::MapShrink => ours.map.shrink_to_fit().unwrap(),
        Step::PushFront(number) => {
            ours.list.push_front(number).unwrap();
            model.list.push_front(number);
        }
        Step::PushBack(number) => {
            ours.list.push_back(number).unwrap();
            model.list.push_back(number);
        }
        Step::PopFront => assert_eq!(ours.list.pop_front(), model.list.pop_front()),
        Step::PopBack => assert_eq!(ours.list.pop_back(), model.list.pop_back()),
        Step::Retain(bit) => {
            let keeps = |number: &u32| number >> (bit % 32) & 1 == 0;
            ours.list.retain(keeps);
            model.list.retain(keeps);
        }
        Step::ListClear => {
            ours.list.clear();
            model.list.clear();
        }
        Step::Say(character) => {
            ours.text.push(character).unwrap();
            model.text.push(character);
        }
        Step::SayAll(text) => {
            ours.text.push_str(&text).unwrap();
            model.text.push_str(&text);
        }
        Step::Unsay => assert_eq!(ours.text.pop(), model.text.pop()),
        Step::Cut(length) => {
            let length = model.text.floor_char_boundary(length.into());
            ours.text.truncate(length);
            model.text.truncate(length);
        }
        Step::Repair => {
            ours.numbers.repair();
            ours.map.repair();
            ours.list.repair();
            ours.text.repair();
        }
        Step::Change { .. } => {}
    }
    assert!(ours.list.front() == model.list.front() && ours.list.back() == model.list.back());
}
