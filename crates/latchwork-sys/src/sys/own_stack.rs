//! Running a function on a stack of its own, for a thread whose stack may be too small.
//!
//! The switch has unwind information, so a walk through the frames continues with the thread's own stack. A panic is carried
//! over.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::Result;

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
/// `top` is aligned to 16 bytes, and the memory below it is used by nothing else, and is large enough.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(naked)]
unsafe extern "C" fn switch(
    argument: *mut c_void,
    function: extern "C" fn(*mut c_void),
    top: *mut u8,
) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x2",
        "blr x1",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    );
}

/// On other processors the thread's own stack must do.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn switch(argument: *mut c_void, function: extern "C" fn(*mut c_void), _: *mut u8) {
    function(argument);
}

struct Call<F> {
    body: Option<F>,
    result: Result<()>,
}

extern "C" fn run<F: FnOnce()>(call: *mut c_void) {
    // SAFETY: `on` passes its own call, which it does not use meanwhile.
    let call = unsafe { &mut *call.cast::<Call<F>>() };
    if let Some(body) = call.body.take() {
        call.result = catch_unwind(AssertUnwindSafe(body));
    }
}

/// Makes the first whole page of a stack inaccessible, so that what needs more than the stack ends by a signal.
///
/// # Safety
/// The stack has more pages than that one, is of this process's own mapping, and is not used yet.
pub unsafe fn guard(stack: NonNull<u8>) {
    let page = rustix::param::page_size();
    let before = stack.as_ptr().addr().next_multiple_of(page) - stack.as_ptr().addr();
    // SAFETY: by the caller's contract. If the kernel refuses, there is no guard.
    let _ = unsafe {
        let first = stack.as_ptr().add(before).cast();
        rustix::mm::mprotect(first, page, rustix::mm::MprotectFlags::empty())
    };
}

/// Runs `body` on the stack that these bytes are.
///
/// # Safety
/// The memory is writable, is used by nothing else during the call, and is large enough for what `body` does.
pub unsafe fn on(stack: NonNull<u8>, bytes: usize, body: impl FnOnce()) {
    let mut call = Call {
        body: Some(body),
        result: Ok(()),
    };
    let function = run_of(&call);
    // SAFETY: the end of the memory, aligned downwards; the rest by the caller's contract.
    unsafe {
        let end = stack.as_ptr().add(bytes);
        switch((&raw mut call).cast(), function, end.sub(end.addr() % 16));
    }
    if let Err(panic) = call.result {
        resume_unwind(panic);
    }
}

fn run_of<F: FnOnce()>(_: &Call<F>) -> extern "C" fn(*mut c_void) {
    run::<F>
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::introspect;

    #[inline(never)]
    fn frames() -> usize {
        introspect::stack(&mut [0; 64])
    }

    #[test]
    fn a_function_runs_on_another_stack_and_its_frames_lead_to_this_one() {
        let mut stack = vec![0_u8; 1 << 16];
        let range = stack.as_ptr_range();
        let range = range.start.addr()..range.end.addr();
        let start = NonNull::new(stack.as_mut_ptr()).unwrap();
        let (mut at, mut count) = (0, 0);
        // SAFETY: the vector's memory, which nothing else uses.
        unsafe {
            on(start, 1 << 16, || {
                let here = 0_u8;
                at = (&raw const here).addr();
                count = frames();
            });
        }
        assert!(range.contains(&at), "{at:#x} in {range:x?}");
        assert!(count > frames(), "{count}");
        // SAFETY: the same.
        let panic = catch_unwind(|| unsafe { on(start, 1 << 16, || panic!("carried over")) });
        assert!(panic.is_err());
    }
}
