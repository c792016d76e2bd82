//! The states of a robust lock's data, in the second word of its node. `mutex/robust.rs` in `latchwork-sync` explains them.

/// The data is whole.
pub const CONSISTENT: u32 = 0;
/// An owner died, or panicked, and no later owner has repaired the data yet.
pub const INCONSISTENT: u32 = 1;
/// No task gets the data any more.
pub const NOT_RECOVERABLE: u32 = 2;
