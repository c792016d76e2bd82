// error[E0599]: the method `make_consistent` exists for struct `latchwork::semaphore::priority_mutex::OwnerDied<'_, Option<char>>`, but its trait bounds were not satisfied

use latchwork::semaphore::priority_mutex::OwnerDied;

fn repair(died: OwnerDied<'_, Option<char>>) {
    let _ = died.make_consistent();
}

fn main() {}
