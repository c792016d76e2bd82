//! How long waiters poll, as their yields show: the bounds that docs/real-time.md gives for real-time tasks, and what a thread
//! learns from waits for owners that sleep. Each waiter here waits for what another task holds until the waiter sleeps.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use core::time::Duration;
use latchwork::event::{EventSet, Events};
use latchwork::mutex::Mutex;
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::RwLock;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore};
use latchwork::spin::Spin;
use latchwork_testkit::priority::{fifo, may_use_priorities};
use latchwork_testkit::{ThreadId, Trial, calls_in, count_calls};
use std::sync::{Mutex as StdMutex, mpsc};
use std::thread;

/// Waits of one thread, which may learn from them.
const WAITS: usize = 8;
/// Longer than each wait here.
const LONG: Duration = Duration::from_secs(3600);
/// As [`BRIEF`], and one for each further 100 pauses in 25 µs: a pause takes 4 ns at least.
const LONG_POLLS: Most = Most {
    before_first_sleep: 3 + 25_000 / 400,
    before_next: 3,
};

/// The yields of a wait, at most.
#[derive(Clone, Copy)]
struct Most {
    before_first_sleep: u32,
    before_next: u32,
}

const fn each(yields: u32) -> Most {
    Most {
        before_first_sleep: yields,
        before_next: yields,
    }
}

const NONE: Most = each(0);
/// 200 pauses, and a last interval that goes beyond them.
const BRIEF: Most = each(3);

/// How often the calling thread has slept, at least the times at which it did so in a lock.
fn sleeps() -> i64 {
    // SAFETY: all-zero is a valid rusage, which the kernel fills.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Whether the thread is blocked in a system call.
fn is_blocked(thread: &ThreadId) -> bool {
    let call = thread.call();
    call.starts_with(|first: char| first.is_ascii_digit())
}

/// What a thread did in one wait.
struct Wait {
    yields: u32,
    sleeps: u32,
}

/// A thread waits so often, each time until it sleeps. `hold` takes what it waits for, and returns a function that releases it;
/// `begin` is the thread's first step, and `wait` is the wait.
fn waits<R: FnOnce()>(
    trial: &Trial,
    number: usize,
    begin: impl FnOnce() + Send,
    hold: impl Fn() -> R,
    wait: impl Fn() + Sync,
) -> Vec<Wait> {
    let (thread_id, is_waiting) = (ThreadId::default(), AtomicBool::new(false));
    let (start, starts) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            begin();
            count_calls(&[libc::SYS_sched_yield]);
            thread_id.set();
            let next = |()| {
                let slept = sleeps();
                let yields = calls_in(&[libc::SYS_sched_yield], || {
                    is_waiting.store(true, SeqCst);
                    wait();
                });
                is_waiting.store(false, SeqCst);
                let sleeps = u32::try_from(sleeps() - slept).unwrap();
                Wait { yields, sleeps }
            };
            starts.into_iter().map(next).collect()
        });
        for _ in 0..number {
            let release = hold();
            start.send(()).unwrap();
            trial.wait_until(|| {
                waiter.is_finished() || is_waiting.load(SeqCst) && is_blocked(&thread_id)
            });
            release();
            // Else this thread could take what it has released again.
            trial.wait_until(|| waiter.is_finished() || !is_waiting.load(SeqCst));
        }
        drop(start);
        waiter.join().unwrap()
    })
}

/// A real-time thread waits several times, and yields as often as it should at most.
fn check<R: FnOnce()>(trial: &Trial, most: Most, hold: impl Fn() -> R, wait: impl Fn() + Sync) {
    let mut least = u32::MAX;
    for Wait { yields, sleeps } in waits(trial, WAITS, || fifo(1).give(0), hold, wait) {
        let before_next = most.before_next * (sleeps - 1);
        // A nap may end just before the release: the thread polls once more then.
        let bound = most.before_first_sleep + before_next + most.before_next;
        assert!(yields <= bound, "{yields} yields, {sleeps} sleeps");
        least = least.min(yields.saturating_sub(before_next));
    }
    assert!(least <= most.before_first_sleep, "{least} yields in each");
}

/// What `hold` returns for a lock.
fn held<G>(guard: G) -> impl FnOnce() {
    || drop(guard)
}

/// Waits for a lock: `lock` takes it, and returns its guard.
fn waits_for<G>(trial: &Trial, number: usize, lock: impl Fn() -> G + Sync) -> Vec<Wait> {
    waits(trial, number, || {}, || held(lock()), || drop(lock()))
}

/// Calls `check` for a lock: `lock` takes it, and returns its guard.
fn check_lock<G>(trial: &Trial, most: Most, lock: impl Fn() -> G + Sync) {
    check(trial, most, || held(lock()), || drop(lock()));
}

fn region() -> Region {
    let options = RegionOptions::new().max_bytes(4 << 20);
    options.create_anonymous().unwrap()
}

/// Runs a test that needs real-time priorities, with a region.
fn with_region(name: &'static str, body: impl FnOnce(&Trial, &Region)) {
    let trial = Trial::begin(name);
    if may_use_priorities(name) {
        body(&trial, &region());
    }
}

/// An owner never releases its lock before the waiter sleeps. Of 200 waits the first, third, 7th, 15th, 31st, 63rd, 127th and
/// 191st poll for as long as a wake-up takes.
#[test]
fn polls_for_an_owner_that_sleeps_become_rare() {
    let trial = Trial::begin("polls_for_an_owner_that_sleeps_become_rare");
    let expect_few = |waits: Vec<Wait>| {
        let is_long = |wait: &&Wait| wait.yields > BRIEF.before_next * wait.sleeps;
        let long = waits.iter().filter(is_long).count();
        assert!(long <= 8, "{long} of {} waits", waits.len());
    };
    let mutex: Mutex<u32> = Mutex::new(0);
    let lock = || mutex.lock();
    expect_few(waits_for(&trial, 200, lock));
    let mutex = pin!(Mutex::robust(0));
    let mutex: Pin<&_> = mutex.as_ref();
    expect_few(waits_for(&trial, 200, || mutex.lock().unwrap()));
    let region = region();
    let mutex = region.object("mutex", || Mutex::in_region(0)).unwrap();
    expect_few(waits_for(&trial, 200, || mutex.lock().unwrap()));
}

#[test]
fn a_wait_for_a_mutex_yields_as_often_as_it_should_at_most() {
    with_region(
        "a_wait_for_a_mutex_yields_as_often_as_it_should_at_most",
        |trial, region| {
            let mutex: Mutex<u32> = Mutex::new(0);
            check_lock(trial, BRIEF, || mutex.lock_for(LONG).unwrap());
            check_lock(trial, LONG_POLLS, || mutex.lock());
            let mutex = pin!(Mutex::robust(0));
            let mutex: Pin<&_> = mutex.as_ref();
            check_lock(trial, BRIEF, || mutex.lock_for(LONG).unwrap());
            check_lock(trial, LONG_POLLS, || mutex.lock().unwrap());
            let mutex = region.object("mutex", || Mutex::in_region(0)).unwrap();
            check_lock(trial, BRIEF, || mutex.lock_for(LONG).unwrap());
            check_lock(trial, LONG_POLLS, || mutex.lock().unwrap());
            let mutex: Mutex<_, latchwork::mutex::Inherit> = Mutex::inherit(0);
            check_lock(trial, NONE, || mutex.lock().unwrap());
            let mutex = Mutex::protect(2, 0);
            check_lock(trial, BRIEF, || mutex.lock().unwrap());
            let spin = Mutex::from_raw(Spin::new(), 0);
            check_lock(trial, NONE, || spin.lock());
        },
    );
}

#[test]
fn a_wait_for_a_throughput_lock_yields_as_often_as_it_should_at_most() {
    with_region(
        "a_wait_for_a_throughput_lock_yields_as_often_as_it_should_at_most",
        |trial, region| {
            let most = Most {
                before_first_sleep: 17,
                before_next: 6,
            };
            let mutex = Mutex::throughput(0);
            check_lock(trial, most, || mutex.lock());
            let mutex = region
                .object("mutex", || Mutex::in_region_throughput(0))
                .unwrap();
            check_lock(trial, most, || mutex.lock().unwrap());
        },
    );
}

#[test]
fn a_wait_for_a_reader_writer_lock_yields_as_often_as_it_should_at_most() {
    with_region(
        "a_wait_for_a_reader_writer_lock_yields_as_often_as_it_should_at_most",
        |trial, _| {
            let lock = RwLock::new(0);
            check_lock(trial, BRIEF, || lock.write());
            check(trial, BRIEF, || held(lock.write()), || drop(lock.read()));
            check(trial, BRIEF, || held(lock.read()), || drop(lock.write()));
        },
    );
}

#[test]
fn a_wait_for_a_semaphore_an_event_or_a_message_yields_as_often_as_it_should_at_most() {
    with_region(
        "a_wait_for_a_semaphore_an_event_or_a_message_yields_as_often_as_it_should_at_most",
        |trial, region| {
            for (name, options) in [
                ("plain", BinaryOptions::new()),
                ("inherit", BinaryOptions::new().inherit()),
            ] {
                let semaphore = BinarySemaphore::create(region, name, &options).unwrap();
                check_lock(trial, NONE, || semaphore.obtain().unwrap());
            }
            let events = Events::new(region);
            let receiver = StdMutex::new(None);
            let send = || {
                let task = receiver.lock().unwrap().take().unwrap();
                events.send(task, EventSet::event(0)).unwrap();
            };
            check(
                trial,
                each(3),
                || send,
                || {
                    *receiver.lock().unwrap() = Some(region.task_id().unwrap());
                    events.receive_any(EventSet::event(0)).unwrap();
                },
            );
            for (name, length) in [("short", 16), ("long", 1 << 16)] {
                let queue = Queue::create(region, name, &QueueOptions::new(1, length)).unwrap();
                let message = vec![0; length as usize];
                let receive = || drop(queue.receive_held().unwrap());
                check(
                    trial,
                    each(12),
                    || || queue.send(&message).unwrap(),
                    receive,
                );
                queue.send(&message).unwrap();
                check(
                    trial,
                    each(12),
                    || receive,
                    || queue.send(&message).unwrap(),
                );
            }
        },
    );
}
