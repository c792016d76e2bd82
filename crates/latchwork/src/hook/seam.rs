//! How the lower layers reach whoever watches, if anybody does.

use super::{Kind, Lock, Misuse, Site};
use crate::atomic::{AtomicPtr, Ordering};
use core::ops::Range;

/// What a listener is told by what cannot call it by name.
pub(crate) struct Hooks {
    /// The calling task is about to sleep for an object that has no owner.
    pub(crate) waits: fn(Lock, bool, Site),
    /// That sleep is over.
    pub(crate) has_waited: fn(Lock),
    /// The calling task cannot have what has an owner at once, and is about to wait, for at most some time if so
    /// said; whether it must not, since it would wait for ever.
    pub(crate) wants: fn(Lock, bool, Site) -> bool,
    /// It has it; by a call that never waits, if so said.
    pub(crate) taken: fn(Lock, bool, Site),
    /// It waits no more, without having it.
    pub(crate) gave_up: fn(Lock),
    /// It is about to release what it owns.
    pub(crate) releases: fn(Lock, Site),
    /// There is an object of this name.
    pub(crate) named: fn(Lock, &str, Site),
    /// It was deleted.
    pub(crate) ended: fn(Lock),
    /// A call was refused, or should have been.
    pub(crate) misused: fn(Lock, Misuse, Site),
    /// Memory is about to be given back.
    pub(crate) freed: fn(Range<usize>),
    /// One of a condition variable's waiters is about to be notified, or all.
    pub(crate) notifies: fn(Lock, bool),
    /// The end of the calling thread has begun, and it leaves its regions; whether it will come here again, and the
    /// listener is to know the thread until then.
    pub(crate) task_ends: fn() -> bool,
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Puts a listener in; the first one stays.
pub(crate) fn listen(hooks: &'static Hooks) {
    // Release: pairs with the Acquire in `listener`.
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

/// Whoever listens.
#[inline]
pub(crate) fn listener() -> Option<&'static Hooks> {
    // Acquire: pairs with the Release in `listen`.
    let hooks = HOOKS.load(Ordering::Acquire);
    #[cfg(feature = "check")]
    if hooks.is_null() {
        crate::check::begin();
        return listener();
    }
    // SAFETY: null, or from a `&'static` in `listen`.
    unsafe { hooks.as_ref() }
}

/// Memory is about to be given back: a region's block, or a region.
#[inline]
pub(crate) fn freed(range: impl FnOnce() -> Range<usize>) {
    if let Some(hooks) = listener() {
        (hooks.freed)(range());
    }
}

/// A condition variable that tasks wait for is about to be notified.
pub(crate) fn notifies(condvar: Lock, all: bool) {
    if let Some(hooks) = listener() {
        (hooks.notifies)(condvar, all);
    }
}

/// The end of the calling thread has begun; see [`Hooks`].
pub(crate) fn task_ends() -> bool {
    listener().is_some_and(|hooks| (hooks.task_ends)())
}

/// A wait for an object without an owner, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting(Option<Lock>);

impl Waiting {
    /// The calling task is about to sleep for what is at this address.
    #[inline]
    #[track_caller]
    pub(crate) fn begin(kind: Kind, address: usize, timed: bool) -> Self {
        Self::begin_at(kind, address, timed, Site::caller())
    }

    /// As above, from that place.
    #[inline]
    pub(crate) fn begin_at(kind: Kind, address: usize, timed: bool, site: Site) -> Self {
        Self(listener().map(|hooks| {
            let object = Lock::new(address, kind);
            (hooks.waits)(object, timed, site);
            object
        }))
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let (Some(object), Some(hooks)) = (self.0, listener()) {
            (hooks.has_waited)(object);
        }
    }
}
