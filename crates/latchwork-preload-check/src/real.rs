//! The functions that are behind the ones of the same name here.
#![allow(unsafe_code)]

use crate::object::{Mutex, Opaque, RwLock};
use core::ffi::{c_int, c_void};
use libc::{clockid_t, pthread_t, timespec};

/// What a thread runs.
pub(crate) type Body = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// The same of C11's.
pub(crate) type Body11 = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

crate::symbol::real! {
    "C" fn pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void) -> c_int;
    "C" fn pthread_mutex_destroy(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_lock(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_trylock(mutex: *mut Mutex) -> c_int;
    "C" fn pthread_mutex_timedlock(mutex: *mut Mutex, until: *const timespec) -> c_int;
    "C" fn pthread_mutex_clocklock(mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int;
    "C" fn pthread_mutex_unlock(mutex: *mut Mutex) -> c_int;
    "C" fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int;
    "C" fn pthread_cond_init(cond: *mut Opaque, attributes: *const c_void) -> c_int;
    "C" fn pthread_cond_destroy(cond: *mut Opaque) -> c_int;
    "C-unwind" fn pthread_cond_wait(cond: *mut Opaque, mutex: *mut Mutex) -> c_int;
    "C-unwind" fn pthread_cond_timedwait(cond: *mut Opaque, mutex: *mut Mutex, until: *const timespec) -> c_int;
    "C-unwind" fn pthread_cond_clockwait(cond: *mut Opaque, mutex: *mut Mutex, clock: clockid_t, until: *const timespec) -> c_int;
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
    "C" fn pthread_barrier_wait(barrier: *mut Opaque) -> c_int;
    "C-unwind" fn sem_wait(semaphore: *mut Opaque) -> c_int;
    "C" fn sem_trywait(semaphore: *mut Opaque) -> c_int;
    "C-unwind" fn sem_timedwait(semaphore: *mut Opaque, until: *const timespec) -> c_int;
    "C-unwind" fn sem_clockwait(semaphore: *mut Opaque, clock: clockid_t, until: *const timespec) -> c_int;
    "C-unwind" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
    "C" fn pthread_create(thread: *mut pthread_t, attributes: *const c_void, body: Body, argument: *mut c_void) -> c_int;
    "C" fn thrd_create(thread: *mut pthread_t, body: Body11, argument: *mut c_void) -> c_int;
    "C" fn free(memory: *mut c_void) -> ();
    "C" fn munmap(memory: *mut c_void, length: usize) -> c_int;
}
