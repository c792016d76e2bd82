//! What is done as a thread ends, and how a thread asks for it without a lock.
//!
//! | what calls | when | asked for |
//! | --- | --- | --- |
//! | a key (`pthread_key_create`) | the thread ends, after the destructors of its thread-locals, in rounds with other keys | at the first use of a lock |
//! | the loader (`__cxa_thread_atexit_impl`) | as the first thing of `exit` | for the first thread, when this library is loaded by it; for others where there is no key |
//! | this library's end (`.fini_array`) | `exit`, as one of the last things | – |
//!
//! To set a key's value is a store, for each of the first 32 keys. (For others glibc allocates, once for each thread.)
//! So the key is made when this library is loaded. What the loader does as a thread ends is asked for under its lock, and
//! allocates: another thread may hold that lock, in the constructor of a library that it loads, and wait for the calling
//! one; and a signal handler may have interrupted the allocator.
//!
//! What a key calls must stay where it is. So this library cannot be unloaded.
#![allow(unsafe_code)]

use super::thread;
use crate::atomic::{AtomicU32, Ordering};
use core::ffi::c_void;
use core::ptr;

/// What is called. The argument has no meaning.
pub type AtEnd = unsafe extern "C" fn(*mut c_void);

/// The rounds in which keys' functions are called, at least: a value that is set again in one is there in the next.
pub const ROUNDS: u32 = 4;

/// The key's number + 1; 0: not made yet; [`NONE`].
static KEY: AtomicU32 = AtomicU32::new(0);
/// There are too many.
const NONE: u32 = u32::MAX;
/// Not 0: the key is made when it is needed, see `make_no_key_yet`.
static IS_LATE: AtomicU32 = AtomicU32::new(0);

/// Has `at_end` called when the calling thread ends, or, where it is called for that reason already, once more. It is the
/// same function in all calls. Whether it will be.
pub fn call_at_end(at_end: AtEnd) -> bool {
    let key = match KEY.load(Ordering::Relaxed) {
        0 => make_key(at_end),
        key => key,
    };
    // SAFETY: a key that stays; the value is not looked at.
    key != NONE && unsafe { libc::pthread_setspecific(key - 1, ptr::dangling()) == 0 }
}

/// Relaxed, here and above: nothing but a number. Two at the same time make two, of which one is not used any more.
#[cold]
fn make_key(at_end: AtEnd) -> u32 {
    let mut key = 0;
    // SAFETY: a place for the key, and a function that stays. (glibc's takes no lock.)
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) };
    let key = if made == 0 { key + 1 } else { NONE };
    KEY.store(key, Ordering::Relaxed);
    key
}

/// For an interposer whose threads need no record: of the keys that a program can have, none is taken from it. Before there
/// is a second thread.
#[cfg(feature = "foreign")]
pub fn make_no_key_yet() {
    IS_LATE.store(1, Ordering::Relaxed);
    let key = KEY.swap(0, Ordering::Relaxed);
    if key != 0 && key != NONE {
        // SAFETY: made here, and not used yet.
        unsafe { libc::pthread_key_delete(key - 1) };
    }
}

/// For the time when this library is loaded, by whichever thread.
pub fn prepare(at_end: AtEnd) {
    if IS_LATE.load(Ordering::Relaxed) == 0 {
        make_key(at_end);
    }
    if thread::thread_id() == thread::process_id() {
        call_at_exit(at_end);
    }
    stay_loaded(at_end);
}

/// Has `at_end` called when the calling thread ends by returning, or calls `exit`, before keys' functions. Whether it will
/// be. Takes the loader's lock, and allocates.
#[cfg(target_env = "gnu")]
pub fn call_at_exit(at_end: AtEnd) -> bool {
    unsafe extern "C" {
        static __dso_handle: u8;
        fn __cxa_thread_atexit_impl(
            function: AtEnd,
            argument: *mut c_void,
            library: *const c_void,
        ) -> libc::c_int;
    }
    // SAFETY: a function of this library, which its handle keeps.
    unsafe {
        __cxa_thread_atexit_impl(at_end, ptr::null_mut(), (&raw const __dso_handle).cast()) == 0
    }
}

/// Other C libraries have no such function.
#[cfg(not(target_env = "gnu"))]
pub fn call_at_exit(_: AtEnd) -> bool {
    false
}

/// Has the loader keep the library that a function is in. (Looked up: in a static program the linker warns of them.)
#[cfg(all(target_env = "gnu", not(miri)))]
fn stay_loaded(function: AtEnd) {
    /// For the third argument: the loader's own record of the library.
    const RECORD: libc::c_int = 2;
    /// As far as it is public.
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
    // SAFETY: functions of these types, which are given what they expect; the record is there as long as the library.
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

/// Others unload nothing.
#[cfg(not(all(target_env = "gnu", not(miri))))]
fn stay_loaded(_: AtEnd) {}
