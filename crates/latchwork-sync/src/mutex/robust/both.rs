//! What robust mutexes and region locks have in common beside their errors: the data in its place, the data by an exclusive
//! reference, and calls that report each step. Reader/writer locks made of either use the first.

use crate::hook::{How, Lock, Mode, Observer, Site, Verdict};
use crate::mutex::WaitMode;

/// How a guard that may change data which need not be `Unpin` lends it. `$lock`: its field with the lock. A guard whose
/// lock is not pinned is made for a `T` that is `Unpin` only.
#[doc(hidden)]
#[macro_export]
macro_rules! edits_in_place {
    ({$($parameters:tt)*} $guard:ty, $lock:ident) => {
        impl<T: ?Sized, $($parameters)*> $guard {
            /// The data, pinned: how to change data that is not `Unpin`, such as a container of a region. See also
            /// [`Self::edit`].
            #[inline]
            pub fn as_mut(&mut self) -> Pin<&mut T>
            where
                T: Relocatable,
            {
                // SAFETY: the guard keeps all others out, and is borrowed exclusively. If `T` is not `Unpin`, the lock is
                // pinned, and its methods give no `&mut T`. New data may take the place of torn data, which is not dropped:
                // `T` is `Relocatable`.
                unsafe { Pin::new_unchecked(&mut *self.$lock.data.get()) }
            }

            /// The editor of the data: `guard.edit().push(1)` for a container, `guard.edit().field` for a struct with
            /// pinned fields. It is short for [`as_mut`](Self::as_mut) and [`Edit::edit`].
            #[inline]
            pub fn edit(&mut self) -> T::Editor<'_>
            where
                T: Relocatable + Edit,
            {
                self.as_mut().edit()
            }
        }
    };
}
pub(crate) use edits_in_place;

/// The methods for an exclusive reference to a mutex with the lock `$raw`, whose data is not whole in the cases that `$unless`
/// names.
macro_rules! exclusive_access {
    ({$($parameters:tt)*} $raw:ty, $unless:literal) => {
        impl<T: ?Sized, $($parameters)*> Mutex<T, $raw> {
            /// The data, without locking, if it is whole: an exclusive reference proves that no other task uses it.
            #[doc = concat!("`None` if an owner has ", $unless, ".")]
            pub fn get_mut(&mut self) -> Option<&mut T> {
                let is_whole = !self.raw.is_unclean();
                is_whole.then(|| &mut **self.data.get_mut())
            }

            #[doc = concat!("Makes a lock usable again whose owner has ", $unless, ", or that is not recoverable,")]
            /// with new data; the old data is not dropped then. An exclusive reference proves that no task uses it.
            pub fn reset(self: Pin<&mut Self>, value: T)
            where
                T: Sized,
            {
                // SAFETY: nothing is moved out. Whole data is dropped in its place before the new data is written there;
                // torn data that was ever pinned is `Relocatable`, and need not be dropped.
                let this = unsafe { self.get_unchecked_mut() };
                if this.raw.is_unclean() {
                    // SAFETY: an exclusive reference. The old data may be no value of `T`: it is overwritten, not dropped.
                    unsafe { torn_safe::overwrite(this.data.get_mut(), ManuallyDrop::new(value)) };
                    this.raw.make_clean();
                } else {
                    **this.data.get_mut() = value;
                }
            }
        }
    };
}
pub(crate) use exclusive_access;

/// The error of a lock call that returned no ordinary guard.
pub(crate) trait NoGuard {
    /// The call would complete a wait-for cycle.
    const DEADLOCK: Self;
    /// Whether the calling task holds the lock nevertheless.
    fn holds_lock(&self) -> bool;
    /// Whether a call that may wait would do so, or report a deadlock.
    fn would_wait(&self) -> bool;
}

/// A lock call in this mode, by `lock`, which reports each step to the observer.
pub(crate) fn lock_reporting<O: Observer, G, E: NoGuard>(
    name: Lock,
    wait_mode: WaitMode,
    site: Site,
    lock: impl Fn(WaitMode) -> Result<G, E>,
) -> Result<G, E> {
    let has_lock = |result: &Result<G, E>| result.as_ref().err().is_none_or(E::holds_lock);
    let report_taken = |how| O::taken(name, Mode::Exclusive, how, site);
    let at_once = lock(WaitMode::TRY);
    let is_try = wait_mode.is_try();
    if is_try || !at_once.as_ref().is_err_and(E::would_wait) {
        if has_lock(&at_once) {
            report_taken(if is_try { How::Tried } else { How::Locked });
        }
        return at_once;
    }
    let is_timed = wait_mode.deadline().is_some();
    if O::wants(name, Mode::Exclusive, is_timed, site) == Verdict::Deadlock {
        O::gave_up(name);
        return Err(E::DEADLOCK);
    }
    let taken = lock(wait_mode);
    if has_lock(&taken) {
        report_taken(How::Locked);
    } else {
        O::gave_up(name);
    }
    taken
}
