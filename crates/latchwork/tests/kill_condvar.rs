//! Condition variables with robust mutexes in a region, whose waiters and notifiers are killed at random moments.
#![allow(unsafe_code)]

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use latchwork::condvar::Condvar;
use latchwork::mutex::{LockError, Mutex, RawLock, Robust, RobustGuard, WaitWake};
use latchwork::region::{Region, Shareable};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Page, Storm, Trial, Worker};
use std::cell::RefCell;
use std::thread;

mod kill_support;
use kill_support::region;
use latchwork_testkit::Mapped;

const ROOM: u64 = 3;

#[derive(Shareable)]
#[repr(C)]
struct Store {
    tokens: Mutex<u64, Robust>,
    some: Condvar<Shared>,
    room: Condvar<Shared>,
    progress: [AtomicU64; 8],
}

impl Store {
    fn new() -> Self {
        Self {
            tokens: Mutex::robust(0),
            some: Condvar::shared(),
            room: Condvar::shared(),
            progress: [const { AtomicU64::new(0) }; 8],
        }
    }
}

type Tokens<'a> = RobustGuard<'a, u64>;

/// One number: it cannot be torn, and needs no repair.
fn repaired<'a>(result: Result<Tokens<'a>, LockError<'a, u64>>) -> Tokens<'a> {
    match result {
        Ok(tokens) => tokens,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

#[derive(Clone, Copy)]
struct Shop<'r> {
    store: &'r Store,
    tokens: Pin<&'r Mutex<u64, Robust>>,
}

impl<'r> Shop<'r> {
    fn new(region: &'r Region) -> Self {
        let store = region.object("store", Store::new).unwrap().get_ref();
        // SAFETY: part of a named object, which does not move.
        #[allow(unsafe_code)]
        let tokens = unsafe { Pin::new_unchecked(&store.tokens) };
        Self { store, tokens }
    }

    fn take(self) {
        let mut tokens = repaired(self.tokens.lock());
        while *tokens == 0 {
            tokens = repaired(self.store.some.wait_robust(tokens));
        }
        *tokens -= 1;
        drop(tokens);
        self.store.room.notify_one();
    }

    fn put(self, all: bool) {
        let mut tokens = repaired(self.tokens.lock());
        while *tokens >= ROOM {
            tokens = repaired(self.store.room.wait_robust(tokens));
        }
        *tokens += 1;
        drop(tokens);
        if all {
            self.store.some.notify_all()
        } else {
            self.store.some.notify_one()
        }
    }
}

fn storm_over_a_condvar(
    name: &'static str,
    givers: usize,
    takers: usize,
    kills: u64,
    recoverers: bool,
) {
    let trial = Trial::begin(name);
    let region = region("kill_condvar");
    let shop = Shop::new(&region);
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        loop {
            if worker.seat < givers {
                shop.put(rng.u32(..8) == 0)
            } else {
                shop.take()
            }
            shop.store.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, givers + takers, work);
    let kills = trial.times(kills);
    while storm.kills() < kills {
        let _ = if recoverers {
            storm.kill_recoverers()
        } else {
            storm.kill()
        };
        storm.wait_for_progress(|seat| shop.store.progress[seat].load(SeqCst));
    }
    storm.finish();
    assert!(*repaired(shop.tokens.lock()) <= ROOM);
    region.sweep().unwrap();
    region.check_heap().unwrap();
}

#[test]
fn killed_waiters_and_notifiers_block_no_task() {
    storm_over_a_condvar(
        "killed_waiters_and_notifiers_block_no_task",
        3,
        3,
        250,
        false,
    );
}

#[test]
fn killed_notifiers_block_none_of_many_waiters() {
    storm_over_a_condvar(
        "killed_notifiers_block_none_of_many_waiters",
        2,
        6,
        100,
        false,
    );
}

#[test]
fn killing_tasks_that_a_death_has_just_woken_blocks_no_task() {
    storm_over_a_condvar(
        "killing_tasks_that_a_death_has_just_woken_blocks_no_task",
        3,
        3,
        150,
        true,
    );
}

/// A lock whose user does something else right after the release: a waiter is on its way to sleep then.
#[derive(Default)]
struct Interrupted(WaitWake<Shared>);

thread_local!(static THEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) });

// SAFETY: the lock is that of the field.
unsafe impl RawLock for Interrupted {
    fn lock(&self) {
        RawLock::lock(&self.0);
    }
    fn try_lock(&self) -> bool {
        RawLock::try_lock(&self.0)
    }
    fn lock_until(&self, deadline: Deadline) -> bool {
        RawLock::lock_until(&self.0, deadline)
    }
    unsafe fn unlock(&self) {
        // SAFETY: by the caller's contract.
        unsafe { RawLock::unlock(&self.0) };
        if let Some(then) = THEN.take() {
            then();
        }
    }
}

/// The notifier makes its change while the waiter is on its way to sleep, and is killed; with
/// `swept`, somebody else has settled that when the waiter arrives. Otherwise the waiter is no task
/// of the region when it begins, and settles it itself as it becomes one.
fn a_notifier_dies_between_unlock_and_sleep(name: &'static str, swept: bool) {
    let trial = Trial::begin(name);
    let region = region("kill_condvar");
    let changed = region
        .object("changed", Condvar::<Shared>::shared)
        .unwrap()
        .get_ref();
    let set = Mapped::new(Mutex::from_raw(Interrupted::default(), false));
    let (ready, go) = (Page::<AtomicBool>::new(), Page::<AtomicBool>::new());
    let mut notifier = Child::fork(|| {
        region.join("notifier").unwrap();
        ready.store(true, SeqCst);
        while !go.load(SeqCst) {
            thread::yield_now();
        }
        *set.lock() = true;
        // SAFETY: a signal to oneself.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    trial.wait_until(|| ready.load(SeqCst));
    let interruption = || {
        go.store(true, SeqCst);
        assert_eq!(notifier.wait(), Exit::Signal(libc::SIGKILL));
        if swept {
            assert_eq!(region.sweep().unwrap().dead, ["notifier"]);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            if swept {
                region.join("waiter").unwrap();
            }
            let guard = set.lock();
            // SAFETY: called in the wait below, or never.
            THEN.set(Some(unsafe {
                core::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce() + 'static>>(
                    Box::new(interruption),
                )
            }));
            let guard = changed.wait_while(guard, |set| !*set);
            assert!(*guard);
        });
    });
}

#[test]
fn a_death_that_is_settled_before_a_waiter_sleeps_keeps_it_awake() {
    a_notifier_dies_between_unlock_and_sleep(
        "a_death_that_is_settled_before_a_waiter_sleeps_keeps_it_awake",
        true,
    );
}

#[test]
fn a_death_that_a_newcomer_settles_before_it_sleeps_keeps_it_awake() {
    a_notifier_dies_between_unlock_and_sleep(
        "a_death_that_a_newcomer_settles_before_it_sleeps_keeps_it_awake",
        false,
    );
}
