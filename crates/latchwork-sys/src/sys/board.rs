//! Memory for boards: memory files that other processes find by a descriptor of this one.
#![allow(unsafe_code)]

use super::memory::{READ_WRITE, SHARED, map_anonymous};
use core::ptr::NonNull;
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Result;
use rustix::mm::MapFlags;

/// A file that this process, or the process of which it is a fork, has made.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub descriptor: u32,
    pub inode: u64,
}

/// Makes a memory file and maps it; the descriptor stays open.
pub fn make(name: &str, bytes: usize) -> Result<(NonNull<u8>, Open)> {
    let file = super::memory::anonymous_file(name)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let file = super::introspect::duplicate(&file).unwrap_or(file);
    let inode = rustix::fs::fstat(&file)?.st_ino;
    // SAFETY: a new mapping at an address of the kernel's choice changes no other memory.
    let base =
        unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, READ_WRITE, SHARED, &file, 0)? };
    let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
    let descriptor = file.into_raw_fd().cast_unsigned();
    Ok((base, Open { descriptor, inode }))
}

/// Unmaps an inherited mapping and closes its descriptor, if that still refers to the same file.
///
/// # Safety
/// No code uses the mapping any more.
pub unsafe fn leave(base: NonNull<u8>, bytes: usize, file: Open) {
    // SAFETY: by the caller's contract. On a failure it stays mapped.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
    let descriptor = file.descriptor.cast_signed();
    // SAFETY: `fstat` fails if the descriptor is closed by now; the borrow is not kept.
    let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) });
    if found.is_ok_and(|found| found.st_ino == file.inode) {
        // SAFETY: it is this process's copy of a descriptor that only this library knows.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

/// Maps zeroed memory that is never unmapped, and that a fork copies.
pub fn arena(bytes: usize) -> Result<NonNull<u8>> {
    map_anonymous(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE).map(NonNull::cast)
}

/// Maps zeroed memory that is never unmapped, and that a fork shares.
pub fn shared_arena(bytes: usize) -> Result<NonNull<u8>> {
    map_anonymous(bytes, SHARED).map(NonNull::cast)
}

/// Unmaps an [`arena`], which is otherwise kept.
///
/// # Safety
/// No code uses it any more.
pub unsafe fn leave_arena(base: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's contract.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}
