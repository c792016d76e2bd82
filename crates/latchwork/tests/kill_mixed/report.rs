//! What the driver says: in the end, and when something has gone wrong.

use crate::control::SEATS;
use crate::driver::Driver;
use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering::SeqCst;

/// What has gone wrong.
#[derive(Debug)]
pub enum Trouble {
    /// The checks beside the locks.
    Faults(Vec<String>),
    /// Not all came to rest.
    Hang(String),
    /// A task ended by itself.
    Ended(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Faults(faults) => return formatter.write_str(&faults.join("\n")),
            Self::Hang(text) | Self::Ended(text) => text,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub rounds: u64,
    pub single: u64,
    pub stopped: u64,
    pub newborn: u64,
    pub burst: u64,
    pub signals: u64,
    pub pauses: u64,
    pub priorities: u64,
    pub affinities: u64,
    pub clock_steps: u64,
    /// Waits in which all tasks got their first priorities and processors again.
    pub calmed: u64,
}

impl Tally {
    pub fn kills(&self) -> u64 {
        self.single + self.stopped + self.newborn + self.burst
    }
}

impl Driver<'_, '_> {
    /// What everybody is doing.
    pub fn describe(&self, what: &str) -> String {
        let mut text = format!("{}: waiting for {what}\n", self.trial.name());
        for seat in 0..SEATS {
            let it = &self.control.seats[seat];
            let (process, thread) = (it.process.load(SeqCst), it.thread.load(SeqCst));
            let doing = it.doing.load(SeqCst);
            let place = (doing as u32).checked_sub(1);
            let name = place.map_or("no place", |place| &self.spots[place as usize].name);
            let waits = ["", " (gives)", " (takes)"][(doing >> 32) as usize % 3];
            let read = |file: &str| {
                let path = format!("/proc/{process}/task/{thread}/{file}");
                std::fs::read_to_string(path).unwrap_or_default()
            };
            let _ = writeln!(
                text,
                "  seat {seat}, thread {thread}: {} turns, rests in halt {} of {}, at {name}{waits}; {}, in {}, syscall {}",
                it.progress.load(SeqCst),
                it.resting.load(SeqCst),
                self.halts,
                schedule(&read("stat")),
                read("wchan").trim(),
                read("syscall").trim(),
            );
        }
        text
    }

    /// The summary: a line, and one for each place.
    pub fn report(&self) {
        let handled: u64 = self
            .control
            .seats
            .iter()
            .map(|seat| seat.handled.load(SeqCst))
            .sum();
        println!(
            "{}: {} kills, {:?}, {handled} signals handled",
            self.trial.name(),
            self.tally.kills(),
            self.tally
        );
        for (what, slowest) in ["progress of each", "rest"].iter().zip(&self.slowest) {
            println!(
                "  longest wait for {what}: {} ms, of which {} after all tasks had their first priorities and processors again",
                slowest.time.as_millis(),
                slowest.calm.as_millis()
            );
            print!("{}", slowest.midst);
        }
        for spot in &self.spots {
            println!("  {:32} {}", spot.name, spot.game.witness().summary());
        }
    }
}

/// State, processor, real-time priority, policy, niceness and ticks used, of a line of `/proc`'s `stat`.
fn schedule(stat: &str) -> String {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    // Counted from the state, which is the third of the line.
    let field = |number: usize| fields.get(number - 2).copied().unwrap_or("?");
    format!(
        "{} on {}, rt {} policy {} nice {}, {} ticks",
        field(3),
        field(39),
        field(40),
        field(41),
        field(19),
        field(14)
    )
}
