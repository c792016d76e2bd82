//! Support for tests of priority-inheritance locks: locks without data, and checks whether a task sleeps.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use latchwork::mutex::{Inherit, InheritFault, InheritPlain, Protocol};
use latchwork::sharing::Sharing;
use latchwork::time::Deadline;
use std::fs::read_to_string;
use std::thread;

/// Between two checks whether another task sleeps, or runs at some priority. The caller often owns the lock for which that task
/// waits, and a waiter for a priority-inheritance futex does not sleep while the owner runs: it spins in the kernel, where its
/// processor has nothing else to do. So a check that yields is one that may never succeed.
pub fn between_checks() {
    thread::sleep(Duration::from_millis(1));
}

/// A lock of either size.
pub trait Lock: Protocol<Fault = InheritFault> + Default + Send + Sync + 'static {
    /// Where the gate's word lies behind the word, in bytes; 0 if there is none.
    const GATE: usize;

    fn lock(&self) {
        self.acquire().expect("the lock can be taken");
    }

    /// Takes the lock, if it is not held.
    fn try_lock(&self) -> bool {
        self.try_acquire().expect("the lock can be taken")
    }

    /// For the holder.
    fn unlock(&self) {
        // SAFETY: called by the holder.
        unsafe { self.release() };
    }

    /// Takes the lock and releases it.
    fn enter(&self) {
        self.lock();
        self.unlock();
    }

    /// The thread that holds it, by its ID.
    fn holder(&self) -> Option<u32>;

    fn word(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    fn gate(&self) -> usize {
        self.word() + Self::GATE
    }

    /// Waits until a task that comes behind the gate's owner sleeps: at the gate, or, if it was there for a second
    /// before anybody looked, at the word.
    fn wait_until_behind(&self, task: &Task) {
        wait_until_asleep_at(task.id(), &[self.gate(), self.word()]);
    }
}

impl<S: Sharing + Send + Sync> Lock for Inherit<S> {
    const GATE: usize = 4;

    fn holder(&self) -> Option<u32> {
        self.owner()
    }
}

impl<S: Sharing + Send + Sync> Lock for InheritPlain<S> {
    const GATE: usize = 0;

    fn holder(&self) -> Option<u32> {
        self.owner()
    }
}

/// A deadline that no test reaches.
pub fn distant() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

/// A thread, or a process of one thread, by its ID; other tasks wait until it has published the ID.
pub struct Task(AtomicI32);

impl Task {
    pub const fn new() -> Self {
        Self(AtomicI32::new(0))
    }

    /// Publishes the ID of the calling task.
    pub fn begin(&self) {
        // SAFETY: no preconditions.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    pub fn id(&self) -> i32 {
        loop {
            match self.0.load(Ordering::Acquire) {
                0 => between_checks(),
                id => return id,
            }
        }
    }

    /// Waits until it sleeps in a futex call on that address.
    pub fn wait_until_asleep(&self, address: usize) {
        wait_until_asleep(self.id(), address);
    }

    /// Waits until its priority, as the kernel schedules it, is this: [`ordinary`], or −1 − *p* for a
    /// task that runs at real-time priority *p*, its own or a lent one.
    pub fn wait_for_priority(&self, priority: i64) {
        while !self.has_priority(priority) {
            between_checks();
        }
    }

    pub fn has_priority(&self, priority: i64) -> bool {
        priority_of(self.id()) == priority
    }
}

/// Waits until a task of any process sleeps in a futex call on that address.
pub fn wait_until_asleep(id: i32, address: usize) {
    wait_until_asleep_at(id, &[address]);
}

/// The same, on one of these.
pub fn wait_until_asleep_at(id: i32, addresses: &[usize]) {
    while !addresses.iter().any(|address| is_asleep(id, *address)) {
        between_checks();
    }
}

/// Whether a task of any process sleeps in a futex call on that address.
pub fn is_asleep(id: i32, address: usize) -> bool {
    let expected = [libc::SYS_futex.to_string(), format!("{address:#x}")];
    // While it sleeps: the number of the call, and its arguments.
    let call = read_to_string(format!("/proc/{id}/syscall")).unwrap_or_default();
    call.split(' ').take(2).eq(expected.iter()) && state_of(id) == Some('S')
}

/// The fields of a task's `stat` behind its name, of which the first is field 3.
fn stat(id: i32) -> Vec<String> {
    let text = read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default();
    fields.split(' ').map(String::from).collect()
}

fn state_of(id: i32) -> Option<char> {
    stat(id).first()?.chars().next()
}

fn priority_of(id: i32) -> i64 {
    stat(id)
        .get(15)
        .and_then(|field| field.parse().ok())
        .expect("a living task")
}

/// The priority of a task that has no real-time one and was lent none: 20, plus the niceness of these
/// tests.
pub fn ordinary() -> i64 {
    // SAFETY: no preconditions; 0 is the calling thread.
    20 + i64::from(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) })
}

/// Gives a task `SCHED_FIFO` at this priority; whether that is allowed.
pub fn make_real_time(id: i32, priority: i32) -> bool {
    // SAFETY: a structure of integers; musl's has further ones, which mean nothing.
    let mut parameter: libc::sched_param = unsafe { core::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: the kernel reads the parameter.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            id,
            libc::SCHED_FIFO,
            &raw const parameter,
        )
    };
    result == 0
}

/// Whether threads may have real-time priorities; says so if not.
pub fn may_be_real_time(test: &str) -> bool {
    let allowed = thread::spawn(|| make_real_time(0, 1)).join().unwrap();
    if !allowed {
        println!("{test}: skipped, real-time priorities are not allowed here");
    }
    allowed
}
