//! Locks whose holder asks not to be preempted: they exclude, whether the kernel listens or not; and
//! where it does not, that is said.
#![cfg(not(loom))]

use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, Sliced, Throughput, slice};
use latchwork::probe::{Feature, Features, Status};
use latchwork::sharing::Private;
use latchwork::spin::Spin;
use latchwork_testkit::Watchdog;
use std::thread;

#[test]
fn a_thread_may_ask_exactly_where_the_system_is_found_to_allow_it() {
    let finding = Features::probe().find(Feature::RseqSliceExtension);
    match slice::enable_for_this_thread() {
        Ok(()) => assert_eq!(finding.status, Status::Available, "{finding:?}"),
        Err(why) => {
            println!("this system: {why}");
            assert_ne!(finding.status, Status::Available, "{why}");
        }
    }
}

#[test]
fn sliced_locks_exclude_with_requests_and_without() {
    let _watchdog = Watchdog::start("exclude".into());
    let count = Mutex::from_raw(Sliced::new(Throughput::<Private>::new()), 0_u64);
    let spinning = Mutex::from_raw(Sliced::new(Spin::new()), 0_u64);
    thread::scope(|scope| {
        for asks in [true, true, false, false] {
            let (count, spinning) = (&count, &spinning);
            scope.spawn(move || {
                if asks {
                    let _ = slice::enable_for_this_thread();
                }
                for _ in 0..5_000 {
                    let mut count = count.lock();
                    *spinning.lock() += 1;
                    *count += 1;
                }
            });
        }
    });
    assert_eq!((*count.lock(), *spinning.lock()), (20_000, 20_000));
}

#[test]
fn a_sliced_lock_can_be_tried_timed_interrupted_and_waited_with() {
    let _watchdog = Watchdog::start("ways to take it".into());
    let _ = slice::enable_for_this_thread();
    let mutex = Mutex::from_raw(Sliced::new(Throughput::<Private>::new()), false);
    let changed = Condvar::new();
    {
        let _held = mutex.try_lock().expect("free");
        assert!(mutex.try_lock().is_none());
        assert!(mutex.lock_for(Duration::from_millis(1)).is_none());
    }
    assert!(mutex.lock_interruptible(None).is_ok());
    thread::scope(|scope| {
        scope.spawn(|| {
            *mutex.lock() = true;
            changed.notify_all();
        });
        let mut guard = mutex.lock();
        while !*guard {
            guard = changed.wait(guard);
        }
    });
    assert_eq!(size_of::<Sliced<Throughput>>(), size_of::<Throughput>());
}
