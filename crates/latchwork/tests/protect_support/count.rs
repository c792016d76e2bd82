//! Counts a thread's system calls that concern its priority, as the kernel meets them: a seccomp
//! filter sends each to a signal handler, which counts it and makes it in its stead.

use core::cell::Cell;
use std::sync::Once;

/// Calls of the calling thread so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Those that set the policy or the priority.
    pub changes: u32,
    /// Those that ask for them.
    pub reads: u32,
}

thread_local! {
    static CALLS: Cell<Calls> = const { Cell::new(Calls { changes: 0, reads: 0 }) };
}

const CHANGES: [libc::c_long; 3] = [
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];
const LOOKS: [libc::c_long; 3] = [
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getattr,
];
/// Sixth argument of the calls that the handler makes.
const PASS: u32 = 0x4c57_5031;
/// Where `seccomp_data` has the low half of the sixth argument, on little-endian machines.
const SIXTH: u32 = 56;

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
    // SAFETY: errno is this thread's; for SIGSYS the call's number lies after its address; the
    // context is this signal's.
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
        let mut calls = CALLS.get();
        if CHANGES.contains(&number) {
            calls.changes += 1;
        } else {
            calls.reads += 1;
        }
        CALLS.set(calls);
    }
}

/// Counts the calling thread's calls from now on, for the rest of its life.
pub fn start() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: all-zero is a valid sigaction; the handler interrupts system calls only.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = make_and_count as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut()),
                0
            );
        }
    });
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal =
        |yes, no, value| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let end = |value| statement(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let numbers: Vec<u32> = CHANGES
        .iter()
        .chain(&LOOKS)
        .map(|call| *call as u32)
        .collect();
    // The number of the call comes first.
    let mut filter = vec![load(0)];
    for (index, number) in numbers.iter().enumerate() {
        let rest = numbers.len() - 1 - index;
        // Equal: go on to the check of the sixth argument. Equal to none: to the last line.
        filter.push(equal(rest as u8, if rest == 0 { 3 } else { 0 }, *number));
    }
    filter.extend([
        load(SIXTH),
        equal(1, 0, PASS),
        end(libc::SECCOMP_RET_TRAP),
        end(libc::SECCOMP_RET_ALLOW),
    ]);
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program; the filter is this thread's.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

fn statement(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}

/// The calls that `body` makes.
pub fn calls(body: impl FnOnce()) -> Calls {
    let before = CALLS.get();
    body();
    let after = CALLS.get();
    Calls {
        changes: after.changes - before.changes,
        reads: after.reads - before.reads,
    }
}
