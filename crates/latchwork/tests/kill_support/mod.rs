//! The frame of kill tests of small objects in a region.
#![allow(dead_code, reason = "each program uses its part")]
#![allow(unsafe_code)]

use core::pin::Pin;
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork_testkit::{Child, Exit, Trial};

/// Room for objects and 64 tasks.
pub fn region(label: &str) -> Region {
    options(label).create_anonymous().unwrap()
}

/// As [`region`], for the tasks of this trial.
pub fn region_for(trial: &Trial, label: &str) -> Region {
    let options = options(label).any_pid_namespace(trial.is_across_namespaces());
    options.create_anonymous().unwrap()
}

/// A trial and a region for objects of type `T`: across PID namespaces, unless such an object names its owner by a thread ID.
pub fn begin_with<T: Shareable>(name: &'static str, label: &str) -> (Trial, Region) {
    let mut trial = Trial::begin(name);
    if !T::NAMES_THREADS {
        trial = trial.across_namespaces();
    }
    let region = region_for(&trial, label);
    (trial, region)
}

/// A new object, in place of the one that the last call made.
pub fn fresh<T: Shareable>(region: &Region, new: impl FnOnce() -> T) -> Pin<&T> {
    const NAME: &str = "fresh";
    if region.find::<T>(NAME).is_ok() {
        // SAFETY: its tasks were killed.
        unsafe { region.remove::<T>(NAME).unwrap() };
    }
    region.object(NAME, new).unwrap()
}

fn options(label: &str) -> RegionOptions {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label(label)
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
