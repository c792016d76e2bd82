// error[E0596]: cannot borrow data in dereference of `PriorityGuard<'_, [latchwork::region::Vec<u64>; 2]>` as mutable

#![allow(unused_mut)]

use latchwork::region::Vec;
use latchwork::semaphore::PriorityMutex;

fn swap(pair: PriorityMutex<'_, [Vec<u64>; 2]>) {
    let mut both = pair.lock().unwrap();
    let [a, b] = &mut *both;
    core::mem::swap(a, b);
}

fn main() {}
