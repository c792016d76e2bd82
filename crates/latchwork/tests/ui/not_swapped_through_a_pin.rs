// error[E0277]: `PhantomPinned` cannot be unpinned

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::HashMap;
use std::pin::Pin;

fn replace(map: Pin<&Mutex<HashMap<u64, u64>, Robust>>, other: HashMap<u64, u64>) {
    drop(core::mem::replace(map.lock().unwrap().as_mut().get_mut(), other));
}

fn main() {}
