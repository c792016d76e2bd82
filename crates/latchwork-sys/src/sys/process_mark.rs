//! Whether this process has made a value, or one that it was forked from.
//!
//! A process ID does not say so: the first process of each PID namespace has the ID 1. A child of such a process that is the
//! first of another namespace has its parent's ID, and all that its parent had in memory.
//!
//! So each process counts on from where its parent was. The counter is inherited, and what a process has drawn from it is not:
//! it lies in memory that is wiped on fork. Hence no process draws a number that was drawn before it was forked, and no other
//! can be in the memory that it has copied. (Relatives may draw equal numbers later. What they share lies in shared memory,
//! where no mark may be.)
#![allow(unsafe_code)]

use super::wiped::Wiped;
use crate::atomic::{AtomicU64, Ordering};
use rustix::io::Result;

/// Which process has made a value in memory that the children of forks copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMark(u64);

/// The last number that this process, or one that it was forked from, has drawn.
static LAST: AtomicU64 = AtomicU64::new(0);
// SAFETY: a number.
static OWN: Wiped<AtomicU64> = unsafe { Wiped::new() };

impl ProcessMark {
    /// The calling process's mark. The call fails only if neither this process nor one that it was forked from has called it
    /// before, and there is no memory.
    #[inline]
    pub fn own() -> Result<Self> {
        let own = OWN.get()?;
        // Relaxed: a number that every thread of the process finds, and nothing is published with it.
        let known = own.load(Ordering::Relaxed);
        Ok(Self(if known == 0 { draw(own) } else { known }))
    }

    /// The mark as a number, which is not 0.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether the calling process has made the mark.
    #[inline]
    #[must_use]
    pub fn is_own(self) -> bool {
        Self::own() == Ok(self)
    }
}

#[cold]
fn draw(own: &AtomicU64) -> u64 {
    // Counted before it is used: a child that another thread forks in between counts on from here.
    let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match own.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(other) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `body` is true in the child of a fork.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child allocates nothing, and ends by `_exit`.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(body().into());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            libc::WEXITSTATUS(status) == 1
        }
    }

    #[test]
    fn no_process_has_the_mark_of_one_that_it_comes_from() {
        let own = ProcessMark::own().unwrap();
        assert!(own.is_own() && own.number() != 0);
        assert!(in_child(|| {
            let child = ProcessMark::own();
            let has_own = || child.is_ok_and(ProcessMark::is_own) && !own.is_own();
            has_own()
                && in_child(|| !own.is_own() && !child.is_ok_and(ProcessMark::is_own))
                && has_own()
        }));
        // Also of one that has asked after its parent did, and before it.
        assert!(in_child(|| in_child(|| !own.is_own())));
        assert!(own.is_own());
    }
}
