//! A task's walk through its operation: recorded, or to a point.

use super::error::Error;
use super::session::{Event, Session};
use crate::live::Maps;
use crate::process::Stat;
use latchwork_step::{
    ENDLESS, Mark, Place, Recording, Resume, Stepped, Task, run_to, step_through, step_to,
};
use std::io;

/// Where a task is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Before an instruction.
    Before(Place),
    /// Asleep in the system call that this instruction makes.
    Asleep(Place),
    /// At the mark that ends the operation.
    AtEnd,
}

/// An operation, as it was recorded.
#[derive(Debug)]
pub(super) struct Operation {
    /// All instructions that it executed.
    pub(super) places: Vec<Place>,
    /// Which of them are system calls, by their index in `places`.
    pub(super) calls: Vec<usize>,
    /// Which of these slept.
    pub(super) sleeps: Vec<usize>,
    /// The modules of its process, at its end.
    pub(super) maps: Maps,
    /// How many threads its process had when it began.
    pub(super) threads: usize,
    /// Whether a place is found by the number of instructions before it: with several tasks at the same code, a
    /// breakpoint could stop the wrong one; and if addresses differ from round to round, there is no place for one.
    pub(super) is_counted: bool,
    /// Whether the program's first process executed it.
    pub(super) is_of_first: bool,
}

/// A task that was stopped at the mark that begins its operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) task: Task,
    pub(super) process: i32,
    ends: Mark,
}

/// Why a walk ended before its point.
#[derive(Debug)]
pub(super) enum Ended {
    /// The task is at the mark that ends the operation.
    Finished,
    /// It sleeps, as the walk's point demands.
    Asleep,
    /// The task, or the program's first process, has ended.
    Gone,
    /// It did not come to its next stop in time.
    TimeOut,
    Failed(Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            _ => Self::Failed(error.into()),
        }
    }
}

/// How far the program came before the operation.
#[derive(Debug)]
pub(super) enum Reached {
    Begun(Begun),
    /// The first process has ended without the mark.
    Ended(super::session::Exit),
    TimeOut,
}

/// Runs the program to the mark that begins an operation, and on to the operation's first instruction.
pub(super) fn reach(session: &mut Session, begins: Mark, ends: Mark) -> Result<Reached, Error> {
    session.give_time();
    let task = loop {
        match session.next()? {
            Event::Mark(task, mark) if mark == begins => break task,
            Event::Mark(task, _) => session.resume(task, 0)?,
            Event::Ended(exit) => return Ok(Reached::Ended(exit)),
            Event::TimeOut => return Ok(Reached::TimeOut),
            Event::Trap | Event::Tick | Event::Gone => {}
        }
    };
    session.focus_on(task);
    session.resume_focus(Resume::Step)?;
    loop {
        match session.next()? {
            Event::Trap => break,
            Event::Mark(other, _) => session.resume(other, 0)?,
            Event::Tick => {}
            Event::Ended(exit) => return Ok(Reached::Ended(exit)),
            Event::TimeOut | Event::Gone => return Ok(Reached::TimeOut),
        }
    }
    Ok(Reached::Begun(Begun {
        task,
        process: process_of(task),
        ends,
    }))
}

/// A walk in a session whose focus is on the task.
struct Walk<'a> {
    session: &'a mut Session,
    begun: Begun,
    /// Whether the next instruction is a system call.
    at_call: bool,
    ends_asleep: bool,
    /// Whether its process has one thread.
    is_alone: bool,
    calls: Vec<usize>,
    sleeps: Vec<usize>,
}

impl<'a> Walk<'a> {
    fn new(session: &'a mut Session, begun: Begun) -> Self {
        Self {
            session,
            begun,
            at_call: false,
            ends_asleep: false,
            is_alone: threads_of(begun.process) == 1,
            calls: Vec::new(),
            sleeps: Vec::new(),
        }
    }

    /// Looks at the next instruction.
    fn look_ahead(&mut self) -> Result<(), Ended> {
        let call = self.begun.task.call_ahead()?;
        self.at_call = call.is_some();
        match call.and_then(Mark::of) {
            Some(mark) if mark == self.begun.ends => Err(Ended::Finished),
            _ => Ok(()),
        }
    }
}

impl Stepped for Walk<'_> {
    type End = Ended;

    fn task(&self) -> Task {
        self.begun.task
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn go(&mut self, how: Resume, at: u64) -> Result<(), Ended> {
        // The mark that ends the operation must be noticed, too.
        let how = match how {
            Resume::Step => Resume::Step,
            _ => Resume::ToCall,
        };
        if how == Resume::Step && self.at_call {
            self.calls.push(at as usize);
        }
        self.session.give_time();
        self.session.resume_focus(how)?;
        loop {
            match self.session.next().map_err(Ended::Failed)? {
                Event::Trap => break,
                Event::Mark(task, mark) if task == self.begun.task && mark == self.begun.ends => {
                    return Err(Ended::Finished);
                }
                Event::Mark(task, _) => self.session.resume(task, 0)?,
                Event::Tick if !sleeps(self.begun.task) => {}
                Event::Tick if self.ends_asleep => return Err(Ended::Asleep),
                Event::Tick if self.sleeps.last() == Some(&(at as usize)) => {}
                Event::Tick => self.sleeps.push(at as usize),
                Event::Gone | Event::Ended(_) => return Err(Ended::Gone),
                Event::TimeOut => return Err(Ended::TimeOut),
            }
        }
        match how {
            Resume::Step => self.look_ahead(),
            _ => Ok(()),
        }
    }
}

/// How many threads a process has.
fn threads_of(process: i32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/task")).map_or(1, Iterator::count)
}

/// Walks a task from the beginning of its operation to the end, where it stays stopped.
pub(super) fn record(session: &mut Session, begun: Begun) -> Result<Operation, Error> {
    let Begun { task, process, .. } = begun;
    let threads = threads_of(process);
    let mut recording = Recording::new(u32::MAX);
    let mut walk = Walk::new(session, begun);
    let end = match walk.look_ahead() {
        Err(end) => Some(end),
        Ok(()) => step_through(&mut walk, &mut |address| recording.add(address)),
    };
    let Walk {
        mut calls, sleeps, ..
    } = walk;
    match end {
        Some(Ended::Finished) => {}
        Some(Ended::Failed(error)) => return Err(error),
        Some(Ended::TimeOut | Ended::Asleep) => return Err(Error::Endless(session.living())),
        Some(Ended::Gone) => return Err(Error::DiedInOperation),
        None => return Err(Error::TooLong(ENDLESS)),
    }
    calls.dedup();
    let random = std::fs::read_to_string(format!("/proc/{process}/personality"));
    let random = random
        .ok()
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let is_fixed = random.is_some_and(|flags| flags & libc::ADDR_NO_RANDOMIZE as u64 != 0);
    let is_of_first = process == session.first();
    // While the task is stopped: as soon as it goes on, its process may end, and has no maps any more.
    let maps = Maps::of(process.cast_unsigned());
    let has_branched = session.unfocus();
    session.resume(task, 0)?;
    Ok(Operation {
        places: recording.places,
        calls,
        sleeps,
        maps,
        threads,
        is_counted: threads > 1 || has_branched || !is_fixed,
        is_of_first,
    })
}

/// Walks a task to a point, where it stays; or to where the walk ended.
pub(super) fn walk_to(
    session: &mut Session,
    begun: Begun,
    point: Point,
    is_counted: bool,
) -> Result<(), Ended> {
    let mut walk = Walk::new(session, begun);
    let place = match point {
        Point::Before(place) | Point::Asleep(place) => place,
        Point::AtEnd => {
            return match walk.go(Resume::Run, 0) {
                Err(Ended::Finished) => Ok(()),
                Ok(()) => Err(Ended::Gone),
                other => other,
            };
        }
    };
    match is_counted {
        true => step_to(&mut walk, place)?,
        false => run_to(&mut walk, place)?,
    }
    if let Point::Asleep(_) = point {
        walk.ends_asleep = true;
        match walk.go(Resume::Step, place.at) {
            Err(Ended::Asleep) => {}
            // It does not sleep this time.
            Ok(()) => return Err(Ended::Finished),
            Err(end) => return Err(end),
        }
    }
    Ok(())
}

/// Whether a task sleeps, in a system call.
fn sleeps(task: Task) -> bool {
    let stat = Stat::read(&format!("/proc/{}/stat", task.0));
    stat.and_then(|stat| stat.state()) == Some('S')
}

/// The process of a task.
fn process_of(task: Task) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", task.0)).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process
        .and_then(|id| id.trim().parse().ok())
        .unwrap_or(task.0)
}
