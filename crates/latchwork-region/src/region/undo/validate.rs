//! Validation of an undo log by a checked attach.
#![allow(unsafe_code)]

use super::super::{Unsound, Validate, Validator};
use super::{Undo, commit, read};
use core::ptr::NonNull;

// SAFETY: the data is validated. Records that name cells of it are restored here, others are refused or forgotten.
unsafe impl<T: Validate, const N: usize> Validate for Undo<T, N> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: a field of the log.
        let data = unsafe { NonNull::new_unchecked(&raw mut (*place.as_ptr()).data) };
        // SAFETY: words of the log, of which every value is valid.
        let (count, origin, records) = unsafe {
            let log = place.as_ptr();
            (read(&(*log).count), read(&(*log).place), &(*log).records)
        };
        if count > N {
            return Err(region.unsound(place, "an undo log has more records than it has room for"));
        }
        if count == 0 || origin != place.addr().get() {
            // Records of a log that has moved count no more. They must not count again if it moves once more.
            // SAFETY: a word of the log, which no task uses.
            commit(unsafe { &(*place.as_ptr()).count }, 0);
            // SAFETY: a part of the place.
            return unsafe { T::validate(data, region) };
        }
        // SAFETY: a part of the place.
        let cells = region.cells_met(|region| unsafe { T::validate(data, region) })?;
        let lost = |address: usize| address != 0 && !cells.contains(&address);
        match (records[..count].iter()).find(|record| lost(read(&record.cell))) {
            Some(record) => Err(region.unsound(
                NonNull::from(record),
                "an undo log names no cell of its data",
            )),
            // At once: later the data may have given the memory of a cell back, or lent it.
            None => {
                // SAFETY: the log and its data are valid, each record names a cell of the data, and no task uses them.
                unsafe { place.as_ref() }.restore();
                Ok(())
            }
        }
    }
}
