// error[E0133]: call to unsafe function `Coprocs::new` is unsafe
//! A copy of this process would have the vector as well.

use latchwork::coproc::Coprocs;
use latchwork::region::{RegionOptions, Vec};
use std::sync::Mutex;

static NUMBERS: Mutex<Option<Vec<u64>>> = Mutex::new(None);

fn main() {
    let region = RegionOptions::new().create_anonymous().unwrap();
    *NUMBERS.lock().unwrap() = Some(Vec::new_in(&region));
    let _ = Coprocs::new(&region);
}
