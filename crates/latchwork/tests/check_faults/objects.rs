//! Semaphores and queues.
#![allow(unsafe_code)]

use crate::at;
use crate::kinds::plain;
use crate::misuse::rwlock;
use crate::run::{Row, fault, harmless, name_thread, thread};
use latchwork::check::{self, Checked, Rule};
use latchwork::mutex::{Protocol, WaitWake};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, Held, MrspHeld, MrspSemaphore,
    ObtainError, Priority, SimpleBinarySemaphore, UseError,
};
use latchwork::sharing::Shared;
use latchwork_testkit::Child;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

/// A region, and a checker that is told of what lies in it. On a busy machine each wait lasts long, of tasks at a ceiling,
/// too: inversions are looked for where they are planted.
pub fn region() -> Region {
    check::begin();
    check::set_inversion(Duration::ZERO);
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

const KINDS: [&str; 4] = ["plain", "ceiling", "inheriting", "MrsP"];
pub const CEILING: Priority = Priority::new(50).unwrap();

/// A semaphore with an owner, of any kind. Guards are kept.
#[derive(Clone, Copy)]
enum Owned<'r> {
    Binary(BinarySemaphore<'r>),
    Mrsp(MrspSemaphore<'r>),
}

impl<'r> Owned<'r> {
    fn make<const KIND: usize>(region: &'r Region, name: &str) -> Self {
        let options = match KIND {
            1 => BinaryOptions::new().ceiling(CEILING),
            2 => BinaryOptions::new().inherit(),
            _ => BinaryOptions::new(),
        };
        match KIND {
            3 => Self::Mrsp(MrspSemaphore::create(region, name, CEILING).unwrap()),
            _ => Self::Binary(BinarySemaphore::create(region, name, &options).unwrap()),
        }
    }

    #[track_caller]
    fn obtain(self) -> Result<(), ObtainError> {
        match self {
            Self::Binary(semaphore) => semaphore.obtain().map(Held::keep),
            Self::Mrsp(semaphore) => semaphore.obtain().map(MrspHeld::keep),
        }
    }

    #[track_caller]
    fn release(self) -> bool {
        match self {
            Self::Binary(semaphore) => semaphore.release().is_ok(),
            Self::Mrsp(semaphore) => semaphore.release().is_ok(),
        }
    }

    #[track_caller]
    fn delete(self) -> Result<(), UseError> {
        match self {
            Self::Binary(semaphore) => semaphore.delete(),
            Self::Mrsp(semaphore) => semaphore.delete(),
        }
    }
}

/// A row for each kind.
macro_rules! each_owned {
    ($rows:ident, $($make:ident),*) => {$(
        $rows.extend([$make::<0>(), $make::<1>(), $make::<2>(), $make::<3>()]);
    )*};
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    each_owned!(rows, not_had, anothers, released_twice, exit_holding);
    each_owned!(rows, deleted_while_owned, used_after_its_end);
    each_owned!(rows, circle_of_two, with_a_mutex, two_orders);
    each_owned!(rows, orderly);
    rows.extend([above_ceiling::<1>(), above_ceiling::<3>()]);
    rows.extend(single_rows());
    rows.extend(harmless_rows());
    rows
}

fn row<const KIND: usize>(name: &str, rule: Rule, tasks: crate::run::Tasks, body: fn()) -> Row {
    fault(
        format!("{name}, {} semaphore", KINDS[KIND]),
        rule,
        tasks,
        body,
    )
}

fn not_had<const KIND: usize>() -> Row {
    let tasks = &[("main", "", "s")];
    row::<KIND>(
        "released, never obtained",
        Rule::NoDoubleUnlock,
        tasks,
        || {
            let region = region();
            let semaphore = Owned::make::<KIND>(&region, "s");
            region.join("main").unwrap();
            assert!(!at!("s", semaphore.release()));
        },
    )
}

fn anothers<const KIND: usize>() -> Row {
    let tasks = &[("other", "", "s"), ("main", "s", "")];
    row::<KIND>("released by another", Rule::OwnerUnlocks, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        at!("s", semaphore.obtain()).unwrap();
        scope(|scope| {
            thread(scope, "other", || {
                region.join("other").unwrap();
                assert!(!at!("s", semaphore.release()));
            });
        });
        semaphore.release();
    })
}

fn released_twice<const KIND: usize>() -> Row {
    let tasks = &[("main", "", "s")];
    row::<KIND>("released twice", Rule::NoDoubleUnlock, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        semaphore.obtain().unwrap();
        crate::run::mark_release(line!() + 1);
        semaphore.release();
        at!("s", semaphore.release());
    })
}

fn exit_holding<const KIND: usize>() -> Row {
    let tasks = &[("quitter", "s", "")];
    row::<KIND>("exit holding", Rule::NoExitHolding, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        scope(|scope| {
            let quitter = thread(scope, "quitter", || at!("s", semaphore.obtain()).unwrap());
            quitter.join().unwrap();
        });
    })
}

fn deleted_while_owned<const KIND: usize>() -> Row {
    let tasks = &[("other", "", "s"), ("main", "s", "")];
    row::<KIND>("deleted while owned", Rule::NoDeleteInUse, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        at!("s", semaphore.obtain()).unwrap();
        scope(|scope| {
            thread(scope, "other", || {
                let deleted = at!("s", semaphore.delete());
                assert!(matches!(deleted, Err(UseError::InUse)));
            });
        });
        semaphore.release();
    })
}

fn used_after_its_end<const KIND: usize>() -> Row {
    let (rule, tasks) = (Rule::InitialisedByInterface, &[("main", "", "s")]);
    row::<KIND>("used after its end", rule, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        semaphore.obtain().unwrap();
        semaphore.release();
        semaphore.delete().unwrap();
        assert!(at!("s", semaphore.obtain()).is_err());
    })
}

fn above_ceiling<const KIND: usize>() -> Row {
    let tasks = &[("main", "", "s")];
    row::<KIND>("above the ceiling", Rule::WithinCeiling, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        let me = region.task_id().unwrap();
        me.set_priority(&region, Priority::HIGHEST).unwrap();
        assert!(at!("s", semaphore.obtain()).is_err());
    })
}

fn circle_of_two<const KIND: usize>() -> Row {
    let tasks = &[("one", "s", "t"), ("two", "t", "s")];
    row::<KIND>("circle of two", Rule::NoDeadlock, tasks, || {
        let region = region();
        let s = Owned::make::<KIND>(&region, "s");
        let t = Owned::make::<KIND>(&region, "t");
        let all = Barrier::new(2);
        let cross = |names: [&str; 2], first: Owned<'_>, second: Owned<'_>| {
            crate::run::mark(names[0], line!() + 1);
            first.obtain().unwrap();
            all.wait();
            crate::run::mark(names[1], line!() + 1);
            let _ = second.obtain();
            std::thread::park();
        };
        scope(|scope| {
            thread(scope, "one", || cross(["s", "t"], s, t));
            thread(scope, "two", || cross(["t", "s"], t, s));
        });
    })
}

fn with_a_mutex<const KIND: usize>() -> Row {
    let tasks = &[("one", "s", "m"), ("two", "m", "s")];
    row::<KIND>("circle with a mutex", Rule::NoDeadlock, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        let mutex = plain("m");
        let all = Barrier::new(2);
        scope(|scope| {
            thread(scope, "one", || {
                at!("s", semaphore.obtain()).unwrap();
                all.wait();
                let _ = at!("m", mutex.acquire());
                std::thread::park();
            });
            thread(scope, "two", || {
                let _ = at!("m", mutex.acquire());
                all.wait();
                let _ = at!("s", semaphore.obtain());
                std::thread::park();
            });
        });
    })
}

fn two_orders<const KIND: usize>() -> Row {
    let tasks = &[("one", "s", "m"), ("two", "m", "s")];
    row::<KIND>("two orders with a mutex", Rule::OneOrder, tasks, || {
        let region = region();
        let semaphore = Owned::make::<KIND>(&region, "s");
        let mutex = plain("m");
        let in_turn = |name, body: &(dyn Fn() + Sync)| {
            scope(|scope| thread(scope, name, body).join().unwrap());
        };
        // SAFETY: taken by the caller.
        let unlock = || unsafe { mutex.release() };
        in_turn("one", &|| {
            at!("s", semaphore.obtain()).unwrap();
            let _ = at!("m", mutex.acquire());
            unlock();
            semaphore.release();
        });
        in_turn("two", &|| {
            let _ = at!("m", mutex.acquire());
            at!("s", semaphore.obtain()).unwrap();
            semaphore.release();
            unlock();
        });
    })
}

fn orderly<const KIND: usize>() -> Row {
    let name = format!("orderly use, {} semaphore", KINDS[KIND]);
    harmless(name, || {
        let region = region();
        let s = Owned::make::<KIND>(&region, "s");
        let t = Owned::make::<KIND>(&region, "t");
        let both = || {
            for _ in 0..100 {
                s.obtain().unwrap();
                t.obtain().unwrap();
                t.release();
                s.release();
            }
        };
        scope(|scope| {
            for _ in 0..3 {
                thread(scope, "other", both);
            }
        });
        both();
        Child::fork(both).succeed();
        s.delete().unwrap();
        // Another one of the name.
        let s = Owned::make::<KIND>(&region, "s");
        s.obtain().unwrap();
        s.release();
    })
}

fn single_rows() -> Vec<Row> {
    vec![
        fault(
            "circle of a semaphore and a reader/writer lock",
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
            "circle of semaphores and a mutex through two processes",
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
    ]
}
