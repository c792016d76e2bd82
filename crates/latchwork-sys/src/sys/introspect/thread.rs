//! The state of a thread: from its files in /proc, and its scheduling.
#![allow(unsafe_code)]

use super::path::Path;
use core::fmt;
use rustix::fs::{CWD, Mode, OFlags};

/// Reads the beginning of a file of /proc.
pub fn read_beginning<'a>(path: fmt::Arguments<'_>, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let path = Path::new(path).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path.as_c_str().ok()?, flags, Mode::empty()).ok()?;
    let mut count = 0;
    while count < buffer.len() {
        match rustix::io::read(&file, &mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(&buffer[..count])
}

/// The state of a thread, as ps shows it; `None` if the thread does not exist.
pub fn thread_state(process: u32, thread: u32) -> Option<char> {
    let mut buffer = [0; 128];
    let stat = read_beginning(
        format_args!("/proc/{process}/task/{thread}/stat"),
        &mut buffer,
    )?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_end + 2).map(|state| char::from(*state))
}

/// The real-time priority of a thread; 0 if it has none.
pub fn priority_of(thread: u32) -> Option<u8> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes a `sched_param`, which is one int.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority) };
    (result == 0).then_some(priority as u8)
}

/// The word on which a thread of this process sleeps, if it sleeps on one.
pub fn sleeps_at(thread: u32) -> Option<usize> {
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
