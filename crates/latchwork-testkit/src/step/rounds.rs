//! The rounds in which an operation is killed: at its instructions, and then a task that recovers from that.

use super::outcome::{Covered, Outcome, Outcomes};
use super::point::{Point, Span};
use super::tracee::{Stop, Tracee};
use crate::Trial;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork_step::{Pinned, Place, Recording};

/// How many executions of an instruction are points, multiplied as [`Trial::points`] says, but not by more than 2: a task comes
/// to the *n*-th execution by *n* breakpoints.
pub(super) const VISITS: u32 = 3;

/// How many points of an operation are used, multiplied as [`Trial::points`] says; this takes a fraction of a second.
pub(super) const BUDGET: u64 = 60;

/// How many victims were killed by [`Places::kill`](super::Places::kill).
pub(super) static VICTIMS: AtomicU64 = AtomicU64::new(0);

/// How many recoverers are killed. A long run kills as many as it uses points of an operation.
const RECOVERERS: u64 = 24;

/// After how many kills of the operation a recovery is looked for that can be stepped through.
const TRIES: usize = 5;

type Body<'a, W> = dyn Fn(&W, Span) + 'a;

/// What a test does in each round.
pub(super) struct Parts<'a, W, O> {
    pub(super) before: &'a mut dyn FnMut() -> W,
    pub(super) child: &'a Body<'a, W>,
    pub(super) unblock: &'a mut dyn FnMut(&W) -> bool,
    pub(super) check: &'a mut dyn FnMut(W, Point) -> O,
}

/// The rounds with one operation.
pub(super) struct Rounds<'a, W, O> {
    trial: &'a Trial,
    name: &'a str,
    parts: Parts<'a, W, O>,
    covered: Covered,
    outcomes: Outcomes,
    /// Whether the last victim was in a PID namespace of its own.
    was_apart: bool,
}

/// A task of a round, and how far it runs: the one that is to be killed, or the one that recovers.
struct Task<'a, 'b, W> {
    body: &'a Body<'b, W>,
    walk: &'a mut dyn FnMut(&mut Stop<'_>) -> Point,
}

impl<'a, W, O: Outcome> Rounds<'a, W, O> {
    pub(super) fn new(trial: &'a Trial, name: &'a str, parts: Parts<'a, W, O>) -> Self {
        Self {
            trial,
            name,
            parts,
            covered: Covered::default(),
            outcomes: Outcomes::default(),
            was_apart: false,
        }
    }

    pub(super) fn run(mut self, recover: Option<&Body<'_, W>>) -> Option<Covered> {
        let _pinned = Pinned::new();
        let mut recording = Recording::new(visits(self.trial));
        let end = self.once(&mut |stop| stop.record(&mut recording), None)?.0;
        let places = recording.places;
        self.covered.instructions = recording.instructions;
        self.covered.points = places.len() as u64;
        self.covered.asleep += u64::from(matches!(end, Point::Asleep(_)));
        let mut rng = self.trial.seed().rng(recording.instructions);
        for place in sample(&places, self.trial.points(BUDGET), &mut rng) {
            match self.once(&mut |stop| stop.run_to(place), None)?.0 {
                // The operation took another path this time, and did not reach the point.
                Point::Finished => continue,
                Point::Asleep(_) => self.covered.asleep += 1,
                _ => self.covered.killed_at += 1,
            }
            self.covered.apart += u64::from(self.was_apart);
        }
        // A walk through a recovery takes as long as hundreds of kills.
        let is_due = rng.f64() < self.trial.share_of_recoveries();
        if let Some(recover) = recover.filter(|_| is_due) {
            self.recoveries(&places, recover, &mut rng)?;
        }
        self.report();
        Some(self.covered)
    }

    /// Kills tasks as they recover from kills at the places.
    ///
    /// What a task executes as it recovers depends on where the other one was killed. But to step through each recovery would
    /// take many times as long as all else. So one of a few neighbouring places is followed by a recovery that is stepped
    /// through, and after a kill at each of the others the recovery is killed at a random point of that one (unless it does
    /// not come there, and ends).
    fn recoveries(
        &mut self,
        places: &[Place],
        recover: &Body<'_, W>,
        rng: &mut fastrand::Rng,
    ) -> Option<()> {
        let kills = match self.trial.is_long() {
            true => self.trial.points(BUDGET),
            false => self.trial.points(RECOVERERS),
        };
        let victims = spread(places, kills, rng);
        let walks = (kills / RECOVERERS).isqrt().max(1) as usize;
        for near in victims.chunks(victims.len().div_ceil(walks).max(1)) {
            let mut recording = Recording::new(visits(self.trial));
            // The operation may end before it comes to a place.
            for _ in 0..TRIES {
                let mut task = Task {
                    body: recover,
                    walk: &mut |stop| stop.record(&mut recording),
                };
                let place = near[rng.usize(..near.len())];
                self.once(&mut |stop| stop.run_to(place), Some(&mut task))?;
                if recording.instructions > 0 {
                    break;
                }
            }
            for place in near {
                let Some(second) = rng.choice(&recording.places) else {
                    break;
                };
                let mut task = Task {
                    body: recover,
                    walk: &mut |stop| stop.run_to(*second),
                };
                let (_, second) = self.once(&mut |stop| stop.run_to(*place), Some(&mut task))?;
                let is_killed = second.is_some_and(|point| point != Point::Finished);
                self.covered.double += u64::from(is_killed);
            }
        }
        Some(())
    }

    /// One round; `walk` runs the operation to where it is killed. Returns where it and the task that recovers were killed.
    /// `None` if tracing is forbidden.
    fn once(
        &mut self,
        walk: &mut dyn FnMut(&mut Stop<'_>) -> Point,
        recovery: Option<&mut Task<'_, '_, W>>,
    ) -> Option<(Point, Option<Point>)> {
        let victims = VICTIMS.load(Relaxed);
        let world = (self.parts.before)();
        let has_victim = VICTIMS.load(Relaxed) != victims;
        let first = self.task(&world, self.parts.child, walk, false)?;
        let recovery = recovery.filter(|_| first != Point::Finished);
        let second = match recovery {
            Some(task) => Some(self.task(&world, task.body, task.walk, true)?),
            None => None,
        };
        let point = match (first, second) {
            (
                Point::Instruction(first) | Point::Asleep(first),
                Some(Point::Instruction(second) | Point::Asleep(second)),
            ) => Point::Twice(first, second),
            _ => first,
        };
        self.outcomes.add((self.parts.check)(world, point));
        self.covered.double += u64::from(has_victim && first != Point::Finished);
        Some((first, second))
    }

    /// Runs a task, and kills it where it stops, unless it has finished. If it `recovers`, each of its sleeps ends, and it is in
    /// the PID namespace of this process: most recoverers are killed while they join, too, and the claim of a slot is lost
    /// with a namespace.
    fn task(
        &mut self,
        world: &W,
        body: &Body<'_, W>,
        walk: &mut dyn FnMut(&mut Stop<'_>) -> Point,
        recovers: bool,
    ) -> Option<Point> {
        let start = |span| body(world, span);
        let started = match recovers {
            true => Tracee::start_here(start),
            false => Tracee::start(start),
        };
        let Some(tracee) = started else {
            println!("skipped: {}: ptrace is forbidden here", self.name);
            return None;
        };
        let unblock = &mut self.parts.unblock;
        let point = walk(&mut Stop::new(&tracee, &mut || unblock(world) || recovers));
        self.trial.progress();
        self.was_apart = tracee.child.is_apart();
        if point == Point::Finished {
            tracee.finish();
        } else {
            tracee.kill();
        }
        Some(point)
    }

    fn report(&self) {
        let Covered {
            instructions,
            points,
            killed_at,
            asleep,
            double,
            apart,
        } = self.covered;
        let more = |count: u64, what: &str| match count {
            0 => String::new(),
            _ => format!(", and {count} {what}"),
        };
        println!(
            "{}: {}: killed at {killed_at} of {points} points ({instructions} instructions){}{}{}",
            self.trial.name(),
            self.name,
            more(asleep, "times asleep"),
            more(double, "times as it recovered from a kill"),
            more(apart, "times in a PID namespace of its own"),
        );
        self.outcomes.report(self.trial, self.name, &self.covered);
    }
}

/// How many executions of an instruction are points in this trial.
pub(super) fn visits(trial: &Trial) -> u32 {
    let visits = trial.points(VISITS.into());
    visits.min(2 * u64::from(VISITS)) as u32
}

/// At most so many of the places: see [`spread`].
pub(super) fn sample(places: &[Place], most: u64, rng: &mut fastrand::Rng) -> Vec<Place> {
    spread(places, most.min(places.len() as u64), rng)
}

/// So many of the places, in their order: a random one in each of so many parts of equal length. Some come more than once if
/// there are fewer.
fn spread(places: &[Place], count: u64, rng: &mut fastrand::Rng) -> Vec<Place> {
    let count = if places.is_empty() { 0 } else { count as usize };
    let bound = |part: usize| places.len() * part / count;
    (0..count)
        .map(|part| {
            let first = bound(part);
            places[rng.usize(first..bound(part + 1).max(first + 1))]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{sample, spread};
    use latchwork_step::{Place, Recording};

    #[test]
    fn a_sample_has_as_many_places_as_it_may_in_their_order() {
        let mut recording = Recording::new(1);
        (0..10).for_each(|address| recording.add(address));
        let mut rng = fastrand::Rng::with_seed(7);
        let at = |places: Vec<Place>| Vec::from_iter(places.iter().map(|place| place.at));
        assert_eq!(
            at(sample(&recording.places, 10, &mut rng)),
            Vec::from_iter(0..10)
        );
        assert_eq!(
            at(sample(&recording.places, 99, &mut rng)),
            Vec::from_iter(0..10)
        );
        let mut seen = [false; 10];
        for _ in 0..100 {
            let three = at(sample(&recording.places, 3, &mut rng));
            assert!(three.len() == 3 && three.is_sorted());
            three.iter().for_each(|place| seen[*place as usize] = true);
        }
        assert_eq!(seen, [true; 10]);
        assert!(sample(&[], 3, &mut rng).is_empty());
        let many = at(spread(&recording.places, 25, &mut rng));
        assert!(many.len() == 25 && many.is_sorted() && (0..10).all(|at| many.contains(&at)));
    }
}
