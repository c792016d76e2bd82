// error[E0505]: cannot move out of `guard` because it is borrowed

use latchwork::semaphore::PriorityMutex;

fn keep(mutex: PriorityMutex<'_, u64>) {
    let mut guard = mutex.lock().unwrap();
    let loan = &mut *guard;
    drop(guard);
    *loan = 1;
}

fn main() {}
