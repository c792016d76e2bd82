//! Semaphores and queues, also together with other locks.
#![allow(unsafe_code)]

use crate::at;
use crate::kinds::plain;
use crate::misuse::rwlock;
use crate::owned::Owned;
use crate::run::{Row, fault, harmless, name_thread, thread};
use latchwork::check::{self, Checked, Rule};
use latchwork::mutex::{Protocol, WaitWake};
use latchwork::queue::{Queue, QueueOptions, spsc::Spsc};
use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, Priority, SimpleBinarySemaphore,
};
use latchwork::sharing::Shared;
use latchwork_testkit::Child;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

/// A region whose objects report to the checker. On a busy machine each wait may last long, also those of tasks at a
/// ceiling, so inversions are checked only where they are planted.
pub fn region() -> Region {
    check::begin();
    check::set_inversion(Duration::ZERO);
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

pub const CEILING: Priority = Priority::new(50).unwrap();

pub fn rows() -> Vec<Row> {
    let mut rows = single_rows();
    rows.extend(harmless_rows());
    rows
}

fn single_rows() -> Vec<Row> {
    vec![
        fault(
            "cycle of a semaphore and a reader/writer lock",
            Rule::NoDeadlock,
            &[("one", "s", "rw"), ("two", "rw", "s")],
            || {
                let region = region();
                let semaphore = Owned::make::<2>(&region, "s");
                let lock = rwlock("rw");
                let all = Barrier::new(2);
                scope(|scope| {
                    thread(scope, "one", || {
                        at!("s", semaphore.obtain()).unwrap();
                        all.wait();
                        drop(at!("rw", lock.write()));
                        std::thread::park();
                    });
                    thread(scope, "two", || {
                        let _reading = at!("rw", lock.read());
                        all.wait();
                        let _ = at!("s", semaphore.obtain());
                        std::thread::park();
                    });
                });
            },
        ),
        fault(
            "cycle of semaphores and a mutex through two processes",
            Rule::NoDeadlock,
            &[("one", "s", "m"), ("two", "m", "s")],
            || {
                name_thread("one");
                let region = region();
                let make = || Checked::<WaitWake<Shared>>::named("m", WaitWake::new());
                let mutex = region.object("mutex", make).unwrap();
                let ready = CountingSemaphore::create(&region, "ready", 0, Discipline::Fifo);
                let ready = ready.unwrap();
                let semaphore = Owned::make::<0>(&region, "s");
                at!("s", semaphore.obtain()).unwrap();
                let mut other = Child::fork(|| {
                    name_thread("two");
                    let _ = at!("m", mutex.acquire());
                    ready.release().unwrap();
                    let _ = at!("s", semaphore.obtain());
                    std::thread::park();
                });
                ready.obtain().unwrap();
                let _ = at!("m", mutex.acquire());
                other.wait();
            },
        ),
        fault(
            "a MrsP semaphore obtained again",
            Rule::NoRecursion,
            &[("main", "s", "s")],
            || {
                let region = region();
                let semaphore = Owned::make::<3>(&region, "s");
                at!("s", semaphore.obtain()).unwrap();
                assert!(at!("s", semaphore.obtain()).is_err());
                semaphore.release();
            },
        ),
        fault(
            "a semaphore that was made obtained, and a mutex",
            Rule::NoDeadlock,
            &[("main", "s", "m"), ("other", "m", "s")],
            || {
                let region = region();
                let options = BinaryOptions::new().obtained();
                let semaphore = at!("s", BinarySemaphore::create(&region, "s", &options));
                let semaphore = semaphore.unwrap();
                let mutex = plain("m");
                let held = Barrier::new(2);
                scope(|scope| {
                    thread(scope, "other", || {
                        let _ = at!("m", mutex.acquire());
                        held.wait();
                        let _ = at!("s", semaphore.obtain());
                        std::thread::park();
                    });
                    held.wait();
                    let _ = at!("m", mutex.acquire());
                });
            },
        ),
        fault(
            "a counting semaphore deleted while a task waits",
            Rule::NoDeleteInUse,
            &[("main", "", "s")],
            || {
                let region = region();
                let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo);
                let semaphore = semaphore.unwrap();
                scope(|scope| {
                    thread(scope, "waiter", || drop(semaphore.obtain()));
                    while semaphore.waiting() == 0 {
                        std::thread::yield_now();
                    }
                    at!("s", semaphore.delete()).unwrap();
                });
            },
        ),
        fault(
            "a counting semaphore released after its end",
            Rule::InitialisedByInterface,
            &[("main", "", "s")],
            || {
                let region = region();
                let semaphore = CountingSemaphore::create(&region, "s", 1, Discipline::Fifo);
                let semaphore = semaphore.unwrap();
                semaphore.delete().unwrap();
                assert!(at!("s", semaphore.release()).is_err());
            },
        ),
        fault(
            "a queue deleted while a task waits",
            Rule::NoDeleteInUse,
            &[("main", "", "q")],
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
                scope(|scope| {
                    thread(scope, "waiter", || drop(queue.receive(&mut [0; 8])));
                    // It may have slept before, for something else.
                    while crate::bounds::waiting() == 0 || !sleeps("waiter") {
                        std::thread::yield_now();
                    }
                    at!("q", queue.delete()).unwrap();
                });
            },
        ),
        fault(
            "a message sent to a deleted queue",
            Rule::InitialisedByInterface,
            &[("main", "", "q")],
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
                queue.delete().unwrap();
                assert!(at!("q", queue.send(b"late")).is_err());
            },
        ),
        fault(
            "a message awaited from a deleted queue",
            Rule::InitialisedByInterface,
            &[("main", "", "q")],
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
                queue.delete().unwrap();
                assert!(at!("q", queue.receive(&mut [0; 8])).is_err());
            },
        ),
        fault(
            "a message sent to a deleted ring",
            Rule::InitialisedByInterface,
            &[("main", "", "r")],
            || {
                let region = region();
                let ring = Spsc::create(&region, "r", &QueueOptions::new(4, 8)).unwrap();
                let mut sender = ring.sender().unwrap();
                ring.delete().unwrap();
                assert!(at!("r", sender.send(b"late")).is_err());
            },
        ),
        fault(
            "a ring deleted twice",
            Rule::InitialisedByInterface,
            &[("main", "", "r")],
            || {
                let region = region();
                let ring = Spsc::create(&region, "r", &QueueOptions::new(4, 8)).unwrap();
                ring.delete().unwrap();
                assert!(at!("r", ring.delete()).is_err());
            },
        ),
    ]
}

/// Whether a thread of this name sleeps.
fn sleeps(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.any(|stat| stat.contains(&format!("({name}) S ")))
}

fn harmless_rows() -> Vec<Row> {
    vec![
        harmless("a semaphore that its owner obtains again", || {
            let region = region();
            let options = BinaryOptions::new().inherit();
            let semaphore = BinarySemaphore::create(&region, "s", &options).unwrap();
            let outer = semaphore.obtain().unwrap();
            let inner = semaphore.obtain().unwrap();
            drop(outer);
            drop(inner);
            semaphore.delete().unwrap();
        }),
        harmless("a guard whose semaphore was released by hand", || {
            let region = region();
            let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
            let held = semaphore.obtain().unwrap();
            semaphore.release().unwrap();
            drop(held);
        }),
        harmless("a guard that a child has inherited", || {
            let region = region();
            let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
            let mut held = Some(semaphore.obtain().unwrap());
            Child::fork(|| drop(held.take())).succeed();
            drop(held);
        }),
        harmless("a handle that was made before anybody listened", || {
            let made = RegionOptions::new().max_bytes(4 << 20).create_anonymous();
            let region = made.unwrap();
            let options = BinaryOptions::new();
            let early = BinarySemaphore::create(&region, "s", &options).unwrap();
            check::begin();
            let late = BinarySemaphore::open(&region, "s").unwrap();
            early.obtain().unwrap().keep();
            scope(|scope| {
                thread(scope, "other", || drop(late.obtain().unwrap()));
                while late.waiting() == 0 {
                    std::thread::yield_now();
                }
                late.release().unwrap();
            });
            drop(early.obtain().unwrap());
        }),
        harmless("a semaphore whose owner died", || {
            let region = region();
            let semaphore = BinarySemaphore::create(&region, "s", &BinaryOptions::new()).unwrap();
            let mut victim = Child::fork(|| {
                semaphore.obtain().unwrap().keep();
                std::thread::park();
            });
            while semaphore.owner().is_none() {
                std::thread::yield_now();
            }
            victim.kill();
            let held = semaphore.obtain().unwrap();
            assert!(held.owner_died());
            drop(held);
            drop(semaphore.obtain().unwrap());
        }),
        harmless("one task obtains, another releases: no owner", || {
            let region = region();
            let semaphore = SimpleBinarySemaphore::create(&region, "s", 1, Discipline::Fifo);
            let semaphore = semaphore.unwrap();
            let lock = plain("a");
            semaphore.obtain().unwrap();
            scope(|scope| {
                thread(scope, "other", || {
                    let _ = lock.acquire();
                    semaphore.release().unwrap();
                    // SAFETY: taken.
                    unsafe {
                        lock.release();
                    }
                });
                semaphore.obtain().unwrap();
            });
            semaphore.release().unwrap();
            assert!(semaphore.release().is_ok());
        }),
        harmless("a queue that is flushed and deleted", || {
            let region = region();
            let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
            scope(|scope| {
                thread(scope, "sender", || {
                    for _ in 0..100 {
                        queue.send(b"message").unwrap();
                    }
                });
                for _ in 0..100 {
                    queue.receive(&mut [0; 8]).unwrap();
                }
            });
            queue.send(b"message").unwrap();
            queue.flush().unwrap();
            queue.delete().unwrap();
            let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
            queue.send(b"message").unwrap();
        }),
        harmless("a ring that is deleted, and one of its name", || {
            let region = region();
            for _ in 0..2 {
                let ring = Spsc::create(&region, "r", &QueueOptions::new(4, 8)).unwrap();
                ring.sender().unwrap().send(b"message").unwrap();
                ring.receiver().unwrap().receive(&mut [0; 8]).unwrap();
                ring.delete().unwrap();
            }
        }),
    ]
}
