//! Completions, barriers and once, in a region, with participants that are killed.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::barrier::Barrier;
use latchwork::completion::Completion;
use latchwork::once::{Once, OnceError, RegionOnce};
use latchwork::region::Shareable;
use latchwork::sharing::Shared;
use latchwork_testkit::step;
use latchwork_testkit::{Child, Exit, Page, Storm, Trial, Worker};

mod kill_support;
use kill_support::{asleep, begin_with, region, region_for, warm_up};

fn arrive(barrier: &Barrier<Shared>) {
    let _last = barrier.wait();
}

#[test]
fn killed_completers_and_waiters_hang_nobody() {
    let trial = Trial::begin("killed_completers_and_waiters_hang_nobody");
    let region = region("kill_meetings");
    let there = region
        .object("there", Completion::<Shared>::shared)
        .unwrap()
        .get_ref();
    let back = region
        .object("back", Completion::<Shared>::shared)
        .unwrap()
        .get_ref();
    let progress = Page::<[AtomicU64; 8]>::new();
    // Tokens go to and fro; those that die with their takers are replaced by the driver.
    let work = |worker: Worker| {
        loop {
            let (from, to) = if worker.seat.is_multiple_of(2) {
                (there, back)
            } else {
                (back, there)
            };
            from.wait();
            to.complete();
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 6, work);
    let kills = trial.times(200);
    while storm.kills() < kills {
        storm.kill();
        let before: Vec<u64> = progress.iter().map(|count| count.load(SeqCst)).collect();
        let mut round = 0_u32;
        storm.wait_until(|| {
            round += 1;
            // No token anywhere, or one that goes round among the quick.
            if round.is_multiple_of(64) {
                there.complete();
                back.complete();
            }
            (0..6).all(|seat| progress[seat].load(SeqCst) != before[seat])
        });
    }
    storm.finish();
}

#[test]
fn a_completion_is_whole_at_every_instruction_of_its_completer() {
    let trial = Trial::begin("a_completion_is_whole_at_every_instruction_of_its_completer")
        .across_namespaces();
    let region = region_for(&trial, "kill_meetings");
    let done = region
        .object("done", Completion::<Shared>::shared)
        .unwrap()
        .get_ref();
    for all in [false, true] {
        step::each_instruction_and_recovery(
            &trial,
            if all { "complete_all" } else { "complete" },
            || {
                done.reset();
                let waiters: Vec<Child> = (0..2).map(|_| Child::fork(|| done.wait())).collect();
                asleep(&trial, &waiters);
                waiters
            },
            |_, span| {
                region.join("stepped").unwrap();
                span.run(|| {
                    if all {
                        done.complete_all()
                    } else {
                        done.complete()
                    }
                });
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                });
            },
            |mut waiters, _| {
                let outcome = if all {
                    // It completed for all, or for nobody.
                    let is_done = done.is_done();
                    if !is_done {
                        done.complete_all();
                    }
                    step::done(is_done)
                } else {
                    // It completed for one, or for nobody: with one token more, one or both pass.
                    done.complete();
                    trial.wait_until(|| {
                        waiters.iter_mut().any(|waiter| waiter.try_wait().is_some())
                    });
                    done.complete_all();
                    "both waiters passed"
                };
                waiters.into_iter().for_each(Child::succeed);
                outcome
            },
        );
    }
}

#[test]
fn a_token_is_taken_or_left_at_every_instruction_of_its_taker() {
    let trial = Trial::begin("a_token_is_taken_or_left_at_every_instruction_of_its_taker")
        .across_namespaces();
    let region = region_for(&trial, "kill_meetings");
    let done = region
        .object("done", Completion::<Shared>::shared)
        .unwrap()
        .get_ref();
    warm_up(&trial, &region, || done.wait());
    let offered = core::cell::Cell::new(0);
    let offer = || {
        if !done.is_done() {
            offered.set(offered.get() + 1);
            done.complete();
        }
    };
    step::each_instruction_and_recovery(
        &trial,
        "completion, wait",
        || {
            done.reset();
            offered.set(0);
            core::cell::RefCell::new(None)
        },
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| done.wait());
        },
        |other| {
            let mut other = other.borrow_mut();
            let other = other.get_or_insert_with(|| Child::fork(|| done.wait()));
            trial.wait_until(|| other.is_in_futex() || other.try_wait().is_some());
            offer();
            true
        },
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
            });
        },
        |other, _| {
            let mut other = other
                .into_inner()
                .unwrap_or_else(|| Child::fork(|| done.wait()));
            trial.wait_until(|| {
                if other.is_in_futex() {
                    offer();
                }
                other.try_wait().is_some()
            });
            other.succeed();
            match offered.get() {
                1 => "the other one took the token",
                _ => "it had taken the token",
            }
        },
    );
}

#[test]
fn one_who_dies_after_its_arrival_counts_as_arrived() {
    let trial = Trial::begin("one_who_dies_after_its_arrival_counts_as_arrived");
    let region = region("kill_meetings");
    let barrier = region
        .object("barrier", || Barrier::<Shared>::shared(4))
        .unwrap()
        .get_ref();
    for round in 0..trial.times(10) as usize {
        let mut arrived: Vec<Child> = (0..3).map(|_| Child::fork(|| arrive(barrier))).collect();
        asleep(&trial, &arrived);
        let dead = arrived.remove(round % 3).kill();
        assert_eq!(dead, Exit::Signal(libc::SIGKILL));
        assert!(barrier.wait(), "the last one to arrive");
        arrived.into_iter().for_each(Child::succeed);
    }
}

#[test]
fn a_barrier_opens_whole_at_every_instruction_of_the_last_to_arrive() {
    let trial = Trial::begin("a_barrier_opens_whole_at_every_instruction_of_the_last_to_arrive")
        .across_namespaces();
    let region = region_for(&trial, "kill_meetings");
    let barrier = region
        .object("barrier", || Barrier::<Shared>::shared(3))
        .unwrap()
        .get_ref();
    step::each_instruction_and_recovery(
        &trial,
        "barrier, last arrival",
        || {
            let arrived: Vec<Child> = (0..2).map(|_| Child::fork(|| arrive(barrier))).collect();
            asleep(&trial, &arrived);
            arrived
        },
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| barrier.wait());
        },
        |_| false,
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
            });
        },
        |mut arrived, _| {
            // The two get through, by the stepped one or by us in its stead.
            let mut substitute = None;
            trial.wait_until(|| {
                if substitute.is_none() && arrived.iter().all(Child::is_in_futex) {
                    substitute = Some(Child::fork(|| arrive(barrier)));
                }
                arrived.iter_mut().all(|child| child.try_wait().is_some())
            });
            arrived.into_iter().for_each(Child::succeed);
            let Some(mut substitute) = substitute else {
                return "arrived";
            };
            {
                // It came too late, and waits in the next round? Then two more open that.
                trial.wait_until(|| substitute.try_wait().is_some() || substitute.is_in_futex());
                let is_late = substitute.try_wait().is_none();
                if is_late {
                    let more: Vec<Child> =
                        (0..2).map(|_| Child::fork(|| arrive(barrier))).collect();
                    more.into_iter().for_each(Child::succeed);
                }
                substitute.succeed();
                match is_late {
                    true => "arrived",
                    false => "not arrived",
                }
            }
        },
    );
}

/// An initialisation of either kind, in a region.
trait Initialisation: Shareable {
    fn make() -> Self;
    fn call(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError>;
    fn is_done(&self) -> bool;
}

impl Initialisation for Once {
    fn make() -> Self {
        Self::new()
    }
    fn call(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        Once::call(self, initialise)
    }
    fn is_done(&self) -> bool {
        self.is_done()
    }
}

impl Initialisation for RegionOnce {
    fn make() -> Self {
        Self::in_region()
    }
    fn call(self: Pin<&Self>, initialise: impl FnOnce()) -> Result<(), OnceError> {
        RegionOnce::call(&self, initialise)
    }
    fn is_done(&self) -> bool {
        self.is_done()
    }
}

#[derive(Shareable)]
#[repr(C)]
struct Cell<I: Initialisation> {
    once: I,
    /// Begun and finished initialisations.
    begun: AtomicU64,
    finished: AtomicU64,
}

impl<I: Initialisation> Cell<I> {
    fn new() -> Self {
        Self {
            once: I::make(),
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        }
    }

    fn once(&self) -> Pin<&I> {
        // SAFETY: part of a named object, which does not move.
        #[allow(unsafe_code)]
        unsafe {
            Pin::new_unchecked(&self.once)
        }
    }

    fn initialise(&self) {
        self.once()
            .call(|| {
                self.begun.fetch_add(1, SeqCst);
                std::thread::yield_now();
                self.finished.fetch_add(1, SeqCst);
            })
            .unwrap();
        assert!(self.finished.load(SeqCst) >= 1 && self.once.is_done());
    }

    /// Each initialisation that did not lead to `done` cost one life.
    fn check(&self, deaths: u64) {
        let (begun, finished) = (self.begun.load(SeqCst), self.finished.load(SeqCst));
        assert!(
            finished >= 1 && begun <= deaths + 1,
            "begun {begun} times, finished {finished} times, with {deaths} deaths"
        );
    }
}

#[test]
fn an_initialisation_whose_task_dies_is_run_by_the_next() {
    let trial = Trial::begin("an_initialisation_whose_task_dies_is_run_by_the_next");
    is_run_by_the_next::<Once>(&trial);
    is_run_by_the_next::<RegionOnce>(&trial);
}

fn is_run_by_the_next<I: Initialisation>(trial: &Trial) {
    let region = region("kill_meetings");
    for round in 0..trial.times(10) {
        let cell = region
            .object(&format!("cell {round}"), Cell::<I>::new)
            .unwrap()
            .get_ref();
        let mut first = Child::fork(|| {
            cell.once()
                .call(|| {
                    loop {
                        cell.begun.store(1, SeqCst);
                        std::thread::park();
                    }
                })
                .unwrap();
        });
        trial.wait_until(|| cell.begun.load(SeqCst) == 1);
        let waiters: Vec<Child> = (0..3).map(|_| Child::fork(|| cell.initialise())).collect();
        asleep(trial, &waiters);
        first.kill();
        waiters.into_iter().for_each(Child::succeed);
        cell.check(1);
        assert_eq!(cell.finished.load(SeqCst), 1);
        // SAFETY: no task uses it any more.
        #[allow(unsafe_code)]
        unsafe {
            region.remove::<Cell<I>>(&format!("cell {round}")).unwrap();
        }
    }
}

#[test]
fn an_initialisation_runs_to_its_end_once_whatever_instruction_is_the_last() {
    runs_to_its_end_once::<Once>(
        "an_initialisation_runs_to_its_end_once_whatever_instruction_is_the_last",
    );
}

#[test]
fn an_initialisation_by_a_region_lock_runs_to_its_end_once_whatever_instruction_is_the_last() {
    runs_to_its_end_once::<RegionOnce>("an_initialisation_by_a_region_lock");
}

fn runs_to_its_end_once<I: Initialisation>(name: &'static str) {
    let (trial, region) = begin_with::<Cell<I>>(name, "kill_meetings");
    step::each_instruction_and_recovery(
        &trial,
        "once",
        || region.object("cell", Cell::<I>::new).unwrap().get_ref(),
        |cell, span| {
            region.join("stepped").unwrap();
            span.run(|| cell.initialise());
        },
        |_| false,
        |cell, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                cell.initialise();
            });
        },
        |cell, point| {
            let outcome = match (cell.begun.load(SeqCst), cell.finished.load(SeqCst)) {
                (0, _) => "not begun",
                (_, 0) => "begun, and run again",
                _ if cell.once.is_done() => "done",
                _ => "finished, and run again",
            };
            cell.initialise();
            cell.check(point.kills());
            // SAFETY: no task uses it any more.
            #[allow(unsafe_code)]
            unsafe {
                region.remove::<Cell<I>>("cell").unwrap();
            }
            outcome
        },
    );
}
