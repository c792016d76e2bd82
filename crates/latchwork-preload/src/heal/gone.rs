//! Whether tasks that could end a wait are provably gone.
//!
//! Each function returns `None` unless it has the proof: a file of `/proc` that cannot be read proves nothing, nor does
//! anything that these rules do not name.
//!
//! # What both proofs need
//!
//! - The object lies in memory that is mapped shared. The memory's identity is device and inode, as the files
//!   `/proc/PID/maps` show them.
//! - This process is in the system's initial PID namespace. In another one, processes outside of it could map the
//!   memory, and this process could not see them.
//! - `/proc` shows all processes: PID 1, too.
//! - While the processes are looked at, no task begins: the ID that the kernel gave to a task last is the same before
//!   and after. Otherwise a process could escape by a fork. After some attempts, nothing is proved.
//!
//! # The owner of a mutex has ended
//!
//! `__owner` names a task of which the kernel knows nothing (`ESRCH`), or which is a zombie. glibc stores the ID after an
//! acquisition, and clears it before the release; so a mutex that names a task is held by it, if each call is glibc's.
//! A task with the same ID in another PID namespace could be meant. So each process that is in another namespace must be
//! readable, and must not map the memory. Processes of this namespace need not be readable. If the ID was given to
//! another task, nothing is proved.
//!
//! *Limit.* glibc stores the ID that the thread control block contains. A child of a `clone` without `CLONE_THREAD` that
//! keeps its parent's block, as after a raw system call, locks with the ID of its parent's thread: it is taken for an
//! owner that has ended as soon as that thread has ended.
//!
//! # No task is left that could post a semaphore
//!
//! - The memory is of `mmap` with `MAP_SHARED | MAP_ANONYMOUS`: it has no name by which, and no descriptor through which
//!   another process could map it. Only a fork of a process that maps it can.
//! - Each other process is readable, and does not map it; or it began before the process in which this program was
//!   started. An `exec` leaves all mappings behind: so only that process and those forked from it since can map the
//!   memory. (Both times are in `/proc/PID/stat`, which all may read, in ticks of 10 ms.)
//! - This process has one thread: the caller, which has no signal handler. (The caller of [`has_no_poster`] has checked
//!   the handlers.)

use super::proc::{self, Memory, Result, each_mapping, each_process, latest_task, value};
use crate::memory::Mutex;
use core::ffi::{CStr, c_int};
use core::ops::ControlFlow::{Break, Continue};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// How often the processes are looked at until no task has begun meanwhile.
const ATTEMPTS: u32 = 20;

/// The owner of a process-shared mutex, if it has ended: see above.
pub(super) fn ended_owner(mutex: &Mutex) -> Option<u32> {
    // Relaxed, here and below: an owner that has ended changes nothing any more.
    let owner = mutex.owner.load(Ordering::Relaxed);
    if owner == 0 || mutex.word.load(Ordering::Relaxed) == 0 || !has_ended(owner) {
        return None;
    }
    let (memory, _) = shared_memory(ptr::from_ref(mutex).addr())?;
    each_of_all(|process| Some(is_in_this_namespace(process)? || !maps(process, memory).ok()?))?;
    let is_still_held = mutex.owner.load(Ordering::Relaxed) == owner
        && mutex.word.load(Ordering::Relaxed) != 0
        && has_ended(owner);
    is_still_held.then_some(owner)
}

/// Whether no task can post the semaphore at this address any more: see above.
pub(super) fn has_no_poster(semaphore: usize) -> Option<()> {
    let (memory, is_anonymous) = shared_memory(semaphore)?;
    if !is_anonymous || threads(format_args!("/proc/thread-self/status")) != Ok(1) {
        return None;
    }
    let me = std::process::id();
    each_of_all(|process| match maps(process, memory) {
        Ok(maps) => Some(process == me || !maps),
        Err(libc::EACCES | libc::EPERM) => is_older_than_the_program(process),
        Err(_) => None,
    })
}

/// Whether a task has ended: there is no task with this ID, or it is a zombie.
fn has_ended(task: u32) -> bool {
    let Ok(number) = c_int::try_from(task) else {
        return false;
    };
    // SAFETY: signal 0 is none, and only asks; glibc returns a valid pointer to the calling thread's `errno`.
    let is_unknown = unsafe {
        libc::syscall(libc::SYS_kill, number, 0) != 0 && *libc::__errno_location() == libc::ESRCH
    };
    let is_zombie = || {
        value(format_args!("/proc/{task}/status"), "State", |state| {
            Some(state.starts_with(['Z', 'X']))
        })
    };
    is_unknown || is_zombie() == Ok(true)
}

fn threads(status: core::fmt::Arguments<'_>) -> Result<u32> {
    value(status, "Threads", |threads| threads.parse().ok())
}

/// The memory in which an address lies, if it is mapped shared; and whether it is anonymous.
fn shared_memory(address: usize) -> Option<(Memory, bool)> {
    let mine = || format_args!("/proc/thread-self/maps");
    // The kernel names anonymous shared memory so. A file of this name is on another device.
    let found = each_mapping(mine(), |mapping| {
        if mapping.contains(address) {
            Break((
                mapping.memory,
                mapping.is_shared,
                mapping.path == "/dev/zero (deleted)",
            ))
        } else {
            Continue(())
        }
    });
    let (memory, is_shared, has_the_name) = found.ok()??;
    if !is_shared {
        return None;
    }
    let is_anonymous = has_the_name && anonymous_device() == Some(memory.device);
    Some((memory, is_anonymous))
}

/// The device of anonymous shared memory: that of some that is mapped for a moment.
fn anonymous_device() -> Option<(u32, u32)> {
    const SIZE: usize = 1;
    // SAFETY: new memory, which no other code knows, and which nothing accesses.
    let page = unsafe {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), SIZE, libc::PROT_NONE, kind, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    let found = each_mapping(format_args!("/proc/thread-self/maps"), |mapping| {
        if mapping.contains(page.addr()) {
            Break(mapping.memory.device)
        } else {
            Continue(())
        }
    });
    // SAFETY: the memory from above.
    unsafe { libc::munmap(page, SIZE) };
    found.ok()?
}

/// Whether a condition holds for each process of the system, none of which begins meanwhile.
fn each_of_all(mut holds: impl FnMut(u32) -> Option<bool>) -> Option<()> {
    /// `PROC_PID_INIT_INO`
    const INITIAL: u64 = 0xefff_fffc;
    if namespace(c"/proc/thread-self/ns/pid")? != INITIAL {
        return None;
    }
    for _ in 0..ATTEMPTS {
        let latest = latest_task().ok()?;
        let mut sees_init = false;
        let failed = each_process(|process| {
            sees_init |= process == 1;
            match holds(process) {
                Some(true) => Continue(()),
                otherwise => Break(otherwise),
            }
        });
        if failed.ok()?.is_some() || !sees_init {
            return None;
        }
        if latest_task().ok()? == latest {
            return Some(());
        }
    }
    None
}

/// A namespace of this process: the inode of its file.
fn namespace(path: &CStr) -> Option<u64> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends in NUL; the kernel writes the status.
    unsafe {
        (libc::stat(path.as_ptr(), status.as_mut_ptr()) == 0).then(|| status.assume_init().st_ino)
    }
}

/// The time namespace; 0 if the system has none.
fn time_namespace() -> u64 {
    namespace(c"/proc/thread-self/ns/time").unwrap_or(0)
}

/// Whether a process is in this process's namespace. One that has ended meanwhile may as well be.
fn is_in_this_namespace(process: u32) -> Option<bool> {
    // The line has an ID for each namespace, from this one on.
    let ids = value(format_args!("/proc/{process}/status"), "NSpid", |ids| {
        Some(ids.split_ascii_whitespace().count() == 1)
    });
    unless_ended(ids, true).ok()
}

/// Whether a process maps this memory. One that has ended does not.
fn maps(process: u32, memory: Memory) -> Result<bool> {
    let mut is_empty = true;
    let found = each_mapping(format_args!("/proc/{process}/maps"), |mapping| {
        is_empty = false;
        if mapping.memory == memory {
            Break(())
        } else {
            Continue(())
        }
    });
    let maps = unless_ended(found.map(|found| found.is_some()), false)?;
    // If its first thread has ended, a process shows no mappings there, although its other threads have them.
    if is_empty && unless_ended(threads(format_args!("/proc/{process}/status")), 1)? != 1 {
        return Err(libc::ENODATA);
    }
    Ok(maps)
}

/// A result of reading a file of a process, or `otherwise` if the process has ended.
fn unless_ended<T>(result: Result<T>, otherwise: T) -> Result<T> {
    match result {
        Err(libc::ENOENT | libc::ESRCH) => Ok(otherwise),
        result => result,
    }
}

/// When the process began in which this program was started (`exec`); 0 if unknown. And its time namespace, on which the
/// unit depends.
static BEGINNING: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Determines the beginning, before any thread uses it.
pub(super) fn prepare() {
    /// Of `/proc/PID/stat`: the process was forked, and has run no `exec`.
    const PF_FORKNOEXEC: u64 = 0x40;
    let began = match proc::beginning(format_args!("/proc/self/stat")) {
        Ok((flags, began)) if flags & PF_FORKNOEXEC == 0 => began,
        _ => 0,
    };
    for (known, now) in BEGINNING.iter().zip([began, time_namespace()]) {
        known.store(now, Ordering::Relaxed);
    }
}

/// Whether a process began before the one in which this program was started, in a tick before.
fn is_older_than_the_program(process: u32) -> Option<bool> {
    let [began, namespace] = BEGINNING
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    let (_, other) = proc::beginning(format_args!("/proc/{process}/stat")).ok()?;
    Some(other < began && namespace == time_namespace())
}
