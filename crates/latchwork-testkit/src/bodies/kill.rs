//! Robust locks whose owners, waiters and recoverers are killed: storms over any lock that is a [`Mortal`], and over those
//! that have readers, too.

mod each_instruction;

use super::rwlock::Halves;
use crate::step::{self, Point, reported};
use crate::{Child, Mapped, Storm, Trial, Worker, fastrand};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, compiler_fence};
use core::time::Duration;

/// The most seats of a storm.
const SEATS: usize = 16;

/// A robust lock over two numbers, which are equal unless an owner died between its two stores. Forks share it.
pub trait Mortal {
    /// The right to change them.
    type Held<'a>: DerefMut<Target = Halves>
    where
        Self: 'a;

    /// Acquires the lock, or returns `None` after `limit`, if there is one. If an owner's death is reported, `repair` makes
    /// the data whole before it is declared so.
    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<Self::Held<'_>>;
}

/// One that readers hold together.
pub trait MortalReaders: Mortal {
    /// The right to read them.
    type Reading<'a>: Deref<Target = Halves>
    where
        Self: 'a;

    /// Acquires the lock to read; or to write if a writer's death is reported, which `repair` settles.
    fn read(&self, repair: impl FnOnce(&mut Halves)) -> Result<Self::Reading<'_>, Self::Held<'_>>;
    /// The writer becomes a reader.
    fn downgrade<'a>(held: Self::Held<'a>) -> Self::Reading<'a>
    where
        Self: 'a;
}

/// A lock, and what its tasks say of themselves, in memory that the code under test does not know.
pub struct Arena<L> {
    /// The lock.
    pub lock: L,
    journal: Mapped<Journal>,
}

struct Journal {
    /// The process that believes to be inside, with the right to write; or 0.
    inside: AtomicU32,
    torn: AtomicU64,
    died: AtomicU64,
    /// Of these, how many were in an outcome.
    counted: AtomicU64,
    written: AtomicU64,
    progress: [AtomicU64; SEATS],
}

impl<L: Mortal> Arena<L> {
    /// Around a lock that is free.
    pub fn new(lock: L) -> Self {
        let journal = Mapped::new(Journal {
            inside: AtomicU32::new(0),
            torn: AtomicU64::new(0),
            died: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            progress: [const { AtomicU64::new(0) }; SEATS],
        });
        Self { lock, journal }
    }

    /// How many deaths were reported so far.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.journal.died.load(SeqCst)
    }

    /// The outcome of a round: which deaths were reported since the last one.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        let died = self.deaths();
        reported(died - self.journal.counted.swap(died, SeqCst))
    }

    /// Acquires the lock, and repairs what a dead owner left.
    ///
    /// # Panics
    /// If the data is torn without a report, or another task is inside.
    pub fn enter(&self) -> L::Held<'_> {
        self.enter_within(None).expect("a wait without a limit")
    }

    fn enter_within(&self, limit: Option<Duration>) -> Option<L::Held<'_>> {
        let held = self.lock.acquire(limit, |halves| self.repair(halves))?;
        self.check(&held);
        Some(held)
    }

    fn repair(&self, halves: &mut Halves) {
        self.journal.died.fetch_add(1, SeqCst);
        self.journal.inside.store(0, SeqCst);
        if halves[0] != halves[1] {
            self.journal.torn.fetch_add(1, SeqCst);
            *halves = [halves[0].max(halves[1]); 2];
        }
    }

    fn check(&self, halves: &Halves) {
        assert_eq!(halves[0], halves[1], "torn data without a report");
        let inside = self.journal.inside.load(SeqCst);
        assert_eq!(inside, 0, "inside beside a task, or after a dead one");
    }

    /// A critical section.
    pub fn change(&self) {
        let mut halves = self.enter();
        halves[0] += 1;
        compiler_fence(SeqCst);
        halves[1] += 1;
    }

    /// A critical section of random length, which sometimes gives up instead.
    fn write_section(&self, rng: &mut fastrand::Rng) -> Option<L::Held<'_>> {
        let limit = (rng.u32(..8) == 0).then(|| Duration::from_micros(rng.u64(..300)));
        let mut halves = self.enter_within(limit)?;
        let me = std::process::id();
        self.journal.inside.store(me, SeqCst);
        halves[0] += 1;
        dawdle(rng);
        halves[1] += 1;
        let inside = self.journal.inside.load(SeqCst);
        assert_eq!(inside, me, "two tasks are inside");
        self.journal.inside.store(0, SeqCst);
        self.journal.written.fetch_add(1, SeqCst);
        Some(halves)
    }

    /// A storm over tasks that run such sections: of random kills, or of many at once that hit those which take over from
    /// a dead owner. Returns how many deaths were reported.
    ///
    /// # Panics
    /// If a survivor does not get in as it should.
    pub fn storm(&self, trial: &Trial, seats: usize, kills: u64, of_recoverers: bool) -> u64 {
        self.storm_by(trial, seats, kills, of_recoverers, |rng| {
            drop(self.write_section(rng));
        })
    }

    fn storm_by(
        &self,
        trial: &Trial,
        seats: usize,
        kills: u64,
        of_recoverers: bool,
        section: impl Fn(&mut fastrand::Rng),
    ) -> u64 {
        let journal = &*self.journal;
        let work = |worker: Worker| {
            let mut rng = worker.rng();
            loop {
                section(&mut rng);
                journal.progress[worker.seat].fetch_add(1, SeqCst);
                // A lock that does not hand off is nearly always taken again before a woken waiter runs, and waiters that
                // starve for a second would be most of the test.
                if rng.u32(..16) == 0 {
                    std::thread::sleep(Duration::from_micros(rng.u64(..150)));
                }
            }
        };
        let mut storm = Storm::start(trial, seats, work);
        let kills = trial.times(kills);
        while storm.kills() < kills {
            if of_recoverers {
                storm.kill_recoverers();
            } else {
                storm.kill();
            }
            storm.wait_for_progress(|seat| journal.progress[seat].load(SeqCst));
        }
        storm.kill_all();
        let sections = self.enter()[0];
        let counted = journal.written.load(SeqCst);
        assert!(
            sections >= counted,
            "{counted} sections were completed, but the data knows of {sections}"
        );
        storm.finish();
        println!(
            "{}: {} deaths were reported, {} left torn data",
            trial.name(),
            self.deaths(),
            journal.torn.load(SeqCst)
        );
        self.deaths()
    }
}

impl<L: MortalReaders> Arena<L> {
    /// Acquires the lock to read, and repairs what a dead writer left.
    ///
    /// # Panics
    /// As for [`Self::enter`].
    pub fn read(&self) -> L::Reading<'_> {
        match self.lock.read(|halves| self.repair(halves)) {
            Ok(halves) => {
                self.check(&halves);
                halves
            }
            Err(held) => L::downgrade(held),
        }
    }

    /// As [`Self::storm`]; so many of a hundred sections write.
    ///
    /// # Panics
    /// As for [`Self::storm`].
    pub fn storm_with_readers(
        &self,
        trial: &Trial,
        seats: usize,
        kills: u64,
        writes_of_100: u32,
    ) -> u64 {
        self.storm_by(trial, seats, kills, false, |rng| {
            if rng.u32(..100) >= writes_of_100 {
                return self.read_section(rng);
            }
            let downgrades = rng.bool();
            if let Some(held) = self.write_section(rng)
                && downgrades
            {
                let halves = L::downgrade(held);
                dawdle(rng);
                self.check(&halves);
            }
        })
    }

    fn read_section(&self, rng: &mut fastrand::Rng) {
        let halves = self.read();
        let before = halves[0];
        dawdle(rng);
        self.check(&halves);
        assert_eq!(before, halves[0], "changed beside a reader");
    }
}

fn dawdle(rng: &mut fastrand::Rng) {
    match rng.u32(..32) {
        // For longer than the first sleep of a waiter.
        0 => std::thread::sleep(Duration::from_millis(rng.u64(..6))),
        // Off the processor with the lock held: the others go to sleep.
        1 | 2 => std::thread::sleep(Duration::from_micros(rng.u64(..150))),
        3 | 4 => std::thread::yield_now(),
        turns => (0..turns * 10).for_each(|_| core::hint::spin_loop()),
    }
}

/// What a task that gives up a dead owner's lock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No report.
    NoDeath,
    /// The report of its owner's death.
    OwnerDied,
    /// The lock was given up before.
    NotRecoverable,
}

/// Whoever takes over from a dead owner gives the lock up, and may be killed while doing so.
///
/// In each round, a process ends after `hold` with a lock that `fresh` has made; only one of these exists at a time. `give_up`
/// calls the lock, and repairs nothing; so does `look`, at the end.
///
/// # Panics
/// If `look` finds no report, or one of a death after `give_up` has ended.
pub fn giving_up_is_never_half_done<L>(
    trial: &Trial,
    mut fresh: impl FnMut() -> L,
    hold: impl Fn(&L),
    give_up: impl Fn(&L) -> Found,
    look: impl Fn(&L) -> Found,
) {
    let in_span = |lock: &L, span: step::Span| {
        span.run(|| give_up(lock));
    };
    let setup = || {
        let lock = fresh();
        Child::fork(|| hold(&lock)).succeed();
        lock
    };
    let check = |lock: L, point| match look(&lock) {
        Found::NoDeath => panic!("unrepaired data was passed on as consistent"),
        Found::OwnerDied => {
            assert_ne!(point, Point::Finished, "the lock was not given up");
            reported(1)
        }
        Found::NotRecoverable => "not recoverable",
    };
    step::each_instruction_and_recovery(
        trial,
        "give up",
        setup,
        in_span,
        |_| false,
        in_span,
        check,
    );
}
