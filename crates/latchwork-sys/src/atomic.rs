//! The only module that names atomic types.
//!
//! All others import their atomics from here, so that the model checker `loom` can replace them
//! (`RUSTFLAGS="--cfg loom"`). Under loom an atomic has no `const` constructor; [`const_unless_loom!`] declares
//! a constructor that is `const` everywhere else.

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
    fence,
};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, Ordering, fence};
#[cfg(loom)]
pub use of_loom::{AtomicU32, AtomicU64};

mod pair;
pub use pair::AtomicPair;

#[cfg(loom)]
mod of_loom {
    use super::Ordering;
    use crate::model::step;

    macro_rules! atomics {
        ($($name:ident: $word:ty;)*) => {$(
            /// Loom's type, with a point at which the task may die before each access.
            #[derive(Debug, Default)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                #[track_caller]
                pub fn new(value: $word) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                /// For accesses by the kernel, which no death of the calling task can prevent.
                pub fn for_kernel(&self) -> &loom::sync::atomic::$name {
                    &self.0
                }

                /// Ends the word's lifetime: loom reports any access that may come later.
                #[track_caller]
                pub fn end(&mut self) {
                    self.0.with_mut(|_| ());
                }

                #[track_caller]
                pub fn fetch_update(
                    &self,
                    order: Ordering,
                    failure: Ordering,
                    update: impl FnMut($word) -> Option<$word>,
                ) -> Result<$word, $word> {
                    step();
                    self.0.fetch_update(order, failure, update)
                }

                forward! {
                    load(order: Ordering) -> $word;
                    store(value: $word, order: Ordering) -> ();
                    swap(value: $word, order: Ordering) -> $word;
                    fetch_add(value: $word, order: Ordering) -> $word;
                    fetch_sub(value: $word, order: Ordering) -> $word;
                    fetch_and(value: $word, order: Ordering) -> $word;
                    fetch_or(value: $word, order: Ordering) -> $word;
                    compare_exchange(old: $word, new: $word, order: Ordering, failure: Ordering) -> Result<$word, $word>;
                    compare_exchange_weak(old: $word, new: $word, order: Ordering, failure: Ordering) -> Result<$word, $word>;
                }
            }
        )*};
    }

    macro_rules! forward {
        ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
            #[track_caller]
            pub fn $name(&self, $($arg: $ty),*) -> $ret {
                step();
                self.0.$name($($arg),*)
            }
        )*};
    }

    atomics! {
        AtomicU32: u32;
        AtomicU64: u64;
    }
}

/// Declares a function that is `const` except under loom.
#[doc(hidden)]
#[macro_export]
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
pub use crate::const_unless_loom;

/// Loom has no compiler fence, and does not reorder the steps of a task that dies.
#[cfg(loom)]
pub fn compiler_fence(_: Ordering) {}

/// One step of a bounded spin.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Requests the cache line of an address for writing. Only a hint: any address is allowed.
#[cfg(not(loom))]
#[inline]
#[allow(unsafe_code)]
pub fn prefetch_to_write(address: *const u8) {
    // SAFETY: a prefetch has no effect that a program can observe, and does not fault.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    // SAFETY: a prefetch has no effect that a program can observe, and does not fault.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Orders the read-modify-write that this task has just made before the loads that follow.
#[inline]
pub fn fence_after_update() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    // On x86-64 each read-modify-write is a full barrier by itself.
    #[cfg(all(not(loom), target_arch = "x86_64"))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(all(not(loom), not(target_arch = "x86_64")))]
    fence(Ordering::SeqCst);
}

/// The sound expression; under loom the unsound one, in a negative twin that injects this fault.
#[cfg(not(loom))]
#[doc(hidden)]
#[macro_export]
macro_rules! unless_fault {
    ($fault:ident, $sound:expr, $unsound:expr) => {
        $sound
    };
}
#[cfg(loom)]
#[doc(hidden)]
#[macro_export]
macro_rules! unless_fault {
    ($fault:ident, $sound:expr, $unsound:expr) => {
        if $crate::model::has($crate::model::Fault::$fault) {
            $unsound
        } else {
            $sound
        }
    };
}
pub use crate::unless_fault;

/// A step of a recovery; or what is done without it, in a build with `--cfg latchwork_disable` and with its name in the
/// environment variable `LATCHWORK_DISABLE`: `ci/killproof.sh` shows by it that a kill test needs the step.
#[cfg(not(latchwork_disable))]
#[doc(hidden)]
#[macro_export]
macro_rules! unless_disabled {
    ($step:ident, $done:expr, $without:expr) => {
        $done
    };
}
#[cfg(latchwork_disable)]
#[doc(hidden)]
#[macro_export]
macro_rules! unless_disabled {
    ($step:ident, $done:expr, $without:expr) => {
        if $crate::atomic::is_disabled(stringify!($step)) {
            $without
        } else {
            $done
        }
    };
}
pub use crate::unless_disabled;

/// Whether this step of a recovery is disabled.
#[cfg(latchwork_disable)]
#[doc(hidden)]
pub fn is_disabled(step: &str) -> bool {
    static DISABLED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let disabled = DISABLED.get_or_init(|| std::env::var("LATCHWORK_DISABLE").ok());
    disabled.as_deref() == Some(step)
}
