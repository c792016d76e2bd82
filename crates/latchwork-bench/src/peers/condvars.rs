//! Mutexes with condition variables, for many tasks that wait for a round to begin.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::PoisonError;

use latchwork::condvar::Condvar;
use latchwork::mutex::{Inherit, InheritPlain, Mutex, Protocol, Throughput, WaitWake};

/// The data under the mutex.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) round: u64,
    pub(crate) arrived: u32,
    pub(crate) over: bool,
}

/// The two conditions: a round has begun, or all tasks have come.
#[derive(Clone, Copy)]
pub(crate) enum On {
    Begun,
    Complete,
}

/// Which waiters to notify, still under the mutex, as in the example of std's documentation.
pub(crate) enum Notify {
    None,
    /// One task that waits for this.
    One(On),
    /// All tasks that wait for this.
    All(On),
}

pub(crate) trait Condvars: Sync {
    /// Under the mutex: waits until `ready`, then continues with `then`.
    fn pass(
        &self,
        on: On,
        ready: impl FnMut(&State) -> bool,
        then: impl FnOnce(&mut State) -> Notify,
    );
}

/// A protocol whose locks cannot fail here.
pub(crate) trait Sure: Protocol + Default + Send + Sync {
    fn get<G>(outcome: Self::Outcome<G>) -> G;
}

macro_rules! sure {
    ($($lock:ty, $get:expr;)*) => {$(
        impl Sure for $lock {
            fn get<G>(outcome: Self::Outcome<G>) -> G {
                $get(outcome)
            }
        }
    )*};
}
const NO_OWNER_DIES: &str = "no deadlock, and no owner dies";
sure! {
    WaitWake, std::convert::identity;
    Throughput, std::convert::identity;
    Inherit, |outcome: Result<G, _>| outcome.expect(NO_OWNER_DIES);
    InheritPlain, |outcome: Result<G, _>| outcome.expect(NO_OWNER_DIES);
}

pub(crate) struct Ours<P: Sure> {
    state: Mutex<State, P>,
    conditions: [Condvar; 2],
}

impl<P: Sure> Default for Ours<P> {
    fn default() -> Self {
        Self {
            state: Mutex::from_raw(P::default(), State::default()),
            conditions: Default::default(),
        }
    }
}

impl<P: Sure> Condvars for Ours<P> {
    fn pass(
        &self,
        on: On,
        mut ready: impl FnMut(&State) -> bool,
        then: impl FnOnce(&mut State) -> Notify,
    ) {
        let state = P::get(self.state.lock());
        let waited = self.conditions[on as usize].wait_while(state, |state| !ready(state));
        let mut state = P::get(waited);
        match then(&mut state) {
            Notify::None => {}
            Notify::One(on) => self.conditions[on as usize].notify_one(),
            Notify::All(on) => self.conditions[on as usize].notify_all(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Std {
    state: std::sync::Mutex<State>,
    conditions: [std::sync::Condvar; 2],
}

impl Condvars for Std {
    fn pass(
        &self,
        on: On,
        mut ready: impl FnMut(&State) -> bool,
        then: impl FnOnce(&mut State) -> Notify,
    ) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.conditions[on as usize]
            .wait_while(state, |state| !ready(state))
            .unwrap_or_else(PoisonError::into_inner);
        match then(&mut state) {
            Notify::None => {}
            Notify::One(on) => self.conditions[on as usize].notify_one(),
            Notify::All(on) => self.conditions[on as usize].notify_all(),
        }
    }
}

#[derive(Default)]
pub(crate) struct ParkingLot {
    state: parking_lot::Mutex<State>,
    conditions: [parking_lot::Condvar; 2],
}

impl Condvars for ParkingLot {
    fn pass(
        &self,
        on: On,
        mut ready: impl FnMut(&State) -> bool,
        then: impl FnOnce(&mut State) -> Notify,
    ) {
        let mut state = self.state.lock();
        self.conditions[on as usize].wait_while(&mut state, |state| !ready(state));
        match then(&mut state) {
            Notify::None => {}
            Notify::One(on) => drop(self.conditions[on as usize].notify_one()),
            Notify::All(on) => drop(self.conditions[on as usize].notify_all()),
        }
    }
}

pub(crate) struct Pthread {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    conditions: [UnsafeCell<libc::pthread_cond_t>; 2],
    state: UnsafeCell<State>,
}

// SAFETY: pthread's objects are made for many threads; the state is accessed only under the mutex.
unsafe impl Sync for Pthread {}

impl Default for Pthread {
    fn default() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            conditions: [const { UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER) }; 2],
            state: UnsafeCell::default(),
        }
    }
}

impl Condvars for Pthread {
    fn pass(
        &self,
        on: On,
        mut ready: impl FnMut(&State) -> bool,
        then: impl FnOnce(&mut State) -> Notify,
    ) {
        // SAFETY: all objects are initialised, and do not move while threads borrow them; the state is accessed between
        // lock and unlock.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            while !ready(&*self.state.get()) {
                libc::pthread_cond_wait(self.conditions[on as usize].get(), self.mutex.get());
            }
            match then(&mut *self.state.get()) {
                Notify::None => 0,
                Notify::One(on) => libc::pthread_cond_signal(self.conditions[on as usize].get()),
                Notify::All(on) => libc::pthread_cond_broadcast(self.conditions[on as usize].get()),
            };
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: no thread waits any more.
        unsafe {
            for condition in &self.conditions {
                libc::pthread_cond_destroy(condition.get());
            }
            libc::pthread_mutex_destroy(self.mutex.get());
        }
    }
}
