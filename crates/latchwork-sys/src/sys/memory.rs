//! Shared memory: files, mappings at a fixed address, growth, and file locks.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, MemfdFlags, Mode, OFlags, SealFlags,
};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::path::Path;

/// A new anonymous file in memory, which cannot be executed and cannot shrink.
pub fn anonymous_file(label: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux before 6.3 does not know NOEXEC_SEAL.
    let file = match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(label, flags)?,
        other => other?,
    };
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Forbids further seals: from here on nobody can forbid growth or writes.
pub fn close_seals(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// A new file without a name in `directory`; it vanishes unless [`publish_file`] names it.
pub fn unnamed_file(directory: &Path, mode: u32) -> Result<OwnedFd> {
    let file = rustix::fs::openat(
        CWD,
        directory,
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    )?;
    // The umask may have taken bits away that the caller asked for.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(file)
}

/// Gives an unnamed file its name, in one step; `EXIST` if the name is taken.
pub fn publish_file(file: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let through_proc = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, through_proc, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Opens an existing file; a symbolic link is refused.
pub fn open_file(path: &Path, writable: bool) -> Result<OwnedFd> {
    let access = if writable {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    rustix::fs::openat(
        CWD,
        path,
        access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

/// Opens the file of a descriptor once more: with a lock of its own.
pub fn open_again(file: impl AsFd) -> Result<OwnedFd> {
    let number = rustix::fd::AsRawFd::as_raw_fd(&file.as_fd());
    rustix::fs::openat(
        CWD,
        format!("/proc/thread-self/fd/{number}"),
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

/// Has `descriptor` stand for another opening of its file, which `fresh` is.
pub fn replace(descriptor: &OwnedFd, fresh: &OwnedFd) -> Result<()> {
    use rustix::fd::AsRawFd;
    // SAFETY: the number stays open throughout, and its owner's.
    let number = unsafe { libc::dup3(fresh.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) };
    if number < 0 {
        Err(super::errno::last_error())
    } else {
        Ok(())
    }
}

/// Identity and size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    pub links: u64,
    /// Some of its size has no memory behind it.
    pub sparse: bool,
    pub regular: bool,
    /// The user that it belongs to.
    pub user: u32,
}

impl FileStatus {
    /// Whether both are the same file, whatever it has grown to.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Looks at an open file.
pub fn file_status(file: impl AsFd) -> Result<FileStatus> {
    let status = rustix::fs::fstat(file)?;
    Ok(FileStatus {
        device: status.st_dev,
        inode: status.st_ino,
        bytes: u64::try_from(status.st_size).unwrap_or(0),
        links: u64::from(status.st_nlink as u32),
        sparse: status.st_blocks.saturating_mul(512) < status.st_size,
        regular: rustix::fs::FileType::from_raw_mode(status.st_mode)
            == rustix::fs::FileType::RegularFile,
        user: status.st_uid,
    })
}

/// Reads from an offset; fewer bytes than asked for at the end of the file.
pub fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let file = file.as_fd();
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The user that the calling process acts for.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A number that nobody else draws.
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Early at boot, or in a sandbox.
        _ => {
            let seed = super::clock::since_boot() ^ u64::from(super::thread::thread_id()) << 40;
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
        }
    }
}

/// Makes sure that the file has memory from `offset` on: the answer to a full system is an error
/// here, not a SIGBUS at first touch; and `FBIG` the answer to growth beyond the process's limit on
/// the size of files, not SIGXFSZ.
pub fn allocate(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    let file = file.as_fd();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let end = offset.saturating_add(bytes);
    if limit.is_some_and(|limit| limit < end) && file_status(file)?.bytes < end {
        return Err(Errno::FBIG);
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Takes the memory of a part of a file away, which reads as zeros from then on. Its size stays.
pub fn punch(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    let file = file.as_fd();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(file, flags, offset, bytes) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// What a file lock attempt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLock {
    Taken,
    Busy,
}

/// Announces, for as long as any descriptor or mapping of this opening lives, that the file is in
/// use; waits while somebody proves the contrary.
pub fn lock_in_use(file: impl AsFd) -> Result<()> {
    let file = file.as_fd();
    loop {
        match rustix::fs::flock(file, FlockOperation::LockShared) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Tries to prove that nobody uses the file.
pub fn lock_unused(file: impl AsFd) -> Result<FileLock> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(FileLock::Taken),
        Err(Errno::WOULDBLOCK) => Ok(FileLock::Busy),
        Err(error) => Err(error),
    }
}

/// Removes a name.
pub fn unlink(path: &Path) -> Result<()> {
    rustix::fs::unlink(path)
}

/// A mapping that ends when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address range; what is there is for its users to answer for.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file at exactly `address`. The mapping may be longer than the file: what
    /// the file grows to later appears in it by itself.
    ///
    /// `EXIST` if anything is mapped there.
    pub fn shared_at(file: impl AsFd, address: usize, bytes: usize) -> Result<Self> {
        let wanted: *mut c_void = ptr::with_exposed_provenance_mut(address);
        // SAFETY: FIXED_NOREPLACE never replaces a mapping; a kernel that does not know it (before
        // 4.17) treats the address as a hint, which the comparison below catches.
        let mapped = unsafe {
            rustix::mm::mmap(
                wanted,
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
                file,
                0,
            )?
        };
        if mapped != wanted {
            // SAFETY: the mapping made just now, in the wrong place; nobody knows it.
            unsafe { rustix::mm::munmap(mapped, bytes)? };
            return Err(Errno::EXIST);
        }
        let base = NonNull::new(mapped.cast()).ok_or(Errno::INVAL)?;
        Ok(Self { base, bytes })
    }

    /// The mapping at these addresses, whose owner was forgotten, or will be.
    ///
    /// # Safety
    /// There is one, made by [`Self::shared_at`], and nobody else ends it.
    pub unsafe fn from_addresses(addresses: core::ops::Range<usize>) -> Option<Self> {
        let base = NonNull::new(ptr::with_exposed_provenance_mut(addresses.start))?;
        Some(Self {
            base,
            bytes: addresses.len(),
        })
    }

    /// Has it be one of another opening of its file, which `fresh` is, in one step.
    pub fn renew(&self, fresh: &OwnedFd) -> Result<()> {
        // SAFETY: the same memory as before, in the range of this mapping.
        unsafe {
            rustix::mm::mmap(
                self.base.as_ptr().cast(),
                self.bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                fresh,
                0,
            )?;
        }
        Ok(())
    }

    /// Its first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The addresses of all its bytes.
    #[inline]
    pub fn addresses(&self) -> core::ops::Range<usize> {
        let base = self.base.addr().get();
        base..base + self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this owner goes, and with it whoever referred to the range. A failure (the
        // process's limit on mappings) leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// What [`pid_namespace`] gives in the machine's own: `PROC_PID_INIT_INO` of the kernel.
pub const ROOT_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Identifies the calling process's PID namespace, in which robust locks compare thread IDs.
pub fn pid_namespace() -> Result<u64> {
    Ok(rustix::fs::stat("/proc/self/ns/pid")?.st_ino)
}

/// The address range in which regions are placed: high enough to be free, low enough to exist.
///
/// Programs, heaps and stacks live near the ends of the address space. On x86-64 and on arm64 with
/// 48 bits the range is 32 TiB to 64 TiB, beyond what the sanitizers reserve; on arm64 with 39 bits
/// it is 128 GiB to 256 GiB.
pub fn address_window() -> core::ops::Range<usize> {
    let on_stack = 0u8;
    if (&raw const on_stack).addr() >> 40 != 0 {
        0x2000_0000_0000..0x4000_0000_0000
    } else {
        0x20_0000_0000..0x40_0000_0000
    }
}

/// A page of memory of this machine, in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Gives up this opening's file lock.
pub fn release(file: impl AsFd) -> Result<()> {
    rustix::fs::flock(file, FlockOperation::Unlock)
}
