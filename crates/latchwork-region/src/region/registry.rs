//! The regions of this process, by address.
//!
//! Containers, robust locks and words to sleep on know only addresses; the registry finds the region of an address. A
//! *registration* records the addresses of a region and leads to it. Registrations are static, so that a lookup need
//! not know whether the region still exists. Regions are registered and removed under the *registry lock*, a mutex.
//!
//! | `region` of a registration | meaning | entered by |
//! | --- | --- | --- |
//! | null, no addresses | the registration is free | [`unregister`], under the lock |
//! | null, addresses | the region is gone, its mapping still exists (invariant 4) | [`unregister`], under the lock |
//! | a `Weak`, upgradable | the region is mapped and in use | [`register`], under the lock |
//! | a `Weak`, not upgradable | its last user is about to call [`unregister`]; the mapping still exists | the drop of the last `Arc` |
//!
//! Invariants
//! 1. A region is used through a registration only by a *reader*, a lookup that announced itself before it read
//!    `region`, and only by upgrading: an `Arc` keeps the region mapped, and an upgrade fails once the last `Arc` is
//!    gone.
//! 2. `region` becomes null before the `Weak` is dropped, and the `Weak` is dropped only if no reader is announced
//!    then: a later reader reads null. (If a reader is announced, the few bytes behind the `Weak` are leaked.)
//! 3. Regions are registered and removed under the lock. A holder of the lock may complete the removal of a region
//!    whose last user was about to do so. So an attach never finds addresses taken by a region that is being removed,
//!    and in the child of a fork, in which that user does not run, no thread waits for it.
//! 4. A mapping stays if it contains a robust lock, or a life-word, that is on the list of some thread of this
//!    process: its guard was forgotten, or the thread is about to end with it, and the list leads there. (If the
//!    thread has ended, that is the keeper's list, for ever.) A thread that makes or drops a region checks such mappings
//!    again ([`unmap_retained`]).
//!
//! *The lock* is held across system calls, so waiters sleep. Its word lies in memory that is wiped on fork: a child
//! finds it free. A thread that holds it may acquire it again: an attach may drop the last use of another region.
//! *Orderings* are given at each access.
#![allow(unsafe_code)]

use super::inner::Inner;
use super::region_id::{self, MAX_REGIONS};
use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sys::futex::{self, Sharing};
use crate::sys::memory::Mapping;
use crate::sys::wiped::Wiped;
use crate::sys::{held_locks, thread};
use crate::task;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::{self, NonNull};
use rustix::io::Errno;
use std::sync::{Arc, Weak};

struct Registration {
    base: AtomicUsize,
    end: AtomicUsize,
    /// The region's ID.
    id: AtomicUsize,
    /// The number of lookups in progress.
    readers: AtomicUsize,
    /// A `Weak`.
    region: AtomicPtr<Inner>,
}

static REGISTRATIONS: [Registration; MAX_REGIONS] = [const {
    Registration {
        base: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        id: AtomicUsize::new(0),
        readers: AtomicUsize::new(0),
        region: AtomicPtr::new(ptr::null_mut()),
    }
}; MAX_REGIONS];

impl Registration {
    /// The region's addresses; without the lock only a hint, by which a lookup finds the registration.
    fn addresses(&self) -> Range<usize> {
        // Relaxed: only a hint. A thread that has an address of the region got it from a thread that had found it
        // there.
        self.base.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn region(&self) -> Option<Arc<Inner>> {
        // SeqCst, both, and in `end`: either this load reads null, or that one sees the reader.
        self.readers.fetch_add(1, Ordering::SeqCst);
        let region = NonNull::new(self.region.load(Ordering::SeqCst))
            // SAFETY: invariants 1 and 2: a non-null `region` is a `Weak` that is not dropped while this reader is
            // announced; `ManuallyDrop` keeps this from dropping it.
            .map(|region| ManuallyDrop::new(unsafe { Weak::from_raw(region.as_ptr()) }))
            .and_then(|region| region.upgrade());
        // Release: pairs with the load in `end`.
        self.readers.fetch_sub(1, Ordering::Release);
        region
    }

    /// Ends the mapping, unless a robust list still leads there. The caller holds the lock, and the registration has no
    /// region.
    ///
    /// # Safety
    /// The mapping's owner was forgotten, or will be.
    unsafe fn unmap(&self) {
        let addresses = self.addresses();
        // A lock that passes from a thread that ends to its process's keeper is on neither list for a moment.
        let holds = || held_locks::are_in(&addresses);
        if task::while_nothing_is_handed_over(holds).unwrap_or(true) {
            return;
        }
        // SAFETY: the caller guarantees that the owner never ends the mapping; and this happens once only, since the
        // registration has no addresses afterwards.
        drop(unsafe { Mapping::from_addresses(addresses) });
        self.base.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
    }

    /// Forgets the region, and ends its mapping as [`Self::unmap`] does. The caller holds the lock.
    ///
    /// # Safety
    /// As for [`Self::unmap`].
    unsafe fn end(&self) {
        region_id::remove(self.id.load(Ordering::Relaxed));
        let region = self.region.swap(ptr::null_mut(), Ordering::SeqCst);
        if !region.is_null() && self.readers.load(Ordering::SeqCst) == 0 {
            // SAFETY: `register` made the `Weak`, and by invariant 2 no reader uses it.
            drop(unsafe { Weak::from_raw(region) });
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.unmap() };
    }
}

/// The number of registrations that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Registration] {
    // Acquire: pairs with the Release in `register`; a thread that has an address of a region finds its registration.
    &REGISTRATIONS[..USED.load(Ordering::Acquire)]
}

/// Bounds of all regions that this process has had mapped so far.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether an address may lie in a region.
#[inline]
pub(super) fn may_contain(address: usize) -> bool {
    // Relaxed: only a hint, as in `Registration::addresses`.
    let (lowest, highest) = (&LOWEST, &HIGHEST);
    (lowest.load(Ordering::Relaxed)..highest.load(Ordering::Relaxed)).contains(&address)
}

/// The region of this process that contains an address.
pub(super) fn find(address: usize) -> Option<Arc<Inner>> {
    used()
        .iter()
        .filter(|registration| registration.addresses().contains(&address))
        .filter_map(Registration::region)
        // The registration may have been reused for another region since.
        .find(|region| region.addresses().contains(&address))
}

/// All regions that are mapped.
pub(super) fn all() -> impl Iterator<Item = Arc<Inner>> {
    used().iter().filter_map(Registration::region)
}

/// Makes a region findable; `false` if there are too many. The caller holds the lock.
pub(super) fn register(region: &Arc<Inner>, _: &RegistryLock) -> bool {
    // Relaxed: only holders of the lock write it.
    let is_free = |registration: &Registration| registration.addresses().end == 0;
    let Some(index) = REGISTRATIONS.iter().position(is_free) else {
        return false;
    };
    let registration = &REGISTRATIONS[index];
    USED.fetch_max(index + 1, Ordering::Release);
    let addresses = region.addresses();
    region_id::insert(region.id, addresses.len());
    LOWEST.fetch_min(addresses.start, Ordering::Relaxed);
    HIGHEST.fetch_max(addresses.end, Ordering::Relaxed);
    registration.id.store(region.id.raw(), Ordering::Relaxed);
    registration.base.store(addresses.start, Ordering::Relaxed);
    registration.end.store(addresses.end, Ordering::Relaxed);
    let weak = Weak::into_raw(Arc::downgrade(region)).cast_mut();
    // Release: a thread that finds the region sees all of it.
    registration.region.store(weak, Ordering::Release);
    // Relaxed: only the last user reads it.
    region.registered.store(true, Ordering::Relaxed);
    true
}

/// Ends the mapping of a region whose last user leaves, unless another thread has done so already, or it must stay.
pub(super) fn unregister(region: &Inner, mapping: Mapping) {
    let lock = RegistryLock::lock();
    let registration = used()
        .iter()
        .find(|registration| ptr::eq(registration.region.load(Ordering::Relaxed), region));
    match registration {
        Some(registration) => {
            core::mem::forget(mapping);
            // SAFETY: the mapping was forgotten just now.
            unsafe { registration.end() };
        }
        // Invariant 3: another thread has removed the region; or the region was never in a registration.
        None if region.registered.load(Ordering::Relaxed) => core::mem::forget(mapping),
        None => drop(mapping),
    }
    unmap_retained(&lock);
    drop(lock);
}

/// Ends mappings that robust lists led to, and no longer do. The caller holds the lock.
pub(super) fn unmap_retained(_: &RegistryLock) {
    for registration in used() {
        if registration.region.load(Ordering::Relaxed).is_null()
            && registration.addresses().end != 0
        {
            // SAFETY: its owner was forgotten in `unregister`, or will be (invariant 3).
            unsafe { registration.unmap() };
        }
    }
}

/// Completes the removal of regions in a range whose last users are about to do so. The caller holds the lock.
pub(super) fn complete_removals(range: &Range<usize>, _: &RegistryLock) {
    for registration in used() {
        let addresses = registration.addresses();
        let overlap = addresses.start < range.end && range.start < addresses.end;
        if overlap && registration.region().is_none() {
            // SAFETY: its owner will not find the registration, and will forget the mapping (invariant 3).
            unsafe { registration.end() };
        }
    }
}

/// The registry's lock, held while regions of this process are registered and removed.
pub(super) struct RegistryLock {
    /// `None` if this thread already holds the lock.
    word: Option<&'static AtomicU32>,
}

/// The lock's word: the ID of its owner, or 0.
// SAFETY: a number.
static WORD: Wiped<AtomicU32> = unsafe { Wiped::new() };

impl RegistryLock {
    /// Allocates the lock's word, which needs a page of memory.
    pub(super) fn prepare() -> Result<(), Errno> {
        WORD.get().map(drop)
    }

    /// Acquires the lock. [`Self::prepare`] has been called before.
    pub(super) fn lock() -> Self {
        let Some(word) = WORD.made() else {
            return Self { word: None };
        };
        let me = thread::thread_id();
        loop {
            // Acquire: pairs with the Release in `drop`.
            match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Self { word: Some(word) },
                Err(holder) if holder == me => return Self { word: None },
                Err(holder) => {
                    futex::wait(word, holder, Sharing::Private, None);
                }
            }
        }
    }
}

impl Drop for RegistryLock {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            // Release: pairs with the Acquire in `lock`.
            word.store(0, Ordering::Release);
            futex::wake(word, u32::MAX, Sharing::Private);
        }
    }
}
