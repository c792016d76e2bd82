//! The figures that the talk published.

use crate::published::{Experiment, Host, Line, Ours, Published, Table, Theirs, figures, rows};
use crate::result::{Kind, Params, Placement, Sched, Unit};

static SYSTEM: Host = Host {
    key: "nptl",
    short: "the talk",
    name: "the talk's system, not named",
};

fn processes(placement: Placement, sched: Sched) -> Params {
    Params {
        kind: Some(Kind::Processes),
        placement: Some(placement),
        sched: Some(sched),
        ..Params::default()
    }
}

fn protocols() -> Experiment {
    let glibc = ["glibc normal", "glibc PI", "glibc PP"];
    let latchwork = [
        "latchwork wait-wake",
        "latchwork inherit",
        "latchwork protect",
    ];
    let ours = [
        ("glibc, one processor", glibc, Placement::SameCpu),
        ("Latchwork, one processor", latchwork, Placement::SameCpu),
        ("glibc, two processors", glibc, Placement::DifferentCpu),
        (
            "Latchwork, two processors",
            latchwork,
            Placement::DifferentCpu,
        ),
    ];
    let ours = ours.map(|(label, names, placement)| Ours {
        label,
        cells: rows(names, &processes(placement, Sched::Fifo)),
    });
    let published = [1.0, 1.6, 1.2].map(|times| Some(Published::Times(times, times)));
    let theirs = Theirs::new(&SYSTEM, published.into());
    Experiment {
        place: "pages 14 (right), 15 and 16",
        order: 15,
        title: "Waiting and waking: protocols",
        there: "Two processes hand three mutexes round for 10 s, so that each waits for the one that the other unlocks \
                next. Page 16: with priority inheritance (PI) a hand-over takes about 1.6 times as long as with a \
                normal mutex, for the work in the kernel; with priority protection (PP) about 1.2 times.",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec!["normal", "PI", "PP"],
            lines: vec![Line::new(
                "hand-over, SCHED_FIFO",
                Unit::Us,
                vec![theirs],
                ours.into(),
            )],
        }],
        differs: &[
            "The tasks run in SCHED_FIFO here, in which alone glibc's PP works; the talk's class is not stated.",
            "On one processor, each hand-over is a switch of tasks. On two, a waiter for a lock of ours polls before \
             it sleeps, and then needs no wake-up. The text does not say how many processors the talk's system had.",
            "Real-time tasks that wait for an inheriting lock of ours on the owner's processor poll for half a \
             microsecond in vain.",
        ],
    }
}

fn between_processes() -> Experiment {
    let ours = |label, robust, semaphore, placement| Ours {
        label,
        cells: rows([robust, semaphore], &processes(placement, Sched::Other)),
    };
    let (one, two) = (Placement::SameCpu, Placement::DifferentCpu);
    let ours = vec![
        ours(
            "glibc robust, System V; one processor",
            "glibc robust",
            "sysv-sem",
            one,
        ),
        ours(
            "Latchwork robust, System V; one processor",
            "latchwork robust",
            "sysv-sem",
            one,
        ),
        ours(
            "Latchwork robust, System V with undo; one processor",
            "latchwork robust",
            "sysv-sem-undo",
            one,
        ),
        ours(
            "glibc robust, System V; two processors",
            "glibc robust",
            "sysv-sem",
            two,
        ),
        ours(
            "Latchwork robust, System V; two processors",
            "latchwork robust",
            "sysv-sem",
            two,
        ),
    ];
    let theirs = Theirs {
        at: processes(one, Sched::Other),
        ..Theirs::new(&SYSTEM, figures([8.5, 6.6]))
    };
    Experiment {
        place: "pages 22 (right) and 25",
        order: 23,
        title: "Waiting and waking between processes",
        there: "The same ring with robust mutexes and with System V semaphores: 8.5 µs against 6.6 µs. The talk \
                recommends robust mutexes where contention is rare (page 24).",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec!["robust mutex", "System V semaphore"],
            lines: vec![Line::new("hand-over", Unit::Us, vec![theirs], ours)],
        }],
        differs: &[
            "On one processor, the cost is that of a switch of tasks in both; the disadvantage that the robust mutex \
             had then (a list in user space) is small beside it.",
            "On two processors, waiters for the semaphore always sleep. Those for a robust mutex of ours poll first.",
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
    fn published_figures_are_for_processes_on_one_processor() {
        let at = |name: &str, placement, sched| {
            let mut row = a_row(name, 1.0, None);
            row.params = processes(placement, sched);
            beside(&experiments(), &row)
                .get("published_nptl_us")
                .copied()
        };
        let one = Placement::SameCpu;
        assert_eq!(at("glibc robust", one, Sched::Other), Some(8.5));
        assert_eq!(at("sysv-sem", one, Sched::Other), Some(6.6));
        assert_eq!(at("sysv-sem", one, Sched::Fifo), None);
        assert_eq!(at("sysv-sem", Placement::DifferentCpu, Sched::Other), None);
    }
}
