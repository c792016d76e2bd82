//! The only place that names atomics.
//!
//! Everything else imports its atomic types from here, so that the model checker `loom` can put
//! its own in their place (`RUSTFLAGS="--cfg loom"`). Under loom an atomic has no `const`
//! constructor; [`const_unless_loom!`] writes a constructor that is `const` everywhere else.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(crate) use of_loom::AtomicU32;

#[cfg(loom)]
mod of_loom {
    use super::Ordering;
    use crate::model::step;

    /// Loom's, with a place to die in front of each access.
    #[derive(Debug)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    macro_rules! forward {
        ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
            #[track_caller]
            pub(crate) fn $name(&self, $($arg: $ty),*) -> $ret {
                step();
                self.0.$name($($arg),*)
            }
        )*};
    }

    impl AtomicU32 {
        #[track_caller]
        pub(crate) fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        /// For accesses that no death of the calling task can prevent.
        pub(crate) fn for_kernel(&self) -> &loom::sync::atomic::AtomicU32 {
            &self.0
        }

        forward! {
            load(order: Ordering) -> u32;
            store(value: u32, order: Ordering) -> ();
            swap(value: u32, order: Ordering) -> u32;
            fetch_add(value: u32, order: Ordering) -> u32;
            fetch_sub(value: u32, order: Ordering) -> u32;
            compare_exchange(old: u32, new: u32, order: Ordering, failure: Ordering) -> Result<u32, u32>;
            compare_exchange_weak(old: u32, new: u32, order: Ordering, failure: Ordering) -> Result<u32, u32>;
        }

        #[track_caller]
        pub(crate) fn fetch_update(
            &self,
            order: Ordering,
            failure: Ordering,
            update: impl FnMut(u32) -> Option<u32>,
        ) -> Result<u32, u32> {
            step();
            self.0.fetch_update(order, failure, update)
        }
    }
}

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

/// The sound expression; under loom the unsound one, in a negative twin that injects this fault.
#[cfg(not(loom))]
macro_rules! unless_fault {
    ($fault:ident, $sound:expr, $unsound:expr) => {
        $sound
    };
}
#[cfg(loom)]
macro_rules! unless_fault {
    ($fault:ident, $sound:expr, $unsound:expr) => {
        if crate::model::has(crate::model::Fault::$fault) {
            $unsound
        } else {
            $sound
        }
    };
}
pub(crate) use unless_fault;
