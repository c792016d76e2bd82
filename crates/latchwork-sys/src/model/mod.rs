//! The settings of a model: a [`Scene`] defines what the modelled kernel does, and which [`Fault`] is injected. A model
//! with a fault is a *negative twin*, and must fail.
//!
//! Exists under `--cfg loom` only. The functions by which models reach internal parts are in the crates of those parts.

mod fault;
pub mod membership;
pub mod mortal;
mod step;
pub mod task;

pub use fault::Fault;
pub use mortal::{as_task, somebody_died};
pub use step::{die, step};

use crate::time::Deadline;
use std::cell::Cell;

/// Which waiter a wake-up chooses when several wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeOrder {
    /// First come, first woken.
    #[default]
    Oldest,
    /// Last come, first woken.
    Newest,
}

/// When the first waiter of a throughput lock has waited past the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandsOff {
    /// Never. (Real-time tasks have at once, in every scene.)
    #[default]
    Never,
    /// Before its first sleep.
    AtOnce,
    /// After its first sleep.
    AfterSleep,
}

/// The settings of one model: the modelled kernel's choices, and a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scene {
    /// The number of waits, from the first, that return spuriously.
    pub spurious: usize,
    /// The number of waits, from the first, that the kernel refuses, as if the word had changed for a moment.
    pub refused: usize,
    /// Which waiter a wake-up chooses.
    pub wake_order: WakeOrder,
    /// When the first waiter of a throughput lock has waited past the threshold.
    pub hands_off: HandsOff,
    /// Whether sleeps with a time-out at the gate of a throughput lock, and on its word up to the threshold, may end at
    /// any moment, or never do.
    pub naps_end: bool,
    /// Whether waiters of a reader/writer lock may starve at any moment, or never do.
    pub starving: bool,
    /// The injected fault.
    pub fault: Option<Fault>,
}

// Loom runs all threads of a model on the one that calls it; a test is a thread of its own.
std::thread_local! {
    static REQUESTS: Cell<u32> = const { Cell::new(0) };
    static SCENE: Cell<Scene> = const { Cell::new(Scene { spurious: 0, refused: 0, wake_order: WakeOrder::Oldest, hands_off: HandsOff::Never, naps_end: false, starving: false, fault: None }) };
}

/// Counts a request for the hand-off of a throughput lock.
pub fn count_request() {
    REQUESTS.set(REQUESTS.get() + 1);
}

/// How many requests were counted since the last call of [`take_requests`].
pub fn requests() -> u32 {
    REQUESTS.get()
}

/// How many requests were counted since the last call.
pub fn take_requests() -> u32 {
    REQUESTS.replace(0)
}

impl Scene {
    /// Which of these waiters, oldest first, a wake-up for those that `is_meant` selects chooses.
    pub fn next<T>(self, waiters: &[T], is_meant: impl Fn(&T) -> bool) -> Option<usize> {
        match self.wake_order {
            WakeOrder::Oldest => waiters.iter().position(is_meant),
            WakeOrder::Newest => waiters.iter().rposition(is_meant),
        }
    }

    /// Explores `body` in this scene, with at most `preemptions` preemptions in an execution.
    pub fn explore(self, preemptions: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
        SCENE.set(self);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(preemptions);
        builder.max_branches = 10_000;
        builder.check(body);
        SCENE.set(Self::default());
    }

    /// Runs the test `name` of this program again, in a process of its own, where it `explores` the scene. That
    /// process must end with a panic that contains `expected`.
    ///
    /// (In a process of its own since loom aborts after a deadlock: its objects cannot be dropped.)
    ///
    /// # Panics
    /// If the model finds nothing, or something else.
    pub fn must_fail(self, name: &str, expected: &str, explores: impl FnOnce(Self)) {
        const ALONE: &str = "LATCHWORK_TWIN";
        if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
            return explores(self);
        }
        let program = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, name)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("this program can be run");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success(),
            "no check detected {:?}",
            self.fault
        );
        assert!(
            text.contains(expected),
            "{:?} was detected in another way:\n{text}",
            self.fault
        );
    }
}

/// Declares a test that [must fail](Scene::must_fail): its name, the fault, the expected text of the panic, the
/// bound on preemptions, the model.
#[macro_export]
macro_rules! negative_twin {
    ($name:ident, $fault:ident, $expected:expr, $preemptions:expr, $body:expr) => {
        #[test]
        fn $name() {
            let scene = $crate::model::Scene {
                fault: Some($crate::model::Fault::$fault),
                ..Default::default()
            };
            scene.must_fail(stringify!($name), $expected, |scene| {
                scene.explore($preemptions, $body)
            });
        }
    };
}

pub fn scene() -> Scene {
    SCENE.get()
}

pub fn has(fault: Fault) -> bool {
    SCENE.get().fault == Some(fault)
}

/// A deadline; in a model each may pass at any moment.
pub const SOON: Deadline = Deadline::from_nanoseconds(0);
