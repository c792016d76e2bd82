//! One of each container, and the same in std's types.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::region::{
    Edit, HashMap, HashMapMut, List, ListMut, PinnedFields, Region, Shareable, String, StringMut,
    TornSafe, Undo, UndoMut, Vec, VecMut,
};
use std::collections::{BTreeMap, VecDeque};

#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
pub(super) struct Things {
    #[pin]
    pub(super) numbers: Vec<u64>,
    #[pin]
    pub(super) words: Vec<String>,
    #[pin]
    pub(super) text: String,
    #[pin]
    pub(super) counts: HashMap<u64, u64>,
    #[pin]
    pub(super) index: HashMap<String, Vec<u64>>,
    #[pin]
    pub(super) jobs: List<u64>,
    #[pin]
    pub(super) names: List<String>,
    #[pin]
    pub(super) cells: Undo<[AtomicU64; 3], 4>,
    #[pin]
    pub(super) logs: Vec<Log>,
}

pub(super) type Log = Undo<[AtomicU64; 2], 2>;

/// The editors of all things, as a lock lends them.
pub(super) struct Editors<'a> {
    pub(super) numbers: VecMut<'a, u64>,
    pub(super) words: VecMut<'a, String>,
    pub(super) text: StringMut<'a>,
    pub(super) counts: HashMapMut<'a, u64, u64>,
    pub(super) index: HashMapMut<'a, String, Vec<u64>>,
    pub(super) jobs: ListMut<'a, u64>,
    pub(super) names: ListMut<'a, String>,
    pub(super) cells: UndoMut<'a, [AtomicU64; 3], 4>,
    pub(super) logs: VecMut<'a, Log>,
}

impl Things {
    pub(super) fn new(region: &Region) -> Self {
        Self {
            numbers: Vec::new_in(region),
            words: Vec::new_in(region),
            text: String::new_in(region),
            counts: HashMap::new_in(region),
            index: HashMap::new_in(region),
            jobs: List::new_in(region),
            names: List::new_in(region),
            cells: Undo::new([const { AtomicU64::new(0) }; 3]),
            logs: Vec::new_in(region),
        }
    }

    pub(super) fn editors(self: Pin<&mut Self>) -> Editors<'_> {
        let all = self.edit();
        Editors {
            numbers: all.numbers.edit(),
            words: all.words.edit(),
            text: all.text.edit(),
            counts: all.counts.edit(),
            index: all.index.edit(),
            jobs: all.jobs.edit(),
            names: all.names.edit(),
            cells: all.cells.edit(),
            logs: all.logs.edit(),
        }
    }

    /// What a successor does.
    pub(super) fn repair(self: Pin<&mut Self>) {
        let mut all = self.editors();
        all.numbers.repair();
        all.words.repair();
        all.text.repair();
        all.counts.repair();
        all.index.repair();
        all.jobs.repair();
        all.names.repair();
        all.cells.roll_back();
        // Moves the logs before they are rolled back.
        if !all.logs.is_empty() {
            let more = all.logs.capacity() - all.logs.len() + 1;
            all.logs.reserve(more).unwrap();
        }
        all.logs.iter_pin_mut().for_each(|log| {
            log.edit().roll_back();
        });
    }

    /// Looks at everything in every way there is.
    pub(super) fn look(&self) -> Model {
        let Self {
            numbers,
            words,
            text,
            counts,
            index,
            jobs,
            names,
            cells,
            logs,
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
            logs: (logs.iter())
                .map(|log| log.get().each_ref().map(|cell| cell.load(Relaxed)))
                .collect(),
        }
    }
}

/// The same in std's types.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) numbers: std::vec::Vec<u64>,
    pub(super) words: std::vec::Vec<std::string::String>,
    pub(super) text: std::string::String,
    pub(super) counts: BTreeMap<u64, u64>,
    pub(super) index: BTreeMap<std::string::String, std::vec::Vec<u64>>,
    pub(super) jobs: VecDeque<u64>,
    pub(super) names: std::vec::Vec<std::string::String>,
    pub(super) cells: [u64; 3],
    pub(super) logs: std::vec::Vec<[u64; 2]>,
}
