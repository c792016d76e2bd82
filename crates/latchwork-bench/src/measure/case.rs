//! One contestant under one set of parameters, and its samples.

use std::io;

use crate::histogram::Timed;
use crate::result::{Params, Unit};

/// One sample: the figure, and what else was counted.
pub(crate) struct Sample {
    pub(crate) figure: f64,
    /// By name; a figure that is called [`EACH`] occurs once for each task.
    pub(crate) extra: Vec<(&'static str, f64)>,
    /// The durations that it recorded, if it records any; the row has those of all rounds.
    pub(crate) timed: Option<Timed>,
}

impl Sample {
    /// A sample without durations.
    pub(crate) fn new(figure: f64, extra: Vec<(&'static str, f64)>) -> Self {
        Self {
            figure,
            extra,
            timed: None,
        }
    }
}

/// The name of a task's own figure.
pub(crate) const EACH: &str = "each";

impl From<f64> for Sample {
    fn from(figure: f64) -> Self {
        Self::new(figure, Vec::new())
    }
}

/// Takes one sample. Boxed once for each sample, not for each iteration: the loop inside is compiled for its
/// contestant.
pub(crate) type Sampler = Box<dyn FnMut() -> io::Result<Sample>>;

/// A contestant under one set of parameters.
pub(crate) struct Case {
    pub(crate) contestant: &'static str,
    pub(crate) params: Params,
    /// The parameters that a contestant shares with the base of its ratio.
    pub(crate) group: Params,
    pub(crate) is_base: bool,
    pub(crate) unit: Unit,
    /// Further figures for the row, such as published ones.
    pub(crate) further: Vec<(&'static str, f64)>,
    pub(crate) sampler: Sampler,
}
