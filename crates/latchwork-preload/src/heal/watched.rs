//! The lock calls of a process-shared mutex that is not robust. Its owner may have ended: then no task releases it.
//!
//! A wait consists of naps. So it also survives a wake-up that went to a task that was killed: the waiter looks at the
//! word after a nap at most.
//!
//! After some of the naps the waiter asks [whether the owner has ended](super::gone::ended_owner). If that is proved, a
//! line says so, once for each wait. With `--heal=end`, the waiter then takes the mutex over, and the call returns
//! `EOWNERDEAD`, as with a robust mutex: the caller holds the mutex, and what it protects may be half changed.
//!
//! *Taking over.* The word stays as it is: locked, with waiters, since this waiter has said so there. `__owner` changes
//! from the ended task to the caller by a compare-and-swap, so one of several waiters takes over. glibc's count of users
//! stays: it includes the ended owner, in whose place the caller will release. A task without `--heal` sees a mutex that
//! another task holds. A caller that is killed after the compare-and-swap is an ended owner itself.

use super::naps::{self, Looks};
use super::setting::ends_waits;
use super::{gone, report};
use crate::clock::Until;
use crate::memory::Mutex;
use crate::{real, thread};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use latchwork_interpose::mutexes::kind;

/// # Safety
/// As for `pthread_mutex_lock`.
#[inline(never)]
pub(super) unsafe fn lock(
    mutex: *mut Mutex,
    until: Option<Until>,
    pass: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: by the caller's contract.
    match unsafe { real::pthread_mutex_trylock(mutex) } {
        libc::EBUSY => {}
        result => return result,
    }
    // SAFETY: the caller's mutex, of which only atomics are accessed.
    let here = unsafe { &*mutex };
    let mut looks = Looks::new();
    let look = || {
        if !looks.is_due() {
            return None;
        }
        let owner = thread::keeping_errno(|| gone::ended_owner(here))?;
        let takes_over = ends_waits();
        if takes_over && !take_over(here, owner) {
            return None;
        }
        looks.stop();
        report::wait(format_args!(
            "process-shared mutex at {:#x}, whose owner, task {owner}, has ended without releasing it",
            ptr::from_ref(here).addr()
        ));
        takes_over.then_some(libc::EOWNERDEAD)
    };
    // SAFETY: by the caller's contract.
    unsafe { naps::lock(mutex, until, pass, look) }
}

/// Takes the mutex over from an owner that has ended. Returns whether another waiter has not.
fn take_over(mutex: &Mutex, owner: u32) -> bool {
    // Acquire: pairs with nothing, since the owner has released nothing; the caller's accesses stay after it.
    let taken =
        mutex
            .owner
            .compare_exchange(owner, thread::ask(), Ordering::Acquire, Ordering::Relaxed);
    if taken.is_ok() && mutex.kind() & kind::TYPE == kind::RECURSIVE {
        mutex.count.store(1, Ordering::Relaxed);
    }
    taken.is_ok()
}
