//! The guards of the reader/writer lock.
#![allow(unsafe_code)]

use super::lock::RwLock;
use super::trace::{Event, Released};
use super::{Preference, WritersFirst};
use crate::mutex::throughput::{Counting, Uncounted};
use crate::sharing::{Private, Sharing};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::DerefMut;

macro_rules! guards {
    ($($(#[$doc:meta])* $Guard:ident to $to:literal, ended by $unlock:ident $unlock_traced:ident)*) => {$(
        $(#[$doc])*
        #[must_use = "the lock is released at once when the guard is not kept"]
        pub struct $Guard<
            'a,
            T: ?Sized,
            S: Sharing = Private,
            P: Preference = WritersFirst,
            C: Counting<Event> = Uncounted,
        > {
            lock: &'a RwLock<T, S, P, C>,
            not_send: PhantomData<*const ()>,
        }

        lend!({S: Sharing, P: Preference, C: Counting<Event>} $Guard<'_, T, S, P, C>);

        impl<'a, T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> $Guard<'a, T, S, P, C> {
            #[doc = concat!("The guard of a lock that the calling task has just acquired to ", $to, ".")]
            #[inline]
            pub(super) fn new(lock: &'a RwLock<T, S, P, C>) -> Self {
                Self { lock, not_send: PhantomData }
            }

            /// Releases the lock, as a drop does, and returns what that did for the tasks that wait.
            ///
            /// ```
            /// use latchwork::rwlock::{ReadGuard, Released, RwLock, WriteGuard};
            ///
            /// let table = RwLock::new(1);
            /// assert_eq!(ReadGuard::unlock_traced(table.read()), Released::NoSleeper);
            /// assert_eq!(WriteGuard::unlock_traced(table.write()), Released::NoSleeper);
            /// ```
            #[inline]
            pub fn unlock_traced(this: Self) -> Released {
                let this = ManuallyDrop::new(this);
                this.lock.raw.report_release();
                // SAFETY: the guard holds the lock in the way that this call ends, and is not used after this.
                unsafe { this.lock.raw.$unlock_traced() }
            }
        }

        impl<T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> Drop for $Guard<'_, T, S, P, C> {
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
    ReadGuard to "read", ended by unlock_read unlock_read_traced

    /// The right to change a lock's data; dropping it releases the lock.
    ///
    /// Forgetting it leaves the lock held. Not `Send`, like all guards of this crate.
    WriteGuard to "write", ended by unlock_write unlock_write_traced
}

impl<'a, T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> WriteGuard<'a, T, S, P, C> {
    /// Becomes a reader. No writer enters in between; other readers may, unless they have to wait for starving
    /// tasks or waiting writers.
    pub fn downgrade(this: Self) -> ReadGuard<'a, T, S, P, C> {
        let lock = ManuallyDrop::new(this).lock;
        // SAFETY: the guard holds the lock to write, and is not dropped.
        unsafe { lock.raw.downgrade() };
        lock.raw.report_downgrade();
        ReadGuard::new(lock)
    }
}

impl<T: ?Sized, S: Sharing, P: Preference, C: Counting<Event>> DerefMut
    for WriteGuard<'_, T, S, P, C>
{
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}
