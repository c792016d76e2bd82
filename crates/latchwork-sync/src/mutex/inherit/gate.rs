//! The gate: a queueing mutex in front of a lock's word, made of a priority-inheritance futex. Only the gate's owner
//! goes on to the word. The gate carries no data, so it orders no memory; a failure of the gate costs time only.
#![allow(unsafe_code)]

use super::word::NAP;
use crate::atomic::{AtomicU32, Ordering};
use crate::mutex::nap::end_of_nap;
use crate::mutex::throughput::is_not_in_process;
use crate::mutex::{TID_MASK, WAITERS};
use crate::sharing::Sharing;
use crate::sys::futex::Sharing as Flag;
use crate::sys::futex_pi::{self, Pi};
use crate::time::Deadline;
use core::marker::PhantomData;

/// A gate; 0 is free.
#[derive(Clone, Copy)]
pub(in crate::mutex) struct PiGate<'a>(pub(in crate::mutex) &'a AtomicU32);

impl<'a> PiGate<'a> {
    /// Waits for the gate, for one nap at most. `None`: the caller goes on without it.
    pub(super) fn enter<S: Sharing>(
        self,
        me: u32,
        deadline: Option<Deadline>,
    ) -> Option<Entered<'a, S>> {
        if me == 0 {
            return None;
        }
        let before = match self.replace(0, me) {
            Ok(_) => return Some(self.entered(me)),
            Err(before) => before,
        };
        match futex_pi::lock_pi(self.0, S::FLAG, end_of_nap(NAP, deadline)) {
            Pi::Done => Some(self.entered(me)),
            // The owner died, and no task slept behind it, or the kernel would have made that task its heir.
            Pi::OwnerGone => {
                let taken = self.replace(before | WAITERS, me);
                taken.is_ok().then(|| self.entered(me))
            }
            // In the child of a fork, a thread of the parent may be the owner: it releases the parent's copy only.
            // Linux 6.18 refuses the wait with EPERM; a kernel that does not lets it time out.
            _ if S::FLAG == Flag::Private => {
                // Relaxed: as in `replace`.
                let seen = self.0.load(Ordering::Relaxed);
                let taken = is_not_in_process(seen & TID_MASK) && self.replace(seen, me).is_ok();
                taken.then(|| self.entered(me))
            }
            _ => None,
        }
    }

    fn replace(self, old: u32, new: u32) -> Result<u32, u32> {
        // Relaxed: the gate carries no data.
        self.0
            .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
    }

    fn entered<S: Sharing>(self, me: u32) -> Entered<'a, S> {
        Entered {
            gate: self,
            me,
            sharing: PhantomData,
        }
    }
}

/// The ownership of the gate. Dropping it releases the gate.
pub(super) struct Entered<'a, S: Sharing> {
    gate: PiGate<'a>,
    me: u32,
    sharing: PhantomData<S>,
}

impl<S: Sharing> Drop for Entered<'_, S> {
    fn drop(&mut self) {
        // In a model a task dies by unwinding; a real death runs no destructor.
        #[cfg(loom)]
        if std::thread::panicking() {
            return;
        }
        if self.gate.replace(self.me, 0).is_ok() {
            return;
        }
        // If the gate belongs to another task by now, this does nothing.
        // SAFETY: the gate is part of a lock that this task holds or waits for, so its memory is alive.
        while unsafe { futex_pi::unlock_pi(core::ptr::from_ref(self.gate.0), S::FLAG) } == Pi::Again
        {
        }
    }
}
