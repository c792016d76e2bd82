// error[E0596]: cannot borrow data in dereference of `RobustGuard<'_, [latchwork::region::Vec<u64>; 2]>` as mutable

#![allow(unused_mut)]

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::Vec;
use std::pin::Pin;

fn swap(pair: Pin<&Mutex<[Vec<u64>; 2], Robust>>) {
    let mut both = pair.lock().unwrap();
    let [a, b] = &mut *both;
    core::mem::swap(a, b);
}

fn main() {}
