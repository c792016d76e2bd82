//! Records of undo logs: restored by the attach itself, refused, or forgotten, so that none is restored later.

use crate::mutations::{ADDRESS, Image, file_of};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::{AttachError, RegionOptions, Undo, Vec as RegionVec};
use latchwork_testkit::Trial;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Cell = Undo<AtomicU64, 1>;
type Log = Mutex<Cell, InRegion>;
type Logs = Mutex<RegionVec<Cell>, InRegion>;

/// Writes one record into a log at an address: the value `before` of the cell at another. `origin`: where the log says that
/// it is.
fn forge(bytes: &mut [u8], log: usize, origin: usize, cell: usize, before: u64) {
    let words = [1, origin as u64, cell as u64, before];
    for (word, place) in words.iter().zip((log - ADDRESS..).step_by(8)) {
        bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
    }
}

fn address_of<T>(object: &T) -> usize {
    core::ptr::from_ref(object).addr()
}

#[test]
fn a_checked_attach_restores_the_cells_of_an_undo_log_or_refuses_it() {
    let _trial = Trial::begin("a_checked_attach_restores_the_cells_of_an_undo_log_or_refuses_it");
    let (mut log, mut cell) = (0, 0);
    let image = Image::of(|region| {
        let object = region
            .object::<Log>("log", || Mutex::in_region(Undo::new(AtomicU64::new(5))))
            .unwrap();
        let guard = object.lock().unwrap();
        (log, cell) = (address_of(&*guard), address_of(guard.get()));
    });
    let attach = |origin, cell, before| {
        let mut bytes = image.bytes.clone();
        forge(&mut bytes, log, origin, cell, before);
        let options = RegionOptions::new().holds::<Log>();
        let region = options.attach_file(file_of(&bytes))?;
        let object = region.find::<Log>("log").unwrap();
        // Nothing is left to the next owner.
        let value = object.lock().unwrap().get().load(Relaxed);
        // The next region is at the same address.
        region.detach().unwrap();
        Ok::<_, AttachError>(value)
    };
    assert_eq!(attach(log, cell, 3).unwrap(), 3);
    // A log that has moved.
    assert_eq!(attach(log + 8, cell, 3).unwrap(), 5);
    for outside in [cell + 8, log, cell - 4] {
        assert!(
            matches!(attach(log, outside, 3), Err(AttachError::Unsound(error)) if error.what.contains("undo"))
        );
    }
}

/// A log whose records do not count where it is, and would count where it is moved to.
#[test]
fn the_records_of_a_log_that_is_elsewhere_are_forgotten() {
    let _trial = Trial::begin("the_records_of_a_log_that_is_elsewhere_are_forgotten");
    let (mut logs, mut victim) = ([0; 2], 0);
    let mut image = Image::of(|region| {
        let number = region.object("victim", || AtomicU64::new(7)).unwrap();
        victim = address_of(number.get_ref());
        let object = region
            .object::<Logs>("logs", || Mutex::in_region(RegionVec::new_in(region)))
            .unwrap();
        let mut guard = object.lock().unwrap();
        for value in [1, 2] {
            let log = Undo::new(AtomicU64::new(value));
            assert!(guard.edit().push(log).is_ok());
        }
        logs = [0, 1].map(|index| address_of(&guard.as_slice()[index]));
    });
    forge(&mut image.bytes, logs[1], logs[0], victim, 99);
    let options = RegionOptions::new().holds::<Logs>().holds::<AtomicU64>();
    let region = options.attach_file(file_of(&image.bytes)).unwrap();
    let object = region.find::<Logs>("logs").unwrap();
    let mut guard = object.lock().unwrap();
    drop(guard.edit().swap_remove(0));
    let mut editor = guard.edit();
    let mut first = editor.get_pin_mut(0).unwrap().edit();
    assert!(!first.roll_back(), "it has no records");
    assert_eq!(first.get().load(Relaxed), 2);
    drop(guard);
    let victim = region.find::<AtomicU64>("victim").unwrap();
    assert_eq!(victim.load(Relaxed), 7);
    region.detach().unwrap();
}
