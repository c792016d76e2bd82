//! The replacement locks in a program's mutexes, one type for each protocol. The uncontended paths are the same for
//! all.

use crate::memory::Mutex;
use crate::{counts, thread};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::mutex::foreign::{InheritWords, OwnerThread, ThroughputWords, wait_wake};
use latchwork::mutex::{InheritFault, RawLock};
use latchwork::time::Deadline;

/// Stores `mark` if the lock is free. Returns whether it did.
#[inline(always)]
pub(crate) fn take_free(mutex: &Mutex, mark: u32) -> bool {
    let word = &mutex.word;
    // Without other threads a plain store suffices.
    if thread::is_alone() {
        // Relaxed: there is no other thread.
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

/// Clears the word if it is `mark`; returns false if there are waiters to handle.
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
    // Release: pairs with the Acquire of the next owner.
    word.compare_exchange(mark, 0, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// A protocol's lock in a program's mutex; `me` is the calling thread. Each function is the slow path after
/// [`take_free`] or [`release_free`] has failed.
pub(crate) trait Replacement {
    /// Acquires the lock if that needs no waiting.
    fn try_lock(mutex: &Mutex, me: u32) -> bool;
    /// Waits for the lock. Returns 0, `ETIMEDOUT`, or the reason why it can never be acquired.
    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int;
    /// Releases the lock, whichever thread owns it. Returns 0, or an error. The program's call returns to `at`.
    fn release(mutex: &Mutex, me: u32, at: usize) -> c_int;
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
            polls_learned: &mutex.spin_gain,
        }
    }
}

impl Replacement for Throughput {
    fn try_lock(mutex: &Mutex, me: u32) -> bool {
        Self::words(mutex).try_lock(me)
    }

    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int {
        done(Self::words(mutex).lock_contended(me, deadline))
    }

    fn release(mutex: &Mutex, _: u32, _: usize) -> c_int {
        Self::words(mutex).unlock_contended();
        0
    }
}

/// See [`latchwork::mutex::WaitWake`]. Its word has the same values as glibc's lock.
pub(crate) enum WaitWake {}

impl WaitWake {
    fn wait_for(word: &AtomicU32, deadline: Option<Deadline>) -> c_int {
        let lock = wait_wake(word);
        match deadline {
            None => {
                lock.lock();
                0
            }
            Some(deadline) => done(lock.lock_until(deadline)),
        }
    }

    fn release_word(word: &AtomicU32) {
        // SAFETY: the program claims to own the mutex; if it does not, the effect is as wrong as with glibc's.
        #[allow(unsafe_code)]
        unsafe {
            wait_wake(word).unlock();
        }
    }
}

impl Replacement for WaitWake {
    fn try_lock(mutex: &Mutex, _: u32) -> bool {
        wait_wake(&mutex.word).try_lock()
    }

    fn wait(mutex: &Mutex, _: u32, deadline: Option<Deadline>) -> c_int {
        Self::wait_for(&mutex.word, deadline)
    }

    fn release(mutex: &Mutex, _: u32, _: usize) -> c_int {
        Self::release_word(&mutex.word);
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

/// How long a thread sleeps before it checks whether the lock has moved to another word.
const NAP: Duration = Duration::from_secs(1);

impl Replacement for Inherit {
    fn try_lock(mutex: &Mutex, me: u32) -> bool {
        match mutex.second_word() {
            Some(word) => wait_wake(word).try_lock(),
            None => take_free(mutex, me),
        }
    }

    fn wait(mutex: &Mutex, me: u32, deadline: Option<Deadline>) -> c_int {
        let mut is_said = false;
        loop {
            if let Some(word) = mutex.second_word() {
                return WaitWake::wait_for(word, deadline);
            }
            let end = Deadline::after(NAP);
            let end = deadline.map_or(end, |deadline| deadline.min(end));
            let in_vain = match Self::words(mutex).lock_contended(me, Some(end)) {
                // The word is no longer the lock: the kernel gives it to a waiter when its owner ends.
                _ if mutex.second_word().is_some() => continue,
                Ok(true) => return 0,
                Ok(false) => false,
                // As with glibc's mutex, whose owner may be this thread, or have ended.
                Err(InheritFault::Deadlock | InheritFault::OwnerGone) => true,
                Err(InheritFault::NoMemory | InheritFault::Unsupported) => return libc::EAGAIN,
                Err(InheritFault::Corrupt) => return libc::EINVAL,
            };
            if deadline.is_some_and(Deadline::has_passed) {
                return libc::ETIMEDOUT;
            }
            if in_vain {
                if deadline.is_none() && !is_said {
                    counts::waits_in_vain(mutex, me);
                    is_said = true;
                }
                crate::nap::until(Some(end));
            }
        }
    }

    fn release(mutex: &Mutex, me: u32, at: usize) -> c_int {
        if let Some(word) = mutex.second_word() {
            WaitWake::release_word(word);
            return 0;
        }
        let words = Self::words(mutex);
        match words.owner_thread(me) {
            Some(OwnerThread::Running(owner)) => {
                counts::released_by_other(mutex, me, owner, at);
                mutex.release_to_second_word();
                return 0;
            }
            // Its joiner may release what it has held.
            Some(OwnerThread::Exiting(owner)) => {
                if !words.unlock_of_exiting(owner) {
                    mutex.release_to_second_word();
                }
                return 0;
            }
            None => {}
        }
        if words.unlock_contended(me) {
            0
        } else {
            libc::EPERM
        }
    }
}
