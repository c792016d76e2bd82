//! Long's figures.

use crate::published::{Experiment, Host, Line, Ours, Published, Table, Theirs, row};
use crate::result::{Params, Unit};
use crate::scenarios::contention::USUAL_LOAD;

/// Million operations in 10 s.
const GLIBC: f64 = 14.86;
const WAIT_WAKE: f64 = 30.99;
const TP: f64 = 49.79;

static X86: Host = Host {
    key: "long",
    short: "x86",
    name: "Long's x86 system, 36 threads, load not stated",
};

pub(super) fn experiments() -> Vec<Experiment> {
    let ours = |(label, tasks)| {
        let of = |contestant| {
            let params = Params {
                tasks: Some(tasks),
                load: Some(USUAL_LOAD),
                read_pct: Some(50),
                ..Params::default()
            };
            row(contestant, params)
        };
        Ours {
            label,
            cells: vec![
                of("glibc rwlock"),
                None,
                None,
                of("latchwork rwlock"),
                of("latchwork rwlock-readers-first"),
            ],
        }
    };
    let times = |operations: f64| Some(Published::Times(operations / GLIBC, operations / GLIBC));
    let published = vec![times(GLIBC), times(WAIT_WAKE), times(TP), None, None];
    let line = Line::new(
        "operations of all tasks",
        Unit::OpsPerSecond,
        vec![Theirs::new(&X86, published)],
        [("36 tasks", 36), ("2 tasks", 2)].map(ours).into(),
    );
    vec![Experiment {
        place: "`perf bench futex rwlock`, in the same patch set",
        order: 2,
        title: "Reader/writer locks",
        there: "36 tasks lock one reader/writer lock, at random to read or to write, half of the times each. In 10 s there \
                were 14.86 million operations with glibc's lock, 30.99 with one of wait-wake futexes, and 49.79 with \
                one of TP futexes.",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec![
                "glibc",
                "wait-wake futexes",
                "TP futexes",
                "Latchwork, writers first",
                "Latchwork, readers first",
            ],
            lines: vec![line],
        }],
        differs: &[
            "Long does not state the load, and the proportions of the locks depend on it. Here it is 10 pauses, with 10 \
             between two sections.",
            "Latchwork's reader/writer locks are made of neither kind of futex: both wait in the same way, and differ in \
             whether readers or writers go first.",
            "Where the machine has fewer processors than tasks, most tasks wait for a processor.",
        ],
    }]
}
