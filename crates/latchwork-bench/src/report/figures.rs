//! The page of the main figures: a table of a few rows for each of some scenarios.

use std::fmt::Write;

use super::links::{escape, results_of};
use super::pages::{in_markdown, result_of};
use crate::published::{Line, Measure, Ours, Table, row};
use crate::result::{Kind, Mode, Params, Placement, ScenarioResult, Unit, Variant};
use crate::scenarios::{self, Scenario};
use crate::table::headline;

/// The page's file.
pub(super) const FILE: &str = "figures.md";

/// The tables of one scenario.
struct Section {
    title: &'static str,
    scenario: &'static str,
    tables: Vec<Table>,
}

/// The page, as Markdown; none if nothing of it was measured.
pub(super) fn page(results: &[ScenarioResult]) -> Option<String> {
    let mut text = String::from(
        "# The main figures\n\n\
         `latchwork bench` made this page of the results (JSON) beside it; all rows are in the [report](report.md). A \
         figure is the median of the rounds, with the smallest and the largest in brackets. × is a figure divided by \
         that of the first column in the same row: compare these, not the figures. `!` marks a figure if other programs \
         had more than a tenth of the processors in half of its rounds or more: it has no factor.\n",
    );
    let mut is_empty = true;
    for section in sections() {
        let Some((scenario, result)) = measured(section.scenario, results) else {
            continue;
        };
        is_empty = false;
        let name = escape(scenario.name());
        let _ = write!(
            text,
            "\n## {}\n\n`{name}`: {}. {}. [Results as JSON]({})",
            section.title,
            escape(scenario.about()),
            escape(&headline(result)),
            results_of(scenario.name())
        );
        if let Some(run) = &result.run {
            let _ = write!(text, ", {}, by `{}`", run.date, run.command);
        }
        text += ".\n";
        for table in &section.tables {
            text += &in_markdown(table, Some(result));
        }
    }
    (!is_empty).then_some(text)
}

fn measured<'a>(
    name: &str,
    results: &'a [ScenarioResult],
) -> Option<(&'static dyn Scenario, &'a ScenarioResult)> {
    let scenario = scenarios::ALL.iter().find(|one| one.name() == name)?;
    Some((*scenario, result_of(*scenario, results)?))
}

/// A table whose columns are these contestants, separated by commas.
struct Columns(&'static str);

impl Columns {
    fn names(&self) -> Vec<&'static str> {
        self.0.split(", ").collect()
    }

    /// A line of the rows' own figures.
    fn line(&self, label: impl Into<String>, unit: Unit, params: &Params) -> Line {
        let of = |contestant| row(contestant, params.clone());
        let ours = Ours {
            label: "",
            cells: self.names().into_iter().map(of).collect(),
        };
        Line::new(label, unit, Vec::new(), vec![ours])
    }

    /// A line of a further figure.
    fn further(&self, label: impl Into<String>, measure: Measure, params: &Params) -> Line {
        Line {
            measure,
            ..self.line(label, Unit::Ns, params)
        }
    }

    fn table(&self, title: &'static str, head: &'static str, lines: Vec<Line>) -> Table {
        Table {
            title,
            head,
            columns: self.names(),
            lines,
        }
    }
}

fn of(kind: Kind) -> Params {
    Params {
        kind: Some(kind),
        ..Params::default()
    }
}

fn sections() -> Vec<Section> {
    let section = |title, scenario, tables| Section {
        title,
        scenario,
        tables,
    };
    vec![
        section("Free locks", "call-overhead", free_locks()),
        section("Hand-over between two tasks", "wait-wakeup", hand_over()),
        section("Contended locks", "futex-lock", contended()),
        section("Locks whose owners sleep", "vfs", vfs()),
        section("Creation of tasks", "spawn", creation()),
        section("Heap of a region", "heap", heap()),
        section(
            "Messages between two processes",
            "message-throughput",
            messages(),
        ),
        section("Beside programs that spin", "busy", busy()),
        section(
            "Programs that are not recompiled",
            "check-overhead",
            programs(),
        ),
    ]
}

fn free_locks() -> Vec<Table> {
    let apart = Params {
        case: Some(Variant::Apart),
        ..of(Kind::Threads)
    };
    let of_threads = |columns: &Columns| {
        vec![
            columns.line("threads", Unit::Ns, &of(Kind::Threads)),
            columns.line("threads, instructions between the pairs", Unit::Ns, &apart),
        ]
    };
    let plain = Columns(
        "glibc normal, std, parking_lot, floor two-rmw, latchwork wait-wake, latchwork throughput",
    );
    let of_both = |title, columns: Columns| {
        let mut lines = of_threads(&columns);
        lines.push(columns.line("processes", Unit::Ns, &of(Kind::Processes)));
        columns.table(title, "lock and unlock", lines)
    };
    let robust = Columns(
        "glibc normal, glibc robust, latchwork robust, latchwork in-region, latchwork in-region-throughput",
    );
    let priorities = Columns(
        "glibc normal, glibc PI, latchwork inherit, glibc PP-at-ceiling, latchwork protect-at-ceiling",
    );
    vec![
        plain.table("Plain", "lock and unlock", of_threads(&plain)),
        of_both("Robust", robust),
        of_both("Priorities", priorities),
    ]
}

fn hand_over() -> Vec<Table> {
    let columns = Columns(
        "glibc normal, latchwork wait-wake, latchwork throughput, latchwork in-region, latchwork robust, glibc robust, latchwork inherit, glibc PI",
    );
    let mut lines = Vec::new();
    let places = [
        (Placement::SameCpu, "one processor"),
        (Placement::DifferentCpu, "two processors"),
    ];
    for (placement, place) in places {
        for kind in [Kind::Threads, Kind::Processes] {
            let params = Params {
                placement: Some(placement),
                ..of(kind)
            };
            lines.push(columns.line(format!("{kind}, {place}"), Unit::Ns, &params));
        }
    }
    vec![columns.table("", "hand-over", lines)]
}

fn contended() -> Vec<Table> {
    let columns = Columns(
        "glibc normal, std, parking_lot, absl, latchwork wait-wake, latchwork throughput, latchwork in-region",
    );
    let mut lines = Vec::new();
    for tasks in [2, 36] {
        for load in [1, 10, 50] {
            let params = Params {
                tasks: Some(tasks),
                load: Some(load),
                sleeps: Some(0),
                ..of(Kind::Threads)
            };
            let label = format!("{tasks} tasks, {load} pauses inside");
            lines.push(columns.line(label, Unit::OpsPerSecond, &params));
        }
    }
    vec![columns.table("", "threads", lines)]
}

fn vfs() -> Vec<Table> {
    let table = |title, columns: Columns| {
        let measure = Measure::Extra(
            "loops_per_cpu_percent",
            "loops for each per cent of a processor",
        );
        let line = columns.further("16 threads", measure, &Params::default());
        columns.table(title, "", vec![line])
    };
    vec![
        table(
            "Mutexes",
            Columns(
                "std, glibc normal, parking_lot, latchwork wait-wake, latchwork robust, latchwork inherit, latchwork in-region, latchwork throughput",
            ),
        ),
        table(
            "Semaphores",
            Columns("glibc sem, sysv-sem, latchwork semaphore-counting"),
        ),
    ]
}

fn creation() -> Vec<Table> {
    let columns =
        Columns("pthread_create, fork, posix_spawn, floor small-server, latchwork coproc-clean");
    let pooled = [
        (
            Variant::PoolLasts,
            "coproc-pooled, as long as the pool lasts",
        ),
        (Variant::Sustained, "coproc-pooled, sustained"),
    ];
    let lines = [10, 1024].map(|parent_mib| {
        let params = Params {
            parent_mib: Some(parent_mib),
            ..Params::default()
        };
        let mut line = columns.line(format!("parent of {parent_mib} MiB"), Unit::Us, &params);
        line.ours[0].cells.extend(pooled.map(|(case, _)| {
            let params = Params {
                case: Some(case),
                ..params.clone()
            };
            row("latchwork coproc-pooled", params)
        }));
        line
    });
    let mut table = columns.table("", "create and join", lines.into());
    table.columns.extend(pooled.map(|(_, name)| name));
    vec![table]
}

fn heap() -> Vec<Table> {
    let columns = Columns("malloc, latchwork heap");
    let mut lines = Vec::new();
    let cases = [
        (Variant::Pair, "freed at once"),
        (Variant::Batch, "64 at a time"),
    ];
    for (case, how) in cases {
        for size in [16, 1024, 65_536] {
            for tasks in [1, 4] {
                let params = Params {
                    tasks: Some(tasks),
                    size: Some(size),
                    case: Some(case),
                    ..Params::default()
                };
                let label = format!("{size} B, {how}, tasks: {tasks}");
                lines.push(columns.line(label, Unit::Ns, &params));
            }
        }
    }
    vec![columns.table("", "a block", lines)]
}

fn messages() -> Vec<Table> {
    let columns = Columns(
        "posix-mq, latchwork queue, latchwork queue-in-c, latchwork queue-in-place, pipe, unix-seqpacket, boost-queue",
    );
    let table = |title, mode, placement| {
        let lines = [64, 1024, 65_536].map(|size| {
            let params = Params {
                size: Some(size),
                mode: Some(mode),
                placement: Some(placement),
                ..of(Kind::Processes)
            };
            columns.line(format!("{size} B"), Unit::Ns, &params)
        });
        columns.table(title, "a message", lines.into())
    };
    vec![
        table("A stream", Mode::Stream, Placement::DifferentCpu),
        table(
            "A round trip, two processors",
            Mode::RoundTrip,
            Placement::DifferentCpu,
        ),
        table(
            "A round trip, one processor",
            Mode::RoundTrip,
            Placement::SameCpu,
        ),
    ]
}

fn busy() -> Vec<Table> {
    let columns = Columns(
        "glibc normal, std, parking_lot, latchwork wait-wake, latchwork throughput, latchwork robust, latchwork in-region",
    );
    let lines = [0, 2, 4].map(|beside| {
        let params = Params {
            beside: Some(beside),
            case: Some(Variant::ContestedMutex),
            ..Params::default()
        };
        let p99 = Measure::Extra("operation_p99_ns", "ns");
        columns.further(
            format!("beside {beside} programs, 99 of 100 within"),
            p99,
            &params,
        )
    });
    vec![columns.table("", "lock and unlock, 4 tasks", lines.into())]
}

fn programs() -> Vec<Table> {
    let columns = Columns("program as it is, program --mutex=tp, program --check");
    let all = [
        Variant::SysbenchMutex,
        Variant::SysbenchContended,
        Variant::SysbenchThreads,
        Variant::Memcached,
        Variant::Redis,
        Variant::Python,
        Variant::Sqlite,
        Variant::StressMutex,
        Variant::StressSem,
    ];
    let lines = all.map(|case| {
        let params = Params {
            case: Some(case),
            ..Params::default()
        };
        columns.line(case.to_string(), Unit::OpsPerSecond, &params)
    });
    vec![columns.table("", "", lines.into())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::read_results;
    use std::path::Path;

    #[test]
    fn each_row_is_of_a_contestant() {
        for section in sections() {
            let scenario = scenarios::ALL
                .iter()
                .find(|one| one.name() == section.scenario);
            let known = scenario.unwrap().contestants();
            let lines = section.tables.iter().flat_map(|table| &table.lines);
            for select in lines
                .flat_map(|line| &line.ours)
                .flat_map(|ours| ours.cells.iter().flatten())
            {
                let is_known = known.iter().any(|one| one.name == select.contestant);
                assert!(is_known, "{}: {}", section.scenario, select.contestant);
            }
        }
    }

    #[test]
    fn there_is_no_page_without_results() {
        assert_eq!(page(&[]), None);
    }

    /// Each table of the documentation is full.
    #[test]
    fn each_table_of_the_documentation_has_its_figures() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let results = read_results(&directory).unwrap();
        let results: Vec<_> = results.into_iter().map(|(_, result)| result).collect();
        let text = page(&results).unwrap();
        let rows = text
            .lines()
            .filter(|line| line.contains("**here**"))
            .count();
        let all: usize = sections()
            .iter()
            .flat_map(|section| &section.tables)
            .map(|table| table.lines.len())
            .sum();
        assert_eq!(rows, all, "a line has no row");
        let empty: Vec<_> = text.lines().filter(|line| line.contains("– |")).collect();
        assert!(empty.is_empty(), "{empty:#?}");
    }
}
