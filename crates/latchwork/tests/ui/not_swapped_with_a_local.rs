// error[E0596]: cannot borrow data in dereference of `RobustWriteGuard<'_, List<u64>>` as mutable

use latchwork::region::List;
use latchwork::rwlock::RobustRwLock;
use std::pin::Pin;

fn swap(a: Pin<&RobustRwLock<List<u64>>>, local: &mut List<u64>) {
    core::mem::swap(&mut *a.write().unwrap(), local);
}

fn main() {}
