//! Cancellation of the calling thread, by `pthread_cancel`: it is disabled in the library's cold places.
//!
//! A thread that was asked to end does so in the next *cancellation point*, a function of libc such as `open` or
//! `close`: it is unwound from there. No frame of Rust may be unwound like that, and the thread would leave locks of the
//! library locked, and messages half made. So each place that calls such a function is an [`Undisturbed`] one. (The waits
//! that are cancellation points, as in `lw_cond_wait`, are in C: see `wait.c` and `queue.c` of `latchwork-c`.)
//!
//! *Why not each call of the C interface.* The two calls of libc's take 13 to 17 ns together, half as long as a send or a
//! receive of a queue, and as long as an allocation. And what is often called comes to no cancellation point:
//!
//! - rustix and `libc::syscall` make system calls directly. These are none, whether they wait or not.
//! - Of libc, such calls use functions like `clock_gettime`, `sched_getcpu`, `pthread_self`, `pthread_setspecific`,
//!   `malloc` and `strerror_r`, which are none either.
//!
//! What is left of pthreads(7)'s list is in std: descriptors that it closes, files, directories, standard streams, threads
//! that it joins or has sleep; and this crate's `wait4`, `waitid`, `sigtimedwait`, `fflush` and `fcntl`. A thread of the
//! program calls them in these places, each of which is Undisturbed:
//!
//! | cold place | where |
//! | --- | --- |
//! | files of `/proc` and `/sys` that are read: whether a task is dying, which robust locks lie in a range, which processors there are; and the question whether the process has children | this crate: `held_locks.rs`, `inspect.rs`, `proc_file.rs`, `scheduling.rs`, `introspect/`, `process.rs` |
//! | a thread's first use of a region; the sweep of dead tasks; the end of a region's last use, whose file is closed | `latchwork-region`: `task.rs`, `sweep.rs`, `lifetime.rs` |
//! | the end of a thread | `latchwork-sync`: `task.rs` |
//! | C's output, which a coproc writes as it ends | this crate: `process.rs` |
//! | the checker's settings, boards, reports (with a reporter of the program's), search in other processes, and file of the lock order | `latchwork-check` |
//! | functions of the C interface that make, open, attach or end an object, start a thread, or begin or await a coproc | `latchwork-c` |
//!
//! *Asynchronous cancellation.* A thread that has enabled it may be unwound at any instruction, and so must not call the
//! library, as it must not call most of libc: an Undisturbed place, too, ends by a call that acts on a request then.
//!
//! *Signals:* `pthread_setcancelstate` changes nothing but a word of the thread's, by an atomic operation. A handler that
//! interrupts it, and is Undisturbed itself, leaves the state as it found it.
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::marker::PhantomData;

#[cfg(not(miri))]
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// An interpreter that has no such function has no cancellation.
#[cfg(miri)]
unsafe fn pthread_setcancelstate(_: c_int, _: *mut c_int) -> c_int {
    0
}

const ENABLE: c_int = 0;
const DISABLE: c_int = 1;

fn set(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: one of the two states, and a variable for the state before.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Cancellation of the calling thread is disabled while this lives. A request that comes meanwhile stays pending.
#[must_use]
pub struct Undisturbed {
    before: c_int,
    /// It belongs to the thread.
    _thread: PhantomData<*mut ()>,
}

impl Undisturbed {
    pub fn begin() -> Self {
        Self {
            before: set(DISABLE),
            _thread: PhantomData,
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Runs a function of the program, in which the calling thread can be cancelled.
pub fn cancellable<R>(function: impl FnOnce() -> R) -> R {
    let before = set(ENABLE);
    let result = function();
    set(before);
    result
}

/// Whether the calling thread can be cancelled.
pub fn is_enabled() -> bool {
    Undisturbed::begin().before == ENABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undisturbed_places_may_be_nested_and_restore_the_state() {
        assert!(is_enabled());
        let outer = Undisturbed::begin();
        assert!(!is_enabled());
        assert!(cancellable(is_enabled));
        assert!(!is_enabled());
        drop(Undisturbed::begin());
        assert!(!is_enabled());
        drop(outer);
        assert!(is_enabled());
        assert_eq!(set(DISABLE), ENABLE);
        drop(Undisturbed::begin());
        assert_eq!(set(ENABLE), DISABLE, "the program's own choice");
    }
}
