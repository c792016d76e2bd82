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
    let region = RegionOptions::new()
        .max_bytes(8 << 20)
        .create_anonymous()
        .unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    *hits.lock().unwrap() += 1;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let region = region.clone();
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    *region
                        .find::<Mutex<u64, Robust>>("hits")
                        .unwrap()
                        .lock()
                        .unwrap() += 1;
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

/// A container borrows from no handle: it must not be left without its memory.
#[test]
fn a_container_outlives_all_handles() {
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap();
    let mut numbers = latchwork::region::Vec::new_in(&region);
    numbers.push(7u64).unwrap();
    region.detach().unwrap();
    numbers.push(8).unwrap();
    assert_eq!(numbers.as_slice(), [7, 8]);
}

/// Without containers a region goes with its last handle: there is no end to how many.
#[test]
fn regions_come_and_go() {
    for round in 0..200u32 {
        let region = RegionOptions::new()
            .max_bytes(1 << 20)
            .create_anonymous()
            .unwrap();
        assert_eq!(
            *region
                .object("round", || Mutex::robust(round))
                .unwrap()
                .lock()
                .unwrap(),
            round
        );
        region.detach().unwrap();
    }
}

#[test]
fn the_name_goes_with_the_last_use_if_asked() {
    let name = format!("test-last-{}", std::process::id());
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .unlink_at_last_detach(true)
        .create_named(&name)
        .unwrap();
    let again = RegionOptions::new().attach(&name).unwrap();
    let path = region.path().unwrap().to_owned();
    let words = again
        .object("words", || {
            Mutex::robust(latchwork::region::String::new_in(&region))
        })
        .unwrap();
    words.lock().unwrap().push_str("still here").unwrap();
    region.detach().unwrap();
    assert!(path.exists());
    again.detach().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_thread_that_holds_a_lock_cannot_leave() {
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap();
    let other = region.clone();
    let lock = other.object("lock", || Mutex::robust(())).unwrap();
    let held = lock.lock().unwrap();
    let Err(latchwork::region::DetachError::Holding { locks: 1, region }) = region.detach() else {
        panic!("detached")
    };
    drop(held);
    region.detach().unwrap();
}
