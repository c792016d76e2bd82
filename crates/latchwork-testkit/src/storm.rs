//! A storm of kills over working children.
//!
//! The driver keeps a number of *seats*, each with a child that runs the test's body for ever. It waits for a random
//! time, kills a random child, and puts a new one into the seat. The waits are a mixture of none, busy waits of
//! nanoseconds to microseconds, and sleeps, so that kills hit running, preempted and sleeping children alike.

use crate::{Child, Exit, Seed, Trial};
use core::fmt;
use std::time::{Duration, Instant};

/// A child's identity.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Its seat.
    pub seat: usize,
    /// How many children had the seat before.
    pub incarnation: u64,
    seed: Seed,
}

impl Worker {
    /// The identity of the test itself, without a seat.
    #[must_use]
    pub fn outside(trial: &Trial) -> Self {
        Self {
            seat: usize::from(u16::MAX),
            incarnation: 0,
            seed: trial.seed(),
        }
    }

    /// The generator for its random decisions.
    #[must_use]
    pub fn rng(&self) -> fastrand::Rng {
        self.seed
            .rng(1 + self.seat as u64 + (self.incarnation << 16))
    }
}

/// How many children died of which signal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    running: u64,
    stopped: u64,
    newborn: u64,
    burst: u64,
    all: u64,
}

impl Tally {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.running + self.stopped + self.newborn + self.burst + self.all
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            running,
            stopped,
            newborn,
            burst,
            all,
        } = self;
        write!(
            formatter,
            "{} kills ({running} single, {stopped} after SIGSTOP, {newborn} newborn, {burst} in bursts, {all} of all at once)",
            self.total()
        )
    }
}

struct Seat {
    child: Child,
    incarnation: u64,
}

/// Working children that are killed.
pub struct Storm<'t, F> {
    trial: &'t Trial,
    body: F,
    seats: Vec<Seat>,
    rng: fastrand::Rng,
    tally: Tally,
    longest: Duration,
}

impl<'t, F: Fn(Worker)> Storm<'t, F> {
    /// Fills the seats. `body` runs in each child, and should never return. A child that ends by itself, or panics,
    /// fails the test.
    pub fn start(trial: &'t Trial, seats: usize, body: F) -> Self {
        let rng = trial.seed().rng(0);
        let mut storm = Self {
            trial,
            body,
            seats: Vec::new(),
            rng,
            tally: Tally::default(),
            longest: Duration::from_micros(400),
        };
        for seat in 0..seats {
            let child = storm.spawn(seat, 0);
            storm.seats.push(Seat {
                child,
                incarnation: 0,
            });
        }
        storm
    }

    /// The longest wait before a kill.
    #[must_use]
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    fn spawn(&self, seat: usize, incarnation: u64) -> Child {
        let worker = Worker {
            seat,
            incarnation,
            seed: self.trial.seed(),
        };
        Child::fork(|| (self.body)(worker))
    }

    /// Kills a random child, or several at once, at a random moment, and fills their seats again. Returns these seats.
    pub fn kill(&mut self) -> Vec<usize> {
        let victim = self.rng.usize(..self.seats.len());
        match self.rng.u32(..100) {
            0..70 => {
                self.random_moment();
                self.end(victim);
                self.tally.running += 1;
                self.refill(&[victim])
            }
            70..80 => {
                self.random_moment();
                self.seats[victim].child.signal(libc::SIGSTOP);
                self.random_moment();
                self.end(victim);
                self.tally.stopped += 1;
                self.refill(&[victim])
            }
            80..90 => {
                self.random_moment();
                self.end(victim);
                self.tally.running += 1;
                self.refill(&[victim]);
                // This hits its first instructions: the return of fork, or its attaching.
                let nanoseconds = self.rng.u64(..200_000);
                self.busy(Duration::from_nanos(nanoseconds));
                self.end(victim);
                self.tally.newborn += 1;
                self.refill(&[victim])
            }
            _ => {
                let mut victims: Vec<usize> = (0..self.seats.len()).collect();
                self.rng.shuffle(&mut victims);
                victims.truncate(
                    self.rng
                        .usize(2..=self.seats.len().max(2))
                        .min(victims.len()),
                );
                self.random_moment();
                self.burst(&victims);
                self.refill(&victims)
            }
        }
    }

    /// Kills one child, and then, while the others detect that, more of them, up to all but one. Their seats are filled
    /// again.
    pub fn kill_recoverers(&mut self) -> Vec<usize> {
        let mut victims: Vec<usize> = (0..self.seats.len()).collect();
        self.rng.shuffle(&mut victims);
        victims.truncate(self.rng.usize(1..self.seats.len().max(2)));
        self.random_moment();
        self.burst(&victims);
        self.refill(&victims)
    }

    fn burst(&mut self, victims: &[usize]) {
        for (index, victim) in victims.iter().enumerate() {
            if index > 0 {
                let nanoseconds = self.rng.u64(..30_000);
                self.busy(Duration::from_nanos(nanoseconds));
            }
            self.seats[*victim].child.signal(libc::SIGKILL);
        }
        for victim in victims {
            self.end(*victim);
        }
        self.tally.burst += victims.len() as u64;
    }

    fn end(&mut self, seat: usize) {
        let exit = self.seats[seat].child.kill();
        assert_eq!(
            exit,
            Exit::Signal(libc::SIGKILL),
            "the child in seat {seat} ended by itself"
        );
        self.trial.progress();
    }

    fn refill(&mut self, seats: &[usize]) -> Vec<usize> {
        for seat in seats {
            let incarnation = self.seats[*seat].incarnation + 1;
            let child = self.spawn(*seat, incarnation);
            self.seats[*seat] = Seat { child, incarnation };
        }
        seats.to_vec()
    }

    /// Kills all children at once; the seats stay empty.
    pub fn kill_all(&mut self) {
        self.random_moment();
        for seat in &self.seats {
            seat.child.signal(libc::SIGKILL);
        }
        for seat in 0..self.seats.len() {
            self.end(seat);
        }
        self.tally.all += self.seats.len() as u64;
    }

    /// Fills all seats again, after [`Self::kill_all`].
    pub fn refill_all(&mut self) {
        let all: Vec<usize> = (0..self.seats.len()).collect();
        self.refill(&all);
    }

    /// Waits until every child's counter has increased.
    pub fn wait_for_progress(&mut self, of: impl Fn(usize) -> u64) {
        let before: Vec<u64> = (0..self.seats.len()).map(&of).collect();
        self.wait_until(|| {
            before
                .iter()
                .enumerate()
                .all(|(seat, before)| of(seat) != *before)
        });
    }

    /// Waits until `condition` holds; a child that ends meanwhile fails the test.
    pub fn wait_until(&mut self, mut condition: impl FnMut() -> bool) {
        let Self { trial, seats, .. } = self;
        trial.wait_until(|| {
            let holds = condition();
            for (seat, place) in seats.iter_mut().enumerate().filter(|_| !holds) {
                let exit = place.child.try_wait();
                assert_eq!(exit, None, "the child in seat {seat} ended by itself");
            }
            holds
        });
    }

    /// How many children were killed so far.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.tally.total()
    }

    /// Kills the remaining children, and prints the count.
    pub fn finish(mut self) -> Tally {
        let reaped = self
            .seats
            .iter_mut()
            .all(|seat| seat.child.try_wait().is_some());
        if !reaped {
            self.kill_all();
        }
        println!("{}: {}", self.trial.name(), self.tally);
        self.tally
    }

    fn random_moment(&mut self) {
        let longest = self.longest.as_nanos() as u64;
        match self.rng.u32(..10) {
            0 => {}
            1..4 => {
                let nanoseconds = self.rng.u64(..20_000);
                self.busy(Duration::from_nanos(nanoseconds));
            }
            4..7 => {
                let nanoseconds = self.rng.u64(..longest);
                self.busy(Duration::from_nanos(nanoseconds));
            }
            _ => std::thread::sleep(Duration::from_nanos(self.rng.u64(..longest))),
        }
    }

    fn busy(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            core::hint::spin_loop();
        }
    }
}
