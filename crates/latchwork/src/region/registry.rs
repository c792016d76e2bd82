//! The regions of this process, by address.
//!
//! Containers, robust locks and words to sleep on know addresses only; from an address this finds the
//! region. A *place* says where a region lies and leads to it. It is static, so that who looks for a
//! region need not know whether it still exists.
//!
//! | `region` of a place | meaning | entered by |
//! | --- | --- | --- |
//! | null, no addresses | the place is free | [`leave`], under the gate |
//! | null, addresses | the region is gone, its mapping is still there (invariant 4) | [`leave`], under the gate |
//! | a `Weak`, upgradable | the region is mapped and in use | [`enter`], under the gate |
//! | a `Weak`, not upgradable | its last user is on the way to [`leave`]; the mapping is still there | the last `Arc` goes |
//!
//! Invariants
//! 1. What a place leads to is used only by a visitor who announced itself before it read `region`, and
//!    only by upgrading: an `Arc` keeps the region mapped, and there is none once the last one has gone.
//! 2. `region` becomes null before the `Weak` is dropped, which happens only if no visitor is announced
//!    then: a later one finds null. (If one is, the few bytes behind the `Weak` are leaked.)
//! 3. Regions come and go under the gate. Whoever has it may do for a region that is leaving what its
//!    last user was about to do. So an attach never finds addresses taken by a region that is leaving,
//!    and in the child of a fork, where that user does not run, nobody waits for it.
//! 4. A mapping with a robust lock in it, or a life-word, that some thread of this process has on its list
//!    stays: its guard was forgotten, or the thread is about to end with it, and the list leads there.
//!    Whoever makes or drops a region looks again ([`unmap_rest`]).
//!
//! *The gate* is held over system calls, so waiters sleep. Its word lies in memory that is wiped on
//! fork: a child finds it open. A thread that has it may enter again: an attach may drop what is the
//! last use of another region. *Orderings:* given at each access.
#![allow(unsafe_code)]

use super::{Inner, homes};
use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sys::futex::{self, Sharing};
use crate::sys::memory::Mapping;
use crate::sys::{held_locks, thread};
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::{self, NonNull};
use rustix::io::Errno;
use std::sync::{Arc, Weak};

/// The regions that one process can have mapped at a time.
pub(super) const MAX_REGIONS: usize = 4096;

struct Place {
    base: AtomicUsize,
    end: AtomicUsize,
    /// How containers name the region.
    home: AtomicUsize,
    /// Lookups under way.
    visitors: AtomicUsize,
    /// A `Weak`.
    region: AtomicPtr<Inner>,
}

static PLACES: [Place; MAX_REGIONS] = [const {
    Place {
        base: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        home: AtomicUsize::new(0),
        visitors: AtomicUsize::new(0),
        region: AtomicPtr::new(ptr::null_mut()),
    }
}; MAX_REGIONS];

impl Place {
    /// Where the region lies; a guess without the gate, by which a lookup finds the place.
    fn addresses(&self) -> Range<usize> {
        // Relaxed: see above. Who has been given an address of the region has been told of it by
        // somebody who had found it there.
        self.base.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn region(&self) -> Option<Arc<Inner>> {
        // SeqCst, both, and in `clear`: either this finds null, or that finds the visitor.
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let region = NonNull::new(self.region.load(Ordering::SeqCst))
            // SAFETY: invariants 1 and 2; it is not dropped here.
            .map(|region| ManuallyDrop::new(unsafe { Weak::from_raw(region.as_ptr()) }))
            .and_then(|region| region.upgrade());
        // Release: pairs with the load in `clear`.
        self.visitors.fetch_sub(1, Ordering::Release);
        region
    }

    /// Ends the mapping, if no list leads there any more; says whether it did. Under the gate, for a place
    /// without a region.
    ///
    /// # Safety
    /// The mapping's owner was forgotten, or will be.
    unsafe fn unmap(&self) -> bool {
        let addresses = self.addresses();
        if held_locks::are_in(&addresses) {
            return false;
        }
        // SAFETY: by the caller's contract; once only, since the place has no addresses after this.
        drop(unsafe { Mapping::from_addresses(addresses) });
        self.base.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
        true
    }

    /// Forgets the region. Under the gate.
    fn clear(&self) {
        let region = self.region.swap(ptr::null_mut(), Ordering::SeqCst);
        if !region.is_null() && self.visitors.load(Ordering::SeqCst) == 0 {
            // SAFETY: made by `enter`; invariant 2.
            drop(unsafe { Weak::from_raw(region) });
        }
    }
}

/// Places from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Place] {
    // Acquire: pairs with the Release in `enter`; whoever has an address of a region finds its place.
    &PLACES[..USED.load(Ordering::Acquire)]
}

/// All regions that there have been lie, or lay, between these.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether an address may lie in a region.
#[inline]
pub(super) fn may_contain(address: usize) -> bool {
    // Relaxed: as for `Place::addresses`.
    let (lowest, highest) = (&LOWEST, &HIGHEST);
    (lowest.load(Ordering::Relaxed)..highest.load(Ordering::Relaxed)).contains(&address)
}

/// The region that contains an address.
pub(super) fn find(address: usize) -> Option<Arc<Inner>> {
    used()
        .iter()
        .filter(|place| place.addresses().contains(&address))
        .filter_map(Place::region)
        // The place may have got another region since.
        .find(|region| region.addresses().contains(&address))
}

/// All regions that are mapped.
pub(super) fn all() -> impl Iterator<Item = Arc<Inner>> {
    used().iter().filter_map(Place::region)
}

/// Makes a region findable; `false` if there are too many. Under the gate.
pub(super) fn enter(region: &Arc<Inner>, _: &Gate) -> bool {
    // Relaxed: written under the gate.
    let is_free = |place: &Place| place.addresses().end == 0;
    let Some(index) = PLACES.iter().position(is_free) else {
        return false;
    };
    let place = &PLACES[index];
    USED.fetch_max(index + 1, Ordering::Release);
    let addresses = region.addresses();
    homes::enter(region.home, addresses.len());
    LOWEST.fetch_min(addresses.start, Ordering::Relaxed);
    HIGHEST.fetch_max(addresses.end, Ordering::Relaxed);
    place.home.store(region.home, Ordering::Relaxed);
    place.base.store(addresses.start, Ordering::Relaxed);
    place.end.store(addresses.end, Ordering::Relaxed);
    let weak = Weak::into_raw(Arc::downgrade(region)).cast_mut();
    // Release: who finds the region finds all of it.
    place.region.store(weak, Ordering::Release);
    true
}

/// Ends the mapping of a region whose last user goes, unless somebody has done so already, or must not.
pub(super) fn leave(region: &Inner, mapping: Mapping) {
    let gate = Gate::enter();
    let place = used()
        .iter()
        .find(|place| ptr::eq(place.region.load(Ordering::Relaxed), region));
    match place {
        Some(place) => {
            homes::leave(region.home);
            place.clear();
            core::mem::forget(mapping);
            // SAFETY: forgotten just now.
            unsafe { place.unmap() };
        }
        // Invariant 3, or it never was in a place.
        None if region.was_entered() => core::mem::forget(mapping),
        None => drop(mapping),
    }
    unmap_rest(&gate);
    drop(gate);
}

/// Ends the mappings that robust lists led to, and no longer do. Under the gate.
pub(super) fn unmap_rest(_: &Gate) {
    for place in used() {
        if place.region.load(Ordering::Relaxed).is_null() && place.addresses().end != 0 {
            // SAFETY: its owner was forgotten in `leave`, or will be (invariant 3).
            unsafe { place.unmap() };
        }
    }
}

/// Does what the last users of regions in a range are about to do. Under the gate.
pub(super) fn clear(range: &Range<usize>, _: &Gate) {
    for place in used() {
        let here = place.addresses();
        let overlap = here.start < range.end && range.start < here.end;
        if overlap && place.region().is_none() {
            homes::leave(place.home.load(Ordering::Relaxed));
            place.clear();
            // SAFETY: its owner does not find the place, and forgets it (invariant 3).
            unsafe { place.unmap() };
        }
    }
}

/// Held while regions of this process come and go.
pub(super) struct Gate {
    /// `None` inside another one of this thread's.
    word: Option<&'static AtomicU32>,
}

/// Where the gate's word is: the ID of the thread that has it, or 0.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

impl Gate {
    /// Makes the gate's word, which needs a page of memory.
    pub(super) fn prepare() -> Result<(), Errno> {
        if WORD.load(Ordering::Acquire).is_null() {
            let page = thread::map_wipe_on_fork()?;
            // Release: pairs with the Acquire in `enter` and above.
            let set = WORD.compare_exchange(
                ptr::null_mut(),
                page.as_ptr().cast(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if set.is_err() {
                // SAFETY: nobody else knows the page.
                unsafe { thread::unmap_record(page) };
            }
        }
        Ok(())
    }

    /// Waits for the gate; [`Self::prepare`] came before.
    pub(super) fn enter() -> Self {
        // SAFETY: a page that stays until the process ends; zeroed or set below, so a word.
        let Some(word) = (unsafe { WORD.load(Ordering::Acquire).as_ref() }) else {
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

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            // Release: pairs with the Acquire in `enter`.
            word.store(0, Ordering::Release);
            futex::wake(word, u32::MAX, Sharing::Private);
        }
    }
}
