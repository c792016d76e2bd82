// error[E0277]: a robust lock is used through a pinned reference: this needs a `Pin<&_>`

use latchwork::rwlock::RobustRwLock;

fn main() {
    let lock = RobustRwLock::<u32>::new(0);
    assert_eq!(*lock.read().unwrap(), 0);
}
