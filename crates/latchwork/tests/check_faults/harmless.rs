//! Programs that resemble faulty ones and are correct.
#![allow(unsafe_code)]

use crate::kinds::{Make, plain};
use crate::misuse::rwlock;
use crate::run::{Row, harmless, thread};
use latchwork::check::{self, Checked};
use latchwork::condvar::Condvar;
use latchwork::mutex::{
    LockError, Mutex, MutexGuard, Protocol, RecursiveMutex, Robust, Throughput, WaitWake,
};
use latchwork::region::RegionOptions;
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::Child;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

type Plain = Checked<WaitWake>;

fn nest(locks: &[&Plain]) {
    for lock in locks {
        let _ = lock.acquire();
    }
    for lock in locks.iter().rev() {
        // SAFETY: taken.
        unsafe { lock.release() };
    }
}

fn in_turn(bodies: &[&(dyn Fn() + Sync)]) {
    for body in bodies {
        scope(|scope| thread(scope, "other", body).join().unwrap());
    }
}

pub fn rows() -> Vec<Row> {
    let mut rows = order_rows();
    rows.extend(other_rows());
    rows
}

fn order_rows() -> Vec<Row> {
    vec![
        harmless("one order, many tasks", || {
            let [a, b] = ["a", "b"].map(plain);
            scope(|scope| {
                for _ in 0..4 {
                    thread(scope, "other", || (0..200).for_each(|_| nest(&[&a, &b])));
                }
            });
        }),
        harmless("two orders under one gate", || {
            let [a, b, g] = ["a", "b", "g"].map(plain);
            in_turn(&[&|| nest(&[&g, &a, &b]), &|| nest(&[&g, &b, &a])]);
        }),
        harmless("two orders under the last of many gates", || {
            let [a, b] = ["a", "b"].map(plain);
            let gates: [_; 10] = std::array::from_fn(|_| plain("g"));
            let mut all: Vec<&Plain> = gates.iter().collect();
            all.extend([&a, &b]);
            in_turn(&[&|| nest(&all), &|| nest(&[&gates[9], &b, &a])]);
        }),
        harmless("two orders under one gate that was tried", || {
            let [a, b, g] = ["a", "b", "g"].map(plain);
            let gated = |locks: &[&Plain]| {
                assert!(g.try_acquire().unwrap());
                nest(locks);
                // SAFETY: taken.
                unsafe { g.release() };
            };
            in_turn(&[&|| gated(&[&a, &b]), &|| gated(&[&b, &a])]);
        }),
        harmless("three orders, two of them under one gate", || {
            let [a, b, c, g] = ["a", "b", "c", "g"].map(plain);
            in_turn(&[&|| nest(&[&g, &a, &b]), &|| nest(&[&g, &b, &c]), &|| {
                nest(&[&c, &a])
            }]);
        }),
        harmless("two orders, of one that reads and one that writes", || {
            let ([a, b], g) = (["a", "b"].map(plain), rwlock("g"));
            let reads = |locks: &[&Plain]| {
                let _gate = g.read();
                nest(locks);
            };
            let writes = |locks: &[&Plain]| {
                let _gate = g.write();
                nest(locks);
            };
            in_turn(&[&|| reads(&[&a, &b]), &|| writes(&[&b, &a])]);
        }),
        harmless("three orders of two tasks", || {
            let [a, b, c] = ["a", "b", "c"].map(plain);
            let first = || {
                nest(&[&a, &b]);
                nest(&[&b, &c]);
            };
            in_turn(&[&first, &|| nest(&[&c, &a])]);
        }),
        harmless("two orders, one of calls that never wait", || {
            let [a, b] = ["a", "b"].map(plain);
            let tried = || {
                let _ = b.acquire();
                if a.try_acquire().unwrap() {
                    // SAFETY: taken.
                    unsafe { a.release() };
                }
                // SAFETY: taken.
                unsafe { b.release() };
            };
            in_turn(&[&|| nest(&[&a, &b]), &tried]);
        }),
        harmless("two orders of readers", || {
            let (a, b) = (rwlock("a"), rwlock("b"));
            in_turn(&[&|| drop((a.read(), b.read())), &|| {
                drop((b.read(), a.read()))
            }]);
        }),
        harmless("two orders, readers of what is in the middle", || {
            let (a, b) = (rwlock("a"), rwlock("b"));
            in_turn(&[&|| drop((a.read(), b.write())), &|| {
                drop((b.write(), a.read()))
            }]);
        }),
        harmless("hand over hand along a list", || {
            let nodes: Vec<_> = (0..20).map(|_| plain("node")).collect();
            let walk = || {
                let _ = nodes[0].acquire();
                for pair in nodes.windows(2) {
                    let _ = pair[1].acquire();
                    // SAFETY: taken.
                    unsafe { pair[0].release() };
                }
                // SAFETY: taken.
                unsafe { nodes[19].release() };
            };
            in_turn(&[&walk, &walk]);
        }),
        harmless("a class's locks in the order of addresses", || {
            let nodes: Vec<_> = (0..6).map(|_| plain("node")).collect();
            in_turn(&[
                &|| nest(&[&nodes[0], &nodes[1]]),
                &|| nest(&[&nodes[1], &nodes[4]]),
                &|| nest(&[&nodes[0], &nodes[4]]),
            ]);
        }),
        harmless("an address that another lock had", || {
            let mut place = MaybeUninit::<Plain>::uninit();
            let b = plain("b");
            in_turn_once(|| {
                let a = &*place.write(plain("old"));
                nest(&[a, &b]);
            });
            // SAFETY: written above.
            unsafe { place.assume_init_drop() };
            in_turn_once(|| {
                let a = &*place.write(plain("new"));
                nest(&[&b, a]);
            });
            // SAFETY: as above.
            unsafe { place.assume_init_drop() };
        }),
        harmless("memory that was given back with its lock", || {
            let b = plain("b");
            let mut place = MaybeUninit::<Plain>::uninit();
            in_turn_once(|| nest(&[&*place.write(plain("old")), &b]));
            let start = place.as_ptr().addr();
            check::hook::freed(
                start..start + size_of::<Plain>(),
                check::hook::Site::UNKNOWN,
            );
            in_turn_once(|| nest(&[&b, &*place.write(plain("new"))]));
        }),
    ]
}

fn in_turn_once(body: impl FnOnce() + Send) {
    scope(|scope| thread(scope, "other", body).join().unwrap());
}

fn other_rows() -> Vec<Row> {
    vec![
        harmless("a recursive mutex taken again", || {
            let lock = RecursiveMutex::from_raw(plain("a"), 0);
            let first = lock.lock();
            let second = lock.lock();
            drop((first, second));
        }),
        harmless("a reader that reads again", || {
            let lock = rwlock("a");
            let first = lock.read();
            let second = lock.read();
            drop(first);
            drop(second);
        }),
        harmless("moved before its first use", || {
            let lock = plain("a");
            let lock = Box::new(lock);
            nest(&[&lock]);
        }),
        harmless("made anew after its end", || {
            for _ in 0..3 {
                let lock = plain("a");
                nest(&[&lock]);
            }
        }),
        harmless("a wait that ends", || {
            let a = plain("a");
            let all = Barrier::new(2);
            scope(|scope| {
                thread(scope, "other", || {
                    let _ = a.acquire();
                    all.wait();
                    std::thread::sleep(Duration::from_millis(5));
                    // SAFETY: taken.
                    unsafe { a.release() };
                });
                all.wait();
                nest(&[&a]);
            });
        }),
        harmless("a wait that is given up", || {
            let a = plain("a");
            let all = Barrier::new(2);
            scope(|scope| {
                thread(scope, "other", || {
                    let _ = a.acquire();
                    all.wait();
                    all.wait();
                    // SAFETY: taken.
                    unsafe { a.release() };
                });
                all.wait();
                assert!(
                    !a.acquire_until(Deadline::after(Duration::from_millis(2)))
                        .unwrap()
                );
                all.wait();
            });
        }),
        harmless(
            "contention of many tasks, with all protocols in turn",
            || {
                fn contend<P: Make>() {
                    let lock = P::checked("a");
                    scope(|scope| {
                        for _ in 0..4 {
                            thread(scope, "other", || {
                                for _ in 0..200 {
                                    if lock.acquire().is_ok() {
                                        // SAFETY: taken.
                                        unsafe { lock.release() };
                                    }
                                }
                            });
                        }
                    });
                }
                contend::<WaitWake>();
                contend::<WaitWake<Shared>>();
                contend::<Throughput>();
                contend::<latchwork::mutex::Inherit>();
                contend::<latchwork::spin::Spin>();
            },
        ),
        harmless("readers and writers in contention", || {
            let lock = rwlock("a");
            scope(|scope| {
                for index in 0..4 {
                    let lock = &lock;
                    thread(scope, "other", move || {
                        for round in 0..200 {
                            if (index + round) % 4 == 0 {
                                drop(lock.write());
                            } else {
                                drop(lock.read());
                            }
                        }
                    });
                }
            });
        }),
        harmless("a condition", || {
            let lock = Mutex::from_raw(plain("a"), 0);
            let condition = Condvar::new();
            scope(|scope| {
                for _ in 0..3 {
                    thread(scope, "other", || {
                        drop(condition.wait_while(lock.lock(), |count| *count == 0))
                    });
                }
                *lock.lock() = 1;
                condition.notify_all();
            });
        }),
        harmless("a condition with one mutex after another", || {
            let a = Mutex::from_raw(plain("a"), ());
            let b = Mutex::from_raw(plain("b"), ());
            let condition = Condvar::new();
            drop(condition.wait_for(a.lock(), Duration::from_millis(1)));
            drop(condition.wait_for(b.lock(), Duration::from_millis(1)));
        }),
        harmless("a hundred locks at once", || {
            let locks: Vec<_> = (0..100)
                .map(|index| plain(&format!("lock {index}")))
                .collect();
            nest(&locks.iter().collect::<Vec<_>>());
            nest(&locks.iter().collect::<Vec<_>>());
        }),
        harmless("released in another order than taken", || {
            let locks: Vec<_> = (0..20)
                .map(|index| plain(&format!("lock {index}")))
                .collect();
            for lock in &locks {
                let _ = lock.acquire();
            }
            for lock in locks
                .iter()
                .step_by(2)
                .chain(locks.iter().skip(1).step_by(2))
            {
                // SAFETY: taken.
                unsafe { lock.release() };
            }
            nest(&locks.iter().collect::<Vec<_>>());
        }),
        harmless("a robust lock whose owner died", || {
            let lock = pin!(Mutex::<u32, Robust<Checked<WaitWake<Shared>>>>::from_raw(
                Robust::new(),
                0
            ));
            let lock = lock.as_ref();
            drop(lock.lock().unwrap());
            let region = RegionOptions::new()
                .max_bytes(2 << 20)
                .create_anonymous()
                .unwrap();
            let object = region
                .object("robust", || {
                    Mutex::<u32, Robust<Checked<WaitWake<Shared>>>>::from_raw(Robust::new(), 0)
                })
                .unwrap();
            let robust = region.pin(&*object);
            let mut victim = Child::fork(|| {
                std::mem::forget(robust.lock());
                std::thread::park();
            });
            while !matches!(robust.try_lock(), Err(LockError::WouldBlock)) {
                std::thread::yield_now();
            }
            victim.kill();
            match robust.lock() {
                Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
                other => panic!("{other:?}"),
            }
            drop(robust.lock().unwrap());
        }),
        harmless(
            "a private lock that is held across a fork, and released in the child",
            || {
                let lock = plain("a");
                let _ = lock.acquire();
                Child::fork(|| {
                    // SAFETY: the forking thread took it; the copy is the child's.
                    unsafe { lock.release() };
                    nest(&[&lock]);
                })
                .succeed();
                // SAFETY: taken.
                unsafe { lock.release() };
            },
        ),
        harmless("threads that come and go", || {
            let lock = plain("a");
            for _ in 0..50 {
                scope(|scope| {
                    for _ in 0..3 {
                        thread(scope, "other", || nest(&[&lock]));
                    }
                });
            }
        }),
        harmless("static robust locks in one order", || {
            static A: Mutex<u32, Robust<Checked<WaitWake<Shared>>>> =
                Mutex::from_raw(Robust::new(), 0);
            static B: Mutex<u32, Robust<Checked<WaitWake<Shared>>>> =
                Mutex::from_raw(Robust::new(), 0);
            let both = || {
                let a = Pin::static_ref(&A).lock();
                let b = Pin::static_ref(&B).lock();
                drop((a, b));
            };
            in_turn(&[&both, &both]);
        }),
        harmless("a guard in a thread-local that outlives all others", || {
            static LOCK: Mutex<(), Plain> = Mutex::from_raw(Plain::new(WaitWake::new()), ());
            type Guard = MutexGuard<'static, (), Plain>;
            thread_local! {
                static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
            }
            for _ in 0..3 {
                std::thread::spawn(|| {
                    // Before the thread's first lock, so that its destructor is the last.
                    KEPT.with(|kept| assert!(kept.borrow().is_none()));
                    let guard = LOCK.lock();
                    KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
                })
                .join()
                .unwrap();
            }
            drop(LOCK.lock());
        }),
        harmless("a lock that the destructor of a key releases", || {
            static LOCK: Plain = Plain::new(WaitWake::new());
            extern "C" fn release(_: *mut libc::c_void) {
                // SAFETY: by the thread that took it.
                unsafe { LOCK.release() };
            }
            let mut key = 0;
            // SAFETY: a place for the key, and a function that stays.
            let made = unsafe { libc::pthread_key_create(&raw mut key, Some(release)) };
            assert_eq!(made, 0);
            let body = move || {
                let _ = LOCK.acquire();
                // SAFETY: a key, and a value that nobody reads.
                unsafe { libc::pthread_setspecific(key, (&raw const LOCK).cast()) };
            };
            std::thread::spawn(body).join().unwrap();
            nest(&[&LOCK]);
        }),
    ]
}
