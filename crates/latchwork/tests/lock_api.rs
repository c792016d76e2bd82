//! The locks through the `lock_api` crate, as other crates take them.
#![cfg(not(loom))]

use core::time::Duration;
use latchwork::mutex::WaitWake;
use latchwork::sharing::Shared;
use latchwork::spin::Spin;
use latchwork::time::Deadline;
use latchwork_testkit::Watchdog;
use lock_api::{MappedMutexGuard, Mutex, MutexGuard, RawMutex, RawMutexTimed};
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
