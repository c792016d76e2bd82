//! The guards of the reader/writer lock.
#![allow(unsafe_code)]

use super::lock::RwLock;
use super::{Preference, WritersFirst};
use crate::sharing::{Private, Sharing};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::DerefMut;

macro_rules! guards {
    ($($(#[$doc:meta])* $Guard:ident to $to:literal, ended by $unlock:ident)*) => {$(
        $(#[$doc])*
        #[must_use = "the lock is released at once when the guard is not kept"]
        pub struct $Guard<'a, T: ?Sized, S: Sharing = Private, P: Preference = WritersFirst> {
            lock: &'a RwLock<T, S, P>,
            not_send: PhantomData<*const ()>,
        }

        lend!({S: Sharing, P: Preference} $Guard<'_, T, S, P>);

        impl<'a, T: ?Sized, S: Sharing, P: Preference> $Guard<'a, T, S, P> {
            #[doc = concat!("The guard of a lock that the calling task has just acquired to ", $to, ".")]
            #[inline]
            pub(super) fn new(lock: &'a RwLock<T, S, P>) -> Self {
                Self { lock, not_send: PhantomData }
            }
        }

        impl<T: ?Sized, S: Sharing, P: Preference> Drop for $Guard<'_, T, S, P> {
            #[inline]
            fn drop(&mut self) {
                self.lock.raw.report_release();
                // SAFETY: the guard holds the lock in the way that this call ends, and is not used after this.
                unsafe { self.lock.raw.$unlock() }
            }
        }
    )*};
}

guards! {
    /// The right to read a lock's data; dropping it releases the lock.
    ///
    /// Forgetting it keeps writers out for ever. Not `Send`, like all guards of this crate.
    ReadGuard to "read", ended by unlock_read

    /// The right to change a lock's data; dropping it releases the lock.
    ///
    /// Forgetting it leaves the lock held. Not `Send`, like all guards of this crate.
    WriteGuard to "write", ended by unlock_write
}

impl<'a, T: ?Sized, S: Sharing, P: Preference> WriteGuard<'a, T, S, P> {
    /// Becomes a reader. No writer enters in between; other readers may, unless they have to wait for starving
    /// tasks or waiting writers.
    pub fn downgrade(this: Self) -> ReadGuard<'a, T, S, P> {
        let lock = ManuallyDrop::new(this).lock;
        // SAFETY: the guard holds the lock to write, and is not dropped.
        unsafe { lock.raw.downgrade() };
        lock.raw.report_downgrade();
        ReadGuard::new(lock)
    }
}

impl<T: ?Sized, S: Sharing, P: Preference> DerefMut for WriteGuard<'_, T, S, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}
