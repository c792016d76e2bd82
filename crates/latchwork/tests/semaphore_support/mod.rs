//! What the tests of semaphores share.
#![allow(dead_code, reason = "each test program uses a part")]

use latchwork::region::{Region, RegionOptions, TaskId};
use latchwork::semaphore::Priority;
use latchwork::semaphore::TaskPriority as _;
use latchwork_testkit::Watchdog;

pub(crate) fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(64)
        .label("semaphores")
        .create_anonymous()
        .unwrap()
}

/// Yields until `condition` holds; the watchdog ends a test in which it never does.
pub(crate) fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

pub(crate) fn watched(name: &str) -> Watchdog {
    Watchdog::start(name.to_string())
}

pub(crate) fn priority(priority: u8) -> Priority {
    Priority::new(priority).unwrap()
}

/// The calling thread's task, with this priority.
pub(crate) fn me_at(region: &Region, of: u8) -> TaskId {
    let me = region.task_id().unwrap();
    me.set_priority(region, priority(of)).unwrap();
    me
}

pub(crate) fn current(region: &Region, task: TaskId) -> u8 {
    task.current_priority(region).unwrap().get()
}
