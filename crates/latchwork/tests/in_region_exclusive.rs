//! What the methods for an exclusive reference to a region lock return of its data.
#![cfg(not(loom))]

use core::mem::forget;
use core::pin::Pin;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionProtocol};
use latchwork::region::{self, Region, RegionOptions};
use latchwork_testkit::{Child, Trial};
use std::sync::mpsc;
use std::thread;

mod region_form_support;
use region_form_support::with_every_form;

type Lock<P> = Mutex<u64, InRegion<P>>;

with_every_form!(
    an_exclusive_reference_needs_no_lock
    torn_data_is_not_lent_where_nobody_knows_of_the_death
);

fn region() -> Region {
    RegionOptions::new()
        .max_tasks(2)
        .create_anonymous()
        .unwrap()
}

const fn new<P: RegionProtocol>(data: u64) -> Lock<P> {
    Mutex::from_raw(InRegion::new(), data)
}

fn leave_dead_owner<P: RegionProtocol>(lock: &Lock<P>) {
    Child::fork(|| forget(lock.lock().unwrap())).succeed();
}

fn an_exclusive_reference_needs_no_lock<P: RegionProtocol>() {
    let _trial = Trial::begin("an_exclusive_reference_needs_no_lock");
    let region = region();
    let boxed = region::Box::new_in(new::<P>(1), &region);
    let mut boxed = boxed.unwrap();
    assert_eq!(boxed.get_mut(), Some(&mut 1));
    leave_dead_owner(&boxed);
    assert_eq!(boxed.get_mut(), None);
    Pin::new(&mut *boxed).reset(4);
    assert_eq!(boxed.get_mut(), Some(&mut 4));
    leave_dead_owner(&boxed);
    drop(boxed.lock().unwrap_err());
    assert_eq!(boxed.get_mut(), None);
    Pin::new(&mut *boxed).reset(5);
    assert_eq!(*boxed.lock().unwrap(), 5);
    forget(boxed.lock().unwrap());
    assert_eq!(boxed.get_mut(), None);
    Pin::new(&mut *boxed).reset(6);
    assert_eq!(*boxed.lock().unwrap(), 6);
}

/// Only the owner's own region, asked by one of its tasks, knows whether an owner is dead.
fn torn_data_is_not_lent_where_nobody_knows_of_the_death<P: RegionProtocol>() {
    let _trial = Trial::begin("torn_data_is_not_lent_where_nobody_knows_of_the_death");
    let [region, other] = [region(), region()];
    let torn = |region| {
        let boxed = region::Box::new_in(new::<P>(1), region).unwrap();
        leave_dead_owner(&boxed);
        boxed
    };
    // Outside all regions.
    let mut moved = torn(&region).into_inner();
    assert_eq!(moved.get_mut(), None);
    Pin::new(&mut moved).reset(2);
    assert_eq!(moved.get_mut(), Some(&mut 2));

    let mut moved = region::Box::new_in(torn(&region).into_inner(), &other).unwrap();
    let mut boxed = torn(&region);
    region.sweep().unwrap();
    thread::scope(|scope| {
        let (joined, wait_joined) = mpsc::channel();
        let (end, wait_end) = mpsc::channel::<()>();
        let regions = [&region, &other];
        scope.spawn(move || {
            for region in regions {
                region.join("successor").unwrap();
            }
            joined.send(()).unwrap();
            let _ = wait_end.recv();
        });
        wait_joined.recv().unwrap();
        // In a region where a living task has the identity of the dead one.
        assert_eq!(moved.get_mut(), None);
        // In a thread for which the region has no slot.
        let cannot_join = scope.spawn(|| {
            assert!(matches!(boxed.lock(), Err(LockError::Unavailable(_))));
            assert_eq!(boxed.get_mut(), None);
        });
        cannot_join.join().unwrap();
        drop(end);
    });
}
