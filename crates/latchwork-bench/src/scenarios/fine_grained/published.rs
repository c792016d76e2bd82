//! Published figures: operations per second of all tasks.

use crate::published::{
    Experiment, Host, Line, Measure, Ours, Published, Table, Theirs, figures, row,
};
use crate::result::{
    Params, Unit,
    Variant::{self, ContestedMutex, EventSelf, MessageManyToOne, MessageSelf, PrivateMutex},
};

static T2015: Host = Host {
    key: "t4240-2015",
    short: "T4240, 2015",
    name: "Freescale T4240, 24 processors, March 2015: events have locks of their own, all else has the giant lock",
};
static T2017: Host = Host {
    key: "t4240-2017",
    short: "T4240, 2017",
    name: "Freescale T4240, 24 processors, October 2017: all objects have locks of their own",
};
static NGMP: Host = Host {
    key: "ngmp",
    short: "NGMP",
    name: "ESA/Gaisler NGMP, 4 processors at 50 MHz, May 2015",
};

/// The counterpart of RTEMS's classic semaphore with inheritance.
const INHERIT: &str = "latchwork semaphore-inherit";

fn of(case: Variant, tasks: u32) -> Params {
    Params {
        case: Some(case),
        tasks: Some(tasks),
        ..Params::default()
    }
}

/// With the giant lock, and without; one task.
fn one_task(
    label: &'static str,
    host: &'static Host,
    case: Variant,
    [giant, own]: [&'static str; 2],
    published: [f64; 2],
) -> Line {
    let cells = vec![row(giant, of(case, 1)), row(own, of(case, 1))];
    Line::new(
        label,
        Unit::OpsPerSecond,
        vec![Theirs::new(host, figures(published))],
        vec![Ours { label: "", cells }],
    )
}

fn on_t4240() -> Experiment {
    Experiment {
        place: "comment 7, March 2015",
        order: 7,
        title: "Events, on 24 processors",
        there: "Tasks send events to themselves and receive them, on a Freescale T4240, with the giant lock and with a \
                lock in each task. With the giant lock the sum of operations does not rise with the number of tasks; \
                without it, it rises linearly up to the number of processors (plots). One task alone does 2,439,242 \
                operations per second instead of 1,367,189.",
        tables: vec![Table {
            title: "",
            head: "one task, operations/s",
            columns: vec!["giant lock", "lock of its own"],
            lines: vec![one_task(
                "events to itself",
                &T2015,
                EventSelf,
                ["giant-lock event", "latchwork event"],
                [1_367_189.0, 2_439_242.0],
            )],
        }],
        differs: &[
            "RTEMS's giant lock was that of its kernel, with the dispatching of threads disabled; removing it also \
             shortened the operations. Here, the giant lock is one lock of the benchmark around each operation of the same object, so that \
             the object's own lock is taken in both columns: the ratio says what one more free lock costs.",
            "On one processor the giant lock costs only its own instructions. What it costs several tasks is in the column \
             `of giant lock` of the results for 2 tasks and more.",
            "The tasks are threads in a region of shared memory that processes may share, each pinned to a processor of \
             its own.",
        ],
    }
}

fn on_ngmp() -> Experiment {
    Experiment {
        place: "comment 10, May 2015",
        order: 10,
        title: "Events, mutexes and messages, on 4 processors",
        there: "On an NGMP of 4 processors at 50 MHz, each task sends events to itself, obtains and releases a mutex of \
                its own, or sends messages to itself. One task alone does 86 %, 60 % and 80 % more without the giant \
                lock, and tasks on 4 processors scale well (plots).",
        tables: vec![Table {
            title: "",
            head: "one task, operations/s",
            columns: vec!["giant lock", "lock of its own"],
            lines: vec![
                one_task(
                    "events to itself",
                    &NGMP,
                    EventSelf,
                    ["giant-lock event", "latchwork event"],
                    [44_262.0, 82_150.0],
                ),
                one_task(
                    "one mutex per task",
                    &NGMP,
                    PrivateMutex,
                    ["giant-lock semaphore-inherit", INHERIT],
                    [42_520.0, 67_998.0],
                ),
                one_task(
                    "messages to itself",
                    &NGMP,
                    MessageSelf,
                    ["giant-lock queue", "latchwork queue"],
                    [32_591.0, 58_596.0],
                ),
            ],
        }],
        differs: &[
            "As in the experiment on 24 processors.",
            "The mutex is a semaphore with inheritance. A queue has 3 places for messages of 4 bytes, as in RTEMS.",
        ],
    }
}

/// The numbers of tasks that are shown.
const TASKS: [u32; 4] = [1, 2, 4, 24];

/// Operations per second with 1, 2, 4 and 24 tasks.
type Counts = [f64; 4];

fn scaling(
    label: &'static str,
    case: Variant,
    published: &[(&'static Host, Counts)],
    contestants: &[&'static str],
) -> Line {
    let ours = |contestant: &&'static str| Ours {
        label: contestant,
        cells: TASKS.map(|tasks| row(contestant, of(case, tasks))).into(),
    };
    Line::new(
        label,
        Unit::OpsPerSecond,
        published
            .iter()
            .map(|(host, counts)| Theirs::new(host, figures(*counts)))
            .collect(),
        contestants.iter().map(ours).collect(),
    )
}

/// In March 2015, and in October 2017.
const ONE_MUTEX: [Counts; 2] = [
    [1_256_086.0, 171_065.0, 200_574.0, 125_723.0],
    [4_931_822.0, 491_006.0, 260_300.0, 58_385.0],
];

fn lines() -> Vec<Line> {
    vec![
        scaling(
            "events to itself",
            EventSelf,
            &[
                (
                    &T2015,
                    [2_439_242.0, 4_863_464.0, 10_586_724.0, 67_059_839.0],
                ),
                (
                    &T2017,
                    [4_676_131.0, 9_282_643.0, 18_210_698.0, 107_220_474.0],
                ),
            ],
            &["latchwork event"],
        ),
        scaling(
            "a mutex with inheritance per task, giant lock",
            PrivateMutex,
            &[(&T2015, [1_252_186.0, 1_588_941.0, 1_070_173.0, 1_433_832.0])],
            &["giant-lock semaphore-inherit"],
        ),
        scaling(
            "a mutex with inheritance per task",
            PrivateMutex,
            &[(
                &T2017,
                [5_001_647.0, 9_864_342.0, 18_138_391.0, 97_677_190.0],
            )],
            &[INHERIT],
        ),
        scaling(
            "one mutex with inheritance for all",
            ContestedMutex,
            &[(&T2015, ONE_MUTEX[0]), (&T2017, ONE_MUTEX[1])],
            &[INHERIT],
        ),
        scaling(
            "messages to itself, giant lock",
            MessageSelf,
            &[(&T2015, [1_010_340.0, 1_240_818.0, 862_799.0, 1_076_652.0])],
            &["giant-lock queue"],
        ),
        scaling(
            "messages to itself",
            MessageSelf,
            &[(
                &T2017,
                [3_484_359.0, 6_583_069.0, 12_323_585.0, 70_049_855.0],
            )],
            &["latchwork queue"],
        ),
        scaling(
            "messages of many to one",
            MessageManyToOne,
            &[
                (&T2015, [1_000_567.0, 2_051_435.0, 1_790_791.0, 2_520_308.0]),
                (&T2017, [3_513_959.0, 6_446_750.0, 8_758_022.0, 3_549_831.0]),
            ],
            &["latchwork queue"],
        ),
        scaling(
            "a sys/lock.h mutex per task",
            PrivateMutex,
            &[(
                &T2017,
                [7_748_082.0, 15_295_616.0, 28_911_935.0, 165_097_380.0],
            )],
            &["latchwork wait-wake"],
        ),
        scaling(
            "a semaphore with a ceiling per task",
            PrivateMutex,
            &[(&T2017, [783_933.0, 1_431_719.0, 2_027_967.0, 621_828.0])],
            &["latchwork semaphore-ceiling"],
        ),
        scaling(
            "a MrsP semaphore per task",
            PrivateMutex,
            &[(&T2017, [784_201.0, 1_424_726.0, 2_032_579.0, 592_091.0])],
            &["latchwork semaphore-mrsp"],
        ),
        scaling(
            "a pthread spinlock per task",
            PrivateMutex,
            &[(
                &T2017,
                [14_718_834.0, 29_092_548.0, 55_747_295.0, 321_884_103.0],
            )],
            &["latchwork spinlock"],
        ),
        scaling(
            "a pthread mutex with inheritance per task",
            PrivateMutex,
            &[(
                &T2017,
                [5_685_517.0, 11_393_550.0, 21_819_028.0, 129_056_006.0],
            )],
            &["latchwork inherit", "glibc PI"],
        ),
        scaling(
            "a pthread mutex with a ceiling per task",
            PrivateMutex,
            &[(&T2017, [804_850.0, 1_473_821.0, 2_044_227.0, 673_899.0])],
            &["latchwork protect", "glibc PP"],
        ),
    ]
}

/// The factor by which the tasks that contend for one mutex do less than one task.
fn falls() -> Line {
    let fall = |[one, two, four, many]: Counts| {
        [two, four, many]
            .map(|tasks| Some(Published::Is(one / tasks)))
            .into()
    };
    let ours = |contestant| Ours {
        label: contestant,
        cells: [2, 4, 24]
            .map(|tasks| row(contestant, of(ContestedMutex, tasks)))
            .into(),
    };
    Line {
        measure: Measure::Extra("fall", "times less"),
        has_ratios: false,
        ..Line::new(
            "one mutex with inheritance",
            Unit::OpsPerSecond,
            vec![
                Theirs::new(&T2015, fall(ONE_MUTEX[0])),
                Theirs::new(&T2017, fall(ONE_MUTEX[1])),
            ],
            vec![ours(INHERIT), ours("latchwork inherit"), ours("glibc PI")],
        )
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    let columns = vec!["1 task", "2 tasks", "4 tasks", "24 tasks"];
    let scales = Experiment {
        place: "`tmfine01.scn`, beside the benchmark's source",
        order: 11,
        title: "How it goes on with more tasks",
        there: "RTEMS keeps the results of its benchmark: the operations that each of 1 to 24 tasks does in a second, on \
                the T4240. Here are the sums for 1, 2, 4 and 24 tasks.",
        tables: vec![
            Table {
                title: "Operations/s of all tasks",
                head: "case",
                columns: columns.clone(),
                lines: lines(),
            },
            Table {
                title: "One mutex for all: how many times less all tasks do together than one task alone",
                head: "",
                columns: columns[1..].to_vec(),
                lines: vec![falls()],
            },
        ],
        differs: &[
            "There is a task for each processor, as in RTEMS. A machine with fewer processors has no figures in the \
             last columns, unless `--tasks` asks for them; its tasks then share processors.",
            "A section here increments a datum beside the lock, and is empty in RTEMS.",
            "In RTEMS's case of many to one, the first task sends and receives, and failed sends count. Here the \
             first task only receives, and only messages that were sent count; one task alone sends to itself.",
            "Ceilings and MrsP change priorities. In RTEMS their figures fall from 4 to 24 tasks. The priorities of our \
             semaphores are kept in the region and cost no system call; those of `protect` and of glibc's PP are the \
             kernel's.",
            "A sys/lock.h mutex of RTEMS has inheritance; its counterpart here, a wait-wake mutex, has none.",
        ],
    };
    vec![on_t4240(), on_ngmp(), scales]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::published::beside;
    use crate::report::tests::row as a_row;

    fn figures(case: Variant, contestant: &str, tasks: u32) -> BTreeMap<String, f64> {
        let mut row = a_row(contestant, 1.0, None);
        row.params = of(case, tasks);
        row.extra.insert("fall".into(), 1.0);
        beside(&experiments(), &row)
    }

    fn named<const N: usize>(figures: [(&str, f64); N]) -> BTreeMap<String, f64> {
        let figures = figures.map(|(name, figure)| (format!("published_{name}"), figure));
        BTreeMap::from(figures)
    }

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let one = figures(EventSelf, "latchwork event", 1);
        let expected = [
            ("t4240-2015_ops/s", 2_439_242.0),
            ("t4240-2017_ops/s", 4_676_131.0),
            ("ngmp_ops/s", 82_150.0),
        ];
        assert_eq!(one, named(expected));
        let many = figures(ContestedMutex, INHERIT, 24);
        assert_eq!(many["published_t4240-2017_ops/s"], 58_385.0);
        assert_eq!(many["published_t4240-2017_fall"].round(), 84.0);
        let two = figures(ContestedMutex, INHERIT, 2);
        assert_eq!(two["published_t4240-2017_fall"].round(), 10.0);
        // In RTEMS's benchmark the many tasks send to themselves.
        assert!(figures(Variant::EventManyToOne, "latchwork event", 24).is_empty());
    }
}
