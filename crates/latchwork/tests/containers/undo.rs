//! Updates that are undone unless they are committed.

use super::region;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::{HashMap, List, Region, Shareable, Transaction, Undo, UndoError, Vec};
use latchwork_testkit::{Child, Exit};

#[test]
fn an_update_is_undone_unless_it_is_committed() {
    // A reference that lives for ever can be captured by what picks a cell.
    let region: &Region = Box::leak(Box::new(region()));
    type Cells = Undo<HashMap<u32, AtomicU64>, 3>;
    let cells = region
        .object("cells", || {
            Mutex::robust(Cells::new(HashMap::new_in(region)))
        })
        .unwrap();
    let mut cells = cells.lock().unwrap();
    for key in 0..5 {
        cells
            .edit()
            .get_pin_mut()
            .edit()
            .insert(key, AtomicU64::new(0))
            .unwrap();
    }
    let all = |cells: &Cells| {
        (0..5)
            .map(|key| cells.get().get(&key).unwrap().load(Relaxed))
            .collect::<std::vec::Vec<_>>()
    };

    let mut update = cells.edit().begin();
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

    let mut update = cells.edit().begin();
    update.store_at(|cells| cells, &0, 1).unwrap();
    update.commit();
    assert_eq!(all(&cells), [1, 0, 0, 0, 0]);

    // What a dead owner leaves, as far as the log can tell.
    let mut update = cells.edit().begin();
    update.store_at(|cells| cells, &4, 9).unwrap();
    core::mem::forget(update);
    assert_eq!(all(&cells), [1, 0, 0, 0, 9]);
    assert!(cells.edit().roll_back());
    assert!(!cells.edit().roll_back());
    assert_eq!(all(&cells), [1, 0, 0, 0, 0]);

    // A cell elsewhere could not be restored by another process.
    static ELSEWHERE: AtomicU64 = AtomicU64::new(0);
    assert_eq!(
        cells.edit().begin().store(|_| &ELSEWHERE, 1),
        Err(UndoError::Outside)
    );
    // One that is in the region, but not in the data, could go before the log does.
    type Other = (Vec<AtomicU64>, HashMap<u32, AtomicU64>);
    let mut other: Other = (Vec::new_in(region), HashMap::new_in(region));
    other.0.push(AtomicU64::new(0)).unwrap();
    other.1.insert(7, AtomicU64::new(0)).unwrap();
    let other: &Other = Box::leak(Box::new(other));
    let mut update = cells.edit().begin();
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

/// Cells in the log itself, and in a container.
type Cells = Undo<(AtomicU64, Vec<AtomicU64>)>;

fn new(region: &Region, number: u64) -> Cells {
    let mut cells = Vec::new_in(region);
    cells.push(AtomicU64::new(number)).unwrap();
    Cells::new((AtomicU64::new(number), cells))
}

/// Leaves a log as a dead owner does, as far as the log can tell.
fn half_done(log: &mut Cells) {
    let mut update = log.begin();
    update.store(|cells| &cells.0, 1000).unwrap();
    update.store_at(|cells| &cells.1, &0, 1000).unwrap();
    core::mem::forget(update);
}

fn values(log: &Cells) -> [u64; 2] {
    let (own, other) = log.get();
    [own.load(Relaxed), other[0].load(Relaxed)]
}

#[derive(Shareable)]
#[repr(C)]
struct Account {
    name: u32,
    cells: Cells,
}

#[test]
fn a_container_rolls_a_log_back_before_it_moves_it() {
    let region = &region();
    let new = |number| new(region, number);
    let tear = |logs: &mut Vec<Cells>| logs.iter_mut().for_each(half_done);
    let logs: &mut Vec<Cells> = &mut Vec::new_in(region);
    let expect = |logs: &Vec<Cells>, numbers: &[u64]| {
        let found: std::vec::Vec<_> = logs.iter().map(values).collect();
        let expected: std::vec::Vec<_> = numbers.iter().map(|number| [*number; 2]).collect();
        assert_eq!(found, expected);
    };
    // A growing push.
    logs.reserve(8).unwrap();
    while logs.len() < logs.capacity() {
        logs.push(new(logs.len() as u64 + 1)).unwrap();
    }
    tear(logs);
    logs.push(new(logs.len() as u64 + 1)).unwrap();
    let mut numbers: std::vec::Vec<u64> = (1..=logs.len() as u64).collect();
    expect(logs, &numbers);

    tear(logs);
    logs.insert(0, new(90)).unwrap();
    numbers.insert(0, 90);
    expect(logs, &numbers);

    tear(logs);
    let removed = logs.remove(1).unwrap();
    assert_eq!(values(&removed), [numbers.remove(1); 2]);
    expect(logs, &numbers);

    for index in [0, usize::MAX] {
        let index = index.min(logs.len() - 1);
        half_done(&mut logs[index]);
        let last = logs.len() - 1;
        half_done(&mut logs[last]);
        assert_eq!(
            values(&logs.swap_remove(index)),
            [numbers.swap_remove(index); 2]
        );
        expect(logs, &numbers);
    }
    let last = logs.len() - 1;
    half_done(&mut logs[last]);
    assert_eq!(values(&logs.pop().unwrap()), [numbers.pop().unwrap(); 2]);

    logs.reserve(100).unwrap();
    tear(logs);
    logs.shrink_to_fit().unwrap();
    expect(logs, &numbers);
}

#[test]
fn a_container_rolls_a_log_back_before_it_gives_it_away() {
    let region = &region();
    let new = |number| new(region, number);
    let map: &mut HashMap<u32, Cells> = &mut HashMap::new_in(region);
    assert!(map.insert(1, new(1)).unwrap().is_none());
    half_done(map.get_mut(&1).unwrap());
    assert_eq!(values(&map.insert(1, new(2)).unwrap().unwrap()), [1; 2]);
    half_done(map.get_mut(&1).unwrap());
    assert_eq!(values(&map.remove(&1).unwrap()), [2; 2]);

    let list: &mut List<Cells> = &mut List::new_in(region);
    for number in 1..=2 {
        list.push_back(new(number)).unwrap();
    }
    list.iter_mut().for_each(half_done);
    assert_eq!(values(&list.pop_back().unwrap()), [2; 2]);
    assert_eq!(values(&list.pop_front().unwrap()), [1; 2]);

    let mut boxed = latchwork::region::Box::new_in(new(1), region).unwrap();
    half_done(&mut boxed);
    assert_eq!(values(&boxed.into_inner()), [1; 2]);
}

#[test]
fn a_log_in_a_part_of_an_element_is_rolled_back_before_it_moves() {
    let region = &region();
    let new = |number| new(region, number);
    type Element = (u8, [Mutex<Account, InRegion>; 2], Undo<Cells, 1>);
    let elements: &mut Vec<Element> = &mut Vec::new_in(region);
    let account = |number| {
        Mutex::in_region(Account {
            name: 0,
            cells: new(number),
        })
    };
    let element = (0, [account(1), account(2)], Undo::new(new(3)));
    assert!(elements.push(element).is_ok());
    for account in &mut elements[0].1 {
        half_done(&mut account.get_mut().unwrap().cells);
    }
    half_done(elements[0].2.get_mut());
    elements.reserve(100).unwrap();
    let (_, accounts, nested) = &mut elements[0];
    for (account, number) in accounts.iter_mut().zip(1..) {
        assert_eq!(values(&account.get_mut().unwrap().cells), [number; 2]);
        assert_eq!(account.get_mut().unwrap().name, 0);
    }
    assert_eq!(values(nested.get()), [3; 2]);
}

/// A copy elsewhere that no container made: the cells of a record may be gone.
#[test]
fn a_log_that_a_program_moves_rolls_back_nothing() {
    let region = region();
    let new = |number| {
        latchwork::region::Box::new_in(Undo::<AtomicU64>::new(AtomicU64::new(number)), &region)
            .unwrap()
    };
    let (mut one, mut other) = (new(1), new(2));
    let mut update = one.begin();
    update.store(|cell| cell, 3).unwrap();
    core::mem::forget(update);
    core::mem::swap(&mut *one, &mut *other);
    assert!(!other.roll_back());
    assert_eq!([&one, &other].map(|log| log.get().load(Relaxed)), [2, 3]);
}

/// What is dropped behind a guard stays there for a successor, if its task is killed before it is written over.
#[test]
#[allow(unsafe_code)]
fn a_dropped_log_rolls_back_nothing() {
    let region = region();
    type Cells = Undo<[AtomicU64; 2]>;
    let cells = region
        .object("cells", || {
            Mutex::robust(Cells::new([AtomicU64::new(1), AtomicU64::new(2)]))
        })
        .unwrap();
    let mut cells = cells.lock().unwrap();
    let mut update = cells.edit().begin();
    update.store(|cells| &cells[0], 3).unwrap();
    core::mem::forget(update);
    // SAFETY: there is nothing to free in it, and each of its bytes stays valid.
    unsafe { core::ptr::drop_in_place(cells.as_mut().get_unchecked_mut()) };
    assert!(!cells.edit().roll_back());
    assert_eq!(cells.get()[0].load(Relaxed), 3);
}

/// If a task is killed while it assigns a log to the place of another one, the words of the new one may be there in
/// part: with the place of the old log, the records of the new one would be taken for records that were made here.
#[test]
#[allow(unsafe_code)]
fn a_log_that_was_assigned_in_part_rolls_back_nothing() {
    let region = region();
    type Cells = Undo<[AtomicU64; 2]>;
    let new = || Cells::new([AtomicU64::new(1), AtomicU64::new(2)]);
    let with_record = || {
        let mut log = latchwork::region::Box::new_in(new(), &region).unwrap();
        let mut update = log.begin();
        update.store(|cells| &cells[0], 3).unwrap();
        core::mem::forget(update);
        log
    };
    let mut old = with_record();
    let place: *mut Cells = &raw mut *old;
    // SAFETY: there is nothing to free in it, and each of its bytes stays valid. The count is the first word.
    unsafe {
        place.drop_in_place();
        place.cast::<usize>().write(1);
    }
    assert!(!old.roll_back());
    assert_eq!(old.get()[0].load(Relaxed), 3);
}

/// The child of a fork has a copy of an update that its parent goes on with.
#[test]
#[allow(unsafe_code)]
fn an_update_belongs_to_the_process_that_began_it() {
    let region = region();
    type Cells = Undo<[AtomicU64; 2], 2>;
    let cells = region
        .object("cells", || Mutex::in_region(Cells::new(Default::default())))
        .unwrap();
    let mut cells = cells.lock().unwrap();
    let mut update = cells.edit().begin();
    update.store(|cells| &cells[0], 1).unwrap();
    // SAFETY: the child ends before it drops the other one.
    let copy = || unsafe { core::ptr::read(&raw const update) };
    for ends in [
        |copy| drop(copy),
        |copy: Transaction<'_, _, 2>| copy.commit(),
    ] {
        let mut child = Child::fork(|| ends(copy()));
        assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
    }
    update.store(|cells| &cells[1], 2).unwrap();
    update.roll_back();
    let values = || cells.get().each_ref().map(|cell| cell.load(Relaxed));
    assert_eq!(values(), [0, 0]);
}
