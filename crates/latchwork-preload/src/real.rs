//! glibc's functions, which the functions of the same names here replace.
#![allow(unsafe_code)]

use crate::memory::{Cond, Mutex};
use core::ffi::c_int;

latchwork_interpose::real_mutexes! {
    (Mutex, Cond)
    "C" fn pthread_cond_signal(cond: *mut Cond) -> c_int;
    "C" fn pthread_cond_broadcast(cond: *mut Cond) -> c_int;
    "C" fn cnd_init(cond: *mut Cond) -> c_int;
}
