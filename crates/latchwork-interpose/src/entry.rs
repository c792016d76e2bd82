//! Where a function was called from: its return address, which only its first instruction can determine reliably.
//!
//! Each function that a program calls is a few instructions, which add that address as one more argument and jump to
//! the function's body.

/// Defines functions that a program calls by these names, with the number of their arguments, and their bodies.
#[macro_export]
macro_rules! entry {
    ($($name:ident $count:tt $body:path;)*) => {
        $(
            /// Stands in for glibc's function of this name.
            ///
            /// # Safety
            /// As for glibc's function.
            // SAFETY: it does what the function of this name does: it jumps to a function that takes the same
            // arguments, and one more.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    concat!("mov ", $crate::__register!($count), ", qword ptr [rsp]"),
                    "jmp {body}",
                    body = sym $body,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    concat!("mov x", stringify!($count), ", x30"),
                    "b {body}",
                    body = sym $body,
                );
            }
        )*
    };
}

/// The register of the argument after so many others.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! __register {
    (1) => {
        "rsi"
    };
    (2) => {
        "rdx"
    };
    (3) => {
        "rcx"
    };
    (4) => {
        "r8"
    };
}
