//! The functions that are behind the ones of the same name here: glibc's, or another interposer's.
//!
//! Looked up by `dlsym(RTLD_NEXT)`, which gives the default version of each. What this library exports has no
//! version, so that it stands in for all of them. All are looked up when the first one is called, before
//! the program has a second thread as a rule; each can be looked up by itself, should that call come here
//! again.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex};
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{clockid_t, timespec};

struct Symbol {
    address: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
}

impl Symbol {
    /// Null if there is none.
    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends in NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Relaxed: everybody finds the same, and code is there before anybody runs.
        self.address.store(found, Ordering::Relaxed);
        found
    }

    #[inline(always)]
    fn get(&self) -> *mut c_void {
        match self.address.load(Ordering::Relaxed) {
            known if known.is_null() => self.look_up(),
            known => known,
        }
    }
}

macro_rules! real {
    ($($abi:literal fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            /// As the function of this name; `ENOSYS` if there is none.
            ///
            /// # Safety
            /// As for that.
            #[inline(always)]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                let function = symbols::$name.get();
                if function.is_null() {
                    return libc::ENOSYS as $ret;
                }
                // SAFETY: the function of this name has this type; the rest is the caller's.
                unsafe {
                    let function: unsafe extern $abi fn($($ty),*) -> $ret = transmute(function);
                    function($($arg),*)
                }
            }
        )*

        #[allow(non_upper_case_globals, reason = "named as what they point to")]
        mod symbols {
            use super::*;
            $(
                pub(super) static $name: Symbol = Symbol {
                    address: AtomicPtr::new(ptr::null_mut()),
                    // SAFETY: it ends in the one NUL that it has.
                    name: unsafe {
                        core::ffi::CStr::from_bytes_with_nul_unchecked(
                            concat!(stringify!($name), "\0").as_bytes(),
                        )
                    },
                };
            )*
        }

        /// Looks all of them up.
        pub(crate) fn look_up_all() {
            $(symbols::$name.look_up();)*
        }
    };
}

real! {
    "C" fn pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void) -> c_int;
    "C" fn pthread_mutex_destroy(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_lock(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_trylock(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_timedlock(mutex: *mut Mutex, until: *const timespec) -> c_int;
    "C" fn pthread_mutex_clocklock(mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int;
    "C" fn pthread_mutex_unlock(mutex: *mut Mutex) -> c_int;
    "C" fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int;
    "C" fn pthread_cond_init(cond: *mut Cond, attributes: *const c_void) -> c_int;
    "C" fn pthread_cond_destroy(cond: *mut Cond) -> c_int;
    "C" fn pthread_cond_signal(cond: *mut Cond) -> c_int;
    "C" fn pthread_cond_broadcast(cond: *mut Cond) -> c_int;
    "C-unwind" fn pthread_cond_wait(cond: *mut Cond, mutex: *mut Mutex) -> c_int;
    "C-unwind" fn pthread_cond_timedwait(cond: *mut Cond, mutex: *mut Mutex, until: *const timespec) -> c_int;
    "C-unwind" fn pthread_cond_clockwait(cond: *mut Cond, mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int;
    "C" fn cnd_init(cond: *mut Cond) -> c_int;
}

/// The value of a variable of the environment, as libc keeps it.
pub(crate) fn environment(name: &core::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: a string, or null; the program's own changes come later or are its own fault.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
    }
}
