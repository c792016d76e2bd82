//! Which process had an ID.
//!
//! The kernel gives an ID to another process once the first one was reaped. Only its parent can reap a process, but any code of
//! the parent's can: the library does not learn of it. To hold a pidfd from the start would do, at one descriptor for each child.
//! So the child notes at its start what tells it from later ones, and its parent compares that before it signals or reaps:
//!
//! - since Linux 6.9, the inode of its pidfds. No two processes have the same one as long as the system runs.
//! - before, the time. A process that started after this note was made is another one. The kernel gives start times in ticks (of
//!   10 ms); so a process that got the ID in the tick in which the first one started is taken for that.
//!
//! The parent opens a pidfd first, and then compares, signals and reaps through it. A process that is reaped in between by
//! another thread is not mistaken for the next one, since the pidfd refers to no other.
//!
//! What remains: if no descriptor is free, or if on an older kernel `/proc` cannot be read, nothing can be compared. A process is
//! then taken for a child by its ID alone.
#![allow(unsafe_code)]

use super::errno::done;
use super::limits::{self, Usage};
use super::process::{Ended, is_child, look_for_child, open_process, wait_for};
use super::{clock, confine, inspect, introspect};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;

/// What tells a process from a later one that has its ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The inode of its pidfds; 0 if unknown. Before Linux 6.9 all pidfds have the same.
    pub inode: u64,
    /// A time since boot at which it existed; 0 if unknown.
    pub seen: u64,
}

impl ProcessIdentity {
    /// That of the calling process. Allocates nothing.
    pub fn own() -> Self {
        // A filter may kill a process that opens one.
        let descriptor = confine::may_open().then(|| {
            let pid = rustix::process::getpid();
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        });
        let inode = |descriptor: OwnedFd| Some(rustix::fs::fstat(descriptor).ok()?.st_ino);
        Self {
            inode: descriptor.and_then(Result::ok).and_then(inode).unwrap_or(0),
            seen: clock::since_boot(),
        }
    }

    /// A descriptor of this process, a child of the caller's that had this ID. `CHILD` or `SRCH`: it was reaped.
    pub fn open(&self, pid: u32) -> Result<OwnedFd, Errno> {
        let process = open_process(pid)?;
        if is_child(&process) && self.is_of(&process, pid) {
            Ok(process)
        } else {
            Err(Errno::CHILD)
        }
    }

    /// Whether it is that of the process that the descriptor refers to; also if that cannot be known.
    fn is_of(&self, process: &OwnedFd, pid: u32) -> bool {
        const PIDFS: u64 = 0x5049_4446;
        let has_inode = || Some(rustix::fs::fstatfs(process).ok()?.f_type as u64 == PIDFS);
        if self.inode != 0 && has_inode() == Some(true) {
            return rustix::fs::fstat(process).is_ok_and(|stat| stat.st_ino == self.inode);
        }
        // If the descriptor's process is reaped meanwhile, the file is that of a later one.
        let started = || inspect::process_started(pid);
        self.seen == 0
            || !introspect::shows_own_ids()
            || started().is_none_or(|started| started <= self.seen)
    }

    /// As [`Self::reap`], for a child that has no exit signal unless one of its threads has called `exec` as it ended. So a look at
    /// the ID suffices: it cannot be that of an ordinary child.
    pub fn reap_clone(&self, pid: u32) -> Result<Option<(Ended, Usage)>, Errno> {
        match wait_for(pid, libc::__WCLONE | libc::WNOHANG) {
            Err(Errno::CHILD) => self.reap(pid),
            reaped => reaped,
        }
    }

    /// Reaps this process, a child of the caller's that had this ID, if it has ended; also one that has become another program
    /// by `exec`. `None`: it is still running, or another process has the ID and is. `CHILD`: it was reaped already.
    pub fn reap(&self, pid: u32) -> Result<Option<(Ended, Usage)>, Errno> {
        if pid == 0 {
            return Err(Errno::CHILD);
        }
        if !look_for_child(libc::P_PID, pid)? {
            return Ok(None);
        }
        match self.open(pid) {
            Ok(process) => reap_through(&process),
            Err(Errno::MFILE | Errno::NFILE) => wait_for(pid, libc::__WALL | libc::WNOHANG),
            Err(Errno::SRCH) => Err(Errno::CHILD),
            Err(error) => Err(error),
        }
    }
}

/// Reaps the process that a descriptor refers to.
fn reap_through(process: &OwnedFd) -> Result<Option<(Ended, Usage)>, Errno> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = limits::no_usage();
    let (kind, id) = (libc::P_PIDFD, process.as_raw_fd());
    // The system call: the C library's function has no place for the usage.
    // SAFETY: the kernel writes only the two variables.
    done(unsafe {
        libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            info.as_mut_ptr(),
            flags,
            &raw mut usage,
        )
    })?;
    // SAFETY: zeroed, or written by the kernel.
    let info = unsafe { info.assume_init() };
    // SAFETY: as above; the ID is 0 if the process has not ended.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let ended = match info.si_code {
        libc::CLD_EXITED => Ended::Exited(status),
        code => Ended::Signalled {
            signal: status,
            core: code == libc::CLD_DUMPED,
        },
    };
    Ok(Some((ended, Usage::from_raw(&usage))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that waits until it is killed.
    fn fork_child() -> u32 {
        // SAFETY: the child calls only `pause`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            loop {
                // SAFETY: no preconditions.
                unsafe { libc::pause() };
            }
        }
        pid.cast_unsigned()
    }

    #[test]
    fn another_process_is_told_by_its_inode_or_by_its_start() {
        let pid = fork_child();
        let process = open_process(pid).unwrap();
        let inode = rustix::fs::fstat(&process).unwrap().st_ino;
        let seen = clock::since_boot();
        let known =
            [(inode, seen), (0, seen), (0, 0)].map(|(inode, seen)| ProcessIdentity { inode, seen });
        for identity in known {
            assert!(identity.open(pid).is_ok(), "{identity:?}");
            assert_eq!(identity.reap(pid), Ok(None));
        }
        let other = ProcessIdentity { inode: 0, seen: 1 };
        assert_eq!(other.open(pid).map(drop), Err(Errno::CHILD));
        let own = ProcessIdentity::own();
        assert!(own.is_of(
            &open_process(std::process::id()).unwrap(),
            std::process::id()
        ));
        super::super::process::send_signal(&process, rustix::process::Signal::KILL).unwrap();
        super::super::process::wait_for_end(&process, None).unwrap();
        // Now that it has ended, too.
        assert_eq!(other.reap(pid), Err(Errno::CHILD));
        let (ended, _) = known[0].reap(pid).unwrap().unwrap();
        let (signal, core) = (libc::SIGKILL, false);
        assert_eq!(ended, Ended::Signalled { signal, core });
        assert_eq!(known[0].reap(pid), Err(Errno::CHILD));
    }
}
