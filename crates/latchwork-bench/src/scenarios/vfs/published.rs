//! The figures of 2005.

use crate::published::{Experiment, Host, Line, Measure, Ours, Table, Theirs, figures, rows};
use crate::result::{Params, Unit};

/// The number of tasks.
pub(super) const TASKS: u32 = 16;

static EIGHT: Host = Host {
    key: "8-cpus",
    short: "8 processors",
    name: "x86, 8 processors",
};
static TWO: Host = Host {
    key: "4-cpus",
    short: "2 processors",
    name: "Pentium 4, 2 processors with hyper-threading",
};

/// A semaphore and a mutex: loops per second, per cent of processor time.
const OF_EIGHT: [[f64; 2]; 2] = [[34_713.0, 84_153.0], [63.0, 22.0]];
const OF_TWO: [[f64; 2]; 2] = [[127_659.0, 181_082.0], [100.0, 34.0]];

fn line(
    label: &'static str,
    measure: Measure,
    has_ratios: bool,
    of_eight: [f64; 2],
    of_two: [f64; 2],
) -> Line {
    let params = Params {
        tasks: Some(TASKS),
        ..Params::default()
    };
    let ours = |label, pair| Ours {
        label,
        cells: rows(pair, &params),
    };
    let theirs = |host, figures_of| Theirs::new(host, figures(figures_of));
    Line {
        measure,
        has_ratios,
        ..Line::new(
            label,
            Unit::OpsPerSecond,
            vec![theirs(&EIGHT, of_eight), theirs(&TWO, of_two)],
            vec![
                ours(
                    "POSIX semaphore, wait-wake",
                    ["glibc sem", "latchwork wait-wake"],
                ),
                ours(
                    "our semaphore, wait-wake",
                    ["latchwork semaphore-counting", "latchwork wait-wake"],
                ),
                ours(
                    "System V semaphore, wait-wake",
                    ["sysv-sem", "latchwork wait-wake"],
                ),
                ours(
                    "POSIX semaphore, throughput",
                    ["glibc sem", "latchwork throughput"],
                ),
                ours(
                    "POSIX semaphore, glibc's mutex",
                    ["glibc sem", "glibc normal"],
                ),
            ],
        )
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    let per_cent = |[[semaphore, mutex], [of_semaphore, of_mutex]]: [[f64; 2]; 2]| {
        [semaphore / of_semaphore, mutex / of_mutex]
    };
    let lines = vec![
        line(
            "loops of all tasks",
            Measure::Figure(Unit::OpsPerSecond),
            true,
            OF_EIGHT[0],
            OF_TWO[0],
        ),
        line(
            "processor time",
            Measure::Extra("cpu_percent", "%"),
            false,
            OF_EIGHT[1],
            OF_TWO[1],
        ),
        line(
            "loops/s for each per cent",
            Measure::Extra("loops_per_cpu_percent", "loops/s per %"),
            true,
            per_cent(OF_EIGHT),
            per_cent(OF_TWO),
        ),
    ];
    vec![Experiment {
        place: "\"the mutex subsystem is faster\"",
        order: 4,
        title: "Speed: `test-mutex V 16 10`",
        there: "16 tasks create, unlink and close files of their own in /tmp for 10 s, with a kernel whose directories \
                have semaphores, and with one whose directories have mutexes. On 8 processors the second kernel did 2.4 \
                times as much, and 6.9 times as much for each per cent of processor time; on 2 processors with \
                hyper-threading, 1.41 and 4.1 times.",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec!["semaphore", "mutex"],
            lines,
        }],
        differs: &[
            "Then, the lock was the directory's in the kernel. Here it is one of user space around the same calls: \
             creating a file is one critical section, unlinking it another. The kernel's own lock is then never \
             contended.",
            "Semaphores differ, too: a POSIX semaphore lets newcomers pass, and our semaphore and that of System V hand \
             each unit over to the first waiter, which costs a switch of tasks for each section. The lines name the \
             semaphore and the mutex that they compare.",
            "The post does not explain the difference in speed. The mutexes of 2005 did not spin; the kernel's have \
             done so since 2009. A wait-wake mutex of ours polls for a moment before it sleeps.",
            "With few processors, little runs at the same time: in the post, too, the advantage of the mutex was \
             larger on 8 processors than on 2.",
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
        let mut row = a_row("latchwork wait-wake", 1.0, None);
        row.params.tasks = Some(TASKS);
        row.extra.insert("loops_per_cpu_percent".into(), 700.0);
        let found = beside(&experiments(), &row);
        assert_eq!(found["published_8-cpus_ops/s"], 84_153.0);
        assert_eq!(found["published_4-cpus_ops/s"], 181_082.0);
        assert_eq!(
            found["published_8-cpus_loops_per_cpu_percent"].round(),
            3825.0
        );
        row.params.tasks = Some(2);
        assert!(beside(&experiments(), &row).is_empty());
    }

    #[test]
    fn the_figures_have_the_published_ratios() {
        let ratio = |[semaphore, mutex]: [f64; 2]| mutex / semaphore;
        let efficiency = |[loops, per_cent]: [[f64; 2]; 2]| ratio(loops) / ratio(per_cent);
        let is_about = |figure: f64, published: f64| (figure / published - 1.0).abs() < 0.02;
        assert!(is_about(ratio(OF_EIGHT[0]), 2.4) && is_about(efficiency(OF_EIGHT), 6.9));
        assert!(is_about(ratio(OF_TWO[0]), 1.41) && is_about(efficiency(OF_TWO), 4.1));
    }
}
