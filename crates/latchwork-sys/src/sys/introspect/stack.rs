//! The calling thread's stack.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

/// Stores the return addresses on the calling thread's stack, innermost first; returns their number.
pub fn stack(frames: &mut [u64]) -> usize {
    struct Walk<'a> {
        frames: &'a mut [u64],
        count: usize,
    }

    #[repr(C)]
    struct Context([u8; 0]);

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            trace: extern "C" fn(*mut Context, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut Context) -> usize;
    }

    extern "C" fn note(context: *mut Context, argument: *mut c_void) -> c_int {
        const GO_ON: c_int = 0;
        const STOP: c_int = 4;
        // SAFETY: the argument is the pointer that `_Unwind_Backtrace` was given below.
        let walk = unsafe { &mut *argument.cast::<Walk<'_>>() };
        let Some(frame) = walk.frames.get_mut(walk.count) else {
            return STOP;
        };
        // SAFETY: the context is the unwinder's, during its call.
        *frame = unsafe { _Unwind_GetIP(context) } as u64;
        walk.count += 1;
        GO_ON
    }

    let mut walk = Walk { frames, count: 0 };
    // SAFETY: `_Unwind_Backtrace` is the C++ runtime's, which Rust programs link; it calls only `note`, with a
    // pointer that lives until it returns.
    unsafe { _Unwind_Backtrace(note, (&raw mut walk).cast()) };
    walk.count
}
