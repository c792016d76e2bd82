//! A board, as seen from outside: for who looks at a process that hangs, or goes on.

use super::finding::{Confidence, verdict};
use super::foreign::{find_lock, find_text, open, read};
use super::layout::{
    ASSUMED, FOLLOWS, GONE, Header, PLACES, PLACES_AT, Place, REPORTS, REPORTS_AT, Report,
    SUSPECTED, text_in,
};
use super::rule::Rule;
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::{Held, RecordedSite, TaskView};
use rustix::fd::OwnedFd;

/// The board of another process, or of this one.
///
/// Nothing is mapped or written, no lock is taken, and nothing that stands there is trusted: it may be changing, or
/// be anything. Each thread is seen as it was at some time during the reading. Needs the right to trace the process.
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
    /// Who it is, and what it waits for.
    pub view: TaskView,
    /// All that it holds, oldest first.
    pub held: Vec<Held>,
}

/// What is known of a lock.
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
    /// Circles of waits.
    pub deadlocks: u32,
    /// Orders of locks that can become one.
    pub potential_deadlocks: u32,
    /// Waits that took too long.
    pub long_waits: u32,
    /// Owners below who waits for them.
    pub inversions: u32,
    /// All else that a rule forbids.
    pub misuse: u32,
}

/// A finding that a process has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardReport {
    /// Which one of the process it is, from 1 on.
    pub number: u32,
    /// The rule that was broken.
    pub rule: Rule,
    /// How sure it is.
    pub confidence: Confidence,
    /// As in [`Finding`](super::Finding).
    pub id: u64,
    /// When it was reported, in nanoseconds on CLOCK_MONOTONIC.
    pub told_at: u64,
    /// What happened, in a line. It may be any text, as may be the next one.
    pub summary: String,
    /// The report, as far as there was room for it.
    pub text: String,
}

impl BoardReport {
    /// What the report begins with.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        verdict(self.rule, self.confidence)
    }
}

impl BoardReader {
    /// The board of a process; `None` if it has none, or its descriptors are not to be seen.
    #[must_use]
    pub fn of(process: u32) -> Option<Self> {
        open(process).map(Self)
    }

    /// The threads that were seen to use a lock, and live.
    #[must_use]
    pub fn tasks(&self) -> Vec<BoardTask> {
        let header = read::<Header>(&self.0, 0);
        // Relaxed, here and below: copies in memory of our own.
        let places = header.map_or(0, |header| header.places.load(Ordering::Relaxed) as usize);
        (0..places.min(PLACES))
            .map_while(|index| read::<Place>(&self.0, PLACES_AT + index * size_of::<Place>()))
            .filter(|place| place.taken.load(Ordering::Relaxed) != 0)
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

    /// What is known of the lock at an address.
    #[must_use]
    pub fn lock(&self, address: u64) -> Option<BoardLock> {
        let entry = find_lock(&self.0, address)?;
        (entry.what.load(Ordering::Relaxed) & GONE == 0).then(|| BoardLock {
            name: self.text(entry.name.load(Ordering::Relaxed)),
            made_at: RecordedSite::new(entry.site.load(Ordering::Relaxed)),
        })
    }

    /// A place in a source, or a name, by its key. What stands there may be any text.
    #[must_use]
    pub fn text(&self, key: u64) -> Option<String> {
        Some(find_text(&self.0, key)?.text())
    }

    /// The last findings that were reported, newest first.
    #[must_use]
    pub fn reports(&self) -> Vec<BoardReport> {
        let header = read::<Header>(&self.0, 0);
        let count = header.map_or(0, |header| header.reports.load(Ordering::Relaxed) as usize);
        let all = (0..count.min(REPORTS)).filter_map(|index| self.report(index));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|report| core::cmp::Reverse(report.number));
        all
    }

    /// What stands in a place for findings, if it belongs together.
    fn report(&self, index: usize) -> Option<BoardReport> {
        let at = REPORTS_AT + index * size_of::<Report>();
        let report = read::<Report>(&self.0, at)?;
        let number = report.number.load(Ordering::Relaxed);
        let again = read::<AtomicU32>(&self.0, at)?.load(Ordering::Relaxed);
        let rule = report.rule.load(Ordering::Relaxed);
        (number != 0 && number == again).then_some(())?;
        Some(BoardReport {
            number,
            rule: *Rule::ALL.get((rule & !(FOLLOWS | SUSPECTED | ASSUMED)) as usize)?,
            confidence: match rule & (FOLLOWS | SUSPECTED | ASSUMED) {
                0 => Confidence::Seen,
                FOLLOWS => Confidence::Follows,
                SUSPECTED => Confidence::Suspected,
                _ => Confidence::Assumed,
            },
            id: report.id.load(Ordering::Relaxed),
            told_at: report.told_at.load(Ordering::Relaxed),
            summary: text_in(&report.summary),
            text: text_in(&report.text),
        })
    }

    /// What was reported so far.
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
