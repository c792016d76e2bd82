//! Thread-local variables whose first use takes no lock and no memory.
//!
//! If a library was loaded after a thread began, the thread's first access to a `thread_local!` of that library
//! takes the loader's lock, and may allocate: glibc locates the library's variables (`__tls_get_addr`) then.
//! Another thread may hold that lock, in the constructor of a library, and wait for this one. So variables that
//! locks use are defined by hand, with the initial-exec model: at a fixed distance from the thread pointer.
//!
//! | where | how |
//! | --- | --- |
//! | x86-64 and aarch64 with glibc | by hand; a library that is loaded with `dlopen` takes their bytes from the space that glibc reserves for that |
//! | elsewhere (musl refuses such libraries in `dlopen`), and for Miri | `thread_local!` |
//!
//! A variable's symbol consists of the crate that defines it, its name, and the crate's version (`latchwork_sync_END_0_1_0`),
//! since other crates may use the same name, and two versions may be in one program. They are hidden, as each
//! shared object has its own. (A Rust `dylib` around this crate does not link: its users would have to see the
//! variables. Use `rlib`, `staticlib` or `cdylib`.)

/// Defines a thread-local variable with a unique name and its initial value, which must be all zeros.
/// `NAME.with(…)` accesses the calling thread's copy.
#[cfg(all(
    target_env = "gnu",
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[doc(hidden)]
#[macro_export]
macro_rules! each_thread {
    ($(#[$doc:meta])* $vis:vis static $name:ident: $ty:ty = $zeros:expr;) => {
        $(#[$doc])*
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "a variable")]
        $vis struct $name;

        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $crate::symbol!($name), ",\"awT\",%nobits"),
            ".balign {align}",
            concat!(".globl ", $crate::symbol!($name)),
            concat!(".hidden ", $crate::symbol!($name)),
            concat!(".type ", $crate::symbol!($name), ",%object"),
            concat!($crate::symbol!($name), ":"),
            ".zero {size}",
            concat!(".size ", $crate::symbol!($name), ", . - ", $crate::symbol!($name)),
            ".popsection",
            align = const align_of::<$ty>(),
            size = const size_of::<$ty>(),
        );

        #[allow(unsafe_code, reason = "the definition above")]
        impl $name {
            #[inline(always)]
            $vis fn with<R>(&self, body: impl FnOnce(&$ty) -> R) -> R {
                const { assert!(!core::mem::needs_drop::<$ty>() && size_of::<$ty>() > 0) };
                const _: $ty = $zeros;
                let variable: *const u8;
                // SAFETY: the address is that of the calling thread's copy, which no other thread accesses.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    core::arch::asm!(
                        "mov {variable}, qword ptr fs:[0]",
                        concat!("add {variable}, qword ptr [rip + ", $crate::symbol!($name), "@GOTTPOFF]"),
                        variable = out(reg) variable,
                        options(pure, readonly, nostack),
                    );
                    #[cfg(target_arch = "aarch64")]
                    core::arch::asm!(
                        concat!("adrp {variable}, :gottprel:", $crate::symbol!($name)),
                        concat!("ldr {variable}, [{variable}, :gottprel_lo12:", $crate::symbol!($name), "]"),
                        "mrs {pointer}, tpidr_el0",
                        "add {variable}, {variable}, {pointer}",
                        variable = out(reg) variable,
                        pointer = out(reg) _,
                        options(pure, readonly, nostack),
                    );
                    body(&*variable.cast::<$ty>())
                }
            }
        }
    };
}

#[cfg(not(all(
    target_env = "gnu",
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[doc(hidden)]
#[macro_export]
macro_rules! each_thread {
    ($(#[$doc:meta])* $vis:vis static $name:ident: $ty:ty = $zeros:expr;) => {
        std::thread_local! {
            $(#[$doc])*
            $vis static $name: $ty = const { $zeros };
        }
    };
}

/// The linker's symbol for a variable.
#[doc(hidden)]
#[macro_export]
macro_rules! symbol {
    ($name:ident) => {
        concat!(
            env!("CARGO_CRATE_NAME"),
            "_",
            stringify!($name),
            "_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH")
        )
    };
}

pub use crate::{each_thread, symbol};
