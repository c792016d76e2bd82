//! What the talk says.

use crate::published::{Experiment, Host, Line, Ours, Published, Table, Theirs, rows};
use crate::result::{Kind, Mode, Params, Placement, Unit};

static SYSTEM: Host = Host {
    key: "nptl",
    short: "the talk",
    name: "the talk's system, not named",
};

const SIZES: [u64; 3] = [64, 1024, 65_536];

fn table(title: &'static str, mode: Mode, placement: Placement) -> Table {
    let line = |size: u64| {
        let params = Params {
            kind: Some(Kind::Processes),
            mode: Some(mode),
            placement: Some(placement),
            size: Some(size),
            ..Params::default()
        };
        let glibc = [
            "posix-mq",
            "robust mutex+sem",
            "robust mutex+cond",
            "latchwork queue",
        ];
        let ours = [
            "posix-mq",
            "latchwork robust+completion",
            "latchwork robust+cond",
            "latchwork queue",
        ];
        let ours = [
            ("glibc's robust mutex", glibc),
            ("Latchwork's robust mutex", ours),
        ];
        let words = ["excellent", "good", "fair"];
        let figures = words
            .map(|word| Some(Published::Word(word)))
            .into_iter()
            .chain([None]);
        Line::new(
            size.to_string(),
            Unit::Us,
            vec![Theirs::new(&SYSTEM, figures.collect())],
            ours.map(|(label, names)| Ours {
                label,
                cells: rows(names, &params),
            })
            .into(),
        )
    };
    Table {
        title,
        head: "bytes",
        columns: vec![
            "POSIX message queue",
            "mutex and semaphores (mu/sm)",
            "mutex and condition variables (mu/cv)",
            "`latchwork queue`",
        ],
        lines: SIZES.map(line).into(),
    }
}

pub(super) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        place: "pages 26 to 30",
        order: 26,
        title: "Messages between processes",
        there: "Queues in shared memory, made of a robust mutex with a condition variable (mu/cv) or with a semaphore \
                (mu/sm), and the POSIX message queue, by the size of the messages. The graph of page 29 is not in the \
                text; page 30 calls the throughput of the POSIX queue excellent, that of mu/sm good and that of mu/cv \
                fair, and hopes that a queue of robust mutex and futex may reach the POSIX queue.",
        tables: vec![
            table(
                "Round trips on one processor, µs",
                Mode::RoundTrip,
                Placement::SameCpu,
            ),
            table(
                "Round trips between two processors, µs",
                Mode::RoundTrip,
                Placement::DifferentCpu,
            ),
            table(
                "A stream between two processors, µs per message",
                Mode::Stream,
                Placement::DifferentCpu,
            ),
        ],
        differs: &[
            "The loops on page 28 are, in the text, those of the mutexes of page 14, so that it does not say whether \
             messages go in one direction or there and back. Both are measured here.",
            "The talk's functions do not wait for room. The queues here hold ten messages at most, and have a second \
             condition variable or semaphore, on which senders wait.",
            "The last column answers the talk's hope: a queue on futexes, robust, with messages of variable size.",
            "Times are shown, of which less is better; the talk shows throughput.",
        ],
    }]
}
