// error[E0277]: `latchwork::region::Box<'_, u32>` cannot be placed in a region

use latchwork::region::{Box, Region, RegionOptions, Shareable};

fn main() {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous().unwrap();
    place(&region, || Box::new_in(0u32, &region).unwrap());
}

fn place<T: Shareable>(region: &Region, make: impl FnOnce() -> T) {
    region.object("object", make).unwrap();
}
