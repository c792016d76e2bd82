//! Files of `/proc`, read by direct system calls, without allocation: the caller waits in a lock call. libc's functions
//! are cancellation points.

use core::ffi::{c_int, c_long};
use core::fmt::{self, Write};
use core::ops::ControlFlow;
use latchwork_interpose::say::Text;

/// Why a file was not read: an error number.
pub(super) type Result<T> = core::result::Result<T, c_int>;

fn number(result: c_long) -> Result<usize> {
    // SAFETY: glibc returns a valid pointer to the calling thread's `errno`, which the failed call has set.
    usize::try_from(result).map_err(|_| unsafe { *libc::__errno_location() })
}

/// An open file or directory.
struct File(c_int);

impl File {
    fn open(path: fmt::Arguments<'_>) -> Result<Self> {
        let mut text = Text::<64>::new();
        // Writing to a `Text` cannot fail, but it cuts: then the NUL is missing.
        let _ = write!(text, "{path}\0");
        if text.bytes().last() != Some(&0) {
            return Err(libc::ENAMETOOLONG);
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends in NUL.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                text.bytes().as_ptr(),
                flags,
            )
        };
        Ok(Self(number(opened)? as c_int))
    }

    /// The next bytes, by `read` or `getdents64`; 0 at the end.
    fn next(&self, call: c_long, room: &mut [u8]) -> Result<usize> {
        loop {
            // SAFETY: the kernel writes into the slice, at most as much as it has room.
            let result = unsafe { libc::syscall(call, self.0, room.as_mut_ptr(), room.len()) };
            match number(result) {
                Err(libc::EINTR) => {}
                result => return result,
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// How much of a line is kept: more than any field that is used here needs.
const LINE: usize = 512;

/// Calls `look` with each line, cut to [`LINE`] bytes, until it breaks.
pub(super) fn each_line<B>(
    path: fmt::Arguments<'_>,
    mut look: impl FnMut(&str) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let file = File::open(path)?;
    let mut chunk = [0; 1024];
    let mut line = [0; LINE];
    let mut length = 0;
    loop {
        let read = file.next(libc::SYS_read, &mut chunk)?;
        for &byte in &chunk[..read] {
            if byte == b'\n' {
                if let ControlFlow::Break(found) = look(readable(&line[..length])) {
                    return Ok(Some(found));
                }
                length = 0;
            } else if length < LINE {
                line[length] = byte;
                length += 1;
            }
        }
        if read == 0 {
            // The kernel ends each line.
            return Ok(None);
        }
    }
}

/// The beginning that is UTF-8: names of programs and files may not be.
fn readable(bytes: &[u8]) -> &str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The value of a line `name:\tvalue` of a file like `/proc/PID/status`, as `read` understands it; `ENODATA` if there is
/// none.
pub(super) fn value<R>(
    path: fmt::Arguments<'_>,
    name: &str,
    read: impl Fn(&str) -> Option<R>,
) -> Result<R> {
    let found = each_line(path, |line| {
        match line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(':'))
        {
            Some(value) => ControlFlow::Break(read(value.trim())),
            None => ControlFlow::Continue(()),
        }
    });
    found?.flatten().ok_or(libc::ENODATA)
}

/// Calls `look` with each process in `/proc`, until it breaks.
pub(super) fn each_process<B>(mut look: impl FnMut(u32) -> ControlFlow<B>) -> Result<Option<B>> {
    /// `struct linux_dirent64`: inode, offset, length of the entry, type, name.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    let directory = File::open(format_args!("/proc"))?;
    let mut room = [0; 1024];
    loop {
        let read = directory.next(libc::SYS_getdents64, &mut room)?;
        let mut entries = &room[..read];
        if read == 0 {
            return Ok(None);
        }
        while let Some(&[low, high]) = entries.get(LENGTH_AT..LENGTH_AT + 2) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let name = entries.get(NAME_AT..length).ok_or(libc::EIO)?;
            let end = name.iter().position(|&byte| byte == 0);
            let process = readable(&name[..end.unwrap_or(name.len())]).parse();
            if let Ok(process) = process
                && let ControlFlow::Break(found) = look(process)
            {
                return Ok(Some(found));
            }
            entries = &entries[length..];
        }
    }
}

/// The ID that the kernel has given to a new task last; so there is no new task between two calls with the same result.
pub(super) fn latest_task() -> Result<u32> {
    let found = each_line(format_args!("/proc/loadavg"), |line| {
        ControlFlow::Break(
            line.split(' ')
                .next_back()
                .and_then(|last| last.parse().ok()),
        )
    });
    found?.flatten().ok_or(libc::ENODATA)
}

/// The flags of a process, and when it began, in ticks: of a file `/proc/PID/stat`.
pub(super) fn beginning(path: fmt::Arguments<'_>) -> Result<(u64, u64)> {
    /// Places after the name, which is in parentheses.
    const FLAGS: usize = 6;
    const START: usize = 19;
    let found = each_line(path, |line| {
        let field = |place| {
            line.rsplit_once(") ")?
                .1
                .split(' ')
                .nth(place)?
                .parse()
                .ok()
        };
        ControlFlow::Break(field(FLAGS).zip(field(START)))
    });
    found?.flatten().ok_or(libc::ENODATA)
}

/// A mapping of a process, as a line of `/proc/PID/maps` shows it.
#[derive(Clone, Copy)]
pub(super) struct Mapping<'a> {
    start: usize,
    end: usize,
    pub(super) is_shared: bool,
    pub(super) memory: Memory,
    pub(super) path: &'a str,
}

/// What is mapped: the same for all mappings of it, in all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Memory {
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
}

impl<'a> Mapping<'a> {
    /// `start-end permissions offset major:minor inode path`, the path after further spaces.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let _offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        Some(Self {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            is_shared: permissions.ends_with('s'),
            memory: Memory {
                device: (
                    u32::from_str_radix(major, 16).ok()?,
                    u32::from_str_radix(minor, 16).ok()?,
                ),
                inode: fields.next()?.parse().ok()?,
            },
            path: fields.next().unwrap_or_default().trim_start(),
        })
    }

    pub(super) const fn contains(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }
}

/// Calls `look` with each mapping, until it breaks. A line that cannot be understood is an error.
pub(super) fn each_mapping<B>(
    path: fmt::Arguments<'_>,
    mut look: impl FnMut(Mapping<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let found = each_line(path, |line| match Mapping::parse(line) {
        Some(mapping) => look(mapping).map_break(Ok),
        None if line.is_empty() => ControlFlow::Continue(()),
        None => ControlFlow::Break(Err(libc::EINVAL)),
    });
    found?.transpose()
}
