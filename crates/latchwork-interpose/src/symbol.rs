//! Functions that stand behind ones of the same name in an interposer: glibc's, or another interposer's.
//!
//! Looked up by `dlsym(RTLD_NEXT)`, for the default version of each. What an interposer exports has no
//! version, so that it stands in for all of them. All are looked up when the first one is called, before
//! the program has a second thread as a rule; each can be looked up by itself, should that call come here
//! again.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A function's address, once it was looked up.
#[derive(Debug)]
pub struct Symbol {
    address: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
}

/// The thread that looks one up, if one does.
static LOOKING: AtomicU32 = AtomicU32::new(0);

impl Symbol {
    /// Not looked up yet.
    #[must_use]
    pub const fn new(name: &'static core::ffi::CStr) -> Self {
        Self {
            address: AtomicPtr::new(core::ptr::null_mut()),
            name,
        }
    }

    /// Null if there is none; and to `dlsym` itself, which gives back the text of an error that nobody has asked
    /// for, by way of whatever that calls, and would do it again and again.
    #[cold]
    pub fn look_up(&self) -> *mut c_void {
        // SAFETY: takes nothing.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as u32 };
        // Relaxed, here and below: a thread only looks for itself.
        let looks = LOOKING.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed);
        if looks == Err(me) {
            return core::ptr::null_mut();
        }
        // SAFETY: a name that ends in NUL.
        let found =
            unsafe { default_version(self.name, libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr())) };
        // Relaxed: everybody finds the same, and code is there before anybody runs.
        self.address.store(found, Ordering::Relaxed);
        if looks.is_ok() {
            LOOKING.store(0, Ordering::Relaxed);
        }
        found
    }

    /// The same, looked up once.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            known if known.is_null() => self.look_up(),
            known => known,
        }
    }
}

/// Up to glibc 2.35 `dlsym(RTLD_NEXT)` gives the oldest version. (BZ 14932.) Of functions for condition variables
/// that is one for objects of before 2.3.2, which are laid out otherwise. What is found in another interposer stays.
unsafe fn default_version(name: &core::ffi::CStr, found: *mut c_void) -> *mut c_void {
    let is_old = name.to_bytes().starts_with(b"pthread_cond_") && name != c"pthread_cond_clockwait";
    if !cfg!(target_arch = "x86_64") || !is_old || found.is_null() {
        return found;
    }
    // SAFETY: strings that end in NUL.
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
            /// As the function of this name; `ENOSYS` if there is none.
            ///
            /// # Safety
            /// As for that.
            #[inline(always)]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                let function = self::symbols::$name.get();
                if function.is_null() {
                    return <$ret as $crate::symbol::Missing>::MISSING;
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

/// What a function gives that this libc has not.
pub trait Missing {
    /// See there.
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

/// The value of a variable of the environment, as libc keeps it.
#[must_use]
pub fn environment(name: &core::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: a string, or null; the program's own changes come later or are its own fault.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
    }
}
