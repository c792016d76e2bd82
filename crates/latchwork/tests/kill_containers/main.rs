//! Containers whose owner is killed: at each instruction of an operation, and at random moments.
//!
//! What the successor finds must be what was there before the operation or what it makes, nothing
//! may be leaked, and the heap must be sound.

mod assign;
mod moments;
mod steps;
mod things;

use core::pin::Pin;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{Region, RegionOptions};
use things::Things;

type Shared = Mutex<Things, Robust>;

struct World {
    region: Region,
    /// Bytes that are allocated while everything is empty.
    empty: usize,
}

impl World {
    fn new() -> Self {
        let region = RegionOptions::new()
            .max_bytes(16 << 20)
            .create_anonymous()
            .unwrap();
        region
            .object("things", || Mutex::robust(Things::new(&region)))
            .unwrap();
        let empty = region.heap_stats().allocated_bytes;
        Self { region, empty }
    }

    fn things(&self) -> Pin<&Shared> {
        self.region.find::<Shared>("things").unwrap()
    }

    /// Locks as a successor would.
    fn lock<'a>(&'a self, things: Pin<&'a Shared>) -> RobustGuard<'a, Things> {
        match things.lock() {
            Ok(things) => things,
            Err(LockError::OwnerDied(died)) => {
                let mut things = died.make_consistent();
                things.as_mut().repair();
                things
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn reset(&self) {
        let things = self.things();
        let mut things = self.lock(things);
        things.as_mut().set(Things::new(&self.region));
        drop(things);
        self.region.sweep().unwrap();
        self.region.check_heap().unwrap();
        assert_eq!(
            self.region.heap_stats().allocated_bytes,
            self.empty,
            "something was leaked"
        );
    }
}
