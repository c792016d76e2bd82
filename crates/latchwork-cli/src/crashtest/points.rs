//! The points of an operation, and which of them are tried.

use super::walk::{Operation, Point};
use fastrand::Rng;
use std::collections::BTreeSet;

/// All points of an operation, in the order in which it comes to them. Their numbers, from 1 on, are those of reports.
pub(super) fn all(operation: &Operation) -> Vec<Point> {
    let mut points = Vec::with_capacity(operation.places.len() + 1);
    for (index, place) in operation.places.iter().enumerate() {
        points.push(Point::Before(*place));
        if operation.sleeps.contains(&index) {
            points.push(Point::Asleep(*place));
        }
    }
    points.push(Point::AtEnd);
    points
}

/// Which points are tried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    /// Every so many, beginning with the first.
    Every(usize),
    /// So many, at random.
    Random(usize),
    /// Those of these numbers.
    These(&'a [usize]),
}

/// The chosen points, by their index. Except for [`Choice::These`], all points before, in and after system calls are
/// among them, and the first and the last.
pub(super) fn choose(
    points: &[Point],
    operation: &Operation,
    choice: Choice<'_>,
    random: &mut Rng,
) -> Vec<usize> {
    let mut chosen: BTreeSet<usize> = match choice {
        Choice::These(numbers) => return numbers.iter().map(|number| number - 1).collect(),
        Choice::Every(stride) => (0..points.len()).step_by(stride).collect(),
        Choice::Random(count) => {
            let mut all: Vec<usize> = (0..points.len()).collect();
            random.shuffle(&mut all);
            all.into_iter().take(count).collect()
        }
    };
    let is_call = |at: u64| operation.calls.binary_search(&(at as usize)).is_ok();
    let beside_call = points.iter().enumerate().filter(|(_, point)| match point {
        Point::Before(place) => place.at == 0 || is_call(place.at) || is_call(place.at - 1),
        Point::Asleep(_) | Point::AtEnd => true,
    });
    chosen.extend(beside_call.map(|(index, _)| index));
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Maps;
    use latchwork_step::Recording;

    fn operation(instructions: u64, calls: &[usize], sleeps: &[usize]) -> Operation {
        let mut recording = Recording::new(u32::MAX);
        (0..instructions).for_each(|at| recording.add(at));
        Operation {
            places: recording.places,
            calls: calls.to_vec(),
            sleeps: sleeps.to_vec(),
            maps: Maps::parse(""),
            threads: 1,
            is_counted: false,
            is_of_first: true,
        }
    }

    #[test]
    fn a_point_precedes_each_instruction_and_the_end_and_another_is_in_each_sleep() {
        let points = all(&operation(3, &[1], &[1]));
        let kinds: Vec<_> = points
            .iter()
            .map(|point| match point {
                Point::Before(place) => ('b', place.at),
                Point::Asleep(place) => ('s', place.at),
                Point::AtEnd => ('e', 0),
            })
            .collect();
        assert_eq!(kinds, [('b', 0), ('b', 1), ('s', 1), ('b', 2), ('e', 0)]);
    }

    #[test]
    fn the_edges_of_system_calls_are_always_chosen() {
        let operation = operation(100, &[40, 41], &[]);
        let points = all(&operation);
        let every = choose(
            &points,
            &operation,
            Choice::Every(30),
            &mut Rng::with_seed(1),
        );
        assert_eq!(every, [0, 30, 40, 41, 42, 60, 90, 100]);
        let chosen = |seed| {
            choose(
                &points,
                &operation,
                Choice::Random(10),
                &mut Rng::with_seed(seed),
            )
        };
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
        assert!((10..=15).contains(&chosen(7).len()), "{:?}", chosen(7));
        let these = choose(
            &points,
            &operation,
            Choice::These(&[3, 1]),
            &mut Rng::with_seed(1),
        );
        assert_eq!(these, [2, 0]);
        let all = choose(
            &points,
            &operation,
            Choice::Every(1),
            &mut Rng::with_seed(1),
        );
        assert_eq!(all.len(), 101);
    }
}
