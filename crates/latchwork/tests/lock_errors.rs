//! What lock calls report goes up through `?`, and lets go of the lock on its way.

use latchwork::mutex::{
    InRegion, Inherit, LockError, LockFailure, Mutex, Protect, Robust, Throughput,
};
use latchwork::region::RegionOptions;
use latchwork::rwlock::{self, RobustRwLock};
use latchwork::sharing::Shared;
use latchwork_testkit::in_dying_thread;
use std::error::Error;
use std::pin::{Pin, pin};
use std::thread;

fn boxed<T: Copy>(lock: Pin<&Mutex<T, Robust>>) -> Result<T, Box<dyn Error>> {
    Ok(*lock.lock()?)
}

fn boxed_to_send(lock: Pin<&Mutex<u32, Robust>>) -> Result<u32, Box<dyn Error + Send + Sync>> {
    Ok(*lock.try_lock()?)
}

fn typed(lock: Pin<&Mutex<u32, Robust>>) -> Result<u32, LockFailure> {
    Ok(*lock.try_lock()?)
}

fn other_protocols(
    inherits: Pin<&Mutex<u32, Robust<Inherit<Shared>>>>,
    protects: Pin<&Mutex<u32, Robust<Protect<Shared>>>>,
    throughput: Pin<&Mutex<u32, Robust<Throughput<Shared>>>>,
    plain: &Mutex<u32, Inherit>,
    in_region: &Mutex<u32, InRegion>,
) -> Result<u32, Box<dyn Error>> {
    let robust = *inherits.lock()? + *protects.lock()? + *throughput.lock()?;
    Ok(robust + *plain.lock()? + *in_region.lock()?)
}

fn read(lock: Pin<&RobustRwLock<u32>>) -> Result<u32, Box<dyn Error>> {
    Ok(*lock.read()?)
}

fn write(lock: Pin<&RobustRwLock<u32>>) -> Result<(), LockFailure> {
    *lock.try_write()? += 1;
    Ok(())
}

#[test]
fn a_held_or_consistent_lock_is_reported_through_a_question_mark() {
    let lock = pin!(Mutex::robust(7));
    let lock = lock.as_ref();
    assert_eq!(boxed(lock).unwrap(), 7);
    let guard = lock.lock().unwrap();
    assert_eq!(typed(lock), Err(LockFailure::Deadlock));
    thread::scope(|scope| {
        let other = scope.spawn(|| (typed(lock), boxed_to_send(lock).unwrap_err().to_string()));
        let (failure, text) = other.join().unwrap();
        assert_eq!(failure, Err(LockFailure::WouldBlock));
        assert_eq!(text, "the lock is held by another task");
    });
    drop(guard);
    assert_eq!(typed(lock), Ok(7));
}

#[test]
fn a_dead_owners_lock_is_passed_on_by_a_question_mark() {
    let lock = pin!(Mutex::robust(7));
    let lock = lock.as_ref();
    in_dying_thread(|| core::mem::forget(lock.lock().unwrap()));
    for _ in 0..3 {
        let error = boxed(lock).unwrap_err();
        assert!(error.to_string().contains("died"), "{error}");
        assert_eq!(
            error.downcast_ref::<LockFailure>(),
            Some(&LockFailure::OwnerDied)
        );
    }
    let Err(LockError::OwnerDied(died)) = lock.lock() else {
        panic!("it was repaired, or is not recoverable");
    };
    drop(died.make_consistent());
    assert_eq!(boxed(lock).unwrap(), 7);
    // Dropped, it is given up, as ever.
    in_dying_thread(|| core::mem::forget(lock.lock().unwrap()));
    assert!(matches!(lock.lock(), Err(LockError::OwnerDied(_))));
    assert_eq!(typed(lock), Err(LockFailure::NotRecoverable));
}

#[test]
fn a_dead_writers_lock_is_passed_on_by_a_question_mark() {
    let lock = pin!(RobustRwLock::<u32>::new(7));
    let lock = lock.as_ref();
    write(lock).unwrap();
    assert_eq!(read(lock).unwrap(), 8);
    in_dying_thread(|| core::mem::forget(lock.write().unwrap()));
    for _ in 0..3 {
        assert!(read(lock).is_err());
        assert_eq!(write(lock), Err(LockFailure::OwnerDied));
    }
    let Err(rwlock::LockError::OwnerDied(died)) = lock.read() else {
        panic!("it was repaired, or is not recoverable");
    };
    drop(died.make_consistent());
    assert_eq!(read(lock).unwrap(), 8);
}

#[test]
fn errors_of_all_protocols_propagate() {
    let inherits = pin!(Mutex::robust_inherit(1));
    let protects = pin!(Mutex::robust_protect(1, 2));
    let throughput = pin!(Mutex::robust_throughput(3));
    let plain = Mutex::inherit(4);
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous();
    let region = region.unwrap();
    let in_region = region.object("lock", || Mutex::in_region(5)).unwrap();
    let sum = other_protocols(
        inherits.as_ref(),
        protects.as_ref(),
        throughput.as_ref(),
        &plain,
        in_region.get_ref(),
    );
    // Without real-time scheduling the ceiling may be refused, which is an error like others.
    match sum {
        Ok(sum) => assert_eq!(sum, 15),
        Err(error) => println!("refused: {error}"),
    }
}
