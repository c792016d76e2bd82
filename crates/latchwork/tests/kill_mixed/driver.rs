//! The driver: rounds of work, in which it kills, interrupts and reschedules; halts between them, in
//! which all must come to rest by themselves and everything must add up.
//!
//! *Why halts find lost wake-ups.* While all are at work, a task that was not woken is woken by the
//! next unlock for somebody else. In a halt nobody comes any more: who sleeps for a lock that is free
//! sleeps for ever.

mod disturb;

use crate::control::{Control, DRIVER, GIVING, TAKING, Ticket, at};
use crate::coproc_support::{blocks, children};
use crate::field::Scene;
use crate::report::{Tally, Trouble};
use crate::task::{Spot, Task, choose, install_handler, restore};
use core::sync::atomic::Ordering::SeqCst;
use latchwork::coproc::{Coproc, Coprocs, reap_ended};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Trial, WallClock, fastrand};
use std::io::Write as _;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// When it is said what everybody does who should be at rest.
const SUSPICIOUS: Duration = Duration::from_secs(20);
/// When it is looked at for the summary, and then each time that the wait has become twice as long.
const SLOW: Duration = Duration::from_millis(400);
/// When a wait ends what may be its cause: priorities and processors that let a task hardly run. It does so again each time
/// that so much has passed, since a task may have been about to change its own. (So a task that starves by its priority is no
/// fault here; the tests of the protocols show who runs at which priority.)
const CALM: Duration = Duration::from_secs(2);

/// Who takes part.
#[derive(Clone, Copy)]
pub struct Crew {
    /// Of this process.
    pub threads: usize,
    /// Coprocs that live to the end.
    pub steady: usize,
    /// Coprocs that are killed, and started again.
    pub mortal: usize,
    /// How long a halt may take before it counts as a hang; `None`: as long as the watchdog says.
    pub patience: Option<Duration>,
}

/// A coproc's place; empty between its death and its next start.
struct Worker {
    seat: usize,
    is_mortal: bool,
    incarnation: u64,
    coproc: Option<Coproc>,
}

/// The longest wait of a kind.
#[derive(Default)]
pub struct Slowest {
    pub time: Duration,
    /// How much of it passed after all tasks had their first priorities and processors again.
    pub calm: Duration,
    /// Who was where, in its second half.
    pub midst: String,
}

pub struct Driver<'s, 'r> {
    pub trial: &'s Trial,
    crew: Crew,
    pub control: &'r Control,
    pub spots: Vec<Spot<'r>>,
    me: Task<'r>,
    rng: fastrand::Rng,
    threads: Vec<Option<ScopedJoinHandle<'s, ()>>>,
    workers: Vec<Worker>,
    coprocs: &'s Coprocs,
    entry: fn(&Region, Ticket) -> i32,
    pub tally: Tally,
    /// Where tests may set it.
    pub clock: Option<WallClock>,
    pub halts: u64,
    /// The longest waits: for progress of each task, and for their rest. A wake-up that a nap stands in for shows here.
    pub slowest: [Slowest; 2],
    /// Coprocs that ended otherwise than they were made to.
    unexpected: Vec<String>,
}

/// What a coproc runs.
fn serve<S: Scene>(region: &Region, ticket: Ticket) -> i32 {
    install_handler(ticket.seat.is_multiple_of(2));
    let control = region.find::<Control>("control").unwrap().get_ref();
    let spots = S::open(region, control.priorities.load(SeqCst));
    Task::new(control, ticket, &spots).work(&spots);
    0
}

/// Plays with a scene, and for threads with what `private` makes, too, as `drive` says; afterwards
/// nothing may be left over. What went wrong, if anything did.
pub fn play<S: Scene>(
    trial: &Trial,
    crew: Crew,
    priorities: bool,
    private: impl Fn() -> Vec<Spot<'static>>,
    drive: impl FnOnce(&mut Driver<'_, '_>) -> Result<(), Trouble>,
) -> Result<Tally, Trouble> {
    let region = RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("kill_mixed")
        .create_anonymous()
        .unwrap();
    install_handler(true);
    let control = region
        .object("control", || Control::new(priorities))
        .unwrap()
        .get_ref();
    drop(S::open(&region, priorities));
    let before = blocks(&region);
    let coprocs = crate::coproc_support::start(&region).unwrap();
    let private = private();
    // What threads play with besides is the driver's to look at, too.
    let fields = || {
        let mut spots = S::open(&region, priorities);
        spots.extend(private.iter().map(Spot::lend));
        spots
    };
    let outcome = thread::scope(|scope| {
        let mut driver = Driver {
            trial,
            crew,
            control,
            me: Task::new(control, ticket(trial, DRIVER, 0, false), &fields()),
            spots: fields(),
            rng: trial.seed().rng(0),
            threads: Vec::new(),
            workers: Vec::new(),
            coprocs: &coprocs,
            entry: serve::<S>,
            tally: Tally::default(),
            clock: None,
            halts: 1,
            slowest: Default::default(),
            unexpected: Vec::new(),
        };
        for seat in 0..crew.threads {
            let (ticket, spots) = (ticket(trial, seat, 0, false), fields());
            let work = move || Task::new(control, ticket, &spots).work(&spots);
            driver.threads.push(Some(scope.spawn(work)));
        }
        for index in 0..crew.steady + crew.mortal {
            driver.workers.push(Worker {
                seat: crew.threads + index,
                is_mortal: index >= crew.steady,
                incarnation: 0,
                coproc: None,
            });
            driver.fill(index);
        }
        let outcome = driver.rest().and_then(|()| drive(&mut driver));
        let closed = driver.close();
        driver.report();
        outcome.and(closed).map(|()| driver.tally.clone())
    });
    drop(coprocs);
    region.sweep().unwrap();
    region.check_heap().unwrap();
    assert_eq!(blocks(&region), before, "blocks are left over");
    trial.wait_until(|| {
        reap_ended();
        children().is_empty()
    });
    outcome
}

fn ticket(trial: &Trial, seat: usize, incarnation: u64, is_mortal: bool) -> Ticket {
    Ticket {
        seat: seat as u32,
        mortal: is_mortal.into(),
        incarnation,
        seed: trial
            .seed()
            .rng(1 + seat as u64 + (incarnation << 16))
            .u64(..),
    }
}

impl Driver<'_, '_> {
    /// Rounds, until `is_over`.
    pub fn rounds(&mut self, mut is_over: impl FnMut(&Self) -> bool) -> Result<(), Trouble> {
        while !is_over(self) {
            self.round()?;
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), Trouble> {
        self.tally.rounds += 1;
        self.control.focus.store(self.choose_focus(), SeqCst);
        self.control.calm.store(false, SeqCst);
        let before: Vec<u64> = self.progress();
        self.control.halt.store(0, SeqCst);
        let end = Instant::now() + Duration::from_micros(self.rng.u64(1_000..40_000));
        while Instant::now() < end {
            self.act();
            self.random_moment();
            self.feed();
        }
        (0..self.workers.len()).for_each(|index| self.fill(index));
        let progressed = |this: &mut Self| {
            this.feed();
            let now = this.progress();
            now.iter().zip(&before).all(|(now, before)| now != before)
                // While one waits for a processor the others eat.
                || !this.spots.iter().all(|spot| spot.game.has_food())
        };
        self.wait("progress of each", progressed)?;
        self.rest()?;
        self.reckon()
    }

    /// Some places, so that many meet there, or all; locks alone, or with what tasks wait for each other
    /// at. Something is robust among them.
    fn choose_focus(&mut self) -> u64 {
        let all = u64::MAX >> (64 - self.spots.len());
        let mask = |holds: fn(&Spot<'_>) -> bool| -> u64 {
            let bits = self.spots.iter().enumerate();
            bits.map(|(place, spot)| u64::from(holds(spot)) << place)
                .sum()
        };
        let locks = mask(|spot| spot.nests);
        let robust = mask(|spot| spot.is_robust && !spot.name.starts_with("Private"));
        let among = if self.rng.bool() && locks & robust != 0 {
            locks
        } else {
            all
        };
        if self.rng.u32(..4) == 0 {
            return among;
        }
        let head = self.rng.u32(..);
        let mut one_of = |mask| choose(mask, self.rng.u64(..)).map_or(0, |place| 1 << place);
        let mut focus = one_of(among & robust);
        for _ in 0..1 + head % 3 {
            focus |= one_of(among);
        }
        focus
    }

    fn progress(&self) -> Vec<u64> {
        let seats = 0..self.crew.threads + self.workers.len();
        seats
            .map(|seat| self.control.seats[seat].progress.load(SeqCst))
            .collect()
    }

    /// Has all tasks come to rest.
    pub fn rest(&mut self) -> Result<(), Trouble> {
        self.halts += 1;
        let halt = self.halts;
        self.control.halt.store(halt, SeqCst);
        self.calm();
        self.wait("rest", |this| {
            this.feed();
            let seats = 0..this.crew.threads + this.workers.len();
            seats
                .into_iter()
                .all(|seat| this.control.seats[seat].resting.load(SeqCst) == halt)
        })
    }

    /// Gives all tasks the priorities and processors that they began with, and has them keep these.
    fn calm(&self) {
        self.control.calm.store(true, SeqCst);
        let priorities = self.control.priorities.load(SeqCst);
        for seat in 0..self.crew.threads + self.workers.len() {
            let thread = self.control.seats[seat].thread.load(SeqCst);
            if thread != 0 {
                restore(thread, priorities);
            }
        }
    }

    /// Gives to those who wait for the others what these do not give them any more.
    fn feed(&mut self) {
        for (place, spot) in self
            .spots
            .iter()
            .enumerate()
            .filter(|(_, spot)| !spot.nests)
        {
            let count = |waits: u64| {
                let seats = self.control.seats.iter();
                seats
                    .filter(|seat| seat.doing.load(SeqCst) == at(place, waits))
                    .count()
            };
            let (givers, takers) = (count(GIVING), count(TAKING));
            if givers + takers > 0 {
                spot.game.feed(&mut self.me, place, givers, takers);
            }
        }
    }

    fn reckon(&mut self) -> Result<(), Trouble> {
        let kills = self.tally.kills();
        for (place, spot) in self.spots.iter().enumerate() {
            self.me.doing(at(place, 0));
            spot.game.reckon(&mut self.me, place, kills);
        }
        self.me.doing(0);
        let found: Vec<String> = self
            .spots
            .iter()
            .flat_map(|spot| {
                let faults = spot.game.witness().faults();
                faults
                    .into_iter()
                    .map(|fault| format!("{}: {fault}", spot.name))
            })
            .collect();
        self.trial.progress();
        if found.is_empty() {
            Ok(())
        } else {
            Err(Trouble::Faults(found))
        }
    }

    /// Waits until something is so. A task that ends meanwhile is trouble.
    fn wait(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Trouble> {
        let begin = Instant::now();
        let is_calm = self.control.calm.load(SeqCst);
        let (mut calm_since, mut calms_at) = (is_calm.then_some(begin), begin + CALM);
        let (mut is_said, mut looks_after, mut midst) = (false, SLOW, String::new());
        while !is_so(self) {
            if let Some(seat) = self.ended() {
                return Err(Trouble::Ended(format!("the task of seat {seat} ended")));
            }
            if !self.unexpected.is_empty() {
                return Err(Trouble::Ended(self.unexpected.join("; ")));
            }
            let now = Instant::now();
            let passed = now - begin;
            if self.crew.patience.is_some_and(|most| passed > most) {
                return Err(Trouble::Hang(self.describe(what)));
            }
            if now > calms_at {
                self.calm();
                calms_at = now + CALM;
                self.tally.calmed += u64::from(calm_since.is_none());
                calm_since.get_or_insert(now);
            }
            if passed > looks_after {
                midst = self.describe(what);
                looks_after *= 2;
            }
            if passed > SUSPICIOUS && !is_said {
                is_said = true;
                // Not captured by the harness: the watchdog may come next.
                let _ = std::io::stderr().write_all(self.describe(what).as_bytes());
            }
            thread::sleep(Duration::from_micros(100));
        }
        let slowest = &mut self.slowest[usize::from(is_calm)];
        if begin.elapsed() > slowest.time {
            *slowest = Slowest {
                time: begin.elapsed(),
                calm: calm_since.map_or(Duration::ZERO, |since| since.elapsed()),
                midst,
            };
        }
        self.trial.progress();
        Ok(())
    }

    /// A task that has ended by itself.
    fn ended(&self) -> Option<usize> {
        let threads = self.threads.iter();
        let has_ended = |thread: &Option<ScopedJoinHandle<'_, ()>>| {
            thread.as_ref().is_some_and(ScopedJoinHandle::is_finished)
        };
        threads.into_iter().position(has_ended).or_else(|| {
            let mut workers = self.workers.iter();
            let ended = workers.find(|worker| {
                let coproc = worker.coproc.as_ref();
                coproc.is_some_and(|coproc| !coproc.is_alive())
            });
            ended.map(|worker| worker.seat)
        })
    }

    /// Ends all tasks.
    fn close(&mut self) -> Result<(), Trouble> {
        (0..self.workers.len()).for_each(|index| self.fill(index));
        self.control.stop.store(true, SeqCst);
        self.control.halt.store(0, SeqCst);
        let mut troubles = Vec::new();
        self.trial.wait_until(|| {
            self.feed();
            self.spots.iter().for_each(|spot| spot.game.rouse());
            thread::sleep(Duration::from_micros(100));
            let threads = self.threads.iter().flatten();
            let workers = self.workers.iter().flat_map(|worker| &worker.coproc);
            threads.into_iter().all(ScopedJoinHandle::is_finished)
                && workers.into_iter().all(|coproc| !coproc.is_alive())
        });
        for thread in &mut self.threads {
            if let Some(Err(panic)) = thread.take().map(ScopedJoinHandle::join) {
                let text = panic.downcast::<String>().map_or_else(
                    |panic| {
                        panic
                            .downcast::<&str>()
                            .map_or_else(|_| String::new(), |text| text.to_string())
                    },
                    |text| *text,
                );
                troubles.push(format!("a thread panicked: {text}"));
            }
        }
        for worker in &mut self.workers {
            if let Some(coproc) = worker.coproc.take() {
                let exit = coproc.join_reaped().unwrap();
                if !exit.is_success() {
                    troubles.push(format!("seat {}: {:?}", worker.seat, exit.outcome));
                }
            }
        }
        if troubles.is_empty() {
            Ok(())
        } else {
            Err(Trouble::Ended(troubles.join("; ")))
        }
    }

    fn random_moment(&mut self) {
        random_moment(&mut self.rng);
    }
}

impl Drop for Driver<'_, '_> {
    fn drop(&mut self) {
        // A driver that panics must not wait for its threads for ever.
        if thread::panicking() {
            self.control.stop.store(true, SeqCst);
            self.control.halt.store(0, SeqCst);
            self.spots.iter().for_each(|spot| spot.game.rouse());
        }
    }
}

/// Nothing, nanoseconds of work, or a sleep.
fn random_moment(rng: &mut fastrand::Rng) {
    let time = Duration::from_nanos(rng.u64(..400_000) >> rng.u32(..5));
    match rng.u32(..4) {
        0 => {}
        1 => {
            let end = Instant::now() + time;
            while Instant::now() < end {
                core::hint::spin_loop();
            }
        }
        _ => thread::sleep(time),
    }
}
