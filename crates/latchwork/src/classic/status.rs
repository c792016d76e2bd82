//! RTEMS's constants: status codes, attributes, options.

use crate::region::AttachError;
use core::fmt;

/// The result of a directive, with RTEMS's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Status {
    /// `RTEMS_SUCCESSFUL`
    Successful = 0,
    /// `RTEMS_INVALID_NAME`
    InvalidName = 3,
    /// `RTEMS_INVALID_ID`
    InvalidId = 4,
    /// `RTEMS_TOO_MANY`
    TooMany = 5,
    /// `RTEMS_TIMEOUT`
    Timeout = 6,
    /// `RTEMS_OBJECT_WAS_DELETED`
    ObjectWasDeleted = 7,
    /// `RTEMS_INVALID_SIZE`
    InvalidSize = 8,
    /// `RTEMS_INVALID_ADDRESS`
    InvalidAddress = 9,
    /// `RTEMS_INVALID_NUMBER`
    InvalidNumber = 10,
    /// `RTEMS_NOT_DEFINED`
    NotDefined = 11,
    /// `RTEMS_RESOURCE_IN_USE`
    ResourceInUse = 12,
    /// `RTEMS_UNSATISFIED`
    Unsatisfied = 13,
    /// `RTEMS_INCORRECT_STATE`
    IncorrectState = 14,
    /// `RTEMS_INVALID_PRIORITY`
    InvalidPriority = 19,
    /// `RTEMS_NOT_OWNER_OF_RESOURCE`
    NotOwnerOfResource = 23,
    /// `RTEMS_INTERNAL_ERROR`: the calling thread cannot become a task of the region.
    InternalError = 25,
    /// Not RTEMS's: the semaphore *is obtained*, and its previous owner died, so the data that it protects may be half
    /// changed.
    OwnerDied = 64,
}

impl Status {
    /// RTEMS's number.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// The status for a thread that cannot become a task of the region.
pub(super) fn not_attached(_: AttachError) -> Status {
    Status::InternalError
}

/// A name: four characters in one number; 0 is no name.
pub type Name = u32;
/// An object's identifier: index, generation and class. 0 is no object's.
pub type Id = u32;
/// Clock ticks; 0 means for ever.
pub type Interval = u32;

/// `rtems_build_name`.
#[must_use]
pub const fn build_name(characters: [u8; 4]) -> Name {
    u32::from_be_bytes(characters)
}

/// `RTEMS_DEFAULT_ATTRIBUTES`, `RTEMS_FIFO`, `RTEMS_COUNTING_SEMAPHORE`, `RTEMS_LOCAL`
pub const DEFAULT_ATTRIBUTES: u32 = 0;
/// `RTEMS_GLOBAL`, which has no effect with a single node.
pub const GLOBAL: u32 = 0x2;
/// `RTEMS_PRIORITY`
pub const PRIORITY: u32 = 0x4;
/// `RTEMS_BINARY_SEMAPHORE`
pub const BINARY_SEMAPHORE: u32 = 0x10;
/// `RTEMS_SIMPLE_BINARY_SEMAPHORE`
pub const SIMPLE_BINARY_SEMAPHORE: u32 = 0x20;
/// `RTEMS_INHERIT_PRIORITY`
pub const INHERIT_PRIORITY: u32 = 0x40;
/// `RTEMS_PRIORITY_CEILING`
pub const PRIORITY_CEILING: u32 = 0x80;
/// `RTEMS_MULTIPROCESSOR_RESOURCE_SHARING`
pub const MULTIPROCESSOR_RESOURCE_SHARING: u32 = 0x100;

/// `RTEMS_WAIT`
pub const WAIT: u32 = 0;
/// `RTEMS_NO_WAIT`
pub const NO_WAIT: u32 = 1;
/// `RTEMS_NO_TIMEOUT`
pub const NO_TIMEOUT: Interval = 0;
/// `RTEMS_CURRENT_PRIORITY`
pub const CURRENT_PRIORITY: u32 = 0;
/// `RTEMS_MAXIMUM_PRIORITY`, the lowest one.
pub const MAXIMUM_PRIORITY: u32 = 255;
/// `RTEMS_ID_NONE`, no object's id.
pub const ID_NONE: Id = 0;
/// `RTEMS_SELF`
pub const SELF: Id = 0;

/// `RTEMS_SEARCH_ALL_NODES`, where `ident` directives search.
pub const SEARCH_ALL_NODES: u32 = 0;
/// `RTEMS_SEARCH_OTHER_NODES`; there are none.
pub const SEARCH_OTHER_NODES: u32 = 0x7fff_fffe;
/// `RTEMS_SEARCH_LOCAL_NODE`
pub const SEARCH_LOCAL_NODE: u32 = 0x7fff_ffff;
/// The only node.
pub const LOCAL_NODE: u32 = 1;

/// The scheduler that is declared first; the only one, unless
/// [`ClassicOptions::scheduler`](super::ClassicOptions::scheduler) declared others.
pub const SCHEDULER: Id = 0xf000_0001;
/// The name of the only scheduler, if none was declared: RTEMS's default for several processors.
pub const SCHEDULER_NAME: Name = build_name(*b"MEDF");
