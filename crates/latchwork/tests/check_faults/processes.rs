//! Wait-for cycles through several processes.
#![allow(unsafe_code)]

use crate::at;
use crate::run::{Row, fault, harmless, name_thread, thread};
use latchwork::check::{Checked, Rule, hook};
use latchwork::mutex::{Mutex, Protocol, Robust, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::Child;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

type Lock = Checked<WaitWake<Shared>>;
type RobustLock = Mutex<u32, Robust<Lock>>;

/// What the processes have in common.
#[derive(Shareable)]
#[repr(C)]
struct Common {
    locks: [Lock; 3],
    robust: [RobustLock; 2],
    ready: AtomicU32,
}

fn common() -> Region {
    let region = RegionOptions::new()
        .max_bytes(2 << 20)
        .create_anonymous()
        .unwrap();
    let make = || Common {
        locks: ["a", "b", "c"].map(|name| Checked::named(name, WaitWake::new())),
        robust: [(); 2].map(|()| Mutex::from_raw(Robust::new(), 0)),
        ready: AtomicU32::new(0),
    };
    let _ = region.object("common", make).unwrap();
    region
}

impl Common {
    /// Waits until so many have come here.
    fn meet(&self, count: u32) {
        self.ready.fetch_add(1, SeqCst);
        while self.ready.load(SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

/// Each process takes one lock, and then wants the next.
fn ring(count: usize) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let region = common();
    let mut children: Vec<Child> = (0..count)
        .map(|index| {
            let region = &region;
            Child::fork(move || {
                name_thread(["one", "two", "three"][index]);
                let common = region.object("common", || unreachable!()).unwrap();
                let common: &Common = &common;
                let next = (index + 1) % count;
                crate::run::mark(NAMES[index], line!() + 1);
                let _ = common.locks[index].acquire();
                common.meet(count as u32);
                crate::run::mark(NAMES[next], line!() + 1);
                let _ = common.locks[next].acquire();
            })
        })
        .collect();
    for child in &mut children {
        child.wait();
    }
}

/// Memory that processes share, of no region: once, or twice at different addresses.
fn shared_memory<const TIMES: usize>() -> [*mut libc::c_void; TIMES] {
    // SAFETY: a name, and fresh mappings of that file, which is as long as they are.
    unsafe {
        let file = libc::memfd_create(c"plain".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0 && libc::ftruncate(file, 4096) == 0);
        [(); TIMES].map(|()| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                libc::MAP_SHARED,
                file,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            at
        })
    }
}

/// What lies in it.
struct Plain {
    locks: [Lock; 2],
    ready: AtomicU32,
}

impl Plain {
    fn new() -> Self {
        Self {
            locks: ["a", "b"].map(|name| Checked::named(name, WaitWake::new())),
            ready: AtomicU32::new(0),
        }
    }

    /// Takes one, and when the other is taken by another task, that.
    fn cross(&self, index: usize) {
        let names = ["a", "b"];
        crate::run::mark(names[index], line!() + 1);
        let _ = self.locks[index].acquire();
        self.ready.fetch_add(1, SeqCst);
        while self.ready.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        crate::run::mark(names[1 - index], line!() + 1);
        let _ = self.locks[1 - index].acquire();
    }
}

/// Reports that one of two locks, which no call has initialised, is taken, at an address of the process's own, and
/// waits for the other.
fn cross_reported(memory: *mut libc::c_void, index: usize) {
    let names = ["a", "b"];
    let lock = |index: usize| {
        let lock = hook::Lock::new(memory.addr() + 64 * index, hook::Kind::Mutex);
        let lock = lock.with(hook::Traits::SHARED);
        hook::initialised(lock, Some(names[index]), hook::Site::caller());
        lock
    };
    let (mine, other) = (lock(index), lock(1 - index));
    crate::run::mark(names[index], line!() + 1);
    let site = hook::Site::caller();
    hook::taken(mine, hook::Mode::Exclusive, hook::How::Locked, site);
    // SAFETY: zero at first, in memory that stays.
    let ready = unsafe { &*memory.byte_add(1024).cast::<AtomicU32>() };
    ready.fetch_add(1, SeqCst);
    while ready.load(SeqCst) < 2 {
        std::thread::yield_now();
    }
    crate::run::mark(names[1 - index], line!() + 1);
    let site = hook::Site::caller();
    let _ = hook::wants(other, hook::Mode::Exclusive, false, site);
    loop {
        std::thread::sleep(Duration::from_millis(20));
        hook::still_waits();
    }
}

/// A task holds one, and another one waits for it, for longer than it takes to look at other processes.
fn waits_for_long(plain: &Plain, first: usize) {
    let held = &std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        thread(scope, "holder", move || {
            let _ = plain.locks[1 - first].acquire();
            held.wait();
            std::thread::sleep(Duration::from_millis(250));
            // SAFETY: taken.
            unsafe { plain.locks[1 - first].release() };
        });
        held.wait();
        let _ = plain.locks[first].acquire();
        let _ = plain.locks[1 - first].acquire();
        // SAFETY: taken.
        unsafe {
            plain.locks[1 - first].release();
            plain.locks[first].release();
        }
    });
}

pub fn rows() -> Vec<Row> {
    vec![
        fault(
            "cycle through two processes, by locks in no region",
            Rule::NoDeadlock,
            &[("one", "a", "b"), ("two", "b", "a")],
            || {
                let [memory] = shared_memory();
                // SAFETY: fresh memory, large enough and aligned to a page.
                let plain: &Plain = unsafe {
                    memory.cast::<Plain>().write(Plain::new());
                    &*memory.cast()
                };
                let mut other = Child::fork(|| {
                    name_thread("two");
                    plain.cross(1);
                });
                name_thread("one");
                plain.cross(0);
                other.wait();
            },
        ),
        fault(
            "the same at different addresses",
            Rule::NoDeadlock,
            &[("one", "a", "b"), ("two", "b", "a")],
            || {
                let [here, there] = shared_memory();
                let mut other = Child::fork(|| {
                    name_thread("two");
                    cross_reported(there, 1);
                });
                name_thread("one");
                cross_reported(here, 0);
                other.wait();
            },
        ),
        harmless("the same addresses in two processes, of their own", || {
            let plain = Plain::new();
            // Their places are known from here on, in both.
            for lock in &plain.locks {
                let _ = lock.acquire();
                // SAFETY: taken.
                unsafe { lock.release() };
            }
            let other = Child::fork(|| waits_for_long(&plain, 1));
            waits_for_long(&plain, 0);
            other.succeed();
        }),
        fault(
            "cycle through two processes",
            Rule::NoDeadlock,
            &[("one", "a", "b"), ("two", "b", "a")],
            || ring(2),
        ),
        fault(
            "cycle through three processes",
            Rule::NoDeadlock,
            &[("one", "a", "b"), ("two", "b", "c"), ("three", "c", "a")],
            || ring(3),
        ),
        fault(
            "a lock of one process and two of all",
            Rule::NoDeadlock,
            &[("one", "p", "a"), ("three", "a", "b"), ("two", "b", "p")],
            || {
                let region = common();
                let other = {
                    let region = &region;
                    Child::fork(move || {
                        name_thread("three");
                        let common = region.object("common", || unreachable!()).unwrap();
                        let common: &Common = &common;
                        let _ = at!("a", common.locks[0].acquire());
                        common.meet(3);
                        let _ = at!("b", common.locks[1].acquire());
                    })
                };
                let common = region.object("common", || unreachable!()).unwrap();
                let common: &Common = &common;
                let private: Checked<WaitWake> = Checked::named("p", WaitWake::new());
                std::thread::scope(|scope| {
                    thread(scope, "two", || {
                        let _ = at!("b", common.locks[1].acquire());
                        common.meet(3);
                        let _ = at!("p", private.acquire());
                    });
                    thread(scope, "one", || {
                        let _ = at!("p", private.acquire());
                        common.meet(3);
                        let _ = at!("a", common.locks[0].acquire());
                    });
                });
                drop(other);
            },
        ),
        fault(
            "private locks of two processes",
            Rule::NoDeadlock,
            &[
                ("a1", "p", "a"),
                ("b1", "a", "q"),
                ("b2", "q", "b"),
                ("a2", "b", "p"),
            ],
            || {
                let region = common();
                let side = |names: [&'static str; 2],
                            private_name: &str,
                            mine: (usize, &str),
                            theirs: (usize, &str)| {
                    let common = region.object("common", || unreachable!()).unwrap();
                    let common: &Common = &common;
                    let private: Checked<WaitWake> = Checked::named(private_name, WaitWake::new());
                    std::thread::scope(|scope| {
                        thread(scope, names[0], || {
                            crate::run::mark(private_name, line!() + 1);
                            let _ = private.acquire();
                            // Of the region only now: what is held already is told then.
                            common.meet(4);
                            crate::run::mark(theirs.1, line!() + 1);
                            let _ = common.locks[theirs.0].acquire();
                        });
                        thread(scope, names[1], || {
                            crate::run::mark(mine.1, line!() + 1);
                            let _ = common.locks[mine.0].acquire();
                            common.meet(4);
                            crate::run::mark(private_name, line!() + 1);
                            let _ = private.acquire();
                        });
                    });
                };
                let mut other = Child::fork(|| side(["b2", "b1"], "q", (0, "a"), (1, "b")));
                side(["a1", "a2"], "p", (1, "b"), (0, "a"));
                other.wait();
            },
        ),
        fault(
            "robust locks of two processes",
            Rule::NoDeadlock,
            &[("one", "?", "?"), ("two", "?", "?")],
            || {
                let region = common();
                let side = |index: usize| {
                    name_thread(["one", "two"][index]);
                    let common = region.object("common", || unreachable!()).unwrap();
                    let pinned = region.pin(&*common);
                    // SAFETY: a part of a named object, which never moves.
                    let lock = |index: usize| unsafe {
                        Pin::map_unchecked(pinned, |common: &Common| &common.robust[index])
                    };
                    let first = lock(index).lock();
                    common.meet(2);
                    let second = lock(1 - index).lock();
                    drop((first, second));
                };
                let mut other = Child::fork(|| side(1));
                side(0);
                other.wait();
            },
        ),
        fault(
            "a lock of another process is unlocked",
            Rule::OwnerUnlocks,
            &[("two", "", "a"), ("one", "a", "")],
            || {
                let region = common();
                let object = region.object("common", || unreachable!()).unwrap();
                let common: &Common = &object;
                name_thread("one");
                let _ = at!("a", common.locks[0].acquire());
                let mut other = Child::fork(|| {
                    name_thread("two");
                    // SAFETY: the fault. (The parent's lock is not the child's, since it is shared.)
                    at!("a", unsafe { common.locks[0].release() });
                });
                other.wait();
            },
        ),
        fault(
            "a coprocess's task exits holding",
            Rule::NoExitHolding,
            &[("quitter", "a", "")],
            || {
                let region = common();
                let mut other = Child::fork(|| {
                    let object = region.object("common", || unreachable!()).unwrap();
                    let common: &Common = &object;
                    std::thread::scope(|scope| {
                        let quitter = thread(scope, "quitter", || {
                            let _ = at!("a", common.locks[0].acquire());
                        });
                        quitter.join().unwrap();
                    });
                });
                other.wait();
            },
        ),
    ]
}
