//! Child processes that can be killed at any instruction, and never outlive their test.
//!
//! A child requests SIGKILL for its parent thread's death before it does anything else. Its handle kills and reaps it
//! when dropped, and the watchdog knows all children.
#![allow(unsafe_code)]

use crate::apart::{self, Parent};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// The exit code of a child whose body panicked.
const PANICKED: i32 = 101;

/// Process IDs of the live children of this process; 0 for none.
static CHILDREN: [AtomicI32; 512] = [const { AtomicI32::new(0) }; 512];
/// Whether this process is a child.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code: 0 if its body returned, 101 if it panicked.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A process of one thread that runs a closure of its parent.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    exit: Option<Exit>,
    is_apart: bool,
}

impl Child {
    /// Runs `body` in a fork of this process. The child ends with `_exit`: no destructors, no atexit
    /// handlers. It is killed when the calling *thread* ends.
    ///
    /// After [`Trial::across_namespaces`](crate::Trial::across_namespaces) it may be in a PID namespace of its own.
    ///
    /// # Panics
    /// If the process cannot be made.
    pub fn fork(body: impl FnOnce()) -> Self {
        if apart::is_next_apart() {
            let mut child = Self::start(apart::fork, Parent::outside(), body);
            child.is_apart = true;
            return child;
        }
        Self::fork_here(body)
    }

    /// As [`Self::fork`], in the PID namespace of this process.
    pub(crate) fn fork_here(body: impl FnOnce()) -> Self {
        // SAFETY: the child runs `body` and leaves with `_exit`. libc repairs its own locks in the child; tests run one
        // after the other, so no other test's thread holds one of std's locks, and `start` has those of the output.
        Self::start(|| unsafe { libc::fork() }, Parent::here(), body)
    }

    /// As [`Self::fork`], if the next child of this process is in a PID namespace in which the parent is not.
    ///
    /// # Panics
    /// If the process cannot be made.
    pub fn fork_outside(body: impl FnOnce()) -> Self {
        // SAFETY: as for `fork`.
        Self::start(|| unsafe { libc::fork() }, Parent::outside(), body)
    }

    /// As [`Self::fork`], by the raw system call: libc does not notice it. Its cached thread ID and its robust list are
    /// the parent's. Only for a body that survives this: the body must not allocate if another thread could have been
    /// allocating.
    ///
    /// # Panics
    /// If the process cannot be made.
    pub fn clone_raw(body: impl FnOnce()) -> Self {
        // SAFETY: no CLONE_VM and no new stack: it returns twice, as fork does.
        Self::start(
            || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 },
            Parent::here(),
            body,
        )
    }

    fn start(fork: impl FnOnce() -> i32, parent: Parent, body: impl FnOnce()) -> Self {
        HOOK.call_once(report_panics_of_children);
        // The harness prints whenever it likes. If it did so during the fork, the child would find the output locked.
        let output = (std::io::stdout().lock(), std::io::stderr().lock());
        let pid = fork();
        drop(output);
        if pid == 0 {
            become_child(&parent);
            let code = if catch_unwind(AssertUnwindSafe(body)).is_ok() {
                0
            } else {
                PANICKED
            };
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(code) };
        }
        assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
        for place in &CHILDREN {
            // Relaxed: only the watchdog reads the list, and each entry is complete by itself.
            if place
                .compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                break;
            }
        }
        Self {
            pid,
            exit: None,
            is_apart: false,
        }
    }

    /// Its process ID, as this process sees it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it was forked into a PID namespace of its own.
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Sends a signal, unless the child has been reaped.
    pub fn signal(&self, signal: i32) {
        if self.exit.is_none() {
            // SAFETY: the ID of an unreaped child cannot be reused.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Kills it, unless it has ended, and reaps it.
    pub fn kill(&mut self) -> Exit {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.reap(0) {
                return exit;
            }
        }
    }

    /// Its exit, if it has ended.
    pub fn try_wait(&mut self) -> Option<Exit> {
        self.reap(libc::WNOHANG)
    }

    /// Waits for its end, which must be regular.
    ///
    /// # Panics
    /// If it panicked or was killed.
    pub fn succeed(mut self) {
        let exit = self.wait();
        assert_eq!(exit, Exit::Code(0), "child {}", self.pid);
    }

    /// Whether it sleeps in a futex system call at this moment.
    #[must_use]
    pub fn is_in_futex(&self) -> bool {
        is_in_futex(&format!("/proc/{}", self.pid))
    }

    /// As [`is_in_region_sleep`].
    #[must_use]
    pub fn is_in_region_sleep(&self) -> bool {
        is_in_region_sleep(self.pid)
    }

    /// Whether a signal has stopped it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        state_of(self.pid) == Some('T')
    }

    fn reap(&mut self, flags: i32) -> Option<Exit> {
        if self.exit.is_some() {
            return self.exit;
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process, and writes a local variable.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, flags | libc::__WALL) };
        if pid == self.pid {
            self.exit = exit_of(status);
        }
        if self.exit.is_some() {
            forget(self.pid);
        }
        self.exit
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}

const SYS_FUTEX_WAITV: i64 = 449;

/// How a process ended, from its wait status; `None` if it only stopped.
pub(crate) fn exit_of(status: i32) -> Option<Exit> {
    if libc::WIFEXITED(status) {
        Some(Exit::Code(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Exit::Signal(libc::WTERMSIG(status)))
    } else {
        None
    }
}

/// A task's state, as `ps` shows it.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    state_in(&format!("/proc/{pid}"))
}

fn state_in(directory: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("{directory}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether the task of this directory of /proc sleeps in a futex system call at this moment.
pub(crate) fn is_in_futex(directory: &str) -> bool {
    let number = call_of_sleeper(directory).map(|(number, _)| number);
    [libc::SYS_futex, SYS_FUTEX_WAITV]
        .map(Some)
        .contains(&number)
}

/// Whether a sleep can be on several words. If not, a task that sleeps in a region wakes 20 times a second.
#[must_use]
pub fn has_futex_waitv() -> bool {
    latchwork_sys::sys::probe::futex_waitv().is_ok()
}

/// Whether a process sleeps in a region and a death there ends its sleep. In the sleep by which a wait may begin, none does; that
/// one is on one or two words in all waits of the tests. Without `futex_waitv`, whether it sleeps.
#[must_use]
pub fn is_in_region_sleep(process: i32) -> bool {
    let watches = has_futex_waitv();
    call_of_sleeper(&format!("/proc/{process}")).is_some_and(|(number, words)| match number {
        SYS_FUTEX_WAITV => words > 2,
        _ => !watches && number == libc::SYS_futex,
    })
}

/// The number of words on which a process [sleeps in a region](is_in_region_sleep); `None` if it does not, and without
/// `futex_waitv`.
#[must_use]
pub fn region_sleep_words(process: i32) -> Option<u64> {
    let (number, words) = call_of_sleeper(&format!("/proc/{process}"))?;
    (number == SYS_FUTEX_WAITV && words > 2).then_some(words)
}

/// The number of the system call in which the task sleeps, and the call's second argument.
fn call_of_sleeper(directory: &str) -> Option<(i64, u64)> {
    // The file says "running", or begins with the number of the system call, which the kernel gives only for a blocked
    // task.
    let call = std::fs::read_to_string(format!("{directory}/syscall")).ok()?;
    let mut parts = call.split(' ');
    let number = parts.next()?.parse().ok()?;
    let second = parts.nth(1)?.strip_prefix("0x")?;
    let second = u64::from_str_radix(second, 16).ok()?;
    (state_in(directory) == Some('S')).then_some((number, second))
}

fn become_child(parent: &Parent) {
    // SAFETY: none of the calls has preconditions.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The parent may have died before the `prctl`.
        if parent.is_dead() {
            libc::_exit(1);
        }
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    for place in &CHILDREN {
        place.store(0, Ordering::Relaxed);
    }
}

/// Ends the calling process as if another had killed it: SIGKILL, or an `_exit` in the first process of a PID namespace, which
/// ignores its own signals.
pub fn die() -> ! {
    // SAFETY: neither call has preconditions.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(0)
    }
}

/// libtest captures panic output in memory, which is lost with the child: so a child writes its panic to the real
/// standard error.
fn report_panics_of_children() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if IS_CHILD.load(Ordering::Relaxed) {
            let text = format!("child {}: {info}\n", std::process::id());
            // SAFETY: writes a buffer of this function to an open descriptor, or fails.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        } else {
            usual(info);
        }
    }));
}

fn forget(pid: i32) {
    for place in &CHILDREN {
        let _ = place.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

pub(crate) fn living() -> impl Iterator<Item = i32> {
    CHILDREN
        .iter()
        .map(|place| place.load(Ordering::Relaxed))
        .filter(|pid| *pid > 0)
}

pub(crate) fn kill_all() {
    for pid in living() {
        // SAFETY: the IDs of unreaped children cannot be reused.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
