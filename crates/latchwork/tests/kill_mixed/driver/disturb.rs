//! What the driver does to tasks at work: signals, other priorities and processors, stops, kills;
//! and to the machine's wall clock.

use super::{Driver, Worker, random_moment, ticket};
use crate::task::{NUDGE, reschedule, spread};
use crate::witness::Count;
use core::sync::atomic::Ordering::SeqCst;
use latchwork::coproc::{Attributes, Outcome, Signal};

impl Driver<'_, '_> {
    /// One disturbance of one task, or of several.
    pub(super) fn act(&mut self) {
        let seat = self.rng.usize(..self.crew.threads + self.workers.len());
        let (draw, which) = (self.rng.u64(..), self.rng.u32(..100));
        let thread = self.control.seats[seat].thread.load(SeqCst);
        match which {
            ..50 => {
                for _ in 0..1 + draw % 4 {
                    self.tally.signals += 1;
                    let seat = self.rng.usize(..self.crew.threads + self.workers.len());
                    self.nudge(seat);
                }
            }
            50..60 if thread != 0 => {
                self.tally.priorities += 1;
                reschedule(thread, draw, self.control.priorities.load(SeqCst));
            }
            60..68 if thread != 0 => {
                self.tally.affinities += 1;
                spread(thread, draw);
            }
            68..72 => {
                let is_there = |worker: &&Worker| worker.seat == seat;
                let coproc = self
                    .workers
                    .iter()
                    .find(is_there)
                    .and_then(|it| it.coproc.as_ref());
                if let Some(coproc) = coproc {
                    self.tally.pauses += 1;
                    // It may have ended, which is detected elsewhere.
                    let _ = coproc.kill(Signal::STOP);
                    random_moment(&mut self.rng);
                    let _ = coproc.kill(Signal::CONT);
                }
            }
            72..92 => self.kill(draw),
            92..94 => {
                if let Some(clock) = &self.clock {
                    self.tally.clock_steps += 1;
                    clock.step(&mut self.rng);
                }
            }
            // Starts the coprocs that are missing.
            _ => (0..self.workers.len()).for_each(|index| self.fill(index)),
        }
    }

    #[allow(unsafe_code)]
    fn nudge(&self, seat: usize) {
        let seat = &self.control.seats[seat];
        let (process, thread) = (seat.process.load(SeqCst), seat.thread.load(SeqCst));
        // SAFETY: a signal to a thread of this process, or of a coproc that is not joined yet, so the numbers are still
        // theirs. Its handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, NUDGE) };
    }

    /// Kills one mortal task, or several.
    fn kill(&mut self, draw: u64) {
        let living = self.workers.iter().enumerate();
        let mut living: Vec<usize> = living
            .filter(|(_, worker)| worker.is_mortal && worker.coproc.is_some())
            .map(|(index, _)| index)
            .collect();
        self.rng.shuffle(&mut living);
        let Some(victim) = living.first().copied() else {
            return;
        };
        match draw % 8 {
            0..4 => {
                self.end(&[victim]);
                self.tally.single += 1;
            }
            4 => {
                if let Some(coproc) = &self.workers[victim].coproc {
                    let _ = coproc.kill(Signal::STOP);
                }
                self.random_moment();
                self.end(&[victim]);
                self.tally.stopped += 1;
            }
            5 => {
                self.end(&[victim]);
                self.fill(victim);
                self.random_moment();
                self.end(&[victim]);
                self.tally.single += 1;
                self.tally.newborn += 1;
            }
            _ => {
                self.end(&living);
                self.tally.burst += living.len() as u64;
            }
        }
        // Otherwise the other tasks detect the deaths, and the seats stay empty for a while.
        if draw >> 3 & 1 == 0 {
            self.fill(victim);
        }
    }

    /// Kills the coprocs of these workers, and joins them.
    fn end(&mut self, victims: &[usize]) {
        for index in victims {
            let worker = &self.workers[*index];
            let seat = &self.control.seats[worker.seat];
            seat.doomed.store(worker.incarnation, SeqCst);
            if let Some(coproc) = &worker.coproc {
                let _ = coproc.kill(Signal::KILL);
            }
            if self.rng.bool() {
                random_moment(&mut self.rng);
            }
        }
        for index in victims {
            let worker = &mut self.workers[*index];
            let seat = &self.control.seats[worker.seat];
            seat.thread.store(0, SeqCst);
            let Some(coproc) = worker.coproc.take() else {
                continue;
            };
            let killed = Outcome::Signalled {
                signal: libc::SIGKILL,
                core: false,
            };
            let outcome = coproc.join().unwrap().outcome;
            if outcome != killed {
                self.unexpected
                    .push(format!("seat {}: {outcome:?}", worker.seat));
            }
            let place = seat.doing.swap(0, SeqCst) as u32;
            if let Some(place) = place.checked_sub(1) {
                self.spots[place as usize]
                    .game
                    .witness()
                    .count(Count::Kills);
            }
            self.trial.progress();
        }
    }

    /// Starts the coproc of an empty place.
    pub(super) fn fill(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if worker.coproc.is_some() {
            return;
        }
        let seat = &self.control.seats[worker.seat];
        seat.resting.store(0, SeqCst);
        let ticket = ticket(
            self.trial,
            worker.seat,
            worker.incarnation,
            worker.is_mortal,
        );
        worker.incarnation += 1;
        let name = if worker.is_mortal { "mortal" } else { "steady" };
        let attributes = Attributes::new().name(name).die_with_parent();
        let coproc = self.coprocs.spawn_value(self.entry, ticket, &attributes);
        worker.coproc = Some(coproc.unwrap());
    }
}
