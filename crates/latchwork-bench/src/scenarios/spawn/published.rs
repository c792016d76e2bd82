//! What the talk says.

use crate::published::{Experiment, Host, Line, Ours, Published, Select, Table, Theirs, row};
use crate::result::{Params, Unit, Variant};

static LINUX: Host = Host {
    key: "coproc",
    short: "the talk",
    name: "Linux of 2009, no machine named",
};

fn cells(parent_mib: u64) -> Vec<Option<Select>> {
    let of = |contestant, case| {
        let params = Params {
            parent_mib: Some(parent_mib),
            case,
            ..Params::default()
        };
        row(contestant, params)
    };
    vec![
        of("pthread_create", None),
        of("fork", None),
        of("posix_spawn", None),
        of("latchwork coproc-clean", None),
        of("latchwork coproc-snapshot", None),
        of("latchwork coproc-pooled", Some(Variant::PoolLasts)),
    ]
}

pub(super) fn experiments() -> Vec<Experiment> {
    let theirs = || {
        let times = |times| Some(Published::Times(times, times));
        let none = [None; 4];
        let figures = [times(1.0), times(2.0)].into_iter().chain(none).collect();
        vec![Theirs::new(&LINUX, figures)]
    };
    let line = |(index, mib): (usize, u64)| {
        let ours = vec![Ours {
            label: "",
            cells: cells(mib),
        }];
        // The talk names no size.
        let theirs = if index == 0 { theirs() } else { Vec::new() };
        Line::new(mib.to_string(), Unit::Us, theirs, ours)
    };
    let sizes = [10, 1024, 8192].into_iter().enumerate();
    vec![Experiment {
        place: "page 7",
        order: 7,
        title: "The cost of creating a task",
        there: "\"Process creation time is roughly double that of a thread\", but still very small, and most embedded \
                systems create all tasks in advance. The page has no figures, and names no machine.",
        tables: vec![Table {
            title: "",
            head: "parent, MiB",
            columns: vec![
                "thread",
                "process (fork)",
                "posix_spawn",
                "coproc, clean",
                "coproc, snapshot",
                "coproc, from the pool",
            ],
            lines: sizes.map(line).collect(),
        }],
        differs: &[
            "A task is created and waited for until it has ended; the talk speaks of creation.",
            "`fork` copies the page tables of its parent, so that its time grows with the parent: the talk's parents \
             were those of embedded systems. A clean coproc is made by a small process of its own, and does not depend \
             on the parent's size; a snapshot is a copy of the parent, like `fork`.",
            "The last column lasts only as long as the pool of ready coprocs does: `sustained` in the results is the \
             time of a stream that never ends.",
        ],
    }]
}
