//! The frame of kill tests of small objects in a region.
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};

/// Room for objects and 64 tasks.
pub fn region(label: &str) -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label(label)
        .create_anonymous()
        .unwrap()
}

/// Waits until these processes sleep.
pub fn asleep(trial: &Trial, children: &[Child]) {
    for child in children {
        trial.wait_until(|| child.is_in_futex());
    }
}

/// A new place in the task table wakes those who sleep, once: lets there be enough of them, by processes
/// that wait and are killed.
pub fn warm_up(trial: &Trial, region: &Region, wait: impl Fn()) {
    let mut waiters: Vec<Child> = (0..4).map(|_| Child::fork(&wait)).collect();
    asleep(trial, &waiters);
    waiters
        .iter_mut()
        .for_each(|waiter| assert_ne!(waiter.kill(), Exit::Code(0)));
    region.sweep().unwrap();
}
