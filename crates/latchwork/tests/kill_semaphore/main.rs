//! Semaphores whose users are killed: at random moments, and at each instruction.

#[path = "../semaphore_mrsp/bound.rs"]
mod bound;
mod endings;
mod inherited;
mod mrsp;
mod mrsp_steps;
mod priority_mutex;
mod repairs;
mod sleepers;
mod steps;
mod storms;

use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::{BinaryOptions, Priority};
use latchwork_testkit::{Trial, die};

fn region(trial: &Trial) -> Region {
    RegionOptions::new()
        .max_bytes(8 << 20)
        .max_tasks(64)
        .label("kill_semaphore")
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

fn priority(priority: u8) -> Priority {
    Priority::new(priority).unwrap()
}

fn all_binary() -> [(&'static str, BinaryOptions); 4] {
    [
        ("plain", BinaryOptions::new()),
        ("by priority", BinaryOptions::new().by_priority()),
        ("inheriting", BinaryOptions::new().inherit()),
        ("with a ceiling", BinaryOptions::new().ceiling(priority(1))),
    ]
}
