//! A named object together with its region, for structs that hold both.
#![allow(unsafe_code)]

use super::{ObjectError, Region, Shareable};
use core::fmt;
use core::pin::Pin;
use core::ptr::NonNull;

/// A named object together with a handle on its region, which stays mapped for as long.
///
/// The result of [`Region::object`] borrows from the region, so that no struct can hold both. An `Object` can be
/// stored beside the region, sent to other threads, and cloned.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{HashMap, Object, Region, RegionOptions, String};
///
/// type Users = Mutex<HashMap<String, u64>, Robust>;
///
/// struct Session {
///     users: Object<Users>,
///     hits: Object<Mutex<u64, Robust>>,
///     region: Region,
/// }
///
/// impl Session {
///     fn new() -> Result<Self, Box<dyn std::error::Error>> {
///         let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
///         Ok(Self {
///             users: Object::new(&region, "users", || Mutex::robust(HashMap::new_in(&region)))?,
///             hits: Object::new(&region, "hits", || Mutex::robust(0))?,
///             region,
///         })
///     }
///
///     fn log_in(&self, name: &str) -> Result<u64, Box<dyn std::error::Error>> {
///         let mut users = self.users.get().lock()?;
///         *users.edit().get_or_insert_str_with(name, || 0)? += 1;
///         let mut hits = self.hits.get().lock()?;
///         *hits += 1;
///         Ok(*hits)
///     }
/// }
///
/// let session = Session::new()?;
/// assert_eq!(session.log_in("Ada")?, 1);
/// # assert!(session.region.heap_stats().allocated_bytes > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If a region lives as long as the process, `Box::leak(Box::new(region))` is simpler: everything that borrows from
/// it, queues included, is then `'static`. If there are many regions, open their queues where they are used
/// (`latchwork::queue::Queue::open`).
///
/// *Owner death, fork:* as for a reference to the object.
pub struct Object<T> {
    object: NonNull<T>,
    region: Region,
}

// SAFETY: it contains a handle, and gives shared references to the object, which is Send and Sync since it is
// Shareable.
unsafe impl<T: Shareable> Send for Object<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Shareable> Sync for Object<T> {}

impl<T: Shareable> Object<T> {
    /// The object of this name, made by `make` if there is none yet: see [`Region::object`].
    ///
    /// # Errors
    /// As for [`Region::object`].
    pub fn new(region: &Region, name: &str, make: impl FnOnce() -> T) -> Result<Self, ObjectError> {
        Ok(Self::of(region, region.object(name, make)?))
    }

    /// The object of this name: see [`Region::find`].
    ///
    /// # Errors
    /// As for [`Region::find`].
    pub fn find(region: &Region, name: &str) -> Result<Self, ObjectError> {
        Ok(Self::of(region, region.find(name)?))
    }

    fn of(region: &Region, object: Pin<&T>) -> Self {
        Self {
            object: NonNull::from(object.get_ref()),
            region: region.clone(),
        }
    }

    /// The object, pinned: it never moves.
    #[must_use]
    pub fn get(&self) -> Pin<&T> {
        // SAFETY: a named object of this type, in a region that the handle keeps mapped. It is neither moved nor
        // freed, except by `Region::remove`, which is unsafe.
        unsafe { Pin::new_unchecked(self.object.as_ref()) }
    }

    /// The object's region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self {
            object: self.object,
            region: self.region.clone(),
        }
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for Object<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Object").field(&self.get()).finish()
    }
}
