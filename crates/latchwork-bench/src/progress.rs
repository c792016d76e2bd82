//! A progress bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Counts samples. It has no ticker thread, which would disturb the measurement.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(scenario: &'static str, samples: usize) -> Self {
        // indicatif draws nothing where standard error is not a terminal.
        let bar = ProgressBar::new(samples as u64).with_prefix(scenario);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(crate) fn begin(&self, contestant: &'static str) {
        self.0.set_message(contestant);
    }

    pub(crate) fn end(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
