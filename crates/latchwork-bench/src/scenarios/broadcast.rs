//! The cost of releasing many waiters of one condition variable.
//!
//! The given number of threads wait for the next round, under one mutex; when all of them wait, one more thread begins
//! the round with a broadcast. The figure is the time divided by the rounds and the waiters. `sleeps_per_release` is
//! how many times a waiter went to sleep: once is necessary; a waiter that is woken while the mutex is held sleeps
//! again.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use latchwork::mutex::{Inherit, InheritPlain, Throughput, WaitWake};

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::measure::{Case, Sample};
use crate::peers::condvars::{Condvars, Notify, On, Ours, ParkingLot, Pthread, State, Std};
use crate::peers::voluntary_switches;
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Kind, Params, Unit};

pub(super) struct Broadcast;

const BASE: &str = "glibc normal";
const WAITERS: [u32; 3] = [8, 16, 36];

type Measure = fn(u32, Duration) -> io::Result<Sample>;

const CONTESTANTS: [(&str, Measure); 7] = [
    ("latchwork wait-wake", measure::<Ours<WaitWake>>),
    ("latchwork throughput", measure::<Ours<Throughput>>),
    ("latchwork inherit", measure::<Ours<Inherit>>),
    ("latchwork inherit plain", measure::<Ours<InheritPlain>>),
    ("std", measure::<Std>),
    ("parking_lot", measure::<ParkingLot>),
    (BASE, measure::<Pthread>),
];

impl Scenario for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn about(&self) -> &'static str {
        "many threads wait for a condition, one tells them all; ns per waiter released"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        BASE
    }

    fn contestants(&self) -> Vec<Contestant> {
        CONTESTANTS.map(|(name, _)| Contestant::ready(name)).into()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        for waiters in WAITERS {
            let params = Params {
                tasks: Some(waiters),
                kind: Some(Kind::Threads),
                ..Params::default()
            };
            let wanted = CONTESTANTS
                .iter()
                .filter(|one| plan.wants(self.base(), one.0));
            prepared.cases.extend(wanted.map(|&(contestant, measure)| {
                let time = plan.window;
                Case {
                    contestant,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: contestant == BASE,
                    unit: Unit::Ns,
                    further: Vec::new(),
                    sampler: Box::new(move || measure(waiters, time)),
                }
            }));
        }
        prepared
    }
}

fn measure<B: Condvars + Default>(waiters: u32, time: Duration) -> io::Result<Sample> {
    let board = B::default();
    thread::scope(|scope| {
        let begin = |over: bool| {
            board.pass(
                On::Complete,
                |state| state.arrived == waiters,
                |state| {
                    state.arrived = 0;
                    state.round += 1;
                    state.over = over;
                    Notify::All(On::Begun)
                },
            );
        };
        let mut threads = Vec::new();
        for _ in 0..waiters {
            let spawned =
                thread::Builder::new().spawn_scoped(scope, || wait_for_rounds(&board, waiters));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // The threads that have come return.
                    board.pass(
                        On::Complete,
                        |_| true,
                        |state| {
                            state.round += 1;
                            state.over = true;
                            Notify::All(On::Begun)
                        },
                    );
                    return Err(error);
                }
            }
        }
        begin(false);
        let start = Instant::now();
        let mut rounds = 0_u32;
        while rounds == 0 || start.elapsed() < time {
            begin(false);
            rounds += 1;
        }
        // When all have come for the last time, they have been released as many times as rounds were begun.
        begin(true);
        let elapsed = start.elapsed();
        let panicked = |_| Err(io::Error::other("a task panicked"));
        let sleeps = threads
            .into_iter()
            .map(|thread| thread.join().map(Ok).unwrap_or_else(panicked))
            .sum::<io::Result<u64>>()?;
        let releases = f64::from(rounds) * f64::from(waiters);
        Ok(Sample {
            figure: elapsed.as_nanos() as f64 / (releases + f64::from(waiters)),
            // The rounds, plus one each before and after.
            extra: vec![(
                "sleeps_per_release",
                sleeps as f64 / (releases + 2.0 * f64::from(waiters)),
            )],
            timed: None,
        })
    })
}

/// A waiter's thread; returns how many times it slept.
fn wait_for_rounds(board: &impl Condvars, waiters: u32) -> u64 {
    let arrive = |state: &mut State| {
        state.arrived += 1;
        if state.arrived == waiters {
            Notify::One(On::Complete)
        } else {
            Notify::None
        }
    };
    let before = voluntary_switches();
    let (mut round, mut over) = (0, false);
    board.pass(On::Begun, |_| true, arrive);
    while !over {
        let before = round;
        board.pass(
            On::Begun,
            |state| state.round != before,
            |state| {
                round = state.round;
                over = state.over;
                arrive(state)
            },
        );
    }
    voluntary_switches() - before
}
