//! A task: what it decides, and what it does.
//!
//! Its decisions are drawn from its own seed, five numbers for each turn, whatever comes of it: they are
//! the same in each run with the seed. Which places they lead to depends on the round.

use crate::control::{Control, Id, SEATS, Ticket, at};
use crate::locks::{CEILINGS, Game};
use crate::witness::Fault;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use core::time::Duration;
use latchwork::time::Deadline;
use latchwork_testkit::fastrand;
use latchwork_testkit::priority::{Now, OTHER, fair, fifo, now, round_robin};
use std::thread;

/// How long a task waits for a lock.
#[derive(Clone, Copy)]
pub enum Verb {
    Wait,
    Try,
    Until(Deadline),
    Interruptible(Option<Deadline>),
}

/// A place in the field, as its tasks see it.
pub struct Spot<'r> {
    pub name: String,
    pub game: Box<dyn Game + 'r>,
    /// Whether tasks that are killed may use it.
    pub is_robust: bool,
    /// Whether it may be held while others are: the places are taken in their order.
    pub nests: bool,
}

/// What is to be done at a place: the place, and a draw that says all else.
pub struct Step {
    pub place: usize,
    draw: u64,
}

impl Step {
    const fn bits(&self, from: u32, count: u32) -> u64 {
        (self.draw >> from) & ((1 << count) - 1)
    }

    pub fn verb(&self) -> Verb {
        let micros = self.bits(4, 10) >> self.bits(14, 2);
        let deadline = || Deadline::after(Duration::from_micros(micros));
        match self.bits(0, 4) {
            0..6 => Verb::Wait,
            6..8 => Verb::Try,
            8..11 => Verb::Until(deadline()),
            11..13 => Verb::Interruptible(Some(deadline())),
            _ => Verb::Interruptible(None),
        }
    }

    pub fn reads(&self) -> bool {
        self.bits(16, 2) != 0
    }

    pub fn gives(&self) -> bool {
        self.bits(18, 1) != 0
    }

    pub fn goes_on(&self) -> bool {
        self.bits(19, 1) != 0
    }

    pub fn for_all(&self) -> bool {
        self.bits(20, 3) == 0
    }

    pub fn length(&self, max: usize) -> usize {
        (self.bits(24, 16) as usize % max) >> self.bits(22, 2)
    }
}

/// The place of number `draw`, among those of the mask.
pub fn choose(mask: u64, draw: u64) -> Option<usize> {
    let mut left = draw.checked_rem(mask.count_ones().into())?;
    (0..64).find(|place| {
        let is_there = mask >> place & 1 != 0;
        let is_it = is_there && left == 0;
        left -= u64::from(is_there && !is_it);
        is_it
    })
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(_: libc::c_int) {
    HANDLED.fetch_add(1, Relaxed);
}

/// The signal that interrupts sleeps, and does nothing else.
pub const NUDGE: libc::c_int = libc::SIGUSR1;

#[allow(unsafe_code)]
pub fn install_handler(restarts: bool) {
    // SAFETY: all-zero is a valid sigaction; the handler adds one to an atomic.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
        let null = core::ptr::null_mut();
        assert_eq!(libc::sigaction(NUDGE, &raw const action, null), 0);
    }
}

pub struct Task<'c> {
    pub control: &'c Control,
    pub seat: usize,
    pub id: Id,
    pub is_mortal: bool,
    /// Sections of its seat, by place.
    pub done: Vec<u64>,
    rng: fastrand::Rng,
}

impl<'c> Task<'c> {
    pub fn new(control: &'c Control, ticket: Ticket, spots: &[Spot<'_>]) -> Self {
        let seat = ticket.seat as usize;
        assert!(seat < SEATS && spots.len() <= 64);
        Self {
            control,
            seat,
            id: ticket.id(),
            is_mortal: ticket.mortal != 0,
            done: spots
                .iter()
                .map(|spot| spot.game.witness().tally(seat))
                .collect(),
            rng: fastrand::Rng::with_seed(ticket.seed),
        }
    }

    /// Until it is told to stop.
    pub fn work(&mut self, spots: &[Spot<'_>]) {
        let mask = |holds: fn(&Spot<'_>) -> bool| -> u64 {
            let bits = spots.iter().enumerate();
            bits.map(|(index, spot)| u64::from(holds(spot)) << index)
                .sum()
        };
        let mine = if self.is_mortal {
            mask(|spot| spot.is_robust)
        } else {
            mask(|_| true)
        };
        let (nests, fragile) = (mask(|spot| spot.nests), mask(|spot| !spot.is_robust));
        let seat = &self.control.seats[self.seat];
        seat.process.store(std::process::id(), SeqCst);
        seat.thread
            .store(latchwork_testkit::priority::thread_id() as u32, SeqCst);
        while self.rest() {
            let allowed = mine & self.control.focus.load(SeqCst);
            // Mostly they leave to those who are killed what these can use, and so meet more often.
            let apart = allowed & fragile;
            let keeps_apart = !self.rng.u64(..).is_multiple_of(4) && apart != 0;
            self.turn(spots, if keeps_apart { apart } else { allowed }, nests);
            seat.handled.fetch_add(HANDLED.swap(0, Relaxed), SeqCst);
            seat.progress.fetch_add(1, SeqCst);
        }
        // The kernel gives the number to another one.
        seat.thread.store(0, SeqCst);
    }

    /// Rests through a halt, if there is one; whether it is to go on.
    fn rest(&self) -> bool {
        let control = self.control;
        loop {
            let halt = control.halt.load(SeqCst);
            if halt == 0 {
                return !control.stop.load(SeqCst);
            }
            control.seats[self.seat].resting.store(halt, SeqCst);
            thread::sleep(Duration::from_micros(100));
        }
    }

    fn turn(&mut self, spots: &[Spot<'_>], allowed: u64, nests: u64) {
        let [head, draws @ ..]: [u64; 4] = core::array::from_fn(|_| self.rng.u64(..));
        if head & 0xff00 == 0 {
            self.change_itself(head >> 32);
        }
        let Some(first) = choose(allowed, draws[0] >> 48) else {
            return thread::sleep(Duration::from_micros(100));
        };
        let mut steps = vec![Step {
            place: first,
            draw: draws[0],
        }];
        if nests >> first & 1 != 0 {
            let more = match head & 0xf {
                0..12 => 0,
                12..15 => 1,
                _ => 2,
            };
            for draw in &draws[1..][..more] {
                let place = choose(allowed & nests, draw >> 48);
                steps.extend(place.map(|place| Step { place, draw: *draw }));
            }
            steps.sort_by_key(|step| step.place);
            steps.dedup_by_key(|step| step.place);
        }
        self.take(spots, &steps);
        let priorities = self.control.priorities.load(SeqCst);
        if priorities && head & 0x70_0000 == 0 {
            let priority = now().priority;
            if CEILINGS
                .iter()
                .any(|ceiling| i32::from(*ceiling) == priority)
            {
                spots[first].game.witness().fault(Fault::BoostKept);
            }
        }
    }

    /// The first place, and with it held the others.
    fn take(&mut self, spots: &[Spot<'_>], steps: &[Step]) {
        let Some((step, rest)) = steps.split_first() else {
            return;
        };
        let doing = self.doing(at(step.place, 0));
        let mut inside = |task: &mut Task<'_>| {
            task.dwell(step);
            task.take(spots, rest);
        };
        spots[step.place].game.play(self, step, &mut inside);
        self.doing(doing);
    }

    /// Says what it is at, and returns what it was at.
    pub fn doing(&self, doing: u64) -> u64 {
        self.control.seats[self.seat].doing.swap(doing, SeqCst)
    }

    /// A section's length.
    pub fn dwell(&self, step: &Step) {
        let micros = step.bits(45, 7);
        match step.bits(40, 5) {
            // Off the processor with the lock held: the others go to sleep.
            0 if micros < 16 => thread::sleep(Duration::from_millis(1)),
            0 => thread::sleep(Duration::from_micros(micros)),
            1 => thread::yield_now(),
            2 if micros < 8 => self.change_itself(step.draw >> 32),
            turns => (0..turns * 8).for_each(|_| core::hint::spin_loop()),
        }
    }

    fn change_itself(&self, draw: u64) {
        if self.control.calm.load(SeqCst) {
            return;
        }
        let priorities = self.control.priorities.load(SeqCst);
        if draw & 1 == 0 {
            reschedule(0, draw >> 1, priorities);
        } else {
            spread(0, draw >> 1);
        }
    }
}

/// Gives a thread another niceness, policy or priority, as `draw` says; 0 is the calling one. It may
/// be gone.
pub fn reschedule(thread: u32, draw: u64, priorities: bool) {
    let priority = 1 + (draw >> 8) as i32 % 20;
    let next = match draw % 16 {
        _ if !priorities => return set_nice(thread, priority),
        0..3 => fifo(priority),
        3..5 => round_robin(priority),
        5 => fair(libc::SCHED_BATCH),
        6 => fair(libc::SCHED_IDLE),
        7..12 => return set_nice(thread, priority - 10),
        _ => OTHER,
    };
    give(thread, next);
}

/// Gives a thread back what it began with.
pub fn restore(thread: u32, priorities: bool) {
    if priorities {
        give(thread, OTHER);
        set_nice(thread, 0);
    }
    spread(thread, u64::MAX);
}

fn give(thread: u32, next: Now) {
    // Refused only if it has ended.
    let _ = next.try_give(thread as i32);
}

#[allow(unsafe_code)]
fn set_nice(thread: u32, nice: i32) {
    // SAFETY: no preconditions. Refused if it has ended, or by privilege.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) };
}

/// Gives a thread the processors of the mask, of those that there are; all if there are none.
#[allow(unsafe_code)]
pub fn spread(thread: u32, mask: u64) {
    // SAFETY: all-zero is a valid set, in which the numbers have room; the kernel reads it. Refused
    // if the thread has ended, or none of the processors is allowed to it.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        for processor in (0..64).filter(|processor| mask >> processor & 1 != 0) {
            libc::CPU_SET(processor, &mut set);
        }
        libc::sched_setaffinity(thread as i32, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
