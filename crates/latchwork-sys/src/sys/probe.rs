//! Asking the kernel for its features without using them.
//!
//! A system call that exists refuses invalid arguments with the error for them, and one that does not exist
//! with `ENOSYS`. Where only the operation itself shows the answer (a link in `/dev/shm`, a real-time policy),
//! it is performed on an object of the prober's own, and undone.
#![allow(unsafe_code)]

use super::errno::{self, answer};
use crate::atomic::AtomicU32;
use core::ffi::{c_int, c_ulong};
use core::ptr;
use rustix::fs::{Access, AtFlags, CWD, MemfdFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use rustix::thread::futex::{ClockId, WaitvFlags, waitv};
use std::path::{Path, PathBuf};

/// Converts the refusal that proves a feature into success.
fn refused_with<T>(expected: Errno, result: Result<T>) -> Result<()> {
    match result {
        Err(error) if error != expected => Err(error),
        _ => Ok(()),
    }
}

/// `futex` with this operation, on an address that is invalid for any futex: it neither waits nor wakes.
pub fn futex_operation(operation: c_int) -> Result<()> {
    let nowhere: *const u32 = ptr::without_provenance(1);
    let none = ptr::null::<u8>();
    // SAFETY: every operation refuses an address that is not a multiple of four.
    let returned = unsafe { libc::syscall(libc::SYS_futex, nowhere, operation, 0, none, none, 0) };
    match answer(returned) {
        // A wake-up or unlock may access the address first.
        Err(Errno::FAULT) => Ok(()),
        result => refused_with(Errno::INVAL, result),
    }
}

/// Linux 5.16. (A sandbox may return any error: only the one for a word with another value proves that the call works.)
pub fn futex_waitv() -> Result<()> {
    let word = AtomicU32::new(0);
    let waits = [super::futex_linux::shared_word(&word, 1)];
    let ended = waitv(&waits, WaitvFlags::empty(), None, ClockId::Monotonic);
    refused_with(Errno::AGAIN, ended)
}

/// Linux 6.16: the slots of this process's own hash table of futexes, 0 while it uses the shared one.
pub fn futex_hash_slots() -> Result<u32> {
    const PR_FUTEX_HASH: c_int = 78;
    const GET_SLOTS: c_ulong = 2;
    let zero: c_ulong = 0;
    // SAFETY: the call returns a number, and writes no memory of this process.
    let returned = unsafe { libc::prctl(PR_FUTEX_HASH, GET_SLOTS, zero, zero, zero) };
    answer(returned).map(|slots| slots as u32)
}

/// Whether libc's record of the thread ID can be found.
pub fn place_of_id() -> Result<()> {
    if super::id_place::place_of_id().is_null() {
        Err(Errno::NOENT)
    } else {
        Ok(())
    }
}

/// Memory files that can be sealed against shrinking.
pub fn sealed_memory_file() -> Result<()> {
    super::memory::anonymous_file("latchwork-probe").map(drop)
}

/// Linux 6.3: memory files that can never be executed.
pub fn memory_file_noexec() -> Result<()> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    rustix::fs::memfd_create("latchwork-probe", flags).map(drop)
}

/// Whether a mapping at a requested address can be refused if the address is in use (Linux 4.17).
pub fn map_fixed_noreplace() -> Result<()> {
    let bytes = rustix::param::page_size();
    // SAFETY: a new mapping at an address of the kernel's choice, which no other code knows; the second call
    // does not replace it.
    unsafe {
        let (none, again) = (ProtFlags::empty(), MapFlags::FIXED_NOREPLACE);
        let map = |at, flags| mmap_anonymous(at, bytes, none, MapFlags::PRIVATE | flags);
        let taken = map(ptr::null_mut(), MapFlags::empty())?;
        let result = match map(taken, again) {
            Err(Errno::EXIST) => Ok(()),
            // The kernel treated the address as a hint.
            Ok(elsewhere) => munmap(elsewhere, bytes).and(Err(Errno::NOSYS)),
            Err(error) => Err(error),
        };
        let _ = munmap(taken, bytes);
        result
    }
}

/// Whether a descriptor can refer to a process, and be waited for (Linux 5.4).
pub fn pidfd() -> Result<()> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let id = WaitId::PidFd(rustix::fd::AsFd::as_fd(&own));
    refused_with(Errno::CHILD, rustix::process::waitid(id, options))
}

/// Whether memory can be wiped on fork (Linux 4.14).
pub fn wipe_on_fork() -> Result<()> {
    let record = super::thread::map_wipe_on_fork()?;
    // SAFETY: mapped just now; no other code knows it.
    unsafe { super::thread::unmap_record(record) };
    Ok(())
}

/// The free bytes of a directory's file system, if that keeps its files in memory.
pub fn free_memory_files(directory: &Path) -> Result<u64> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let system = rustix::fs::statfs(directory)?;
    if system.f_type as u64 != TMPFS_MAGIC {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(system.f_bavail.saturating_mul(system.f_bsize as u64))
}

/// Whether a file can be created without a name, and named when it is complete.
pub fn publish_unnamed(directory: &Path) -> Result<()> {
    let file = super::memory::unnamed_file(directory, 0o600)?;
    // Hidden, and not a region's name: `ps` and `gc` of other processes ignore it.
    let (thread, now) = (super::thread::thread_id(), super::clock::since_boot());
    let path = directory.join(format!(".latchwork-probe-{thread}-{now}"));
    super::memory::publish_file(rustix::fd::AsFd::as_fd(&file), &path)?;
    super::memory::unlink(&path)
}

/// Whether a thread of this process can have a real-time policy: tried by a thread that ends at once.
pub fn real_time() -> Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let attempt = move || super::scheduling::set_scheduler(0, policy, 1);
    let thread = std::thread::Builder::new()
        .name("latchwork-probe".into())
        .spawn(attempt)
        .map_err(|_| Errno::AGAIN)?;
    thread.join().unwrap_or(Err(Errno::IO))
}

/// The effective capabilities.
pub fn capabilities() -> Result<rustix::thread::CapabilitySet> {
    Ok(rustix::thread::capabilities(None::<Pid>)?.effective)
}

/// The directory of this process's control group in the unified hierarchy, if the process may create groups below it.
pub fn writable_cgroup() -> Result<PathBuf> {
    let groups = read_text("/proc/self/cgroup")?;
    let group = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or(Errno::OPNOTSUPP)?;
    // With version 1 mounted as well, the unified hierarchy is in a directory of its own.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let root = roots
        .iter()
        .find(|root| Path::new(root).join("cgroup.procs").exists())
        .ok_or(Errno::OPNOTSUPP)?;
    let path = Path::new(root).join(group);
    for file in [path.clone(), path.join("cgroup.procs")] {
        rustix::fs::accessat(CWD, &file, Access::WRITE_OK, AtFlags::EACCESS)?;
    }
    Ok(path)
}

/// The text of a small file of the kernel's.
pub fn read_text(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| errno::number(&error))
}

/// The kernel's release, such as `6.18.0-1-amd64`.
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// The C library and its version, as far as it reports one.
pub fn libc_name() -> String {
    // SAFETY: glibc's function takes no arguments and returns a static string; musl has none.
    unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr());
        if function.is_null() {
            let is_musl = cfg!(target_env = "musl");
            return if is_musl {
                "musl"
            } else {
                "an unknown C library"
            }
            .into();
        }
        let version: extern "C" fn() -> *const core::ffi::c_char = core::mem::transmute(function);
        let version = core::ffi::CStr::from_ptr(version());
        format!("glibc {}", version.to_string_lossy())
    }
}

/// A resource limit of this process.
pub fn limit(resource: rustix::process::Resource) -> rustix::process::Rlimit {
    rustix::process::getrlimit(resource)
}

/// The number of CPUs on which the calling thread may run.
pub fn cpus() -> Result<u32> {
    rustix::thread::sched_getaffinity(None).map(|cpus| cpus.count())
}
