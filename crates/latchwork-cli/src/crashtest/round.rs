//! One round: the program runs, a task of it is killed at a point, and what is left is checked.
//!
//! If the operation is the first process's, the program is started again for the check. If it is a child's, the first
//! process goes on, and its own end is the check.

use super::error::Error;
use super::launch::{Launch, Phase};
use super::outcome::{Outcome, Status};
use super::session::{Event, Exit, Session};
use super::walk::{Begun, Ended, Operation, Point, Reached, reach, record, walk_to};
use latchwork_step::Mark;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a round did.
#[derive(Debug)]
pub(super) struct Round {
    /// Whether the task was killed at the point. (The operation may take another path than when it was recorded.)
    pub(super) is_killed: bool,
    pub(super) outcome: Outcome,
}

/// What is done in a check about the recovery's marks.
#[derive(Clone, Copy, Debug)]
enum Recovery<'a> {
    Ignored,
    Recorded,
    /// Its task is killed at the point.
    Killed(&'a Operation, Point),
}

/// What came of them.
#[derive(Debug)]
enum Recovered {
    /// There were none.
    Not,
    Recorded(Operation),
    Killed {
        /// Whether the task was killed at the point.
        at_point: bool,
        /// Whether its process was the first one, which is the check.
        was_first: bool,
    },
}

/// The rounds of one program.
pub(super) struct Rounds {
    pub(super) launch: Launch,
    pub(super) interrupted: Arc<AtomicBool>,
}

impl Rounds {
    /// Records the operation, in a round without a kill, after which the check must hold.
    pub(super) fn record(&self) -> Result<Operation, Error> {
        self.launch.begin_round()?;
        let mut session = self.start(Phase::Run)?;
        let begun = match reach(&mut session, Mark::Begin, Mark::End)? {
            Reached::Begun(begun) => begun,
            Reached::Ended(exit) => return Err(self.no_mark(exit)),
            Reached::TimeOut => return Err(Error::NoBegin(session.living())),
        };
        session.wants_marks = false;
        let operation = record(&mut session, begun)?;
        let (outcome, _) = self.end_of(&mut session, Recovery::Ignored)?;
        drop(session);
        if !outcome.holds() {
            return Err(Error::FailsUnkilled("the program", Box::new(outcome)));
        }
        if operation.is_of_first || self.launch.check.is_some() {
            let (outcome, _) = self.check(Recovery::Ignored)?;
            if !outcome.holds() {
                return Err(Error::FailsUnkilled("the check", Box::new(outcome)));
            }
        }
        Ok(operation)
    }

    /// Kills the operation at a point, and checks.
    pub(super) fn kill(&self, operation: &Operation, point: Point) -> Result<Round, Error> {
        let (round, _) = self.run(operation, point, Recovery::Ignored)?;
        Ok(round)
    }

    /// Kills the operation at a point, and records the recovery; `None` if the check makes none.
    pub(super) fn record_recovery(
        &self,
        operation: &Operation,
        point: Point,
    ) -> Result<Option<Operation>, Error> {
        match self.run(operation, point, Recovery::Recorded)?.1 {
            Recovered::Recorded(recovery) => Ok(Some(recovery)),
            _ => Ok(None),
        }
    }

    /// Kills the operation at a point, then the recovery at another, and checks once more.
    pub(super) fn kill_recovery(
        &self,
        operation: &Operation,
        point: Point,
        recovery: &Operation,
        second: Point,
    ) -> Result<Round, Error> {
        let (round, recovered) = self.run(operation, point, Recovery::Killed(recovery, second))?;
        let is_killed = matches!(recovered, Recovered::Killed { at_point: true, .. });
        Ok(Round { is_killed, ..round })
    }

    fn start(&self, phase: Phase) -> Result<Session, Error> {
        Session::start(&self.launch, phase, &self.interrupted)
    }

    fn no_mark(&self, exit: Exit) -> Error {
        Error::NoMark {
            exit: status_of(exit),
            complaint: self.launch.complained(),
        }
    }

    fn run(
        &self,
        operation: &Operation,
        point: Point,
        recovery: Recovery<'_>,
    ) -> Result<(Round, Recovered), Error> {
        self.launch.begin_round()?;
        let mut session = self.start(Phase::Run)?;
        let begun = match reach(&mut session, Mark::Begin, Mark::End)? {
            Reached::Begun(begun) => begun,
            Reached::Ended(exit) => return Err(self.no_mark(exit)),
            Reached::TimeOut => return Err(Error::NoBegin(session.living())),
        };
        session.wants_marks = !matches!(recovery, Recovery::Ignored) && !operation.is_of_first;
        let is_killed = match walk_to(&mut session, begun, point, operation.is_counted) {
            Ok(()) => true,
            Err(Ended::Finished | Ended::Asleep) => false,
            Err(Ended::Gone) => return Err(Error::DiedInOperation),
            Err(Ended::TimeOut) => {
                let outcome = self.outcome(Status::Stuck, session.living());
                let round = Round {
                    is_killed: false,
                    outcome,
                };
                return Ok((round, Recovered::Not));
            }
            Err(Ended::Failed(error)) => return Err(error),
        };
        let ended = session.kill(begun.process)?;
        let round = |(outcome, recovered)| (Round { is_killed, outcome }, recovered);
        match (operation.is_of_first, ended) {
            (true, _) => {
                drop(session);
                self.check(recovery).map(round)
            }
            (false, Some(exit)) => {
                let outcome = self.outcome(status_of(exit), Vec::new());
                Ok(round((outcome, Recovered::Not)))
            }
            (false, None) => {
                let (outcome, recovered) = self.end_of(&mut session, recovery)?;
                drop(session);
                if let Recovered::Killed {
                    was_first: true, ..
                } = recovered
                {
                    return Err(Error::FirstRecovers);
                }
                match outcome.holds() && self.launch.check.is_some() {
                    true => {
                        let (outcome, _) = self.check(Recovery::Ignored)?;
                        Ok(round((outcome, recovered)))
                    }
                    false => Ok(round((outcome, recovered))),
                }
            }
        }
    }

    /// Runs the check; once more, if its recovery was killed.
    fn check(&self, recovery: Recovery<'_>) -> Result<(Outcome, Recovered), Error> {
        let mut session = self.start(Phase::Check)?;
        session.wants_marks = !matches!(recovery, Recovery::Ignored);
        let (outcome, recovered) = self.end_of(&mut session, recovery)?;
        drop(session);
        match recovered {
            Recovered::Killed {
                was_first: true, ..
            } => {
                let (outcome, _) = self.check(Recovery::Ignored)?;
                Ok((outcome, recovered))
            }
            _ => Ok((outcome, recovered)),
        }
    }

    /// Awaits the end of the first process, and deals with a recovery that begins before.
    fn end_of(
        &self,
        session: &mut Session,
        recovery: Recovery<'_>,
    ) -> Result<(Outcome, Recovered), Error> {
        let mut recovered = Recovered::Not;
        if !matches!(recovery, Recovery::Ignored) {
            match reach(session, Mark::RecoveryBegin, Mark::RecoveryEnd)? {
                Reached::Ended(exit) => {
                    let outcome = self.outcome(status_of(exit), Vec::new());
                    return Ok((outcome, Recovered::Not));
                }
                Reached::TimeOut => {
                    let outcome = self.outcome(Status::Hang, session.living());
                    return Ok((outcome, Recovered::Not));
                }
                Reached::Begun(begun) => {
                    session.wants_marks = false;
                    match self.recover(session, begun, recovery)? {
                        (found, Some(outcome)) => return Ok((outcome, found)),
                        (found, None) => recovered = found,
                    }
                }
            }
        }
        session.give_time();
        let outcome = loop {
            match session.next()? {
                Event::Ended(exit) => break self.outcome(status_of(exit), Vec::new()),
                Event::TimeOut => break self.outcome(Status::Hang, session.living()),
                Event::Mark(task, _) => session.resume(task, 0)?,
                Event::Trap | Event::Tick | Event::Gone => {}
            }
        };
        Ok((outcome, recovered))
    }

    /// Records a recovery, or kills it; the outcome, if the first process does not go on.
    fn recover(
        &self,
        session: &mut Session,
        begun: Begun,
        recovery: Recovery<'_>,
    ) -> Result<(Recovered, Option<Outcome>), Error> {
        let Recovery::Killed(recording, point) = recovery else {
            return Ok((Recovered::Recorded(record(session, begun)?), None));
        };
        let at_point = match walk_to(session, begun, point, recording.is_counted) {
            Ok(()) => true,
            Err(Ended::Finished | Ended::Asleep) => false,
            Err(Ended::Gone) => return Err(Error::DiedInOperation),
            Err(Ended::TimeOut) => {
                let outcome = self.outcome(Status::Stuck, session.living());
                let recovered = Recovered::Killed {
                    at_point: false,
                    was_first: false,
                };
                return Ok((recovered, Some(outcome)));
            }
            Err(Ended::Failed(error)) => return Err(error),
        };
        let ended = session.kill(begun.process)?;
        let recovered = Recovered::Killed {
            at_point,
            was_first: ended.is_some(),
        };
        let outcome = ended.map(|exit| self.outcome(status_of(exit), Vec::new()));
        Ok((recovered, outcome))
    }

    fn outcome(&self, status: Status, living: Vec<String>) -> Outcome {
        let complaint = self.launch.complained();
        let mut details = living;
        if !complaint.is_empty() {
            details.insert(0, complaint);
        }
        Outcome {
            status,
            said: self.launch.said(),
            details,
        }
    }
}

fn status_of(exit: Exit) -> Status {
    match exit {
        Exit::Code(code) => Status::Code(code),
        Exit::Signal(signal) => Status::Signal(signal),
    }
}
