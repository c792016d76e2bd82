// error[E0308]: mismatched types

use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::List;
use latchwork::sharing::Shared;
use std::pin::Pin;

fn wait(changed: &Condvar<Shared>, jobs: Pin<&Mutex<List<u64>, Robust>>, mut spare: List<u64>) {
    let guard = jobs.lock().unwrap();
    let swap = |jobs: &List<u64>| {
        core::mem::swap(jobs, &mut spare);
        false
    };
    drop(changed.wait_robust_while(guard, swap));
}

fn main() {}
