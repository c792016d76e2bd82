//! Restarting coprocs that ended.

use super::{Coproc, Coprocs, Exit, JoinError, SpawnError, wait_any};
use crate::time::Deadline;
use core::fmt;
use core::time::Duration;

/// When a coproc that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never.
    Never,
    /// Unless it returned or exited with 0.
    #[default]
    OnFailure,
    /// However it ended.
    Always,
}

/// How often to check a coproc that has become another program.
const END_CHECK: Duration = Duration::from_millis(20);

type Start = Box<dyn FnMut(&Coprocs) -> Result<Coproc, SpawnError> + Send>;

/// A coproc to supervise: how to start it, and when to restart it.
#[must_use = "a specification does nothing until it is added to a supervisor"]
pub struct Spec {
    name: String,
    start: Start,
    restart: Restart,
    max_restarts: usize,
    window: Duration,
    first_delay: Duration,
    max_delay: Duration,
}

impl Spec {
    /// A coproc that `start` starts. The supervisor waits for its end also if it is
    /// [detached](super::Attributes::detached). It is restarted [on failure](Restart::OnFailure), at most 5 times a minute, first
    /// after 10 ms, then after twice as long each time up to 5 s.
    pub fn new(
        name: &str,
        start: impl FnMut(&Coprocs) -> Result<Coproc, SpawnError> + Send + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            start: Box::new(start),
            restart: Restart::default(),
            max_restarts: 5,
            window: Duration::from_secs(60),
            first_delay: Duration::from_millis(10),
            max_delay: Duration::from_secs(5),
        }
    }

    /// When to restart it.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Stops restarting it when more than `restarts` restarts would fall into any `window`.
    pub fn limit(mut self, restarts: usize, window: Duration) -> Self {
        self.max_restarts = restarts;
        self.window = window;
        self
    }

    /// Waits `first` before the first restart, twice as long before each further restart in the window, and at most
    /// `max`.
    pub fn back_off(mut self, first: Duration, max: Duration) -> Self {
        self.first_delay = first;
        self.max_delay = max;
        self
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Spec")
            .field("name", &self.name)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

/// Something that happened to a coproc under supervision.
#[derive(Debug)]
pub struct Event {
    /// The name in its [`Spec`].
    pub name: String,
    /// What happened.
    pub what: Happening,
}

/// What can happen to a coproc under supervision.
#[derive(Debug)]
#[non_exhaustive]
pub enum Happening {
    /// It was started for the first time.
    Started {
        /// Its process ID.
        pid: u32,
    },
    /// It has ended.
    Ended(Exit),
    /// It has ended, and its status is lost; or another process has spawned it, of which this one is a child.
    Lost(JoinError),
    /// It was started again.
    Restarted {
        /// The number of restarts so far, this one included.
        times: usize,
        /// Its process ID.
        pid: u32,
    },
    /// It could not be started; this counts as a failure.
    NotStarted(SpawnError),
    /// It has ended too often to be started again.
    GaveUp,
}

enum State {
    Due(Deadline),
    Running {
        coproc: Coproc,
        /// Its task is gone; the process may run for long, as another program.
        is_ending: bool,
    },
    Over,
}

struct Child {
    spec: Spec,
    state: State,
    started: bool,
    restarts: usize,
    /// The times of its restarts within the window.
    recent: Vec<Deadline>,
}

/// Supervises coprocs: starts them, waits for their ends, and restarts them by policy.
///
/// It does so only while [`Self::run_until`] runs, on the calling thread. Dropping it detaches its coprocs.
///
/// ```
/// use latchwork::coproc::{Attributes, Coprocs, Happening, Restart, Spec, Supervisor};
/// use latchwork::region::{Region, RegionOptions};
///
/// fn crash(_: &Region, _: ()) -> i32 {
///     1
/// }
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// // SAFETY: no static owns anything in a region, or a descriptor.
/// let mut supervisor = Supervisor::new(unsafe { Coprocs::new(&region)? });
/// let minute = core::time::Duration::from_secs(60);
/// let spec = Spec::new("flaky", |coprocs| coprocs.spawn_value(crash, (), &Attributes::new().name("flaky")));
/// supervisor.add(spec.limit(2, minute));
/// let events = supervisor.run_until(None);
/// assert_eq!(events.iter().filter(|event| matches!(event.what, Happening::Ended(_))).count(), 3);
/// assert!(matches!(events.last().unwrap().what, Happening::GaveUp));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Supervisor {
    coprocs: Coprocs,
    children: Vec<Child>,
}

impl Supervisor {
    /// A supervisor without coprocs.
    #[must_use]
    pub fn new(coprocs: Coprocs) -> Self {
        Self {
            coprocs,
            children: Vec::new(),
        }
    }

    /// Adds a coproc, to be started by the next [`Self::run_until`].
    pub fn add(&mut self, spec: Spec) {
        self.children.push(Child {
            spec,
            state: State::Due(Deadline::from_nanoseconds(0)),
            started: false,
            restarts: 0,
            recent: Vec::new(),
        });
    }

    /// The coproc of this name that runs now, also as another program.
    #[must_use]
    pub fn running(&self, name: &str) -> Option<&Coproc> {
        self.children.iter().find_map(|child| match &child.state {
            State::Running { coproc, .. } if child.spec.name == name => Some(coproc),
            _ => None,
        })
    }

    /// Runs until all coprocs are over or `deadline` has passed, and returns the events. May be called again, to
    /// continue.
    pub fn run_until(&mut self, deadline: Option<Deadline>) -> Vec<Event> {
        let mut events = Vec::new();
        while self.step(deadline, &mut events) {}
        events
    }

    /// As [`Self::run_until`], but returns after the first events (one or more).
    pub fn next_events(&mut self, deadline: Option<Deadline>) -> Vec<Event> {
        let mut events = Vec::new();
        while events.is_empty() && self.step(deadline, &mut events) {}
        events
    }

    /// Starts what is due, or waits for one end; returns false when there is nothing more to do.
    fn step(&mut self, deadline: Option<Deadline>, events: &mut Vec<Event>) -> bool {
        let news = events.len();
        for child in &mut self.children {
            if matches!(child.state, State::Due(due) if due.has_passed()) {
                child.start(&self.coprocs, events);
            }
        }
        // A start is an event: the caller of `next_events` gets it before any wait.
        if events.len() > news {
            return true;
        }
        let is_over = |child: &Child| matches!(child.state, State::Over);
        if self.children.iter().all(is_over) || deadline.is_some_and(Deadline::has_passed) {
            return false;
        }
        for child in &mut self.children {
            child.check_end(Deadline::now(), events);
        }
        if events.len() > news {
            return true;
        }
        let due = self.children.iter().filter_map(|child| match child.state {
            State::Due(due) => Some(due),
            State::Running { is_ending, .. } => is_ending.then(|| Deadline::after(END_CHECK)),
            State::Over => None,
        });
        let until = due.chain(deadline).min();
        let running = self.children.iter().enumerate();
        let running = running.filter_map(|(index, child)| match &child.state {
            State::Running { coproc, is_ending } => (!is_ending).then_some((index, coproc)),
            _ => None,
        });
        let (indices, running): (Vec<usize>, Vec<&Coproc>) = running.unzip();
        let which = match wait_any(&running, until) {
            Ok(which) => which,
            // In the child of a fork: the join says so.
            Err(JoinError::OtherProcess) => {
                let is_other = |coproc: &&Coproc| !coproc.is_own();
                running.iter().position(is_other).unwrap_or(0)
            }
            Err(_) => return true,
        };
        let child = &mut self.children[indices[which]];
        if let State::Running { is_ending, .. } = &mut child.state {
            *is_ending = true;
        }
        // The kernel may need a moment to tear down a process that was killed.
        let moment = Deadline::after(END_CHECK);
        child.check_end(deadline.map_or(moment, |end| end.min(moment)), events);
        true
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Supervisor")
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}

impl Child {
    fn report(&self, what: Happening, events: &mut Vec<Event>) {
        events.push(Event {
            name: self.spec.name.clone(),
            what,
        });
    }

    fn start(&mut self, coprocs: &Coprocs, events: &mut Vec<Event>) {
        let again = core::mem::replace(&mut self.started, true);
        if again {
            self.restarts += 1;
            self.recent.push(Deadline::now());
        }
        match (self.spec.start)(coprocs) {
            Ok(coproc) => {
                let pid = coproc.pid();
                let times = self.restarts;
                let what = match again {
                    true => Happening::Restarted { times, pid },
                    false => Happening::Started { pid },
                };
                self.report(what, events);
                let is_ending = false;
                self.state = State::Running { coproc, is_ending };
            }
            Err(error) => {
                self.report(Happening::NotStarted(error), events);
                self.plan_restart(false, events);
            }
        }
    }

    /// If it is ending, waits for the end of its process until `until`.
    fn check_end(&mut self, until: Deadline, events: &mut Vec<Event>) {
        let State::Running {
            coproc,
            is_ending: true,
        } = &self.state
        else {
            return;
        };
        let (success, what) = match coproc.end_until(until) {
            Err(JoinError::TimedOut) => return,
            Ok(exit) => (exit.is_success(), Happening::Ended(exit)),
            Err(error) => (false, Happening::Lost(error)),
        };
        self.report(what, events);
        self.plan_restart(success, events);
    }

    /// Decides whether and when it is restarted.
    fn plan_restart(&mut self, success: bool, events: &mut Vec<Event>) {
        self.state = State::Over;
        let wanted = match self.spec.restart {
            Restart::Never => false,
            Restart::OnFailure => !success,
            Restart::Always => true,
        };
        if !wanted {
            return;
        }
        let now = Deadline::now();
        let spec = &self.spec;
        let is_recent = |start: &Deadline| start.saturating_add(spec.window) > now;
        self.recent.retain(is_recent);
        let restarts = self.recent.len();
        if restarts >= spec.max_restarts {
            self.report(Happening::GaveUp, events);
            return;
        }
        let doubled = spec.first_delay.saturating_mul(1 << restarts.min(30));
        self.state = State::Due(now.saturating_add(doubled.min(spec.max_delay)));
    }
}
