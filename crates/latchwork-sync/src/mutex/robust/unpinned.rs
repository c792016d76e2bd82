//! The compiler's error for a robust lock that is used through a plain reference.
//!
//! A robust lock has its methods for pinned references. A plain reference dereferences to the type here, whose methods
//! of the same names have a bound that no type fulfils. The compiler then reports that bound, with a message that says
//! what to do, instead of the traits of other protocols.

use super::guard::LockResult;
use super::{Robust, RobustProtocol};
use crate::mutex::Mutex;
use crate::time::Deadline;
use core::marker::PhantomData;
use core::ops::Deref;

/// A robust lock that is not pinned: none of its methods can be called.
#[doc(hidden)]
pub struct Unpinned<L: ?Sized>(PhantomData<L>);

impl<L: ?Sized> Unpinned<L> {
    /// The type to which a plain reference to the lock dereferences.
    pub(crate) fn of(_: &L) -> &Self {
        &Self(PhantomData)
    }
}

/// No type implements it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a robust lock is used through a pinned reference",
    label = "this needs a `Pin<&_>`: while the lock is held it is on a list, and must not move",
    note = "for a field of your struct: #[derive(PinnedFields)], with #[pin] at the field; then `value.field().lock()`, where `value` is pinned",
    note = "a named object of a region comes pinned; pin a static by `Pin::static_ref(&LOCK)`, a variable by `std::pin::pin!(lock)`, the elements of an array by `latchwork::region::each_pinned`"
)]
pub trait Pinned {
    /// Never called.
    fn unreachable(&self) -> !;
}

macro_rules! methods {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        $(#[$attribute])*
        #[allow(missing_docs)]
        pub fn $name(&self $(, $argument: $type)*) -> $result
        where
            Self: Pinned,
        {
            $(let _ = $argument;)*
            self.unreachable()
        }
    )*};
}

pub(crate) use methods as methods_of_unpinned;

#[allow(clippy::missing_errors_doc)]
impl<'a, T: ?Sized, P: RobustProtocol> Unpinned<Mutex<T, Robust<P>>>
where
    P: 'a,
    T: 'a,
{
    methods! {
        lock() -> LockResult<'a, T, P>;
        try_lock() -> LockResult<'a, T, P>;
        lock_until(deadline: Deadline) -> LockResult<'a, T, P>;
        lock_interruptible(deadline: Option<Deadline>) -> LockResult<'a, T, P>;
        #[cfg(not(loom))]
        lock_for(timeout: core::time::Duration) -> LockResult<'a, T, P>;
    }
}

/// Not for use: see [`Pinned`].
#[doc(hidden)]
impl<T: ?Sized, P: RobustProtocol> Deref for Mutex<T, Robust<P>> {
    type Target = Unpinned<Self>;
    fn deref(&self) -> &Unpinned<Self> {
        Unpinned::of(self)
    }
}
