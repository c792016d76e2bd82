//! Axes of plots: where a figure lies, in per cent of the plot, and which numbers stand on the axis.
//!
//! Plots have no fixed size: places are per cent, and texts are HTML beside them, so that they stay readable on a
//! narrow screen.

use crate::table::short;

/// More than this between the largest and the smallest figure needs a logarithmic axis.
const FAR_APART: f64 = 20.0;

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    pub(super) is_logarithmic: bool,
}

impl Axis {
    /// An axis from zero, or a logarithmic one where figures lie far apart. Figures below 0 (net times) are cut off.
    pub(super) fn from_zero(figures: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = ends(figures);
        match most > least * FAR_APART && least > 0.0 {
            true => Self::logarithmic(least, most),
            false => Self {
                from: 0.0,
                to: if most > 0.0 { most * 1.05 } else { 1.0 },
                is_logarithmic: false,
            },
        }
    }

    /// A logarithmic axis, with a little room at both ends.
    pub(super) fn logarithmic(least: f64, most: f64) -> Self {
        let least = if least > 0.0 { least } else { 1e-9 };
        Self {
            from: least / 1.3,
            to: most.max(least) * 1.15,
            is_logarithmic: true,
        }
    }

    /// An axis for a parameter, such as a number of tasks.
    pub(super) fn of_parameter(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = ends(values);
        match most > least * 6.0 && least > 0.0 {
            true => Self {
                from: least,
                to: most,
                is_logarithmic: true,
            },
            false => Self {
                from: least,
                to: if most > least { most } else { least + 1.0 },
                is_logarithmic: false,
            },
        }
    }

    /// The place of a figure, in per cent from the beginning of the axis.
    pub(super) fn place(&self, figure: f64) -> f64 {
        let share = match self.is_logarithmic {
            true if figure <= 0.0 => 0.0,
            true => (figure / self.from).ln() / (self.to / self.from).ln(),
            false => (figure - self.from) / (self.to - self.from),
        };
        match share.is_nan() {
            true => 0.0,
            false => share.clamp(0.0, 1.0) * 100.0,
        }
    }

    /// About so many numbers for the axis, or fewer.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        if !self.is_logarithmic {
            return self.steps(most);
        }
        let of = |steps: &[f64]| -> Vec<f64> {
            let first = self.from.log10().floor() as i32;
            let last = self.to.log10().ceil() as i32;
            let all = (first..=last)
                .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
            all.filter(|tick| (self.from..=self.to).contains(tick))
                .collect()
        };
        let mut ticks = of(&[1.0, 2.0, 5.0]);
        if ticks.len() > most {
            ticks = of(&[1.0]);
        }
        let step = ticks.len().div_ceil(most.max(1)).max(1);
        ticks.into_iter().step_by(step).collect()
    }

    fn steps(&self, most: usize) -> Vec<f64> {
        let rough = (self.to - self.from) / most.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = step
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }
}

/// The smallest figure above zero, and the largest.
fn ends(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let sound = figures.filter(|figure| figure.is_finite());
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for figure in sound {
        if figure > 0.0 {
            least = least.min(figure);
        }
        most = most.max(figure);
    }
    (if least.is_finite() { least } else { 0.0 }, most)
}

/// A number on an axis or in a table, in few characters: 1,234,567 is 1.23 M.
pub(super) fn brief(value: f64) -> String {
    let trimmed = |value: f64, unit: &str| {
        let text = short(value);
        let text = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        format!("{text}{unit}")
    };
    match value.abs() {
        size if size >= 999_500_000.0 => trimmed(value / 1e9, " G"),
        size if size >= 999_500.0 => trimmed(value / 1e6, " M"),
        size if size >= 9_995.0 => trimmed(value / 1e3, " k"),
        size if size > 0.0 && size < 0.01 => format!("{value:.4}"),
        _ => trimmed((value * 1e6).round() / 1e6, ""),
    }
}

/// A duration in nanoseconds, in few characters.
pub(super) fn duration(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        long if long >= 999.5e6 => (long / 1e9, "s"),
        long if long >= 999.5e3 => (long / 1e6, "ms"),
        long if long >= 999.5 => (long / 1e3, "µs"),
        short => (short, "ns"),
    };
    format!("{} {unit}", brief(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_lie_on_their_axis() {
        let axis = Axis::from_zero([1.0, 10.0].into_iter());
        assert!(!axis.is_logarithmic);
        assert_eq!(axis.place(0.0), 0.0);
        assert!((axis.place(10.5) - 100.0).abs() < 1e-9);
        assert_eq!(axis.place(1e9), 100.0);
        let axis = Axis::from_zero([1.0, 1000.0].into_iter());
        assert!(axis.is_logarithmic && axis.place(0.0) == 0.0);
        assert!(axis.place(1.0) > 0.0 && axis.place(1000.0) < 100.0);
        for empty in [vec![], vec![0.0], vec![-1.0], vec![f64::NAN]] {
            let axis = Axis::from_zero(empty.into_iter());
            assert_eq!(axis.place(0.0), 0.0);
            assert!(!axis.ticks(5).is_empty());
        }
        let one = Axis::of_parameter([4.0].into_iter());
        assert_eq!(one.place(4.0), 0.0);
    }

    #[test]
    fn an_axis_has_few_round_numbers() {
        assert_eq!(
            Axis::from_zero([100.0].into_iter()).ticks(6),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        );
        let wide = Axis::logarithmic(1.0, 1e9).ticks(6);
        assert!(wide.len() <= 6 && wide.len() > 3, "{wide:?}");
        assert_eq!(Axis::logarithmic(2.0, 9.0).ticks(6), [2.0, 5.0, 10.0]);
    }

    #[test]
    fn numbers_are_brief() {
        for (value, said) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (1234.0, "1234"),
            (12_340.0, "12.3 k"),
            (999_600.0, "1 M"),
            (2_760_000.0, "2.76 M"),
            (0.001, "0.0010"),
        ] {
            assert_eq!(brief(value), said);
        }
        assert_eq!(duration(1_500.0), "1.5 µs");
        assert_eq!(duration(805e6), "805 ms");
    }
}
