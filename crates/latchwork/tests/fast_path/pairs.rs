//! The code whose assembly `fast_path.rs` checks: a pair of lock and unlock of each kind, compiled into one function.
use core::pin::Pin;
use latchwork::check::Checked;
use latchwork::mutex::{InRegion, Inherit, InheritPlain, Mutex, Robust, Throughput, WaitWake};
use latchwork::rwlock::RwLock;
use latchwork::semaphore::BinarySemaphore;
use latchwork::sharing::Shared;

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

#[unsafe(no_mangle)]
pub fn pair_robust(lock: Pin<&Mutex<u64, Robust>>) {
    if let Ok(mut value) = lock.lock() {
        *value += 1;
    }
}

#[unsafe(no_mangle)]
pub fn pair_in_region(lock: &Mutex<u64, InRegion>) {
    if let Ok(mut value) = lock.lock() {
        *value += 1;
    }
}

#[unsafe(no_mangle)]
pub fn pair_in_region_throughput(lock: &Mutex<u64, InRegion<Throughput<Shared>>>) {
    if let Ok(mut value) = lock.lock() {
        *value += 1;
    }
}

#[unsafe(no_mangle)]
pub fn pair_write(lock: &RwLock<u64>) {
    *lock.write() += 1;
}

#[unsafe(no_mangle)]
pub fn pair_read(lock: &RwLock<u64>) -> u64 {
    *lock.read()
}

#[unsafe(no_mangle)]
pub fn pair_semaphore(semaphore: &BinarySemaphore<'_>) {
    drop(semaphore.obtain());
}

#[unsafe(no_mangle)]
pub fn pair_checked(lock: &Mutex<u64, Checked<WaitWake>>) {
    *lock.lock() += 1;
}
