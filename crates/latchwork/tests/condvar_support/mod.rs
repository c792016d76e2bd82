//! Numbers that one waits for: with our condition variable and each kind of mutex, and std's and
//! pthread's, which show that the bodies are right.
#![allow(dead_code, reason = "each program uses its part")]

use super::pthread;
use core::cell::Cell;
use core::pin::Pin;
use core::time::Duration;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::{
    Inherit, InheritPlain, Mutex, MutexGuard, Protect, Protocol, RecursiveMutex, Robust,
    RobustProtocol, Throughput, WaitWake,
};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::time::Deadline;
use latchwork_testkit::bodies::condvar::Contestant;
use latchwork_testkit::priority::may_use_priorities;

/// A kind of mutex, and a condition variable for it.
pub trait Way: 'static {
    const SHARED: bool;
    type Lock: Protocol + Send + Sync;
    type Sharing: Sharing + Send + Sync;
    fn is_permitted(_test: &str) -> bool {
        true
    }
    fn lock() -> Self::Lock;
    fn get<G>(outcome: <Self::Lock as Protocol>::Outcome<G>) -> G;
}

macro_rules! ways {
    ($($(#[$meta:meta])* $way:ident: $lock:ty, $sharing:ty, $shared:expr, $make:expr, $get:expr, $permitted:expr;)*) => {$(
        $(#[$meta])*
        pub struct $way;
        impl Way for $way {
            const SHARED: bool = $shared;
            type Lock = $lock;
            type Sharing = $sharing;
            fn is_permitted(test: &str) -> bool {
                $permitted(test)
            }
            fn lock() -> $lock {
                $make
            }
            fn get<G>(outcome: <$lock as Protocol>::Outcome<G>) -> G {
                $get(outcome)
            }
        }
    )*};
}

fn always(_: &str) -> bool {
    true
}
use core::convert::identity as itself;

ways! {
    /// Those who are released are sent to the mutex's word,
    ByWord: WaitWake, Private, false, WaitWake::new(), itself, always;
    /// where they wake up as its owners,
    ByKernel: InheritPlain, Private, false, InheritPlain::new(), Result::unwrap, always;
    ByKernelPastGate: Inherit, Private, false, Inherit::new(), Result::unwrap, always;
    /// or to the relay;
    ByRelay: Throughput, Private, false, Throughput::new(), itself, always;
    ByRelayUnderCeiling: Protect, Private, false, Protect::with_ceiling(1), Result::unwrap, may_use_priorities;
    ByRelayToShared: InheritPlain<Shared>, Private, false, InheritPlain::new(), Result::unwrap, always;
    /// or all are woken.
    ByCrowd: WaitWake<Shared>, Shared, true, WaitWake::new(), itself, always;
    ByCrowdInheriting: Inherit<Shared>, Shared, true, Inherit::new(), Result::unwrap, always;
}

pub struct Of<W: Way> {
    number: Mutex<u64, W::Lock>,
    changed: Condvar<W::Sharing>,
}

impl<W: Way> Of<W> {
    pub fn lock(&self) -> MutexGuard<'_, u64, W::Lock> {
        W::get(self.number.lock())
    }

    pub fn wait_for_change<'a>(
        &self,
        guard: MutexGuard<'a, u64, W::Lock>,
    ) -> MutexGuard<'a, u64, W::Lock> {
        W::get(self.changed.wait(guard))
    }

    pub fn changed(&self) -> &Condvar<W::Sharing> {
        &self.changed
    }
}

fn notify<S: Sharing>(changed: &Condvar<S>, all: bool) {
    if all {
        changed.notify_all();
    } else {
        changed.notify_one();
    }
}

impl<W: Way> Contestant for Of<W> {
    const SHARED: bool = W::SHARED;
    fn is_permitted(test: &str) -> bool {
        W::is_permitted(test)
    }
    fn make() -> Self {
        Self {
            number: Mutex::from_raw(W::lock(), 0),
            changed: Condvar::new_in(),
        }
    }
    /// Under the lock where that leaves an odd number, or after it.
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        let mut guard = self.lock();
        change(&mut guard);
        let held = (*guard % 2 == 1).then_some(guard);
        notify(&self.changed, all);
        rest();
        drop(held);
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.lock();
        let Some(deadline) = deadline else {
            let waited = self.changed.wait_while(guard, |number| condition(*number));
            let mut guard = W::get(waited);
            then(&mut guard);
            return true;
        };
        while condition(*guard) {
            let waited;
            (guard, waited) = W::get(self.changed.wait_until(guard, deadline));
            if waited == Waited::TimedOut && condition(*guard) {
                return false;
            }
        }
        then(&mut guard);
        true
    }
}

/// Whether processes can share it.
pub trait Spread: Sharing + Sync {
    const SHARED: bool;
}
impl Spread for Private {
    const SHARED: bool = false;
}
impl Spread for Shared {
    const SHARED: bool = true;
}

/// A protocol with a robust form.
pub trait Kind: RobustProtocol + Sized + 'static {
    fn is_permitted(_test: &str) -> bool {
        true
    }
    fn lock() -> Robust<Self>;
}

macro_rules! kinds {
    ($($protocol:ident)*) => {$(
        impl<S: Spread> Kind for $protocol<S> {
            fn lock() -> Robust<Self> {
                Robust::new()
            }
        }
    )*};
}
kinds! { WaitWake Inherit Throughput }

impl<S: Spread> Kind for Protect<S> {
    fn is_permitted(test: &str) -> bool {
        may_use_priorities(test)
    }
    fn lock() -> Robust<Self> {
        Robust::<Self>::with_ceiling(1)
    }
}

pub struct OfRobust<S: Sharing, P: RobustProtocol = WaitWake<Shared>> {
    number: Mutex<u64, Robust<P>>,
    changed: Condvar<S>,
}

impl<S: Sharing, P: RobustProtocol> OfRobust<S, P> {
    fn number(&self) -> Pin<&Mutex<u64, Robust<P>>> {
        // SAFETY: no body moves its contestant after the first use.
        unsafe { Pin::new_unchecked(&self.number) }
    }
}

impl<S: Spread, P: Kind> Contestant for OfRobust<S, P> {
    const SHARED: bool = S::SHARED;
    fn is_permitted(test: &str) -> bool {
        P::is_permitted(test)
    }
    fn make() -> Self {
        Self {
            number: Mutex::from_raw(P::lock(), 0),
            changed: Condvar::new_in(),
        }
    }
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        change(&mut self.number().lock().unwrap());
        notify(&self.changed, all);
        rest();
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
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

pub struct OfRecursive {
    number: RecursiveMutex<Cell<u64>>,
    changed: Condvar,
}

impl Contestant for OfRecursive {
    const SHARED: bool = false;
    fn make() -> Self {
        Self {
            number: RecursiveMutex::new(Cell::new(0)),
            changed: Condvar::new(),
        }
    }
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        let guard = self.number.lock();
        let mut number = guard.get();
        change(&mut number);
        self.number.lock().set(number);
        notify(&self.changed, all);
        rest();
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let mut guard = self.number.lock();
        while condition(guard.get()) {
            let waited;
            (guard, waited) = match deadline {
                None => (self.changed.wait_recursive(guard), Waited::Woken),
                Some(deadline) => self.changed.wait_recursive_until(guard, deadline),
            };
            if waited == Waited::TimedOut && condition(guard.get()) {
                return false;
            }
        }
        let mut number = guard.get();
        then(&mut number);
        guard.set(number);
        true
    }
}

#[derive(Default)]
pub struct OfStd {
    number: std::sync::Mutex<u64>,
    changed: std::sync::Condvar,
}

impl Contestant for OfStd {
    const SHARED: bool = false;
    fn make() -> Self {
        Self::default()
    }
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        change(&mut self.number.lock().unwrap());
        if all {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
        rest();
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
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

pub struct OfPthread {
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
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        change(&mut self.number.lock());
        if all {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
        rest();
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
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
