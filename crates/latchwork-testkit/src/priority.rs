//! Scheduling policies and priorities as the kernel reports them, and whether this process may use them.
#![allow(unsafe_code)]

use crate::Trial;
use std::thread;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The kernel's number, with `SCHED_RESET_ON_FORK` if that is set.
    pub policy: i32,
    /// The real-time priority; 0 in other policies.
    pub priority: i32,
}

/// `SCHED_FIFO` with this priority.
pub const fn fifo(priority: i32) -> Now {
    Now {
        policy: libc::SCHED_FIFO,
        priority,
    }
}

/// `SCHED_RR` with this priority.
pub const fn round_robin(priority: i32) -> Now {
    Now {
        policy: libc::SCHED_RR,
        priority,
    }
}

/// A policy without real-time priorities.
pub const fn fair(policy: i32) -> Now {
    Now {
        policy,
        priority: 0,
    }
}

/// `SCHED_OTHER`.
pub const OTHER: Now = fair(libc::SCHED_OTHER);

impl Now {
    /// How a thread is scheduled; 0 is the calling one.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn of(thread: i32) -> Self {
        let mut priority = 0_i32;
        // SAFETY: the kernel writes one int.
        let (policy, done) = unsafe {
            (
                libc::syscall(libc::SYS_sched_getscheduler, thread) as i32,
                libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority),
            )
        };
        assert!(policy >= 0 && done == 0);
        Self { policy, priority }
    }

    /// Schedules a thread so; 0 is the calling one. Returns whether the system agreed.
    pub fn try_give(self, thread: i32) -> bool {
        let priority = self.priority;
        // SAFETY: the kernel reads one int.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                thread,
                self.policy,
                &raw const priority,
            )
        };
        done == 0
    }

    /// Schedules a thread so; 0 is the calling one.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn give(self, thread: i32) {
        assert!(
            self.try_give(thread),
            "{self:?}: {}",
            std::io::Error::last_os_error()
        );
    }

    /// The same with `SCHED_RESET_ON_FORK`.
    #[must_use]
    pub fn flagged(self) -> Self {
        Self {
            policy: self.policy | libc::SCHED_RESET_ON_FORK,
            ..self
        }
    }
}

/// How the calling thread is scheduled.
pub fn now() -> Now {
    Now::of(0)
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// The nice value of the calling process.
pub fn nice() -> i32 {
    // SAFETY: no preconditions. The offset is the kernel's, which libc undoes.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sets the nice value of the calling process.
///
/// # Panics
/// If the system refuses.
pub fn set_nice(nice: i32) {
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
}

/// Whether this process may use every priority; if not, prints which test is skipped.
pub fn may_use_priorities(test: &str) -> bool {
    let may = thread::spawn(|| fifo(99).try_give(0)).join().unwrap();
    if !may {
        println!("skipped: {test} needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of 99");
    }
    may
}

/// Runs `body` in a thread of its own, which ends before this returns.
pub fn in_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        scope
            .spawn(body)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a test in a thread of its own, so that its priority is not the test runner's; skips it where priorities are
/// not permitted.
pub fn with_priorities<F: FnOnce(&Trial) + Send>(body: F) {
    // A closure is named after the function that it stands in.
    let name = std::any::type_name::<F>().rsplit("::").nth(1);
    let test = name.expect("a closure has a function");
    if may_use_priorities(test) {
        let trial = Trial::begin(test);
        in_thread(|| body(&trial));
    }
}
