//! The compiler's message for a robust reader/writer lock that is used through a plain reference: see [`Pinned`].

use super::acquire::{ReadResult, WriteResult};
use super::lock::RobustRwLock;
use crate::mutex::{Pinned, Unpinned, methods_of_unpinned};
use crate::time::Deadline;
use core::ops::Deref;

#[allow(clippy::missing_errors_doc)]
impl<'a, T: ?Sized, const READERS: usize> Unpinned<RobustRwLock<T, READERS>>
where
    T: 'a,
{
    methods_of_unpinned! {
        read() -> ReadResult<'a, T, READERS>;
        try_read() -> ReadResult<'a, T, READERS>;
        read_until(deadline: Deadline) -> ReadResult<'a, T, READERS>;
        write() -> WriteResult<'a, T, READERS>;
        try_write() -> WriteResult<'a, T, READERS>;
        write_until(deadline: Deadline) -> WriteResult<'a, T, READERS>;
        read_interruptible(deadline: Option<Deadline>) -> ReadResult<'a, T, READERS>;
        write_interruptible(deadline: Option<Deadline>) -> WriteResult<'a, T, READERS>;
        #[cfg(not(loom))]
        read_for(timeout: core::time::Duration) -> ReadResult<'a, T, READERS>;
        #[cfg(not(loom))]
        write_for(timeout: core::time::Duration) -> WriteResult<'a, T, READERS>;
    }
}

/// Not for use: see [`Pinned`].
#[doc(hidden)]
impl<T: ?Sized, const READERS: usize> Deref for RobustRwLock<T, READERS> {
    type Target = Unpinned<Self>;
    fn deref(&self) -> &Unpinned<Self> {
        Unpinned::of(self)
    }
}
