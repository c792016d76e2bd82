//! Validation of the classic interface's table by a checked attach.
#![allow(unsafe_code)]

use super::handle::{Classic, FINGERPRINT, slice_at};
use super::table::{Ceilings, Entry, Home, Table};
use crate::atomic::Ordering::Relaxed;
use crate::queue::{Head, validate_head};
use crate::region::{Content, KnownContent, Unsound, Validator};
use crate::semaphore::content::validate_core;
use crate::semaphore::object::Core;
use core::ptr::NonNull;

// SAFETY: all words of the object are validated, and its list is the one of its handle.
unsafe impl KnownContent for Classic<'_> {
    fn content() -> Content {
        Content {
            fingerprint: FINGERPRINT,
            reused: None,
            // SAFETY: the same contract.
            validate: |place, bytes, region| unsafe { validate(place, bytes, region) },
        }
    }
}

/// # Safety
/// A block of so many bytes, which no task uses.
unsafe fn validate(
    place: NonNull<u8>,
    bytes: usize,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    let table = place.cast::<Table>();
    if bytes < size_of::<Table>() || !table.is_aligned() {
        return Err(region.unsound(place, "its size or alignment is not its type's"));
    }
    // SAFETY: it has room for a table, of which every value is valid.
    let table = unsafe { table.as_ref() };
    let tasks = region.inner().max_tasks();
    let parts = (table.options().parts(tasks)).filter(|parts| parts.layout.size() == bytes);
    let (Some(parts), true) = (parts, table.instances.is_sound()) else {
        return Err(region.unsound(place, "a table has another size than its options need"));
    };
    if !(1..=3_600_000_000).contains(&table.microseconds) {
        return Err(region.unsound(place, "a tick is out of range"));
    }
    table.lock.end_ownership();
    // Every home is that of a task that has ended, whose number one to come might have.
    table.moving.task.store(0, Relaxed);
    let [semaphores, queues] = [table.semaphores, table.message_queues].map(usize::from);
    // SAFETY: the block has the length that the options give.
    let (semaphores, ceilings) = unsafe {
        (
            slice_at::<Entry<Core>>(place, parts.semaphores, semaphores),
            slice_at::<Ceilings>(place, parts.ceilings, semaphores),
        )
    };
    // SAFETY: as above.
    let (queues, homes) = unsafe {
        (
            slice_at::<Entry<Head>>(place, parts.queues, queues),
            slice_at::<Home>(place, parts.homes, tasks),
        )
    };
    for home in homes {
        home.task.store(0, Relaxed);
    }
    let schedulers = table.instances.count();
    for ceiling in ceilings {
        if ceiling.creator.load(Relaxed) as usize >= schedulers {
            return Err(region.unsound(NonNull::from(ceiling), "there is no such scheduler"));
        }
    }
    for semaphore in semaphores {
        validate_core(&semaphore.object, region)?;
    }
    queues
        .iter()
        .try_for_each(|queue| validate_head(&queue.object, region))
}
