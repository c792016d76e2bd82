//! A program under trace: the stops of all its processes and threads, and their end.
//!
//! Every process and thread that the program starts is traced from its first instruction, so none can survive the
//! session: they are killed when it ends, and by the kernel if this command is killed (`PTRACE_O_EXITKILL`, and until
//! that is set `PR_SET_PDEATHSIG`).
#![allow(unsafe_code)]

use super::error::Error;
use super::launch::{Launch, Phase};
use crate::process::Stat;
use latchwork_step::{Mark, Resume, Task};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the wait for an event is interrupted, to look at the clock and at a task that may sleep.
const TICK: Duration = Duration::from_millis(20);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

/// What happened. A task that is named is stopped.
#[derive(Debug)]
pub(super) enum Event {
    /// A task enters the system call that is a mark.
    Mark(Task, Mark),
    /// The task in focus has ended a step, or come to a breakpoint.
    Trap,
    /// Time has passed, and there is a task in focus.
    Tick,
    /// The task in focus has ended.
    Gone,
    /// The program's first process has ended.
    Ended(Exit),
    /// The time limit has passed.
    TimeOut,
}

/// What is known of a traced task.
#[derive(Debug, Default)]
struct Traced {
    /// Whether it has made the stop with which its tracing begins.
    has_begun: bool,
}

/// The task that is walked through an operation.
#[derive(Debug)]
struct Focus {
    task: Task,
    how: Resume,
    /// Whether it has started a task, or another program.
    has_branched: bool,
}

pub(super) struct Session {
    /// The program's first process.
    first: i32,
    tasks: BTreeMap<i32, Traced>,
    focus: Option<Focus>,
    /// Whether marks are reported.
    pub(super) wants_marks: bool,
    patience: Duration,
    deadline: Instant,
    next_tick: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Session {
    /// Starts a program, or its check, under trace.
    pub(super) fn start(
        launch: &Launch,
        phase: Phase,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let child = launch.spawn(phase)?;
        let now = Instant::now();
        let mut session = Self {
            first: child.id().cast_signed(),
            tasks: BTreeMap::new(),
            focus: None,
            wants_marks: true,
            patience: launch.patience,
            deadline: now + launch.patience,
            next_tick: now,
            interrupted: Arc::clone(interrupted),
        };
        session.begin()?;
        Ok(session)
    }

    /// Lets the new program begin: it has stopped at the end of its `exec`.
    fn begin(&mut self) -> Result<(), Error> {
        let first = Task(self.first);
        let stopped = loop {
            match wait(self.first) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if !libc::WIFSTOPPED(stopped.1) {
            return Err(Error::Forbidden);
        }
        self.tasks.insert(self.first, Traced { has_begun: true });
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC;
        first.set_options(options)?;
        self.resume(first, 0)?;
        Ok(())
    }

    /// The program's first process.
    pub(super) fn first(&self) -> i32 {
        self.first
    }

    /// Begins the time limit again.
    pub(super) fn give_time(&mut self) {
        self.deadline = Instant::now() + self.patience;
    }

    /// From now on this task stops at each trap; it is stopped now.
    pub(super) fn focus_on(&mut self, task: Task) {
        self.focus = Some(Focus {
            task,
            how: Resume::ToCall,
            has_branched: false,
        });
    }

    /// The task in focus becomes one like the others; whether it had started others.
    pub(super) fn unfocus(&mut self) -> bool {
        self.focus.take().is_some_and(|focus| focus.has_branched)
    }

    /// Resumes the task in focus.
    pub(super) fn resume_focus(&mut self, how: Resume) -> io::Result<()> {
        let Some(focus) = &mut self.focus else {
            return Ok(());
        };
        focus.how = how;
        let task = focus.task;
        self.resume(task, 0)
    }

    /// Resumes a stopped task as fits it, with a signal or 0.
    pub(super) fn resume(&self, task: Task, signal: i32) -> io::Result<()> {
        let how = match &self.focus {
            Some(focus) if focus.task == task => focus.how,
            _ if self.wants_marks => Resume::ToCall,
            _ => Resume::Run,
        };
        match task.resume(how, signal) {
            // It was killed meanwhile, which is an event of its own.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for the next event.
    pub(super) fn next(&mut self) -> Result<Event, Error> {
        loop {
            // Relaxed: the flag says nothing about other memory.
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Ok(Event::TimeOut);
            }
            if self.focus.is_some() && now >= self.next_tick {
                self.next_tick = now + TICK;
                return Ok(Event::Tick);
            }
            match wait(-1) {
                Ok((task, status)) => {
                    if let Some(event) = self.handle(task, status)? {
                        return Ok(event);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle(&mut self, id: i32, status: i32) -> io::Result<Option<Event>> {
        let task = Task(id);
        let is_focus = self.focus.as_ref().is_some_and(|focus| focus.task == task);
        if let Some(exit) = exit_of(status) {
            self.tasks.remove(&id);
            if is_focus {
                self.focus = None;
            }
            return Ok(match id == self.first {
                true => Some(Event::Ended(exit)),
                false => is_focus.then_some(Event::Gone),
            });
        }
        let traced = self.tasks.entry(id).or_default();
        let signal = libc::WSTOPSIG(status);
        if signal == libc::SIGTRAP | 0x80 {
            let entered = alive(task.call_entered())?.flatten();
            if let Some(mark) = entered.and_then(Mark::of)
                && (self.wants_marks || is_focus)
            {
                return Ok(Some(Event::Mark(task, mark)));
            }
            return self.resume(task, 0).map(|()| None);
        }
        if status >> 16 != 0 {
            self.branch(task, status >> 16, is_focus)?;
            return self.resume(task, 0).map(|()| None);
        }
        if !traced.has_begun && signal == libc::SIGSTOP {
            traced.has_begun = true;
            return self.resume(task, 0).map(|()| None);
        }
        if signal == libc::SIGTRAP && is_focus {
            return Ok(Some(Event::Trap));
        }
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        // The second stop is the process's, after the delivery of the signal: the process continues, since it could not
        // be awaited otherwise.
        let passed = match stops.contains(&signal) && alive(task.has_signal())? == Some(false) {
            true => 0,
            false => signal,
        };
        self.resume(task, passed).map(|()| None)
    }

    /// A task has started another, or another program.
    fn branch(&mut self, task: Task, event: i32, is_focus: bool) -> io::Result<()> {
        if let Some(focus) = &mut self.focus
            && is_focus
        {
            focus.has_branched = true;
        }
        let starts = [
            libc::PTRACE_EVENT_FORK,
            libc::PTRACE_EVENT_VFORK,
            libc::PTRACE_EVENT_CLONE,
        ];
        if starts.contains(&event)
            && let Some(new) = alive(task.event_message())?
        {
            self.tasks.entry(new as i32).or_default();
        }
        Ok(())
    }

    /// Kills the process of the task in focus, and waits for its end; if it is another one than the program's first process,
    /// for the end of that task. The first process's exit, if it has ended.
    pub(super) fn kill(&mut self, process: i32) -> Result<Option<Exit>, Error> {
        // SAFETY: sends a signal to a process that this one traces.
        unsafe { libc::kill(process, libc::SIGKILL) };
        self.give_time();
        loop {
            match self.next()? {
                // Of the threads of a process, the kernel reports the first one last.
                Event::Gone if process == self.first => {}
                Event::Gone => return Ok(None),
                Event::Ended(exit) => return Ok(Some(exit)),
                Event::Mark(task, _) => self.resume(task, 0)?,
                Event::Trap | Event::Tick => {}
                Event::TimeOut => return Err(Error::Unkillable),
            }
        }
    }

    /// What the living tasks of the program do.
    pub(super) fn living(&self) -> Vec<String> {
        let describe = |id: &i32| {
            let stat = Stat::read(&format!("/proc/{id}/stat"))?;
            let call = std::fs::read_to_string(format!("/proc/{id}/syscall")).ok()?;
            let doing = match call.split(' ').next()?.trim().parse::<i64>() {
                Ok(libc::SYS_futex) => "sleeps in futex".to_owned(),
                Ok(number) if number >= 0 => format!("is in system call {number}"),
                _ => format!("is in state {}", stat.state()?),
            };
            Some(format!("task {id} ({}) {doing}", stat.name))
        };
        self.tasks.keys().filter_map(describe).collect()
    }
}

impl Drop for Session {
    /// Kills and reaps all that is left.
    fn drop(&mut self) {
        let kill = |id: i32| {
            // SAFETY: sends a signal to a task that this process traces and has not reaped.
            unsafe { libc::syscall(libc::SYS_tkill, id, libc::SIGKILL) }
        };
        self.tasks.keys().for_each(|id| {
            kill(*id);
        });
        loop {
            match wait(-1) {
                // A task that was started meanwhile.
                Ok((id, status)) if libc::WIFSTOPPED(status) => {
                    kill(id);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// `None` if the task has been killed.
fn alive<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        other => other.map(Some),
    }
}

/// The next change of a child or traced task (-1: of any), and its status.
fn wait(id: i32) -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: waits, and writes a local variable.
    match unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        found => Ok((found, status)),
    }
}

fn exit_of(status: i32) -> Option<Exit> {
    if libc::WIFEXITED(status) {
        Some(Exit::Code(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Exit::Signal(libc::WTERMSIG(status)))
    } else {
        None
    }
}

/// Makes this process the parent of orphans among its descendants, so that it reaps them.
pub(super) fn adopt_orphans() {
    // SAFETY: no preconditions. If it fails, the system's first process reaps them.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Interrupts waits at intervals, as long as it exists.
pub(super) struct Ticks(());

impl Ticks {
    pub(super) fn new() -> Self {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: all-zero is a valid sigaction; the handler does nothing. Without SA_RESTART it interrupts `waitpid`.
        // (The programs under trace have neither: `exec` resets the handler, and timers are not inherited.)
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGALRM, &raw const action, core::ptr::null_mut());
        }
        Self::every(TICK);
        Self(())
    }

    fn every(interval: Duration) {
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: interval.subsec_micros().into(),
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: reads a local variable.
        unsafe {
            libc::syscall(
                libc::SYS_setitimer,
                libc::ITIMER_REAL,
                &raw const timer,
                core::ptr::null_mut::<libc::itimerval>(),
            )
        };
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        Self::every(Duration::ZERO);
    }
}
