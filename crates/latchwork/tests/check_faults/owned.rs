//! Semaphores with an owner: each fault with each kind.
#![allow(unsafe_code)]

use crate::at;
use crate::kinds::plain;
use crate::objects::{CEILING, region};
use crate::run::{Row, fault, harmless, thread};
use latchwork::check::Rule;
use latchwork::mutex::Protocol;
use latchwork::region::Region;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, Held, MrspHeld, MrspSemaphore, ObtainError, Priority,
    PriorityMutex, PriorityMutexOptions, UseError,
};
use latchwork_testkit::Child;
use std::sync::Barrier;
use std::thread::scope;

const KINDS: [&str; 4] = ["plain", "ceiling", "inheriting", "MrsP"];

/// A semaphore with an owner, of any kind. Guards are kept.
#[derive(Clone, Copy)]
pub enum Owned<'r> {
    Binary(BinarySemaphore<'r>),
    Mrsp(MrspSemaphore<'r>),
}

impl<'r> Owned<'r> {
    pub fn make<const KIND: usize>(region: &'r Region, name: &str) -> Self {
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
    pub fn obtain(self) -> Result<(), ObtainError> {
        match self {
            Self::Binary(semaphore) => semaphore.obtain().map(Held::keep),
            Self::Mrsp(semaphore) => semaphore.obtain().map(MrspHeld::keep),
        }
    }

    #[track_caller]
    pub fn release(self) -> bool {
        match self {
            Self::Binary(semaphore) => semaphore.release().is_ok(),
            Self::Mrsp(semaphore) => semaphore.release().is_ok(),
        }
    }

    #[track_caller]
    pub fn delete(self) -> Result<(), UseError> {
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
    each_owned!(rows, cycle_of_two, with_a_mutex, two_orders);
    each_owned!(rows, orderly);
    rows.extend([above_ceiling::<1>(), above_ceiling::<3>()]);
    rows.extend([data_in_two_orders(), data_in_order()]);
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

fn cycle_of_two<const KIND: usize>() -> Row {
    let tasks = &[("one", "s", "t"), ("two", "t", "s")];
    row::<KIND>("cycle of two", Rule::NoDeadlock, tasks, || {
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
    row::<KIND>("cycle with a mutex", Rule::NoDeadlock, tasks, || {
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

fn data(region: &Region) -> PriorityMutex<'_, u64> {
    PriorityMutex::create(region, "s", &PriorityMutexOptions::new(), || 0).unwrap()
}

fn data_in_two_orders() -> Row {
    let tasks = &[("one", "s", "m"), ("two", "m", "s")];
    let name = "two orders with a mutex, priority mutex".to_owned();
    fault(name, Rule::OneOrder, tasks, || {
        let region = region();
        let data = data(&region);
        let mutex = plain("m");
        let in_turn = |name, body: &(dyn Fn() + Sync)| {
            scope(|scope| thread(scope, name, body).join().unwrap());
        };
        // SAFETY: taken by the caller.
        let unlock = || unsafe { mutex.release() };
        in_turn("one", &|| {
            let guard = at!("s", data.lock()).unwrap();
            let _ = at!("m", mutex.acquire());
            unlock();
            drop(guard);
        });
        in_turn("two", &|| {
            let _ = at!("m", mutex.acquire());
            drop(at!("s", data.lock()).unwrap());
            unlock();
        });
    })
}

fn data_in_order() -> Row {
    harmless("orderly use, priority mutex".to_owned(), || {
        let region = region();
        let data = data(&region);
        let other = Owned::make::<2>(&region, "t");
        let both = || {
            for _ in 0..100 {
                let mut guard = data.lock().unwrap();
                other.obtain().unwrap();
                *guard += 1;
                other.release();
            }
        };
        scope(|scope| {
            for _ in 0..3 {
                thread(scope, "other", both);
            }
        });
        both();
        Child::fork(both).succeed();
        assert_eq!(*data.lock().unwrap(), 500);
        // What nobody repairs is no misuse of those who come later.
        Child::fork(|| core::mem::forget(data.lock().unwrap())).succeed();
        drop(data.lock());
        assert!(data.lock().is_err() && data.try_lock().is_err());
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
