//! The cost of operations on synchronisation objects if each task has its own object, and if all share one: is there a
//! common bottleneck?
//!
//! Source: RTEMS's `tmfine01`, the benchmark of its development from one lock for the whole kernel to locks in each
//! object. 1 to N tasks (threads of one region) do one thing for a window; the figure is operations per second of all
//! of them. Nothing is subtracted. If tasks share nothing, twice the tasks on twice the CPUs do twice as much:
//! `scaling` is the figure divided by that of one task in the same round.
//!
//! | case | an operation |
//! | --- | --- |
//! | event-self | a task sends an event to itself, and receives it |
//! | event-many-to-one | all but the first send to the first, which receives: a send |
//! | private-mutex | lock and unlock a mutex, each task its own, incrementing its datum |
//! | contested-mutex | the same, one mutex for all |
//! | message-self | a task sends 4 bytes to its own queue, of 3 places, and receives them |
//! | message-many-to-one | all but the first send to the first's queue, which receives: a message sent |
//!
//! RTEMS's own *event to one* has sent to oneself since 2015; here other tasks send. Events are not counted, so one
//! receive may answer many sends: `received_per_1000` of them. A full queue is tolerated, and counted: `full_per_1000`.
//! One task alone sends to itself.
//!
//! `task_min_ops` and `task_max_ops` are those of the slowest and the fastest sender. Contestants with a ceiling in the
//! kernel run in SCHED_FIFO, and with at most as many tasks as CPUs. The contestants `giant-lock …` are Latchwork's
//! objects with one lock of this benchmark around each operation, in the cases in which no operation sleeps;
//! `of_giant_lock` is the plain figure divided by theirs. RTEMS's figures are shown where the case and the number of
//! tasks are the same. `of_hand_off` is a contended lock's figure divided by that of a direct hand-off by a plain
//! futex, and `fall` is the factor by which it is below that of one task; RTEMS's own fell 85-fold.
//!
//! `each` in the results holds what each task did; `--rtems-json` gives that in RTEMS's format ([`rtems`]).

mod published;
pub(crate) mod rtems;
mod tasks;
mod work;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use self::tasks::TaskSet;
use self::work::{Free, Locks, Messages, OneLock, OurQueues, PosixQueues, Signals, To, Under};
use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::machine;
use crate::measure::{Case, Sampler};
use crate::peers::Lock;
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::plan::Plan;
use crate::published::{Experiment, RTEMS, Source};
use crate::result::{Kind, Params, Placement, Sched, Unit, Variant, Warning};

pub(super) struct FineGrained;

/// A contestant of a case.
#[derive(Clone, Copy)]
enum Entrant {
    Lock(&'static Peer),
    Event,
    Queue,
    PosixMq,
    /// A contestant of this name, with one lock around all of its operations, none of which sleeps.
    Giant(&'static str, &'static Self),
}

use Entrant::{Event, Giant, PosixMq, Queue};

const fn of(peer: &'static Peer) -> Entrant {
    Entrant::Lock(peer)
}

/// The contestants with the giant lock and the direct hand-off come first: in each case the others are compared with
/// them.
const CASES: &[(Variant, &[Entrant])] = &[
    (
        Variant::EventSelf,
        &[Giant("giant-lock event", &Event), Event],
    ),
    (Variant::EventManyToOne, &[Event]),
    (
        Variant::PrivateMutex,
        &[
            Giant("giant-lock semaphore-binary", &of(locks::SEMAPHORE_BINARY)),
            Giant(
                "giant-lock semaphore-inherit",
                &of(locks::SEMAPHORE_INHERIT),
            ),
            Giant(
                "giant-lock semaphore-ceiling",
                &of(locks::SEMAPHORE_CEILING),
            ),
            Giant("giant-lock semaphore-mrsp", &of(locks::SEMAPHORE_MRSP)),
            of(locks::SEMAPHORE_BINARY),
            of(locks::SEMAPHORE_INHERIT),
            of(locks::SEMAPHORE_CEILING),
            of(locks::SEMAPHORE_MRSP),
            of(locks::SPIN),
            of(locks::WAIT_WAKE),
            of(locks::INHERIT),
            of(locks::PROTECT),
            of(locks::GLIBC),
            of(locks::GLIBC_PI),
            of(locks::GLIBC_PP),
        ],
    ),
    (
        Variant::ContestedMutex,
        &[
            of(locks::HAND_OFF),
            of(locks::SEMAPHORE_BINARY),
            of(locks::SEMAPHORE_INHERIT),
            of(locks::INHERIT),
            of(locks::GLIBC),
            of(locks::GLIBC_PI),
        ],
    ),
    (
        Variant::MessageSelf,
        &[Giant("giant-lock queue", &Queue), Queue, PosixMq],
    ),
    (Variant::MessageManyToOne, &[Queue, PosixMq]),
];

impl Entrant {
    fn name(self) -> &'static str {
        match self {
            Self::Lock(peer) => peer.name,
            Event => "latchwork event",
            Queue => "latchwork queue",
            PosixMq => "posix-mq",
            Giant(name, _) => name,
        }
    }

    /// Its name without the lock around it.
    fn object(self) -> &'static str {
        match self {
            Giant(_, inner) => inner.name(),
            _ => self.name(),
        }
    }

    fn contestant(self) -> Contestant {
        match self {
            Self::Lock(peer) => peer.contestant(),
            Giant(name, inner) => Contestant {
                name,
                ..inner.contestant()
            },
            Event | Queue | PosixMq => Contestant::ready(self.name()),
        }
    }

    fn priority(self) -> Option<libc::c_int> {
        match self {
            Self::Lock(peer) => peer.priority,
            Giant(_, inner) => inner.priority(),
            Event | Queue | PosixMq => None,
        }
    }

    /// Samples of a case.
    fn sampler(self, case: Variant, tasks: u32, window: Duration) -> Option<Sampler> {
        match self {
            Giant(_, inner) => inner.sampler_under::<OneLock>(case, tasks, window),
            _ => self.sampler_under::<Free>(case, tasks, window),
        }
    }

    fn sampler_under<U: Under>(
        self,
        case: Variant,
        tasks: u32,
        window: Duration,
    ) -> Option<Sampler> {
        let task_set = TaskSet {
            tasks,
            priority: self.priority(),
            window,
        };
        let to = match case {
            Variant::EventManyToOne | Variant::MessageManyToOne => To::First,
            _ => To::Self_,
        };
        Some(match self {
            Self::Lock(peer) => {
                let locks = match case {
                    Variant::ContestedMutex => 1,
                    _ => tasks,
                };
                let take = Take {
                    locks,
                    task_set,
                    under: PhantomData::<U>,
                };
                return peer.visit(Between::Threads, take).ok();
            }
            Event => Box::new(move || tasks::measure(&Signals::<U>::new(tasks, to)?, task_set)),
            Queue => Box::new(move || {
                tasks::measure(&Messages::<OurQueues, U>::new(tasks, to)?, task_set)
            }),
            PosixMq => Box::new(move || {
                tasks::measure(&Messages::<PosixQueues, U>::new(tasks, to)?, task_set)
            }),
            // `Giant` does not contain another `Giant`.
            Giant(..) => return None,
        })
    }
}

/// Has tasks take locks.
struct Take<U> {
    locks: u32,
    task_set: TaskSet,
    under: PhantomData<U>,
}

impl<U: Under> Visitor for Take<U> {
    type Output = Sampler;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Sampler {
        let Self {
            locks, task_set, ..
        } = self;
        Box::new(move || tasks::measure(&Locks::<L, U>::new(locks, &make)?, task_set))
    }
}

impl Scenario for FineGrained {
    fn name(&self) -> &'static str {
        "fine-grained"
    }

    fn about(&self) -> &'static str {
        "1 to N tasks use objects of their own, or one for all; operations per second of all tasks; \
         giant-lock: with one lock of the benchmark's around each operation"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &RTEMS,
            place: ", comments 7 and 10: the benchmark tmfine01",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn contestants(&self) -> Vec<Contestant> {
        let mut contestants: Vec<Contestant> = Vec::new();
        for entrant in CASES.iter().flat_map(|(_, entrants)| *entrants) {
            if !contestants.iter().any(|one| one.name == entrant.name()) {
                contestants.push(entrant.contestant());
            }
        }
        contestants
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let cpus = machine::cpus().len() as u32;
        let counts = tasks(plan, cpus, &mut prepared.warnings);
        let mut ready: Vec<&str> = Vec::new();
        for contestant in self.contestants() {
            if contestant.absent.is_none() && plan.wants(self.base(), contestant.name) {
                ready.push(contestant.name);
            }
        }
        for &(case, entrants) in CASES {
            let mut of_one_task: BTreeMap<&str, Figure> = BTreeMap::new();
            for &tasks in &counts {
                let placement = if tasks <= cpus {
                    Placement::DifferentCpu
                } else {
                    Placement::Free
                };
                let mut of_giant: BTreeMap<&str, Figure> = BTreeMap::new();
                let of_hand_off = Figure::default();
                for entrant in entrants.iter().filter(|one| ready.contains(&one.name())) {
                    let in_real_time = entrant.priority().is_some();
                    if in_real_time && tasks > cpus {
                        continue;
                    }
                    let Some(mut sampler) = entrant.sampler(case, tasks, plan.window) else {
                        continue;
                    };
                    let name = entrant.name();
                    let one = of_one_task.entry(name).or_default();
                    sampler = match tasks {
                        1 => noted(sampler, one),
                        _ if case == Variant::ContestedMutex => fallen(sampler, one),
                        _ => compared(sampler, "scaling", one),
                    };
                    let giant = of_giant.entry(entrant.object()).or_default();
                    sampler = match entrant {
                        Giant(..) => noted(sampler, giant),
                        _ => compared(sampler, "of_giant_lock", giant),
                    };
                    if case == Variant::ContestedMutex {
                        sampler = match name == locks::HAND_OFF.name {
                            true => noted(sampler, &of_hand_off),
                            false => compared(sampler, "of_hand_off", &of_hand_off),
                        };
                    }
                    let group = Params {
                        tasks: Some(tasks),
                        placement: Some(placement),
                        kind: Some(Kind::Threads),
                        case: Some(case),
                        ..Params::default()
                    };
                    let sched = if in_real_time {
                        Sched::Fifo
                    } else {
                        Sched::Other
                    };
                    prepared.cases.push(Case {
                        contestant: name,
                        params: Params {
                            sched: Some(sched),
                            ..group.clone()
                        },
                        group,
                        is_base: name == self.base(),
                        unit: Unit::OpsPerSecond,
                        further: Vec::new(),
                        sampler,
                    });
                }
            }
        }
        prepared
    }
}

/// The latest figure of a row; 0 if there is none yet.
type Figure = Rc<Cell<f64>>;

/// Stores each figure for comparison with others.
fn noted(mut sampler: Sampler, figure: &Figure) -> Sampler {
    let figure = Rc::clone(figure);
    Box::new(move || {
        let sample = sampler()?;
        figure.set(sample.figure);
        Ok(sample)
    })
}

/// Adds the ratio of each figure to another one, if that exists.
fn compared(mut sampler: Sampler, name: &'static str, other: &Figure) -> Sampler {
    let other = Rc::clone(other);
    Box::new(move || {
        let mut sample = sampler()?;
        if other.get() > 0.0 {
            sample.extra.push((name, sample.figure / other.get()));
        }
        Ok(sample)
    })
}

/// Adds, after [`compared`], the factor by which the figure fell from one task to these: RTEMS publishes such a factor.
fn fallen(sampler: Sampler, one: &Figure) -> Sampler {
    let (mut sampler, one) = (compared(sampler, "scaling", one), Rc::clone(one));
    Box::new(move || {
        let mut sample = sampler()?;
        if sample.figure > 0.0 && one.get() > 0.0 {
            sample.extra.push(("fall", one.get() / sample.figure));
        }
        Ok(sample)
    })
}

/// The task counts to measure: the user's, or every count up to the CPUs (on large machines powers of two),
/// and in a full run twice as many.
fn tasks(plan: &Plan, cpus: u32, warnings: &mut Vec<Warning>) -> Vec<u32> {
    if !plan.tasks.is_empty() {
        let mut tasks = plan.tasks.clone();
        // One task first, with which the others are compared.
        tasks.sort_unstable();
        tasks.dedup();
        return tasks;
    }
    let mut tasks: Vec<u32> = (1..=cpus)
        .filter(|tasks| cpus <= 8 || tasks.is_power_of_two() || *tasks == cpus)
        .collect();
    if !plan.quick {
        tasks.push(2 * cpus);
    }
    if cpus < 24 {
        warnings.push(Warning::FewCpus {
            text: format!(
                "{cpus} CPUs: the task counts stop at {}, and show little of how it goes on; the \
                 published figures are of up to 24 CPUs",
                tasks.last().unwrap_or(&1)
            ),
        });
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;

    #[test]
    fn every_contestant_behind_one_lock_sleeps_in_no_case_and_is_compared() {
        let window = Duration::from_micros(100);
        let mut behind_one_lock = 0;
        for (case, entrants) in CASES {
            for giant in entrants.iter().filter(|one| matches!(one, Giant(..))) {
                let is_private = [
                    Variant::EventSelf,
                    Variant::PrivateMutex,
                    Variant::MessageSelf,
                ];
                assert!(is_private.contains(case), "{}", giant.name());
                assert!(entrants.iter().any(|one| one.name() == giant.object()));
                let sample = giant.sampler(*case, 2, window).unwrap()().unwrap();
                assert!(sample.figure > 0.0, "{}", giant.name());
                behind_one_lock += 1;
            }
        }
        assert_eq!(behind_one_lock, 6);
    }

    #[test]
    fn task_counts_reach_the_cpus_and_twice_as_many() {
        let mut plan = Plan::tiny();
        let of = |plan: &Plan, cpus| tasks(plan, cpus, &mut Vec::new());
        assert_eq!(of(&plan, 2), [1, 2]);
        plan.quick = false;
        assert_eq!(of(&plan, 4), [1, 2, 3, 4, 8]);
        assert_eq!(of(&plan, 24), [1, 2, 4, 8, 16, 24, 48]);
        plan.tasks = vec![4, 1, 4];
        assert_eq!(of(&plan, 2), [1, 4]);
    }

    #[test]
    fn figures_are_compared_with_the_latest() {
        let figure = Figure::default();
        let mut next = 1.0;
        let rising: Sampler = Box::new(move || {
            next *= 2.0;
            Ok(Sample::from(next))
        });
        let mut other = noted(rising, &figure);
        let mut ours = compared(Box::new(|| Ok(Sample::from(8.0))), "scaling", &figure);
        assert!(ours().unwrap().extra.is_empty());
        other().unwrap();
        assert_eq!(ours().unwrap().extra, [("scaling", 4.0)]);
        other().unwrap();
        assert_eq!(ours().unwrap().extra, [("scaling", 2.0)]);
    }
}
