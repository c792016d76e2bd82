//! Semaphores: what each kind does, between threads and between processes.

mod ceilings;
mod deaths;
mod priorities;
mod priority_mutex;
mod priority_mutex_deaths;
mod rules;
#[path = "../semaphore_support/mod.rs"]
mod semaphore_support;

use core::time::Duration;
use latchwork::semaphore::BinaryOptions;
use semaphore_support::priority;

const SOON: Duration = Duration::from_millis(5);

fn all_binary() -> [BinaryOptions; 4] {
    [
        BinaryOptions::new(),
        BinaryOptions::new().by_priority(),
        BinaryOptions::new().inherit(),
        BinaryOptions::new().ceiling(priority(10)),
    ]
}
