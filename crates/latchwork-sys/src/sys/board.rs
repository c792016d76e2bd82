//! Memory for boards: files in memory that others find by a descriptor of ours.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags};

/// Descriptors from here on are in nobody's way, if the process may have so many.
const HIGH: i32 = 900;

/// A file that this process made, or one that it is a fork of.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub descriptor: u32,
    pub inode: u64,
}

/// Makes a memory file and maps it; the descriptor stays open.
pub fn make(name: &str, bytes: usize) -> Result<(NonNull<u8>, Open)> {
    let file = super::memory::anonymous_file(name)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let file = rustix::io::fcntl_dupfd_cloexec(&file, HIGH).unwrap_or(file);
    let inode = rustix::fs::fstat(&file)?.st_ino;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
    let base = unsafe {
        rustix::mm::mmap(
            core::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            &file,
            0,
        )?
    };
    let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
    let descriptor = file.into_raw_fd().cast_unsigned();
    Ok((base, Open { descriptor, inode }))
}

/// Gives back a mapping that was inherited, and its descriptor, if that is still what it was.
///
/// # Safety
/// Nobody uses the mapping any more.
pub unsafe fn leave(base: NonNull<u8>, bytes: usize, file: Open) {
    // SAFETY: by the caller's contract. A failure would leave it mapped.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
    let descriptor = file.descriptor.cast_signed();
    // SAFETY: looked at only, and an error if it is closed by now.
    let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) });
    if found.is_ok_and(|found| found.st_ino == file.inode) {
        // SAFETY: this process's copy of a descriptor that only this library knows.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

/// Maps zeroed memory that is never given back, and that a fork copies.
pub fn arena(bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: as in `make`.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

/// Maps zeroed memory that is never given back, and that a fork shares.
pub fn shared_arena(bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: as in `make`.
    let base = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
        )?
    };
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

/// Gives an [`arena`] back after all.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn leave_arena(base: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's contract.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}
