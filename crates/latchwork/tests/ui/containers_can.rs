#![forbid(unsafe_code)]
#![deny(warnings)]

use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{
    Box, Edit, HashMap, List, PinnedFields, RegionOptions, Shareable, String, TornSafe, Undo, Vec,
    each_pinned_mut,
};
use latchwork::rwlock::RobustRwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
struct Everything {
    #[pin]
    map: HashMap<String, Vec<u32>>,
    #[pin]
    list: List<String>,
    #[pin]
    cells: Undo<[AtomicU64; 4]>,
    #[pin]
    entries: Vec<Entry>,
    count: u64,
}

/// An element of a `Vec` moves, although it has a container in it.
#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
struct Entry {
    #[pin]
    name: String,
    number: u64,
}

/// Which fields are pinned depends on the parameter.
#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
pub struct Pair<T: 'static, const N: usize> {
    #[pin]
    pub one: T,
    #[pin]
    r#mut: [T; N],
    pub plain: [u64; N],
}

fn main() -> Result<(), std::boxed::Box<dyn std::error::Error>> {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous()?;
    let make = || {
        Mutex::robust(Everything {
            map: HashMap::new_in(&region),
            list: List::new_in(&region),
            cells: Undo::new([const { AtomicU64::new(0) }; 4]),
            entries: Vec::new_in(&region),
            count: 0,
        })
    };
    let all = region.object::<Mutex<Everything, Robust>>("all", make)?;
    let mut all = match all.lock() {
        Err(LockError::OwnerDied(mut died)) => {
            died.edit().map.edit().repair();
            died.make_consistent()
        }
        other => other?,
    };
    assert!(all.map.is_empty() && all.list.is_empty());
    let fields = all.edit();
    *fields.count += 1;
    let mut map = fields.map.edit();
    map.get_pin_mut_or_insert_str_with("a", || Vec::new_in(&region))?.edit().push(1)?;
    map.get_pin_mut("a").unwrap().edit().push(2)?;
    map.values_pin_mut().for_each(|value| value.edit()[0] = 7);
    let mut list = fields.list.edit();
    list.push_back(String::new_in(&region))?;
    list.front_pin_mut().unwrap().edit().push('x')?;
    list.back_pin_mut().unwrap().edit().push('y')?;
    list.iter_pin_mut().for_each(|text| text.edit().push('z').unwrap());
    let mut change = fields.cells.edit().begin();
    change.store(|cells| &cells[2], 5)?;
    change.commit();
    let mut entries = fields.entries.edit();
    for number in 0..20 {
        entries.push(Entry { name: String::from_str_in("n", &region)?, number })?;
    }
    for entry in entries.iter_pin_mut() {
        let entry = entry.edit();
        *entry.number *= 2;
        entry.name.edit().push_str("ame")?;
    }
    entries.get_pin_mut(3).unwrap().set(Entry { name: String::new_in(&region), number: 9 });
    all.as_mut().list_mut().edit().push_back(String::new_in(&region))?;
    assert_eq!(all.map.get("a").unwrap()[..], [7, 2]);
    assert_eq!(all.list.front().unwrap(), "xyz");
    assert_eq!(all.cells.get()[2].load(Relaxed), 5);
    assert_eq!((&*all.entries[19].name, all.entries[19].number), ("name", 38));
    assert_eq!((all.entries[3].number, all.count), (9, 1));

    // Numbers notice nothing.
    let pair = RobustRwLock::<_, 16>::new(Pair::<u32, 2> { one: 1, r#mut: [2; 2], plain: [3; 2] });
    let pair = std::pin::pin!(pair);
    let pair = pair.as_ref();
    pair.write().unwrap().plain[0] += 1;
    pair.write().unwrap().one += 1;
    *pair.write().unwrap().edit().one += 1;
    pair.write().unwrap().as_mut().mut_mut().set([5; 2]);
    assert_eq!((pair.read().unwrap().one, pair.read().unwrap().r#mut[1]), (3, 5));
    assert_eq!(pair.read().unwrap().plain, [4, 3]);

    let new = || List::<u32>::new_in(&region);
    let lanes = Mutex::robust(Pair::<List<u32>, 2> { one: new(), r#mut: [new(), new()], plain: [0; 2] });
    let lanes = region.object::<Mutex<Pair<List<u32>, 2>, Robust>>("lanes", || lanes)?;
    let mut lanes = lanes.lock()?;
    for lane in each_pinned_mut(lanes.as_mut().mut_mut()) {
        lane.edit().push_back(1)?;
    }
    let [_, second] = lanes.as_mut().mut_mut().edit();
    second.edit().push_back(2)?;
    assert_eq!((lanes.r#mut[0].len(), lanes.r#mut[1].len()), (1, 2));

    // An `Option` is not `TornSafe`, but it can be changed.
    let maybe = region.object("maybe", || Mutex::robust(Some(new())))?;
    let mut maybe = maybe.lock()?;
    maybe.as_mut().as_pin_mut().unwrap().edit().push_back(4)?;
    maybe.as_mut().set(None);

    // What belongs to a task alone is changed as ever.
    let mut words = Vec::new_in(&region);
    words.push(String::from_str_in("b", &region)?)?;
    words.push(String::from_str_in("a", &region)?)?;
    words.sort();
    words[0].push_str("aa")?;
    assert_eq!(words.iter().map(|word| &**word).collect::<std::vec::Vec<_>>(), ["aaa", "b"]);
    let mut boxed = Box::new_in(words, &region)?;
    boxed.swap(0, 1);
    assert_eq!(boxed.into_inner()[0], "b");
    Ok(())
}
