//! Regions: objects, attachment, and what happens to bad ones.

use core::pin::Pin;
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::RegionOptions;

static LOCK: Mutex<u32, Robust> = Mutex::robust(0);

#[test]
fn robust_static_works() {
    *Pin::static_ref(&LOCK).lock().unwrap() += 1;
    let lock = Pin::static_ref(&LOCK);
    let _guard = lock.lock().unwrap();
    assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
}

#[test]
fn an_object_is_made_once_and_found_again() {
    let region = RegionOptions::new().max_bytes(8 << 20).create_anonymous().unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    *hits.lock().unwrap() += 1;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let region = region.clone();
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    *region.find::<Mutex<u64, Robust>>("hits").unwrap().lock().unwrap() += 1;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*hits.lock().unwrap(), 4001);
    region.check_heap().unwrap();
}
