//! The end of a thread, and what it holds then.
//!
//! A thread's destructors run one after the other: those of its thread-locals, the latest first, and then those of
//! its keys (`pthread_key_create`), in rounds. The record of the thread ends among the first. What it holds then may be
//! released by a later one, a guard in a thread-local that is older for instance. So a thread that holds something is
//! looked at again, in the last round but one: in which round the first look was made nobody says, if thread-locals
//! end in a key's destructor themselves. What a key's destructor releases after that, or has taken and
//! leaves to one that comes still later, is told wrongly.
#![allow(unsafe_code)]

use super::own::Own;
use super::tell;
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::Site;
use crate::sys::thread::LateKey;
use crate::task;
use core::ffi::c_void;
use core::ptr::NonNull;

/// The key's number + 1.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The thread's own end has begun; whether it is to be known until [`task::end_late_record`].
pub(super) fn task_ends() -> bool {
    let Some(own) = Own::enter_if_known() else {
        return false;
    };
    let (process, thread) = own.identity();
    let holds = process != thread && own.locks().next().is_some();
    if holds && look_again(&own) {
        own.end_copies();
        return true;
    }
    drop(own);
    tell::task_ends(Site::UNKNOWN);
    false
}

fn look_again(own: &Own) -> bool {
    own.ends.set(own.ends.get() + 1);
    own.ends.get() < LateKey::ROUNDS && key().is_some_and(|key| key.set(NonNull::from(own).cast()))
}

/// Made where it is first needed: there are few.
fn key() -> Option<LateKey> {
    // Relaxed: nothing but a number. Two at the same time make two, of which one is not used any more.
    if let Some(number) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        return Some(LateKey::from_number(number));
    }
    let key = LateKey::new(again)?;
    KEY.store(key.number() + 1, Ordering::Relaxed);
    Some(key)
}

unsafe extern "C" fn again(_: *mut c_void) {
    // None in the child of a fork, which begins anew.
    if let Some(own) = Own::enter_if_known() {
        if own.locks().next().is_some() && look_again(&own) {
            return;
        }
        drop(own);
        tell::task_ends(Site::UNKNOWN);
    }
    task::end_late_record();
}
