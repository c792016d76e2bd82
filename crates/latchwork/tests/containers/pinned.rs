//! Containers in shared memory, which are changed in their place.

use super::region;
use latchwork::mutex::Mutex;
use latchwork::region::{HashMap, List, Region, String, Undo, Vec};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

#[test]
fn an_editor_has_the_methods_of_an_array() {
    let region = region();
    let mut array = pin!(Vec::<u64>::new_in(&region));
    let mut edit = array.as_mut().edit();
    edit.reserve(100).unwrap();
    assert!(edit.capacity() >= 100 && edit.is_empty());
    edit.extend_from_slice(&[3, 1, 2]).unwrap();
    edit.push(5).unwrap();
    edit.insert(0, 4).unwrap();
    edit.sort_unstable();
    edit[0] = 0;
    assert_eq!(edit[..], [0, 2, 3, 4, 5]);
    assert_eq!(format!("{edit:?}"), "[0, 2, 3, 4, 5]");
    assert_eq!(edit.swap_remove(0), 0);
    assert_eq!(edit.remove(1).unwrap(), 2);
    assert_eq!(edit.pop(), Some(4));
    edit.as_mut_slice()[0] += 1;
    assert_eq!(*edit.get_pin_mut(0).unwrap(), 6);
    assert!(edit.get_pin_mut(9).is_none());
    edit.iter_pin_mut()
        .rev()
        .for_each(|mut number| *number *= 2);
    edit.truncate(1);
    edit.shrink_to(2).unwrap();
    edit.shrink_to_fit().unwrap();
    edit.repair();
    assert_eq!(array[..], [12]);
    array.as_mut().edit().clear();
    assert!(array.is_empty());
}

#[test]
fn an_editor_has_the_methods_of_a_string() {
    let region = region();
    let mut text = pin!(String::new_in(&region));
    let mut edit = text.as_mut().edit();
    edit.reserve(10).unwrap();
    edit.push_str("grüß Gott").unwrap();
    edit.push('!').unwrap();
    assert_eq!(edit.pop(), Some('!'));
    assert_eq!((format!("{edit}"), edit.len()), ("grüß Gott".into(), 11));
    assert_eq!(format!("{edit:?}"), "\"grüß Gott\"");
    edit.truncate(6);
    edit.shrink_to_fit().unwrap();
    edit.repair();
    assert_eq!(*text, "grüß");
    text.as_mut().edit().clear();
    assert_eq!(*text, "");
}

#[test]
fn an_editor_has_the_methods_of_a_map() {
    let region = region();
    let mut map = pin!(HashMap::<u64, u64>::new_in(&region));
    let mut edit = map.as_mut().edit();
    edit.reserve(10).unwrap();
    assert_eq!(edit.insert(1, 2).unwrap(), None);
    *edit.get_mut(&1).unwrap() += 1;
    *edit.get_pin_mut(&1).unwrap() += 1;
    *edit.get_or_insert_with(5, || 6).unwrap() += 1;
    *edit.get_pin_mut_or_insert_with(7, || 8).unwrap() += 1;
    assert_eq!(*edit.get_pin_or_insert_with(9, || 1).unwrap(), 1);
    edit.values_mut().for_each(|value| *value *= 10);
    edit.values_pin_mut().for_each(|mut value| *value += 1);
    edit.repair();
    edit.shrink_to_fit().unwrap();
    assert_eq!(edit.remove(&1), Some(41));
    assert!(edit.discard(&5) && !edit.discard(&5));
    assert_eq!((edit.len(), edit.get(&7)), (2, Some(&91)));
    edit.clear();
    assert_eq!(format!("{edit:?}"), "{}");

    let mut map = pin!(HashMap::<String, Vec<u64>>::new_in(&region));
    let mut edit = map.as_mut().edit();
    let new = || Vec::new_in(&region);
    assert!(edit.insert_str("a", new()).unwrap().is_none());
    assert!(
        edit.get_pin_or_insert_str_with("b", new)
            .unwrap()
            .is_empty()
    );
    let value = edit.get_pin_mut_or_insert_str_with("a", new).unwrap();
    value.edit().push(1).unwrap();
    assert_eq!(edit.remove("a").unwrap()[..], [1]);

    let mut map = pin!(HashMap::<String, u64>::new_in(&region));
    let mut edit = map.as_mut().edit();
    *edit.get_or_insert_str_with("c", || 2).unwrap() += 1;
    assert_eq!(edit.get("c"), Some(&3));
}

#[test]
fn an_editor_has_the_methods_of_a_list() {
    let region = region();
    let mut list = pin!(List::<u64>::new_in(&region));
    let mut edit = list.as_mut().edit();
    (1..5).for_each(|number| edit.push_back(number).unwrap());
    edit.push_front(0).unwrap();
    *edit.front_mut().unwrap() += 10;
    *edit.back_mut().unwrap() += 10;
    *edit.front_pin_mut().unwrap() += 1;
    *edit.back_pin_mut().unwrap() += 1;
    edit.iter_mut().for_each(|number| *number *= 2);
    edit.iter_pin_mut().for_each(|mut number| *number += 1);
    edit.retain(|number| *number != 5);
    edit.repair();
    assert_eq!(format!("{edit:?}"), "[23, 3, 7, 31]");
    assert_eq!((edit.pop_front(), edit.pop_back()), (Some(23), Some(31)));
    edit.clear();
    assert!(list.is_empty());
}

#[test]
fn an_editor_has_the_methods_of_an_undo_log() {
    let region = region();
    let data = Undo::<HashMap<u64, u64>>::new(HashMap::new_in(&region));
    let mut undo = pin!(data);
    let mut edit = undo.as_mut().edit();
    edit.get_pin_mut().edit().insert(1, 2).unwrap();
    assert!(!edit.roll_back());
    edit.as_mut().begin().commit();
    assert_eq!(edit.get().get(&1), Some(&2));
    let mut number = pin!(Undo::<u64>::new(1));
    *number.as_mut().edit().get_mut() += 1;
    assert_eq!(*number.get(), 2);
}

/// A container that was dropped in its place, and over which only a part of another one was written: so a kill in the
/// middle of an assignment leaves it.
#[test]
#[allow(unsafe_code)]
fn a_container_that_was_assigned_in_part_is_empty_or_belongs_to_no_region() {
    /// Drops `place`, and writes one of the two words of `new` over it.
    fn assign<T>(mut place: core::pin::Pin<&mut T>, new: &T, word: usize) {
        const { assert!(size_of::<T>() == 16) };
        // SAFETY: the place holds a container of two words; each mixture that an assignment can leave is a container.
        unsafe {
            let place: *mut T = place.as_mut().get_unchecked_mut();
            place.drop_in_place();
            let words = core::ptr::from_ref(new).cast::<usize>();
            place
                .cast::<usize>()
                .add(word)
                .write(words.add(word).read());
        }
    }
    fn both<T: 'static>(
        regions: [&Region; 2],
        make: impl Fn(&Region) -> T,
        len: impl Fn(&T) -> usize,
    ) {
        for word in 0..2 {
            let mut place = pin!(make(regions[0]));
            let new = make(regions[1]);
            assign(place.as_mut(), &new, word);
            let found = catch_unwind(AssertUnwindSafe(|| len(&place)));
            assert_eq!(found.ok(), (word == 0).then_some(0));
            assert_eq!(len(&new), 1);
            place.set(make(regions[0]));
            assert_eq!(len(&place), 1);
        }
        regions
            .iter()
            .for_each(|region| region.check_heap().unwrap());
    }
    let (one, other) = (region(), region());
    let regions = [&one, &other];
    let array = |region: &Region| {
        let mut array = Vec::new_in(region);
        array.push(1u64).unwrap();
        array
    };
    both(regions, array, |array| array.len());
    let map = |region: &Region| {
        let mut map = HashMap::new_in(region);
        map.insert(1u64, 1u64).unwrap();
        map
    };
    both(regions, map, HashMap::len);
    let list = |region: &Region| {
        let mut list = List::new_in(region);
        list.push_back(1u64).unwrap();
        list
    };
    both(regions, list, List::len);
}

#[test]
fn a_place_of_no_region_refuses_elements_until_it_is_assigned() {
    let region = region();
    let numbers = region.object("numbers", || Mutex::robust(Vec::<u64>::new_in(&region)));
    let numbers = numbers.unwrap();
    let mut numbers = numbers.lock().unwrap();
    // SAFETY: each of its bytes stays valid.
    #[allow(unsafe_code)]
    unsafe {
        core::ptr::drop_in_place(numbers.as_mut().get_unchecked_mut());
    }
    let error = numbers.edit().push(1).unwrap_err().error;
    assert!(matches!(error, latchwork::region::StorageError::NotMapped));
    assert!(numbers.is_empty());
    numbers.as_mut().set(Vec::new_in(&region));
    numbers.edit().push(1).unwrap();
    assert_eq!(numbers[..], [1]);
}
