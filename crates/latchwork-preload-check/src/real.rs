//! glibc's functions, which the functions of the same names here stand in for.
#![allow(unsafe_code)]

use crate::layout::{Mutex, Opaque, RwLock};
use core::ffi::{c_int, c_uint, c_void};
use libc::{clockid_t, pthread_t, timespec};

/// The start function of a thread.
pub(crate) type Body = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// The same for C11's threads.
pub(crate) type Body11 = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

latchwork_interpose::real_mutexes! {
    (Mutex, Opaque)
    "C" fn pthread_mutex_consistent(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_getprioceiling(mutex: *const Mutex, ceiling: *mut c_int) -> c_int;
    "C" fn pthread_mutex_setprioceiling(mutex: *mut Mutex, ceiling: c_int, old: *mut c_int) -> c_int;
    "C" fn pthread_cond_signal(cond: *mut Opaque) -> c_int;
    "C" fn pthread_cond_broadcast(cond: *mut Opaque) -> c_int;
    "C" fn pthread_rwlock_init(rwlock: *mut RwLock, attributes: *const c_void) -> c_int;
    "C" fn pthread_rwlock_destroy(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_rwlock_rdlock(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_rwlock_wrlock(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_rwlock_tryrdlock(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_rwlock_trywrlock(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_rwlock_timedrdlock(rwlock: *mut RwLock, until: *const timespec) -> c_int;
    "C" fn pthread_rwlock_timedwrlock(rwlock: *mut RwLock, until: *const timespec) -> c_int;
    "C" fn pthread_rwlock_clockrdlock(rwlock: *mut RwLock, clock: clockid_t, until: *const timespec) -> c_int;
    "C" fn pthread_rwlock_clockwrlock(rwlock: *mut RwLock, clock: clockid_t, until: *const timespec) -> c_int;
    "C" fn pthread_rwlock_unlock(rwlock: *mut RwLock) -> c_int;
    "C" fn pthread_spin_init(spin: *mut Opaque, shared: c_int) -> c_int;
    "C" fn pthread_spin_destroy(spin: *mut Opaque) -> c_int;
    "C" fn pthread_spin_lock(spin: *mut Opaque) -> c_int;
    "C" fn pthread_spin_trylock(spin: *mut Opaque) -> c_int;
    "C" fn pthread_spin_unlock(spin: *mut Opaque) -> c_int;
    "C" fn pthread_barrier_init(barrier: *mut Opaque, attributes: *const c_void, count: c_uint) -> c_int;
    "C" fn pthread_barrier_destroy(barrier: *mut Opaque) -> c_int;
    "C" fn pthread_barrier_wait(barrier: *mut Opaque) -> c_int;
    "C" fn sem_init(semaphore: *mut Opaque, shared: c_int, value: c_uint) -> c_int;
    "C" fn sem_destroy(semaphore: *mut Opaque) -> c_int;
    "C-unwind" fn sem_wait(semaphore: *mut Opaque) -> c_int;
    "C" fn sem_post(semaphore: *mut Opaque) -> c_int;
    "C" fn sem_trywait(semaphore: *mut Opaque) -> c_int;
    "C-unwind" fn sem_timedwait(semaphore: *mut Opaque, until: *const timespec) -> c_int;
    "C-unwind" fn sem_clockwait(semaphore: *mut Opaque, clock: clockid_t, until: *const timespec) -> c_int;
    "C-unwind" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    "C" fn pthread_tryjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    "C-unwind" fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void, until: *const timespec) -> c_int;
    "C-unwind" fn pthread_clockjoin_np(thread: pthread_t, result: *mut *mut c_void, clock: clockid_t, until: *const timespec) -> c_int;
    "C-unwind" fn thrd_join(thread: pthread_t, result: *mut c_int) -> c_int;
    "C" fn pthread_create(thread: *mut pthread_t, attributes: *const c_void, body: Body, argument: *mut c_void) -> c_int;
    "C" fn thrd_create(thread: *mut pthread_t, body: Body11, argument: *mut c_void) -> c_int;
    "C" fn free(memory: *mut c_void) -> ();
    "C" fn malloc_usable_size(memory: *mut c_void) -> usize;
    "C" fn dlclose(library: *mut c_void) -> c_int;
    "C" fn munmap(memory: *mut c_void, length: usize) -> c_int;
}

/// Whether `malloc_usable_size` belongs to the program's allocator: the function of another allocator must not be
/// called for its blocks.
pub(crate) fn knows_lengths() -> bool {
    let module = |function: *mut c_void| {
        let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: an address, and memory for the result.
        let found = unsafe {
            libc::dladdr(function, found.as_mut_ptr());
            found.assume_init()
        };
        found.dli_fbase
    };
    let length = symbols::malloc_usable_size.get();
    !length.is_null() && module(length) == module(symbols::free.get())
}
