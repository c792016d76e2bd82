//! The only place that names atomics.
//!
//! Everything else imports its atomic types from here, so that the model checker `loom` can put
//! its own in their place (`RUSTFLAGS="--cfg loom"`). Under loom an atomic has no `const`
//! constructor; [`const_unless_loom!`] writes a constructor that is `const` everywhere else.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

/// Declares a function that is `const` except under loom.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        #[cfg(not(loom))]
        $vis const fn $name($($arg: $ty),*) -> $ret $body

        $(#[$meta])*
        #[cfg(loom)]
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_loom;

/// One step of a bounded spin.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
