//! The functions behind those of the same name in an interposer: glibc's, or another interposer's.
//!
//! They are looked up by `dlsym(RTLD_NEXT)`, in the default version of each. Symbols that an interposer exports have no
//! version, so they replace all versions. All are looked up when the first one is called, usually before the program
//! has a second thread. If that look-up itself calls an interposed function, the function is looked up separately.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A function's address, cached after the look-up.
#[derive(Debug)]
pub struct Symbol {
    address: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
}

/// The thread that is looking up a function, if any.
static LOOKING: AtomicU32 = AtomicU32::new(0);

impl Symbol {
    /// A symbol that was not looked up yet.
    #[must_use]
    pub const fn new(name: &'static core::ffi::CStr) -> Self {
        Self {
            address: AtomicPtr::new(core::ptr::null_mut()),
            name,
        }
    }

    /// Looks the function up. Returns null if there is none, and also to a call from within `dlsym`: that frees the
    /// text of an earlier error, through whatever `free` calls, and would recurse without end.
    #[cold]
    pub fn look_up(&self) -> *mut c_void {
        // SAFETY: `gettid` takes no arguments and cannot fail.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as u32 };
        // Relaxed, here and below: a thread only compares the word with its own ID.
        let looks = LOOKING.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed);
        if looks == Err(me) {
            return core::ptr::null_mut();
        }
        // SAFETY: the name ends in NUL.
        let found =
            unsafe { default_version(self.name, libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr())) };
        // Relaxed: every thread finds the same address, and code is there before any thread runs it.
        self.address.store(found, Ordering::Relaxed);
        if looks.is_ok() {
            LOOKING.store(0, Ordering::Relaxed);
        }
        found
    }

    /// The address, looked up at the first call only.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            known if known.is_null() => self.look_up(),
            known => known,
        }
    }
}

/// Up to glibc 2.35 `dlsym(RTLD_NEXT)` returns the oldest version of a function. (BZ 14932.) For condition variables,
/// that is one for objects from before 2.3.2, which have another layout. Functions found in another interposer are
/// kept.
unsafe fn default_version(name: &core::ffi::CStr, found: *mut c_void) -> *mut c_void {
    let is_old = name.to_bytes().starts_with(b"pthread_cond_") && name != c"pthread_cond_clockwait";
    if !cfg!(target_arch = "x86_64") || !is_old || found.is_null() {
        return found;
    }
    // SAFETY: both strings end in NUL.
    let of = |version: &core::ffi::CStr| unsafe {
        libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr())
    };
    if found == of(c"GLIBC_2.2.5") {
        of(c"GLIBC_2.3.2")
    } else {
        found
    }
}

/// Defines the functions of these names, and one that looks all of them up.
#[macro_export]
macro_rules! real {
    ($($abi:literal fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            /// Calls the function of this name; `ENOSYS` if there is none.
            ///
            /// # Safety
            /// As for that function.
            #[inline(always)]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                let function = self::symbols::$name.get();
                if function.is_null() {
                    return <$ret as $crate::symbol::Missing>::MISSING;
                }
                // SAFETY: the function of this name has this type; the caller vouches for the rest.
                unsafe {
                    let function: unsafe extern $abi fn($($ty),*) -> $ret = core::mem::transmute(function);
                    function($($arg),*)
                }
            }
        )*

        #[allow(non_upper_case_globals, reason = "named as what they point to")]
        mod symbols {
            $(
                pub(super) static $name: $crate::symbol::Symbol = $crate::symbol::Symbol::new(
                    // SAFETY: the string ends in its only NUL.
                    unsafe {
                        core::ffi::CStr::from_bytes_with_nul_unchecked(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    },
                );
            )*
        }

        /// Looks up all of them.
        pub(crate) fn look_up_all() {
            $(symbols::$name.look_up();)*
        }
    };
}

/// The result of a function that this libc does not have.
pub trait Missing {
    /// That result.
    const MISSING: Self;
}
impl Missing for core::ffi::c_int {
    const MISSING: Self = libc::ENOSYS;
}
impl Missing for () {
    const MISSING: Self = ();
}
impl Missing for usize {
    const MISSING: Self = 0;
}

/// The value of an environment variable, in libc's own storage.
#[must_use]
pub fn environment(name: &core::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: a string, or null; a program that changes it while it is read has a data race of its own.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
    }
}
