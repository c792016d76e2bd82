//! Stacks of a model's tasks, reused from one execution to the next.
//!
//! Loom maps a stack for each task of each execution, protects its guard page, and unmaps it again. That takes
//! more than half of an execution's time, and two models in one process contend for the kernel's lock on the
//! address space. Loom has no setting to keep stacks. So this module defines the three functions that loom
//! calls; a program's functions take precedence over libc's of the same names. An unmapped stack is kept, with
//! its guard page, for the next stack of the same length in the same thread. All other calls go to the kernel
//! unchanged. libc's own calls use other names and do not come here.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use libc::{MAP_STACK, PROT_NONE, SYS_mmap, SYS_mprotect, SYS_munmap, off_t, size_t};

/// A stack of a thread's models.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stack {
    base: usize,
    length: usize,
    is_guarded: bool,
    is_used: bool,
}

const NONE: Stack = Stack {
    base: 0,
    length: 0,
    is_guarded: false,
    is_used: true,
};

std::thread_local! {
    /// More entries than loom has tasks. Without a destructor, since stacks are mapped and unmapped at any time.
    static STACKS: [Cell<Stack>; 16] = const { [const { Cell::new(NONE) }; 16] };
}

/// Changes the first stack that `is_it` selects.
fn change(is_it: impl Fn(Stack) -> bool, change: impl FnOnce(&mut Stack)) -> Option<Stack> {
    STACKS.with(|stacks| {
        let place = stacks.iter().find(|place| is_it(place.get()))?;
        let mut stack = place.get();
        change(&mut stack);
        place.set(stack);
        Some(stack)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    base: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = flags & MAP_STACK != 0 && base.is_null();
    let is_it = |stack: Stack| !stack.is_used && stack.length == length;
    if is_stack && let Some(stack) = change(is_it, |stack| stack.is_used = true) {
        return core::ptr::with_exposed_provenance_mut(stack.base);
    }
    // SAFETY: the arguments and the contract are those of the caller's call.
    let at = unsafe { libc::syscall(SYS_mmap, base, length, protection, flags, file, offset) };
    if is_stack && at != -1 {
        let fresh = Stack {
            base: at as usize,
            length,
            is_guarded: false,
            is_used: true,
        };
        change(|stack| stack == NONE, |place| *place = fresh);
    }
    core::ptr::with_exposed_provenance_mut(at as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(base: *mut c_void, length: size_t, protection: c_int) -> c_int {
    let is_it = |stack: Stack| stack.base == base.addr() && protection == PROT_NONE;
    let mut was_guarded = false;
    change(is_it, |stack| {
        was_guarded = core::mem::replace(&mut stack.is_guarded, true);
    });
    if was_guarded {
        return 0;
    }
    // SAFETY: the arguments and the contract are those of the caller's call.
    unsafe { libc::syscall(SYS_mprotect, base, length, protection) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(base: *mut c_void, length: size_t) -> c_int {
    let is_it = |stack: Stack| stack.base == base.addr() && stack.length == length;
    if change(is_it, |stack| stack.is_used = false).is_some() {
        return 0;
    }
    // SAFETY: the arguments and the contract are those of the caller's call.
    unsafe { libc::syscall(SYS_munmap, base, length) as c_int }
}
