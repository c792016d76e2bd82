//! Published figures: operations per second of all tasks.

use crate::result::Variant::{
    self, ContestedMutex, EventSelf, MessageManyToOne, MessageSelf, PrivateMutex,
};

/// Case, contestant, publisher, and figures by the number of tasks.
type Published = (Variant, &'static str, &'static str, &'static [(u32, f64)]);

/// RTEMS on a Freescale T4240 of 24 CPUs, in March 2015, when fine-grained locking was introduced, and in October 2017;
/// and on a NGMP of 4 CPUs at 50 MHz, before and after, with one of them.
const ALL: &[Published] = &[
    (EventSelf, "giant-lock event", T2015, &[(1, 1_367_189.0)]),
    (
        EventSelf,
        "latchwork event",
        T2015,
        &[(1, 2_439_242.0), (24, 67.1e6)],
    ),
    (
        EventSelf,
        "latchwork event",
        T2017,
        &[(1, 4.68e6), (4, 18.2e6), (24, 107.2e6)],
    ),
    (EventSelf, "giant-lock event", NGMP, &[(1, 44_262.0)]),
    (EventSelf, "latchwork event", NGMP, &[(1, 82_150.0)]),
    (
        ContestedMutex,
        INHERIT,
        T2015,
        &[(1, 1.26e6), (24, 0.126e6)],
    ),
    (
        ContestedMutex,
        INHERIT,
        T2017,
        &[(1, 4.93e6), (4, 0.260e6), (24, 0.058e6)],
    ),
    (PrivateMutex, INHERIT, T2015, &[(1, 1.25e6), (24, 1.43e6)]),
    (
        PrivateMutex,
        INHERIT,
        T2017,
        &[(1, 5.0e6), (4, 18.1e6), (24, 97.7e6)],
    ),
    (
        PrivateMutex,
        "giant-lock semaphore-inherit",
        NGMP,
        &[(1, 42_520.0)],
    ),
    (PrivateMutex, INHERIT, NGMP, &[(1, 67_998.0)]),
    (
        PrivateMutex,
        "latchwork semaphore-ceiling",
        T2017,
        &[(1, 0.78e6), (4, 2.03e6), (24, 0.6e6)],
    ),
    (
        PrivateMutex,
        "latchwork semaphore-mrsp",
        T2017,
        &[(1, 0.78e6), (4, 2.03e6), (24, 0.6e6)],
    ),
    (
        PrivateMutex,
        "latchwork wait-wake",
        T2017,
        &[(1, 7.75e6), (4, 28.9e6), (24, 165.0e6)],
    ),
    (
        PrivateMutex,
        "latchwork spinlock",
        T2017,
        &[(1, 14.7e6), (4, 55.7e6), (24, 322.0e6)],
    ),
    (
        PrivateMutex,
        "glibc PI",
        T2017,
        &[(1, 5.69e6), (4, 21.8e6), (24, 129.0e6)],
    ),
    (
        MessageSelf,
        "latchwork queue",
        T2015,
        &[(1, 1.01e6), (24, 1.08e6)],
    ),
    (
        MessageSelf,
        "latchwork queue",
        T2017,
        &[(1, 3.48e6), (4, 12.3e6), (24, 70.0e6)],
    ),
    (MessageSelf, "giant-lock queue", NGMP, &[(1, 32_591.0)]),
    (MessageSelf, "latchwork queue", NGMP, &[(1, 58_596.0)]),
    (
        MessageManyToOne,
        "latchwork queue",
        T2015,
        &[(1, 1.0e6), (24, 2.52e6)],
    ),
    (
        MessageManyToOne,
        "latchwork queue",
        T2017,
        &[(1, 3.51e6), (4, 8.76e6), (24, 3.55e6)],
    ),
];

const T2015: &str = "published_t4240-2015_ops/s";
const T2017: &str = "published_t4240-2017_ops/s";
const NGMP: &str = "published_ngmp_ops/s";
/// The factor by which 24 tasks that contended for one mutex did less than one task, in 2017.
const FALL: (&str, f64) = ("published_t4240-2017_fall_to_24", 4.93 / 0.058);
/// The counterpart of their classic semaphore.
const INHERIT: &str = "latchwork semaphore-inherit";

/// The published figures for a row.
pub(super) fn figures(case: Variant, contestant: &str, tasks: u32) -> Vec<(&'static str, f64)> {
    let rows = ALL
        .iter()
        .filter(|row| (row.0, row.1) == (case, contestant));
    let at = |row: &Published| {
        let figure = row.3.iter().find(|(published, _)| *published == tasks);
        figure.map(|(_, figure)| (row.2, *figure))
    };
    let fell = (case, contestant) == (ContestedMutex, INHERIT) && tasks > 1;
    rows.filter_map(at).chain(fell.then_some(FALL)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_shown_with_the_measured_ones() {
        let one = figures(EventSelf, "latchwork event", 1);
        assert_eq!(
            one,
            [(T2015, 2_439_242.0), (T2017, 4.68e6), (NGMP, 82_150.0)]
        );
        let many = figures(ContestedMutex, INHERIT, 24);
        assert_eq!(many, [(T2015, 0.126e6), (T2017, 0.058e6), FALL]);
        assert_eq!(figures(ContestedMutex, INHERIT, 2), [FALL]);
        assert!((84.5..85.5).contains(&FALL.1));
        // In RTEMS's benchmark the many tasks send to themselves.
        assert!(figures(Variant::EventManyToOne, "latchwork event", 24).is_empty());
    }
}
