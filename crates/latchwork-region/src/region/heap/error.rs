//! Why the heap could not provide memory, and the end of a process that misused it.

/// Why a heap could not allocate a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocError {
    /// The region is at its maximum size, and no room for this block is left.
    #[error("no room for {requested} bytes in a region of at most {max}")]
    Exhausted {
        /// The requested size in bytes.
        requested: usize,
        /// The size of the region's data area at its maximum, in bytes.
        max: usize,
    },
    /// The system has no memory for the region to grow.
    #[error("the system has no memory for the region to grow by {requested} bytes")]
    OutOfMemory {
        /// The requested size in bytes.
        requested: usize,
    },
}

/// Why a region could not grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the system has no memory for the region to grow")]
pub struct GrowError;

/// Ends the process after a misuse that would otherwise corrupt the heap for all tasks.
#[cold]
#[inline(never)]
pub(super) fn misuse(what: &str, address: usize) -> ! {
    crate::fatal(format_args!("{what} {address:#x}"))
}
