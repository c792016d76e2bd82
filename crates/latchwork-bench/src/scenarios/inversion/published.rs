//! The figures that the talk published.

use crate::published::{Experiment, Host, Line, Ours, Select, Table, Theirs, figures, row};
use crate::result::{Params, Unit, Variant};

static SYSTEM: Host = Host {
    key: "nptl",
    short: "the talk",
    name: "the talk's system, not named",
};

/// A lock without a protocol, alone and disturbed; then one with a protocol, disturbed.
fn cells(without: &'static str, with: &'static str) -> Vec<Option<Select>> {
    let cell = |contestant, case| {
        let params = Params {
            case: Some(case),
            ..Params::default()
        };
        row(contestant, params)
    };
    vec![
        cell(without, Variant::Undisturbed),
        cell(without, Variant::Disturbed),
        cell(with, Variant::Disturbed),
    ]
}

pub(super) fn experiments() -> Vec<Experiment> {
    let glibc = "glibc normal";
    let wait_wake = "latchwork wait-wake";
    let ours = [
        ("glibc: normal, PI", glibc, "glibc PI"),
        (
            "Latchwork: wait-wake, inherit",
            wait_wake,
            "latchwork inherit",
        ),
        ("glibc: normal, PP", glibc, "glibc PP"),
        (
            "Latchwork: wait-wake, protect",
            wait_wake,
            "latchwork protect",
        ),
        (
            "semaphores: wait-wake, inheritance",
            wait_wake,
            "latchwork semaphore-inherit-mirrored",
        ),
        (
            "semaphores: wait-wake, ceiling",
            wait_wake,
            "latchwork semaphore-ceiling-mirrored",
        ),
        (
            "semaphores: wait-wake, MrsP",
            wait_wake,
            "latchwork semaphore-mrsp-mirrored",
        ),
    ];
    let ours = ours.map(|(label, without, with)| Ours {
        label,
        cells: cells(without, with),
    });
    let theirs = vec![Theirs::new(
        &SYSTEM,
        figures([16_000.0, 805_000.0, 23_000.0]),
    )];
    vec![Experiment {
        place: "pages 9 and 10",
        order: 9,
        title: "Priority inversion",
        there: "A real system gets data at intervals, of which the talk shows three histograms: with an equivalent load \
                that does not compete (at most 16 ms), with a disturbing load and no priority inheritance (805 ms, more \
                than 50 times as much), and with the load and inheritance (23 ms, \"no significant deterioration\").",
        tables: vec![Table {
            title: "",
            head: "figure",
            columns: vec![
                "no disturbance",
                "disturbed, no protocol",
                "disturbed, with the protocol",
            ],
            lines: vec![Line::new("longest interval", Unit::Us, theirs, ours.into())],
        }],
        differs: &[
            "The talk's system and its load are not described. Here three tasks of different real-time priorities \
             share one processor: the high one takes the lock every 5 ms, the low one computes for 1 ms while it holds \
             it, and the medium one computes for 62 ms of about 92.",
            "So the longest interval without a protocol is bounded by one burst of the medium task: about 62 ms \
             more than the period. In the talk it has no visible bound.",
            "The first column of the talk is a load that does not compete; here it is no load.",
            "The histograms below follow those of the talk: the first two panels show glibc's mutex without a protocol, \
             alone and disturbed, and the third the best protocol of this library with the disturbance.",
            "The talk measures inheritance only. Priority ceilings (PP) and MrsP are shown beside it.",
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
        let at = |name: &str, case| {
            let mut row = a_row(name, 1.0, None);
            row.params.case = Some(case);
            beside(&experiments(), &row)
                .get("published_nptl_us")
                .copied()
        };
        assert_eq!(at("glibc normal", Variant::Undisturbed), Some(16_000.0));
        assert_eq!(at("glibc normal", Variant::Disturbed), Some(805_000.0));
        assert_eq!(at("glibc PI", Variant::Disturbed), Some(23_000.0));
        assert_eq!(at("glibc PI", Variant::Undisturbed), None);
    }
}
