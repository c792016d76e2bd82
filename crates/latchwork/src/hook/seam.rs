//! How the lower layers reach whoever watches, if anybody does.

use super::{Kind, Lock, Site};
use crate::atomic::{AtomicPtr, Ordering};
use core::ops::Range;

/// What a listener is told by what cannot call it by name.
pub(crate) struct Hooks {
    /// The calling task is about to sleep for an object that has no owner.
    pub(crate) waits: fn(Lock, bool, Site),
    /// That sleep is over.
    pub(crate) has_waited: fn(Lock),
    /// Memory is about to be given back.
    pub(crate) freed: fn(Range<usize>),
    /// The calling thread is about to end.
    pub(crate) task_ends: fn(),
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Puts a listener in; the first one stays.
pub(crate) fn listen(hooks: &'static Hooks) {
    // Release: pairs with the Acquire in `hooks`.
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

#[inline]
fn hooks() -> Option<&'static Hooks> {
    // Acquire: pairs with the Release in `listen`.
    let hooks = HOOKS.load(Ordering::Acquire);
    // SAFETY: null, or from a `&'static` in `listen`.
    unsafe { hooks.as_ref() }
}

/// Memory is about to be given back: a region's block, or a region.
#[inline]
pub(crate) fn freed(range: impl FnOnce() -> Range<usize>) {
    if let Some(hooks) = hooks() {
        (hooks.freed)(range());
    }
}

/// The calling thread is about to end.
pub(crate) fn task_ends() {
    if let Some(hooks) = hooks() {
        (hooks.task_ends)();
    }
}

/// A wait for an object without an owner, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting(Option<Lock>);

impl Waiting {
    /// The calling task is about to sleep for what is at this address.
    #[inline]
    #[track_caller]
    pub(crate) fn begin(kind: Kind, address: usize, timed: bool) -> Self {
        Self(hooks().map(|hooks| {
            let object = Lock::new(address, kind);
            (hooks.waits)(object, timed, Site::caller());
            object
        }))
    }
}

impl Drop for Waiting {
    #[inline]
    fn drop(&mut self) {
        if let (Some(object), Some(hooks)) = (self.0, hooks()) {
            (hooks.has_waited)(object);
        }
    }
}
