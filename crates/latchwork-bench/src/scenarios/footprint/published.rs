//! The figures of 2005.

use super::program::PROGRAMS;
use crate::published::{
    Experiment, Host, Line, Ours, Published, Table, Theirs, figures, row, rows,
};
use crate::result::{Params, Unit, Variant};

static X86: Host = Host {
    key: "kernel",
    short: "kernel",
    name: "the kernel of 2005, 32-bit x86",
};

fn of(case: Variant) -> Params {
    Params {
        case: Some(case),
        ..Params::default()
    }
}

fn sizes() -> Experiment {
    let [semaphores, mutexes, debug] = PROGRAMS.map(|program| program.name);
    let params = of(Variant::Size);
    let mut published = figures([20.0, 16.0]);
    published.push(None);
    let ours = |label, names| Ours {
        label,
        cells: rows(names, &params),
    };
    let line = Line::new(
        "the object",
        Unit::Bytes,
        vec![Theirs::new(&X86, published)],
        vec![
            ours("`migrate.h`", [semaphores, mutexes, debug]),
            Ours {
                label: "POSIX semaphore, wait-wake",
                cells: rows(["glibc sem", "latchwork wait-wake"], &params)
                    .into_iter()
                    .chain([None])
                    .collect(),
            },
            Ours {
                label: "POSIX semaphore, throughput",
                cells: rows(["glibc sem", "latchwork throughput"], &params)
                    .into_iter()
                    .chain([None])
                    .collect(),
            },
        ],
    );
    Experiment {
        place: "\"struct mutex is smaller\"",
        order: 1,
        title: "Sizes",
        there: "On x86, `struct semaphore` has 20 bytes and `struct mutex` 16: less memory, and better use of the \
                caches.",
        tables: vec![Table {
            title: "",
            head: "size",
            columns: vec!["semaphore", "mutex", "mutex that checks its rules"],
            lines: vec![line],
        }],
        differs: &[
            "The kernel's objects contain a spinlock and a list of waiters. A wait-wake mutex of ours is one word of 32 \
             bits, and a semaphore one of 64, its count and the number of its waiters; the kernel keeps the lists of \
             waiters (futexes).",
            "The sizes of 2005 are those of a 32-bit machine. Of ours, only a mutex that checks its rules depends on the \
             width of pointers, since it contains some.",
            "No size was published of a mutex that checks its rules.",
        ],
    }
}

fn programs() -> Experiment {
    let [semaphores, mutexes, _] = PROGRAMS.map(|program| program.name);
    let line = |label: &'static str, case, published| {
        Line::new(
            label,
            Unit::Bytes,
            vec![Theirs::new(&X86, figures(published))],
            vec![Ours {
                label: "test-mutex, a program in C",
                cells: rows([semaphores, mutexes], &of(case)),
            }],
        )
    };
    Experiment {
        place: "\"tighter code\"",
        order: 2,
        title: "The size of a program",
        there: "The kernel with semaphores that are used as mutexes, and with mutexes in their place: 25,051 bytes of \
                code less, 0.76 %, and 0.33 % less data.",
        tables: vec![Table {
            title: "",
            head: "section",
            columns: vec!["with semaphores", "with mutexes"],
            lines: vec![
                line("text", Variant::ProgramText, [3_280_380.0, 3_255_329.0]),
                line("data", Variant::ProgramData, [868_188.0, 865_296.0]),
                line("bss", Variant::ProgramBss, [396_860.0, 396_732.0]),
            ],
        }],
        differs: &[
            "Our program is `test-mutex` from `examples/migrate`, before the migration and after its third step, \
             compiled with `-Os` and not linked. It has some ten calls of semaphores and mutexes, and the kernel had \
             thousands.",
            "`migrate.h` has its fast paths as inline functions, so that each call adds them to the text; the kernel's \
             mutexes were called out of line.",
        ],
    }
}

fn fast_paths() -> Experiment {
    let line = |label: &'static str, case, unit, published: [f64; 2]| {
        let [lock, unlock] = published;
        let cells = || vec![row("latchwork wait-wake", of(case))];
        let theirs = Theirs::new(&X86, vec![Some(Published::Is(lock + unlock))]);
        Line {
            has_ratios: false,
            ..Line::new(
                label,
                unit,
                vec![theirs],
                vec![
                    Ours {
                        label: "wait-wake",
                        cells: cells(),
                    },
                    Ours {
                        label: "throughput",
                        cells: vec![row("latchwork throughput", of(case))],
                    },
                    Ours {
                        label: "robust",
                        cells: vec![row("latchwork robust", of(case))],
                    },
                ],
            )
        }
    };
    let executed = Line {
        has_ratios: false,
        ..Line::new(
            "executed",
            Unit::Instructions,
            Vec::new(),
            [
                "latchwork wait-wake",
                "latchwork throughput",
                "latchwork robust",
                "glibc normal",
                "glibc sem",
            ]
            .map(|name| Ours {
                label: name,
                cells: vec![row(name, of(Variant::Executed))],
            })
            .into(),
        )
    };
    Experiment {
        place: "\"no fastpath tradeoffs\"",
        order: 3,
        title: "Fast paths",
        there: "The listings of `mutex_lock` and `mutex_unlock`: a locked decrement or increment, a branch, a return; \
                6 bytes each. (The post speaks of 2 instructions, without the return.)",
        tables: vec![Table {
            title: "",
            head: "of lock and unlock together",
            columns: vec!["mutex"],
            lines: vec![
                line("code", Variant::Text, Unit::Bytes, [6.0, 6.0]),
                line(
                    "listed",
                    Variant::Instructions,
                    Unit::Instructions,
                    [3.0, 3.0],
                ),
                executed,
            ],
        }],
        differs: &[
            "The code is that of two functions of this executable in which the lock's own code is inlined, with their \
             returns, and without the slow path behind a branch. A `cmpxchg` needs its operands in registers, which a \
             decrement does not.",
            "The instructions executed are counted by single steps, libraries included. A system call is one \
             instruction.",
            "64-bit instructions, and those that address thread-local data, are longer than those of 2005.",
        ],
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    vec![sizes(), programs(), fast_paths()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::beside;
    use crate::report::tests::row as a_row;

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let at = |name: &str, case, unit: &str| {
            let mut row = a_row(name, 1.0, None);
            row.params.case = Some(case);
            let found = beside(&experiments(), &row);
            found.get(&format!("published_kernel_{unit}")).copied()
        };
        let wait_wake = "latchwork wait-wake";
        assert_eq!(at(wait_wake, Variant::Size, "bytes"), Some(16.0));
        assert_eq!(at(wait_wake, Variant::Text, "bytes"), Some(12.0));
        assert_eq!(
            at(wait_wake, Variant::Instructions, "instructions"),
            Some(6.0)
        );
        assert_eq!(at(wait_wake, Variant::Executed, "instructions"), None);
        assert_eq!(at("semaphores in C", Variant::Size, "bytes"), Some(20.0));
        let text = at("mutexes in C", Variant::ProgramText, "bytes");
        assert_eq!(text, Some(3_255_329.0));
    }
}
