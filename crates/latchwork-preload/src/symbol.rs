//! Functions that stand behind ones of the same name in an interposer: glibc's, or another interposer's.
//!
//! Looked up by `dlsym(RTLD_NEXT)`, which gives the default version of each. What an interposer exports has no
//! version, so that it stands in for all of them. All are looked up when the first one is called, before
//! the program has a second thread as a rule; each can be looked up by itself, should that call come here
//! again.
//!
//! (Both interposers include this file.)
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

pub(crate) struct Symbol {
    address: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
}

impl Symbol {
    pub(crate) const fn new(name: &'static core::ffi::CStr) -> Self {
        Self {
            address: AtomicPtr::new(core::ptr::null_mut()),
            name,
        }
    }

    /// Null if there is none.
    #[cold]
    pub(crate) fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends in NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Relaxed: everybody finds the same, and code is there before anybody runs.
        self.address.store(found, Ordering::Relaxed);
        found
    }

    /// The same, looked up once.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            known if known.is_null() => self.look_up(),
            known => known,
        }
    }
}

/// Defines the functions of these names, and one that looks all of them up.
macro_rules! real {
    ($($abi:literal fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            /// As the function of this name; `ENOSYS` if there is none.
            ///
            /// # Safety
            /// As for that.
            #[inline(always)]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                let function = self::symbols::$name.get();
                if function.is_null() {
                    return $crate::symbol::Missing::MISSING;
                }
                // SAFETY: the function of this name has this type; the rest is the caller's.
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
                    // SAFETY: it ends in the one NUL that it has.
                    unsafe {
                        core::ffi::CStr::from_bytes_with_nul_unchecked(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    },
                );
            )*
        }

        /// Looks all of them up.
        pub(crate) fn look_up_all() {
            $(symbols::$name.look_up();)*
        }
    };
}

pub(crate) use real;

/// What a function gives that this libc has not.
pub(crate) trait Missing {
    const MISSING: Self;
}
impl Missing for core::ffi::c_int {
    const MISSING: Self = libc::ENOSYS;
}
impl Missing for () {
    const MISSING: Self = ();
}

/// The value of a variable of the environment, as libc keeps it.
pub(crate) fn environment(name: &core::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: a string, or null; the program's own changes come later or are its own fault.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
    }
}
