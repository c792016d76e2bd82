//! The start of checking: the constructor of this library, and the fork handler.
#![allow(unsafe_code)]

use crate::{checked, condition, real, sum, task};
use latchwork::check::{hook, is_on};
use latchwork_interpose::errno::keeping_errno;
use latchwork_interpose::{counts, say};

extern "C" fn in_child() {
    checked::begin_process();
}

/// Called by the dynamic linker, after the constructors of other libraries and before the program's.
extern "C" fn start() {
    keeping_errno(|| {
        real::look_up_all();
        task::prepare();
        condition::prepare();
        say::prepare();
        counts::prepare();
        sum::prepare();
        if is_on() {
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            hook::joins_are_reported();
            checked::begin();
        }
    });
}

// SAFETY: `.init_array` is a section of pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
