//! The robust locks that a thread holds, from the list that the kernel would process at its death.
#![allow(unsafe_code)]

use super::memory::{Memory, u64_at};

/// The most locks of one thread that are read (`ROBUST_LIST_LIMIT`).
const MOST: usize = 2048;
/// The flag of a link: the lock inherits priority.
const PI: u64 = 1;

/// The contents of a thread's list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RobustList {
    /// The words of the locks on the list.
    pub(crate) held: Vec<u64>,
    /// The word of the lock that the thread is taking or releasing at this moment.
    pub(crate) announced: Option<u64>,
}

/// The list of a thread; `None` if the caller may not trace it, or it has ended.
pub(crate) fn list(tid: u32, memory: &Memory) -> Option<RobustList> {
    let mut head = 0usize;
    let mut length = 0usize;
    // SAFETY: the kernel writes one word to each of two local variables.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut length,
        )
    };
    if answer != 0 || length != 24 {
        return None;
    }
    let head = head as u64;
    if head == 0 {
        return Some(RobustList::default());
    }
    let bytes: [u8; 24] = memory.read(head)?;
    let offset = u64_at(&bytes, 8);
    let word = |entry: u64| (entry & !PI).wrapping_add(offset);
    let mut found = RobustList {
        held: Vec::new(),
        announced: Some(u64_at(&bytes, 16))
            .filter(|pending| *pending != 0)
            .map(word),
    };
    let mut entry = u64_at(&bytes, 0);
    // The list may be changing, or contain arbitrary bytes.
    while entry & !PI != head && found.held.len() < MOST {
        let Some(next) = memory.read(entry & !PI) else {
            break;
        };
        found.held.push(word(entry));
        entry = u64::from_ne_bytes(next);
    }
    Some(found)
}
