//! Whatever is done to a container, it holds what std's holds.

use latchwork::region::{HashMap, List, Region, RegionOptions, String, Vec};
use proptest::prelude::*;
use std::collections::VecDeque;

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
