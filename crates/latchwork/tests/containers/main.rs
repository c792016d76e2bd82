//! Containers in a region behave like std's, and give back what they took.

mod like_std;
mod pinned;
mod undo;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{
    Box, HashMap, List, PinnedFields, Region, RegionOptions, Shareable, String, TornSafe, Vec,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A small region, so that running out of memory is soon reached.
fn region() -> Region {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap()
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
fn shrinking_returns_unneeded_memory() {
    let region = RegionOptions::new()
        .max_bytes(64 << 20)
        .create_anonymous()
        .unwrap();
    let allocated = || region.heap_stats().allocated_bytes;
    let mut numbers = Vec::<u64>::new_in(&region);
    let mut map = HashMap::<u64, u64>::new_in(&region);
    let mut text = String::new_in(&region);
    for number in 0..100_000 {
        numbers.push(number).unwrap();
        map.insert(number, number).unwrap();
        text.push('x').unwrap();
    }
    let most = allocated();
    numbers.truncate(100);
    text.truncate(100);
    (100..100_000).for_each(|key| assert_eq!(map.remove(&key), Some(key)));
    map.insert(100, 100).unwrap();
    // Nothing shrinks by itself.
    assert!(numbers.capacity() >= 100_000 && text.capacity() >= 100_000);
    numbers.shrink_to_fit().unwrap();
    map.shrink_to_fit().unwrap();
    text.shrink_to_fit().unwrap();
    assert!(numbers.capacity() < 200 && text.capacity() < 200);
    assert_eq!(numbers.iter().sum::<u64>(), 99 * 50);
    assert!((0..=100).all(|key| map.get(&key) == Some(&key)) && map.len() == 101);
    assert_eq!(text, "x".repeat(100).as_str());
    assert!(allocated() < most / 50, "{} of {most}", allocated());
    // A smaller block of the same size class is none.
    let before = numbers.as_slice().as_ptr();
    numbers.pop();
    numbers.shrink_to_fit().unwrap();
    assert_eq!(numbers.as_slice().as_ptr(), before);
    numbers.shrink_to(1_000).unwrap();
    assert_eq!(numbers.as_slice().as_ptr(), before);
    numbers.clear();
    map.clear();
    text.clear();
    numbers.shrink_to_fit().unwrap();
    map.shrink_to_fit().unwrap();
    text.shrink_to_fit().unwrap();
    assert_eq!(allocated(), 0);
    // They are as good as new.
    numbers.push(1).unwrap();
    map.insert(1, 1).unwrap();
    text.push_str("again").unwrap();
    assert_eq!(
        (numbers[0], map.get(&1), text.as_str()),
        (1, Some(&1), "again")
    );
}

#[test]
fn room_for_no_more_elements_takes_no_memory() {
    let region = region();
    Vec::<u64>::new_in(&region).reserve(0).unwrap();
    String::new_in(&region).reserve(0).unwrap();
    let mut map = HashMap::<u64, u64>::new_in(&region);
    map.reserve(0).unwrap();
    assert_eq!(region.heap_stats().allocated_bytes, 0);
    map.insert(1, 2).unwrap();
    map.reserve(0).unwrap();
    assert_eq!(map.get(&1), Some(&2));
}

#[test]
fn an_element_that_does_not_fit_is_returned() {
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

#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
struct Library {
    #[pin]
    names: HashMap<String, Vec<u32>>,
    #[pin]
    queue: List<String>,
    #[pin]
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
        let all = library.edit();
        all.title.edit().push_str("Faust").unwrap();
        let (mut names, mut queue) = (all.names.edit(), all.queue.edit());
        for number in 0..100u32 {
            let name = number.to_string();
            names
                .get_pin_mut_or_insert_str_with(&name, || Vec::new_in(&region))
                .unwrap()
                .edit()
                .push(number)
                .unwrap();
            queue
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
            library.as_mut().names_mut().edit().clear();
            library.as_mut().queue_mut().edit().clear();
        });
    });
    // SAFETY: no task uses it any more.
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
