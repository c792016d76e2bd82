//! Condition variables with robust mutexes in a region, whose waiters and notifiers are killed.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::condvar::Condvar;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::step;
use latchwork_testkit::{Child, Exit, Storm, Trial, Worker};

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
        Self {
            store,
            tokens: region.pin(&store.tokens),
        }
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

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(64)
        .label("kill_condvar")
        .create_anonymous()
        .unwrap()
}

fn storm_over_a_condvar(
    name: &'static str,
    givers: usize,
    takers: usize,
    kills: u64,
    recoverers: bool,
) {
    let trial = Trial::begin(name);
    let region = region();
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
fn killed_waiters_and_notifiers_hang_nobody() {
    storm_over_a_condvar("killed_waiters_and_notifiers_hang_nobody", 3, 3, 250, false);
}

#[test]
fn killed_notifiers_hang_none_of_many_waiters() {
    storm_over_a_condvar(
        "killed_notifiers_hang_none_of_many_waiters",
        2,
        6,
        100,
        false,
    );
}

#[test]
fn killing_those_who_were_just_woken_by_a_death_hangs_nobody() {
    storm_over_a_condvar(
        "killing_those_who_were_just_woken_by_a_death_hangs_nobody",
        3,
        3,
        150,
        true,
    );
}

/// The stepped waiter sleeps first, so it is the one that is notified: it takes the token, or the
/// other one is woken for it.
#[test]
fn a_notification_outlives_its_waiter_at_every_instruction() {
    let trial = Trial::begin("a_notification_outlives_its_waiter_at_every_instruction");
    let region = region();
    let shop = Shop::new(&region);
    // A new place in the task table wakes those who sleep, once: let there be enough of them.
    let mut warm: Vec<Child> = (0..4).map(|_| Child::fork(|| shop.take())).collect();
    for child in &warm {
        trial.wait_until(|| child.is_in_futex());
    }
    warm.iter_mut()
        .for_each(|child| assert_ne!(child.kill(), Exit::Code(0)));
    region.sweep().unwrap();
    let offer = || {
        if *repaired(shop.tokens.lock()) == 0 {
            shop.put(false);
        }
    };
    step::each_instruction(
        &trial,
        "condition variable, wait",
        || {
            *repaired(shop.tokens.lock()) = 0;
            core::cell::RefCell::new(None)
        },
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| shop.take());
        },
        |other| {
            let mut other = other.borrow_mut();
            let other = other.get_or_insert_with(|| Child::fork(|| shop.take()));
            trial.wait_until(|| other.is_in_futex() || other.try_wait().is_some());
            offer();
            true
        },
        |other, _| {
            let mut other = other
                .into_inner()
                .unwrap_or_else(|| Child::fork(|| shop.take()));
            // If the stepped one has taken the token, there is another one.
            trial.wait_until(|| {
                if other.is_in_futex() {
                    offer();
                }
                other.try_wait().is_some()
            });
            other.succeed();
        },
    );
}

#[test]
fn a_killed_notifier_leaves_no_waiter_asleep_at_any_instruction() {
    let trial = Trial::begin("a_killed_notifier_leaves_no_waiter_asleep_at_any_instruction");
    let region = region();
    let shop = Shop::new(&region);
    step::each_instruction(
        &trial,
        "change and notify",
        || {
            *repaired(shop.tokens.lock()) = 0;
            let waiter = Child::fork(|| shop.take());
            trial.wait_until(|| waiter.is_in_futex());
            waiter
        },
        |_, span| {
            region.join("stepped").unwrap();
            span.run(|| shop.put(false));
        },
        |_| false,
        |waiter, _| {
            // It made the change: then its death is notification enough. It did not: then we do.
            let mut waiter = waiter;
            let changed = *repaired(shop.tokens.lock()) == 1;
            if !changed && waiter.try_wait().is_none() {
                shop.put(false);
            }
            waiter.succeed();
        },
    );
}
