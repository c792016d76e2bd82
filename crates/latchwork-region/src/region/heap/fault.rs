//! Simulated kills, for tests: a thread that has armed one unwinds at a chosen point, and leaves shared memory as a
//! kill there would.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Points left until the kill; negative if none is armed.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
}

struct Killed;

/// A point at which a kill may occur.
pub(super) fn point() {
    LEFT.with(|left| match left.get() {
        ..0 => {}
        0 => {
            left.set(-1);
            resume_unwind(Box::new(Killed));
        }
        n => left.set(n - 1),
    });
}

/// Runs `step` and kills it at its point number `at`. Returns `None` if it was killed, and its result if it has fewer
/// points.
pub(super) fn kill_at<R>(at: u32, step: impl FnOnce() -> R) -> Option<R> {
    LEFT.set(i64::from(at));
    let result = catch_unwind(AssertUnwindSafe(step));
    LEFT.set(-1);
    match result {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}
