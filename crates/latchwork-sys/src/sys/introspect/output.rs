//! Files for reports, and the settings that name them.
#![allow(unsafe_code)]

use crate::sys::signals;
use core::ffi::{CStr, c_char};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result, retry_on_intr};

/// Calls `read` with the value of an environment variable, if it is set and valid text. Not in a program that
/// runs with other rights than its caller's, since the caller could make it write files.
pub fn with_variable<R>(name: &CStr, read: impl FnOnce(&str) -> R) -> Option<R> {
    // SAFETY: the name is a C string. (A program that changes its environment while another thread reads it has
    // a race of its own.)
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: reads what the kernel passed to the process.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if value.is_null() || is_privileged {
        return None;
    }
    // SAFETY: not null, hence a C string; it is read before this thread can change the environment.
    let value = unsafe { CStr::from_ptr(value.cast::<c_char>()) };
    value.to_str().ok().map(read)
}

/// Opens a file for appending, and creates it if it does not exist.
pub fn append_to(path: &str) -> Option<OwnedFd> {
    let mut room = [0; libc::PATH_MAX as usize];
    room.get_mut(..path.len())?.copy_from_slice(path.as_bytes());
    let path = CStr::from_bytes_until_nul(&room).ok()?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(CWD, path, flags, mode).ok()?;
    Some(duplicate(&file).unwrap_or(file))
}

/// Descriptors from this number on do not collide with a program's own.
const HIGH: i32 = 900;

/// Duplicates a descriptor to a number that does not collide with the program's; `None` if nothing is open there, or
/// the process may not have so many.
pub fn duplicate(file: impl AsFd) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(file, HIGH).ok()
}

/// As [`duplicate`], for a number at which nothing may be open.
pub fn duplicate_number(descriptor: u32) -> Option<OwnedFd> {
    // SAFETY: the borrow is not kept; the call fails if nothing is open there.
    duplicate(unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) })
}

/// Writes the current directory and a slash; returns the number of bytes, or 0 if there is no such path or no room.
pub fn write_directory(room: &mut [u8]) -> usize {
    // SAFETY: `getcwd` writes within the room, with a NUL at the end.
    let written = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
    let length = room.iter().position(|byte| *byte == 0);
    match length {
        // A directory outside the process's root does not begin with a slash.
        Some(length) if !written.is_null() && room[0] == b'/' => {
            room[length] = b'/';
            length + 1
        }
        _ => 0,
    }
}

/// The device and inode of an open file; zeros if none is open there.
///
/// It takes a number, since the program may have closed the descriptor. Reading what a number refers to changes nothing.
pub fn identity(descriptor: u32) -> [u64; 2] {
    // SAFETY: the borrow is not kept; the call fails if nothing is open there.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) };
    rustix::fs::fstat(file).map_or([0; 2], |found| [found.st_dev, found.st_ino])
}

/// Writes the bytes, as far as possible; returns how many were written. (A pipe without readers, or a limit for
/// file sizes, must not end the program by a signal.)
pub fn write(file: impl AsFd, bytes: &[u8]) -> usize {
    let mut left = bytes;
    signals::without_those_of_writes(|| {
        let result = write_all(file.as_fd(), &mut left);
        matches!(result, Err(Errno::PIPE | Errno::FBIG))
    });
    bytes.len() - left.len()
}

fn write_all(file: BorrowedFd<'_>, bytes: &mut &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        *bytes = &bytes[retry_on_intr(|| rustix::io::write(file, bytes))?..];
    }
    Ok(())
}
