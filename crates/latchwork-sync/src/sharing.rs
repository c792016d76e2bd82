//! Who may use a lock: the threads of one process, or every process that maps it.
//!
//! ```
//! use latchwork::condvar::Condvar;
//! use latchwork::mutex::{Mutex, WaitWake};
//! use latchwork::sharing::Shared;
//!
//! // For the threads of this process:
//! static ONE: Mutex<u32> = Mutex::new(0);
//! static CHANGED: Condvar = Condvar::new();
//! // For every process that maps it, in a region for instance:
//! let two = Mutex::<u32, WaitWake<Shared>>::shared(0);
//! let changed = Condvar::shared();
//! # let _ = (ONE.lock(), CHANGED.notify_one(), two.lock(), changed.notify_one());
//! ```

use crate::sys::futex::Sharing as Flag;

/// The constructors of a primitive, and its default. Models use `new_in`.
macro_rules! constructors {
    ($Type:ident, $what:literal, a death $when:literal) => {
        #[cfg(not(loom))]
        impl $Type<$crate::sharing::Private> {
            #[doc = concat!($what, ", for the threads of this process.")]
            #[must_use]
            pub const fn new() -> Self {
                Self::new_in()
            }
        }

        #[cfg(not(loom))]
        impl Default for $Type<$crate::sharing::Private> {
            fn default() -> Self {
                Self::new()
            }
        }

        #[cfg(not(loom))]
        impl $Type<$crate::sharing::Shared> {
            #[doc = concat!($what, ", for every process that maps it.")]
            ///
            #[doc = concat!("In a region, a task that is killed ", $when, " leaves no waiter asleep. A process that")]
            /// uses this after a fork, through inherited references alone, has to join
            /// (`latchwork::region::Region::join`) the region first.
            #[must_use]
            pub const fn shared() -> Self {
                Self::new_in()
            }
        }
    };
}
pub(crate) use constructors;

mod sealed {
    pub trait Sealed {
        const FLAG: crate::sys::futex::Sharing;
    }
}

/// [`Private`] or [`Shared`], as a type parameter of locks.
pub trait Sharing: sealed::Sealed + 'static {}

/// For the threads of one process. The kernel identifies such a word by its virtual address alone and need not
/// consult the page tables in each wait and wake. A private lock cannot be placed in a region.
#[derive(Debug)]
pub struct Private;

/// For every process that maps the lock's memory, at any address. It works between threads, too.
#[derive(Debug)]
pub struct Shared;

impl sealed::Sealed for Private {
    const FLAG: Flag = Flag::Private;
}
impl sealed::Sealed for Shared {
    const FLAG: Flag = Flag::Shared;
}
impl Sharing for Private {}
impl Sharing for Shared {}
