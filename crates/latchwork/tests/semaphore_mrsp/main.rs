//! MrsP semaphores: RTEMS's rules, by the recorded priorities; and what the kernel makes of them.

#[path = "../semaphore_support/mod.rs"]
mod semaphore_support;

mod bound;
mod helped;
mod random;
mod rules;

use latchwork::region::Region;
use latchwork::semaphore::MrspSemaphore;
use semaphore_support::priority;

/// With this ceiling on all processors.
fn make<'r>(region: &'r Region, name: &str, ceiling: u8) -> MrspSemaphore<'r> {
    MrspSemaphore::create(region, name, priority(ceiling)).unwrap()
}
