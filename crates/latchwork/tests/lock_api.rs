//! The locks through the `lock_api` crate, as other crates take them.
#![cfg(not(loom))]

use core::time::Duration;
use latchwork::mutex::WaitWake;
use latchwork::rwlock::{RawRwLock as RawReadWrite, ReadersFirst};
use latchwork::sharing::{Private, Shared};
use latchwork::spin::Spin;
use latchwork::time::Deadline;
use latchwork_testkit::Watchdog;
use lock_api::{
    MappedMutexGuard, Mutex, MutexGuard, RawMutex, RawMutexTimed, RawRwLock, RawRwLockTimed,
    RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::thread;

static TABLE: Mutex<WaitWake, [u32; 4]> = Mutex::new([0; 4]);

#[test]
fn a_guard_can_be_narrowed_to_a_part() {
    let part: MappedMutexGuard<'_, WaitWake, u32> =
        MutexGuard::map(TABLE.lock(), |table| &mut table[2]);
    assert!(TABLE.try_lock().is_none());
    let mut part = MappedMutexGuard::map(part, |number| number);
    *part = 5;
    drop(part);
    assert_eq!(TABLE.lock()[2], 5);
    // Tried: the whole comes back.
    let whole = MutexGuard::try_map(TABLE.lock(), |table| table.get_mut(9)).unwrap_err();
    assert_eq!(whole[2], 5);
}

#[test]
fn a_guard_can_go_to_another_thread() {
    let mutex: Mutex<WaitWake, u32> = Mutex::new(0);
    let mut guard = mutex.lock();
    thread::scope(|scope| {
        scope.spawn(move || {
            *guard += 1;
            drop(guard);
        });
    });
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn unlocked_holds_for_the_closure() {
    let mutex: Mutex<Spin, u32> = Mutex::new(0);
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, || *mutex.lock() += 1);
    assert_eq!(*guard, 1);
}

fn traits_do_what_they_say<
    R: RawMutex + RawMutexTimed<Duration = Duration, Instant = Deadline> + Sync,
>() {
    let _watchdog = Watchdog::start("traits_do_what_they_say".into());
    let raw = R::INIT;
    assert!(!raw.is_locked());
    raw.lock();
    assert!(raw.is_locked() && !raw.try_lock());
    let soon = Deadline::after(Duration::from_millis(2));
    assert!(!raw.try_lock_until(soon) && soon.has_passed());
    assert!(!raw.try_lock_for(Duration::from_micros(10)));
    thread::scope(|scope| {
        scope.spawn(|| assert!(raw.try_lock_for(Duration::from_secs(3600))));
        unlock(&raw);
    });
    assert!(raw.is_locked());
    unlock(&raw);
    assert!(raw.try_lock());
}

#[allow(unsafe_code)]
fn unlock(raw: &impl RawMutex) {
    // SAFETY: called by the holder.
    unsafe { raw.unlock() };
}

#[test]
fn wait_wake_does_what_the_traits_say() {
    traits_do_what_they_say::<WaitWake>();
    traits_do_what_they_say::<WaitWake<Shared>>();
}

#[test]
fn spin_does_what_the_traits_say() {
    traits_do_what_they_say::<Spin>();
}

fn reader_writer_traits_do_what_they_say<
    R: RawRwLock + RawRwLockTimed<Duration = Duration, Instant = Deadline> + Sync,
>() {
    let _watchdog = Watchdog::start("reader_writer_traits_do_what_they_say".into());
    let lock: RwLock<R, u32> = RwLock::new(0);
    let soon = || Deadline::after(Duration::from_millis(2));
    assert!(!lock.is_locked() && !lock.is_locked_exclusive());
    let reading = lock.read();
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    assert!(lock.try_read_until(soon()).is_some());
    let end = soon();
    assert!(lock.try_write_until(end).is_none() && end.has_passed());
    assert!(lock.try_write_for(Duration::from_micros(10)).is_none());
    drop(reading);
    let mut writing = lock.write();
    *writing += 1;
    assert!(lock.is_locked_exclusive() && lock.try_read().is_none());
    let end = soon();
    assert!(lock.try_read_until(end).is_none() && end.has_passed());
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(lock.try_read_for(HOUR).as_deref(), Some(&1)));
        scope.spawn(|| *lock.try_write_for(HOUR).unwrap() += 0);
        drop(writing);
    });
    assert!(!lock.is_locked());
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn reader_writer_locks_do_what_the_traits_say() {
    reader_writer_traits_do_what_they_say::<RawReadWrite>();
    reader_writer_traits_do_what_they_say::<RawReadWrite<Shared>>();
    reader_writer_traits_do_what_they_say::<RawReadWrite<Private, ReadersFirst>>();
}

#[test]
fn guards_of_a_reader_writer_lock_are_narrowed_sent_and_downgraded() {
    static PAIR: RwLock<RawReadWrite, [u32; 2]> = RwLock::new([1, 2]);
    let mut writing = PAIR.write();
    writing[1] = 3;
    let reading = RwLockWriteGuard::downgrade(writing);
    assert_eq!(PAIR.try_read().as_deref(), Some(&[1, 3]));
    let part = RwLockReadGuard::map(reading, |pair| &pair[1]);
    thread::spawn(move || assert_eq!(*part, 3)).join().unwrap();
    assert!(PAIR.try_write().is_some());
}
