//! A board as seen from outside: for tools that inspect a process that hangs, or runs on.

use crate::atomic::{AtomicU32, Ordering};
use crate::check::record::layout::{GONE, Header, REPORTS, REPORTS_AT, Report, text_in};
use crate::check::record::remote_board::{find_lock, find_text, open, places, read};
use crate::check::record::rule::Rule;
use crate::check::report::finding::{Confidence, verdict};
use crate::hook::{Held, RecordedSite, TaskView};
use rustix::fd::OwnedFd;

/// The board of another process, or of this one.
///
/// It maps nothing, writes nothing and takes no lock, and it trusts none of the contents: they may be changing, or be
/// arbitrary bytes. Each thread is seen as it was at some time during the reading. Needs the permission to trace the
/// process, and a `/proc` that shows the IDs of this process's PID namespace.
///
/// ```
/// use latchwork::check::{BoardReader, hook};
///
/// let lock = hook::Lock::new(0x1000, hook::Kind::Mutex);
/// hook::taken(lock, hook::Mode::Exclusive, hook::How::Locked, hook::Site::caller());
/// let board = BoardReader::of(std::process::id()).unwrap();
/// assert!(board.tasks().iter().any(|task| task.held.iter().any(|held| held.lock == lock)));
/// # let _ = hook::releasing(lock, hook::Site::caller());
/// ```
#[derive(Debug)]
pub struct BoardReader(OwnedFd);

/// What a thread holds and waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardTask {
    /// The thread, and what it waits for.
    pub view: TaskView,
    /// All held locks, oldest first.
    pub held: Vec<Held>,
}

/// What the board says of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardLock {
    /// The name that it was given.
    pub name: Option<String>,
    /// Where it was initialised, or first taken.
    pub made_at: RecordedSite,
}

/// How many findings a process has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardFindings {
    /// Wait-for cycles.
    pub deadlocks: u32,
    /// Lock orders that can lead to a deadlock.
    pub potential_deadlocks: u32,
    /// Waits that took too long.
    pub long_waits: u32,
    /// Holders of lower priority than their waiters.
    pub inversions: u32,
    /// All other breaches of rules.
    pub misuse: u32,
}

/// A finding that a process has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardReport {
    /// Its number in the process, from 1 on.
    pub number: u32,
    /// The rule that was broken.
    pub rule: Rule,
    /// How certain it is.
    pub confidence: Confidence,
    /// As in [`Finding`](crate::check::Finding).
    pub id: u64,
    /// When it was reported, in nanoseconds on CLOCK_MONOTONIC.
    pub told_at: u64,
    /// What happened, in one line. Summary and text may be arbitrary text.
    pub summary: String,
    /// The report, cut off where it did not fit.
    pub text: String,
}

impl BoardReport {
    /// The first words of the report.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        verdict(self.rule, self.confidence)
    }
}

impl BoardReader {
    /// The board of a process; `None` if it has none, or if its descriptors cannot be read.
    #[must_use]
    pub fn of(process: u32) -> Option<Self> {
        open(process).map(Self)
    }

    /// The live threads that the checker saw using a lock.
    #[must_use]
    pub fn tasks(&self) -> Vec<BoardTask> {
        places(&self.0)
            // Relaxed, here and below: these are copies in this process's memory.
            .filter_map(|place| {
                let view = place.record.view();
                let more = place.more_count.load(Ordering::Relaxed) as usize;
                let more = place.more.iter().take(more);
                let held = view.held().chain(more.filter_map(|held| held.view()));
                (view.thread != 0).then(|| BoardTask {
                    held: held.collect(),
                    view,
                })
            })
            .collect()
    }

    /// What the board says of the lock at an address.
    #[must_use]
    pub fn lock(&self, address: u64) -> Option<BoardLock> {
        let entry = find_lock(&self.0, address)?;
        let (name, made_at) = entry.name_and_site();
        (entry.what.load(Ordering::Relaxed) & GONE == 0).then(|| BoardLock {
            name: self.text(name),
            made_at,
        })
    }

    /// A source location, or a name, by its key. It may be arbitrary text.
    #[must_use]
    pub fn text(&self, key: u64) -> Option<String> {
        Some(find_text(&self.0, key)?.text())
    }

    /// The latest findings that were reported, newest first.
    #[must_use]
    pub fn reports(&self) -> Vec<BoardReport> {
        let header = read::<Header>(&self.0, 0);
        let count = header.map_or(0, |header| header.reports.load(Ordering::Relaxed) as usize);
        let all = (0..count.min(REPORTS)).filter_map(|index| self.report(index));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|report| core::cmp::Reverse(report.number));
        all
    }

    /// The finding at an index of the ring, if it is consistent.
    fn report(&self, index: usize) -> Option<BoardReport> {
        let at = REPORTS_AT + index * size_of::<Report>();
        let report = read::<Report>(&self.0, at)?;
        let number = report.number.load(Ordering::Relaxed);
        let again = read::<AtomicU32>(&self.0, at)?.load(Ordering::Relaxed);
        let (rule, confidence) = Confidence::of_report(report.rule.load(Ordering::Relaxed));
        (number != 0 && number == again).then_some(())?;
        Some(BoardReport {
            number,
            rule: *Rule::ALL.get(rule)?,
            confidence,
            id: report.id.load(Ordering::Relaxed),
            told_at: report.told_at.load(Ordering::Relaxed),
            summary: text_in(&report.summary),
            text: text_in(&report.text),
        })
    }

    /// How many findings were reported so far.
    #[must_use]
    pub fn findings(&self) -> BoardFindings {
        let Some(header) = read::<Header>(&self.0, 0) else {
            return BoardFindings::default();
        };
        let count = |kind: usize| header.findings[kind].load(Ordering::Relaxed);
        BoardFindings {
            deadlocks: count(0),
            potential_deadlocks: count(1),
            long_waits: count(2),
            inversions: count(3),
            misuse: count(4),
        }
    }
}
