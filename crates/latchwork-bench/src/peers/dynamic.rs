//! Locks of optional libraries: found at run time by symbol.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_void};
use std::mem;

use libc::c_int;

use super::RawLock;

type Operation = unsafe extern "C" fn(*mut c_void);

/// A mutex of another library, of this many machine words.
#[repr(C)]
pub(crate) struct Mutex<const WORDS: usize> {
    /// Both libraries' mutexes are initialised by zeros.
    mutex: UnsafeCell<[usize; WORDS]>,
    functions: Functions,
}

/// How a library locks and unlocks its mutex.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    lock: Operation,
    unlock: Operation,
}

/// nsync's has a word and a list of waiters.
pub(crate) const NSYNC_WORDS: usize = 2;
pub(crate) const ABSL_WORDS: usize = 1;

// SAFETY: both libraries' mutexes are made for many threads.
unsafe impl<const WORDS: usize> Sync for Mutex<WORDS> {}

impl<const WORDS: usize> Mutex<WORDS> {
    pub(crate) fn new(functions: Functions) -> Self {
        Self {
            mutex: UnsafeCell::new([0; WORDS]),
            functions,
        }
    }
}

impl Functions {
    /// nsync's `nsync_mu`, or the reason why it is absent.
    pub(crate) fn nsync() -> Result<Self, String> {
        let library = open(&[c"libnsync.so.1".to_owned()]).ok_or("libnsync.so.1 is not there")?;
        Self::find(library, c"nsync_mu_lock", c"nsync_mu_unlock")
            .ok_or_else(|| "libnsync.so.1 has no nsync_mu_lock".to_owned())
    }

    /// Abseil's `absl::Mutex`, without its deadlock detection, or the reason why it is absent.
    pub(crate) fn absl() -> Result<Self, String> {
        // C++: the name of the release, or of the distribution, is part of every symbol.
        let releases = [
            "20220623", "20230125", "20230802", "20240116", "20240722", "20250127", "20250512",
        ];
        let names: Vec<CString> = releases
            .iter()
            .map(|release| c_string(format!("libabsl_synchronization.so.{release}")))
            .collect();
        let library =
            open(&names).ok_or("no libabsl_synchronization.so of a known release is there")?;
        let spaces = releases
            .iter()
            .map(|release| format!("lts_{release}"))
            .chain((1..=20).map(|number| format!("debian{number}")));
        for space in spaces {
            let name = |rest: &str| c_string(format!("_ZN4absl{}{space}{rest}", space.len()));
            let functions = Self::find(library, &name("5Mutex4LockEv"), &name("5Mutex6UnlockEv"));
            let detection = name("29SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE");
            if let (Some(functions), Some(detection)) = (functions, symbol(library, &detection)) {
                // Distributions compile it in, which costs twice as much as the mutex itself. 0 is kIgnore.
                // SAFETY: under this name the library has a function that takes a C enumeration.
                unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(detection)(0) };
                return Ok(functions);
            }
        }
        Err("libabsl_synchronization.so has no absl::Mutex of a known name".to_owned())
    }

    fn find(library: *mut c_void, lock: &CStr, unlock: &CStr) -> Option<Self> {
        let (lock, unlock) = (symbol(library, lock)?, symbol(library, unlock)?);
        // SAFETY: under these names the libraries have functions that take the mutex's address, in
        // C or as a C++ method's `this`, and return nothing.
        let [lock, unlock] = [lock, unlock]
            .map(|symbol| unsafe { mem::transmute::<*mut c_void, Operation>(symbol) });
        Some(Self { lock, unlock })
    }
}

// SAFETY: the libraries' mutexes provide mutual exclusion.
unsafe impl<const WORDS: usize> RawLock for Mutex<WORDS> {
    const BYTES: usize = size_of::<[usize; WORDS]>();

    #[inline]
    unsafe fn lock(&self) {
        // SAFETY: the zeroed mutex does not move.
        unsafe { (self.functions.lock)(self.mutex.get().cast()) }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the mutex does not move, and it is held.
        unsafe { (self.functions.unlock)(self.mutex.get().cast()) }
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `library` is an open handle, the name ends in zero.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Opens the first existing library of `names`. It is never closed, since that could unload code that threads use.
fn open(names: &[CString]) -> Option<*mut c_void> {
    names
        .iter()
        // SAFETY: the name ends in zero. The libraries' initialisers do not affect this program's data.
        .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
        .find(|library| !library.is_null())
}

fn c_string(text: String) -> CString {
    CString::new(text).expect("names are written without zeros")
}
