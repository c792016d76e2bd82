//! What gets into a region for tasks of any PID namespace, and what does not.

use super::options;
use latchwork::mutex::{Inherit, Mutex, Robust, Throughput, WaitWake};
use latchwork::region::{self, ObjectError, Region, Shareable, StorageError};
use latchwork::rwlock::{RegionRwLock, RobustRwLock};
use latchwork::sharing::Shared;

#[derive(Shareable)]
#[repr(C)]
struct Parts {
    number: u64,
    inner: (u8, [Option<Mutex<u64, Robust>>; 2]),
}

/// Locks whose words name threads by their IDs do not get into such a region, however deep in a type they are.
#[test]
fn locks_that_name_threads_are_refused() {
    let region = super::region();
    fn refused<T: Shareable>(region: &Region, make: impl FnOnce() -> T) {
        let made = region.object::<T>("object", make);
        assert!(
            matches!(made, Err(ObjectError::NamesThreads)),
            "{}",
            core::any::type_name::<T>()
        );
    }
    let parts = || Parts {
        number: 0,
        inner: (0, [const { None }; 2]),
    };
    refused(&region, || Mutex::robust(0_u64));
    refused(&region, || Mutex::from_raw(Inherit::<Shared>::new(), 0_u64));
    refused(&region, || {
        Mutex::from_raw(Throughput::<Shared>::new(), 0_u64)
    });
    refused(&region, || RobustRwLock::<u64>::new(0));
    refused(&region, || RegionRwLock::<Parts>::in_region(parts()));
    refused(&region, parts);
    refused(&region, || {
        region::Vec::<region::List<Mutex<u64, Robust>>>::new_in(&region)
    });
    refused(&region, || {
        Mutex::in_region(region::HashMap::<u32, Parts>::new_in(&region))
    });

    let movable = || Mutex::from_raw(Throughput::<Shared>::new(), 0_u64);
    let is_refused = |error: &StorageError| matches!(error, StorageError::NamesThreads);
    assert!(region::Box::new_in(parts(), &region).is_err_and(|error| is_refused(&error.error)));
    let mut vec = region::Vec::new_in(&region);
    assert!(
        vec.push(movable())
            .is_err_and(|error| is_refused(&error.error))
    );
    let mut list = region::List::new_in(&region);
    assert!(
        list.push_back(parts())
            .is_err_and(|error| is_refused(&error.error))
    );
    let mut map = region::HashMap::new_in(&region);
    assert!(
        map.insert(1_u32, movable())
            .is_err_and(|error| is_refused(&error.error))
    );

    // Others get in, and all get into other regions.
    region.object("ours", || Mutex::in_region(0_u64)).unwrap();
    region
        .object("plain", || {
            Mutex::from_raw(WaitWake::<Shared>::new(), 0_u64)
        })
        .unwrap();
    let usual = options().create_anonymous().unwrap();
    assert_eq!(usual.object("parts", parts).unwrap().number, 0);
    usual.object("robust", || Mutex::robust(0_u64)).unwrap();
}
