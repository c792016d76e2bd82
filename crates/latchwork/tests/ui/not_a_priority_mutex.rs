// error[E0277]: `PriorityMutex<'_, u64>` cannot be placed in a region

use latchwork::region::RegionOptions;
use latchwork::semaphore::PriorityMutex;

fn place(mutex: PriorityMutex<'static, u64>) {
    let region = RegionOptions::new().create_anonymous().unwrap();
    let _ = region.object("handle", || mutex);
}

fn main() {}
