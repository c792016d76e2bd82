//! Processes that are killed while a thread's locks, and its slot of a region, pass to the keeper. (`loom_keeper` kills at
//! each pair of steps; here the kernel is the real one.)
#![cfg(not(loom))]

use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{LockError, Mutex};
use latchwork::queue::{Queue, QueueOptions, Wait};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{self, RobustRwLock};
use latchwork::semaphore::{PriorityMutex, PriorityMutexOptions, priority_mutex};
use latchwork_testkit::{Child, Exit, Mapped, Trial};
use std::thread;
use std::time::Instant;

/// The threads of a process, one after the other; each leaves one of everything.
const THREADS: usize = 6;

/// Few slots: one that is lost in each round would soon be missed.
fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(THREADS as u16 + 4)
        .label("kill_keeper")
        .create_anonymous()
        .unwrap()
}

#[test]
fn a_process_killed_during_the_hand_over_leaves_everything_to_others() {
    let trial = Trial::begin("a_process_killed_during_the_hand_over_leaves_everything_to_others");
    let region = region();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(16, 16)).unwrap();
    let plain = region.object("plain", || [const { Mutex::robust(0_u64) }; THREADS]);
    let plain = plain.unwrap();
    let plans: [_; THREADS] = core::array::from_fn(|number| {
        let options = PriorityMutexOptions::new();
        PriorityMutex::create(&region, &format!("plan {number}"), &options, || 0_u64).unwrap()
    });
    let queued = Mapped::new([const { Mutex::robust_throughput(0_u64) }; THREADS]);
    let read = Mapped::new(RobustRwLock::<u64, THREADS>::new(0));
    let written = Mapped::new([const { RobustRwLock::<u64, 2>::new(0) }; THREADS]);
    let [mut inside, mut over] = [0, 0];
    let mut lasts = Duration::from_millis(5);
    let mut rng = trial.seed().rng(0);
    for round in 0..trial.times(200) {
        for number in 0..THREADS as u8 {
            queue.try_send(&[number]).unwrap();
        }
        let ended = Mapped::new(AtomicU32::new(0));
        let mut child = Child::fork(|| {
            let plain = latchwork::region::each_pinned(plain).collect::<Vec<_>>();
            for (number, plain) in plain.iter().enumerate() {
                thread::scope(|scope| {
                    let leaves = scope.spawn(|| {
                        forget(plain.lock().unwrap());
                        forget(plans[number].lock().unwrap());
                        forget(queued.each()[number].lock().unwrap());
                        forget(read.pin().read().unwrap());
                        forget(written.each()[number].write().unwrap());
                        forget(queue.receive_held().unwrap());
                        forget(queue.reserve(Wait::Not).unwrap());
                    });
                    leaves.join().unwrap();
                });
                ended.fetch_add(1, SeqCst);
            }
            loop {
                thread::park();
            }
        });
        if round == 0 {
            let begin = Instant::now();
            trial.wait_until(|| ended.load(SeqCst) == THREADS as u32);
            lasts = begin.elapsed();
        } else {
            thread::sleep(lasts.mul_f64(rng.f64()));
        }
        assert_eq!(child.kill(), Exit::Signal(9));
        match ended.load(SeqCst) as usize {
            THREADS => over += 1,
            _ => inside += 1,
        }
        for lock in latchwork::region::each_pinned(plain) {
            match lock.lock() {
                Ok(_) => {}
                Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
                Err(error) => panic!("{error}"),
            }
        }
        for plan in plans {
            match plan.lock() {
                Ok(_) => {}
                Err(priority_mutex::LockError::OwnerDied(died)) => drop(died.make_consistent()),
                Err(error) => panic!("{error}"),
            }
        }
        for lock in queued.each() {
            match lock.lock() {
                Ok(_) => {}
                Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
                Err(error) => panic!("{error}"),
            }
        }
        drop(read.pin().write().unwrap());
        for lock in written.each() {
            match lock.write() {
                Ok(_) => {}
                Err(rwlock::LockError::OwnerDied(died)) => drop(died.make_consistent()),
                Err(error) => panic!("{error}"),
            }
        }
        region.sweep().unwrap();
        let mut found = [false; THREADS];
        for _ in 0..THREADS {
            let message = queue.try_receive_held().unwrap();
            found[usize::from(message[0])] = true;
        }
        assert_eq!(found, [true; THREADS], "a message was lost, or came twice");
        assert!(queue.is_consistent().unwrap());
        trial.progress();
    }
    println!("killed {inside} times before the last thread had ended, {over} times after it");
}
