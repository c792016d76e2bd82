//! Handles on semaphores with a count: counting and simple binary ones.

use super::handle::{ObjectRef, Properties, obtaining};
use super::{Core, Discipline, Form, Kind, WaitLimit};
use super::{ObtainError, ReleaseError, SemaphoreError, UseError};
use crate::hook::Site;
use crate::region::{Region, wait_record::LOWEST};
use crate::time::Deadline;
use core::fmt;
use core::time::Duration;

macro_rules! handle {
    (
        $(#[$meta:meta])* $name:ident of $kind:expr;
        $(#[$create:meta])* create;
        $(#[$release:meta])* release
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $name<'r> {
            object: ObjectRef<'r>,
        }

        impl<'r> $name<'r> {
            /// The size of a semaphore in the region, in bytes.
            pub const BYTES: usize = ObjectRef::BYTES;

            /// Opens the semaphore of this name.
            ///
            /// # Errors
            /// See [`SemaphoreError`].
            #[track_caller]
            pub fn open(region: &'r Region, name: &str) -> Result<Self, SemaphoreError> {
                let accepts = |kind| kind == $kind;
                let (object, _) = ObjectRef::open::<Core>(region, name, Site::caller(), accepts)?;
                Ok(Self { object })
            }

            $(#[$create])*
            #[track_caller]
            pub fn create(
                region: &'r Region,
                name: &str,
                count: u32,
                discipline: Discipline,
            ) -> Result<Self, SemaphoreError> {
                if count > const { $kind.most() } {
                    return Err(SemaphoreError::Count(count));
                }
                let properties = Properties {
                    form: Form::new($kind, discipline),
                    count,
                    ceiling: LOWEST,
                    obtained: false,
                };
                let (object, _) = ObjectRef::create::<Core>(region, name, &properties, Site::caller())?;
                Ok(Self { object })
            }

            obtaining! {
                (), "Obtains a unit, waiting for one";
                /// Obtains a unit, waiting while there is none.
                ///
                /// # Errors
                /// [`ObtainError::Flushed`], [`ObtainError::Deleted`], [`ObtainError::Attach`].
                obtain;
                /// Obtains a unit if there is one at this moment.
                ///
                /// # Errors
                /// [`ObtainError::WouldBlock`], [`ObtainError::Deleted`], [`ObtainError::Attach`].
                try_obtain
            }

            #[inline(always)]
            fn obtain_with(&self, limit: WaitLimit, site: Site) -> Result<(), ObtainError> {
                self.object.obtain_unit(limit, site)
            }

            $(#[$release])*
            #[inline]
            #[track_caller]
            pub fn release(&self) -> Result<(), ReleaseError> {
                self.object.release_unit(const { $kind.most() }, Site::caller())
            }

            /// Ends the waits of all waiters, in the order in which they would be served: they get
            /// [`ObtainError::Flushed`]. The count does not change. Returns the number of waiters.
            ///
            /// # Errors
            /// [`UseError::Deleted`], [`UseError::Attach`].
            #[track_caller]
            pub fn flush(&self) -> Result<u32, UseError> {
                self.object.flush(Site::caller())
            }

            /// Deletes the semaphore: all waiters, in the order in which they would be served, and later calls get
            /// [`ObtainError::Deleted`]. A new one of this name can be created; the handles on this one do not affect
            /// it (for the next 4095 of them).
            ///
            /// # Errors
            /// [`UseError::Deleted`], [`UseError::Attach`].
            #[track_caller]
            pub fn delete(&self) -> Result<(), UseError> {
                self.object.delete_named(self.object.core, Site::caller())
            }

            /// The count at this moment; 0 if it was deleted.
            #[must_use]
            pub fn count(&self) -> u32 {
                self.object.word().map_or(0, |word| (word >> 32) as u32)
            }

            /// The number of tasks in its queue at this moment.
            #[must_use]
            pub fn waiting(&self) -> u32 {
                self.object.waiting()
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .debug_struct(stringify!($name))
                    .field("count", &self.count())
                    .field("waiting", &self.waiting())
                    .finish_non_exhaustive()
            }
        }
    };
}

handle!(
    /// A semaphore that counts from 0 to 2³² − 1. Any task may release it.
    ///
    /// ```
    /// use latchwork::region::RegionOptions;
    /// use latchwork::semaphore::{CountingSemaphore, Discipline, ObtainError};
    ///
    /// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    /// let jobs = CountingSemaphore::create(&region, "jobs", 1, Discipline::Fifo)?;
    /// jobs.obtain()?;
    /// assert!(matches!(jobs.try_obtain(), Err(ObtainError::WouldBlock)));
    /// jobs.release()?;
    /// assert_eq!(jobs.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A unit that a task has when it dies is lost.
    CountingSemaphore of Kind::Counting;
    /// Creates the semaphore of this name with `count` units, or opens it if there is one of this discipline.
    ///
    /// # Errors
    /// See [`SemaphoreError`].
    create;
    /// Releases a unit; the first waiter gets it, if there is one.
    ///
    /// # Errors
    /// [`ReleaseError::Overflow`], [`ReleaseError::Deleted`], [`ReleaseError::Attach`].
    release
);

handle!(
    /// A semaphore that is 0 or 1. Any task may release it; a release at 1 changes nothing.
    ///
    /// A task that dies between obtaining and releasing it leaves it at 0.
    SimpleBinarySemaphore of Kind::SimpleBinary;
    /// Creates the semaphore of this name with a count of 0 or 1, or opens it if there is one of this discipline.
    ///
    /// # Errors
    /// [`SemaphoreError::Count`]; see [`SemaphoreError`].
    create;
    /// Sets it to 1, or hands it to the first waiter.
    ///
    /// # Errors
    /// [`ReleaseError::Deleted`], [`ReleaseError::Attach`].
    release
);
