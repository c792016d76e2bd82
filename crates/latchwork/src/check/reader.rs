//! A board, as seen from outside: for who looks at a process that hangs, or goes on.

use super::foreign::{find_lock, find_text, open, read};
use super::layout::{GONE, Header, PLACES, PLACES_AT, Place};
use crate::atomic::Ordering;
use crate::hook::{Held, Site, TaskView};
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
    pub made_at: Site,
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
            made_at: Site(entry.site.load(Ordering::Relaxed)),
        })
    }

    /// A place in a source, or a name, by its key. What stands there may be any text.
    #[must_use]
    pub fn text(&self, key: u64) -> Option<String> {
        Some(find_text(&self.0, key)?.text())
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
