//! Locks that are free, and reserved for waiters that did not take them.

use super::mutations::{self, Image};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{InRegion, Mutex, Robust, Throughput};
use latchwork::region::RegionOptions;
use latchwork::sharing::Shared;
use latchwork_testkit::Trial;

type OfRegion = Mutex<u64, InRegion<Throughput<Shared>>>;
type Listed = Mutex<u64, Robust<Throughput<Shared>>>;

/// The bit of a region lock's word that asks for a hand-off.
const REQUEST: u64 = 1 << 35;
/// Longer than the time after which a waiter has the lock handed to it.
const WAIT: Duration = Duration::from_millis(50);

/// A waiter requests the lock and gives up; so the unlock reserves it, and no task takes it.
#[test]
#[allow(unsafe_code)]
fn a_lock_that_was_reserved_and_not_taken_has_no_dead_owner() {
    let _trial = Trial::begin("a_lock_that_was_reserved_and_not_taken_has_no_dead_owner");
    let mut place = 0;
    let image = Image::of(|region| {
        let of_region = region.object::<OfRegion>("of region", || Mutex::in_region_throughput(1));
        let of_region = of_region.unwrap().get_ref();
        let listed = region.object::<Listed>("listed", || Mutex::robust_throughput(2));
        let listed = listed.unwrap();
        let held = (of_region.lock().unwrap(), listed.lock().unwrap());
        let address = core::ptr::from_ref(of_region).addr();
        place = address - mutations::ADDRESS;
        // SAFETY: a region lock begins with its word.
        let word = unsafe { &*core::ptr::with_exposed_provenance::<AtomicU64>(address) };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                region.join("waiter").unwrap();
                // On a busy machine a wait may end before it has requested anything.
                while word.load(SeqCst) & REQUEST == 0 {
                    assert!(of_region.lock_for(WAIT).is_err());
                }
                assert!(listed.lock_for(WAIT).is_err());
            });
            // It has left the region then.
            waiter.join().unwrap();
        });
        drop(held);
    });
    // Its word, in which the identity would have a low half.
    assert_ne!(image.word(place), 0, "not reserved");
    assert_eq!(image.word(place) as u32, 0);
    let options = RegionOptions::new().holds::<OfRegion>().holds::<Listed>();
    let region = options
        .attach_file(mutations::file_of(&image.bytes))
        .unwrap();
    let of_region = region.find::<OfRegion>("of region").unwrap().get_ref();
    assert_eq!(*of_region.lock().unwrap(), 1);
    let listed = region.find::<Listed>("listed").unwrap();
    assert_eq!(*listed.lock().unwrap(), 2);
}
