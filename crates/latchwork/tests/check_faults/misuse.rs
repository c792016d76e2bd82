//! The rules of use.
#![allow(unsafe_code)]

use crate::kinds::{Make, plain};
use crate::run::{Row, fault, thread};
use crate::{at, each};
use latchwork::check::{Checked, CheckedRwLock, Rule, hook};
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, Protocol, Robust, WaitWake};
use latchwork::region::RegionOptions;
use latchwork::rwlock::RawRwLock;
use latchwork::sharing::Shared;
use lock_api::RawRwLock as _;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::pin::Pin;
use std::thread::scope;

fn take<P: Make>(lock: &Checked<P>) {
    let _ = lock.try_acquire();
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    each!(rows, double_unlock);
    each!(rows, foreign_unlock);
    each!(rows, exit_holding);
    each!(rows, zeroed);
    each!(rows, copied);
    each!(rows, dropped_while_held);
    each!(rows, recursion);
    rows.extend(single_rows());
    rows
}

fn double_unlock<P: Make>() -> Row {
    fn body<P: Make>() {
        let lock = P::checked("a");
        take(&lock);
        crate::run::mark_release(line!() + 2);
        // SAFETY: held.
        unsafe { lock.release() };
        // SAFETY: the fault.
        at!("a", unsafe { lock.release() });
    }
    let name = format!("double unlock, {}", P::NAME);
    fault(name, Rule::NoDoubleUnlock, &[("main", "", "a")], body::<P>)
}

fn foreign_unlock<P: Make>() -> Row {
    fn body<P: Make>() {
        let lock = ManuallyDrop::new(P::checked("a"));
        at!("a", assert!(lock.try_acquire().is_ok_and(|taken| taken)));
        scope(|scope| {
            thread(scope, "other", || {
                // SAFETY: the fault.
                at!("a", unsafe { lock.release() });
            });
        });
    }
    let name = format!("foreign unlock, {}", P::NAME);
    let tasks = &[("other", "", "a"), ("main", "a", "")];
    fault(name, Rule::OwnerUnlocks, tasks, body::<P>)
}

fn exit_holding<P: Make>() -> Row {
    fn body<P: Make>() {
        let lock = ManuallyDrop::new(P::checked("a"));
        scope(|scope| {
            let quitter = thread(scope, "quitter", || {
                at!("a", assert!(lock.try_acquire().is_ok_and(|taken| taken)))
            });
            // Its end, not only that of its body.
            quitter.join().unwrap();
        });
    }
    let name = format!("exit holding, {}", P::NAME);
    fault(
        name,
        Rule::NoExitHolding,
        &[("quitter", "a", "")],
        body::<P>,
    )
}

fn zeroed<P: Make>() -> Row {
    fn body<P: Make>() {
        let memory = MaybeUninit::<Checked<P>>::zeroed();
        // SAFETY: the fault; zeros are a value of each part.
        let lock = ManuallyDrop::new(unsafe { memory.assume_init() });
        let _ = lock.try_acquire();
    }
    let name = format!("zeroed memory, {}", P::NAME);
    fault(name, Rule::InitialisedByInterface, UNNAMED, body::<P>)
}

/// A lock without a name is reported by its address or its first place, which the table cannot name.
const UNNAMED: crate::run::Tasks = &[("main", "", "?")];

fn copied<P: Make>() -> Row {
    fn body<P: Make>() {
        let lock = ManuallyDrop::new(P::checked("a"));
        take(&lock);
        // SAFETY: held.
        unsafe { lock.release() };
        // SAFETY: the fault; neither is dropped.
        let copy = ManuallyDrop::new(unsafe { std::ptr::read(&raw const lock) });
        let _ = copy.try_acquire();
    }
    let name = format!("copied, {}", P::NAME);
    fault(name, Rule::NotCopied, UNNAMED, body::<P>)
}

fn dropped_while_held<P: Make>() -> Row {
    fn in_place<P: Make>() {
        let mut lock = Box::new(MaybeUninit::new(P::checked("a")));
        // SAFETY: initialised.
        let taken = at!("a", unsafe { lock.assume_init_ref() }.try_acquire());
        assert!(taken.is_ok_and(|taken| taken));
        // SAFETY: initialised, and not used again. The fault: it is held.
        unsafe { lock.assume_init_drop() };
    }
    let name = format!("dropped while held, {}", P::NAME);
    fault(
        name,
        Rule::NotRemadeWhileHeld,
        &[("main", "a", "a")],
        in_place::<P>,
    )
}

fn recursion<P: Make>() -> Row {
    fn body<P: Make>() {
        let lock = ManuallyDrop::new(P::checked("a"));
        at!("a", assert!(lock.try_acquire().is_ok_and(|taken| taken)));
        let _ = at!("a", lock.acquire());
    }
    let name = format!("locked again, {}", P::NAME);
    fault(name, Rule::NoRecursion, &[("main", "a", "a")], body::<P>)
}

fn single_rows() -> Vec<Row> {
    vec![
        fault(
            "zeroed while held",
            Rule::NotRemadeWhileHeld,
            &[("main", "a", "a")],
            || {
                let lock = plain("a");
                at!("a", assert!(lock.try_acquire().unwrap()));
                // SAFETY: the fault; zeros are a value of each part.
                unsafe { (&raw const lock).cast_mut().write_bytes(0, 1) };
                at!("a", lock.try_acquire().unwrap());
                std::mem::forget(lock);
            },
        ),
        fault(
            "initialised again while held",
            Rule::NotRemadeWhileHeld,
            &[("main", "a", "a")],
            || {
                let mut lock = ManuallyDrop::new(plain("a"));
                at!("a", assert!(lock.try_acquire().unwrap()));
                // SAFETY: the fault.
                at!("a", unsafe {
                    (&raw mut *lock).write(Checked::named("a", WaitWake::new()))
                });
                let _ = lock.try_acquire();
            },
        ),
        fault(
            "used after its end",
            Rule::InitialisedByInterface,
            UNNAMED,
            || {
                let mut lock = Box::new(MaybeUninit::new(plain("a")));
                // SAFETY: initialised; then the fault.
                unsafe {
                    lock.assume_init_drop();
                    let _ = lock.assume_init_ref().try_acquire();
                }
            },
        ),
        fault(
            "a region's block with a held lock is freed",
            Rule::NoFreeHolding,
            &[("main", "a", "a")],
            || {
                let region = RegionOptions::new()
                    .max_bytes(2 << 20)
                    .create_anonymous()
                    .unwrap();
                let layout = std::alloc::Layout::new::<Checked<WaitWake<Shared>>>();
                let block = region.allocate(layout).unwrap();
                let place = block.cast::<Checked<WaitWake<Shared>>>();
                // SAFETY: a block of that layout.
                let lock = unsafe {
                    place.write(<WaitWake<Shared> as Make>::checked("a"));
                    place.as_ref()
                };
                at!("a", assert!(lock.try_acquire().unwrap()));
                // SAFETY: the fault.
                unsafe { region.deallocate(block).unwrap() };
            },
        ),
        fault(
            "memory is freed in which another holds a lock",
            Rule::NoFreeHolding,
            &[("main", "", "a"), ("holder", "a", "")],
            || {
                let lock = &ManuallyDrop::new(plain("a"));
                let start = std::ptr::from_ref(lock).addr();
                let held = &std::sync::Barrier::new(2);
                scope(|scope| {
                    thread(scope, "holder", move || {
                        at!("a", assert!(lock.try_acquire().unwrap()));
                        held.wait();
                        std::thread::park();
                    });
                    held.wait();
                    hook::freed(
                        start..start + size_of::<Checked<WaitWake>>(),
                        hook::Site::UNKNOWN,
                    );
                });
            },
        ),
        fault(
            "condition with two mutexes",
            Rule::OneMutexPerCondition,
            &[("second", "", "?")],
            || {
                let a = Mutex::from_raw(plain("a"), ());
                let b = Mutex::from_raw(plain("b"), ());
                let condition = Condvar::new();
                scope(|scope| {
                    let first = thread(scope, "first", || {
                        drop(condition.wait_for(a.lock(), std::time::Duration::from_secs(60)))
                    });
                    // The condition variable knows of it before the checker does.
                    crate::bounds::until_so_many_wait(1);
                    thread(scope, "second", || {
                        let _ = condition.wait_for(b.lock(), std::time::Duration::from_millis(1));
                    });
                    let _ = first;
                });
            },
        ),
        fault(
            "condition without its mutex",
            Rule::WaitsWithMutex,
            &[("main", "", "a")],
            || {
                let lock = plain("a");
                take(&lock);
                // SAFETY: held.
                unsafe { lock.release() };
                let mutex = hook::Lock::new((&raw const lock).addr(), hook::Kind::Mutex);
                let condition = hook::Lock::new(16, hook::Kind::Condvar);
                let _ = at!(
                    "a",
                    hook::condvar_begins(condition, mutex, true, hook::Site::caller())
                );
            },
        ),
        fault(
            "unlocked after its guard",
            Rule::NoDoubleUnlock,
            &[("main", "", "a")],
            || {
                let lock = Mutex::from_raw(plain("a"), ());
                crate::run::mark_release(line!() + 1);
                let guard = lock.lock();
                drop(guard);
                let told = hook::Lock::new((&raw const lock).addr(), hook::Kind::Mutex);
                let verdict = at!("a", hook::releasing(told, hook::Site::caller()));
                assert_eq!(verdict, hook::Verdict::NotHeld);
            },
        ),
        fault(
            "a writer unlocks twice",
            Rule::NoDoubleUnlock,
            &[("main", "", "rw")],
            || {
                let lock = rwlock("rw");
                crate::run::mark_release(line!() + 1);
                drop(lock.write());
                // SAFETY: the fault.
                at!("rw", unsafe { lock.raw().unlock_exclusive() });
            },
        ),
        fault(
            "two holders",
            Rule::OneHolder,
            &[("second", "a", "a"), ("main", "a", "")],
            || {
                let lock = plain("a");
                at!("a", assert!(lock.try_acquire().unwrap()));
                // SAFETY: the fault: behind the checker's back.
                unsafe { lock.inner().release() };
                scope(|scope| {
                    thread(scope, "second", || {
                        at!("a", assert!(lock.acquire().is_ok()));
                        std::thread::park();
                    });
                });
            },
        ),
        fault(
            "robust lock taken again",
            Rule::NoRecursion,
            &[("main", "r", "r")],
            || {
                static LOCK: Mutex<(), Robust<Checked<WaitWake<Shared>>>> =
                    Mutex::from_raw(Robust::new(), ());
                name_lock(&LOCK, "r");
                let lock = Pin::static_ref(&LOCK);
                let guard = at!("r", lock.lock());
                let again = at!("r", lock.lock());
                drop((again, guard));
            },
        ),
        fault(
            "exit holding a robust lock",
            Rule::NoExitHolding,
            &[("quitter", "r", "")],
            || {
                static LOCK: Mutex<(), Robust<Checked<WaitWake<Shared>>>> =
                    Mutex::from_raw(Robust::new(), ());
                name_lock(&LOCK, "r");
                scope(|scope| {
                    let quitter = thread(scope, "quitter", || {
                        std::mem::forget(at!("r", Pin::static_ref(&LOCK).lock()))
                    });
                    quitter.join().unwrap();
                });
            },
        ),
        fault(
            "reader unlocks twice",
            Rule::NoDoubleUnlock,
            &[("main", "", "rw")],
            || {
                let lock = rwlock("rw");
                // SAFETY: held, and then the fault.
                unsafe {
                    lock.raw().lock_shared();
                    lock.raw().unlock_shared();
                    at!("rw", lock.raw().unlock_shared());
                }
            },
        ),
        fault(
            "reader wants to write",
            Rule::NoRecursion,
            &[("main", "rw", "rw")],
            || {
                let lock = rwlock("rw");
                let reading = at!("rw", lock.read());
                let writing = at!("rw", lock.write());
                drop((writing, reading));
            },
        ),
        fault(
            "writer wants to read",
            Rule::NoRecursion,
            &[("main", "rw", "rw")],
            || {
                let lock = rwlock("rw");
                let writing = at!("rw", lock.write());
                let reading = at!("rw", lock.read());
                drop((writing, reading));
            },
        ),
        fault(
            "exit as a reader",
            Rule::NoExitHolding,
            &[("quitter", "rw", "")],
            || {
                let lock = rwlock("rw");
                scope(|scope| {
                    let quitter = thread(scope, "quitter", || {
                        std::mem::forget(at!("rw", lock.read()))
                    });
                    quitter.join().unwrap();
                });
                std::mem::forget(lock);
            },
        ),
    ]
}

fn name_lock<T>(lock: &T, name: &str) {
    let lock = hook::Lock::new(std::ptr::from_ref(lock).addr(), hook::Kind::Mutex)
        .with(hook::Traits::ROBUST | hook::Traits::SHARED);
    hook::initialised(lock, Some(name), hook::Site::caller());
}

pub fn rwlock(name: &str) -> CheckedRwLock<()> {
    CheckedRwLock::from_raw(Checked::named(name, RawRwLock::new()), ())
}
