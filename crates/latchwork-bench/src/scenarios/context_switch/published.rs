//! The figures that the talk published.

use crate::published::{Experiment, Host, Line, Ours, Table, Theirs, figures, row};
use crate::result::{Kind, Params, Placement, Unit};

static CORE2: Host = Host {
    key: "core2",
    short: "Core2 Duo",
    name: "Intel Core2 Duo, 2 GHz, 2 cores, translations in hardware",
};
static PPC: Host = Host {
    key: "ppc",
    short: "PowerPC",
    name: "Freescale PowerPC MPC8568 MDS, 1 core, translations in software",
};

/// Pages, size in KiB, and for 5, 10 and 20 tasks the µs of threads and of processes on each machine.
type Pages = (&'static str, u64, [[f64; 2]; 3], [[f64; 2]; 3]);

const PAGES: [Pages; 3] = [
    (
        "Pages 17 and 20: tasks without data",
        0,
        [[1.76, 1.69], [1.81, 1.74], [1.83, 1.81]],
        [[2.36, 2.61], [3.05, 3.24], [3.26, 3.44]],
    ),
    (
        "Pages 18 and 21: tasks with 16 KiB of data",
        16,
        [[2.22, 2.20], [2.22, 2.21], [2.23, 2.22]],
        [[13.18, 13.70], [13.35, 14.25], [17.77, 17.87]],
    ),
    (
        "Pages 19 and 22: tasks with 128 KiB of data",
        128,
        [[1.99, 1.92], [3.73, 3.28], [15.85, 16.61]],
        [[167.88, 178.06], [222.41, 227.63], [227.68, 228.23]],
    ),
];
const TASKS: [u32; 3] = [5, 10, 20];

fn line(kib: u64, tasks: u32, core2: [f64; 2], ppc: [f64; 2]) -> Line {
    let theirs = |host, [threads, processes]: [f64; 2]| {
        let mut figures = figures([threads, processes]);
        figures.push(None);
        Theirs::new(host, figures)
    };
    let ours = |label, placement| {
        let cell = |kind| {
            let params = Params {
                kind: Some(kind),
                size: Some(kib << 10),
                tasks: Some(tasks),
                placement: Some(placement),
                ..Params::default()
            };
            row("pipe", params)
        };
        let kinds = [Kind::Threads, Kind::Processes, Kind::Coprocs];
        Ours {
            label,
            cells: kinds.map(cell).into(),
        }
    };
    Line::new(
        tasks.to_string(),
        Unit::Us,
        vec![theirs(&CORE2, core2), theirs(&PPC, ppc)],
        vec![
            ours("on one processor", Placement::SameCpu),
            ours("on any processor", Placement::Free),
        ],
    )
}

pub(super) fn experiments() -> Vec<Experiment> {
    let table = |(title, kib, core2, ppc): Pages| {
        let machines = core2.into_iter().zip(ppc);
        let lines = TASKS.into_iter().zip(machines);
        Table {
            title,
            head: "tasks",
            columns: vec!["threads", "processes", "coprocs"],
            lines: lines
                .map(|(tasks, (core2, ppc))| line(kib, tasks, core2, ppc))
                .collect(),
        }
    };
    vec![Experiment {
        place: "pages 12 to 22",
        order: 12,
        title: "The cost of a context switch",
        there: "LMbench's lat_ctx, extended to threads: a token goes round a ring of pipes; each task that receives it \
                works on an array of its own, and passes it on. The overhead, measured by one task with hot caches, is \
                subtracted. The talk says that the figures vary by 10 to 15 % from run to run (page 15), and concludes \
                that the difference between threads and processes is quite small and depends on the platform (page 23).",
        tables: PAGES.map(table).into(),
        differs: &[
            "The slides are bar charts, with a number at each bar; the numbers are shown as they are there.",
            "The third column is new: clean coprocs, processes that share a region. Their arrays lie in private \
             memory, as those of the other tasks do, so that the columns differ only in how the tasks were created.",
            "The tasks are placed in two ways. On one processor, each switch is one of that processor, as on the \
             single-core PowerPC. On any processor, the scheduler may spread the tasks, as on the Core2, and a switch \
             may then wait for another processor to wake up.",
            "The task that receives the token adds up its array here. lat_ctx executes a fixed amount of code besides, \
             which displaces instructions from the cache; the ring here does not.",
            "The figures of the talk rise steeply where the data of all tasks do not fit into the cache: 20 tasks with \
             128 KiB have 2.5 MiB. Caches have grown since. Translations of later processors carry tags of their \
             address spaces, so that a switch between processes need not discard them, as on the Core2.",
        ],
    }]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::published::beside;
    use crate::report::tests::row as a_row;

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let mut row = a_row("pipe", 1.0, None);
        row.params = Params {
            kind: Some(Kind::Processes),
            size: Some(16 << 10),
            tasks: Some(10),
            placement: Some(Placement::Free),
            ..Params::default()
        };
        let both = [("published_core2_us", 2.21), ("published_ppc_us", 14.25)];
        let both = both.map(|(name, figure)| (name.to_owned(), figure));
        assert_eq!(beside(&experiments(), &row), BTreeMap::from(both));
        row.params.kind = Some(Kind::Coprocs);
        assert!(beside(&experiments(), &row).is_empty());
    }
}
