//! Latchwork for C and C++.
//!
//! The interface is that of the headers in `include`; this crate contains their slow paths, for locks that are not
//! free. A lock is the same word for C and for Rust: both sides assert the layouts.
//!
//! | file | contents |
//! | --- | --- |
//! | `include/latchwork.h` | locks, with inlined fast paths |
//! | `include/latchwork/region.h`, `include/latchwork/queue.h` | regions, and queues in them |
//! | `include/coproc.h` | the CoProc library's interface |
//! | `include/latchwork.hpp`, `include/coproc.hpp` | the same as C++ classes |
//! | `include/migrate.h` | from semaphores to mutexes, type by type |
//! | `include/classic.h` | RTEMS's classic interface |
//! | `src/debug.rs` | mutexes that report their use to the checker |
//! | `src/inline.c` | each inline function as a symbol |
//! | `src/classic.c`, `classic_storage.c`, `classic_time.c` | RTEMS's tasks, queues in the program's memory, ticks |
//! | `src/queue.c` | the waits of queues: points in time, cancellation |
//! | `src/wait.c`, `src/once.c` | code in which a thread may be unwound: no Rust frame is on the stack there |
//! | `latchwork.map` | the exported symbols and their versions |
//!
//! *Panics* never reach C: each function here is `extern "C"`, so a panic aborts.
#![allow(unsafe_code)]

mod classic;
mod coproc;
mod debug;
mod failure;
#[doc(hidden)]
pub mod headers;
mod lock;
mod pause;
mod queue;
mod region;
mod rwlock;

use core::ffi::c_void;
use core::slice;
use latchwork::foreign::Blocking;
use latchwork::time::Deadline;

/// A deadline from C: nanoseconds, or none.
fn deadline_of(nanoseconds: u64) -> Option<Deadline> {
    (nanoseconds != u64::MAX).then(|| Deadline::from_nanoseconds(nanoseconds))
}

/// Converts `LW__ENDLESS` and the other wait modes.
fn how_of(how: u32, deadline: u64) -> Blocking {
    match how {
        0 => Blocking::Forever,
        1 => Blocking::Try,
        2 => Blocking::Until(Deadline::from_nanoseconds(deadline)),
        _ => Blocking::Interruptible(deadline_of(deadline)),
    }
}

/// The bytes that a caller passes; `None` for a null pointer.
///
/// # Safety
/// `bytes` is null, or points to `count` readable bytes, which nothing changes during the call.
unsafe fn bytes<'a>(bytes: *const c_void, count: usize) -> Option<&'a [u8]> {
    // SAFETY: by the caller's contract. No slice is longer than the address space allows.
    (!bytes.is_null())
        .then(|| unsafe { slice::from_raw_parts(bytes.cast(), count.min(isize::MAX as usize)) })
}

/// The buffer that a caller passes; `None` for a null pointer.
///
/// # Safety
/// `bytes` is null, or points to `count` bytes, which nothing else uses during the call.
unsafe fn bytes_mut<'a>(bytes: *mut c_void, count: usize) -> Option<&'a mut [u8]> {
    // SAFETY: by the caller's contract. No slice is longer than the address space allows.
    (!bytes.is_null())
        .then(|| unsafe { slice::from_raw_parts_mut(bytes.cast(), count.min(isize::MAX as usize)) })
}
