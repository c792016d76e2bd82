//! Wait-for cycles, reported when they are completed; waits that are too long, or for a task of lower priority.
#![allow(unsafe_code)]

use crate::kinds::{Make, plain};
use crate::misuse::rwlock;
use crate::run::{Row, Tasks, fault, thread};
use crate::{at, each};
use latchwork::check::{self, Checked, CheckedRwLock, Refused, Refuses, Rule};
use latchwork::condvar::Condvar;
use latchwork::mutex::{LockError, Mutex, Protect, Protocol, Robust, WaitWake};
use latchwork::rwlock::{RawRwLock, ReadersFirst};
use latchwork::sharing::{Private, Shared};
use std::pin::Pin;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    each!(rows, cycle_of_two);
    rows.extend(single_rows());
    if may_be_real_time() {
        rows.extend(inversions());
    }
    rows
}

const TWO: Tasks = &[("one", "a", "b"), ("two", "b", "a")];

/// Takes the first, and when all have theirs, the second.
fn cross<P: Make>(
    all: &Barrier,
    (first, first_line): (&Checked<P>, &str),
    second: (&Checked<P>, &str),
) {
    crate::run::mark(first_line, line!() + 1);
    let _ = first.acquire();
    all.wait();
    crate::run::mark(second.1, line!() + 1);
    let _ = second.0.acquire();
    // One that the kernel refuses, for the same reason, or that the other has left.
    std::thread::park();
}

fn cycle_of_two<P: Make>() -> Row {
    fn body<P: Make>() {
        let (a, b) = (P::checked("a"), P::checked("b"));
        let all = Barrier::new(2);
        scope(|scope| {
            thread(scope, "one", || cross(&all, (&a, "a"), (&b, "b")));
            thread(scope, "two", || cross(&all, (&b, "b"), (&a, "a")));
        });
    }
    let name = format!("cycle of two, {}", P::NAME);
    fault(name, Rule::NoDeadlock, TWO, body::<P>)
}

fn ring(names: &'static [&'static str]) {
    let locks: Vec<_> = names.iter().map(|name| plain(name)).collect();
    let all = Barrier::new(names.len());
    scope(|scope| {
        for (index, name) in names.iter().enumerate() {
            let (locks, all) = (&locks, &all);
            thread(scope, &format!("t{name}"), move || {
                let next = (index + 1) % names.len();
                cross(all, (&locks[index], name), (&locks[next], names[next]));
            });
        }
    });
}

fn single_rows() -> Vec<Row> {
    vec![
        fault(
            "cycle of three",
            Rule::NoDeadlock,
            &[("ta", "a", "b"), ("tb", "b", "c"), ("tc", "c", "a")],
            || ring(&["a", "b", "c"]),
        ),
        fault(
            "cycle of eight",
            Rule::NoDeadlock,
            &[
                ("ta", "a", "b"),
                ("tb", "b", "c"),
                ("tc", "c", "d"),
                ("td", "d", "e"),
                ("te", "e", "f"),
                ("tf", "f", "g"),
                ("tg", "g", "h"),
                ("th", "h", "a"),
            ],
            || ring(&["a", "b", "c", "d", "e", "f", "g", "h"]),
        ),
        fault("cycle with a bystander", Rule::NoDeadlock, TWO, || {
            let (a, b, c) = (plain("a"), plain("b"), plain("c"));
            let (all, held) = (Barrier::new(2), Barrier::new(2));
            scope(|scope| {
                let bystander = thread(scope, "bystander", || {
                    let _ = c.acquire();
                    held.wait();
                    std::thread::park();
                });
                held.wait();
                thread(scope, "victim", || {
                    let _ = c.acquire();
                });
                let _ = bystander;
                thread(scope, "one", || cross(&all, (&a, "a"), (&b, "b")));
                thread(scope, "two", || cross(&all, (&b, "b"), (&a, "a")));
            });
        }),
        fault(
            "cycle of a mutex and a spinlock",
            Rule::NoDeadlock,
            TWO,
            || {
                let a = plain("a");
                let b = latchwork::spin::Spin::checked("b");
                let all = Barrier::new(2);
                scope(|scope| {
                    thread(scope, "one", || {
                        let _ = at!("a", a.acquire());
                        all.wait();
                        let _ = at!("b", b.acquire());
                    });
                    thread(scope, "two", || {
                        let _ = at!("b", b.acquire());
                        all.wait();
                        let _ = at!("a", a.acquire());
                    });
                });
            },
        ),
        fault("two writers", Rule::NoDeadlock, TWO, || {
            let (a, b) = (rwlock("a"), rwlock("b"));
            let all = Barrier::new(2);
            scope(|scope| {
                thread(scope, "one", || {
                    let _a = at!("a", a.write());
                    all.wait();
                    let _b = at!("b", b.write());
                });
                thread(scope, "two", || {
                    let _b = at!("b", b.write());
                    all.wait();
                    let _a = at!("a", a.write());
                });
            });
        }),
        fault(
            "two readers that both want to write the other's",
            Rule::NoDeadlock,
            TWO,
            || {
                let (a, b) = (rwlock("a"), rwlock("b"));
                let all = Barrier::new(2);
                scope(|scope| {
                    thread(scope, "one", || {
                        let _a = at!("a", a.read());
                        all.wait();
                        let _b = at!("b", b.write());
                    });
                    thread(scope, "two", || {
                        let _b = at!("b", b.read());
                        all.wait();
                        let _a = at!("a", a.write());
                    });
                });
            },
        ),
        fault(
            "one of three readers is in the way",
            Rule::NoDeadlock,
            &[("one", "a", "m"), ("two", "m", "a")],
            || {
                let (a, m) = (rwlock("a"), plain("m"));
                let all = Barrier::new(4);
                scope(|scope| {
                    for _ in 0..2 {
                        thread(scope, "bystander", || {
                            let _a = a.read();
                            all.wait();
                            std::thread::park();
                        });
                    }
                    thread(scope, "one", || {
                        let _a = at!("a", a.read());
                        all.wait();
                        let _ = at!("m", m.acquire());
                    });
                    thread(scope, "two", || {
                        let _ = at!("m", m.acquire());
                        all.wait();
                        let _a = at!("a", a.write());
                    });
                });
            },
        ),
        fault(
            "a reader that reads again behind a writer",
            Rule::NoDeadlock,
            &[("reader", "rw", "rw"), ("writer", "", "rw")],
            || {
                let lock = rwlock("rw");
                scope(|scope| {
                    crate::run::name_thread("reader");
                    let reading = at!("rw", lock.read());
                    thread(scope, "writer", || drop(at!("rw", lock.write())));
                    // Until the writer waits, readers are let in.
                    while let Some(again) = lock.try_read() {
                        drop(again);
                    }
                    let again = at!("rw", lock.read());
                    drop((again, reading));
                });
            },
        ),
        fault(
            "a reader that reads again behind a writer that starves",
            Rule::NoDeadlock,
            &[("reader", "rw", "rw"), ("writer", "", "rw")],
            || {
                type Raw = RawRwLock<Private, ReadersFirst>;
                let raw = Checked::<Raw>::named("rw", Raw::new());
                let lock = CheckedRwLock::<(), Private, ReadersFirst>::from_raw(raw, ());
                scope(|scope| {
                    crate::run::name_thread("reader");
                    let reading = at!("rw", lock.read());
                    thread(scope, "writer", || drop(at!("rw", lock.write())));
                    while let Some(again) = lock.try_read() {
                        drop(again);
                    }
                    let again = at!("rw", lock.read());
                    drop((again, reading));
                });
            },
        ),
        fault(
            "who waits for a condition holds what its notifier wants",
            Rule::NoDeadlock,
            &[("waiter", "x", "?"), ("notifier", "m", "x")],
            || {
                let m = Mutex::from_raw(plain("m"), ());
                let x = plain("x");
                let condition = Condvar::new();
                scope(|scope| {
                    thread(scope, "waiter", || {
                        let _ = at!("x", x.acquire());
                        let guard = at!("m", m.lock());
                        drop(condition.wait(guard));
                    });
                    while !format!("{condition:?}").contains("waiters: 1") {
                        std::thread::yield_now();
                    }
                    thread(scope, "notifier", || {
                        let _guard = at!("m", m.lock());
                        let _ = at!("x", x.acquire());
                    });
                });
            },
        ),
        fault(
            "cycle of robust locks, whose closing call fails",
            Rule::NoDeadlock,
            TWO,
            || {
                type Lock = Mutex<(), Robust<Checked<WaitWake<Shared>>>>;
                static A: Lock = Mutex::from_raw(Robust::new(), ());
                static B: Lock = Mutex::from_raw(Robust::new(), ());
                for (lock, name) in [(&A, "a"), (&B, "b")] {
                    let lock = check::hook::Lock::new(
                        std::ptr::from_ref(lock).addr(),
                        check::hook::Kind::Mutex,
                    );
                    let traits = check::hook::Traits::ROBUST | check::hook::Traits::SHARED;
                    check::hook::initialised(
                        lock.with(traits),
                        Some(name),
                        check::hook::Site::caller(),
                    );
                }
                let all = Barrier::new(2);
                let refused = |first: &'static Lock, second: &'static Lock, names: [&str; 2]| {
                    crate::run::mark(names[0], line!() + 1);
                    let _first = Pin::static_ref(first).lock();
                    all.wait();
                    crate::run::mark(names[1], line!() + 1);
                    matches!(Pin::static_ref(second).lock(), Err(LockError::Deadlock))
                };
                scope(|scope| {
                    let one = thread(scope, "one", || refused(&A, &B, ["a", "b"]));
                    let two = thread(scope, "two", || refused(&B, &A, ["b", "a"]));
                    assert!(one.join().unwrap() | two.join().unwrap());
                });
            },
        ),
        fault(
            "the closing call of a refusing lock fails",
            Rule::NoDeadlock,
            TWO,
            || {
                type Lock = Checked<WaitWake, Refuses>;
                let (a, b) = (
                    Lock::named("a", WaitWake::new()),
                    Lock::named("b", WaitWake::new()),
                );
                let all = Barrier::new(2);
                let refused = |first: &Lock, second: &Lock, names: [&str; 2]| {
                    crate::run::mark(names[0], line!() + 1);
                    first.acquire().expect("free");
                    all.wait();
                    crate::run::mark(names[1], line!() + 1);
                    let taken = second.acquire();
                    if taken.is_ok() {
                        // SAFETY: taken.
                        unsafe { second.release() };
                    }
                    // SAFETY: taken above.
                    unsafe { first.release() };
                    taken == Err(Refused::Deadlock)
                };
                scope(|scope| {
                    let one = thread(scope, "one", || refused(&a, &b, ["a", "b"]));
                    let two = thread(scope, "two", || refused(&b, &a, ["b", "a"]));
                    assert!(one.join().unwrap() | two.join().unwrap());
                });
            },
        ),
        fault(
            "a long wait",
            Rule::NoLongWait,
            &[("waiter", "", "a"), ("main", "a", "")],
            || {
                check::set_long_wait(Duration::from_millis(20));
                let a = plain("a");
                let _ = at!("a", a.acquire());
                scope(|scope| {
                    thread(scope, "waiter", || at!("a", a.acquire()).is_ok());
                    std::thread::park();
                });
            },
        ),
        fault(
            "a long wait of a reader",
            Rule::NoLongWait,
            &[("waiter", "", "rw"), ("main", "rw", "")],
            || {
                check::set_long_wait(Duration::from_millis(20));
                let lock = rwlock("rw");
                let _writing = at!("rw", lock.write());
                scope(|scope| {
                    thread(scope, "waiter", || drop(at!("rw", lock.read())));
                    std::thread::park();
                });
            },
        ),
    ]
}

fn set_priority(priority: i32) -> bool {
    use latchwork_testkit::priority::{OTHER, fifo};
    if priority == 0 { OTHER } else { fifo(priority) }.try_give(0)
}

/// Whether this process may have real-time priorities; tried on a thread that ends.
fn may_be_real_time() -> bool {
    let can = std::thread::spawn(|| set_priority(5)).join().unwrap();
    if !can {
        println!("no right to real-time priorities: inversions are left out");
    }
    can
}

fn inversions() -> Vec<Row> {
    const TASKS: Tasks = &[("high", "", "a"), ("main", "a", "")];
    vec![
        fault(
            "a task above the ceiling",
            Rule::WithinCeiling,
            &[("main", "", "a")],
            || {
                let lock = Checked::<Protect>::named("a", Protect::with_ceiling(10));
                assert!(set_priority(20));
                assert!(at!("a", lock.acquire()).is_err());
                assert!(set_priority(0));
            },
        ),
        fault(
            "a real-time task waits for an ordinary one",
            Rule::NoInversion,
            TASKS,
            || {
                let a = plain("a");
                let _ = at!("a", a.acquire());
                scope(|scope| {
                    thread(scope, "high", || {
                        assert!(set_priority(20));
                        at!("a", a.acquire()).is_ok()
                    });
                    std::thread::park();
                });
            },
        ),
        fault(
            "a waiter becomes a real-time task before it waits again",
            Rule::NoInversion,
            TASKS,
            || {
                let (a, b) = (plain("a"), plain("b"));
                let _ = at!("a", a.acquire());
                scope(|scope| {
                    thread(scope, "high", || {
                        let _ = b.acquire();
                        assert!(set_priority(20));
                        let _ = at!(
                            "a",
                            a.acquire_until(latchwork::time::Deadline::after(
                                Duration::from_millis(30)
                            ))
                        );
                        std::thread::park();
                    });
                    std::thread::park();
                });
            },
        ),
        fault(
            "a holder lowers itself while a real-time task waits",
            Rule::NoInversion,
            TASKS,
            || {
                let a = plain("a");
                assert!(set_priority(30));
                let _ = at!("a", a.acquire());
                let is_waiting = std::sync::atomic::AtomicBool::new(false);
                scope(|scope| {
                    thread(scope, "high", || {
                        assert!(set_priority(20));
                        is_waiting.store(true, std::sync::atomic::Ordering::Relaxed);
                        // It looks when a wait ends: the holder may be late.
                        let soon = || latchwork::time::Deadline::after(Duration::from_millis(100));
                        while matches!(at!("a", a.acquire_until(soon())), Ok(false)) {}
                    });
                    while !is_waiting.load(std::sync::atomic::Ordering::Relaxed) {
                        // To yield would give nothing to a task of lower priority that has no other processor.
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    assert!(set_priority(10));
                    std::thread::park();
                });
            },
        ),
    ]
}
