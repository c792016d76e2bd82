// error[E0277]: `PhantomPinned` cannot be unpinned

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{String, Vec};
use std::pin::Pin;

fn sort(words: Pin<&Mutex<Vec<String>, Robust>>) {
    words.lock().unwrap().edit().as_mut_slice().sort();
}

fn main() {}
