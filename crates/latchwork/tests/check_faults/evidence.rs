//! Which tasks an order is of: orders of a single task, and locks that no other task ever acquires.
#![allow(unsafe_code)]

use crate::kinds::plain;
use crate::misuse::rwlock;
use crate::order::{in_turn, nest, touch};
use crate::run::{Row, Tasks, fault, harmless, suspected, thread};
use latchwork::check::{Checked, Rule};
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, Protocol, WaitWake};
use latchwork_testkit::Child;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

type Plain = Checked<WaitWake>;

pub fn rows() -> Vec<Row> {
    let mut rows = one_task();
    rows.extend(one_task_harmless());
    rows.extend(own_locks());
    rows
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One task takes pairs of locks, each pair as two letters, one pair after the other.
fn pairs(of: &str) {
    let locks = NAMES.map(plain);
    for pair in of.as_bytes().chunks(2) {
        let [first, second] = [pair[0], pair[1]].map(|letter| usize::from(letter - b'A'));
        nest(&locks[first], &locks[second], [NAMES[first], NAMES[second]]);
    }
}

fn one(name: &str, tasks: Tasks, body: fn()) -> Row {
    fault(name, Rule::OneTaskOrder, tasks, body)
}

const TWO: Tasks = &[("main", "a", "b"), ("main", "b", "a")];
const THREE: Tasks = &[("main", "a", "b"), ("main", "b", "c"), ("main", "c", "a")];
const FOUR: Tasks = &[
    ("main", "a", "b"),
    ("main", "b", "c"),
    ("main", "c", "d"),
    ("main", "d", "a"),
];

/// Locks of one class, each taken with the next one, and the last with the first.
fn ring(count: usize) {
    let locks: Vec<_> = (0..count).map(|_| plain("node")).collect();
    for at in 0..count {
        nest(&locks[at], &locks[(at + 1) % count], ["node"; 2]);
    }
}

fn one_task() -> Vec<Row> {
    vec![
        one("one task: ABBA", TWO, || pairs("ABBA")),
        one("one task: ABBCCA", THREE, || pairs("ABBCCA")),
        one("one task: ABBCCDDA", FOUR, || pairs("ABBCCDDA")),
        one("one task: ABCABC", THREE, || pairs("ABCABC")),
        one("one task: ABCDBCDA", FOUR, || pairs("ABCDBCDA")),
        one(
            "one task: ABCDBDDA",
            &[("main", "a", "b"), ("main", "b", "d"), ("main", "d", "a")],
            || pairs("ABCDBDDA"),
        ),
        one(
            "one task: a ring of five",
            &[("main", "node", "node"); 5],
            || ring(5),
        ),
        one(
            "one task: a ring of twenty, of which a report shows sixteen",
            &[("main", "node", "node"); 16],
            || ring(20),
        ),
        one("one task: the first lock tried", TWO, || {
            let [a, b] = ["a", "b"].map(plain);
            let tried = |first: &Plain, second: &Plain, names: [&str; 2]| {
                crate::run::mark(names[0], line!() + 1);
                assert!(first.try_acquire().unwrap());
                crate::run::mark(names[1], line!() + 1);
                let _ = second.acquire();
                // SAFETY: taken.
                unsafe {
                    second.release();
                    first.release();
                }
            };
            tried(&a, &b, ["a", "b"]);
            tried(&b, &a, ["b", "a"]);
        }),
        one(
            "one task of several, of locks that all take",
            &[("one", "a", "b"), ("one", "b", "a")],
            || {
                let [a, b] = ["a", "b"].map(plain);
                in_turn(&[
                    ("two", &|| touch(&[&a, &b])),
                    ("one", &|| {
                        touch(&[&a, &b]);
                        nest(&a, &b, ["a", "b"]);
                        nest(&b, &a, ["b", "a"]);
                    }),
                ]);
            },
        ),
        one(
            "one task, which is copied by a fork in between",
            TWO,
            || {
                let [a, b] = ["a", "b"].map(plain);
                in_turn(&[("two", &|| touch(&[&a, &b]))]);
                nest(&a, &b, ["a", "b"]);
                Child::fork(|| nest(&b, &a, ["b", "a"])).succeed();
            },
        ),
        fault(
            "one task, and then another",
            Rule::OneOrder,
            &[("main", "a", "b"), ("two", "b", "a")],
            || {
                let [a, b] = ["a", "b"].map(plain);
                crate::run::unreported(|| {
                    nest(&a, &b, ["a", "b"]);
                    nest(&b, &a, ["b", "a"]);
                });
                in_turn(&[("two", &|| nest(&b, &a, ["b", "a"]))]);
            },
        ),
    ]
}

fn one_task_harmless() -> Vec<Row> {
    vec![
        harmless("one task: one order, each way round", || {
            pairs("ABBCCDACADBD")
        }),
        harmless("one task: two orders under a gate", || {
            let [a, b, g] = ["a", "b", "g"].map(plain);
            for locks in [[&a, &b], [&b, &a]] {
                let _ = g.acquire();
                nest(locks[0], locks[1], ["a", "b"]);
                // SAFETY: taken.
                unsafe { g.release() };
            }
        }),
        harmless("one task: two orders, one of calls that never wait", || {
            let [a, b] = ["a", "b"].map(plain);
            nest(&a, &b, ["a", "b"]);
            let _ = b.acquire();
            assert!(a.try_acquire().unwrap());
            // SAFETY: taken.
            unsafe {
                a.release();
                b.release();
            }
        }),
        harmless("one task: two orders of readers", || {
            let (a, b) = (rwlock("a"), rwlock("b"));
            drop((a.read(), b.read()));
            drop((b.read(), a.read()));
        }),
        harmless(
            "one task: two orders of classes, never of the same two",
            || {
                let [a, b] = ["a", "b"].map(plain);
                let [other_a, other_b] = ["a", "b"].map(plain);
                nest(&a, &b, ["a", "b"]);
                nest(&other_b, &other_a, ["b", "a"]);
            },
        ),
        harmless("one task: two orders, the lock between of its own", || {
            let [common, own] = ["common", "own"].map(plain);
            in_turn(&[
                ("two", &|| touch(&[&common])),
                ("one", &|| {
                    touch(&[&common]);
                    nest(&common, &own, ["common", "own"]);
                    nest(&own, &common, ["own", "common"]);
                }),
            ]);
        }),
    ]
}

/// Each of three threads takes what is common, then a lock of its own, and waits for a condition with the former.
fn wait_with_own_lock(own: impl Fn(usize) -> Plain + Sync) {
    let common = Mutex::from_raw(plain("common"), false);
    let changed = Condvar::new();
    scope(|scope| {
        for number in 0..3 {
            let (common, changed, own) = (&common, &changed, &own);
            thread(scope, "waiter", move || {
                let own = own(number);
                let guard = common.lock();
                let _ = own.acquire();
                let guard = changed.wait_while(guard, |done| !*done);
                // SAFETY: taken.
                unsafe { own.release() };
                drop(guard);
            });
        }
        crate::bounds::until_so_many_wait_for_a_condition(3);
        *common.lock() = true;
        changed.notify_all();
    });
}

fn own_locks() -> Vec<Row> {
    vec![
        harmless(
            "each task waits for a condition with a lock of its own",
            || wait_with_own_lock(|_| plain("own")),
        ),
        harmless(
            "one task waits for a condition with a lock of its own",
            || {
                let common = Mutex::from_raw(plain("common"), ());
                let own = plain("own");
                let guard = common.lock();
                let _ = own.acquire();
                drop(Condvar::new().wait_for(guard, Duration::from_millis(1)));
                // SAFETY: taken.
                unsafe { own.release() };
            },
        ),
        harmless(
            "each task takes what is common around a lock of its own, and within",
            || {
                let common = plain("common");
                let all = Barrier::new(3);
                scope(|scope| {
                    for _ in 0..3 {
                        thread(scope, "other", || {
                            touch(&[&common]);
                            all.wait();
                            let own = plain("own");
                            nest(&common, &own, ["common", "own"]);
                            nest(&own, &common, ["own", "common"]);
                            all.wait();
                        });
                    }
                });
            },
        ),
        harmless(
            "two orders of classes, with locks that no other task takes",
            || {
                let [a, b] = ["a", "b"].map(plain);
                let [other_a, other_b] = ["a", "b"].map(plain);
                in_turn(&[
                    ("one", &|| nest(&a, &b, ["a", "b"])),
                    ("two", &|| nest(&other_b, &other_a, ["b", "a"])),
                ]);
            },
        ),
        suspected(
            "each of two tasks waits for a condition with a lock that both take",
            &[("one", "common", "own"), ("two", "own", "common")],
            || {
                let common = plain("common");
                let [first, second] = ["own", "own"].map(plain);
                let both = || touch(&[&common, &first, &second]);
                in_turn(&[
                    ("one", &both),
                    ("two", &both),
                    ("one", &|| nest(&common, &first, ["common", "own"])),
                    ("two", &|| nest(&second, &common, ["own", "common"])),
                ]);
            },
        ),
        suspected(
            "two orders of classes, of which it is learned later that others take them",
            &[("one", "common", "own"), ("two", "own", "common")],
            || {
                let common = plain("common");
                let own: Vec<_> = (0..4).map(|_| plain("own")).collect();
                in_turn(&[
                    ("one", &|| {
                        for own in &own[..3] {
                            nest(&common, own, ["common", "own"]);
                        }
                    }),
                    ("two", &|| nest(&own[3], &common, ["own", "common"])),
                    ("one", &|| touch(&[&own[3]])),
                    ("two", &|| touch(&[&own[2]])),
                ]);
            },
        ),
    ]
}
