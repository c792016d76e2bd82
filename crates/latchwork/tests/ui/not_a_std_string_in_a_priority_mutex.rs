// error[E0277]: `std::string::String` cannot be placed in a region

use latchwork::region::RegionOptions;
use latchwork::semaphore::{PriorityMutex, PriorityMutexOptions};

fn main() {
    let region = RegionOptions::new().create_anonymous().unwrap();
    let options = PriorityMutexOptions::new();
    let _ = PriorityMutex::create(&region, "m", &options, String::new);
}
