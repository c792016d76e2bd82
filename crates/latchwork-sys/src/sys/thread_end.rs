//! Functions called when a thread ends, and how a thread registers them without a lock.
//!
//! | caller | when | registered |
//! | --- | --- | --- |
//! | a key (`pthread_key_create`) | the thread ends, after the destructors of its thread-locals, in rounds with other keys | at the first use of a lock |
//! | the loader (`__cxa_thread_atexit_impl`) | at the beginning of `exit` | for the first thread, if it loads this library; for others where there is no key |
//! | this library's destructor (`.fini_array`) | near the end of `exit` | – |
//!
//! Setting a key's value is a store, for each of the first 32 keys. (For others glibc allocates, once for each
//! thread.) So the key is created when this library is loaded. The loader registers a function for a thread's
//! end under its lock, and allocates. Another thread may hold that lock, in the constructor of a library that
//! it loads, and wait for the calling one; and a signal handler may have interrupted the allocator.
//!
//! A function that a key calls must stay in memory. So this library cannot be unloaded.
#![allow(unsafe_code)]

use super::thread;
use crate::atomic::{AtomicU32, Ordering};
use core::ffi::c_void;
use core::ptr;

/// The function to call. The argument has no meaning.
pub type AtEnd = unsafe extern "C" fn(*mut c_void);

/// The minimum number of rounds in which keys' functions are called: a value set again in one round is seen in
/// the next.
pub const ROUNDS: u32 = 4;

/// The key's number + 1; 0: not created yet; or [`NONE`].
static KEY: AtomicU32 = AtomicU32::new(0);
/// The program has too many keys.
const NONE: u32 = u32::MAX;
/// Not 0: the key is created when it is needed, see `create_key_later`.
static IS_LATE: AtomicU32 = AtomicU32::new(0);

/// Arranges that `at_end` is called when the calling thread ends, or, if it is already being called for that
/// reason, once more. All calls pass the same function. Returns whether it will be called.
///
/// # Safety
/// `at_end` may be called in this thread when it ends; it does not use its argument.
pub unsafe fn call_at_end(at_end: AtEnd) -> bool {
    let key = match KEY.load(Ordering::Relaxed) {
        0 => make_key(at_end),
        key => key,
    };
    // SAFETY: the key is never deleted; no code dereferences the value.
    key != NONE && unsafe { libc::pthread_setspecific(key - 1, ptr::dangling()) == 0 }
}

/// Relaxed, here and above: the key is only a number. Two calls at the same time create two keys, of which one
/// is not used.
#[cold]
fn make_key(at_end: AtEnd) -> u32 {
    let mut key = 0;
    // SAFETY: a variable for the key, and a function that stays loaded. (glibc's `pthread_key_create` takes no lock.)
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) };
    let key = if made == 0 { key + 1 } else { NONE };
    KEY.store(key, Ordering::Relaxed);
    key
}

/// For an interposer whose threads need no record: it leaves all keys to the program.
///
/// # Safety
/// There is no second thread yet, which could use the key in this moment: its number may be another's afterwards.
#[cfg(feature = "foreign")]
pub unsafe fn create_key_later() {
    IS_LATE.store(1, Ordering::Relaxed);
    let key = KEY.swap(0, Ordering::Relaxed);
    if key != 0 && key != NONE {
        // SAFETY: this library created the key, and has not used it yet.
        unsafe { libc::pthread_key_delete(key - 1) };
    }
}

/// Called when this library is loaded, in any thread.
///
/// # Safety
/// `at_end` may be called at the end of any thread that [asks for it](call_at_end), `at_exit` when this one ends or calls
/// `exit`; they do not use their arguments.
pub unsafe fn prepare(at_end: AtEnd, at_exit: AtEnd) {
    if IS_LATE.load(Ordering::Relaxed) == 0 {
        make_key(at_end);
    }
    if thread::thread_id() == thread::process_id() {
        // SAFETY: by the caller's contract.
        unsafe { call_at_exit(at_exit) };
    }
    stay_loaded(at_end);
}

/// Arranges that `at_end` is called when the calling thread ends by returning or calls `exit`, before keys'
/// functions. Returns whether it will be called. Takes the loader's lock, and allocates.
///
/// # Safety
/// As for [`call_at_end`].
#[cfg(target_env = "gnu")]
pub unsafe fn call_at_exit(at_end: AtEnd) -> bool {
    unsafe extern "C" {
        static __dso_handle: u8;
        fn __cxa_thread_atexit_impl(
            function: AtEnd,
            argument: *mut c_void,
            library: *const c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the function is in this library, which the handle keeps loaded.
    unsafe {
        __cxa_thread_atexit_impl(at_end, ptr::null_mut(), (&raw const __dso_handle).cast()) == 0
    }
}

/// Other C libraries have no such function.
///
/// # Safety
/// As for [`call_at_end`].
#[cfg(not(target_env = "gnu"))]
pub unsafe fn call_at_exit(_: AtEnd) -> bool {
    false
}

/// Makes the loader keep the library that contains a function. (By `dlsym`, since the linker warns of these
/// functions in a static program.)
#[cfg(all(target_env = "gnu", not(miri)))]
fn stay_loaded(function: AtEnd) {
    /// The third argument of `dladdr1`: the loader's own record of the library.
    const RECORD: libc::c_int = 2;
    /// The public beginning of that record.
    #[repr(C)]
    struct Loaded {
        offset: usize,
        name: *const libc::c_char,
    }
    type Find = unsafe extern "C" fn(
        *const c_void,
        *mut libc::Dl_info,
        *mut *const Loaded,
        libc::c_int,
    ) -> libc::c_int;
    type Open = unsafe extern "C" fn(*const libc::c_char, libc::c_int) -> *mut c_void;
    // SAFETY: the functions have these types and get valid arguments; the record lives as long as the library.
    unsafe {
        let look_up = |name: &core::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (find, open) = (look_up(c"dladdr1"), look_up(c"dlopen"));
        if find.is_null() || open.is_null() {
            return;
        }
        let find: Find = core::mem::transmute(find);
        let open: Open = core::mem::transmute(open);
        let mut info = core::mem::MaybeUninit::uninit();
        let mut loaded = ptr::null();
        let found = find(
            function as *const c_void,
            info.as_mut_ptr(),
            &raw mut loaded,
            RECORD,
        );
        // The program itself has no name there.
        if found != 0 && !loaded.is_null() && *(*loaded).name != 0 {
            let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            open((*loaded).name, how);
        }
    }
}

/// Elsewhere no library is unloaded.
#[cfg(not(all(target_env = "gnu", not(miri))))]
fn stay_loaded(_: AtEnd) {}
