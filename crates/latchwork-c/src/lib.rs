//! Latchwork for C and C++.
//!
//! The interface is that of the headers in `include`; here is what they call where a lock is not free. A lock
//! is the same word for C and for Rust: the layouts below are asserted on both sides.
//!
//! | file | what |
//! | --- | --- |
//! | `include/latchwork.h` | locks, with inlined fast paths |
//! | `include/coproc.h` | the CoProc library's interface |
//! | `include/latchwork.hpp`, `include/coproc.hpp` | the same as C++ classes |
//! | `include/migrate.h` | from semaphores to mutexes, type by type |
//! | `include/classic.h` | RTEMS's classic interface |
//! | `src/debug.rs` | mutexes that tell the checker what is done with them |
//! | `src/inline.c` | each inline function as a symbol |
//! | `src/wait.c`, `src/once.c` | where a thread may be unwound: no frame of Rust is on its stack there |
//! | `latchwork.map` | what is exported, with its version |
//!
//! *Panics* never reach C: each function here is `extern "C"`, which aborts.
#![allow(unsafe_code)]

mod classic;
mod coproc;
mod debug;
mod lock;
mod pause;

use latchwork::foreign::How;
use latchwork::time::Deadline;

/// A deadline that C hands over: nanoseconds, or none.
fn deadline_of(nanoseconds: u64) -> Option<Deadline> {
    (nanoseconds != u64::MAX).then(|| Deadline::from_nanoseconds(nanoseconds))
}

/// `LW__ENDLESS` and its like.
fn how_of(how: u32, deadline: u64) -> How {
    match how {
        0 => How::Endless,
        1 => How::Try,
        2 => How::Until(Deadline::from_nanoseconds(deadline)),
        _ => How::Interruptible(deadline_of(deadline)),
    }
}
