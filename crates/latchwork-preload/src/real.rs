//! The functions that are behind the ones of the same name here.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex};
use core::ffi::{c_int, c_void};
use libc::{clockid_t, timespec};

crate::symbol::real! {
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
