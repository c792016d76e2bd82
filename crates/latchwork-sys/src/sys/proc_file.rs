//! Facts from `/proc` about the calling process, and others.
#![allow(unsafe_code)]

use super::introspect::{fields_after_name, is_process_killed, read_beginning, shows_own_ids};
use core::ops::Range;

/// Fields of `/proc/self/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub threads: usize,
    /// The address range of the arguments that `/proc/PID/cmdline` shows.
    pub arguments: Range<usize>,
}

/// Reads `/proc/self/stat`; `None` if there is none, or its format is unknown.
pub fn stat() -> Option<Stat> {
    let mut room = [0; 1024];
    parse(read_beginning(format_args!("/proc/self/stat"), &mut room)?)
}

fn parse(stat: &[u8]) -> Option<Stat> {
    let fields: Vec<&str> = fields_after_name(stat)?.collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<usize>().ok();
    let (start, end) = (number(48)?, number(49)?);
    Some(Stat {
        threads: number(20)?,
        arguments: if start <= end { start..end } else { 0..0 },
    })
}

/// Whether a thread of this process is being killed with it, or is ending by itself. `false` also if `/proc` does not say.
/// Allocates nothing.
pub fn is_ending(thread: u32) -> bool {
    shows_own_ids() && ending_at(format_args!("/proc/self/task/{thread}/stat")).unwrap_or(false)
}

/// As [`is_ending`], for a thread of another process. `None`: the file cannot be read, since the thread has ended (so the kernel
/// has walked its robust list), or since `/proc` hides the process.
pub fn is_ending_in(process: u32, thread: u32) -> Option<bool> {
    ending_at(format_args!("/proc/{process}/task/{thread}/stat"))
}

/// As [`is_ending_in`], where a wrong `false` does harm. A thread takes its SIGKILL before the kernel flags it, and the file has the
/// flags before the signals: a second reading sees what the first one missed. If the kernel preempts the thread between the two for
/// so long, only a SIGKILL that was sent to the whole process shows.
pub fn is_surely_ending_in(process: u32, thread: u32) -> Option<bool> {
    let first = is_ending_in(process, thread);
    if first != Some(false) {
        return first;
    }
    if is_process_killed(process, thread) {
        return Some(true);
    }
    std::thread::yield_now();
    is_ending_in(process, thread).or(first)
}

fn ending_at(stat: core::fmt::Arguments<'_>) -> Option<bool> {
    let mut room = [0; 1024];
    read_beginning(stat, &mut room).and_then(parse_ending)
}

/// When a process has to end, the kernel adds a SIGKILL to the pending signals of each of its threads before
/// any of them ends. Each thread takes the signal, is flagged as killed by one, and then as exiting.
fn parse_ending(stat: &[u8]) -> Option<bool> {
    const EXITING: u64 = 0x4;
    const SIGNALED: u64 = 0x400;
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let mut fields = fields_after_name(stat)?;
    // Counted from 3: state, flags and pending signals are the 3rd, the 9th and the 31st.
    let is_gone = matches!(fields.next()?, "Z" | "X");
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let pending: u64 = fields.nth(21)?.parse().ok()?;
    Some(is_gone || flags & (EXITING | SIGNALED) != 0 || pending & SIGKILL != 0)
}

/// Makes `/proc/PID/cmdline` show `title`, as far as it fits over the arguments.
///
/// # Safety
/// `arguments` is the range of this process's arguments, and no code uses them.
pub unsafe fn set_title(arguments: &Range<usize>, title: &[u8]) {
    let room = arguments.len();
    if room < 2 {
        return;
    }
    let start: *mut u8 = core::ptr::with_exposed_provenance_mut(arguments.start);
    let kept = title.len().min(room - 2);
    // SAFETY: the writes stay inside the arguments, which no code uses by this function's contract.
    unsafe {
        start.write_bytes(0, room);
        start.copy_from(title.as_ptr(), kept);
        // If the last byte is not NUL, the kernel shows the first string alone.
        start.add(room - 1).write(b' ');
    }
}

/// Opens a control group's list of members, to which a process adds itself.
pub fn open_cgroup(directory: &std::path::Path) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(
        directory.join("cgroup.procs"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Moves the calling process into a control group.
pub fn enter_cgroup(members: rustix::fd::BorrowedFd<'_>) -> Result<(), rustix::io::Errno> {
    rustix::io::write(members, b"0").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_shows_in_flags_and_pending_signals() {
        let stat = |state: &str, flags: u64, pending: u64| {
            let mut fields: Vec<String> = (3..=52).map(|_| "0".to_owned()).collect();
            fields[0] = state.to_owned();
            fields[9 - 3] = flags.to_string();
            fields[31 - 3] = pending.to_string();
            parse_ending(format!("7 (a) b (c)) {}", fields.join(" ")).as_bytes())
        };
        assert_eq!(stat("S", 0x40_0040, 0), Some(false));
        assert_eq!(stat("R", 0x40_0040, 256), Some(true));
        assert_eq!(stat("R", 0x40_0444, 0), Some(true));
        assert_eq!(stat("D", 0x40_0044, 0), Some(true));
        assert_eq!(stat("Z", 0x40_0040, 0), Some(true));
        assert!(!is_ending(crate::sys::thread::thread_id()));
        let (process, thread) = (std::process::id(), crate::sys::thread::thread_id());
        assert_eq!(is_surely_ending_in(process, thread), Some(false));
        assert_eq!(is_ending_in(process, u32::MAX), None);
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_skipped() {
        let rest: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = parse(format!("7 (a) b (c)) {}", rest.join(" ")).as_bytes()).unwrap();
        assert_eq!(
            stat,
            Stat {
                threads: 20,
                arguments: 48..49
            }
        );
    }
}
