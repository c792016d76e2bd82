//! Promises and limits of `CONTRACT.md` that no other test shows: what a death leaves in objects that are not robust, and
//! what a peer can do to others.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::barrier::Barrier;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{
    InRegion, LockError as ThreadLockError, Mutex, Protect, Robust, Throughput, WaitWake,
};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::RwLock;
use latchwork::semaphore::{CountingSemaphore, Discipline, ObtainError, SimpleBinarySemaphore};
use latchwork::sharing::Shared;
use latchwork::spin::Spin;
use latchwork::time::Deadline;
use latchwork_testkit::priority::may_use_priorities;
use latchwork_testkit::{Child, Exit, Leftover, Page, Trial};
use std::fs::File;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_millis(1100);

fn options() -> RegionOptions {
    RegionOptions::new().max_bytes(1 << 20).max_tasks(8)
}

fn region() -> Region {
    options().create_anonymous().unwrap()
}

/// Kills a child as soon as it has carried out `step`, of whose result it is the owner.
fn kill_after<T>(trial: &Trial, step: impl FnOnce() -> T) {
    let done = Page::<AtomicU32>::new();
    let mut child = Child::fork(|| {
        let _held = step();
        done.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| done.load(SeqCst) == 1);
    assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
}

#[test]
fn a_lock_that_is_not_robust_stays_locked_when_its_owner_dies() {
    let trial = Trial::begin("a_lock_that_is_not_robust_stays_locked_when_its_owner_dies");
    let region = region();
    let wait_wake = region
        .object("wait-wake", || {
            Mutex::from_raw(WaitWake::<Shared>::new(), 0)
        })
        .unwrap();
    kill_after(&trial, || wait_wake.lock());
    assert!(wait_wake.try_lock().is_none());
    assert!(wait_wake.lock_for(SHORT).is_none());

    let throughput = region
        .object("throughput", || {
            Mutex::from_raw(Throughput::<Shared>::new(), 0)
        })
        .unwrap();
    kill_after(&trial, || throughput.lock());
    assert!(throughput.try_lock().is_none());
    assert!(throughput.lock_for(SHORT).is_none());

    // Without the privilege to be at a ceiling nobody can have the lock.
    if may_use_priorities("a_lock_that_is_not_robust_stays_locked_when_its_owner_dies") {
        let protect = region
            .object("protect", || Mutex::protect_shared(1, 0))
            .unwrap();
        kill_after(&trial, || protect.lock().unwrap());
        assert!(protect.try_lock().unwrap().is_none());
    }

    let spin = region
        .object("spin", || Mutex::from_raw(Spin::new(), 0))
        .unwrap();
    kill_after(&trial, || spin.lock());
    assert!(spin.try_lock().is_none());

    let written = region.object("written", || RwLock::shared(0)).unwrap();
    kill_after(&trial, || written.write());
    assert!(written.try_read().is_none());
    assert!(written.write_for(SHORT).is_none());

    let read = region.object("read", || RwLock::shared(0)).unwrap();
    kill_after(&trial, || read.read());
    assert!(read.try_write().is_none());
    assert!(
        read.try_read().is_some(),
        "a dead reader keeps only writers out"
    );
}

#[test]
fn a_unit_that_a_dead_task_had_is_lost() {
    let trial = Trial::begin("a_unit_that_a_dead_task_had_is_lost");
    let region = region();
    let count = CountingSemaphore::create(&region, "count", 2, Discipline::Fifo).unwrap();
    kill_after(&trial, || count.obtain().unwrap());
    region.sweep().unwrap();
    assert_eq!(count.count(), 1);
    count.try_obtain().unwrap();
    assert!(matches!(count.try_obtain(), Err(ObtainError::WouldBlock)));
    // Any task may make up for it.
    count.release().unwrap();
    count.try_obtain().unwrap();

    let simple = SimpleBinarySemaphore::create(&region, "simple", 1, Discipline::Fifo).unwrap();
    kill_after(&trial, || simple.obtain().unwrap());
    region.sweep().unwrap();
    assert!(matches!(simple.try_obtain(), Err(ObtainError::WouldBlock)));
    simple.release().unwrap();
    simple.try_obtain().unwrap();
}

#[test]
fn a_barrier_waits_for_a_dead_task_that_had_not_arrived() {
    let trial = Trial::begin("a_barrier_waits_for_a_dead_task_that_had_not_arrived");
    let region = region();
    let barrier = region.object("barrier", || Barrier::shared(2)).unwrap();
    kill_after(&trial, || region.join("late").unwrap());
    assert!(barrier.wait_until(Deadline::after(SHORT)).is_none());
}

/// A process that has a lock from now on.
fn owner_of<G>(trial: &Trial, lock: impl FnOnce() -> G) -> Child {
    let done = Page::<AtomicU32>::new();
    let owner = Child::fork(|| {
        let _guard = lock();
        done.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| done.load(SeqCst) == 1);
    owner
}

/// A stopped owner is no dead one: no time limit takes a lock from it.
#[test]
fn a_stopped_owner_keeps_its_lock_and_its_death_passes_it_on() {
    const NAME: &str = "a_stopped_owner_keeps_its_lock_and_its_death_passes_it_on";
    let trial = Trial::begin(NAME);
    let region = region();
    macro_rules! keeps {
        ($lock:expr, $error:ident) => {
            let lock = region.object(stringify!($lock), || $lock).unwrap();
            let mut owner = owner_of(&trial, || lock.lock().unwrap());
            owner.signal(libc::SIGSTOP);
            trial.wait_until(|| owner.is_stopped());
            // A waiter that has slept for a second asks whether the owner exists.
            assert!(matches!(lock.lock_for(LONG), Err($error::TimedOut)));
            assert!(matches!(lock.try_lock(), Err($error::WouldBlock)));
            owner.kill();
            assert!(matches!(lock.lock(), Err($error::OwnerDied(_))));
        };
    }
    keeps!(Mutex::in_region(0u64), LockError);
    keeps!(Mutex::in_region_throughput(0u64), LockError);
    keeps!(Mutex::robust(0u64), ThreadLockError);
    keeps!(Mutex::robust_throughput(0u64), ThreadLockError);
    keeps!(Mutex::robust_inherit(0u64), ThreadLockError);
    if may_use_priorities(NAME) {
        let protect = || Robust::<Protect<Shared>>::with_ceiling(1);
        keeps!(Mutex::from_raw(protect(), 0u64), ThreadLockError);
    }
}

/// All its processes are dead; the file is there.
#[test]
fn objects_outlive_all_processes_of_their_region() {
    let trial = Trial::begin("objects_outlive_all_processes_of_their_region");
    let (name, _file) = Leftover::region("outlived");
    kill_after(&trial, || {
        let region = options().create_named(&name).unwrap();
        let number = region.object("number", || Mutex::in_region(1u64)).unwrap();
        *number.lock().unwrap() = 2;
        core::mem::forget(number.lock().unwrap());
        region
    });
    let region = options().attach(&name).unwrap();
    let number = region
        .find::<Mutex<u64, InRegion>>("number")
        .expect("the object is there");
    match number.lock() {
        Err(LockError::OwnerDied(number)) => assert_eq!(*number, 2),
        other => panic!("{other:?}"),
    }
}

/// The death of each task is that of the others: the file that all have is cut off.
#[test]
fn a_peer_can_truncate_a_named_region_and_no_anonymous_one() {
    let _trial = Trial::begin("a_peer_can_truncate_a_named_region_and_no_anonymous_one");
    let (name, file) = Leftover::region("truncated");
    let end = Child::fork(|| {
        let region = options().create_named(&name).unwrap();
        let object = region.object("object", || [1u64; 64]).unwrap();
        let peer = File::options().write(true).open(file.path()).unwrap();
        peer.set_len(4096).unwrap();
        assert_eq!(core::hint::black_box(object)[0], 1);
    })
    .wait();
    assert_eq!(end, Exit::Signal(libc::SIGBUS));

    let region = region();
    let object = region.object("object", || [1u64; 64]).unwrap();
    let peer = File::from(region.file().try_clone_to_owned().unwrap());
    let refused = peer.set_len(4096).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    assert_eq!(object[0], 1);
}

/// Each of them is an error of the caller's, and the region stays usable.
#[test]
fn a_full_region_refuses_and_works_on() {
    let _trial = Trial::begin("a_full_region_refuses_and_works_on");
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(2)
        .max_names(2)
        .create_anonymous()
        .unwrap();
    region.object("one", || 1u64).unwrap();
    region.object("two", || 2u64).unwrap();
    let third = region.object("three", || 3u64);
    assert!(matches!(
        third,
        Err(latchwork::region::ObjectError::DirectoryFull { names: 2 })
    ));
    let mut blocks = Vec::new();
    let layout = core::alloc::Layout::new::<[u64; 1000]>();
    let refused = loop {
        match region.allocate(layout) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, latchwork::region::ObjectError::Alloc(_)));
    for block in blocks {
        free(&region, block);
    }
    assert_eq!(*region.find::<u64>("one").unwrap(), 1);
    region.allocate(layout).unwrap();
    region.check_heap().unwrap();
}

#[allow(unsafe_code)]
fn free(region: &Region, block: core::ptr::NonNull<u8>) {
    // SAFETY: nobody uses it any more.
    unsafe { region.deallocate(block).unwrap() };
}
