//! Latchwork's own contestants.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::io;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use latchwork::check::Checked;
use latchwork::coproc::{Attributes, Coprocs, Options, StartError};
use latchwork::mutex::throughput::{Counters, Event};
use latchwork::mutex::{
    InRegion, Inherit, InheritPlain, KeptBoost, LockError, Mutex, MutexGuard, Protect, RegionGuard,
    RegionProtocol, Robust, RobustGuard, RobustProtocol, Throughput, WaitWake, in_region,
};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{
    self, Preference, RobustReadGuard, RobustRwLock, RobustWriteGuard, SeatLock, Uncounted,
};
use latchwork::sharing::{Private, Sharing};
use latchwork::spin::Spin;
use latchwork::time::Deadline;

use super::heap::{ALIGNMENT, Heap};
use super::{CEILING, Lock, RwLock, broken};

impl<S: Sharing + Send + Sync> Lock for Mutex<u64, WaitWake<S>> {
    type Held<'a> = MutexGuard<'a, u64, WaitWake<S>>;

    const BYTES: usize = size_of::<WaitWake<S>>();
    const OURS: bool = true;

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        Self::lock(self.get_ref())
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
        Ok(self.get_ref().lock_until(deadline).is_none())
    }
}

impl Lock for Mutex<u64, Spin> {
    type Held<'a> = MutexGuard<'a, u64, Spin>;

    const BYTES: usize = size_of::<Spin>();
    const OURS: bool = true;

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        Self::lock(self.get_ref())
    }
}

/// Checked protocols that cannot fail.
macro_rules! checked {
    ($protocol:ident) => {
        impl<S: Sharing + Send + Sync> Lock for Mutex<u64, Checked<$protocol<S>>> {
            type Held<'a> = MutexGuard<'a, u64, Checked<$protocol<S>>>;

            const BYTES: usize = size_of::<Checked<$protocol<S>>>();
            const OURS: bool = true;

            #[inline]
            fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
                Self::lock(self.get_ref())
            }

            fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
                Ok(self.get_ref().lock_until(deadline).is_none())
            }
        }
    };
}
checked!(WaitWake);
checked!(Throughput);

impl<S: Sharing + Send + Sync> Lock for Mutex<u64, Throughput<S>> {
    type Held<'a> = MutexGuard<'a, u64, Throughput<S>>;

    const BYTES: usize = size_of::<Throughput<S>>();
    const OURS: bool = true;

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        Self::lock(self.get_ref())
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
        Ok(self.get_ref().lock_until(deadline).is_none())
    }
}

/// The same, with counters.
impl<S: Sharing + Send + Sync> Lock for Mutex<u64, Throughput<S, Counters>> {
    type Held<'a> = MutexGuard<'a, u64, Throughput<S, Counters>>;

    const BYTES: usize = size_of::<Throughput<S, Counters>>();
    const OURS: bool = true;

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        Self::lock(self.get_ref())
    }

    fn counts(self: Pin<&Self>) -> Vec<(&'static str, u64)> {
        let counters = self.get_ref().protocol().counters();
        let names = [
            ("lock_slow_per_1000", Event::LockSlowPath),
            ("unlock_slow_per_1000", Event::UnlockSlowPath),
            ("stolen_per_1000", Event::Stolen),
            ("top_waiter_per_1000", Event::TopWaiter),
            ("handed_off_per_1000", Event::HandedOff),
            ("queue_sleeps_per_1000", Event::QueueSleep),
            ("top_waiter_sleeps_per_1000", Event::TopSleep),
        ];
        let counts = names.map(|(name, event)| (name, counters.of(event)));
        counts.to_vec()
    }
}

impl<P: Preference> RwLock for rwlock::RwLock<u64, Private, P> {
    type Reading<'a> = rwlock::ReadGuard<'a, u64, Private, P>;
    type Writing<'a> = rwlock::WriteGuard<'a, u64, Private, P>;

    const OURS: bool = true;

    #[inline]
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a> {
        Self::read(self.get_ref())
    }

    #[inline]
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a> {
        Self::write(self.get_ref())
    }
}

/// The robust mutexes of which a reader/writer lock is made.
pub(crate) trait Seats: SeatLock {
    fn region() -> io::Result<Option<&'static Region>>;
}

impl Seats for Robust {
    fn region() -> io::Result<Option<&'static Region>> {
        Ok(None)
    }
}

impl Seats for InRegion {
    fn region() -> io::Result<Option<&'static Region>> {
        region_of_locks().map(Some)
    }
}

impl<K: Seats> RwLock for RobustRwLock<u64, 16, Uncounted, K> {
    type Reading<'a> = RobustReadGuard<'a, u64, 16, Uncounted, K>;
    type Writing<'a> = RobustWriteGuard<'a, u64, 16, Uncounted, K>;

    const OURS: bool = true;

    fn region() -> io::Result<Option<&'static Region>> {
        K::region()
    }

    fn settle(self: Pin<&Self>) -> io::Result<()> {
        match Self::read(self) {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    #[inline]
    fn read<'a>(self: Pin<&'a Self>) -> Self::Reading<'a> {
        match Self::read(self) {
            Ok(held) => held,
            Err(error) => broken(&error),
        }
    }

    #[inline]
    fn write<'a>(self: Pin<&'a Self>) -> Self::Writing<'a> {
        match Self::write(self) {
            Ok(held) => held,
            Err(error) => broken(&error),
        }
    }
}

/// Protocols that can fail.
macro_rules! fallible {
    ($protocol:ident) => {
        impl<S: Sharing + Send + Sync> Lock for Mutex<u64, $protocol<S>> {
            type Held<'a> = MutexGuard<'a, u64, $protocol<S>>;

            const BYTES: usize = size_of::<$protocol<S>>();
            const OURS: bool = true;

            #[inline]
            fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
                match Self::lock(self.get_ref()) {
                    Ok(held) => held,
                    Err(error) => broken(&error),
                }
            }

            fn check(self: Pin<&Self>) -> io::Result<()> {
                Self::lock(self.get_ref())
                    .map(drop)
                    .map_err(io::Error::other)
            }

            fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
                let taken = self.get_ref().lock_until(deadline);
                Ok(taken.map_err(io::Error::other)?.is_none())
            }
        }
    };
}
fallible!(Inherit);
fallible!(InheritPlain);
fallible!(Protect);

/// The priority-protect mutex, used by a task that keeps its boost between critical sections.
pub(crate) struct KeptProtect(Mutex<u64, Protect>);

impl KeptProtect {
    pub(crate) fn new() -> Self {
        Self(Mutex::protect(PROTECT_CEILING, 0))
    }
}

impl Lock for KeptProtect {
    type Held<'a> = MutexGuard<'a, u64, Protect>;

    const BYTES: usize = size_of::<Protect>();
    const OURS: bool = true;

    fn enlist() -> io::Result<Option<KeptBoost>> {
        Protect::keep_boost().map(Some).map_err(io::Error::other)
    }

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        match self.get_ref().0.lock() {
            Ok(held) => held,
            Err(error) => broken(&error),
        }
    }

    fn check(self: Pin<&Self>) -> io::Result<()> {
        let locked = self.get_ref().0.lock();
        locked.map(drop).map_err(io::Error::other)
    }
}

/// [`CEILING`], in the type of Latchwork's interface.
pub(crate) const PROTECT_CEILING: u8 = CEILING as u8;

impl<P: RobustProtocol + Send + Sync + 'static> Lock for Mutex<u64, Robust<P>> {
    type Held<'a> = RobustGuard<'a, u64, P>;

    const BYTES: usize = size_of::<Robust<P>>();
    const OURS: bool = true;

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        match Self::lock(self) {
            Ok(held) => held,
            Err(error) => broken(&error),
        }
    }

    fn check(self: Pin<&Self>) -> io::Result<()> {
        match Self::lock(self) {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
        match self.lock_until(deadline) {
            Ok(_) => Ok(false),
            Err(LockError::TimedOut) => Ok(true),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

/// The region of all region locks of this process.
fn region_of_locks() -> io::Result<&'static Region> {
    static REGION: OnceLock<Region> = OnceLock::new();
    if let Some(region) = REGION.get() {
        return Ok(region);
    }
    let options = RegionOptions::new().max_bytes(64 << 20);
    let made = options.label("bench region locks").create_anonymous();
    let made = made.map_err(io::Error::other)?;
    Ok(REGION.get_or_init(|| made))
}

impl<P: RegionProtocol> Lock for Mutex<u64, InRegion<P>> {
    type Held<'a> = RegionGuard<'a, u64, P>;

    const BYTES: usize = size_of::<InRegion<P>>();
    const OURS: bool = true;

    fn region() -> io::Result<Option<&'static Region>> {
        region_of_locks().map(Some)
    }

    #[inline]
    fn lock<'a>(self: Pin<&'a Self>) -> Self::Held<'a> {
        match Self::lock(self) {
            Ok(held) => held,
            Err(error) => broken(&error),
        }
    }

    fn check(self: Pin<&Self>) -> io::Result<()> {
        match Self::lock(self) {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn times_out(self: Pin<&Self>, deadline: Deadline) -> io::Result<bool> {
        match self.lock_until(deadline) {
            Ok(_) => Ok(false),
            Err(in_region::LockError::TimedOut) => Ok(true),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

impl Heap for Region {
    #[inline]
    fn allocate(&self, size: usize) -> *mut u8 {
        Layout::from_size_align(size, ALIGNMENT)
            .ok()
            .and_then(|layout| Region::allocate(self, layout).ok())
            .map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8, _size: usize) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller keeps the region's contract. A thread that has allocated is a task, so there is no
            // error.
            let _ = unsafe { self.deallocate(block) };
        }
    }
}

/// A region for coprocs that come and go.
pub(crate) fn region_for_coprocs() -> io::Result<Region> {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .label("bench")
        .create_anonymous()
        .map_err(io::Error::other)
}

/// Starts a runtime.
pub(crate) fn start(region: &Region, options: &Options) -> Result<Coprocs, StartError> {
    // SAFETY: no static owns anything in a region, or a descriptor that a coproc uses.
    unsafe { Coprocs::with_options(region, options) }
}

/// Attributes of a snapshot start.
pub(crate) fn copying() -> Attributes {
    // SAFETY: no static owns anything in a region, or a descriptor that a coproc uses.
    unsafe { Attributes::new().snapshot() }
}

/// Starts a coproc that does nothing, and joins it.
pub(crate) fn spawn_and_join(coprocs: &Coprocs, attributes: &Attributes) -> io::Result<()> {
    let coproc = coprocs
        .spawn_value(|_, number: u32| number as i32, 0, attributes)
        .map_err(io::Error::other)?;
    match coproc.join().map_err(io::Error::other)? {
        exit if exit.is_success() => Ok(()),
        exit => Err(io::Error::other(format!("a coproc ended: {exit:?}"))),
    }
}
