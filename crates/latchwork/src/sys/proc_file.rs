//! What `/proc` says of the calling process.
#![allow(unsafe_code)]

use core::ops::Range;

/// Facts of `/proc/self/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) threads: usize,
    /// Where the arguments are that `/proc/PID/cmdline` shows.
    pub(crate) arguments: Range<usize>,
}

/// Reads `/proc/self/stat`; `None` where there is none, or one of another form.
pub(crate) fn stat() -> Option<Stat> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The name, in parentheses, may contain anything; the first field after it is the third.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text
        .get(text.rfind(')')? + 2..)?
        .split_ascii_whitespace()
        .collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<usize>().ok();
    let (start, end) = (number(48)?, number(49)?);
    Some(Stat {
        threads: number(20)?,
        arguments: if start <= end { start..end } else { 0..0 },
    })
}

/// Has `/proc/PID/cmdline` show `title`, as far as it fits over the arguments.
///
/// # Safety
/// `arguments` is where this process has its arguments, and nobody uses them.
pub(crate) unsafe fn set_title(arguments: &Range<usize>, title: &[u8]) {
    let room = arguments.len();
    if room < 2 {
        return;
    }
    let start: *mut u8 = core::ptr::with_exposed_provenance_mut(arguments.start);
    let kept = title.len().min(room - 2);
    // SAFETY: inside the arguments, by the contract.
    unsafe {
        start.write_bytes(0, room);
        start.copy_from(title.as_ptr(), kept);
        // A last byte that is not NUL has the kernel show the first string alone.
        start.add(room - 1).write(b' ');
    }
}

/// Opens a control group's list of members, to which a process adds itself.
pub(crate) fn open_cgroup(
    directory: &std::path::Path,
) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(
        directory.join("cgroup.procs"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Moves the calling process into a control group.
pub(crate) fn enter_cgroup(members: rustix::fd::BorrowedFd<'_>) -> Result<(), rustix::io::Errno> {
    rustix::io::write(members, b"0").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_skipped() {
        let rest: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = parse(&format!("7 (a) b (c)) {}", rest.join(" "))).unwrap();
        assert_eq!(
            stat,
            Stat {
                threads: 20,
                arguments: 48..49
            }
        );
    }
}
