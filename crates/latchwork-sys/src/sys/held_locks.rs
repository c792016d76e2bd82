//! Robust locks that threads of this process hold in a range of addresses.
//!
//! A forgotten guard leaves its lock on the thread's robust list, even if the memory is freed. Only that list shows it.
//! So before memory with locks in it is freed, the lists of all threads are read from outside. `/proc/self/mem` returns
//! an error for an invalid pointer, which is needed since other threads change their lists, or end, meanwhile.
//!
//! *Why no lock is missed.* A lock in the range stays on its list, since the guard that could release it is
//! gone. Nodes in front of it on the list come and go, and each of these leads to it, or to the list on which
//! it has been put meanwhile. So a walk that ends at its own head has either met the lock or the lock is not
//! there. Any other end counts as a lock found.

use super::cancellation::Undisturbed;
use super::memory::read_at;
use super::robust_list::{KERNEL_LIMIT, PI, head_of};
use core::ops::Range;
use std::fs::File;

/// Whether any thread of this process has a robust lock in the range on its list; also true if that cannot be
/// determined.
pub fn are_in(range: &Range<usize>) -> bool {
    let _undisturbed = Undisturbed::begin();
    find(range).unwrap_or(true)
}

fn find(range: &Range<usize>) -> std::io::Result<bool> {
    let memory = File::open("/proc/self/mem")?;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let id = thread?.file_name();
        let Some(id) = id.to_str().and_then(|id| id.parse().ok()) else {
            continue;
        };
        // A list that changes during the walk may mislead it, so it is walked up to three times.
        if (0..3).all(|_| is_on_list_of(id, &memory, range)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_on_list_of(thread: i32, memory: &File, range: &Range<usize>) -> bool {
    let head = match head_of(thread) {
        Ok(head) if head.is_null() => return false,
        Ok(head) => head.addr(),
        // A thread that has ended since its ID was read has released its locks.
        Err(error) => return error != rustix::io::Errno::SRCH,
    };
    let mut link = head;
    for _ in 0..KERNEL_LIMIT + 1 {
        let mut next = [0; size_of::<usize>()];
        if read_at(memory, &mut next, link as u64) != Ok(next.len()) {
            return true;
        }
        link = usize::from_ne_bytes(next) & !PI;
        if link == head {
            return false;
        }
        if range.contains(&link) {
            return true;
        }
    }
    true
}
