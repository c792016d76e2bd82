//! Ways to create a task and wait for its end.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use libc::{c_int, c_uint, pid_t};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::{cvt, errno};

/// Forks a child that runs `body` and ends with its exit status, without the parent's atexit
/// handlers; a panic ends it with 101.
///
/// If the caller has other threads, `body` may use only its own memory, descriptors and malloc, whose locks the C
/// library repairs: another lock may have been copied while held.
pub(crate) fn fork(body: impl FnOnce() -> c_int) -> io::Result<pid_t> {
    // SAFETY: the child leaves by `_exit` in any case, and so never returns into the parent's code; the comment above
    // restricts what `body` uses.
    match cvt(unsafe { libc::fork() })? {
        0 => {
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
            // SAFETY: ends this process.
            unsafe { libc::_exit(status) }
        }
        child => Ok(child),
    }
}

/// Waits for the end of `child`.
///
/// # Errors
/// The wait's own, and any end other than exit status 0.
pub(crate) fn wait(child: pid_t) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match cvt(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) if status == 0 => return Ok(()),
            Ok(_) => {
                return Err(io::Error::other(format!(
                    "a child ended with status {status:#x}"
                )));
            }
        }
    }
}

/// A forked child that is killed, and waited for, when this is dropped. It does not outlive the
/// thread that forked it.
pub(crate) struct Child {
    process: pid_t,
    ended: bool,
}

impl Child {
    /// See [`fork`].
    pub(crate) fn fork(body: impl FnOnce() -> c_int) -> io::Result<Self> {
        let parent = std::process::id();
        let process = fork(|| {
            // SAFETY: neither takes pointers.
            let parent_now = unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::getppid()
            };
            // It may have died before the `prctl`.
            if parent_now as u32 != parent {
                return 1;
            }
            body()
        })?;
        Ok(Self {
            process,
            ended: false,
        })
    }

    pub(crate) fn id(&self) -> pid_t {
        self.process
    }

    /// Kills it with SIGKILL. Dropping it waits for its end.
    pub(crate) fn kill(&self) {
        // SAFETY: a child that was not waited for keeps its ID.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
    }

    /// Waits until it stops, as a traced child does, and returns true; or until it ends.
    pub(crate) fn wait_for_stop(&mut self) -> io::Result<bool> {
        let mut status = 0;
        loop {
            // SAFETY: `status` outlives the call.
            match cvt(unsafe { libc::waitpid(self.process, &raw mut status, libc::WUNTRACED) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    self.ended = !libc::WIFSTOPPED(status);
                    return Ok(!self.ended);
                }
            }
        }
    }

    /// Whether it has ended. A later wait still returns its exit status.
    pub(crate) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = Pid::from_raw(self.process).map(|child| waitid(WaitId::Pid(child), options));
        // An error, too, means that there is no such child.
        !matches!(ended, Some(Ok(None)))
    }

    /// See [`wait`].
    fn wait(mut self) -> io::Result<()> {
        self.ended = true;
        wait(self.process)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            // SAFETY: a child that was not waited for keeps its ID.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            let _ = wait(self.process);
        }
    }
}

/// Waits for the end of all `children`. As soon as one fails, the others, which may wait for it, are killed.
///
/// # Errors
/// The first end that was not exit status 0.
pub(crate) fn wait_all(mut children: Vec<Child>) -> io::Result<()> {
    while !children.is_empty() {
        let ended = first_to_end(&children)?;
        children.swap_remove(ended).wait()?;
    }
    Ok(())
}

/// Waits until one of the children ends; returns its index.
fn first_to_end(children: &[Child]) -> io::Result<usize> {
    let ends = children
        .iter()
        .map(|child| {
            let process = Pid::from_raw(child.process).ok_or(io::ErrorKind::InvalidInput)?;
            Ok(pidfd_open(process, PidfdFlags::empty())?)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mut polled: Vec<_> = ends
        .iter()
        .map(|end| PollFd::new(end, PollFlags::IN))
        .collect();
    loop {
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = polled.iter().position(|end| !end.revents().is_empty());
        if let Some(ended) = ended {
            return Ok(ended);
        }
    }
}

/// Waits for the end of any child that reports its end by SIGCHLD (coprocs do not); returns its
/// process ID.
pub(crate) fn wait_any() -> io::Result<pid_t> {
    loop {
        // SAFETY: all zeros is a value of this plain C type, and `info` outlives the call.
        let (waited, ended) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let waited = cvt(libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED));
            (waited, info.si_pid())
        };
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => return waited.map(|_| ended),
        }
    }
}

/// Clones, by a direct system call, a child of the caller's parent that exits immediately.
pub(crate) fn clone_sibling_that_exits() -> io::Result<()> {
    // SAFETY: without CLONE_VM the child has memory of its own, and the null stack keeps a copy of the caller's.
    // glibc's record of its TID is stale there, but is not used: it only exits.
    unsafe {
        match libc::syscall(libc::SYS_clone, libc::CLONE_PARENT, 0, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            0 => libc::_exit(0),
            _ => Ok(()),
        }
    }
}

/// Creates a thread that does nothing, and joins it.
pub(crate) fn create_and_join_thread() -> io::Result<()> {
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        ptr::null_mut()
    }
    let mut thread = std::mem::MaybeUninit::uninit();
    // SAFETY: `nothing` accesses nothing; the thread is joined once, and only if it was created.
    unsafe {
        errno(libc::pthread_create(
            thread.as_mut_ptr(),
            ptr::null(),
            nothing,
            ptr::null_mut(),
        ))?;
        errno(libc::pthread_join(thread.assume_init(), ptr::null_mut()))
    }
}

/// Starts `/bin/true` by `posix_spawn`, and waits for its end.
pub(crate) fn spawn_and_wait() -> io::Result<()> {
    let path = c"/bin/true".as_ptr();
    let argv = [path.cast_mut(), ptr::null_mut()];
    let envp = [ptr::null_mut()];
    let mut child = 0;
    // SAFETY: strings end in zero and arrays in null; none of them is written to.
    errno(unsafe {
        libc::posix_spawn(
            &raw mut child,
            path,
            ptr::null(),
            ptr::null(),
            argv.as_ptr(),
            envp.as_ptr(),
        )
    })?;
    wait(child)
}

/// Closes every descriptor but `kept` and the standard ones. For the start of a forked child that must not keep other
/// programs' pipes open.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd() as c_uint;
    // SAFETY: the child of `fork` leaves by `_exit`, so that no owner of these descriptors ever uses or closes them. If
    // the kernel refuses, they stay open, which only delays an end-of-file.
    unsafe {
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept.max(2) + 1, c_uint::MAX, 0);
    }
}

/// Maps `mib` MiB of private memory in small pages and touches every page. The memory stays mapped as long as the
/// process lives.
pub(crate) fn become_large(mib: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
    let length = usize::try_from(mib << 20).map_err(too_large)?;
    // SAFETY: a new mapping at an address that the kernel chooses, and writes inside it.
    unsafe {
        let start = libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would make the fork of a large parent cheap, and the figure a matter of luck.
        cvt(libc::madvise(start, length, libc::MADV_NOHUGEPAGE))?;
        for offset in (0..length).step_by(4096) {
            start.cast::<u8>().add(offset).write_volatile(1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_waiter_waits_for_a_failed_process() {
        let for_ever = || {
            loop {
                std::thread::park();
            }
        };
        let waiting = Child::fork(for_ever).unwrap();
        let id = waiting.id();
        let ended = wait_all(vec![waiting, Child::fork(|| 3).unwrap()]);
        assert!(ended.unwrap_err().to_string().contains("0x300"));
        // SAFETY: signal 0 is not sent.
        assert_eq!(unsafe { libc::kill(id, 0) }, -1, "{id} is still there");
    }

    #[test]
    fn an_end_is_seen_before_it_is_waited_for() {
        let waiting = Child::fork(|| {
            loop {
                std::thread::park();
            }
        });
        assert!(!waiting.unwrap().has_ended());

        let ending = Child::fork(|| 3).unwrap();
        while !ending.has_ended() {
            std::thread::yield_now();
        }
        assert!(ending.has_ended());
        assert!(ending.wait().unwrap_err().to_string().contains("0x300"));
    }

    #[test]
    fn all_are_waited_for() {
        let children = (0..3).map(|_| Child::fork(|| 0)).collect::<io::Result<_>>();
        wait_all(children.unwrap()).unwrap();
    }
}
