//! Condition variables in a region, with each kind of mutex that survives its owner, whose waiters and notifiers are killed
//! at each instruction.
#![cfg(not(loom))]

use core::cell::{Cell, RefCell};
use core::ops::DerefMut;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::in_region::LockError as RegionLockError;
use latchwork::mutex::{InRegion, Inherit, LockError, Mutex, Protect, Robust, RobustGuard};
use latchwork::mutex::{RegionGuard, RegionProtocol, Throughput, WaitWake};
use latchwork::region::{Region, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::priority::{OTHER, now};
use latchwork_testkit::{Child, Trial, step};

mod kill_support;
mod robust_kinds;
use kill_support::{asleep, begin_with, warm_up};
use robust_kinds::Kind;

/// A number of tokens under a mutex. One number cannot be torn, and needs no repair.
trait Tokens: Shareable + Sized {
    type Held<'a>: DerefMut<Target = u64>
    where
        Self: 'a;
    fn none() -> Self;
    /// Whether this process may use it; says so if not.
    fn may_be_used(test: &str) -> bool;
    fn lock(self: Pin<&Self>) -> Self::Held<'_>;
    /// `None` if a task holds it.
    fn try_lock(self: Pin<&Self>) -> Option<Self::Held<'_>>;
    fn wait<'a>(condvar: &Condvar<Shared>, held: Self::Held<'a>) -> Self::Held<'a>
    where
        Self: 'a;
    fn wait_for<'a>(
        condvar: &Condvar<Shared>,
        held: Self::Held<'a>,
        timeout: Duration,
    ) -> Self::Held<'a>
    where
        Self: 'a;
}

impl<K: Kind + Shareable> Tokens for Mutex<u64, Robust<K>> {
    type Held<'a> = RobustGuard<'a, u64, K>;

    fn none() -> Self {
        K::mutex(0)
    }

    fn may_be_used(test: &str) -> bool {
        K::may_be_used(test)
    }

    fn lock(self: Pin<&Self>) -> RobustGuard<'_, u64, K> {
        repaired(Mutex::<u64, Robust<K>>::lock(self))
    }

    fn try_lock(self: Pin<&Self>) -> Option<RobustGuard<'_, u64, K>> {
        match Mutex::<u64, Robust<K>>::try_lock(self) {
            Err(LockError::WouldBlock) => None,
            taken => Some(repaired(taken)),
        }
    }

    fn wait<'a>(condvar: &Condvar<Shared>, held: RobustGuard<'a, u64, K>) -> RobustGuard<'a, u64, K>
    where
        Self: 'a,
    {
        repaired(condvar.wait_robust(held))
    }

    fn wait_for<'a>(
        condvar: &Condvar<Shared>,
        held: RobustGuard<'a, u64, K>,
        timeout: Duration,
    ) -> RobustGuard<'a, u64, K>
    where
        Self: 'a,
    {
        let taken = condvar.wait_robust_for(held, timeout);
        repaired(taken.map(|(held, _)| held))
    }
}

fn repaired<'a, K: Kind>(
    taken: Result<RobustGuard<'a, u64, K>, LockError<'a, u64, K>>,
) -> RobustGuard<'a, u64, K> {
    match taken {
        Ok(held) => held,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

impl<P: RegionProtocol + Shareable> Tokens for Mutex<u64, InRegion<P>> {
    type Held<'a> = RegionGuard<'a, u64, P>;

    fn none() -> Self {
        Self::from_raw(InRegion::new(), 0)
    }

    fn may_be_used(_: &str) -> bool {
        true
    }

    fn lock(self: Pin<&Self>) -> RegionGuard<'_, u64, P> {
        repaired_in_region(Mutex::<u64, InRegion<P>>::lock(self))
    }

    fn try_lock(self: Pin<&Self>) -> Option<RegionGuard<'_, u64, P>> {
        match Mutex::<u64, InRegion<P>>::try_lock(self) {
            Err(RegionLockError::WouldBlock) => None,
            taken => Some(repaired_in_region(taken)),
        }
    }

    fn wait<'a>(condvar: &Condvar<Shared>, held: RegionGuard<'a, u64, P>) -> RegionGuard<'a, u64, P>
    where
        Self: 'a,
    {
        repaired_in_region(condvar.wait_in_region(held))
    }

    fn wait_for<'a>(
        condvar: &Condvar<Shared>,
        held: RegionGuard<'a, u64, P>,
        timeout: Duration,
    ) -> RegionGuard<'a, u64, P>
    where
        Self: 'a,
    {
        let taken = condvar.wait_in_region_for(held, timeout);
        repaired_in_region(taken.map(|(held, _)| held))
    }
}

fn repaired_in_region<'a, P: RegionProtocol>(
    taken: Result<RegionGuard<'a, u64, P>, RegionLockError<'a, u64, P>>,
) -> RegionGuard<'a, u64, P> {
    match taken {
        Ok(held) => held,
        Err(RegionLockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

#[derive(Shareable)]
#[repr(C)]
struct Store<M: Tokens> {
    tokens: M,
    some: Condvar<Shared>,
    /// By tasks that are not killed; changed with the lock held.
    taken: AtomicU64,
}

struct Shop<'r, M: Tokens> {
    region: &'r Region,
    store: &'r Store<M>,
    tokens: Pin<&'r M>,
}

impl<'r, M: Tokens> Shop<'r, M> {
    fn new(region: &'r Region) -> Self {
        let make = || Store {
            tokens: M::none(),
            some: Condvar::shared(),
            taken: AtomicU64::new(0),
        };
        let store = region.object("store", make).unwrap().get_ref();
        // SAFETY: a part of a named object, which does not move.
        #[allow(unsafe_code)]
        let tokens = unsafe { Pin::new_unchecked(&store.tokens) };
        Self {
            region,
            store,
            tokens,
        }
    }

    /// Waits for a token and takes it.
    fn take(&self) {
        let mut tokens = self.tokens.lock();
        while *tokens == 0 {
            tokens = M::wait(&self.store.some, tokens);
        }
        *tokens -= 1;
    }

    /// As [`Self::take`], and counts it.
    fn take_counted(&self) {
        let mut tokens = self.tokens.lock();
        while *tokens == 0 {
            tokens = M::wait(&self.store.some, tokens);
        }
        *tokens -= 1;
        self.store.taken.fetch_add(1, SeqCst);
    }

    /// Waits for a token, in vain.
    fn wait_in_vain(&self) {
        let tokens = self.tokens.lock();
        assert_eq!(*tokens, 0);
        drop(M::wait_for(
            &self.store.some,
            tokens,
            Duration::from_millis(3),
        ));
    }

    fn put_one(&self) {
        *self.tokens.lock() += 1;
        self.store.some.notify_one();
    }

    fn put_for_all(&self, count: u64) {
        *self.tokens.lock() += count;
        self.store.some.notify_all();
    }

    /// No tokens, and this many tasks that wait for one, asleep.
    fn empty_with_waiters(&self, trial: &Trial, count: usize) -> Vec<Child> {
        self.region.sweep().unwrap();
        *self.tokens.lock() = 0;
        self.store.taken.store(0, SeqCst);
        let start = || Child::fork(|| self.take_counted());
        let waiters: Vec<Child> = core::iter::repeat_with(start).take(count).collect();
        asleep(trial, &waiters);
        waiters
    }

    /// A task that finds out what a dead one left.
    fn recover(&self, span: step::Span) {
        span.run(|| {
            self.region.join("recoverer").unwrap();
            drop(self.tokens.lock());
        });
    }
}

/// Makes a test of each function for each kind of mutex, which is its parameter.
macro_rules! with_every_mutex {
    (@ $module:ident: $mutex:ty; $($body:ident)*) => {
        mod $module {
            use super::*;
            $(#[test]
            fn $body() {
                let name = concat!(stringify!($module), "::", stringify!($body));
                if <$mutex>::may_be_used(name) {
                    let (trial, region) = begin_with::<$mutex>(name, "kill_condvar");
                    super::$body(&trial, &Shop::<$mutex>::new(&region));
                    assert_eq!(now(), OTHER, "the priority is not restored");
                    region.sweep().unwrap();
                    region.check_heap().unwrap();
                }
            })*
        }
    };
    ($($body:ident)*) => {
        with_every_mutex!(@ wait_wake: Mutex<u64, Robust<WaitWake<Shared>>>; $($body)*);
        with_every_mutex!(@ inherit: Mutex<u64, Robust<Inherit<Shared>>>; $($body)*);
        with_every_mutex!(@ protect: Mutex<u64, Robust<Protect<Shared>>>; $($body)*);
        with_every_mutex!(@ throughput: Mutex<u64, Robust<Throughput<Shared>>>; $($body)*);
        with_every_mutex!(@ in_region: Mutex<u64, InRegion<WaitWake<Shared>>>; $($body)*);
        with_every_mutex!(@ in_region_throughput: Mutex<u64, InRegion<Throughput<Shared>>>; $($body)*);
    };
}

with_every_mutex! {
    a_notification_outlives_its_waiter_at_every_instruction
    a_waiter_that_gives_up_takes_no_notification_at_any_instruction
    a_killed_notifier_leaves_no_waiter_asleep_at_any_instruction
    a_killed_notifier_of_all_leaves_no_waiter_asleep_at_any_instruction
}

/// The stepped waiter sleeps first, so it is the one that is notified: it takes the token, or the
/// other one is woken for it.
fn a_notification_outlives_its_waiter_at_every_instruction<M: Tokens>(
    trial: &Trial,
    shop: &Shop<'_, M>,
) {
    warm_up(trial, shop.region, || shop.take());
    let offered = Cell::new(0);
    // The stepped one may have the lock, and be stopped: it may have slept for that lock a moment ago.
    let offer = || {
        let Some(mut tokens) = shop.tokens.try_lock() else {
            return;
        };
        if *tokens == 0 {
            offered.set(offered.get() + 1);
            *tokens += 1;
            drop(tokens);
            shop.store.some.notify_one();
        }
    };
    step::each_instruction_and_recovery(
        trial,
        "condition variable, wait",
        || {
            // What recoverers have claimed, a victim in another namespace cannot free.
            shop.region.sweep().unwrap();
            *shop.tokens.lock() = 0;
            offered.set(0);
            RefCell::new(None)
        },
        |_, span| {
            shop.region.join("stepped").unwrap();
            span.run(|| shop.take());
        },
        |other| {
            let mut other = other.borrow_mut();
            let other = other.get_or_insert_with(|| Child::fork(|| shop.take()));
            trial.wait_until(|| other.is_in_futex() || other.try_wait().is_some());
            offer();
            true
        },
        |_, span| shop.recover(span),
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
            match offered.get() {
                1 => "the other one took the token",
                _ => "it had taken the token",
            }
        },
    );
}

/// A waiter with a limit, which is killed. There is one token and one notification after it, and they reach the other
/// waiter.
fn a_waiter_that_gives_up_takes_no_notification_at_any_instruction<M: Tokens>(
    trial: &Trial,
    shop: &Shop<'_, M>,
) {
    warm_up(trial, shop.region, || shop.take());
    step::each_instruction_and_recovery(
        trial,
        "condition variable, timed wait, in vain",
        || shop.empty_with_waiters(trial, 1),
        |_, span| {
            shop.region.join("stepped").unwrap();
            span.run(|| shop.wait_in_vain());
        },
        // The limit ends each of its sleeps.
        |_| true,
        |_, span| shop.recover(span),
        |mut waiters, _| {
            shop.put_one();
            waiters.remove(0).succeed();
            assert_eq!(*shop.tokens.lock(), 0);
            "the other one took the token"
        },
    );
}

/// A killed notifier: its death is notification enough if it has made its change.
fn notifier_killed_at_every_instruction<M: Tokens>(
    trial: &Trial,
    shop: &Shop<'_, M>,
    name: &str,
    count: u64,
    put: impl Fn(),
) {
    step::each_instruction_and_recovery(
        trial,
        name,
        || shop.empty_with_waiters(trial, count as usize),
        |_, span| {
            shop.region.join("stepped").unwrap();
            span.run(&put);
        },
        |_| false,
        |_, span| shop.recover(span),
        |waiters, _| {
            let made = {
                let tokens = shop.tokens.lock();
                *tokens + shop.store.taken.load(SeqCst)
            };
            assert!(made == 0 || made == count);
            if made == 0 {
                put();
            }
            waiters.into_iter().for_each(Child::succeed);
            match made {
                0 => "not changed",
                _ => "changed, and the waiters woke",
            }
        },
    );
}

fn a_killed_notifier_leaves_no_waiter_asleep_at_any_instruction<M: Tokens>(
    trial: &Trial,
    shop: &Shop<'_, M>,
) {
    let put = || shop.put_one();
    notifier_killed_at_every_instruction(trial, shop, "change and notify", 1, put);
}

fn a_killed_notifier_of_all_leaves_no_waiter_asleep_at_any_instruction<M: Tokens>(
    trial: &Trial,
    shop: &Shop<'_, M>,
) {
    let put = || shop.put_for_all(2);
    notifier_killed_at_every_instruction(trial, shop, "change and notify all", 2, put);
}
