//! Waits that no other task can end, and waits that another task can end.

use crate::at;
use crate::objects::region;
use crate::run::{Row, fault, harmless, thread};
use latchwork::check::{self, Rule};
use latchwork::queue::{Queue, QueueOptions, spsc::Spsc};
use latchwork::region::RegionOptions;
use latchwork::semaphore::{CountingSemaphore, Discipline, ObtainError, SimpleBinarySemaphore};
use latchwork_testkit::Child;
use std::thread::scope;
use std::time::Duration;

pub fn rows() -> Vec<Row> {
    vec![
        fault(
            "a simple binary semaphore obtained twice by the only task",
            Rule::NoLoneWait,
            &[("main", "", "s")],
            || {
                let region = region();
                let semaphore = SimpleBinarySemaphore::create(&region, "s", 1, Discipline::Fifo);
                let semaphore = semaphore.unwrap();
                semaphore.obtain().unwrap();
                let _ = at!("s", semaphore.obtain());
            },
        ),
        fault(
            "an empty queue, and only one task",
            Rule::NoLoneWait,
            &[("main", "", "q")],
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(4, 8)).unwrap();
                let _ = at!("q", queue.receive(&mut [0; 8]));
            },
        ),
        fault(
            "a full queue, and only one task",
            Rule::NoLoneWait,
            &[("main", "", "q")],
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(1, 8)).unwrap();
                queue.send(b"first").unwrap();
                let _ = at!("q", queue.send(b"second"));
            },
        ),
        fault(
            "an empty ring, and only one task",
            Rule::NoLoneWait,
            &[("main", "", "r")],
            || {
                let region = region();
                let ring = Spsc::create(&region, "r", &QueueOptions::new(4, 8)).unwrap();
                let mut receiver = ring.receiver().unwrap();
                let _ = at!("r", receiver.receive(&mut [0; 8]));
            },
        ),
        fault(
            "a full ring, and only one task",
            Rule::NoLoneWait,
            &[("main", "", "r")],
            || {
                let region = region();
                let ring = Spsc::create(&region, "r", &QueueOptions::new(1, 8)).unwrap();
                let mut sender = ring.sender().unwrap();
                sender.send(b"first").unwrap();
                let _ = at!("r", sender.send(b"second"));
            },
        ),
        harmless("the only task waits until a deadline", || {
            let region = region();
            let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo).unwrap();
            let waited = semaphore.obtain_for(Duration::from_millis(2));
            assert!(matches!(waited, Err(ObtainError::TimedOut)));
        }),
        harmless("the only task waits for a child that is none yet", || {
            let region = region();
            let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo).unwrap();
            let (from, mut to) = std::io::pipe().unwrap();
            let child = Child::fork(|| {
                // When its parent sleeps, or soon.
                let _ = std::io::Read::read(&mut &from, &mut [0]);
                semaphore.release().unwrap();
            });
            std::io::Write::write_all(&mut to, &[0]).unwrap();
            semaphore.obtain().unwrap();
            child.succeed();
        }),
        harmless("a child waits for its parent, which is no task", || {
            check::begin();
            let made = RegionOptions::new().max_bytes(4 << 20).create_anonymous();
            let region = made.unwrap();
            let (mut from, to) = std::io::pipe().unwrap();
            let child = Child::fork(|| {
                let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo);
                std::io::Write::write_all(&mut &to, &[0]).unwrap();
                semaphore.unwrap().obtain().unwrap();
            });
            std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
            CountingSemaphore::open(&region, "s")
                .unwrap()
                .release()
                .unwrap();
            child.succeed();
        }),
        harmless("the only task of the region waits for a thread", || {
            let region = region();
            let semaphore = CountingSemaphore::create(&region, "s", 0, Discipline::Fifo).unwrap();
            // The thread may release the semaphore and end while this one is about to wait.
            for _ in 0..500 {
                scope(|scope| {
                    thread(scope, "other", || semaphore.release().unwrap());
                    semaphore.obtain().unwrap();
                });
            }
        }),
        harmless(
            "the only task of the region waits for a thread's message",
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(1, 8)).unwrap();
                for _ in 0..500 {
                    scope(|scope| {
                        thread(scope, "other", || queue.send(b"message").unwrap());
                        queue.receive(&mut [0; 8]).unwrap();
                    });
                }
            },
        ),
        harmless(
            "the only task of the region waits for a thread to make room",
            || {
                let region = region();
                let queue = Queue::create(&region, "q", &QueueOptions::new(1, 8)).unwrap();
                for _ in 0..500 {
                    queue.send(b"first").unwrap();
                    scope(|scope| {
                        thread(scope, "other", || queue.receive(&mut [0; 8]).unwrap());
                        queue.send(b"second").unwrap();
                    });
                    queue.receive(&mut [0; 8]).unwrap();
                }
            },
        ),
        harmless("the receiver of a ring waits for a thread", || {
            let region = region();
            let ring = Spsc::create(&region, "r", &QueueOptions::new(1, 8)).unwrap();
            let mut receiver = ring.receiver().unwrap();
            for _ in 0..500 {
                scope(|scope| {
                    thread(scope, "other", || {
                        ring.sender().unwrap().send(b"message").unwrap();
                    });
                    receiver.receive(&mut [0; 8]).unwrap();
                });
            }
        }),
    ]
}
