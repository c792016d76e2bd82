//! glibc's functions, which the functions of the same names here replace.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex, Semaphore};
use core::ffi::{c_int, c_uint};
use libc::{clockid_t, timespec};

latchwork_interpose::real_mutexes! {
    (Mutex, Cond)
    "C" fn pthread_cond_signal(cond: *mut Cond) -> c_int;
    "C" fn pthread_cond_broadcast(cond: *mut Cond) -> c_int;
    "C" fn cnd_init(cond: *mut Cond) -> c_int;
    "C" fn sem_init(semaphore: *mut Semaphore, shared: c_int, value: c_uint) -> c_int;
    "C" fn sem_destroy(semaphore: *mut Semaphore) -> c_int;
    "C-unwind" fn sem_wait(semaphore: *mut Semaphore) -> c_int;
    "C-unwind" fn sem_timedwait(semaphore: *mut Semaphore, until: *const timespec) -> c_int;
    "C-unwind" fn sem_clockwait(
        semaphore: *mut Semaphore, clock: clockid_t, until: *const timespec
    ) -> c_int;
}
