// error[E0277]: `std::boxed::Box<u32>` cannot be placed in a region

use latchwork::mutex::Mutex;
use latchwork::region::RegionOptions;

fn main() {
    let region = RegionOptions::new().create_anonymous().unwrap();
    let _ = region.object("option", || Mutex::robust((1u32, Some(Box::new(1u32)))));
}
