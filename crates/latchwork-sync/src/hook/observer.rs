//! The one trait by which locks report, and the types that implement it.
//!
//! | observer | reports to it |
//! | --- | --- |
//! | [`NoObserver`] | nothing: its methods are empty, and calls of them are optimised out |
//! | [`Registered`] | semaphores, queues, waits for objects without an owner, freed memory: to the observer that this process has registered |
//! | [`ByFeature`] | locks whose type is not a checked one: [`Registered`] with the feature `check`, otherwise [`NoObserver`] |
//! | `check::Checker` | `Checked`, which names it; foreign locks, through `check::hook` |
//!
//! A lock names the type of its observer, not a value: a lock may lie in shared memory, where a pointer to an observer
//! means nothing. Only [`Registered`] looks one up, in a table of functions that is made from the trait.
#![allow(unsafe_code)]

use super::{How, Lock, Misuse, Mode, Site, Verdict};
#[cfg(not(loom))]
use crate::atomic::{AtomicPtr, Ordering};
use core::ops::Range;

/// The trait, the table that is made from it, and the observer that looks a table up.
macro_rules! observer {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $Type:ty),*) $(-> $Answer:ty = $otherwise:expr)?;)*) => {
        /// An observer of locks and other objects. By default each method does nothing.
        pub trait Observer: 'static {
            /// Whether the methods do anything. If not, a lock takes its usual path.
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
    /// The calling task cannot acquire a lock at once, and is about to wait for it, until a deadline if `timed`.
    fn wants(lock: Lock, mode: Mode, timed: bool, site: Site) -> Verdict = Verdict::Go;
    /// It has acquired a lock.
    fn taken(lock: Lock, mode: Mode, how: How, site: Site);
    /// It has ended its wait without acquiring the lock.
    fn gave_up(lock: Lock);
    /// It is about to release a lock.
    fn releasing(lock: Lock, site: Site) -> Verdict = Verdict::Go;
    /// It is about to release an object that it owns according to the object itself. (It may have become the owner
    /// before an observer was registered, so it is no breach of a rule if the observer does not know of it.)
    fn releases(lock: Lock, site: Site);
    /// A lock is about to be destroyed.
    fn destroyed(lock: Lock, site: Site);
    /// The calling task is about to release a mutex and to wait for a condition.
    fn condvar_begins(condvar: Lock, mutex: Lock, timed: bool, site: Site) -> Verdict = Verdict::Go;
    /// That wait is over; the mutex was acquired again if `has_mutex`.
    fn condvar_ends(condvar: Lock, mutex: Lock, has_mutex: bool, site: Site);
    /// One of a condition variable's waiters, or all, are about to be notified.
    fn notifies(condvar: Lock, all: bool);
    /// The calling task is about to sleep for an object that has no owner. Returns whether the observer
    /// found no other task that could end this sleep.
    fn waits(object: Lock, timed: bool, site: Site) -> bool = false;
    /// Called after [`Self::waits`] returned `true`, if the object still requires a sleep.
    fn waits_alone(object: Lock, site: Site);
    /// That sleep is over.
    fn has_waited(object: Lock);
    /// An object has this name.
    fn named(object: Lock, name: &str, site: Site);
    /// An object without an owner was deleted.
    fn ended(object: Lock);
    /// A call was refused, or should have been refused.
    fn misused(object: Lock, misuse: Misuse, site: Site);
    /// Memory is about to be freed.
    fn freed(range: Range<usize>);
    /// The end of the calling thread has begun, and it leaves its regions. Returns whether this report will be made once
    /// more; until then the observer keeps what it knows of the thread.
    fn task_ends() -> bool = false;
}

/// The observer of locks that are not observed.
pub struct NoObserver;

impl Observer for NoObserver {
    const IS_ON: bool = false;
}

/// The observer that [`observe`] has registered.
#[cfg(not(loom))]
pub struct Registered;

/// The observer of locks whose type is not a checked one.
#[cfg(all(feature = "check", not(loom)))]
pub type ByFeature = Registered;
/// The observer of locks whose type is not a checked one.
#[cfg(any(not(feature = "check"), loom))]
pub type ByFeature = NoObserver;

#[cfg(not(loom))]
static NONE: Table = Table::of::<NoObserver>();
#[cfg(not(loom))]
static TABLE: AtomicPtr<Table> = AtomicPtr::new((&raw const NONE).cast_mut());

/// Registers an observer: a process has one at a time. (It is safe: a lock excludes other tasks whatever an observer
/// returns.)
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
    // SAFETY: `NONE`, or from a `&'static` in `observe`.
    unsafe { &*table }
}

/// Whether an observer is registered.
#[cfg(not(loom))]
#[inline]
pub fn is_observed() -> bool {
    !core::ptr::eq(registered(), &raw const NONE)
}
