// error[E0277]: `RecursiveMutex<u32>` cannot be placed in a region

use latchwork::region::{Region, RegionOptions, Shareable};

fn main() {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous().unwrap();
    place(&region, || latchwork::mutex::RecursiveMutex::new(0u32));
}

fn place<T: Shareable>(region: &Region, make: impl FnOnce() -> T) {
    region.object("object", make).unwrap();
}
