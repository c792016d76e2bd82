//! The word of a region lock, and how a task acquires and releases it. The argument is in the [parent](super).
#![allow(unsafe_code)]

use super::forms::{RawError, RegionProtocol};
use super::membership::{Me, Member};
use crate::atomic::{AtomicU64, Ordering, unless_fault};
use crate::mutex::{Acquired, DataState, WaitMode, WaitWake};
use crate::sharing::Shared;
use crate::sys::futex::{self, Sharing};
use crate::sys::slow_paths;
use core::fmt;
use core::marker::PhantomData;

/// Futex bit masks are not used here.
pub(super) const ANY: u32 = u32::MAX;

pub(super) const WAITERS: u64 = 1 << 32;
pub(super) const INCONSISTENT: u64 = 1 << 33;
pub(super) const NOT_RECOVERABLE: u64 = 1 << 34;
const FLAGS: u64 = 0xFFFF << 32;

/// The identity of the owner; of a free word nothing that is one.
pub(super) fn owner_of(word: u64) -> u64 {
    word & !FLAGS
}

pub(super) fn is_held(word: u64) -> bool {
    word as u32 != 0
}

/// The region lock, as the parameter of a [`Mutex`](crate::mutex::Mutex): robust, in 8 or 16 bytes.
///
/// For data in a region. The death of an owner is reported to the next one, as with
/// [`Robust`](crate::mutex::Robust), but the lock is on no list: it need not be pinned, a task can hold any number, and a
/// free pair costs little more than that of a lock that is not robust. Its word names its owner as a task of the region,
/// so the lock must lie in one; a thread becomes a task of the region by its first lock call. A mutex that is moved after its
/// owner has died, or has forgotten the guard, can be [`reset`](crate::mutex::Mutex::reset) in its new place, and used for
/// nothing else.
///
/// | method | |
/// | --- | --- |
/// | [`lock`](super::Movable::lock), [`try_lock`](super::Movable::try_lock), [`lock_until`](super::Movable::lock_until), … | through `&Mutex<T, InRegion>`, if `T` is `Unpin` |
/// | the same names | through `Pin<&Mutex<T, InRegion>>`, for any `T`, such as a container of the region |
///
/// | `P` | made by | bytes | for |
/// | --- | --- | --- | --- |
/// | [`WaitWake`] | [`Mutex::in_region`](crate::mutex::Mutex::in_region) | 8 | most uses |
/// | [`Throughput`](crate::mutex::Throughput) | [`Mutex::in_region_throughput`](crate::mutex::Mutex::in_region_throughput) | 16 | many tasks, critical sections of a microsecond or more. A waiter that has waited for 5 ms as the first in the queue gets the lock handed off |
///
/// Not recursive: locking again reports [`LockError::Deadlock`](super::LockError::Deadlock). A thread that ends with the
/// lock leaves it to its process: the death is reported when that dies (of 960 such threads of a process at most; a lock of
/// further ones stays locked). If C code has acquired the lock, the end of the thread hands it on. In the child of a fork
/// no lock is held; dropping an inherited guard there aborts. Zero is unlocked.
///
/// ```
/// use latchwork::mutex::{Mutex, in_region::LockError};
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().create_anonymous()?;
/// let balance = region.object("balance", || Mutex::in_region(100_i64))?;
/// match balance.lock() {
///     Ok(mut balance) => *balance -= 1,
///     // The owner died; what it was doing to the data is ours to find out.
///     Err(LockError::OwnerDied(died)) => *died.make_consistent() -= 1,
///     Err(error) => panic!("{error}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[repr(C)]
pub struct InRegion<P: RegionProtocol = WaitWake<Shared>> {
    word: AtomicU64,
    gate: P::Gate,
    protocol: PhantomData<P>,
}

impl<P: RegionProtocol> InRegion<P> {
    /// An unlocked lock.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            gate: P::GATE,
            protocol: PhantomData,
        }
    }

    /// An unlocked lock.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            gate: P::Gate::default(),
            protocol: PhantomData,
        }
    }

    /// Whether a task holds the lock at this moment, or held it as it died.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        // Relaxed: the answer may be stale before it arrives.
        is_held(self.word.load(Ordering::Relaxed))
    }

    pub(super) fn word(&self) -> &AtomicU64 {
        &self.word
    }

    #[cfg(not(loom))]
    pub(super) fn gate(&self) -> &P::Gate {
        &self.gate
    }

    #[inline(always)]
    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Acquires a lock that is free and whose data is whole, and returns the calling task's identity.
    /// [`Self::acquire_slowly`] handles every other case.
    #[inline(always)]
    pub(crate) fn acquire_free(&self) -> Option<u64> {
        let me = Me::current_or_none();
        let identity = me.first_identity_at(self.address())?;
        // The count changes outside the critical section, here and in the release: a store in it delays the compare-and-swap
        // that ends it. No task ends in good order, or leaves a region, between these lines.
        let held = me.first_held();
        me.set_first_held(held + 1);
        // Acquire: pairs with the Release of the last owner.
        if self
            .word
            .compare_exchange(0, identity, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            me.set_first_held(held);
            return None;
        }
        Some(identity)
    }

    /// Acquires the lock; returns the calling task's identity, too.
    #[cold]
    #[inline(never)]
    pub(crate) fn acquire_slowly(&self, wait_mode: WaitMode) -> Result<(Acquired, u64), RawError> {
        let (acquired, me) = self.acquire_as_member(wait_mode)?;
        me.acquired();
        Ok((acquired, me.identity()))
    }

    /// As [`Self::acquire_slowly`], for a caller that counts the lock.
    #[inline]
    pub(super) fn acquire_as_member(
        &self,
        wait_mode: WaitMode,
    ) -> Result<(Acquired, Member), RawError> {
        self.acquire_by(wait_mode, |me| {
            P::take(&self.word, &self.gate, me, wait_mode)
        })
    }

    /// As [`Self::acquire_as_member`]. `take` takes a word that is not free.
    #[inline]
    pub(super) fn acquire_by(
        &self,
        wait_mode: WaitMode,
        take: impl FnOnce(Member) -> Result<Acquired, RawError>,
    ) -> Result<(Acquired, Member), RawError> {
        let me = Member::at(self.address()).map_err(RawError::Unavailable)?;
        // A thread's first lock call, and one in another region than its first, come here although the lock may be free. In
        // the thread's first region another compare-and-swap that fails would only take the cache line from the owner again.
        // Acquire: as in `acquire_free`.
        let is_free = (!me.is_in_first_region() || self.word.load(Ordering::Relaxed) == 0)
            && self
                .word
                .compare_exchange(0, me.identity(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if is_free {
            return Ok((Acquired::Clean, me));
        }
        if !wait_mode.is_try() {
            slow_paths::acquisition();
        }
        Ok((take(me)?, me))
    }

    /// Releases the lock of a guard that was made for `owner`. All but the usual case is outlined.
    ///
    /// # Safety
    /// The guard holds the lock, if it is used in the process that it was made in.
    #[inline(always)]
    pub(crate) unsafe fn release_guarded(&self, owner: u64) {
        let me = Me::current_or_none();
        if me.first_identity_at(self.address()) != Some(owner) || std::thread::panicking() {
            return self.release_guarded_slowly(owner);
        }
        let release = unless_fault!(RegionUnlockRelaxed, Ordering::Release, Ordering::Relaxed);
        // Release: pairs with the Acquire of the next owner.
        if let Err(word) = self
            .word
            .compare_exchange(owner, 0, release, Ordering::Relaxed)
        {
            self.free(owner, word);
        }
        // (It wraps in the child of a fork by a signal handler: the record is wiped there.)
        me.set_first_held(me.first_held().wrapping_sub(1));
    }

    #[inline(never)]
    fn release_guarded_slowly(&self, owner: u64) {
        let me = self.owner_of_guard(owner);
        if std::thread::panicking() {
            self.free_with(owner, INCONSISTENT, 1);
        } else {
            self.free(owner, owner);
        }
        me.released();
    }

    /// Frees the word of a lock that this task holds, and wakes a sleeper if there may be one. Returns what
    /// [`Self::free_from`] does.
    #[cold]
    #[inline(never)]
    pub(super) fn free(&self, owner: u64, word: u64) -> u64 {
        let wakes = unless_fault!(RegionUnlockForgetsSleepers, 1, 0);
        self.free_from(word, owner, 0, wakes)
    }

    /// Frees the word of a lock that this task holds, with these flags: the next owner reads them. Returns what
    /// [`Self::free_from`] does.
    #[cold]
    pub(super) fn free_with(&self, owner: u64, flags: u64, wakes: u32) -> u64 {
        // Relaxed: only the compare-and-swap counts.
        self.free_from(self.word.load(Ordering::Relaxed), owner, flags, wakes)
    }

    /// Frees the word, which was `word` a moment ago, unless it names another task than `owner`: the child of a fork by a
    /// signal handler may have gone on with this unlock, and another task may have the lock by now. Returns the word that was
    /// freed; 0: none.
    fn free_from(&self, mut word: u64, owner: u64, flags: u64, wakes: u32) -> u64 {
        let address = &raw const self.word;
        // Wakes all: a task that was woken, and would put `WAITERS` back, may not have run yet.
        let ends = flags & NOT_RECOVERABLE != 0;
        let is_last = unless_fault!(RegionLastUnlockForgetsSleepers, ends, false);
        while owner_of(word) == owner {
            let (kept, wakes) = P::hand_on(word, flags, wakes);
            // Release: pairs with the Acquire of the next owner.
            let freed = self.word.compare_exchange_weak(
                word,
                flags | kept,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match freed {
                Ok(_) if word & WAITERS != 0 || is_last => {
                    futex::wake_high(address, wakes, ANY, Sharing::Shared);
                    return word;
                }
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
        0
    }

    /// Releases the lock of a guard that was made for `owner`, with whole data.
    #[cfg(not(loom))]
    pub(super) fn release_whole(&self, owner: u64) {
        let me = self.owner_of_guard(owner);
        self.free(owner, owner);
        me.released();
    }

    /// Releases the lock of a guard that was made for `owner`, with its data in an unknown state: the next owner gets
    /// `OwnerDied`.
    #[cold]
    pub(crate) fn unlock_inconsistent(&self, owner: u64) {
        let me = self.owner_of_guard(owner);
        self.free_with(owner, INCONSISTENT, 1);
        me.released();
    }

    /// Releases the lock of a guard that was made for `owner`, as not recoverable: no task can acquire it any more.
    #[cold]
    pub(crate) fn release_not_recoverable(&self, owner: u64) {
        let me = self.owner_of_guard(owner);
        self.free_with(owner, NOT_RECOVERABLE, u32::MAX);
        me.released();
    }

    /// Declares the data of a lock whole again that is held by `owner`.
    pub(crate) fn mark_consistent(&self, owner: u64) {
        self.owner_of_guard(owner);
        // Relaxed: only the owner's unlock, which is a Release, publishes it.
        self.word.fetch_and(!INCONSISTENT, Ordering::Relaxed);
    }

    /// The calling task, if it is the `owner` for which a guard was made; aborts in the child of a fork, where the guard
    /// belongs to the parent.
    pub(crate) fn owner_of_guard(&self, owner: u64) -> Member {
        match Me::current_or_none().member_at(self.address()) {
            Some(member) if member.identity() == owner => member,
            _ => crate::fatal(format_args!(
                "unlock of a region's mutex by a task that does not hold it (a guard inherited across fork is the parent's)"
            )),
        }
    }

    /// Whether the data may not be whole. An exclusive reference proves that no living task uses it.
    ///
    /// A word that names an owner is that of a task that has died, or has forgotten a guard. Which of the two is not asked:
    /// only a task of the owner's region can tell, and a mutex that was moved does not know which region that is.
    pub(crate) fn is_unclean(&mut self) -> bool {
        // Relaxed: the exclusive reference proves that no other task has access.
        let word = self.word.load(Ordering::Relaxed);
        word & (INCONSISTENT | NOT_RECOVERABLE) != 0 || is_held(word)
    }

    /// Makes a lock with data that is not whole usable again. The data has been replaced.
    pub(crate) fn make_clean(&mut self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

/// Without guards, for the locks of the library's own objects, and for the parts of a reader/writer lock.
impl<P: RegionProtocol> InRegion<P> {
    /// Acquires the lock, however long the wait.
    ///
    /// # Errors
    /// See [`RawError`]; `WouldBlock`, `TimedOut` and `Interrupted` do not occur.
    #[inline]
    #[doc(hidden)]
    pub fn lock_raw(&self) -> Result<Acquired, RawError> {
        if self.acquire_free().is_some() {
            return Ok(Acquired::Clean);
        }
        self.acquire_slowly(WaitMode::FOREVER).map(|(how, _)| how)
    }

    /// As [`Self::lock_raw`], with sleeps that watch no other task: they end by themselves. For the lock under which deaths are
    /// settled, for which a watching task would ask when it sees one.
    #[doc(hidden)]
    pub fn lock_raw_with_naps(&self) -> Result<Acquired, RawError> {
        loop {
            match self.acquire_slowly(WaitMode::interruptible(None)) {
                Err(RawError::Interrupted) => {}
                ended => return ended.map(|(how, _)| how),
            }
        }
    }

    /// Releases the lock; unrepaired data after an owner's death makes it not recoverable.
    ///
    /// # Safety
    /// The calling task holds it.
    #[inline]
    #[doc(hidden)]
    pub unsafe fn unlock_raw(&self) {
        let me = Me::current_or_none();
        let Some(owner) = me.first_identity_at(self.address()) else {
            return self.unlock_raw_slowly();
        };
        // Release: pairs with the Acquire of the next owner.
        if let Err(word) =
            self.word
                .compare_exchange(owner, 0, Ordering::Release, Ordering::Relaxed)
        {
            self.free_or_give_up(owner, word);
        }
        // After it, and wrapping: as in `release_guarded`.
        me.set_first_held(me.first_held().wrapping_sub(1));
    }

    #[cold]
    #[inline(never)]
    fn unlock_raw_slowly(&self) {
        let me = self.caller();
        let word = self.word.load(Ordering::Relaxed);
        self.free_or_give_up(me.identity(), word);
        me.released();
    }

    #[cold]
    #[inline(never)]
    pub(super) fn free_or_give_up(&self, owner: u64, word: u64) -> u64 {
        // Only the owner, which this task is, changes that bit.
        if word & INCONSISTENT == 0 {
            self.free(owner, word)
        } else {
            self.free_with(owner, NOT_RECOVERABLE, u32::MAX)
        }
    }

    /// Releases the lock with its data in an unknown state: the next owner gets `OwnerDied`.
    ///
    /// # Safety
    /// The calling task holds it.
    #[cold]
    #[doc(hidden)]
    pub unsafe fn unlock_raw_inconsistent(&self) {
        self.unlock_inconsistent(self.caller().identity());
    }

    /// Declares the data whole again.
    ///
    /// # Safety
    /// The calling task holds the lock.
    #[doc(hidden)]
    pub unsafe fn mark_raw_consistent(&self) {
        self.mark_consistent(self.caller().identity());
    }

    /// The calling task, which holds the lock.
    pub(super) fn caller(&self) -> Member {
        // Relaxed: this task is the owner.
        self.owner_of_guard(owner_of(self.word.load(Ordering::Relaxed)))
    }

    /// Aborts if the calling task does not hold the lock: in the child of a fork it belongs to the parent.
    #[inline]
    #[doc(hidden)]
    pub fn assert_held(&self) {
        // Relaxed: no other task writes, or removes, the identity of the calling one.
        let owner = owner_of(self.word.load(Ordering::Relaxed));
        if Me::current_or_none().first_identity_at(self.address()) != Some(owner) {
            self.owner_of_guard(owner);
        }
    }
}

/// The word as others see it that do not acquire the lock.
#[cfg(not(loom))]
impl InRegion {
    /// The owner at this moment, as the region's task table names it; 0 if the lock is free.
    #[doc(hidden)]
    #[must_use]
    pub fn owner(&self) -> u64 {
        // Acquire: whoever sees the lock free, or held by another, sees what the last owner did.
        owner_in(self.word.load(Ordering::Acquire))
    }

    /// As [`Self::owner`]. Each task that acquires the lock after this one sees what the calling thread did before this
    /// call.
    #[doc(hidden)]
    #[must_use]
    pub fn owner_from_now_on(&self) -> u64 {
        // AcqRel, and a read-modify-write: it stands between two of the changes of the word, all of which are
        // read-modify-writes. A later taker reads the end of a chain that begins here.
        owner_in(self.word.fetch_or(0, Ordering::AcqRel))
    }

    /// Whether the last owner of a free lock left the data in an unknown state.
    #[doc(hidden)]
    #[must_use]
    pub fn is_free_and_torn(&self) -> bool {
        // Relaxed: the answer may be stale before it arrives.
        let word = self.word.load(Ordering::Relaxed);
        !is_held(word) && word & INCONSISTENT != 0
    }
}

/// The owner in a word, as the region's task table names it; 0 if the lock is free.
#[cfg(not(loom))]
fn owner_in(word: u64) -> u64 {
    if is_held(word) {
        super::membership::tag_of(owner_of(word))
    } else {
        0
    }
}

impl<P: RegionProtocol> Default for InRegion<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: RegionProtocol> DataState for InRegion<P> {
    fn is_whole(&mut self) -> bool {
        !self.is_unclean()
    }
}

impl<P: RegionProtocol> fmt::Debug for InRegion<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: the answer may be stale before it arrives.
        let word = self.word.load(Ordering::Relaxed);
        // The slot, which is counted from 1 there, and its generation.
        let owner = is_held(word).then_some(((word >> 48).wrapping_sub(1), word as u32));
        formatter
            .debug_struct("InRegion")
            .field("owner", &format_args!("{owner:?}"))
            .finish()
    }
}

// SAFETY: words, whose addresses mean something only while a task uses them by reference.
#[cfg(not(loom))]
unsafe impl<P: RegionProtocol> crate::relocatable::Relocatable for InRegion<P> {}
