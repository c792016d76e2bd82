//! The locks behind one trait, and the game that is played with each.

use crate::control::Control;
use crate::task::{Step, Task, Verb};
use crate::witness::{Count, Fault, Halves, Witness};
use core::ops::Deref;
use core::pin::Pin;
use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::{
    InRegion, Inherit, InheritPlain, Interruptible, LockError, Mutex, MutexGuard, Protect,
    Protocol, Robust, RobustGuard, RobustProtocol, Throughput, Unfinished, WaitWake,
};
use latchwork::region::Shareable;
use latchwork::rwlock::{
    self, Preference, RobustRwLock, RobustWriteGuard, RwLock, SeatLock, Uncounted, WriteGuard,
};
use latchwork::sharing::Sharing;
use latchwork::time::Deadline;

/// The ceilings. No task has one of them as its own priority.
pub const CEILINGS: [u8; 2] = [30, 35];

/// Why a lock was not taken.
pub enum Ended {
    Refused,
    TimedOut,
    Interrupted,
}

impl Ended {
    pub fn count(&self) -> Count {
        match self {
            Self::Refused => Count::Refused,
            Self::TimedOut => Count::TimedOut,
            Self::Interrupted => Count::Interrupted,
        }
    }
}

impl From<Unfinished> for Ended {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::TimedOut => Self::TimedOut,
            Unfinished::Interrupted => Self::Interrupted,
        }
    }
}

/// Makes good what a dead holder left.
pub type Repair<'a> = &'a dyn Fn(&Halves);

/// A lock over halves. It does not move once it is used.
pub trait Lock: Send + Sync {
    /// Whether tasks that are killed may use it.
    const ROBUST: bool = false;
    /// Whether it can be held to read.
    const READS: bool = false;
    type Guard<'a>: Deref<Target = Halves>
    where
        Self: 'a;
    fn make() -> Self;
    fn take<'a>(&'a self, verb: Verb, repair: Repair<'_>) -> Result<Self::Guard<'a>, Ended>;
    /// Reads, where it can.
    fn read(&self, _: Verb, _: Repair<'_>, _: &mut dyn FnMut(&Halves)) -> Result<(), Ended> {
        Err(Ended::Refused)
    }
    /// Goes on as a reader, where it can.
    fn go_on(guard: Self::Guard<'_>, _: &mut dyn FnMut(&Halves)) {
        drop(guard);
    }
}

/// A lock that a condition variable can be used with.
pub trait Waits: Lock {
    /// Waits, until the deadline if there is one; whether that has passed.
    fn wait<'a, S: Sharing>(
        condvar: &Condvar<S>,
        guard: Self::Guard<'a>,
        deadline: Option<Deadline>,
        repair: Repair<'_>,
    ) -> (Self::Guard<'a>, bool)
    where
        Self: 'a;
}

/// A protocol that is not robust.
pub trait Kind: Protocol + Send + Sync + 'static {
    fn make() -> Self;
    /// What came of a call; whatever fault there may be is none that this test causes.
    fn expect<G>(outcome: Self::Outcome<G>) -> G;
    fn interruptible<T>(
        mutex: &Mutex<T, Self>,
        deadline: Option<Deadline>,
    ) -> Result<MutexGuard<'_, T, Self>, Ended>
    where
        Self: Sized;
}

fn interruptible<T, P: Kind + Interruptible>(
    mutex: &Mutex<T, P>,
    deadline: Option<Deadline>,
) -> Result<MutexGuard<'_, T, P>, Ended> {
    Ok(P::expect(mutex.lock_interruptible(deadline))?)
}

/// The kernel's own inheritance goes on waiting after a signal.
fn uninterruptible<T, P: Kind>(
    mutex: &Mutex<T, P>,
    deadline: Option<Deadline>,
) -> Result<MutexGuard<'_, T, P>, Ended> {
    match deadline {
        Some(deadline) => P::expect(mutex.lock_until(deadline)).ok_or(Ended::TimedOut),
        None => Ok(P::expect(mutex.lock())),
    }
}

macro_rules! kinds {
    ($($protocol:ident: $make:expr, $expect:expr, $interruptible:ident;)*) => {$(
        impl<S: Sharing> Kind for $protocol<S>
        where
            Self: Send + Sync,
        {
            fn make() -> Self {
                $make
            }
            fn expect<G>(outcome: Self::Outcome<G>) -> G {
                $expect(outcome)
            }
            fn interruptible<T>(
                mutex: &Mutex<T, Self>,
                deadline: Option<Deadline>,
            ) -> Result<MutexGuard<'_, T, Self>, Ended> {
                $interruptible(mutex, deadline)
            }
        }
    )*};
}
kinds! {
    WaitWake: Self::new(), core::convert::identity, interruptible;
    Throughput: Self::new(), core::convert::identity, interruptible;
    Inherit: Self::new(), Result::unwrap, uninterruptible;
    InheritPlain: Self::new(), Result::unwrap, uninterruptible;
    Protect: Self::with_ceiling(CEILINGS[0]), Result::unwrap, interruptible;
}

impl<P: Kind> Lock for Mutex<Halves, P> {
    type Guard<'a> = MutexGuard<'a, Halves, P>;

    fn make() -> Self {
        Self::from_raw(P::make(), Halves::new())
    }

    fn take<'a>(&'a self, verb: Verb, _: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        match verb {
            Verb::Wait => Ok(P::expect(self.lock())),
            Verb::Try => P::expect(self.try_lock()).ok_or(Ended::Refused),
            Verb::Until(deadline) => P::expect(self.lock_until(deadline)).ok_or(Ended::TimedOut),
            Verb::Interruptible(deadline) => P::interruptible(self, deadline),
        }
    }
}

impl<P: Kind> Waits for Mutex<Halves, P> {
    fn wait<'a, S: Sharing>(
        condvar: &Condvar<S>,
        guard: Self::Guard<'a>,
        deadline: Option<Deadline>,
        _: Repair<'_>,
    ) -> (Self::Guard<'a>, bool) {
        match deadline {
            None => (P::expect(condvar.wait(guard)), false),
            Some(deadline) => {
                let (guard, waited) = P::expect(condvar.wait_until(guard, deadline));
                (guard, waited == Waited::TimedOut)
            }
        }
    }
}

/// A protocol's robust form.
pub trait RobustKind: RobustProtocol + Send + Sync + Sized + 'static {
    fn make() -> Robust<Self>;
    fn interruptible<'a>(
        mutex: Pin<&'a Mutex<Halves, Robust<Self>>>,
        deadline: Option<Deadline>,
    ) -> Result<RobustGuard<'a, Halves, Self>, LockError<'a, Halves, Self>>;
}

macro_rules! robust_kinds {
    ($($protocol:ident: $make:expr, $interruptible:expr;)*) => {$(
        impl<S: Sharing> RobustKind for $protocol<S>
        where
            Self: Send + Sync,
        {
            fn make() -> Robust<Self> {
                $make
            }
            fn interruptible<'a>(
                mutex: Pin<&'a Mutex<Halves, Robust<Self>>>,
                deadline: Option<Deadline>,
            ) -> Result<RobustGuard<'a, Halves, Self>, LockError<'a, Halves, Self>> {
                $interruptible(mutex, deadline)
            }
        }
    )*};
}
robust_kinds! {
    WaitWake: Robust::new(), |mutex: Pin<&'a Mutex<Halves, Robust<Self>>>, deadline| mutex.lock_interruptible(deadline);
    Throughput: Robust::new(), |mutex: Pin<&'a Mutex<Halves, Robust<Self>>>, deadline| mutex.lock_interruptible(deadline);
    Inherit: Robust::new(), |mutex: Pin<&'a Mutex<Halves, Robust<Self>>>, deadline| match deadline {
        Some(deadline) => mutex.lock_until(deadline),
        None => mutex.lock(),
    };
    Protect: Robust::<Self>::with_ceiling(CEILINGS[1]), |mutex: Pin<&'a Mutex<Halves, Robust<Self>>>, deadline| mutex.lock_interruptible(deadline);
}

fn pinned<L>(lock: &L) -> Pin<&L> {
    // SAFETY: a place is a named object, or in a box that nobody takes it out of.
    #[allow(unsafe_code)]
    unsafe {
        Pin::new_unchecked(lock)
    }
}

/// Told of a death, repairs.
fn repaired<'a, P: RobustProtocol>(
    result: Result<RobustGuard<'a, Halves, P>, LockError<'a, Halves, P>>,
    repair: Repair<'_>,
) -> Result<RobustGuard<'a, Halves, P>, Ended> {
    match result {
        Ok(guard) => Ok(guard),
        Err(LockError::OwnerDied(died)) => {
            repair(&died);
            Ok(died.make_consistent())
        }
        Err(LockError::WouldBlock) => Err(Ended::Refused),
        Err(LockError::TimedOut) => Err(Ended::TimedOut),
        Err(LockError::Interrupted) => Err(Ended::Interrupted),
        Err(error) => panic!("{error}"),
    }
}

impl<P: RobustKind> Lock for Mutex<Halves, Robust<P>> {
    const ROBUST: bool = true;
    type Guard<'a> = RobustGuard<'a, Halves, P>;

    fn make() -> Self {
        Self::from_raw(P::make(), Halves::new())
    }

    fn take<'a>(&'a self, verb: Verb, repair: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        let lock = pinned(self);
        let result = match verb {
            Verb::Wait => lock.lock(),
            Verb::Try => lock.try_lock(),
            Verb::Until(deadline) => lock.lock_until(deadline),
            Verb::Interruptible(deadline) => P::interruptible(lock, deadline),
        };
        repaired(result, repair)
    }
}

impl<P: RobustKind> Waits for Mutex<Halves, Robust<P>> {
    fn wait<'a, S: Sharing>(
        condvar: &Condvar<S>,
        guard: Self::Guard<'a>,
        deadline: Option<Deadline>,
        repair: Repair<'_>,
    ) -> (Self::Guard<'a>, bool) {
        let taken = match deadline {
            None => condvar
                .wait_robust(guard)
                .map(|guard| (guard, Waited::Woken)),
            Some(deadline) => condvar.wait_robust_until(guard, deadline),
        };
        match taken {
            Ok((guard, waited)) => (guard, waited == Waited::TimedOut),
            Err(error) => match repaired(Err(error), repair) {
                Ok(guard) => (guard, false),
                Err(_) => unreachable!("a wait is no try, and ends with the mutex taken"),
            },
        }
    }
}

impl<S: Sharing, P: Preference> Lock for RwLock<Halves, S, P> {
    const READS: bool = true;
    type Guard<'a> = WriteGuard<'a, Halves, S, P>;

    fn make() -> Self {
        Self::new_in(Halves::new())
    }

    fn take<'a>(&'a self, verb: Verb, _: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        match verb {
            Verb::Wait => Ok(self.write()),
            Verb::Try => self.try_write().ok_or(Ended::Refused),
            Verb::Until(deadline) => self.write_until(deadline).ok_or(Ended::TimedOut),
            Verb::Interruptible(deadline) => Ok(self.write_interruptible(deadline)?),
        }
    }

    fn read(
        &self,
        verb: Verb,
        _: Repair<'_>,
        section: &mut dyn FnMut(&Halves),
    ) -> Result<(), Ended> {
        let guard = match verb {
            Verb::Wait => self.read(),
            Verb::Try => self.try_read().ok_or(Ended::Refused)?,
            Verb::Until(deadline) => self.read_until(deadline).ok_or(Ended::TimedOut)?,
            Verb::Interruptible(deadline) => self.read_interruptible(deadline)?,
        };
        section(&guard);
        Ok(())
    }

    fn go_on(guard: Self::Guard<'_>, section: &mut dyn FnMut(&Halves)) {
        section(&WriteGuard::downgrade(guard));
    }
}

const READERS: usize = 3;
pub type RobustRw<K = Robust> = RobustRwLock<Halves, READERS, Uncounted, K>;

/// The robust mutexes of which such a lock is made.
pub trait Seats: SeatLock {
    fn make() -> RobustRw<Self>;
}

impl Seats for Robust {
    fn make() -> RobustRw {
        RobustRw::new(Halves::new())
    }
}

impl Seats for InRegion {
    fn make() -> RobustRw<Self> {
        RobustRw::in_region(Halves::new())
    }
}

/// Told of a writer's death, repairs.
fn rewritten<'a, K: Seats>(
    error: rwlock::LockError<'a, Halves, READERS, Uncounted, K>,
    repair: Repair<'_>,
) -> Result<RobustWriteGuard<'a, Halves, READERS, Uncounted, K>, Ended> {
    match error {
        rwlock::LockError::OwnerDied(died) => {
            repair(&died);
            Ok(died.make_consistent())
        }
        rwlock::LockError::WouldBlock => Err(Ended::Refused),
        rwlock::LockError::TimedOut => Err(Ended::TimedOut),
        rwlock::LockError::Interrupted => Err(Ended::Interrupted),
        error => panic!("{error}"),
    }
}

impl<K: Seats> Lock for RobustRw<K> {
    const ROBUST: bool = true;
    const READS: bool = true;
    type Guard<'a> = RobustWriteGuard<'a, Halves, READERS, Uncounted, K>;

    fn make() -> Self {
        K::make()
    }

    fn take<'a>(&'a self, verb: Verb, repair: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        let lock = pinned(self);
        let result = match verb {
            Verb::Wait => lock.write(),
            Verb::Try => lock.try_write(),
            Verb::Until(deadline) => lock.write_until(deadline),
            Verb::Interruptible(deadline) => lock.write_interruptible(deadline),
        };
        result.or_else(|error| rewritten(error, repair))
    }

    fn read(
        &self,
        verb: Verb,
        repair: Repair<'_>,
        section: &mut dyn FnMut(&Halves),
    ) -> Result<(), Ended> {
        let lock = pinned(self);
        let result = match verb {
            Verb::Wait => lock.read(),
            Verb::Try => lock.try_read(),
            Verb::Until(deadline) => lock.read_until(deadline),
            Verb::Interruptible(deadline) => lock.read_interruptible(deadline),
        };
        let guard = match result {
            Ok(guard) => guard,
            Err(error) => RobustWriteGuard::downgrade(rewritten(error, repair)?),
        };
        section(&guard);
        Ok(())
    }

    fn go_on(guard: Self::Guard<'_>, section: &mut dyn FnMut(&Halves)) {
        section(&RobustWriteGuard::downgrade(guard));
    }
}

/// What a task does at a place.
pub trait Game: Send + Sync {
    /// Once, as `step` says; `inside` in the midst of it.
    fn play(&self, task: &mut Task<'_>, step: &Step, inside: &mut dyn FnMut(&mut Task<'_>));
    fn witness(&self) -> &Witness;
    /// Lets those go on who wait for the others to give or to take, as many as that; each time only
    /// if they could not go on by themselves.
    fn feed(&self, _driver: &mut Task<'_>, _place: usize, _givers: usize, _takers: usize) {}
    /// Whether there is food for this round; for its end there always is.
    fn has_food(&self) -> bool {
        true
    }
    /// With all tasks at rest, and `kills` of them killed so far: everything is free and adds up.
    fn reckon(&self, driver: &mut Task<'_>, place: usize, kills: u64);
    /// Ends all waits, whatever they are for.
    fn rouse(&self) {}
}

impl<G: Game + ?Sized> Game for &G {
    fn play(&self, task: &mut Task<'_>, step: &Step, inside: &mut dyn FnMut(&mut Task<'_>)) {
        (**self).play(task, step, inside);
    }
    fn witness(&self) -> &Witness {
        (**self).witness()
    }
    fn feed(&self, driver: &mut Task<'_>, place: usize, givers: usize, takers: usize) {
        (**self).feed(driver, place, givers, takers);
    }
    fn has_food(&self) -> bool {
        (**self).has_food()
    }
    fn reckon(&self, driver: &mut Task<'_>, place: usize, kills: u64) {
        (**self).reckon(driver, place, kills);
    }
    fn rouse(&self) {
        (**self).rouse();
    }
}

/// A lock and what is checked beside it.
#[derive(Shareable)]
#[repr(C)]
pub struct Place<L> {
    pub lock: L,
    pub witness: Witness,
}

impl<L: Lock> Place<L> {
    pub fn new() -> Self {
        Self {
            lock: L::make(),
            witness: Witness::new(),
        }
    }
}

impl<L: Lock> Game for Place<L> {
    fn play(&self, task: &mut Task<'_>, step: &Step, inside: &mut dyn FnMut(&mut Task<'_>)) {
        let (witness, control) = (&self.witness, task.control);
        let repair = |halves: &Halves| witness.repair(control, halves);
        let ended = if L::READS && step.reads() {
            let mut section = |halves: &Halves| witness.look(task, halves, inside);
            self.lock.read(step.verb(), &repair, &mut section)
        } else {
            self.lock.take(step.verb(), &repair).map(|guard| {
                witness.change(task, step.place, &guard, true, inside);
                if step.goes_on() {
                    let mut look = |halves: &Halves| witness.look(task, halves, &mut |_| ());
                    L::go_on(guard, &mut look);
                }
            })
        };
        witness.count(ended.map_or_else(|ended| ended.count(), |()| Count::Done));
    }

    fn witness(&self) -> &Witness {
        &self.witness
    }

    fn reckon(&self, driver: &mut Task<'_>, _: usize, kills: u64) {
        reckon_lock(&self.lock, &self.witness, driver.control, kills);
    }
}

/// A lock that nobody has is taken, twice, and what it protects is whole.
pub fn reckon_lock<L: Lock>(lock: &L, witness: &Witness, control: &Control, kills: u64) {
    let repair = |halves: &Halves| witness.repair(control, halves);
    // Dead holders are found by this.
    let _ = lock.take(Verb::Wait, &repair);
    match lock.take(Verb::Try, &repair) {
        Ok(halves) => witness.reckon(control, &halves, kills),
        Err(_) => witness.fault(Fault::StillHeld),
    }
}
