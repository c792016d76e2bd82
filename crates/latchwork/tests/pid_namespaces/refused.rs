//! What gets into a region for tasks of any PID namespace, and what does not.

use super::options;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::mutex::{Inherit, Mutex, Robust, Throughput, WaitWake};
use latchwork::region::{self, ObjectError, Region, Shareable, StorageError, TaskId};
use latchwork::rwlock::{RegionRwLock, RobustRwLock};
use latchwork::semaphore::{Helping, MirrorError, MrspSemaphore, Priority, TaskPriority as _};
use latchwork::sharing::Shared;
use latchwork_testkit::{Namespace, Page, Trial};

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

/// The kernel gives no priority to a thread that has no ID here.
#[test]
fn the_priority_of_a_task_of_another_namespace_is_not_mirrored() {
    let name = "the_priority_of_a_task_of_another_namespace_is_not_mirrored";
    if super::skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = super::region();
    let task = Page::<AtomicU64>::new();
    let mut namespace = Namespace::start(true, || {
        let me = region.task_id().unwrap();
        // It can do so itself.
        me.mirror(&region, true).unwrap();
        me.mirror(&region, false).unwrap();
        task.store(me.to_raw(), SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| task.load(SeqCst) != 0);
    let other = TaskId::from_raw(task.load(SeqCst)).unwrap();
    assert_eq!(
        other.mirror(&region, true),
        Err(MirrorError::OtherPidNamespace)
    );
    // Its recorded priority can be set.
    other
        .set_priority(&region, Priority::new(7).unwrap())
        .unwrap();
    assert_eq!(other.priority(&region).unwrap().get(), 7);
    namespace.end();
    region.sweep().unwrap();
    assert_eq!(other.mirror(&region, true), Err(MirrorError::NoSuchTask));
}

#[test]
fn a_task_of_another_namespace_is_not_helped() {
    let name = "a_task_of_another_namespace_is_not_helped";
    if super::skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = super::region();
    let ceiling = Priority::new(50).unwrap();
    let semaphore = MrspSemaphore::create(&region, "s", ceiling).unwrap();
    let task = Page::<AtomicU64>::new();
    let mut namespace = Namespace::start(true, || {
        task.store(region.task_id().unwrap().to_raw(), SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| task.load(SeqCst) != 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: all-zero is an empty set; the kernel reads it.
            unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
                assert_eq!(
                    libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
                    0
                );
            }
            let me = region.task_id().unwrap();
            me.set_priority(&region, Priority::new(90).unwrap())
                .unwrap();
            me.mirror(&region, true).unwrap();
            let with_others = semaphore.helping().unwrap();
            namespace.end();
            region.sweep().unwrap();
            match semaphore.helping().unwrap() {
                Helping::NoPrivilege => println!("skipped: {name}: needs CAP_SYS_NICE"),
                alone => assert_eq!(
                    (with_others, alone),
                    (Helping::OtherPidNamespaces, Helping::Works)
                ),
            }
        });
    });
}
