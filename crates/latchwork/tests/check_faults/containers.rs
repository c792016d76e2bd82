//! Memory that containers and removed objects give back.
#![allow(unsafe_code)]

use crate::at;
use crate::objects::region;
use crate::run::{Row, fault, harmless};
use latchwork::check::{Rule, hook};
use latchwork::region;

/// Calls a place of memory a lock that the calling task holds.
#[track_caller]
fn hold<T>(place: *const T) -> hook::Lock {
    let lock = hook::Lock::new(place.addr(), hook::Kind::Mutex);
    hook::initialised(lock, Some("a"), hook::Site::caller());
    let site = hook::Site::caller();
    hook::taken(lock, hook::Mode::Exclusive, hook::How::Locked, site);
    lock
}

pub fn rows() -> Vec<Row> {
    const TASKS: crate::run::Tasks = &[("main", "a", "a")];
    let freed = |name: &str, body| fault(name, Rule::NoFreeHolding, TASKS, body);
    vec![
        freed("a vector grows with a held lock in it", || {
            let region = region();
            let mut vec = region::Vec::<u64>::with_capacity_in(1, &region).unwrap();
            vec.push(0).unwrap();
            at!("a", hold(vec.as_slice().as_ptr()));
            vec.reserve(1000).unwrap();
        }),
        freed("a list's node with a held lock is dropped", || {
            let region = region();
            let mut list = region::List::<u64>::new_in(&region);
            list.push_back(1).unwrap();
            at!("a", hold(list.front().unwrap()));
            list.pop_front();
        }),
        freed("a map grows with a held lock in it", || {
            let region = region();
            let mut map = region::HashMap::<u64, u64>::new_in(&region);
            map.insert(1, 1).unwrap();
            at!("a", hold(map.get(&1).unwrap()));
            map.remove(&1);
            map.reserve(1000).unwrap();
        }),
        freed("a box with a held lock in it is dropped", || {
            let region = region();
            let boxed = region::Box::new_in(1_u64, &region).unwrap();
            at!("a", hold(&raw const *boxed));
            drop(boxed);
        }),
        freed("a named object with a held lock in it is removed", || {
            let region = region();
            let object = region.object("object", || 1_u64).unwrap();
            at!("a", hold(&raw const *object));
            // SAFETY: not used again. The fault: it is called a lock, which is held.
            unsafe {
                region.remove::<u64>("object").unwrap();
            }
        }),
        harmless("containers give back where locks were held", || {
            let region = region();
            let mut vec = region::Vec::<u64>::with_capacity_in(1, &region).unwrap();
            vec.push(0).unwrap();
            let lock = hold(vec.as_slice().as_ptr());
            assert_eq!(
                hook::releasing(lock, hook::Site::caller()),
                hook::Verdict::Go
            );
            vec.reserve(1000).unwrap();
            let held = hold(vec.as_slice().as_ptr());
            let mut other = region::Vec::<u64>::with_capacity_in(1, &region).unwrap();
            other.reserve(1000).unwrap();
            drop(other);
            let _ = hook::releasing(held, hook::Site::caller());
        }),
    ]
}
