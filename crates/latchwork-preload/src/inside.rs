//! Our locks in a program's mutexes, one type for each protocol. What needs no waiting is the same for all.

use crate::memory::Mutex;
use crate::thread;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use latchwork::mutex::foreign::{
    Inherit as InheritWords, Throughput as ThroughputWords, wait_wake,
};
use latchwork::mutex::{InheritFault, RawLock};
use latchwork::time::Deadline;

/// Puts `mark` where nobody's is; whether it did.
#[inline(always)]
pub(crate) fn take_free(mutex: &Mutex, mark: u32) -> bool {
    let word = &mutex.word;
    // Without other threads a plain store does.
    if thread::is_alone() {
        // Relaxed: nobody else is there.
        let free = word.load(Ordering::Relaxed) == 0;
        if free {
            word.store(mark, Ordering::Relaxed);
        }
        return free;
    }
    // Acquire: pairs with the Release of the release.
    word.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Takes `mark` away; false if there is more to be done.
#[inline(always)]
pub(crate) fn release_free(mutex: &Mutex, mark: u32) -> bool {
    let word = &mutex.word;
    if thread::is_alone() {
        let mine = word.load(Ordering::Relaxed) == mark;
        if mine {
            word.store(0, Ordering::Relaxed);
        }
        return mine;
    }
    // Release: pairs with the Acquire of who takes it.
    word.compare_exchange(mark, 0, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// A protocol's lock in a program's mutex; `me` is the calling thread. Each call is the way on from
/// [`take_free`] or [`release_free`].
pub(crate) trait Inside {
    /// Takes the lock if that needs no waiting.
    fn try_lock(mutex: &Mutex, me: u32) -> bool;
    /// Waits for the lock: 0, `ETIMEDOUT`, or why it will never be taken.
    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int;
    /// Releases the lock, whoever has it: 0, or why it cannot be.
    fn release(mutex: &Mutex, me: u32) -> c_int;
}

const fn done(taken: bool) -> c_int {
    if taken { 0 } else { libc::ETIMEDOUT }
}

/// See [`latchwork::mutex::Throughput`].
pub(crate) enum Throughput {}

impl Throughput {
    fn words(mutex: &Mutex) -> ThroughputWords<'_> {
        ThroughputWords {
            word: &mutex.word,
            gate: &mutex.gate,
            request: &mutex.request,
            mood: &mutex.mood,
        }
    }
}

impl Inside for Throughput {
    fn try_lock(mutex: &Mutex, me: u32) -> bool {
        Self::words(mutex).try_lock(me)
    }

    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int {
        done(Self::words(mutex).lock_contended(me, deadline))
    }

    fn release(mutex: &Mutex, _: u32) -> c_int {
        Self::words(mutex).unlock_contended();
        0
    }
}

/// See [`latchwork::mutex::WaitWake`]. Its word has the values of glibc's own.
pub(crate) enum WaitWake {}

impl Inside for WaitWake {
    fn try_lock(mutex: &Mutex, _: u32) -> bool {
        wait_wake(&mutex.word).try_lock()
    }

    fn wait(mutex: &Mutex, _: u32, deadline: Option<Deadline>) -> c_int {
        let lock = wait_wake(&mutex.word);
        match deadline {
            None => {
                lock.lock();
                0
            }
            Some(deadline) => done(lock.lock_until(deadline)),
        }
    }

    fn release(mutex: &Mutex, _: u32) -> c_int {
        // SAFETY: the program says that it has the mutex; if not, it is as wrong as with glibc's.
        #[allow(unsafe_code)]
        unsafe {
            wait_wake(&mutex.word).unlock();
        }
        0
    }
}

/// See [`latchwork::mutex::Inherit`].
pub(crate) enum Inherit {}

impl Inherit {
    fn words(mutex: &Mutex) -> InheritWords<'_> {
        InheritWords {
            word: &mutex.word,
            gate: &mutex.gate,
        }
    }
}

impl Inside for Inherit {
    fn try_lock(mutex: &Mutex, me: u32) -> bool {
        take_free(mutex, me)
    }

    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int {
        loop {
            let why = match Self::words(mutex).lock_contended(me, deadline) {
                Ok(taken) => return done(taken),
                // What glibc's mutex does: it is never released.
                Err(InheritFault::Deadlock | InheritFault::OwnerGone) => "will never be released",
                Err(InheritFault::NoMemory | InheritFault::Unsupported) => return libc::EAGAIN,
                Err(InheritFault::Corrupt) => return libc::EINVAL,
            };
            match deadline {
                Some(deadline) if deadline.has_passed() => return libc::ETIMEDOUT,
                _ => crate::nap::wait_in_vain(mutex, me, why, deadline),
            }
        }
    }

    fn release(mutex: &Mutex, me: u32) -> c_int {
        if Self::words(mutex).unlock_contended(me) {
            0
        } else {
            libc::EPERM
        }
    }
}
