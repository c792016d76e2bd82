//! Locks of libraries that need not be there: found at run time by symbol.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_void};
use std::mem;

use libc::c_int;

use super::{FreeLock, Line};

type Operation = unsafe extern "C" fn(*mut c_void);

/// A mutex of another library, in a place of its own.
pub(crate) struct Mutex {
    lock: Operation,
    unlock: Operation,
    place: Box<Line<Place>>,
}

#[repr(C)]
struct Place {
    /// Both libraries' mutexes take two words at most, and are initialised by zeros.
    mutex: UnsafeCell<[usize; 2]>,
    datum: UnsafeCell<u64>,
}

// SAFETY: both libraries' mutexes are made for many threads, and `datum` is touched under them.
unsafe impl Sync for Mutex {}
// SAFETY: the box, and so the mutex, stays where it is when its owner moves between threads.
unsafe impl Send for Mutex {}

impl Mutex {
    /// nsync's `nsync_mu`, or why there is none.
    pub(crate) fn nsync() -> Result<Self, String> {
        let library = open(&[c"libnsync.so.1".to_owned()]).ok_or("libnsync.so.1 is not there")?;
        Self::find(library, c"nsync_mu_lock", c"nsync_mu_unlock")
            .ok_or_else(|| "libnsync.so.1 has no nsync_mu_lock".to_owned())
    }

    /// Abseil's `absl::Mutex`, without its deadlock detection, or why there is none.
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
            let mutex = Self::find(library, &name("5Mutex4LockEv"), &name("5Mutex6UnlockEv"));
            let detection = name("29SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE");
            if let (Some(mutex), Some(detection)) = (mutex, symbol(library, &detection)) {
                // Distributions build it on, which costs twice the mutex itself. 0 is kIgnore.
                // SAFETY: under this name the library has a function that takes a C enumeration.
                unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(detection)(0) };
                return Ok(mutex);
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
        let place = Box::new(Line(Place {
            mutex: UnsafeCell::new([0; 2]),
            datum: UnsafeCell::new(0),
        }));
        Some(Self {
            lock,
            unlock,
            place,
        })
    }
}

impl FreeLock for Mutex {
    #[inline]
    fn increment(&self) {
        let mutex = self.place.0.mutex.get().cast();
        // SAFETY: the zeroed mutex does not move, and protects the datum.
        unsafe {
            (self.lock)(mutex);
            *self.place.0.datum.get() += 1;
            (self.unlock)(mutex);
        }
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `library` is an open handle, the name ends in zero.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Opens the first of `names` that is there. It stays open: closing could unload what threads use.
fn open(names: &[CString]) -> Option<*mut c_void> {
    names
        .iter()
        // SAFETY: the name ends in zero. The libraries' initialisers touch nothing of ours.
        .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
        .find(|library| !library.is_null())
}

fn c_string(text: String) -> CString {
    CString::new(text).expect("names are written without zeros")
}
