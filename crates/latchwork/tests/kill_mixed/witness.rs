//! What is checked beside each lock.
//!
//! *Who is inside* stands in a word of its own, *who reads* in one for each seat. *What was done* is
//! counted three times: in the left half, in a tally for each seat, in the right half, in this order.
//! All of it changes under the lock. So wherever a holder is killed, the tallies say what the halves
//! are to be, and at rest all agree to the last section.

use crate::control::{Control, SEATS};
use crate::task::Task;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use latchwork::region::{Shareable, TornSafe};

/// What a lock protects. Loads and stores, no read-modify-writes: two that are inside at a time lose
/// counts, and a broken lock is no undefined behaviour of the test.
#[derive(Shareable, TornSafe)]
#[repr(C)]
pub struct Halves {
    pub left: AtomicU64,
    /// Another cache line.
    apart: [u64; 8],
    pub right: AtomicU64,
}

impl Halves {
    pub const fn new() -> Self {
        Self {
            left: AtomicU64::new(0),
            apart: [0; 8],
            right: AtomicU64::new(0),
        }
    }

    fn both(&self) -> (u64, u64) {
        // Relaxed: ordered by the lock, or else that is found.
        (self.left.load(Relaxed), self.right.load(Relaxed))
    }
}

/// Declares an enum whose variants have texts.
macro_rules! texts {
    ($(#[$meta:meta])* $name:ident { $($variant:ident: $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub enum $name { $($variant),* }
        impl $name {
            pub const TEXTS: &[&str] = &[$($text),*];
        }
    };
}

texts! {
    /// What must never be.
    Fault {
        TwoInside: "two tasks hold it",
        BesideReader: "a writer beside a reader",
        BesideWriter: "a reader beside a writer",
        Torn: "torn data",
        Miscounted: "the counts do not add up",
        Unreported: "a holder's death was not reported",
        Invented: "a death was reported that none was",
        StillHeld: "held at rest",
        BoostKept: "the boost was kept",
        Lost: "a message was lost",
        Doubled: "a message was delivered twice",
        Unsent: "a message that was not sent, or is not whole",
    }
}

texts! {
    /// What is counted for the summary.
    Count {
        Done: "done",
        Refused: "refused",
        TimedOut: "timed out",
        Interrupted: "interrupted",
        Kills: "killed there",
        Deaths: "deaths reported",
        Repaired: "of torn data",
    }
}

#[derive(Shareable)]
#[repr(C)]
pub struct Witness {
    /// Who believes to have the lock to itself.
    owner: AtomicU64,
    /// Who believes to read.
    reading: [AtomicU64; SEATS],
    /// Added and taken off, by seat.
    given: [AtomicU64; SEATS],
    taken: [AtomicU64; SEATS],
    counts: [AtomicU64; Count::TEXTS.len()],
    faults: [AtomicU64; Fault::TEXTS.len()],
}

impl Witness {
    pub const fn new() -> Self {
        Self {
            owner: AtomicU64::new(0),
            reading: [const { AtomicU64::new(0) }; SEATS],
            given: [const { AtomicU64::new(0) }; SEATS],
            taken: [const { AtomicU64::new(0) }; SEATS],
            counts: [const { AtomicU64::new(0) }; Count::TEXTS.len()],
            faults: [const { AtomicU64::new(0) }; Fault::TEXTS.len()],
        }
    }

    pub fn fault(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, SeqCst);
    }

    pub fn count(&self, count: Count) {
        // Relaxed: for the summary.
        self.counts[count as usize].fetch_add(1, Relaxed);
    }

    pub fn counted(&self, count: Count) -> u64 {
        self.counts[count as usize].load(SeqCst)
    }

    /// All that went wrong, in words.
    pub fn faults(&self) -> Vec<String> {
        let counts = self.faults.iter().map(|count| count.load(SeqCst));
        let found = Fault::TEXTS.iter().zip(counts);
        found
            .filter(|(_, count)| *count != 0)
            .map(|(text, count)| format!("{text} ({count} times)"))
            .collect()
    }

    /// The summary's columns.
    pub fn summary(&self) -> String {
        let counts = self.counts.iter().map(|count| count.load(SeqCst));
        let columns = Count::TEXTS.iter().zip(counts);
        let words: Vec<String> = columns
            .filter(|(_, count)| *count != 0)
            .map(|(text, count)| format!("{count} {text}"))
            .collect();
        words.join(", ")
    }

    /// What the halves are to be. Exact under the lock.
    fn balance(&self) -> u64 {
        let sum = |tallies: &[AtomicU64]| -> u64 {
            // Relaxed: written under the lock.
            tallies.iter().map(|tally| tally.load(Relaxed)).sum()
        };
        sum(&self.given).wrapping_sub(sum(&self.taken))
    }

    /// What a seat has done here.
    pub fn tally(&self, seat: usize) -> u64 {
        self.given[seat].load(SeqCst) + self.taken[seat].load(SeqCst)
    }

    fn check_no_owner(&self, control: &Control, before: u64, fault: Fault) {
        if before != 0 {
            self.fault(if control.is_doomed(before) {
                Fault::Unreported
            } else {
                fault
            });
        }
    }

    fn check_no_reader(&self, control: &Control) {
        let reads = |id: u64| id != 0 && !control.is_doomed(id);
        if self.reading.iter().any(|id| reads(id.load(SeqCst))) {
            self.fault(Fault::BesideReader);
        }
    }

    /// One section, with the lock held: adds one to the halves, or takes one off. `inside` comes in
    /// the midst of it.
    pub fn change(
        &self,
        task: &mut Task<'_>,
        place: usize,
        halves: &Halves,
        gives: bool,
        inside: &mut dyn FnMut(&mut Task<'_>),
    ) {
        let control = task.control;
        let before = self.owner.swap(task.id.0, SeqCst);
        self.check_no_owner(control, before, Fault::TwoInside);
        self.check_no_reader(control);
        let (left, right) = halves.both();
        if left != right {
            self.fault(Fault::Torn);
        }
        let (tallies, next) = if gives {
            (&self.given, left.wrapping_add(1))
        } else {
            (&self.taken, left.wrapping_sub(1))
        };
        halves.left.store(next, SeqCst);
        inside(task);
        if self.tally(task.seat) != task.done[place] {
            self.fault(Fault::Miscounted);
        }
        let tally = &tallies[task.seat];
        tally.store(tally.load(SeqCst) + 1, SeqCst);
        task.done[place] += 1;
        if halves.both() != (next, right) {
            self.fault(Fault::TwoInside);
        }
        halves.right.store(next, SeqCst);
        self.check_no_reader(control);
        if self.owner.swap(0, SeqCst) != task.id.0 {
            self.fault(Fault::TwoInside);
        }
    }

    /// One look, with the lock held to read.
    pub fn look(
        &self,
        task: &mut Task<'_>,
        halves: &Halves,
        inside: &mut dyn FnMut(&mut Task<'_>),
    ) {
        let control = task.control;
        self.reading[task.seat].store(task.id.0, SeqCst);
        self.check_no_owner(control, self.owner.load(SeqCst), Fault::BesideWriter);
        let (left, right) = halves.both();
        if left != right {
            self.fault(Fault::Torn);
        }
        inside(task);
        if halves.both() != (left, right) || self.owner.load(SeqCst) != 0 {
            self.fault(Fault::BesideWriter);
        }
        self.reading[task.seat].store(0, SeqCst);
    }

    /// The last holder is said to be dead: makes good what it left undone. May be killed, too.
    pub fn repair(&self, control: &Control, halves: &Halves) {
        self.count(Count::Deaths);
        let dead = self.owner.load(SeqCst);
        if dead != 0 && !control.is_doomed(dead) {
            self.fault(Fault::Invented);
        }
        let whole = self.balance();
        let (left, right) = halves.both();
        let near = |half: u64| half.wrapping_sub(whole).wrapping_add(1) <= 2;
        if !near(left) || !near(right) {
            self.fault(Fault::Miscounted);
        }
        if left != right {
            self.count(Count::Repaired);
        }
        halves.left.store(whole, SeqCst);
        halves.right.store(whole, SeqCst);
        self.owner.store(0, SeqCst);
    }

    /// With the lock held, and all tasks at rest.
    pub fn reckon(&self, control: &Control, halves: &Halves, kills: u64) {
        let whole = self.balance();
        if halves.both() != (whole, whole) {
            self.fault(Fault::Miscounted);
        }
        self.check_no_owner(control, self.owner.load(SeqCst), Fault::TwoInside);
        self.check_no_reader(control);
        if self.counted(Count::Deaths) > kills {
            self.fault(Fault::Invented);
        }
    }
}
