//! Policies and priorities as the kernel reports them, and whether this process may set them.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::mutex::{Mutex, Protect};
use latchwork_testkit::Trial;
use std::thread;

pub mod count;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// With `SCHED_RESET_ON_FORK`, if set.
    pub policy: i32,
    pub priority: i32,
}

pub const fn fifo(priority: i32) -> Now {
    Now {
        policy: libc::SCHED_FIFO,
        priority,
    }
}

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

pub const OTHER: Now = fair(libc::SCHED_OTHER);

impl Now {
    /// A thread's; 0 is the calling one.
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

    /// Gives it to a thread; 0 is the calling one. Whether the system agreed.
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

    pub fn give(self, thread: i32) {
        assert!(
            self.try_give(thread),
            "{self:?}: {}",
            std::io::Error::last_os_error()
        );
    }

    pub fn flagged(self) -> Self {
        Self {
            policy: self.policy | libc::SCHED_RESET_ON_FORK,
            ..self
        }
    }
}

/// The calling thread.
pub fn now() -> Now {
    Now::of(0)
}

pub fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

pub fn nice() -> i32 {
    // SAFETY: no preconditions. The offset is the kernel's, which libc undoes.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

pub fn set_nice(nice: i32) {
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0);
}

/// Whether this process may use every priority; if not, says which test is skipped.
pub fn may_use_priorities(test: &str) -> bool {
    let may = thread::spawn(|| fifo(99).try_give(0)).join().unwrap();
    if !may {
        println!("skipped: {test} needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of 99");
    }
    may
}

/// Runs it in a thread that the test ends with.
pub fn in_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        scope
            .spawn(body)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a test in a thread of its own, whose priority it may change.
pub fn with_priorities<F: FnOnce(&Trial) + Send>(body: F) {
    // A closure is named after the function that contains it.
    let name = std::any::type_name::<F>().rsplit("::").nth(1);
    let test = name.expect("a closure has a function");
    if may_use_priorities(test) {
        let trial = Trial::begin(test);
        in_thread(|| body(&trial));
    }
}

pub fn lock(ceiling: u8) -> Mutex<u32, Protect> {
    Mutex::protect(ceiling, 0)
}

/// What a section of this mutex runs at.
pub fn inside(mutex: &Mutex<u32, Protect>) -> Now {
    let _guard = mutex.lock().unwrap();
    now()
}
