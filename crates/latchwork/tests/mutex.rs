//! The properties of every mutex: ours with each protocol, and std's and pthread's, which show that the tests are
//! right.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use latchwork::mutex::{
    InRegion, Inherit, InheritPlain, LockError, Mutex, Protect, RawLock, RegionGuard,
    RegionProtocol, Robust, RobustGuard, Throughput, WaitWake, in_region,
};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::spin::Spin;
use latchwork::time::Deadline;
use std::sync::TryLockError;

mod pthread;
use latchwork_testkit::bodies::mutex::{Contestant, Halves};
use latchwork_testkit::priority::may_use_priorities;

/// A mutex of the library, or another's, as a contestant.
struct Of<M>(M);

trait IsShared {
    const SHARED: bool;
    fn make() -> Self;
}
macro_rules! is_shared {
    ($($raw:ty: $shared:literal),*) => {$(
        impl IsShared for $raw {
            const SHARED: bool = $shared;
            fn make() -> Self {
                Self::new()
            }
        }
    )*};
}
is_shared!(
    WaitWake<Private>: false,
    WaitWake<Shared>: true,
    Throughput<Private>: false,
    Throughput<Shared>: true,
    Spin: true
);

impl<P: RawLock + IsShared + Send + Sync> Contestant for Of<Mutex<Halves, P>> {
    const SHARED: bool = P::SHARED;
    const TIMED: bool = true;
    fn make() -> Self {
        Self(Mutex::from_raw(P::make(), Halves::default()))
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.0.lock())
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0.try_lock().map(|mut guard| body(&mut guard))
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0
            .lock_until(deadline)
            .map(|mut guard| body(&mut guard))
    }
}

fn pinned(mutex: &Mutex<Halves, Robust>) -> Pin<&Mutex<Halves, Robust>> {
    // SAFETY: no body moves its contestant after the first use.
    unsafe { Pin::new_unchecked(mutex) }
}

fn inside<R>(
    result: Result<RobustGuard<'_, Halves>, LockError<'_, Halves>>,
    body: impl FnOnce(&mut Halves) -> R,
) -> Option<R> {
    match result {
        Ok(mut guard) => Some(body(&mut guard)),
        Err(LockError::WouldBlock | LockError::TimedOut | LockError::Deadlock) => None,
        // After a panic inside.
        Err(LockError::OwnerDied(died)) => {
            // SAFETY: two integers.
            Some(body(&mut *unsafe { died.make_consistent_unchecked() }))
        }
        Err(error) => panic!("{error}"),
    }
}

impl Contestant for Of<Mutex<Halves, Robust>> {
    const SHARED: bool = true;
    const TIMED: bool = true;
    fn make() -> Self {
        Self(Mutex::robust(Halves::default()))
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        inside(pinned(&self.0).lock(), body).expect("a lock without a deadline")
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        inside(pinned(&self.0).try_lock(), body)
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        inside(pinned(&self.0).lock_until(deadline), body)
    }
}

impl<S: Sharing> Contestant for Of<Mutex<Halves, Protect<S>>>
where
    WaitWake<S>: IsShared,
    Protect<S>: Send + Sync,
{
    const SHARED: bool = WaitWake::<S>::SHARED;
    const TIMED: bool = true;
    fn is_permitted(test: &str) -> bool {
        may_use_priorities(test)
    }
    fn make() -> Self {
        Self(Mutex::from_raw(
            Protect::with_ceiling(20),
            Halves::default(),
        ))
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.0.lock().unwrap())
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0.try_lock().unwrap().map(|mut guard| body(&mut guard))
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        let taken = self.0.lock_until(deadline).unwrap();
        taken.map(|mut guard| body(&mut guard))
    }
}

/// A region lock, in a region of its own that lasts as long as the process.
struct InARegion<P: RegionProtocol>(&'static Mutex<Halves, InRegion<P>>);

impl<P: RegionProtocol> InARegion<P> {
    fn inside<R>(
        result: Result<RegionGuard<'_, Halves, P>, in_region::LockError<'_, Halves, P>>,
        body: impl FnOnce(&mut Halves) -> R,
    ) -> Option<R> {
        use in_region::LockError::{Deadlock, OwnerDied, TimedOut, WouldBlock};
        match result {
            Ok(mut guard) => Some(body(&mut guard)),
            Err(WouldBlock | TimedOut | Deadlock) => None,
            // After a panic inside.
            Err(OwnerDied(died)) => {
                // SAFETY: two integers.
                Some(body(&mut *unsafe { died.make_consistent_unchecked() }))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl<P: RegionProtocol> Contestant for InARegion<P> {
    const SHARED: bool = true;
    const TIMED: bool = true;
    fn make() -> Self {
        let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous();
        let region: &'static Region = Box::leak(Box::new(region.unwrap()));
        let make = || HalvesInRegion::<P>(Mutex::from_raw(InRegion::new(), Halves::default()));
        Self(&region.object("mutex", make).unwrap().get_ref().0)
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        Self::inside(self.0.lock(), body).expect("a lock without a deadline")
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        Self::inside(self.0.try_lock(), body)
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        Self::inside(self.0.lock_until(deadline), body)
    }
}

/// `Halves` belongs to another crate, which does not know regions.
struct HalvesInRegion<P: RegionProtocol>(Mutex<Halves, InRegion<P>>);

// SAFETY: two integers behind a lock that is Shareable.
unsafe impl<P: RegionProtocol> Shareable for HalvesInRegion<P> {
    const FINGERPRINT: u64 = <Mutex<u64, InRegion<P>>>::FINGERPRINT;
}

macro_rules! inheriting {
    ($($lock:ident)*) => {$(
        impl<S: Sharing + Sync> Contestant for Of<Mutex<Halves, $lock<S>>>
        where
            WaitWake<S>: IsShared,
            $lock<S>: Sync,
        {
            const SHARED: bool = WaitWake::<S>::SHARED;
            const TIMED: bool = true;
            fn make() -> Self {
                Self(Mutex::from_raw($lock::new(), Halves::default()))
            }
            fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
                body(&mut self.0.lock().unwrap())
            }
            fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
                self.0.try_lock().unwrap().map(|mut guard| body(&mut guard))
            }
            fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
                let taken = self.0.lock_until(deadline).unwrap();
                taken.map(|mut guard| body(&mut guard))
            }
        }
    )*};
}
inheriting!(Inherit InheritPlain);

impl Contestant for Of<lock_api::Mutex<WaitWake<Shared>, Halves>> {
    const SHARED: bool = true;
    const TIMED: bool = true;
    fn make() -> Self {
        Self(lock_api::Mutex::new(Halves::default()))
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.0.lock())
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0.try_lock().map(|mut guard| body(&mut guard))
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0
            .try_lock_until(deadline)
            .map(|mut guard| body(&mut guard))
    }
}

impl Contestant for Of<std::sync::Mutex<Halves>> {
    const SHARED: bool = false;
    const TIMED: bool = false;
    fn make() -> Self {
        Self(std::sync::Mutex::default())
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(
            &mut self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut guard) => Some(body(&mut guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(body(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
    fn lock_until<R>(&self, _: Deadline, _: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        unreachable!("std has no timed lock")
    }
}

impl Contestant for Of<pthread::Mutex<Halves>> {
    const SHARED: bool = true;
    const TIMED: bool = true;
    fn make() -> Self {
        Self(pthread::Mutex::new(Halves::default()))
    }
    fn settle(&self) {
        self.0.initialise();
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.0.lock())
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0.try_lock().map(|mut guard| body(&mut guard))
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        self.0
            .lock_until(deadline)
            .map(|mut guard| body(&mut guard))
    }
}

latchwork_testkit::mutex_conformance! {
    wait_wake: Of<Mutex<Halves>>;
    wait_wake_shared: Of<Mutex<Halves, WaitWake<Shared>>>;
    throughput: Of<Mutex<Halves, Throughput>>;
    throughput_shared: Of<Mutex<Halves, Throughput<Shared>>>;
    spin: Of<Mutex<Halves, Spin>>;
    robust: Of<Mutex<Halves, Robust>>;
    region: InARegion<WaitWake<Shared>>;
    region_throughput: InARegion<Throughput<Shared>>;
    protect: Of<Mutex<Halves, Protect>>;
    protect_shared: Of<Mutex<Halves, Protect<Shared>>>;
    inherit: Of<Mutex<Halves, Inherit>>;
    inherit_shared: Of<Mutex<Halves, Inherit<Shared>>>;
    inherit_plain: Of<Mutex<Halves, InheritPlain>>;
    inherit_plain_shared: Of<Mutex<Halves, InheritPlain<Shared>>>;
    of_lock_api: Of<lock_api::Mutex<WaitWake<Shared>, Halves>>;
    of_std: Of<std::sync::Mutex<Halves>>;
    of_pthread: Of<pthread::Mutex<Halves>>;
}

static PLAIN: Mutex<u32> = Mutex::new(1);
static SHARED: Mutex<u32, WaitWake<Shared>> = Mutex::shared(2);
static SPIN: Mutex<u32, Spin> = Mutex::from_raw(Spin::new(), 3);
static ROBUST: Mutex<u32, Robust> = Mutex::robust(4);

#[test]
fn every_mutex_can_be_a_static() {
    assert_eq!(
        *PLAIN.lock() + *SHARED.lock() + *SPIN.lock() + *Pin::static_ref(&ROBUST).lock().unwrap(),
        10
    );
}

/// A lock that lies in shared memory is the same in every build.
#[test]
fn sizes_are_as_promised() {
    assert_eq!((size_of::<WaitWake>(), align_of::<WaitWake>()), (4, 4));
    assert_eq!(
        (
            size_of::<WaitWake<Shared>>(),
            align_of::<WaitWake<Shared>>()
        ),
        (4, 4)
    );
    assert_eq!((size_of::<Throughput>(), align_of::<Throughput>()), (16, 4));
    assert_eq!((size_of::<Spin>(), align_of::<Spin>()), (4, 4));
    assert_eq!((size_of::<Robust>(), align_of::<Robust>()), (40, 8));
    assert_eq!(size_of::<Mutex<u32>>(), 8);
}

#[test]
fn zero_is_unlocked() {
    fn word<T>(lock: &T) -> u32 {
        // SAFETY: the word is the first thing in each lock, and no task changes it meanwhile.
        unsafe { core::ptr::from_ref(lock).cast::<u32>().read_volatile() }
    }
    let (plain, spin) = (Mutex::new(9_u32), Mutex::from_raw(Spin::new(), 9_u32));
    assert_eq!((word(&plain), word(&spin)), (0, 0));
    forget((plain.lock(), spin.lock()));
    assert!(word(&plain) != 0 && word(&spin) != 0);
    let robust = pin!(Mutex::robust(9_u32));
    let robust = robust.as_ref();
    // In a robust lock the word is where the C library has it in its own: with musl behind the type.
    let robust_word = || {
        // SAFETY: the lock begins with two such words, and no task changes them meanwhile.
        let words = unsafe {
            core::ptr::from_ref(&*robust)
                .cast::<[u32; 2]>()
                .read_volatile()
        };
        words[usize::from(cfg!(target_env = "musl"))]
    };
    assert_eq!(robust_word(), 0);
    let guard = robust.lock().unwrap();
    // SAFETY: no preconditions.
    assert_eq!(robust_word(), unsafe { libc::gettid() }.cast_unsigned());
    drop(guard);
    assert_eq!(robust_word(), 0);
    // SAFETY: zero is an unlocked lock, and integers.
    let zeroed: Mutex<Halves> = unsafe { core::mem::zeroed() };
    assert!(zeroed.try_lock().is_some());
}

#[test]
fn an_unlocked_mutex_can_be_moved_and_opened() {
    let mutex = Mutex::new(String::from("a"));
    mutex.lock().push('b');
    let mut moved = Box::new(mutex);
    moved.lock().push('c');
    moved.get_mut().push('d');
    assert_eq!(*moved.lock(), "abcd");
}
