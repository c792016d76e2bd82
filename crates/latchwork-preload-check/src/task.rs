//! Threads, which are checked from their first instruction on; memory that is freed.
//!
//! A thread's record is set up before the program's own code runs in it. That takes no lock of the C library's or the
//! loader's: a thread may begin, and end, while the loader runs the constructor of a library that waits for it.
#![allow(unsafe_code)]

use crate::checked;
use crate::entry::entry;
use crate::real::{self, Body, Body11};
use crate::take::site;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use latchwork::check::hook;
use latchwork_interpose::errno::keeping_errno;
use libc::{pthread_attr_t, pthread_t};

entry! {
    free 1 free_checked;
    munmap 2 unmap;
}

/// See [`real::knows_lengths`].
static KNOWS_LENGTHS: AtomicBool = AtomicBool::new(false);

/// Whether the program has no allocator before this library in the search order: all its frees are then seen here.
static SEES_FREES: AtomicBool = AtomicBool::new(false);

/// See [`SEES_FREES`].
pub(crate) fn sees_frees() -> bool {
    SEES_FREES.load(Ordering::Relaxed)
}

/// Called before the first thread is checked.
pub(crate) fn prepare() {
    KNOWS_LENGTHS.store(real::knows_lengths(), Ordering::Relaxed);
    // SAFETY: the name ends in NUL. The first definition found is the one that the program calls.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr()) };
    let sees = core::ptr::eq(called, free as *const c_void);
    SEES_FREES.store(sees, Ordering::Relaxed);
}

/// How much stack a thread gets in addition to what the program requests: more than the checker needs of it, since it searches
/// and reports on stacks of its own.
const MORE_STACK: usize = 64 << 10;

/// Enlarges a stack size that the program requests by [`MORE_STACK`] if it is small, unless the program provides the memory
/// itself.
///
/// # Safety
/// `attributes` is null, or points to attributes of the caller's, which outlive the result.
unsafe fn with_more_stack(attributes: *const c_void) -> Option<pthread_attr_t> {
    let mut attributes = {
        // SAFETY: by the contract. What the copy refers to still belongs to the original, which alone is destroyed.
        unsafe {
            attributes
                .cast::<pthread_attr_t>()
                .as_ref()
                .map(|found| core::ptr::read(found))
        }
    }?;
    let (mut begin, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: valid attributes, and memory for the results. If the program has set no size, the size is 0; if it
    // provides no memory, the stack ends at address 0.
    unsafe {
        libc::pthread_attr_getstack(&raw const attributes, &raw mut begin, &raw mut size);
        let is_small = (1..2 * MORE_STACK).contains(&size) && begin.addr().wrapping_add(size) == 0;
        (is_small && libc::pthread_attr_setstacksize(&raw mut attributes, size + MORE_STACK) == 0)
            .then_some(attributes)
    }
}

/// The start function and argument of a thread.
struct Start<B> {
    body: B,
    argument: *mut c_void,
}

impl<B: Copy> Start<B> {
    /// Null if there is no memory. (Uses the program's own `malloc` and `free`, which it may have replaced.)
    unsafe fn new(body: B, argument: *mut c_void) -> *mut Self {
        // SAFETY: memory for one value, or null.
        unsafe {
            let start: *mut Self = libc::malloc(size_of::<Self>()).cast();
            if !start.is_null() {
                start.write(Self { body, argument });
            }
            start
        }
    }

    /// The first step of a new thread.
    unsafe fn begin(start: *mut c_void) -> (B, *mut c_void) {
        // SAFETY: `new` made the value, for this call alone.
        let Self { body, argument } = unsafe { start.cast::<Self>().read() };
        // SAFETY: `malloc` returned the memory in `new`, and the value was moved out of it.
        unsafe { libc::free(start) };
        checked::begin_thread();
        (body, argument)
    }
}

unsafe extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below passed the pointer. (The thread may end in here by unwinding: nothing is dropped.)
    unsafe {
        let (body, argument) = Start::<Body>::begin(start);
        body(argument)
    }
}

unsafe extern "C-unwind" fn run11(start: *mut c_void) -> c_int {
    // SAFETY: `thrd_create` below passed the pointer. (The thread may end in here by unwinding: nothing is dropped.)
    unsafe {
        let (body, argument) = Start::<Body11>::begin(start);
        body(argument)
    }
}

/// Stands in for glibc's function of this name.
///
/// # Safety
/// As for glibc's function.
// SAFETY: it does what the function of this name does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const c_void,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the program's own call, except for the code that the thread runs first.
    unsafe {
        let start = Start::new(body, argument);
        if start.is_null() {
            return libc::EAGAIN;
        }
        let with_more_stack = with_more_stack(attributes);
        let attributes = with_more_stack
            .as_ref()
            .map_or(attributes, |larger| core::ptr::from_ref(larger).cast());
        let result = real::pthread_create(thread, attributes, run, start.cast());
        if result != 0 {
            libc::free(start.cast());
        }
        result
    }
}

/// Stands in for glibc's function of this name.
///
/// # Safety
/// As for glibc's function.
// SAFETY: it does what the function of this name does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    body: Body11,
    argument: *mut c_void,
) -> c_int {
    const NO_MEMORY: c_int = 3;
    // SAFETY: the program's own call, except for the code that the thread runs first.
    unsafe {
        let start = Start::new(body, argument);
        if start.is_null() {
            return NO_MEMORY;
        }
        let result = real::thrd_create(thread, run11, start.cast());
        if result != 0 {
            libc::free(start.cast());
        }
        result
    }
}

unsafe extern "C" fn free_checked(memory: *mut c_void, at: usize) {
    if !memory.is_null() && checked::this_thread() {
        // Relaxed: stored before any thread is checked. If the length is unknown, only a lock at the beginning is
        // found.
        let length = if KNOWS_LENGTHS.load(Ordering::Relaxed) {
            // SAFETY: a block of the allocator whose function is called, and to which it is freed.
            unsafe { real::malloc_usable_size(memory) }
        } else {
            1
        };
        let range = memory.addr()..memory.addr() + length;
        if hook::may_be_in(&range) {
            keeping_errno(|| hook::freed(range, site(at)));
        }
    }
    // SAFETY: the program's own call.
    unsafe { real::free(memory) }
}

unsafe extern "C" fn unmap(memory: *mut c_void, length: usize, at: usize) -> c_int {
    if checked::this_thread() {
        let begin = memory.addr();
        keeping_errno(|| hook::freed(begin..begin.saturating_add(length), site(at)));
    }
    // SAFETY: the program's own call.
    unsafe { real::munmap(memory, length) }
}
