//! C and Rust contend for the same locks: the words are the same. And the directives of C do as those of Rust.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::{InRegion, Inherit, LockError, Mutex, Robust, Throughput, in_region};
use latchwork::region::{DetachError, Region, RegionOptions};
use latchwork::rwlock::RwLock;
use latchwork_c as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[path = "with_rust_support/directives.rs"]
mod directives;

const ROUNDS: u64 = 20_000;

unsafe extern "C" {
    fn lw_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_tp_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_tp_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_pi_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_pi_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_robust_mutex_init(mutex: *mut c_void) -> c_int;
    fn lw_robust_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_robust_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_trylock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_consistent(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_consistent(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_rwlock_wrlock(lock: *const c_void) -> c_int;
    fn lw_rwlock_rdlock(lock: *const c_void) -> c_int;
    fn lw_rwlock_unlock(lock: *const c_void) -> c_int;
    fn lw_cond_wait(cond: *const c_void, mutex: *const c_void) -> c_int;
    fn lw_cond_signal(cond: *const c_void) -> c_int;
}

/// A count whose torn updates would show.
static COUNT: AtomicU64 = AtomicU64::new(0);

fn count_once() {
    // Relaxed: the lock orders them, which is what is tested.
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Two threads by each way.
fn contend(by_c: impl Fn() + Sync, by_rust: impl Fn() + Sync) {
    COUNT.store(0, Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| by_c()));
            scope.spawn(|| (0..ROUNDS).for_each(|_| by_rust()));
        }
    });
    assert_eq!(COUNT.load(Ordering::Relaxed), 4 * ROUNDS);
}

/// Locks and unlocks in C.
macro_rules! in_c {
    ($mutex:expr, $lock:ident, $unlock:ident) => {
        || {
            let mutex = core::ptr::from_ref($mutex).cast();
            // SAFETY: a lock of that kind; it is held in between.
            unsafe {
                assert_eq!($lock(mutex), 0);
                count_once();
                assert_eq!($unlock(mutex), 0);
            }
        }
    };
}

#[test]
fn c_and_rust_exclude_each_other() {
    static PLAIN: Mutex<u64> = Mutex::new(0);
    static THROUGHPUT: Mutex<u64, Throughput> = Mutex::throughput(0);
    static INHERIT: Mutex<u64, Inherit> = Mutex::inherit(0);
    static ROBUST: Mutex<u64, Robust> = Mutex::robust(0);
    static TABLE: RwLock<u64> = RwLock::new(0);
    // One after the other: they share the count.
    contend(in_c!(&PLAIN, lw_mutex_lock, lw_mutex_unlock), || {
        let _held = PLAIN.lock();
        count_once();
    });
    contend(
        in_c!(&THROUGHPUT, lw_tp_mutex_lock, lw_tp_mutex_unlock),
        || {
            let _held = THROUGHPUT.lock();
            count_once();
        },
    );
    contend(
        in_c!(&INHERIT, lw_pi_mutex_lock, lw_pi_mutex_unlock),
        || {
            let _held = INHERIT.lock().unwrap();
            count_once();
        },
    );
    contend(
        in_c!(&ROBUST, lw_robust_mutex_lock, lw_robust_mutex_unlock),
        || {
            let _held = Pin::static_ref(&ROBUST).lock().unwrap();
            count_once();
        },
    );
    contend(in_c!(&TABLE, lw_rwlock_wrlock, lw_rwlock_unlock), || {
        let _held = TABLE.write();
        count_once();
        drop(_held);
        drop(TABLE.read());
    });
    // SAFETY: as above.
    unsafe {
        assert_eq!(lw_rwlock_rdlock((&raw const TABLE).cast()), 0);
        assert!(TABLE.try_read().is_some() && TABLE.try_write().is_none());
        assert_eq!(lw_rwlock_unlock((&raw const TABLE).cast()), 0);
    }
}

#[test]
fn c_waits_for_notifications_by_rust_and_vice_versa() {
    static TURN: Mutex<u64> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    let (mutex, cond) = (&raw const TURN, &raw const CHANGED);
    let (mutex, cond) = (mutex as usize, cond as usize);
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..200 {
                // SAFETY: the lock is held where the data is looked at.
                unsafe {
                    let (mutex, cond) = (mutex as *const c_void, cond as *const c_void);
                    // The data lies behind the word.
                    let turn = mutex.cast::<u64>().add(1).cast_mut();
                    assert_eq!(lw_mutex_lock(mutex), 0);
                    while turn.read_volatile() != 2 * round {
                        assert_eq!(lw_cond_wait(cond, mutex), 0);
                    }
                    *turn += 1;
                    lw_cond_signal(cond);
                    assert_eq!(lw_mutex_unlock(mutex), 0);
                }
            }
        });
        for round in 0..200 {
            let mut turn = CHANGED.wait_while(TURN.lock(), |turn| *turn != 2 * round + 1);
            *turn += 1;
            CHANGED.notify_one();
        }
    });
    assert_eq!(*TURN.lock(), 400);
}

/// A thread that ends while it holds a lock that it acquired in C.
fn end_holding(mutex: &Mutex<u64, Robust>) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: a lock of that kind, which stays where it is.
            let locked = unsafe { lw_robust_mutex_lock(core::ptr::from_ref(mutex).cast()) };
            assert_eq!(locked, 0);
        });
        // The scope's end alone does not wait for the thread's destructors.
        thread.join().unwrap();
    });
}

#[test]
fn the_end_of_a_thread_with_a_lock_that_c_made_is_reported_to_rust() {
    static mut MADE_BY_C: MaybeUninit<Mutex<u64, Robust>> = MaybeUninit::zeroed();
    // SAFETY: memory for a lock and its data, zeros, in which C makes the lock; nothing else uses it.
    let mutex = unsafe {
        assert_eq!(lw_robust_mutex_init((&raw mut MADE_BY_C).cast()), 0);
        &*(&raw const MADE_BY_C).cast::<Mutex<u64, Robust>>()
    };
    end_holding(mutex);
    match Pin::static_ref(mutex).lock() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    }
    assert!(Pin::static_ref(mutex).lock().is_ok());
}

/// A lock that Rust made may have lent its data to another thread, whoever acquired it.
#[test]
fn a_lock_that_rust_made_stays_its_processs_when_a_thread_of_cs_ends() {
    static MADE_BY_RUST: Mutex<u64, Robust> = Mutex::robust(0);
    end_holding(&MADE_BY_RUST);
    let result = Pin::static_ref(&MADE_BY_RUST).try_lock();
    assert!(
        matches!(result, Err(LockError::WouldBlock)),
        "{:?}",
        result.map(|held| *held)
    );
    // Nor can the thread that asks unlock it.
    // SAFETY: a lock of that kind.
    let unlocked = unsafe { lw_robust_mutex_unlock((&raw const MADE_BY_RUST).cast()) };
    assert_eq!(unlocked, libc::EPERM);
}

type RegionLock = Mutex<u64, InRegion>;

/// A wait that must fail, and one that fails only in a test that has failed.
const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

fn region() -> Region {
    let options = RegionOptions::new().max_bytes(4 << 20).max_tasks(8);
    options.create_anonymous().unwrap()
}

fn lock_in(region: &Region) -> &RegionLock {
    let lock = region.object("lock", || Mutex::in_region(0_u64)).unwrap();
    lock.get_ref()
}

fn address(lock: &RegionLock) -> *const c_void {
    core::ptr::from_ref(lock).cast()
}

/// The number of locks that keep the calling thread in the region.
fn held_in(region: &Region) -> usize {
    match region.clone().detach() {
        Ok(()) => 0,
        Err(DetachError::Holding { locks, .. }) => locks,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn c_and_rust_exclude_each_other_by_a_region_lock() {
    /// Not that of the other tests, which may run at the same time.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let region = region();
    let lock = lock_in(&region);
    let count_once = || COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let _held = lock.lock().unwrap();
                    count_once();
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    // SAFETY: a lock of that kind.
                    unsafe {
                        assert_eq!(lw_region_mutex_lock(address(lock)), 0);
                        count_once();
                        assert_eq!(lw_region_mutex_unlock(address(lock)), 0);
                    }
                }
            });
        }
    });
    assert_eq!(COUNT.load(Ordering::Relaxed), 4 * ROUNDS);
    assert_eq!(held_in(&region), 0);
}

#[test]
fn c_and_rust_exclude_each_other_by_a_throughput_lock_of_a_region() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let region = region();
    let lock = region.object("lock", || Mutex::in_region_throughput(0_u64));
    let lock = lock.unwrap().get_ref();
    let address = || core::ptr::from_ref(lock).cast();
    let count_once = || COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let _held = lock.lock().unwrap();
                    count_once();
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    // SAFETY: a lock of that kind.
                    unsafe {
                        assert_eq!(lw_region_tp_mutex_lock(address()), 0);
                        count_once();
                        assert_eq!(lw_region_tp_mutex_unlock(address()), 0);
                    }
                }
            });
        }
    });
    assert_eq!(COUNT.load(Ordering::Relaxed), 4 * ROUNDS);
    assert_eq!(held_in(&region), 0);
    // The end of a thread hands on what C has acquired.
    // SAFETY: as above.
    let locked = || unsafe { lw_region_tp_mutex_lock(address()) };
    assert_eq!(
        thread::scope(|scope| scope.spawn(locked).join().unwrap()),
        0
    );
    // SAFETY: as above.
    unsafe {
        assert_eq!(lw_region_tp_mutex_lock(address()), libc::EOWNERDEAD);
        assert_eq!(lw_region_tp_mutex_consistent(address()), 0);
        assert_eq!(lw_region_tp_mutex_unlock(address()), 0);
    }
    drop(lock.lock().unwrap());
}

/// In the region that the thread attached first, and in another.
#[test]
fn locks_of_both_languages_are_counted() {
    let regions = [region(), region()];
    thread::scope(|scope| {
        scope.spawn(|| {
            for region in &regions {
                let lock = lock_in(region);
                let other = region.object("other", || Mutex::in_region(0_u64)).unwrap();
                let other = address(other.get_ref());
                let guard = lock.lock().unwrap();
                assert_eq!(held_in(region), 1);
                // SAFETY: locks of that kind, here and below.
                unsafe {
                    assert_eq!(lw_region_mutex_lock(address(lock)), libc::EDEADLK);
                    assert_eq!(lw_region_mutex_trylock(address(lock)), libc::EBUSY);
                    assert_eq!(lw_region_mutex_lock(other), 0);
                }
                assert_eq!(held_in(region), 2);
                drop(guard);
                assert_eq!(held_in(region), 1);
                // SAFETY: as above.
                unsafe { assert_eq!(lw_region_mutex_unlock(other), 0) };
                // A leaked guard's lock, which C releases.
                core::mem::forget(lock.lock().unwrap());
                // SAFETY: as above.
                unsafe { assert_eq!(lw_region_mutex_unlock(address(lock)), 0) };
                assert_eq!(held_in(region), 0);
                // Attached again, for the other region to be the second.
                drop(lock.lock().unwrap());
            }
        });
    });
}

/// A thread that ends holding a lock: whoever acquired it in C has lent nothing.
#[test]
fn the_end_of_a_thread_hands_on_what_c_acquired_and_nothing_that_a_guard_did() {
    let region = region();
    let lock = lock_in(&region);
    let other = region.object("other", || Mutex::in_region(0_u64)).unwrap();
    let other = other.get_ref();
    let end_holding = |in_c: &[&RegionLock], in_rust: &[&RegionLock]| {
        thread::scope(|scope| {
            let ending = scope.spawn(|| {
                for lock in in_rust {
                    core::mem::forget(lock.lock().unwrap());
                }
                for lock in in_c {
                    // SAFETY: a lock of that kind.
                    unsafe { assert_eq!(lw_region_mutex_lock(address(lock)), 0) };
                }
            });
            ending.join().unwrap();
        });
    };
    let is_handed_on = |lock: &RegionLock| match lock.lock_for(LONG) {
        Err(in_region::LockError::OwnerDied(died)) => drop(died.make_consistent()),
        Ok(_) => panic!("no death was reported"),
        Err(error) => panic!("{error}"),
    };
    // More often than there are slots.
    for _ in 0..20 {
        end_holding(&[lock, other], &[]);
        is_handed_on(lock);
        is_handed_on(other);
    }
    // To C, too.
    end_holding(&[lock], &[]);
    // SAFETY: a lock of that kind.
    unsafe {
        assert_eq!(lw_region_mutex_lock(address(lock)), libc::EOWNERDEAD);
        assert_eq!(lw_region_mutex_consistent(address(lock)), 0);
        assert_eq!(lw_region_mutex_unlock(address(lock)), 0);
    }
    // One slot for both: a guard's lock keeps it alive.
    end_holding(&[other], &[lock]);
    region.sweep().unwrap();
    for kept in [lock, other] {
        // SAFETY: as above.
        let locked = unsafe { lw_region_mutex_trylock(address(kept)) };
        assert_eq!(locked, libc::EBUSY);
        let locked = kept.lock_for(SHORT);
        assert!(matches!(locked, Err(in_region::LockError::TimedOut)));
    }
}
