//! Updates that are undone unless they are committed.

use super::region;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::mutex::Mutex;
use latchwork::region::{HashMap, Region, Transaction, Undo, UndoError, Vec};
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

#[test]
fn a_moved_log_rolls_back_nothing() {
    let region = region();
    let log = Undo::<AtomicU64>::new(AtomicU64::new(1));
    let mut log = latchwork::region::Box::new_in(log, &region).unwrap();
    let mut update = log.begin();
    update.store(|cell| cell, 2).unwrap();
    core::mem::forget(update);
    let mut moved = log.into_inner();
    assert!(!moved.roll_back());
    assert_eq!(moved.get().load(Relaxed), 2);
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
