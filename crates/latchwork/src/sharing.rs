//! Who may use a lock: the threads of one process, or every process that maps it.

use crate::sys::futex::Sharing as Flag;

mod sealed {
    pub trait Sealed {
        const FLAG: crate::sys::futex::Sharing;
    }
}

/// [`Private`] or [`Shared`], as a type parameter of locks.
pub trait Sharing: sealed::Sealed + 'static {}

/// For the threads of one process. The kernel finds such a word by its virtual address alone,
/// which saves it a look at the page tables on each wait and wake. A private lock cannot be placed
/// in a region.
#[derive(Debug)]
pub struct Private;

/// For every process that maps the lock's memory, at whatever address. Works between threads, too.
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
