//! How often a thread's lock calls have slept, woken others, and waited: counted for each thread, where the system calls
//! are made. One place thus serves every lock, a free path costs nothing, and no lock needs room for it.
//!
//! A signal handler that uses locks itself may have its counts of one kind undone by the increment, or the acquisition, that
//! it interrupts. So a count may become smaller.
#![allow(unsafe_code)]

use super::each_thread::each_thread;
use core::cell::Cell;

/// The counts of one thread since it began, or what was added between two moments ([`Self::since`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowPaths {
    /// Lock calls that may wait, and did not succeed by their free path.
    pub acquisitions: u64,
    /// System calls to sleep on a word, including those that the kernel refused since the word had changed.
    pub sleeps: u64,
    /// System calls to wake tasks that may sleep on a word.
    pub wakes: u64,
    /// System calls to acquire or release a lock with priority inheritance, whose slow paths are the kernel's.
    pub inheriting: u64,
}

/// What is counted, as an index.
#[derive(Clone, Copy)]
enum Count {
    Acquisition,
    Sleep,
    Wake,
    Inheriting,
}

each_thread! {
    static COUNTS: [Cell<u64>; 4] = [const { Cell::new(0) }; 4];
}

impl SlowPaths {
    /// The calling thread's counts. The child of a fork goes on from those of its parent's thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        COUNTS.with(|counts| {
            let of = |count: Count| counts[count as usize].get();
            Self {
                acquisitions: of(Count::Acquisition),
                sleeps: of(Count::Sleep),
                wakes: of(Count::Wake),
                inheriting: of(Count::Inheriting),
            }
        })
    }

    /// What was added since `earlier`, in the same thread.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            acquisitions: self.acquisitions.wrapping_sub(earlier.acquisitions),
            sleeps: self.sleeps.wrapping_sub(earlier.sleeps),
            wakes: self.wakes.wrapping_sub(earlier.wakes),
            inheriting: self.inheriting.wrapping_sub(earlier.inheriting),
        }
    }
}

#[inline]
fn add(count: Count) {
    COUNTS.with(|counts| {
        let count = &counts[count as usize];
        count.set(count.get().wrapping_add(1));
    });
}

/// To be called by a lock call that has left its free path and may wait.
#[inline]
pub fn acquisition() {
    add(Count::Acquisition);
}

/// Runs a lock call that uses other locks: whatever those count, it is one acquisition.
#[inline]
pub fn one_acquisition<R>(call: impl FnOnce() -> R) -> R {
    let before = SlowPaths::of_this_thread().acquisitions;
    let result = call();
    COUNTS.with(|counts| counts[Count::Acquisition as usize].set(before.wrapping_add(1)));
    result
}

pub(super) fn sleep() {
    add(Count::Sleep);
}

pub(super) fn wake() {
    add(Count::Wake);
}

pub(super) fn inheriting() {
    add(Count::Inheriting);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicU32;
    use crate::sys::futex::{self, Sharing};
    use crate::sys::futex_pi;

    fn counted(calls: impl FnOnce()) -> SlowPaths {
        let before = SlowPaths::of_this_thread();
        calls();
        SlowPaths::of_this_thread().since(before)
    }

    #[test]
    fn each_system_call_is_counted_once_and_in_its_thread() {
        let word = AtomicU32::new(1);
        let of = counted(|| {
            futex::wait(&word, 0, Sharing::Private, None);
            futex::wake(&raw const word, 1, Sharing::Private);
            futex::wake(&raw const word, 1, Sharing::Private);
        });
        let expected = SlowPaths {
            sleeps: 1,
            wakes: 2,
            ..SlowPaths::default()
        };
        assert_eq!(of, expected);
        let of = counted(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| futex::wake(&raw const word, 1, Sharing::Private));
            });
        });
        assert_eq!(of, SlowPaths::default());
    }

    #[test]
    fn calls_with_inheritance_are_counted_apart() {
        let word = AtomicU32::new(0);
        let of = counted(|| {
            assert_eq!(
                futex_pi::trylock_pi(&word, Sharing::Private),
                futex_pi::Pi::Done
            );
            // SAFETY: this thread has just acquired the word.
            let released = unsafe { futex_pi::unlock_pi(&raw const word, Sharing::Private) };
            assert_eq!(released, futex_pi::Pi::Done);
        });
        assert_eq!((of.inheriting, of.sleeps, of.wakes), (2, 0, 0));
    }

    #[test]
    fn a_call_that_uses_other_locks_is_one_acquisition() {
        let of = counted(|| {
            one_acquisition(|| {
                acquisition();
                acquisition();
            });
            one_acquisition(|| ());
        });
        assert_eq!(of.acquisitions, 2);
    }
}
