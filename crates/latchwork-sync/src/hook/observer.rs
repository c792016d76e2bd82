//! The one trait by which locks report, and what stands for it.
//!
//! | observer | reports to it |
//! | --- | --- |
//! | [`Nobody`] | nothing: its methods are empty, and what calls them vanishes |
//! | [`Registered`] | to whatever observer is registered in this process: semaphores, queues, waits without an owner, freed memory |
//! | [`ByFeature`] | locks whose type does not say that they are checked: [`Registered`] with the feature `check`, else [`Nobody`] |
//! | `check::Checker` | `Checked`, which knows it by name; foreign locks, through `check::hook` |
//!
//! A lock names the type of its observer, not a value: a lock may lie in shared memory, where a pointer to an observer
//! means nothing. Only [`Registered`] looks one up, in a table of functions that is made from the trait.

use super::{How, Lock, Misuse, Mode, Site, Verdict};
#[cfg(not(loom))]
use crate::atomic::{AtomicPtr, Ordering};
use core::ops::Range;

/// The trait, the table that is made from it, and the observer that looks a table up.
macro_rules! observer {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $Type:ty),*) $(-> $Answer:ty = $otherwise:expr)?;)*) => {
        /// What observes locks and other objects. Each method does nothing unless an observer says otherwise.
        pub trait Observer: 'static {
            /// Whether there may be anything to do. A lock takes its usual path where there is not.
            const IS_ON: bool = true;
            $(
                $(#[$meta])*
                #[inline(always)]
                fn $name($($argument: $Type),*) $(-> $Answer)? {
                    let _ = ($($argument,)*);
                    $($otherwise)?
                }
            )*
        }

        /// An observer's methods.
        #[cfg(not(loom))]
        pub struct Table {
            $($name: fn($($Type),*) $(-> $Answer)?,)*
        }

        #[cfg(not(loom))]
        impl Table {
            pub const fn of<O: Observer>() -> Self {
                Self { $($name: O::$name,)* }
            }
        }

        #[cfg(not(loom))]
        impl Observer for Registered {
            $(
                #[inline(always)]
                fn $name($($argument: $Type),*) $(-> $Answer)? {
                    (registered().$name)($($argument),*)
                }
            )*
        }
    };
}

observer! {
    /// The calling task cannot have a lock at once, and is about to wait for it, for at most some time if `timed`.
    fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict = Verdict::Go;
    /// It has taken a lock.
    fn taken(lock: Lock, mode: Mode, how: How, site: Site);
    /// It waits no more, without having the lock.
    fn gave_up(lock: Lock);
    /// It is about to release a lock.
    fn releasing(lock: Lock, site: Site) -> Verdict = Verdict::Go;
    /// It is about to release what it owns by what the object itself says. (It may have become the owner before
    /// anybody was registered, so this is no breach of a rule if the observer knows nothing of it.)
    fn releases(lock: Lock, site: Site);
    /// A lock is about to end.
    fn destroyed(lock: Lock, site: Site);
    /// The calling task is about to release a mutex and to wait for a condition.
    fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict = Verdict::Go;
    /// That wait is over, and the mutex taken again, if so said.
    fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site);
    /// One of a condition variable's waiters is about to be notified, or all.
    fn notifies(condvar: Lock, all: bool);
    /// The calling task is about to sleep for an object that has no owner.
    fn waits(object: Lock, timed: bool, site: Site);
    /// That sleep is over.
    fn has_waited(object: Lock);
    /// There is an object of this name.
    fn named(object: Lock, name: &str, site: Site);
    /// An object without an owner was deleted.
    fn ended(object: Lock);
    /// A call was refused, or should have been.
    fn misused(object: Lock, misuse: Misuse, site: Site);
    /// Memory is about to be given back.
    fn freed(range: Range<usize>);
    /// The end of the calling thread has begun, and it leaves its regions; whether it will come here again, and the
    /// observer is to know the thread until then.
    fn task_ends() -> bool = false;
}

/// The observer of what nobody observes.
pub struct Nobody;

impl Observer for Nobody {
    const IS_ON: bool = false;
}

/// Whichever observer [`observe`] has registered.
#[cfg(not(loom))]
pub struct Registered;

/// The observer of locks whose type does not say that they are checked.
#[cfg(all(feature = "check", not(loom)))]
pub type ByFeature = Registered;
/// The observer of locks whose type does not say that they are checked.
#[cfg(any(not(feature = "check"), loom))]
pub type ByFeature = Nobody;

#[cfg(not(loom))]
static NOBODY: Table = Table::of::<Nobody>();
#[cfg(not(loom))]
static TABLE: AtomicPtr<Table> = AtomicPtr::new((&raw const NOBODY).cast_mut());

/// Registers an observer: a process has one at a time.
#[cfg(not(loom))]
pub fn observe(table: &'static Table) {
    // Release: pairs with the Acquire in `registered`.
    TABLE.store(core::ptr::from_ref(table).cast_mut(), Ordering::Release);
}

#[cfg(not(loom))]
#[inline(always)]
fn registered() -> &'static Table {
    // Acquire: pairs with the Release in `observe`.
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: `NOBODY`, or from a `&'static` in `observe`.
    unsafe { &*table }
}

/// Whether an observer is registered.
#[cfg(not(loom))]
#[inline]
pub fn is_observed() -> bool {
    !core::ptr::eq(registered(), &raw const NOBODY)
}
