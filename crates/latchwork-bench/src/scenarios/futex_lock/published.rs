//! Long's figures.

use crate::published::{
    Experiment, Host, Line, Measure, Ours, Published, Table, Theirs, figures, rows,
};
use crate::result::{Kind, Params, Unit};
use crate::scenarios::contention::{EVERY_SECTION, USUAL_LOAD};

static X86: Host = Host {
    key: "long",
    short: "x86",
    name: "2 Intel Xeon E5-2699 v3, 36 cores, 36 threads, Linux 4.11",
};
static POWER8: Host = Host {
    key: "long-power8",
    short: "Power8",
    name: "2 Power8, 10 cores and 80 threads, 80 tasks",
};

/// The locks of his first tables, and ours.
const LOCKS: [&str; 4] = ["wait-wake futex", "PI futex", "TP futex", "glibc"];
const OURS: [&str; 4] = [
    "latchwork wait-wake",
    "latchwork inherit-plain",
    "latchwork throughput",
    "glibc normal",
];

/// One of our numbers of tasks.
const OUR_TASKS: [(&str, u32); 2] = [("36 tasks", 36), ("2 tasks", 2)];

/// The figures of both machines, with the locks in the order of [`LOCKS`].
struct Row {
    label: &'static str,
    measure: Measure,
    has_ratios: bool,
    x86: [f64; 4],
    power8: [f64; 4],
}

/// Of `operations` in ten seconds, so many in a thousand.
const fn per_1000(count: f64, operations: f64) -> f64 {
    1000.0 * count / operations
}

/// Operations in ten seconds.
const X86_TOTAL: [f64; 4] = [49_065_154.0, 372_301.0, 57_209_013.0, 39_667_389.0];
const POWER8_TOTAL: [f64; 4] = [12_939_135.0, 1_758_607.0, 21_502_680.0, 10_896_395.0];

const fn of_all(totals: [f64; 4]) -> [f64; 4] {
    let [ww, pi, tp, glibc] = totals;
    [ww / 10.0, pi / 10.0, tp / 10.0, glibc / 10.0]
}

const TASK: &str = "ops/s of one task";
const PER_CENT: &str = "%";

/// At load 1; of each task, in a second.
const ROWS: [Row; 5] = [
    Row {
        label: "operations of all tasks",
        measure: Measure::Figure(Unit::OpsPerSecond),
        has_ratios: true,
        x86: of_all(X86_TOTAL),
        power8: of_all(POWER8_TOTAL),
    },
    Row {
        label: "average task",
        measure: Measure::Extra("task_avg_ops", TASK),
        has_ratios: true,
        x86: [136_291.0, 1_034.0, 158_897.0, 110_186.0],
        power8: [16_172.0, 2_198.0, 26_851.0, 13_619.0],
    },
    Row {
        label: "slowest task",
        measure: Measure::Extra("task_min_ops", TASK),
        has_ratios: true,
        x86: [131_597.0, 1_033.0, 139_441.0, 106_397.0],
        power8: [13_527.0, 2_197.0, 23_101.0, 11_524.0],
    },
    Row {
        label: "fastest task",
        measure: Measure::Extra("task_max_ops", TASK),
        has_ratios: true,
        x86: [140_414.0, 1_051.0, 176_816.0, 117_527.0],
        power8: [19_519.0, 2_220.0, 27_629.0, 15_952.0],
    },
    Row {
        label: "deviation",
        measure: Measure::Extra("stddev_pct", PER_CENT),
        has_ratios: false,
        x86: [0.22, 0.05, 1.27, 0.36],
        power8: [0.93, 0.01, 0.25, 0.87],
    },
];

const PER_1000: &str = "per 1,000 operations";

/// Which locks a line about slow paths is about: those whose slow paths are in user space, or the PI lock.
type Whose = [bool; 4];
const IN_USER_SPACE: Whose = [true, false, true, false];
const OF_PI: Whose = [false, true, false, false];

/// A line about slow paths.
struct SlowPath {
    label: &'static str,
    measure: Measure,
    whose: Whose,
    x86: [f64; 4],
    power8: [f64; 4],
}

/// Slow paths, with the locks in the order of [`LOCKS`]: of locking, of unlocking, and both of the PI lock.
fn slow_paths() -> [SlowPath; 3] {
    let of = |counts: [f64; 4], totals: [f64; 4]| {
        std::array::from_fn(|lock| per_1000(counts[lock], totals[lock]))
    };
    [
        SlowPath {
            label: "system calls of locking",
            measure: Measure::Extra("sleep_calls_per_1000", PER_1000),
            whose: IN_USER_SPACE,
            x86: of([10_292_953.0, 0.0, 11_864_228.0, 0.0], X86_TOTAL),
            power8: of([2_856_730.0, 0.0, 7_092_852.0, 0.0], POWER8_TOTAL),
        },
        SlowPath {
            label: "system calls of unlocking",
            measure: Measure::Extra("wake_calls_per_1000", PER_1000),
            whose: IN_USER_SPACE,
            x86: of([14_306_857.0, 0.0, 25.0, 0.0], X86_TOTAL),
            power8: of([4_279_445.0, 0.0, 13.0, 0.0], POWER8_TOTAL),
        },
        SlowPath {
            label: "system calls of both",
            measure: Measure::Extra("inherit_calls_per_1000", PER_1000),
            whose: OF_PI,
            x86: of([0.0, 372_114.0 + 372_110.0, 0.0, 0.0], X86_TOTAL),
            power8: of([0.0, 1_758_403.0 + 1_758_403.0, 0.0, 0.0], POWER8_TOTAL),
        },
    ]
}

/// The cells of some locks only.
fn only<T>(whose: Whose, cells: Vec<Option<T>>) -> Vec<Option<T>> {
    let kept = cells.into_iter().zip(whose);
    kept.map(|(cell, is_its)| cell.filter(|_| is_its)).collect()
}

fn threads(tasks: u32, load: u32, sleeps: u32) -> Params {
    Params {
        tasks: Some(tasks),
        load: Some(load),
        sleeps: Some(sleeps),
        kind: Some(Kind::Threads),
        ..Params::default()
    }
}

/// Published figures, which stand beside ours with as many tasks only.
fn theirs(host: &'static Host, tasks: u32, figures: Vec<Option<Published>>) -> Theirs {
    Theirs {
        at: Params {
            tasks: Some(tasks),
            ..Params::default()
        },
        ..Theirs::new(host, figures)
    }
}

fn on_both(x86: Vec<Option<Published>>, power8: Vec<Option<Published>>) -> Vec<Theirs> {
    vec![theirs(&X86, 36, x86), theirs(&POWER8, 80, power8)]
}

fn first_tables() -> Table {
    let ours = |(label, tasks)| Ours {
        label,
        cells: rows(OURS, &threads(tasks, 1, 0)),
    };
    let glibcs_pi = |(label, tasks)| Ours {
        label,
        cells: rows(
            [OURS[0], "glibc PI", OURS[2], OURS[3]],
            &threads(tasks, 1, 0),
        ),
    };
    let line = |row: &Row| Line {
        measure: row.measure,
        has_ratios: row.has_ratios,
        ..Line::new(
            row.label,
            Unit::OpsPerSecond,
            on_both(figures(row.x86), figures(row.power8)),
            OUR_TASKS.map(ours).into(),
        )
    };
    let mut lines: Vec<Line> = ROWS.iter().map(line).collect();
    let with_glibcs = [("36 tasks, PI: glibc's", 36), ("2 tasks, PI: glibc's", 2)];
    lines[0].ours.extend(with_glibcs.map(glibcs_pi));
    for SlowPath {
        label,
        measure,
        whose,
        x86,
        power8,
    } in slow_paths()
    {
        let of_these = |(label, tasks)| Ours {
            label,
            cells: only(whose, rows(OURS, &threads(tasks, 1, 0))),
        };
        lines.push(Line {
            measure,
            has_ratios: false,
            ..Line::new(
                label,
                Unit::OpsPerSecond,
                on_both(only(whose, figures(x86)), only(whose, figures(power8))),
                OUR_TASKS.map(of_these).into(),
            )
        });
    }
    Table {
        title: "Load 1: the tables of the x86 and of the Power8 system",
        head: "figure",
        columns: LOCKS.into(),
        lines,
    }
}

/// His operations in 10 s: load, and those of wait-wake and TP futexes.
const LOADS: [(u32, f64, f64); 8] = [
    (1, X86_TOTAL[0], X86_TOTAL[2]),
    (5, 40_365_507.0, 54_993_009.0),
    (10, 33_193_154.0, 47_696_618.0),
    (20, 25_855_039.0, 37_553_477.0),
    (30, 21_157_759.0, 31_667_873.0),
    (40, 18_216_561.0, 27_408_570.0),
    (50, 16_103_078.0, 24_299_436.0),
    (100, 10_233_914.0, 14_375_505.0),
];
/// The same, with every section sleeping.
const SLEEPING: (f64, f64) = (178_018.0, 174_938.0);

fn loads() -> Table {
    let line = |label: String, load, sleeps, (wait_wake, throughput): (f64, f64)| {
        let ours = |(label, tasks)| Ours {
            label,
            cells: rows([OURS[0], OURS[2]], &threads(tasks, load, sleeps)),
        };
        let figures = figures([wait_wake / 10.0, throughput / 10.0]);
        Line::new(
            label,
            Unit::OpsPerSecond,
            vec![theirs(&X86, 36, figures)],
            OUR_TASKS.map(ours).into(),
        )
    };
    let computing = LOADS.map(|(load, wait_wake, throughput)| {
        line(load.to_string(), load, 0, (wait_wake, throughput))
    });
    let sleeping = line("1 µs sleep".into(), USUAL_LOAD, EVERY_SECTION, SLEEPING);
    Table {
        title: "Loads 1 to 100, and sections that sleep",
        head: "load",
        columns: vec!["wait-wake futex", "TP futex"],
        lines: computing.into_iter().chain([sleeping]).collect(),
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        place: "the tables of its description",
        order: 1,
        title: "Mutexes that tasks contend for",
        there: "Threads lock one mutex for 10 s; between two sections each of them works for a while (latency 10), so \
                that no CPU keeps the lock. The work in the section, the load, is varied from 1 to 100; in the last \
                line each section sleeps for 1 µs. TP futexes did 17 % more than wait-wake futexes at load 1, \
                about 50 % more at loads of 30 to 50, and 2 % less where owners sleep. Hardly any unlock took the slow \
                path.",
        tables: vec![first_tables(), loads()],
        differs: &[
            "Long's futexes wait in the kernel, which knows whether the owner runs. Latchwork's throughput lock waits in \
             user space, with Linux's ordinary futex: its top waiter reads the CPU clock of the owner's thread, and each \
             thread limits its polls by what its earlier ones cost.",
            "Where the machine has fewer processors than tasks, most of the tasks wait for a processor and not for \
             the lock: an owner may lose its processor in the section, and the others then wait for a time slice. \
             Long had a processor for each thread, and pinned the threads. Here the scheduler places them. The lines with 2 tasks \
             show two tasks alone.",
            "A slow path of Long's is a system call. Of our locks the calls to sleep and to wake are counted, those that \
             the kernel refused included; of the PI lock, whose slow paths are the kernel's, the calls to lock and to \
             unlock together. Most waiters here poll until they get the lock, without a call.",
            "Our PI column is `InheritPlain`, the kernel's PI futex without more; the lines \"PI: glibc's\" have \
             glibc's PI mutex in its place.",
            "Figures are operations in a second; the document's tables have those of ten seconds.",
            "The document does not define the unit of the load. Here it is a pause instruction, which takes some 10 cycles \
             on the Xeon processors of 2014 and more than 100 on those since 2017, so that the same load may be a longer \
             section.",
        ],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::beside;
    use crate::report::tests::row as a_row;

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let at = |name: &str, tasks, load, sleeps| {
            let mut row = a_row(name, 1.0, None);
            row.params = threads(tasks, load, sleeps);
            let found = beside(&experiments(), &row);
            found.get("published_long_ops/s").copied()
        };
        assert_eq!(at("latchwork wait-wake", 36, 10, 0), Some(3_319_315.4));
        assert_eq!(at("latchwork throughput", 36, 40, 0), Some(2_740_857.0));
        assert_eq!(at("glibc normal", 36, 1, 0), Some(3_966_738.9));
        assert_eq!(at("glibc PI", 36, 1, 0), Some(37_230.1));
        assert_eq!(at("glibc normal", 36, 10, 0), None);
        assert_eq!(at("latchwork wait-wake", 36, 10, 1024), Some(17_801.8));
        assert_eq!(at("latchwork wait-wake", 36, 10, 1), None);
        assert_eq!(at("latchwork wait-wake", 8, 10, 0), None);
        assert_eq!(at("std", 36, 1, 0), None);
    }

    #[test]
    fn further_figures_stand_beside_their_own() {
        let mut row = a_row("latchwork throughput", 1.0, None);
        row.params = threads(36, 1, 0);
        row.extra.insert("wake_calls_per_1000".into(), 0.1);
        row.extra.insert("inherit_calls_per_1000".into(), 0.0);
        let found = beside(&experiments(), &row);
        let unlocks = found["published_long_wake_calls_per_1000"];
        assert!((0.000_4..0.000_5).contains(&unlocks), "{found:?}");
        assert!(!found.contains_key("published_long_sleep_calls_per_1000"));
        assert!(!found.contains_key("published_long_inherit_calls_per_1000"));
    }
}
