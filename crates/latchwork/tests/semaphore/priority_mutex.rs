//! The mutex with data whose waiters are served by recorded priority.

use super::priority_mutex_deaths::leave_dead_owner;
use super::semaphore_support::{current, me_at, priority, region, until, watched};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{InRegion, LockFailure, Mutex, Robust};
use latchwork::region::{self, ObjectError, Region, RegionOptions, Shareable, TaskId};
use latchwork::semaphore::inspect::{SemaphoreKind, SemaphoreReports as _};
use latchwork::semaphore::priority_mutex::{LockError, PriorityFault};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, MrspSemaphore, PriorityMutex,
    PriorityMutexOptions, SemaphoreError, UseError,
};
use latchwork_testkit::{Child, Page};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

pub(crate) const INHERIT: PriorityMutexOptions = PriorityMutexOptions::new();
pub(crate) const SHORT: Duration = Duration::from_millis(30);

pub(crate) fn both() -> [PriorityMutexOptions; 2] {
    [INHERIT, INHERIT.ceiling(priority(10))]
}

pub(crate) fn make<'r>(
    region: &'r Region,
    options: &PriorityMutexOptions,
) -> PriorityMutex<'r, u64> {
    PriorityMutex::create(region, "m", options, || 0).unwrap()
}

#[test]
fn waiters_for_a_priority_mutex_are_served_by_priority() {
    let _watchdog = watched("waiters_for_a_priority_mutex_are_served_by_priority");
    let region = region();
    let mutex = PriorityMutex::create(&region, "m", &INHERIT, || [0_u8; 4]).unwrap();
    let mut guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        for (number, own) in [30, 10, 20].into_iter().enumerate() {
            let region = &region;
            scope.spawn(move || {
                me_at(region, own);
                let mut order = mutex.lock().unwrap();
                order[0] += 1;
                let place = usize::from(order[0]);
                order[place] = own;
            });
            until(|| mutex.waiting() == number as u32 + 1);
        }
        guard[0] = 0;
        drop(guard);
    });
    assert_eq!(*mutex.lock().unwrap(), [3, 10, 20, 30]);
    assert_eq!((mutex.owner(), mutex.waiting()), (None, 0));
}

/// The mutex, a semaphore, a mutex of a task in another process.
#[test]
fn a_chain_of_priority_mutexes_and_semaphores_inherits() {
    let _watchdog = watched("a_chain_of_priority_mutexes_and_semaphores_inherits");
    let region = region();
    let me = me_at(&region, 200);
    let first = make(&region, &INHERIT);
    let inherit = BinaryOptions::new().inherit();
    let second = BinarySemaphore::create(&region, "s", &inherit).unwrap();
    let third = PriorityMutex::create(&region, "third", &INHERIT, || 0_u64).unwrap();
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            me_at(&region, 150);
            let held = second.obtain().unwrap();
            drop(first.lock().unwrap());
            drop(held);
        });
        until(|| first.waiting() == 1 && current(&region, me) == 150);
        let child = Child::fork(|| {
            me_at(&region, 151);
            let mut data = third.lock().unwrap();
            drop(second.obtain().unwrap());
            *data = 7;
        });
        until(|| second.waiting() == 1);
        assert_eq!(current(&region, me), 150);
        // One that gives up at its deadline takes its priority back all along the chain.
        scope
            .spawn(|| {
                me_at(&region, 20);
                assert!(matches!(third.lock_for(SHORT), Err(LockError::TimedOut)));
            })
            .join()
            .unwrap();
        until(|| current(&region, me) == 150);
        let (told, id) = mpsc::channel::<TaskId>();
        scope.spawn({
            let region = &region;
            move || {
                told.send(me_at(region, 30)).unwrap();
                assert_eq!(*third.lock().unwrap(), 7);
            }
        });
        let id = id.recv().unwrap();
        until(|| current(&region, me) == 30);
        id.set_priority_of(&region, 40);
        assert_eq!(current(&region, me), 40);
        drop(guard);
        assert_eq!(current(&region, me), 200);
        child.succeed();
    });
}

trait SetPriority {
    fn set_priority_of(self, region: &Region, to: u8);
}

impl SetPriority for TaskId {
    fn set_priority_of(self, region: &Region, to: u8) {
        use latchwork::semaphore::TaskPriority as _;
        self.set_priority(region, priority(to)).unwrap();
    }
}

#[test]
fn the_owner_of_a_priority_mutex_has_its_ceiling() {
    let region = region();
    let me = me_at(&region, 100);
    let mutex = make(&region, &INHERIT.ceiling(priority(50)));
    assert_eq!(mutex.ceiling(), Some(priority(50)));
    let guard = mutex.lock().unwrap();
    assert_eq!(current(&region, me), 50);
    assert_eq!(mutex.set_ceiling(priority(40)).unwrap(), priority(50));
    assert_eq!(current(&region, me), 40);
    drop(guard);
    assert_eq!(current(&region, me), 100);
    me_at(&region, 39);
    let refused = mutex.lock().unwrap_err();
    assert!(
        matches!(refused, LockError::Refused(PriorityFault::AboveCeiling { own, ceiling })
            if [own, ceiling] == [39, 40].map(priority))
    );
    assert!(matches!(
        LockFailure::from(refused),
        LockFailure::Refused(PriorityFault::AboveCeiling { .. })
    ));
    me_at(&region, 40);
    drop(mutex.lock().unwrap());
    let inherits = PriorityMutex::create(&region, "inherits", &INHERIT, || 0_u8).unwrap();
    assert_eq!(inherits.ceiling(), None);
    assert!(matches!(
        inherits.set_ceiling(priority(1)),
        Err(UseError::NoCeiling)
    ));
}

#[test]
fn a_priority_mutex_does_not_nest() {
    let _watchdog = watched("a_priority_mutex_does_not_nest");
    for options in both() {
        let region = region();
        let mutex = make(&region, &options);
        let mut guard = mutex.lock().unwrap();
        assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
        assert!(matches!(mutex.try_lock(), Err(LockError::Deadlock)));
        // Nor by another handle.
        let other = PriorityMutex::<u64>::open(&region, "m").unwrap();
        assert!(matches!(other.lock_for(SHORT), Err(LockError::Deadlock)));
        *guard += 1;
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(mutex.try_lock(), Err(LockError::WouldBlock)));
                assert!(matches!(mutex.lock_for(SHORT), Err(LockError::TimedOut)));
            });
        });
        drop(guard);
        assert_eq!(*mutex.try_lock().unwrap(), 1);
    }
}

#[test]
fn a_cycle_of_priority_mutexes_and_semaphores_is_refused() {
    let _watchdog = watched("a_cycle_of_priority_mutexes_and_semaphores_is_refused");
    let region = region();
    let mutex = make(&region, &INHERIT);
    let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
    let held = semaphore.obtain().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = mutex.lock().unwrap();
            drop(semaphore.obtain().unwrap());
        });
        until(|| semaphore.waiting() == 1);
        assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
        drop(held);
    });
    drop(mutex.lock().unwrap());
}

#[test]
fn a_name_of_another_type_or_protocol_is_refused() {
    let region = region();
    let mutex = make(&region, &INHERIT);
    // What was made first stays.
    *mutex.lock().unwrap() = 5;
    assert_eq!(*make(&region, &INHERIT).lock().unwrap(), 5);
    assert!(matches!(
        PriorityMutex::create(&region, "m", &INHERIT.ceiling(priority(3)), || 0_u64),
        Err(SemaphoreError::OtherKind)
    ));
    let is_other = |result: Result<(), SemaphoreError>| {
        matches!(result, Err(SemaphoreError::Object(ObjectError::OtherType)))
    };
    let other = PriorityMutex::<i64>::open(&region, "m").map(|_| ());
    assert!(is_other(other));
    let other = PriorityMutex::create(&region, "m", &INHERIT, || 0_i64).map(|_| ());
    assert!(is_other(other));
    // No semaphore reaches it, so nothing but a guard releases it.
    assert!(is_other(BinarySemaphore::open(&region, "m").map(|_| ())));
    let inherit = BinaryOptions::new().inherit();
    assert!(is_other(
        BinarySemaphore::create(&region, "m", &inherit).map(|_| ())
    ));
    assert!(is_other(CountingSemaphore::open(&region, "m").map(|_| ())));
    assert!(is_other(MrspSemaphore::open(&region, "m").map(|_| ())));
    assert!(matches!(
        region.find::<u64>("m"),
        Err(ObjectError::OtherType)
    ));
    // The other way round.
    BinarySemaphore::create(&region, "s", &inherit).unwrap();
    assert!(is_other(
        PriorityMutex::<u64>::open(&region, "s").map(|_| ())
    ));
    assert!(matches!(
        PriorityMutex::<u64>::open(&region, "none"),
        Err(SemaphoreError::Object(ObjectError::NotFound))
    ));
}

#[test]
fn a_priority_mutex_whose_making_panics_is_not_made() {
    let region = region();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        PriorityMutex::<u64>::create(&region, "m", &INHERIT, || resume_unwind(Box::new(())))
    }));
    assert!(caught.is_err());
    assert_eq!(*make(&region, &INHERIT).lock().unwrap(), 0);
}

/// In a region for any PID namespace no part of the data may name a thread by its ID.
#[test]
fn a_priority_mutex_refuses_data_that_names_threads_across_pid_namespaces() {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .any_pid_namespace(true)
        .create_anonymous()
        .unwrap();
    let made = PriorityMutex::create(&region, "m", &INHERIT, || Mutex::robust(0_u64));
    assert!(matches!(
        made,
        Err(SemaphoreError::Object(ObjectError::NamesThreads))
    ));
    type Inner = Mutex<u64, InRegion>;
    const { assert!(<Mutex<u64, Robust>>::NAMES_THREADS && !Inner::NAMES_THREADS) };
    let made = PriorityMutex::<Inner>::create(&region, "m", &INHERIT, || Mutex::in_region(0));
    *made.unwrap().lock().unwrap().lock().unwrap() += 1;
}

/// Threads and processes at once, of several priorities; some give up.
#[test]
fn owners_of_a_priority_mutex_exclude_each_other() {
    let _watchdog = watched("owners_of_a_priority_mutex_exclude_each_other");
    for options in both() {
        let region = region();
        let mutex = PriorityMutex::create(&region, "m", &options, || [0_u64; 2]).unwrap();
        let rounds = |own: u8, impatient: bool| {
            me_at(&region, own);
            let mut done = 0;
            for round in 0..2_000_u32 {
                let guard = match impatient {
                    true => mutex.lock_for(Duration::from_nanos(u64::from(round % 50) * 1000)),
                    false => mutex.lock(),
                };
                let mut data = match guard {
                    Ok(data) => data,
                    Err(LockError::TimedOut) => continue,
                    Err(error) => panic!("{error}"),
                };
                let [first, second] = *data;
                assert_eq!(first, second);
                data[0] += 1;
                if round % 16 == 0 {
                    thread::yield_now();
                }
                data[1] += 1;
                done += 1;
            }
            done
        };
        let by_children: Page<AtomicU32> = Page::new();
        let count = |own, impatient| {
            by_children.fetch_add(rounds(own, impatient), SeqCst);
        };
        let children: Vec<Child> = (0..2_u8)
            .map(|index| Child::fork(|| count(20 + index, index == 0)))
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| count(30, false));
            scope.spawn(|| count(20, true));
        });
        children.into_iter().for_each(Child::succeed);
        let done = u64::from(by_children.load(SeqCst));
        assert_eq!(*mutex.lock().unwrap(), [done; 2]);
        assert_eq!((mutex.owner(), mutex.waiting()), (None, 0));
    }
}

#[test]
fn the_inspector_shows_priority_mutexes() {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .label("shows priority mutexes")
        .create_anonymous()
        .unwrap();
    let plan = make(&region, &INHERIT);
    let gone = PriorityMutex::create(&region, "gone", &INHERIT.ceiling(priority(9)), || 0_u64);
    let gone = gone.unwrap();
    let seen = || {
        let survey = region::inspect::survey();
        let mut regions = survey.regions.iter();
        let report = regions.find(|report| report.name == "shows priority mutexes");
        let mut seen = report.unwrap().contents.as_ref().unwrap().semaphores();
        seen.sort_by(|one, other| one.name.cmp(&other.name));
        <[_; 2]>::try_from(seen).unwrap()
    };
    let guard = plan.lock().unwrap();
    leave_dead_owner(gone);
    let [ended, held] = seen();
    assert_eq!(
        (held.name.as_str(), held.kind),
        ("m", SemaphoreKind::Inherit)
    );
    assert!(held.has_data && held.by_priority && !held.not_recoverable);
    let me = region.task_id().unwrap().to_raw();
    assert_eq!(held.owner, Some(((me >> 16) as u16, (me >> 32) as u32)));
    assert_eq!(
        (ended.name.as_str(), ended.kind),
        ("gone", SemaphoreKind::Ceiling)
    );
    assert!(ended.owner.is_some() && ended.ceiling == Some(9));
    drop(guard);
    drop(gone.lock());
    let [ended, free] = seen();
    assert!(ended.not_recoverable && ended.count == 0 && ended.owner.is_none());
    assert!(!free.not_recoverable && free.count == 1 && free.owner.is_none());
    let waits = gone.lock().unwrap_err();
    assert!(matches!(waits, LockError::NotRecoverable));
}
