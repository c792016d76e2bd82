//! The locks that may move while nobody uses them: all that are not robust.
#![allow(unsafe_code)]

use super::Relocatable;
use crate::barrier::Barrier;
use crate::completion::Completion;
use crate::condvar::Condvar;
use crate::mutex::{DataState, Mutex};
use crate::once::Once;
use crate::rwlock::{Preference, RawRwLock, RwLock};
use crate::sharing::Sharing;
use crate::spin::Spin;

/// Declares locks that may move while no task uses them; those of mutexes are declared in `mutex/mod.rs`.
macro_rules! relocatable_locks {
    ($($lock:ident),*) => {$(
        // SAFETY: a word, whose address means something only while a task uses it by reference.
        #[allow(unsafe_code)]
        unsafe impl<S: $crate::sharing::Sharing> $crate::relocatable::Relocatable for $lock<S> {}
    )*};
}
pub(crate) use relocatable_locks;

relocatable_locks!(Barrier, Completion, Condvar);

// SAFETY: as for the other locks.
unsafe impl Relocatable for Once {}
// SAFETY: as for the other locks.
unsafe impl Relocatable for Spin {}
// SAFETY: as for the other locks.
unsafe impl<S: Sharing, P: Preference> Relocatable for RawRwLock<S, P> {}
// SAFETY: the parts are a lock and data that may move.
unsafe impl<T: Relocatable + ?Sized, P: DataState + Relocatable> Relocatable for Mutex<T, P> {}
// SAFETY: the parts are a lock and data that may move.
unsafe impl<T: Relocatable + ?Sized, S: Sharing, P: Preference> Relocatable for RwLock<T, S, P> {}
