//! Regions where `futex_waitv` is refused: on Linux before 5.16, and in the sandboxes of some container engines.
//!
//! (`ci/test.sh` also runs kill tests by the program `without_waitv` of the testkit.)

#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::isolated;
use core::time::Duration;
use latchwork::coproc::{Attributes, Outcome, Signal, wait_any};
use latchwork::event::{EventSet, Events};
use latchwork::mutex::Mutex;
use latchwork::mutex::in_region::LockError;
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork_testkit::{ThreadId, Trial, in_dying_thread, refuse};
use std::thread;

/// What sandboxes return for a call that they do not know.
const REFUSALS: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EACCES];
/// Longer than the sleep by which a wait in a region may begin. (A test that waits less shows less, and does not fail.)
const FIRST_SLEEP: Duration = Duration::from_millis(20);

/// In a process of its own, with each of the refusals.
fn without_waitv(body: fn(&Region)) {
    for error in REFUSALS {
        isolated(|| {
            refuse(libc::SYS_futex_waitv, error);
            let options = RegionOptions::new().max_bytes(4 << 20).max_tasks(16);
            body(&options.create_anonymous().unwrap());
        });
    }
}

/// Runs `act` in another task when the calling thread, which goes on with `wait`, has slept for a while.
fn while_asleep<R>(region: &Region, act: impl FnOnce() + Send, wait: impl FnOnce() -> R) -> R {
    let waiter = ThreadId::default();
    waiter.set();
    thread::scope(|scope| {
        scope.spawn(|| {
            region.join("other").unwrap();
            waiter.wait_until_in_futex();
            thread::sleep(FIRST_SLEEP);
            act();
        });
        wait()
    })
}

#[test]
fn an_owners_death_is_reported() {
    let _trial = Trial::begin("an_owners_death_is_reported");
    without_waitv(|region| {
        let lock = region.object("lock", || Mutex::in_region(0_u64)).unwrap();
        let take = || {
            let mut held = lock.lock().unwrap();
            *held = 1;
            core::mem::forget(held);
        };
        let Err(LockError::OwnerDied(died)) = while_its_owner_dies(take, || lock.lock()) else {
            panic!("the owner's death was not reported");
        };
        assert_eq!(*died.make_consistent(), 1);
        assert_eq!(*lock.lock().unwrap(), 1);
    });
}

/// Runs `wait` in a task that goes to sleep in it, while another one has what it waits for, and dies.
fn while_its_owner_dies<R>(take: impl FnOnce() + Send, wait: impl FnOnce() -> R) -> R {
    let (waiter, is_taken) = (ThreadId::default(), std::sync::Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            in_dying_thread(|| {
                take();
                is_taken.wait();
                waiter.wait_until_in_futex();
                thread::sleep(FIRST_SLEEP);
            });
        });
        is_taken.wait();
        waiter.set();
        wait()
    })
}

/// Their waiters check no owner by themselves, as those for a lock do.
#[test]
fn what_a_dead_task_had_goes_to_a_sleeper() {
    let _trial = Trial::begin("what_a_dead_task_had_goes_to_a_sleeper");
    without_waitv(|region| {
        let queue = Queue::create(region, "queue", &QueueOptions::new(1, 8)).unwrap();
        let mut buffer = [0; 8];
        let take = || {
            queue.send(b"again").unwrap();
            core::mem::forget(queue.receive_held().unwrap());
        };
        let received = while_its_owner_dies(take, || queue.receive(&mut buffer));
        assert_eq!(&buffer[..received.unwrap()], b"again");

        let options = BinaryOptions::new();
        let semaphore = BinarySemaphore::create(region, "semaphore", &options).unwrap();
        let take = || semaphore.obtain().unwrap().keep();
        drop(while_its_owner_dies(take, || semaphore.obtain()).unwrap());
    });
}

#[test]
fn waits_end_by_what_they_wait_for_and_by_their_deadlines() {
    let _trial = Trial::begin("waits_end_by_what_they_wait_for_and_by_their_deadlines");
    without_waitv(|region| {
        let soon = Duration::from_millis(120);
        let queue = Queue::create(region, "queue", &QueueOptions::new(1, 8)).unwrap();
        let mut buffer = [0; 8];
        let sent = while_asleep(
            region,
            || queue.send(b"there").unwrap(),
            || queue.receive(&mut buffer),
        );
        assert_eq!(&buffer[..sent.unwrap()], b"there");
        assert!(queue.receive_for(&mut buffer, soon).is_err());

        let units = CountingSemaphore::create(region, "units", 0, Discipline::Fifo).unwrap();
        while_asleep(region, || units.release().unwrap(), || units.obtain()).unwrap();
        assert!(units.obtain_for(soon).is_err());

        let events = Events::new(region);
        let (mine, event) = (region.task_id().unwrap(), EventSet::event(4));
        let send = || events.send(mine, event).unwrap();
        let received = while_asleep(region, send, || events.receive_any(event));
        assert_eq!(received.unwrap(), event);
        assert!(events.receive_any_for(event, soon).is_err());
    });
}

#[test]
fn coprocs_start_and_are_joined() {
    let _trial = Trial::begin("coprocs_start_and_are_joined");
    without_waitv(|region| {
        let options = latchwork::coproc::Options::new().pool(1);
        let coprocs = coproc_support::start_with(region, &options).unwrap();
        let start = |millis: u64| {
            let work = |_: &Region, millis| {
                thread::sleep(Duration::from_millis(millis));
                7
            };
            coprocs
                .spawn_value(work, millis, &Attributes::new())
                .unwrap()
        };
        let (long, short) = (start(100_000), start(100));
        assert_eq!(wait_any(&[&long, &short], None).unwrap(), 1);
        assert_eq!(short.join().unwrap().outcome, Outcome::Returned(7));
        long.kill(Signal::KILL).unwrap();
        let ended = long.join().unwrap().outcome;
        assert!(matches!(
            ended,
            Outcome::Signalled {
                signal: libc::SIGKILL,
                ..
            }
        ));
    });
}

#[test]
fn a_watched_queue_says_when_it_has_a_message() {
    let _trial = Trial::begin("a_watched_queue_says_when_it_has_a_message");
    without_waitv(|region| {
        let queue = Queue::create(region, "queue", &QueueOptions::new(1, 8)).unwrap();
        let watch = queue.watch().unwrap();
        thread::sleep(FIRST_SLEEP);
        queue.send(b"there").unwrap();
        let ready = |timeout| {
            use std::os::fd::AsRawFd as _;
            let mut poll = libc::pollfd {
                fd: watch.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor, which lives as long as its watch.
            unsafe { libc::poll(&raw mut poll, 1, timeout) }
        };
        assert_eq!(ready(100_000), 1);
        assert_eq!(queue.try_receive(&mut [0; 8]).unwrap(), 5);
        // Its thread sleeps on two words of its own, and the second one changes.
        thread::sleep(FIRST_SLEEP);
        drop(watch);
    });
}
