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

/// For every process that maps the lock's memory, at any address. Works between threads, too.
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
