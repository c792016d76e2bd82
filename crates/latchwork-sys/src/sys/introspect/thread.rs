//! The state of a thread: from its files in /proc, its scheduling, and the calling thread's stack.
#![allow(unsafe_code)]

use super::own_ids::shows_own_ids;
use super::path::{Path, each_line};
use crate::sys::cancellation::Undisturbed;
use crate::sys::confine::may_open;
use core::ffi::{c_int, c_void};
use core::fmt;
use rustix::io::retry_on_intr;

/// Reads the beginning of a file of /proc; `None`, too, in a process that must not open files.
pub fn read_beginning<'a>(path: fmt::Arguments<'_>, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    if !may_open() {
        return None;
    }
    let _undisturbed = Undisturbed::begin();
    let file = Path::new(path).and_then(|path| path.open()).ok()?;
    let mut count = 0;
    while count < buffer.len() {
        match retry_on_intr(|| rustix::io::read(&file, &mut buffer[count..])).ok()? {
            0 => break,
            more => count += more,
        }
    }
    Some(&buffer[..count])
}

/// Whether this process may read in `/proc` about another one of its PID namespace. (The option `hidepid` hides those of other
/// users, and those that cannot be dumped.)
pub fn shows_process(process: u32) -> bool {
    read_beginning(format_args!("/proc/{process}/stat"), &mut [0; 16]).is_some()
}

/// Whether a SIGKILL was sent to the process of a thread. It stays pending for the process when its threads take theirs.
pub(in crate::sys) fn is_process_killed(process: u32, thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let mut is_killed = false;
    if may_open()
        && let Ok(path) = Path::new(format_args!("/proc/{process}/task/{thread}/status"))
    {
        each_line(&path, |line| {
            let pending = line.strip_prefix("ShdPnd:");
            let signals = pending.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
            is_killed = signals.is_some_and(|signals| signals & SIGKILL != 0);
            signals.is_some()
        });
    }
    is_killed
}

/// The state of a thread, as ps shows it; `None` if the thread does not exist, or `/proc` shows other IDs.
pub fn thread_state(process: u32, thread: u32) -> Option<char> {
    if !shows_own_ids() {
        return None;
    }
    let mut buffer = [0; 128];
    let stat = read_beginning(
        format_args!("/proc/{process}/task/{thread}/stat"),
        &mut buffer,
    )?;
    fields_after_name(stat)?.next()?.chars().next()
}

/// The fields of a thread's or process's `stat` from the third one on. The second, a name in parentheses, may itself
/// contain parentheses, spaces, and any bytes.
pub fn fields_after_name(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = str::from_utf8(&stat[name_end + 1..]).ok()?;
    Some(fields.split_ascii_whitespace())
}

/// The real-time priority of a thread; 0 if it has none.
pub fn priority_of(thread: u32) -> Option<u8> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes a `sched_param`, which is one int.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority) };
    (result == 0).then_some(priority as u8)
}

/// The word on which a thread of this process sleeps, if it is known to sleep on one.
pub fn sleeps_at(thread: u32) -> Option<usize> {
    if !shows_own_ids() {
        return None;
    }
    let mut buffer = [0; 64];
    let call = read_beginning(
        format_args!("/proc/self/task/{thread}/syscall"),
        &mut buffer,
    )?;
    let mut words = str::from_utf8(call).ok()?.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let word = words.next()?.strip_prefix("0x")?;
    (number == libc::SYS_futex).then(|| usize::from_str_radix(word, 16).ok())?
}

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
