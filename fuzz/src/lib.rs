//! What the fuzz targets have in common.

pub mod c;
pub mod contents;
pub mod image;
pub mod operations;
pub mod scene;

use std::sync::atomic::{AtomicU64, Ordering};

/// How often something happened, for the line that a target prints now and then: it shows how deep the inputs come.
pub struct Tally<const N: usize> {
    names: [&'static str; N],
    counts: [AtomicU64; N],
    runs: AtomicU64,
}

/// So many runs are between two lines.
const LINE_EVERY: u64 = 1 << 14;

impl<const N: usize> Tally<N> {
    /// Counts of what these words say.
    pub const fn new(names: [&'static str; N]) -> Self {
        Self {
            names,
            counts: [const { AtomicU64::new(0) }; N],
            runs: AtomicU64::new(0),
        }
    }

    /// It happened.
    pub fn count(&self, name: &str) {
        let index = self.names.iter().position(|known| *known == name);
        self.counts[index.expect("a word of this tally")].fetch_add(1, Ordering::Relaxed);
    }

    /// A run is over.
    pub fn end_run(&self) {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if runs.is_multiple_of(LINE_EVERY) {
            let count = |(name, count): (&&str, &AtomicU64)| {
                format!("{name} {}", count.load(Ordering::Relaxed))
            };
            let counts: Vec<_> = self.names.iter().zip(&self.counts).map(count).collect();
            eprintln!("{runs} runs: {}", counts.join(", "));
        }
    }
}
