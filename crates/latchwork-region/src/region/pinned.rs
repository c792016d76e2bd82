//! Pinned projection: how to use a robust lock, or to change a container, in a struct or an array.
//!
//! *Why the derived accessors are sound.* A pinned struct does not move before it is dropped, unless it is `Unpin`;
//! nor does a field of it, unless code moves the field separately. The macro writes the `Unpin` of the struct: it is
//! `Unpin` only if all its pinned fields are, and no other `impl` can be added. The macro refuses a `Drop`
//! implementation, which gets a `&mut self` and could move a field. The fields of a packed struct may be moved when
//! it is dropped: no reference to such a field can be taken, so the accessor does not compile. What remains is
//! `unsafe` code in the struct's own module: a `&mut` can be made from a pinned reference in no other way.
#![allow(unsafe_code)]

use super::Relocatable;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;

/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{PinnedFields, RegionOptions, Shareable};
///
/// #[derive(Shareable, PinnedFields)]
/// #[repr(C)]
/// struct Bank {
///     #[pin]
///     accounts: Mutex<[i64; 8], Robust>,
///     #[pin]
///     log: Mutex<u64, Robust>,
///     opened: u64,
/// }
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let bank = region.object("bank", || Bank {
///     accounts: Mutex::robust([0; 8]),
///     log: Mutex::robust(0),
///     opened: 2026,
/// })?;
/// bank.accounts().lock()?[3] += bank.opened as i64;
/// *bank.log().lock()? += 1;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The data of a robust lock can be such a struct itself. Its containers are marked, and changed in their place:
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{HashMap, List, PinnedFields, RegionOptions, Shareable, String, TornSafe};
///
/// #[derive(Shareable, TornSafe, PinnedFields)]
/// #[repr(C)]
/// struct Stock {
///     #[pin]
///     pieces: HashMap<String, u64>,
///     #[pin]
///     orders: List<u64>,
///     sold: u64,
/// }
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let stock = region.object("stock", || Mutex::robust(Stock {
///     pieces: HashMap::new_in(&region),
///     orders: List::new_in(&region),
///     sold: 0,
/// }))?;
/// let mut stock = stock.lock()?;
/// // All fields at a time:
/// let fields = stock.edit();
/// fields.pieces.edit().insert_str("nails", 100)?;
/// fields.orders.edit().push_back(30)?;
/// *fields.sold += 30;
/// // Or one:
/// *stock.as_mut().pieces_mut().edit().get_mut("nails").unwrap() -= 30;
/// assert_eq!((stock.pieces.get("nails"), stock.sold), (Some(&70), 30));
/// # drop(stock);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use latchwork_derive::PinnedFields;

/// Used by the derive macros for the fields of a struct: `Unpin` and `Relocatable` if all of them are.
///
/// It has a lifetime, so that the compiler does not evaluate such a bound on concrete types at once.
#[doc(hidden)]
pub struct PinnedParts<'pin, T: ?Sized>(PhantomData<&'pin ()>, PhantomData<T>);

// SAFETY: it exists as a type only; as a bound it stands for its parameter.
unsafe impl<T: Relocatable> Relocatable for PinnedParts<'_, T> {
    const SETTLES: bool = T::SETTLES;
    unsafe fn settle_part(place: NonNull<u8>) {
        // SAFETY: the caller guarantees it.
        unsafe { T::settle_part(place) }
    }
}

/// The elements of an array, pinned: how to use one of several robust locks.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{RegionOptions, each_pinned};
///
/// type Seats = [Mutex<u32, Robust>; 4];
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let seats = region.object::<Seats>("seats", || [const { Mutex::robust(0) }; 4])?;
/// let seats: Vec<_> = each_pinned(seats).collect();
/// *seats[2].lock().unwrap() += 1;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn each_pinned<T>(elements: Pin<&[T]>) -> impl ExactSizeIterator<Item = Pin<&T>> {
    // SAFETY: an array moves only as a whole.
    let pin = |element| unsafe { Pin::new_unchecked(element) };
    elements.get_ref().iter().map(pin)
}

/// The elements of a pinned slice or array, for changes: how to use one of several containers.
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{List, RegionOptions, each_pinned_mut};
///
/// type Lanes = [List<u32>; 4];
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let lanes = region.object::<Mutex<Lanes, Robust>>("lanes", || {
///     Mutex::robust(core::array::from_fn(|_| List::new_in(&region)))
/// })?;
/// let mut lanes = lanes.lock()?;
/// for (number, lane) in each_pinned_mut(lanes.as_mut()).enumerate() {
///     lane.edit().push_back(number as u32)?;
/// }
/// assert_eq!(lanes[3].front(), Some(&3));
/// # drop(lanes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn each_pinned_mut<T>(
    elements: Pin<&mut [T]>,
) -> impl DoubleEndedIterator<Item = Pin<&mut T>> + ExactSizeIterator {
    // SAFETY: an array moves only as a whole.
    let elements = unsafe { elements.get_unchecked_mut() };
    // SAFETY: as above.
    let pin = |element| unsafe { Pin::new_unchecked(element) };
    elements.iter_mut().map(pin)
}
