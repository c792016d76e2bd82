//! Shared memory: files, mappings at a fixed address, growth, and file locks.
#![allow(unsafe_code)]

use super::descriptors::{above_standard, duplicate};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, MemfdFlags, Mode, OFlags, SealFlags,
};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags};
use std::path::Path;

/// Creates an anonymous memory file that cannot be executed and cannot shrink.
pub fn anonymous_file(label: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux before 6.3 does not know NOEXEC_SEAL.
    let file = match rustix::fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(label, flags)?,
        other => other?,
    };
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    above_standard(file)
}

/// Forbids further seals: from here on no process can forbid growth or writes.
pub fn close_seals(file: impl AsFd) -> Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::SEAL)
}

/// Creates a file without a name in `directory`; it vanishes unless [`publish_file`] names it.
pub fn unnamed_file(directory: &Path, mode: u32) -> Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, directory, flags, mode)?;
    // The umask may have removed bits that the caller asked for.
    rustix::fs::fchmod(&file, mode)?;
    above_standard(file)
}

/// Gives an unnamed file its name, in one step; `EXIST` if the name is taken.
pub fn publish_file(file: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let through_proc = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, through_proc, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Opens an existing file; fails for a symbolic link.
pub fn open_file(path: &Path, writable: bool) -> Result<OwnedFd> {
    let access = if writable {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    above_standard(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens the file of a descriptor again: the new open file description has a file lock of its own.
pub fn open_again(file: impl AsFd) -> Result<OwnedFd> {
    let number = rustix::fd::AsRawFd::as_raw_fd(&file.as_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let path = format!("/proc/thread-self/fd/{number}");
    above_standard(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Makes `descriptor` refer to `fresh`, another open file description of its file.
pub fn replace(descriptor: &OwnedFd, fresh: &OwnedFd) -> Result<()> {
    use rustix::fd::AsRawFd;
    // SAFETY: the number stays open throughout and stays its owner's.
    let number = unsafe { libc::dup3(fresh.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) };
    super::errno::answer(number).map(drop)
}

/// Identity and size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    pub links: u64,
    /// Part of its size has no memory allocated.
    pub sparse: bool,
    pub regular: bool,
    /// The user that owns it.
    pub user: u32,
}

impl FileStatus {
    /// Whether both are the same file, whatever its size.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The identity and size of an open file.
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

/// Reads from an offset; returns fewer bytes than requested at the end of the file.
pub fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        match retry_on_intr(|| rustix::io::pread(&file, &mut *rest, offset + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Writes all bytes to the beginning of a file.
pub fn write_all(file: impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += retry_on_intr(|| rustix::io::pwrite(&file, &bytes[done..], done as u64))?;
    }
    Ok(())
}

/// Whether a file's owner, as the kernel says, is the effective user of the calling process.
///
/// In a user namespace that does not map all users, the kernel gives each user that it cannot name the same number, the
/// overflow user's. So there that number is nobody's.
pub fn is_own_user(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw()
        && (user != overflow_user() || all_users_have_names())
}

/// The number of users that have none in the caller's user namespace; the kernel's default if it cannot be read.
fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_534)
}

/// Whether the caller's user namespace maps all users, as the first one does.
fn all_users_have_names() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // The first number of a range inside, the same outside, and how many.
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A random number.
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Early at boot, or in a sandbox.
        _ => {
            let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
            let seed = super::clock::since_boot() ^ u64::from(thread) << 40;
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
        }
    }
}

/// Allocates the file's memory from `offset` on. On a full system this returns an error instead of a SIGBUS at
/// first touch. Growth beyond the process's limit on file sizes returns `FBIG` instead of raising SIGXFSZ.
pub fn allocate(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let end = offset.saturating_add(bytes);
    if limit.is_some_and(|limit| limit < end) && file_status(&file)?.bytes < end {
        return Err(Errno::FBIG);
    }
    for part in (offset..end).step_by(ALLOCATED_AT_ONCE) {
        let bytes = (end - part).min(ALLOCATED_AT_ONCE as u64);
        retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), part, bytes))?;
    }
    Ok(())
}

/// Bytes of one call that allocates memory, some 0.15 to 0.6 ms of work. Older kernels (not 6.18) give up all pages of a call that a
/// signal interrupts, so a longer call would not end in a program with a periodic timer.
const ALLOCATED_AT_ONCE: usize = 256 << 10;

/// Frees the memory of a part of a file, which reads as zeros from then on. The file's size stays.
pub fn punch(file: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    retry_on_intr(|| rustix::fs::fallocate(&file, flags, offset, bytes))
}

/// Gives all of these bytes some values, if they have none: they may have been the padding of a value that was there before.
///
/// # Safety
/// The bytes are mapped, and nothing else uses them.
#[inline]
pub unsafe fn initialise(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: no instruction. For all that the compiler knows, some write the bytes.
    unsafe {
        core::arch::asm!("/* {0} {1} */", in(reg) start.as_ptr(), in(reg) bytes, options(nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    // SAFETY: by the contract.
    unsafe {
        start.write_bytes(0, bytes);
    }
}

/// The result of an attempt to take a file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLock {
    Taken,
    Busy,
}

/// Takes a shared file lock, which shows that the file is in use for as long as any descriptor or mapping of
/// this open file description lives. Waits while another process holds it exclusively.
pub fn lock_in_use(file: impl AsFd) -> Result<()> {
    retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockShared))
}

/// As [`lock_in_use`], without waiting.
pub fn try_lock_in_use(file: impl AsFd) -> Result<FileLock> {
    try_lock(file, FlockOperation::NonBlockingLockShared)
}

/// The right to attach a file, which one process has at a time.
pub struct Attaching(OwnedFd);

impl Attaching {
    /// Asks for it. `None`: another process has it. The file is open for writing.
    pub fn begin(file: impl AsFd) -> Result<Option<Self>> {
        // The lock is the open file description's, and that outlives this descriptor.
        let own = duplicate(file)?;
        match lock_first_byte(&own, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Self(own))),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        // It cannot fail: the lock is this open file description's own.
        let _ = lock_first_byte(&self.0, libc::F_UNLCK);
    }
}

/// A lock of an open file description on the first byte, which is another lock than that of `flock`.
fn lock_first_byte(file: &OwnedFd, kind: libc::c_int) -> Result<()> {
    // SAFETY: a structure of integers.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 1;
    let number = rustix::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: an open descriptor, and a lock that outlives the call.
    let result = unsafe { libc::fcntl(number, libc::F_OFD_SETLK, &raw const lock) };
    super::errno::answer(result).map(drop)
}

/// Tries to take the file lock exclusively, which proves that no process uses the file.
pub fn lock_unused(file: impl AsFd) -> Result<FileLock> {
    try_lock(file, FlockOperation::NonBlockingLockExclusive)
}

fn try_lock(file: impl AsFd, how: FlockOperation) -> Result<FileLock> {
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(FileLock::Taken),
        Err(Errno::WOULDBLOCK) => Ok(FileLock::Busy),
        Err(error) => Err(error),
    }
}

/// Removes a name.
pub fn unlink(path: &Path) -> Result<()> {
    rustix::fs::unlink(path)
}

/// Maps zeroed memory for reading and writing, at an address of the kernel's choice.
pub(super) fn map_anonymous(bytes: usize, flags: MapFlags) -> Result<NonNull<c_void>> {
    // SAFETY: a new mapping at an address of the kernel's choice changes no other memory.
    let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, flags)? };
    NonNull::new(base).ok_or(Errno::NOMEM)
}

pub(super) const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
pub(super) const SHARED: MapFlags = MapFlags::SHARED.union(MapFlags::NORESERVE);

/// A mapping that ends when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address range; its users are responsible for accesses to the memory.
unsafe impl Send for Mapping {}
// SAFETY: it is an address range; its users are responsible for accesses to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file at exactly `address`. The mapping may be longer than the file: when the file
    /// grows, the new part appears in it.
    ///
    /// `EXIST` if anything is mapped there.
    pub fn shared_at(file: impl AsFd, address: usize, bytes: usize) -> Result<Self> {
        Self::map_at(file, address, bytes, READ_WRITE)
    }

    /// The same without the right to write, for a file that is open for reading.
    pub fn read_only_at(file: impl AsFd, address: usize, bytes: usize) -> Result<Self> {
        Self::map_at(file, address, bytes, ProtFlags::READ)
    }

    fn map_at(file: impl AsFd, address: usize, bytes: usize, rights: ProtFlags) -> Result<Self> {
        let wanted: *mut c_void = ptr::with_exposed_provenance_mut(address);
        let flags = SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE never replaces a mapping. A kernel without it (before 4.17) treats the
        // address as a hint, which the comparison below detects.
        let mapped = unsafe { rustix::mm::mmap(wanted, bytes, rights, flags, file, 0)? };
        if mapped != wanted {
            // SAFETY: the mapping made just now, in the wrong place; no other code knows it.
            unsafe { rustix::mm::munmap(mapped, bytes)? };
            return Err(Errno::EXIST);
        }
        let base = NonNull::new(mapped.cast()).ok_or(Errno::INVAL)?;
        Ok(Self { base, bytes })
    }

    /// The mapping at these addresses, whose owner was forgotten, or will be.
    ///
    /// # Safety
    /// [`Self::shared_at`] made a mapping there, and no other owner unmaps it.
    pub unsafe fn from_addresses(addresses: core::ops::Range<usize>) -> Option<Self> {
        let base = NonNull::new(ptr::with_exposed_provenance_mut(addresses.start))?;
        let bytes = addresses.len();
        Some(Self { base, bytes })
    }

    /// Replaces the mapping, in one step, by one of `fresh`, another open file description of its file.
    pub fn renew(&self, fresh: &OwnedFd) -> Result<()> {
        let (base, flags) = (self.base.as_ptr().cast(), SHARED | MapFlags::FIXED);
        // SAFETY: the same memory as before, at the addresses of this mapping.
        unsafe { rustix::mm::mmap(base, self.bytes, READ_WRITE, flags, fresh, 0).map(drop) }
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
        // SAFETY: the owner is dropped, and no user of the range outlives it. On a failure (the process's limit
        // on mappings) it stays mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The value of [`pid_namespace`] in the initial namespace: `PROC_PID_INIT_INO` of the kernel.
pub const ROOT_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Identifies the calling process's PID namespace, in which robust locks compare thread IDs.
pub fn pid_namespace() -> Result<u64> {
    Ok(rustix::fs::stat("/proc/self/ns/pid")?.st_ino)
}

/// The address range for regions: high enough to be free, low enough to exist.
///
/// Programs, heaps and stacks are near the ends of the address space. On x86-64 and on arm64 with 47 bits or more the
/// range is 32 TiB to 64 TiB, beyond what the sanitizers reserve; on arm64 with 42 bits (which some kernels with pages of
/// 64 KiB have) it is 1 TiB to 2 TiB, and with 39 bits 128 GiB to 256 GiB.
pub fn address_window() -> core::ops::Range<usize> {
    let on_stack = 0u8;
    window_of((&raw const on_stack).addr())
}

/// The range in an address space with a stack at this address, near its end.
fn window_of(stack: usize) -> core::ops::Range<usize> {
    match usize::BITS - stack.leading_zeros() {
        46.. => 0x2000_0000_0000..0x4000_0000_0000,
        41.. => 0x100_0000_0000..0x200_0000_0000,
        _ => 0x20_0000_0000..0x40_0000_0000,
    }
}

/// A page of memory of this machine, in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Releases this open file description's file lock.
pub fn release(file: impl AsFd) -> Result<()> {
    rustix::fs::flock(file, FlockOperation::Unlock)
}

#[cfg(test)]
mod tests {
    use super::window_of;

    #[test]
    fn regions_lie_in_the_upper_middle_of_each_address_space() {
        for (bits, stack) in [
            (39, 0x7f_ffff_f000),
            (42, 0x3ff_ffff_f000),
            (47, 0x7fff_ffff_f000),
            (48, 0xffff_ffff_f000_usize),
        ] {
            let window = window_of(stack);
            assert!(window.end <= 1 << (bits - 1), "{bits} bits");
            assert!(window.start >= 1 << 37 && window.end == 2 * window.start);
        }
        // A stack inside of a region, or in a heap, is in the same space.
        assert_eq!(window_of(0x2000_0000_1000), window_of(0x7fff_ffff_f000));
        assert_eq!(window_of(0x5555_5555_5000), window_of(0x7fff_ffff_f000));
    }
}
