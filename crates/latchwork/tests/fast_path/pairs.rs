//! What `fast_path.rs` looks at: a pair of lock and unlock of each kind, compiled into one function.
use latchwork::mutex::{Inherit, InheritPlain, Mutex, Throughput};

#[unsafe(no_mangle)]
pub fn pair_wait_wake(lock: &Mutex<u64>) {
    *lock.lock() += 1;
}

#[unsafe(no_mangle)]
pub fn pair_throughput(lock: &Mutex<u64, Throughput>) {
    *lock.lock() += 1;
}

#[unsafe(no_mangle)]
pub fn pair_inherit(lock: &Mutex<u64, Inherit>) {
    if let Ok(mut value) = lock.lock() {
        *value += 1;
    }
}

#[unsafe(no_mangle)]
pub fn pair_inherit_plain(lock: &Mutex<u64, InheritPlain>) {
    if let Ok(mut value) = lock.lock() {
        *value += 1;
    }
}
