//! What every condition variable must do: ours with each kind of mutex, and std's and pthread's,
//! which show that the bodies are right.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::{LockError, Mutex, Robust, WaitWake};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page, Trial, Watchdog};
use std::thread;

mod lock_support;
mod pthread;
use lock_support::{Mapped, ThreadId};

/// A number, and waiting for it to change.
trait Contestant: Sync {
    const SHARED: bool;
    fn make() -> Self;
    fn settle(&self) {}
    /// Changes the number, and tells one waiter, or all.
    fn change(&self, all: bool, change: impl FnOnce(&mut u64));
    /// Waits while `condition` holds, until the deadline; then leaves the number changed by `then`.
    /// Returns false if the deadline passed first.
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool;
}

struct Private {
    number: Mutex<u64>,
    changed: Condvar,
}

impl Contestant for Private {
    const SHARED: bool = false;
    fn make() -> Self {
        Self {
            number: Mutex::new(0),
            changed: Condvar::new(),
        }
    }
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        change(&mut self.number.lock());
        if all {
            self.changed.notify_all()
        } else {
            self.changed.notify_one()
        }
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.number.lock();
        match deadline {
            None => guard = self.changed.wait_while(guard, |number| condition(*number)),
            Some(deadline) => {
                while condition(*guard) {
                    let waited;
                    (guard, waited) = self.changed.wait_until(guard, deadline);
                    if waited == Waited::TimedOut && condition(*guard) {
                        return false;
                    }
                }
            }
        }
        then(&mut guard);
        true
    }
}

/// Notifies under the lock.
struct BetweenProcesses {
    number: Mutex<u64, WaitWake<Shared>>,
    changed: Condvar<Shared>,
}

impl Contestant for BetweenProcesses {
    const SHARED: bool = true;
    fn make() -> Self {
        Self {
            number: Mutex::shared(0),
            changed: Condvar::shared(),
        }
    }
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        let mut guard = self.number.lock();
        change(&mut guard);
        if all {
            self.changed.notify_all()
        } else {
            self.changed.notify_one()
        }
        drop(guard);
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.number.lock();
        while condition(*guard) {
            let waited;
            (guard, waited) = match deadline {
                None => (self.changed.wait(guard), Waited::Woken),
                Some(deadline) => self.changed.wait_until(guard, deadline),
            };
            if waited == Waited::TimedOut && condition(*guard) {
                return false;
            }
        }
        then(&mut guard);
        true
    }
}

struct WithRobust {
    number: Mutex<u64, Robust>,
    changed: Condvar<Shared>,
}

impl WithRobust {
    fn number(&self) -> Pin<&Mutex<u64, Robust>> {
        // SAFETY: no body moves its contestant after the first use.
        unsafe { Pin::new_unchecked(&self.number) }
    }
}

impl Contestant for WithRobust {
    const SHARED: bool = true;
    fn make() -> Self {
        Self {
            number: Mutex::robust(0),
            changed: Condvar::shared(),
        }
    }
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        change(&mut self.number().lock().unwrap());
        if all {
            self.changed.notify_all()
        } else {
            self.changed.notify_one()
        }
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.number().lock().unwrap();
        while condition(*guard) {
            let waited;
            (guard, waited) = match deadline {
                None => (self.changed.wait_robust(guard).unwrap(), Waited::Woken),
                Some(deadline) => self.changed.wait_robust_until(guard, deadline).unwrap(),
            };
            if waited == Waited::TimedOut && condition(*guard) {
                return false;
            }
        }
        then(&mut guard);
        true
    }
}

#[derive(Default)]
struct OfStd {
    number: std::sync::Mutex<u64>,
    changed: std::sync::Condvar,
}

impl Contestant for OfStd {
    const SHARED: bool = false;
    fn make() -> Self {
        Self::default()
    }
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        change(&mut self.number.lock().unwrap());
        if all {
            self.changed.notify_all()
        } else {
            self.changed.notify_one()
        }
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let guard = self.number.lock().unwrap();
        let patience = deadline.map_or(Duration::from_secs(1 << 20), Deadline::remaining);
        let (mut guard, ended) = self
            .changed
            .wait_timeout_while(guard, patience, |number| condition(*number))
            .unwrap();
        if ended.timed_out() {
            return false;
        }
        then(&mut guard);
        true
    }
}

struct OfPthread {
    number: pthread::Mutex<u64>,
    changed: pthread::Condvar,
}

impl Contestant for OfPthread {
    const SHARED: bool = true;
    fn make() -> Self {
        Self {
            number: pthread::Mutex::new(0),
            changed: pthread::Condvar::new(),
        }
    }
    fn settle(&self) {
        self.number.initialise();
        self.changed.initialise();
    }
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        change(&mut self.number.lock());
        if all {
            self.changed.notify_all()
        } else {
            self.changed.notify_one()
        }
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl Fn(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.number.lock();
        while condition(*guard) {
            if !self.changed.wait(&mut guard, deadline) && condition(*guard) {
                return false;
            }
        }
        then(&mut guard);
        true
    }
}

const ROUNDS: u64 = 2000;

fn settled<C: Contestant>() -> Box<C> {
    let contestant = Box::new(C::make());
    contestant.settle();
    contestant
}

fn play(contestant: &impl Contestant, parity: u64) {
    for _ in 0..ROUNDS {
        contestant.wait_while(None, |number| number % 2 != parity, |number| *number += 1);
        contestant.change(false, |_| ());
    }
}

fn two_tasks_take_turns<C: Contestant>() {
    let contestant = settled::<C>();
    thread::scope(|scope| {
        scope.spawn(|| play(&*contestant, 0));
        play(&*contestant, 1);
    });
    assert!(contestant.wait_while(None, |number| number != 2 * ROUNDS, |_| ()));
}

fn two_processes_take_turns<C: Contestant>() {
    if !C::SHARED {
        return;
    }
    let _trial = Trial::begin("two_processes_take_turns");
    let contestant = Mapped::new(C::make());
    contestant.settle();
    let child = Child::fork(|| play(&*contestant, 0));
    play(&*contestant, 1);
    child.succeed();
    assert!(contestant.wait_while(None, |number| number != 2 * ROUNDS, |_| ()));
}

/// Each notification of one reaches somebody: as many tokens as takers, whoever comes when.
fn each_token_finds_a_taker<C: Contestant>() {
    const TAKERS: u64 = 4;
    let contestant = settled::<C>();
    thread::scope(|scope| {
        for _ in 0..TAKERS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    contestant.wait_while(None, |tokens| tokens == 0, |tokens| *tokens -= 1);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                (0..ROUNDS * TAKERS / 2)
                    .for_each(|_| contestant.change(false, |tokens| *tokens += 1))
            });
        }
    });
    assert!(contestant.wait_while(None, |tokens| tokens != 0, |_| ()));
}

fn a_broadcast_releases_everybody<C: Contestant>() {
    let contestant = settled::<C>();
    for round in 1..=50 {
        let asleep: [ThreadId; 6] = Default::default();
        thread::scope(|scope| {
            for id in &asleep {
                let contestant = &contestant;
                scope.spawn(move || {
                    id.set();
                    contestant.wait_while(None, |number| number != round, |_| ());
                });
            }
            // In some rounds all sleep, in the others they are on their way.
            while round % 5 == 0 && !asleep.iter().all(ThreadId::is_in_futex) {
                thread::yield_now();
            }
            contestant.change(true, |number| *number = round);
        });
    }
}

fn a_timed_wait_ends_at_its_deadline_and_not_before<C: Contestant>() {
    let contestant = settled::<C>();
    assert!(!contestant.wait_while(Some(Deadline::from_nanoseconds(1)), |_| true, |_| ()));
    let soon = Deadline::after(Duration::from_millis(3));
    assert!(!contestant.wait_while(Some(soon), |_| true, |_| ()));
    assert!(soon.has_passed());
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            let far = Deadline::after(Duration::from_secs(3600));
            assert!(contestant.wait_while(Some(far), |number| number == 0, |_| ()));
        });
        while !id.is_in_futex() {
            thread::yield_now();
        }
        contestant.change(false, |number| *number = 1);
    });
}

macro_rules! conformance {
    ($($module:ident: $contestant:ty;)*) => {$(
        mod $module {
            conformance!(@ $contestant; two_tasks_take_turns two_processes_take_turns each_token_finds_a_taker
                a_broadcast_releases_everybody a_timed_wait_ends_at_its_deadline_and_not_before);
        }
    )*};
    (@ $contestant:ty; $($body:ident)*) => {$(
        #[test]
        fn $body() {
            let _watchdog = super::Watchdog::start(concat!(stringify!($body), " of ", stringify!($contestant)).into());
            super::$body::<$contestant>();
        }
    )*};
}

conformance! {
    private: crate::Private;
    between_processes: crate::BetweenProcesses;
    with_robust: crate::WithRobust;
    of_std: crate::OfStd;
    of_pthread: crate::OfPthread;
}

static NUMBER: Mutex<u32> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

#[test]
fn a_condvar_can_be_a_static_and_is_zero() {
    CHANGED.notify_all();
    drop(NUMBER.lock());
    assert_eq!((size_of::<Condvar>(), align_of::<Condvar>()), (8, 4));
    assert_eq!(
        (size_of::<Condvar<Shared>>(), align_of::<Condvar<Shared>>()),
        (8, 4)
    );
    // SAFETY: two integers.
    let zeroed: Condvar = unsafe { core::mem::zeroed() };
    assert_eq!(
        zeroed.wait_for(NUMBER.lock(), Duration::from_millis(1)).1,
        Waited::TimedOut
    );
}

#[test]
fn a_waiter_learns_that_a_holder_died_meanwhile() {
    let _watchdog = Watchdog::start("a_waiter_learns_that_a_holder_died_meanwhile".into());
    let number = pin!(Mutex::robust(0_u64));
    let number = number.as_ref();
    let changed = Condvar::shared();
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            let mut guard = number.lock().unwrap();
            loop {
                match changed.wait_robust(guard) {
                    Ok(woken) => guard = woken,
                    Err(LockError::OwnerDied(died)) => return drop(died.make_consistent()),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while !id.is_in_futex() {
            thread::yield_now();
        }
        scope.spawn(|| forget(number.lock())).join().unwrap();
        changed.notify_one();
    });
}

/// Its count stays; notifications of the others are none the worse for it.
#[test]
fn a_killed_waiter_hangs_nobody() {
    let trial = Trial::begin("a_killed_waiter_hangs_nobody");
    let contestant = Mapped::new(WithRobust::make());
    let passed = Page::<AtomicU32>::new();
    let wait = || {
        contestant.wait_while(None, |number| number == 0, |_| ());
        passed.fetch_add(1, Ordering::Relaxed);
    };
    for _ in 0..20 {
        contestant.change(false, |number| *number = 0);
        let mut victim = Child::fork(wait);
        let survivors = [Child::fork(wait), Child::fork(wait)];
        trial.wait_until(|| victim.is_in_futex() && survivors.iter().all(Child::is_in_futex));
        victim.kill();
        contestant.change(true, |number| *number = 1);
        survivors.into_iter().for_each(Child::succeed);
    }
    assert_eq!(passed.load(Ordering::Relaxed), 40);
}
