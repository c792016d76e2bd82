//! The handle of a coproc: waiting for its end, signals, its result.
//!
//! *Why no death is missed.* A running coproc is a task of the region. A joiner sleeps on the task's life-word, which
//! changes when the coproc leaves the region in good order and when it dies, by whatever cause, `exec` included. (A
//! coproc that leaves the region by itself runs on; its join then waits for the end of the process.) A first short
//! sleep watches this life-word alone, since most joins end in it. A longer sleep is the region's `park`, which watches
//! all tasks: the kernel wakes only one sleeper per death, and that sleeper may die, too. A coproc that leaves in good
//! order does not count as a death, so `park` is given the value that its life-word had when the coproc was seen alive.
#![allow(unsafe_code)]

use super::reap::{self, NO_DESCRIPTOR_CHECK, Unreaped};
use super::{Attributes, JoinError, Ref, child, record};
use crate::atomic::{AtomicU32, Ordering};
use crate::backoff::{poll_briefly, yield_if_brief};
use crate::mutex::Mutex;
use crate::sys::futex::{self, Sharing};
use crate::sys::limits::Usage;
use crate::sys::process::{self, Ended};
use crate::sys::process_mark::ProcessMark;
use crate::time::Deadline;
use core::fmt;
use core::time::Duration;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::Signal;
use std::sync::Arc;

/// How long a joiner spins for a coproc from the pool, counted from the coproc's start, on a machine of several
/// processors. A short coproc is then joined without a sleep and a wake-up, which would cost as much as its whole life.
/// A longer one costs its joiner this much processor time, once.
const JOIN_SPIN: Duration = Duration::from_micros(40);

/// How long the first sleep lasts, which watches the life-word of one task alone.
const FIRST_SLEEP: Duration = Duration::from_millis(2);

/// How a coproc ended, and what it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How it ended.
    pub outcome: Outcome,
    /// What it used: up to the end of its function ([`Coproc::join`]), or in its whole life ([`Coproc::join_reaped`],
    /// and after any death).
    pub usage: Usage,
}

impl Exit {
    /// Whether it returned 0, or exited with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.outcome, Outcome::Returned(0) | Outcome::Exited(0))
    }
}

/// How a coproc ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Its function returned this.
    Returned(i32),
    /// Its function panicked; the beginning of the message.
    Panicked(String),
    /// It called `exit` with this status, or became another program by `exec`, which exited with it.
    Exited(i32),
    /// A signal killed it.
    Signalled {
        /// Its number.
        signal: i32,
        /// A core file was written.
        core: bool,
    },
}

/// Why a signal was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KillError {
    /// The process has ended.
    #[error("the process has ended")]
    Ended,
    /// Another process has spawned it, from which this one was forked.
    #[error("another process has spawned it")]
    OtherProcess,
    /// The kernel refused.
    #[error("pidfd_send_signal failed: {0}")]
    System(Errno),
}

/// The handle of a coproc, for its creator.
///
/// Dropping it detaches: the coproc goes on, and is reaped by the first spawn, join or
/// [`reap_ended`](super::reap_ended) after its end.
///
/// Only the process that spawned the coproc can use the handle: in a child of a fork, and in another coproc, nothing is known
/// of it. There [`Self::is_alive`] is false, and a join fails with [`JoinError::OtherProcess`].
///
/// ```
/// use latchwork::coproc::{Attributes, Coprocs, Outcome, Signal};
/// use latchwork::region::{Region, RegionOptions};
///
/// fn sleep(_: &Region, seconds: u64) -> i32 {
///     std::thread::sleep(std::time::Duration::from_secs(seconds));
///     0
/// }
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// // SAFETY: no static owns anything in a region, or a descriptor.
/// let coprocs = unsafe { Coprocs::new(&region)? };
/// let coproc = coprocs.spawn_value(sleep, 1000, &Attributes::new().name("sleeper"))?;
/// coproc.kill(Signal::KILL)?;
/// assert!(matches!(coproc.join()?.outcome, Outcome::Signalled { signal: 9, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a coproc whose handle is dropped is detached"]
pub struct Coproc {
    record: Ref,
    pid: u32,
    name: String,
    detached: bool,
    made_by: ProcessMark,
    /// Whether it came from the pool.
    pooled: bool,
    /// Until this time a join spins instead of sleeping.
    spin_until: Option<Deadline>,
    process: Mutex<Process>,
}

#[derive(Default)]
struct Process {
    descriptor: Option<Arc<OwnedFd>>,
    /// The process was reaped, and its ID may be reused. `Err`: its status is lost.
    reaped: Option<Result<(Ended, Usage), ()>>,
}

impl Coproc {
    /// `pooled`: it came from the pool. `spins`: a join may spin, since the coproc runs in parallel with its creator.
    pub(super) fn new(
        record: Ref,
        attributes: &Attributes,
        made_by: ProcessMark,
        pooled: bool,
        spins: bool,
    ) -> Self {
        Self {
            pid: record.pid.load(Ordering::Relaxed),
            record,
            name: attributes.display_name().to_owned(),
            detached: attributes.detached,
            made_by,
            pooled,
            spin_until: spins.then(|| Deadline::after(JOIN_SPIN)),
            process: Mutex::default(),
        }
    }

    /// The process ID. The kernel may reuse it once the coproc has ended and was joined; to send a signal use
    /// [`Self::kill`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The name that [`Attributes::name`](super::Attributes::name) gave.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its function still runs. A coproc that became another program, or has
    /// [left](crate::region::Region::detach) the region, counts as ended; a join then waits for the end of its process.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.life_word().is_some()
    }

    /// Waits until its function has ended, or it died.
    ///
    /// Returns as soon as the result is available and the coproc has left the region: its locks are free, or report
    /// owner death to their next owners. The kernel may still need some time to tear the process down; the zombie is
    /// reaped later, by another call. [`Self::join_reaped`] waits for that, too. If the coproc died, what it left in
    /// the region has been swept.
    ///
    /// # Errors
    /// [`JoinError::Detached`]; see [`JoinError`].
    pub fn join(self) -> Result<Exit, JoinError> {
        self.refuse_detached()?;
        self.wait(None)
    }

    /// As [`Self::join`], until `deadline`; may be called again.
    ///
    /// # Errors
    /// [`JoinError::TimedOut`]; see [`JoinError`].
    pub fn join_until(&self, deadline: Deadline) -> Result<Exit, JoinError> {
        self.refuse_detached()?;
        self.wait(Some(deadline))
    }

    /// As [`Self::join_until`], also for a detached coproc, whose handle the caller has.
    pub(super) fn end_until(&self, deadline: Deadline) -> Result<Exit, JoinError> {
        self.wait(Some(deadline))
    }

    /// Waits until the kernel has torn the process down: its descriptors are closed, its threads are gone, and its
    /// usage is complete. A coproc from the pool delays its exit by 10 ms, so that a burst of short coprocs does not
    /// pay for the teardown.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub fn join_reaped(self) -> Result<Exit, JoinError> {
        self.refuse_detached()?;
        let published = self.wait(None)?;
        let (_, usage) = self.reap(None)?;
        Ok(Exit { usage, ..published })
    }

    /// Sends a signal. The signal cannot reach another process, not even a child that got the ID after other code of this process had
    /// reaped the coproc: the signal is sent through a pidfd, which is compared with what the coproc noted at its start. (Before Linux
    /// 6.9 that is the time: a child that got the ID within the same 10 ms is not told from the coproc, and none if `/proc` cannot be
    /// read.)
    /// A coproc from the pool discards the signals that arrive before its function starts, so the call waits until then, unless
    /// the signal is `SIGKILL` or `SIGCONT`. One that was stopped while it was ready starts when it is continued.
    ///
    /// # Errors
    /// [`KillError`].
    pub fn kill(&self, signal: Signal) -> Result<(), KillError> {
        if !self.made_by.is_own() {
            return Err(KillError::OtherProcess);
        }
        // A coproc from the pool discards the signals that arrived before its work, so this waits until the work has
        // started. SIGCONT does its work as it is sent; one that was stopped while it was ready starts no other way.
        let waits = !matches!(signal, Signal::KILL | Signal::CONT);
        while waits && self.record.state() == record::ASSIGNED && self.is_alive() {
            let pause = Some(Deadline::after(Duration::from_micros(200)));
            let state = &self.record.state;
            futex::wait(state, record::ASSIGNED, Sharing::Shared, pause);
        }
        let descriptor = self.descriptor().map_err(|error| match error {
            JoinError::System { error, .. } => KillError::System(error),
            _ => KillError::Ended,
        })?;
        process::send_signal(&*descriptor, signal).map_err(|error| match error {
            Errno::SRCH => KillError::Ended,
            error => KillError::System(error),
        })
    }

    /// Detaches the coproc; the same as dropping the handle.
    pub fn detach(self) {}

    /// The life-word of its task, and its current value; `None` once the task is gone, in good order or by death, and in
    /// a process that did not spawn it: there the record may be freed.
    pub(super) fn life_word(&self) -> Option<(&AtomicU32, u32)> {
        if !self.made_by.is_own() {
            return None;
        }
        self.record.region.inner().life_word(self.record.task()?)
    }

    /// Settles its death, once its task is gone: other tasks may wait for what it held.
    pub(super) fn settle(&self) {
        if let Some(task) = self.record.task() {
            let inner = self.record.region.inner();
            crate::atomic::unless_disabled!(JoinSweeps, inner.settle(task), ());
        }
    }

    pub(super) fn region(&self) -> &crate::region::Region {
        &self.record.region
    }

    fn refuse_detached(&self) -> Result<(), JoinError> {
        // In the child of a fork, `wait` says so.
        if self.detached && self.is_own() {
            return Err(JoinError::Detached);
        }
        Ok(())
    }

    fn wait(&self, deadline: Option<Deadline>) -> Result<Exit, JoinError> {
        // Before any lock, which another thread of the parent may have held at the fork.
        if !self.made_by.is_own() {
            return Err(JoinError::OtherProcess);
        }
        if self.is_alive() {
            // Done here, while the coproc still runs and before this thread sleeps.
            reap::reap_some();
        }
        if !self.wait_until_gone(deadline) {
            return Err(JoinError::TimedOut);
        }
        // It may have died, also after its result.
        self.settle();
        if let Some(outcome) = self.published() {
            return Ok(Exit {
                outcome,
                usage: self.record.usage(),
            });
        }
        let (ended, usage) = self.reap(deadline)?;
        // There is a result after all if the coproc had left the region by itself, and ended its function later.
        let outcome = self.published().unwrap_or(match ended {
            Ended::Exited(status) => Outcome::Exited(status),
            Ended::Signalled { signal, core } => Outcome::Signalled { signal, core },
        });
        Ok(Exit { outcome, usage })
    }

    /// Whether the calling process has spawned it.
    pub(super) fn is_own(&self) -> bool {
        self.made_by.is_own()
    }

    /// Returns whether its task is gone before the deadline.
    fn wait_until_gone(&self, deadline: Option<Deadline>) -> bool {
        let Some(task) = self.record.task() else {
            return true;
        };
        let inner = self.record.region.inner();
        // First: the kernel passes on the wake-up of a task that dies with it.
        let _ = inner.task();
        while self.spin_until.is_some_and(|end| !end.has_passed()) {
            if poll_briefly(|| inner.life_word(task).is_none()) {
                return true;
            }
            // The kernel may have placed the coproc on this very processor, since the previous coproc has not left the
            // other one yet.
            if !self.record.runs_elsewhere() && !yield_if_brief() {
                break;
            }
        }
        if let Some((word, value)) = inner.life_word(task) {
            let short = Deadline::after(FIRST_SLEEP);
            let until = deadline.map_or(short, |deadline| deadline.min(short));
            futex::wait(word, value, Sharing::Shared, Some(until));
        }
        loop {
            let deaths = inner.deaths();
            let Some(life) = inner.life_word(task) else {
                return true;
            };
            if deadline.is_some_and(Deadline::has_passed) {
                return false;
            }
            let Ok(task) = inner.task() else {
                reap::nap_beside(life, deadline);
                continue;
            };
            inner.park_watching(task, &[life], deaths, deadline);
        }
    }

    /// The result, if the coproc has stored it.
    fn published(&self) -> Option<Outcome> {
        if self.record.state() != record::DONE {
            return None;
        }
        // Relaxed: written before `DONE`, which was read with Acquire.
        let detail = self.record.detail.load(Ordering::Relaxed);
        Some(match self.record.code.load(Ordering::Relaxed) {
            child::RESULT_PANICKED => Outcome::Panicked(self.record.message()),
            _ => Outcome::Returned(detail.cast_signed()),
        })
    }

    /// A descriptor of the process; fails if the process was reaped.
    fn descriptor(&self) -> Result<Arc<OwnedFd>, JoinError> {
        let mut process = self.process.lock();
        if process.reaped.is_some() {
            return Err(JoinError::Taken);
        }
        if let Some(descriptor) = &process.descriptor {
            return Ok(Arc::clone(descriptor));
        }
        // If other code has reaped the process, its ID may be another process's, or another child's.
        match self.record.identity().open(self.pid) {
            Ok(descriptor) => Ok(Arc::clone(process.descriptor.insert(Arc::new(descriptor)))),
            Err(Errno::CHILD | Errno::SRCH) => Err(JoinError::Taken),
            Err(error) => Err(failed("pidfd_open")(error)),
        }
    }

    /// Waits for the end of the process and reaps it.
    fn reap(&self, deadline: Option<Deadline>) -> Result<(Ended, Usage), JoinError> {
        loop {
            if let Some(ended) = self.try_reap()? {
                return Ok(ended);
            }
            // The lock is not held here: a coproc that became another program may run for long.
            match self.descriptor() {
                Ok(process) => {
                    if !process::wait_for_end(&*process, deadline).map_err(failed("poll"))? {
                        return Err(JoinError::TimedOut);
                    }
                }
                // Another thread has reaped it meanwhile.
                Err(JoinError::Taken) if self.process.lock().reaped.is_some() => {}
                Err(JoinError::System {
                    error: Errno::MFILE | Errno::NFILE,
                    ..
                }) => {
                    if deadline.is_some_and(Deadline::has_passed) {
                        return Err(JoinError::TimedOut);
                    }
                    std::thread::sleep(NO_DESCRIPTOR_CHECK);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_reap(&self) -> Result<Option<(Ended, Usage)>, JoinError> {
        let mut process = self.process.lock();
        if process.reaped.is_none() {
            process.reaped = match self.record.reap(self.pid) {
                Ok(None) => return Ok(None),
                Ok(Some(ended)) => Some(Ok(ended)),
                Err(Errno::CHILD) => Some(Err(())),
                Err(error) => return Err(failed("waitid")(error)),
            };
            // Relaxed: only the zygote reads it, if this process dies.
            self.record.pid.store(0, Ordering::Relaxed);
        }
        match process.reaped {
            Some(Ok(ended)) => Ok(Some(ended)),
            _ => Err(JoinError::Taken),
        }
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> JoinError {
    move |error| JoinError::System { call, error }
}

impl Drop for Coproc {
    fn drop(&mut self) {
        // In the child of a fork, the record and the process belong to the parent.
        if !self.made_by.is_own() {
            return;
        }
        let reaped = self.process.get_mut().reaped.is_some();
        let done = self.record.state() == record::DONE;
        let identity = self.record.identity();
        let record = if reaped || done {
            // SAFETY: the coproc does not touch its record any more (invariant 2).
            unsafe { self.record.free() };
            None
        } else {
            Some(self.record.clone())
        };
        if !reaped {
            reap::reap_later(Unreaped {
                pid: self.pid,
                identity,
                record,
                ending: done,
                not_before: (done && self.pooled).then(|| Deadline::after(child::EXIT_DELAY)),
            });
        }
    }
}

impl fmt::Debug for Coproc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Coproc")
            .field("name", &self.name)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
