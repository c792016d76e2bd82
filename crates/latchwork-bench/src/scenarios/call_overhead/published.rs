//! The figures that the talk published.

use crate::published::{Experiment, Host, Line, Ours, Published, Table, Theirs, figures, rows};
use crate::result::{Kind, Params, Unit};

static SYSTEM: Host = Host {
    key: "nptl",
    short: "the talk",
    name: "the talk's system, not named",
};

fn processes() -> Params {
    Params {
        kind: Some(Kind::Processes),
        ..Params::default()
    }
}

fn protocols() -> Experiment {
    let published = [
        Published::Times(1.0, 1.0),
        Published::Times(1.5, 1.5),
        Published::Times(5.0, 5.0),
        Published::Times(15.0, 15.0),
    ];
    let ours = [
        (
            "glibc",
            [
                "glibc normal",
                "glibc PI",
                "glibc PP-at-ceiling",
                "glibc PP",
            ],
        ),
        (
            "Latchwork",
            [
                "latchwork wait-wake",
                "latchwork inherit",
                "latchwork protect-at-ceiling",
                "latchwork protect",
            ],
        ),
    ];
    let ours = ours.map(|(label, names)| Ours {
        label,
        cells: rows(names, &processes()),
    });
    let theirs = Theirs::new(&SYSTEM, published.map(Some).into());
    Experiment {
        place: "pages 14 (left), 15 and 16",
        order: 14,
        title: "The cost of a free mutex: protocols",
        there: "One process locks and unlocks a free mutex for 10 s. Page 16 sums up the graph of page 15: a mutex with \
                priority inheritance (PI) is about 1.5 times slower than a normal one, since glibc asks for the ID of \
                the thread; one with priority protection (PP) is about 5 to 15 times slower, depending on the relation \
                to the ceiling, since it changes the priority and has a lock of its own.",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec!["normal", "PI", "PP, at the ceiling", "PP, below it"],
            lines: vec![Line::new(
                "lock and unlock",
                Unit::Ns,
                vec![theirs],
                ours.into(),
            )],
        }],
        differs: &[
            "The talk gives one range for PP. That its ends are a task at the ceiling and one below it is our reading \
             of the footnote.",
            "Most of the cost of PP below the ceiling is that of the two system calls that change the priority: \
             `floor priority-calls` in the results is the cost of these alone.",
            "Other threads exist here and sleep, since glibc omits its atomic operations in a process of one thread.",
            "Latchwork's locks keep the ID of the thread in thread-local memory.",
        ],
    }
}

fn between_processes() -> Experiment {
    let ours = [
        ("glibc robust, System V", ["glibc robust", "sysv-sem"]),
        (
            "Latchwork robust, System V",
            ["latchwork robust", "sysv-sem"],
        ),
        (
            "Latchwork robust, System V with undo",
            ["latchwork robust", "sysv-sem-undo"],
        ),
    ];
    let ours = ours.map(|(label, names)| Ours {
        label,
        cells: rows(names, &processes()),
    });
    let theirs = Theirs::new(&SYSTEM, figures([1.8, 4.3]));
    Experiment {
        place: "pages 22 (left) and 25",
        order: 22,
        title: "The cost of a free lock between processes",
        there: "The same with a robust mutex and with a System V semaphore, for exclusion between processes: 1.8 µs \
                against 4.3 µs, since the semaphore always makes a system call.",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec!["robust mutex", "System V semaphore"],
            lines: vec![Line::new(
                "lock and unlock",
                Unit::Us,
                vec![theirs],
                ours.into(),
            )],
        }],
        differs: &[
            "The semaphore's cost is that of two system calls, the robust mutex's that of a few atomic operations. How \
             these relate depends on the processor, and on the kernel's measures against attacks.",
            "The automatic release of a semaphore (SEM_UNDO), for which the talk praises it (page 25), is measured \
             apart.",
        ],
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    vec![protocols(), between_processes()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::beside;
    use crate::report::tests::row as a_row;

    #[test]
    fn published_figures_are_for_processes() {
        let at = |name: &str, kind| {
            let mut row = a_row(name, 1.0, None);
            row.params.kind = Some(kind);
            beside(&experiments(), &row)
                .get("published_nptl_us")
                .copied()
        };
        assert_eq!(at("glibc robust", Kind::Processes), Some(1.8));
        assert_eq!(at("sysv-sem", Kind::Processes), Some(4.3));
        assert_eq!(at("glibc robust", Kind::Threads), None);
        assert_eq!(at("glibc PI", Kind::Processes), None);
    }
}
