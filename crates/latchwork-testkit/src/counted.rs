//! A thread's system calls, counted as the kernel meets them.
#![allow(unsafe_code)]

use crate::sandbox::install;
use core::cell::Cell;
use std::sync::Once;

/// Calls of different numbers that one thread counts, at most.
const MOST: usize = 8;
/// The sixth argument of the calls that the handler makes.
const PASS: u32 = 0x4c57_5031;
/// Where `seccomp_data` has the low half of the sixth argument, on little-endian machines.
const SIXTH: u32 = 56;

thread_local! {
    /// The numbers of the calls that this thread counts, and how many of each it has made.
    static COUNTED: [Cell<(libc::c_long, u32)>; MOST] = const { [const { Cell::new((-1, 0)) }; MOST] };
}

#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *mut libc::ucontext_t) -> ([usize; 4], *mut usize) {
    // SAFETY: by the caller, a signal's context.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10]
        .map(|register| registers[register as usize] as usize);
    (
        arguments,
        (&raw mut registers[libc::REG_RAX as usize]).cast(),
    )
}

#[cfg(target_arch = "aarch64")]
unsafe fn registers(context: *mut libc::ucontext_t) -> ([usize; 4], *mut usize) {
    // SAFETY: by the caller, a signal's context.
    let registers = unsafe { &mut (*context).uc_mcontext.regs };
    let arguments = [0, 1, 2, 3].map(|register| registers[register] as usize);
    (arguments, (&raw mut registers[0]).cast())
}

extern "C" fn make_and_count(
    _: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut core::ffi::c_void,
) {
    // SAFETY: errno is this thread's; for SIGSYS the call's number lies after its address; the context is this signal's.
    unsafe {
        let errno = *libc::__errno_location();
        let number: libc::c_long = (*info.cast::<[i32; 8]>())[6].into();
        let ([a, b, c, d], result) = registers(context.cast());
        let made = libc::syscall(number, a, b, c, d, 0_usize, PASS as usize);
        *result = if made < 0 {
            (-i64::from(*libc::__errno_location())) as usize
        } else {
            made as usize
        };
        *libc::__errno_location() = errno;
        COUNTED.with(|counted| {
            if let Some(place) = counted.iter().find(|place| place.get().0 == number) {
                place.set((number, place.get().1 + 1));
            }
        });
    }
}

/// Counts the calling thread's calls of these numbers from now on, for the rest of its life. A seccomp filter sends each
/// to a signal handler, which counts it and makes it in its stead; so the call takes four arguments at most.
///
/// # Panics
/// If there are more than 8, or the kernel refuses the filter.
pub fn count_calls(numbers: &[libc::c_long]) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: all-zero is a valid sigaction; the handler interrupts system calls only.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = make_and_count as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let done = libc::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut());
            assert_eq!(done, 0);
        }
    });
    assert!(numbers.len() <= MOST, "{numbers:?}");
    COUNTED.with(|counted| {
        for (place, number) in counted.iter().zip(numbers) {
            place.set((*number, 0));
        }
    });
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal =
        |yes, no, value| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let end = |value| statement(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    // The number of the call comes first.
    let mut filter = vec![load(0)];
    for (index, number) in numbers.iter().enumerate() {
        let rest = numbers.len() - 1 - index;
        // Equal: go on to the check of the sixth argument. Equal to none: to the last line.
        filter.push(equal(
            rest as u8,
            if rest == 0 { 3 } else { 0 },
            *number as u32,
        ));
    }
    filter.extend([
        load(SIXTH),
        equal(1, 0, PASS),
        end(libc::SECCOMP_RET_TRAP),
        end(libc::SECCOMP_RET_ALLOW),
    ]);
    install(&mut filter);
}

fn statement(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}

/// How many calls of these numbers `body` makes, in the calling thread, which [counts](count_calls) them.
pub fn calls_in(numbers: &[libc::c_long], body: impl FnOnce()) -> u32 {
    let sum = || {
        COUNTED.with(|counted| {
            let each = counted.iter().map(Cell::get);
            each.filter(|(number, _)| numbers.contains(number))
                .map(|(_, count)| count)
                .sum::<u32>()
        })
    };
    let before = sum();
    body();
    sum() - before
}
