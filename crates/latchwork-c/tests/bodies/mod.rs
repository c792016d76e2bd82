//! The bodies that the locks of Rust run, over those of the C headers and the C++ classes: what a compiler makes of the
//! headers is loaded here, with the shared library.
#![allow(unsafe_code)]

use crate::support::{self, How, by};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use latchwork::time::Deadline;
use latchwork_testkit::priority::may_use_priorities;
use libc::{EBUSY, ETIMEDOUT, timespec};
use std::sync::OnceLock;

mod condvars;
mod mutexes;
mod rwlocks;

/// `struct mutex_kind` of `c/kinds.h`.
#[repr(C)]
struct MutexKind {
    make: unsafe extern "C" fn(*mut c_void),
    lock: unsafe extern "C" fn(*mut c_void) -> c_int,
    try_lock: unsafe extern "C" fn(*mut c_void) -> c_int,
    lock_until: unsafe extern "C" fn(*mut c_void, *const timespec) -> c_int,
    unlock: unsafe extern "C" fn(*mut c_void) -> c_int,
    wait: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    wait_until: unsafe extern "C" fn(*mut c_void, *mut c_void, *const timespec) -> c_int,
    notify: unsafe extern "C" fn(*mut c_void, c_int),
    size: usize,
    cond_size: usize,
}

/// `struct rwlock_kind`.
#[repr(C)]
struct RwLockKind {
    make: unsafe extern "C" fn(*mut c_void),
    read: unsafe extern "C" fn(*mut c_void) -> c_int,
    try_read: unsafe extern "C" fn(*mut c_void) -> c_int,
    read_until: unsafe extern "C" fn(*mut c_void, *const timespec) -> c_int,
    write: unsafe extern "C" fn(*mut c_void) -> c_int,
    try_write: unsafe extern "C" fn(*mut c_void) -> c_int,
    write_until: unsafe extern "C" fn(*mut c_void, *const timespec) -> c_int,
    leave_read: unsafe extern "C" fn(*mut c_void) -> c_int,
    leave_write: unsafe extern "C" fn(*mut c_void) -> c_int,
    size: usize,
}

/// What a compiler has made of the headers.
struct Compiled {
    mutexes: *const MutexKind,
    rwlocks: *const RwLockKind,
}

// SAFETY: tables of functions, which stay.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Compiled {
    fn new(file: &str, how: How) -> Self {
        let options = ["-shared", "-fPIC", "-D_GNU_SOURCE"];
        let library = support::compile(&support::source(file), how, &options);
        let name = std::ffi::CString::new(library.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: what was compiled here does nothing as it is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{name:?} cannot be loaded");
        let find = |name: &CStr| {
            // SAFETY: a name, and what is never unloaded.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null());
            found
        };
        Self {
            mutexes: find(c"mutex_kinds").cast(),
            rwlocks: find(c"rwlock_kinds").cast(),
        }
    }
}

/// A language, and its compiler.
trait Language: Send + Sync + 'static {
    const FILE: &str;
    const HOW: How;
    /// Of its own.
    fn compiled() -> &'static OnceLock<Compiled>;

    fn mutex(kind: usize) -> &'static MutexKind {
        let compiled = Self::compiled().get_or_init(|| Compiled::new(Self::FILE, Self::HOW));
        // SAFETY: the tables are at least as long as the tests say.
        unsafe { &*compiled.mutexes.add(kind) }
    }
    fn rwlock(kind: usize) -> &'static RwLockKind {
        let compiled = Self::compiled().get_or_init(|| Compiled::new(Self::FILE, Self::HOW));
        // SAFETY: as above.
        unsafe { &*compiled.rwlocks.add(kind) }
    }
}

macro_rules! languages {
    ($($language:ident: $file:literal, $how:expr;)*) => {$(
        struct $language;
        impl Language for $language {
            const FILE: &str = $file;
            const HOW: How = $how;
            fn compiled() -> &'static OnceLock<Compiled> {
                static COMPILED: OnceLock<Compiled> = OnceLock::new();
                &COMPILED
            }
        }
    )*};
}
languages! {
    C: "kinds.c", by("gcc", &["-std=c11", "-O2"]);
    Cpp: "kinds.cpp", by("g++", &["-std=c++17", "-O2"]);
}

/// Memory for any object of the headers.
#[repr(C, align(64))]
struct Place<const WORDS: usize>(UnsafeCell<MaybeUninit<[u64; WORDS]>>);

// SAFETY: what is in there synchronises itself.
unsafe impl<const WORDS: usize> Sync for Place<WORDS> {}
// SAFETY: an object moves before its first use only.
unsafe impl<const WORDS: usize> Send for Place<WORDS> {}

impl<const WORDS: usize> Place<WORDS> {
    const fn zeroed() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }
    fn address(&self) -> *mut c_void {
        self.0.get().cast()
    }
}

fn timespec_of(deadline: Deadline) -> timespec {
    let nanoseconds = deadline.as_nanoseconds();
    timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    }
}

/// Whether it was got.
#[track_caller]
fn got(answer: c_int, otherwise: c_int) -> bool {
    assert!(answer == 0 || answer == otherwise, "{answer}");
    answer == 0
}

/// Calls it as it goes, also by a panic.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Ceilings take a right.
const fn has_ceiling(kind: usize) -> bool {
    matches!(kind, 8 | 9 | 14)
}

fn is_permitted<L: Language>(kind: usize, test: &str) -> bool {
    L::HOW.is_there() && (!has_ceiling(kind) || may_use_priorities(test))
}
