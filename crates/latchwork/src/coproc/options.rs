//! The options of a runtime.

/// The options of a runtime.
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until a runtime is started with them"]
pub struct Options {
    pub(super) pool: usize,
}

impl Options {
    /// No pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many coprocs to hold ready: processes that exist, have joined the region (each takes a slot of its task
    /// table) and sleep. A spawn whose only attributes are name, orphans and detached takes one of them: with the join
    /// some 30 µs, about what a thread takes. Its process exits 10 ms after its function has ended. More coprocs are
    /// made in the background when half of them are gone; when none is left, spawns are clean ones.
    pub fn pool(mut self, coprocs: usize) -> Self {
        self.pool = coprocs;
        self
    }
}
