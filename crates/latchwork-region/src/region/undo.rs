//! All or nothing: a log of the old values of cells, for updates of several words.
//!
//! | word | meaning |
//! | --- | --- |
//! | `count` | number of valid records; 0: no update is in progress |
//! | `place` | the log's own address when the first record was made |
//! | record | address of a cell, and its old value |
//!
//! Invariants
//! 1. A cell that an update has changed has a valid record, made before the change.
//! 2. The cells of valid records exist: each is in the data's own bytes, or was found by a container in them that is
//!    behind no lock of its own. A log
//!    that is dropped discards its records before its data is dropped. While records are valid, the data is borrowed
//!    only shared; so no part of it can be removed, and a method that gives access for changes rolls back first. (A
//!    closure's result could be anything that it has captured, hence the check of its address.)
//! 3. Records are valid only at the address at which they were made. A container that moves a log, or takes it out,
//!    first rolls it back in its place ([`Relocatable::settle`]). A log that a program moves by itself, after it has
//!    forgotten a transaction, has no records. (They cannot move along: the cells in containers do not, and the region
//!    of a container on a stack may be unmapped.)
//!
//! *Commit points, and a kill between any two stores.*
//! - *Store:* the record is written behind the count, then `count`, then the cell. After a kill before `count`,
//!   nothing has happened; before the cell, the record restores the value that the cell still has.
//! - *Commit:* `count` to 0, one store. Before it the successor restores every cell, after it none.
//! - *Roll back:* the cells from the last record to the first (so that the oldest value remains), then `count`. After
//!   a kill in between, it is repeated.
#![allow(unsafe_code)]

mod validate;

use super::container::{self, commit, editor, forward, read};
use super::{HashMap, Inner, Relocatable, Shareable, TornSafe, Vec, fingerprint_of};
use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::atomic::{AtomicU64, AtomicUsize, compiler_fence};
use crate::sys::process_mark::ProcessMark;
use crate::task::Me;
use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

/// Data whose 64-bit cells can be changed several at a time, all or none, even if the task is killed: an undo log of
/// at most `N` changes at a time.
///
/// Put it under a robust mutex. The successor of a dead owner [rolls back](Self::roll_back) an uncommitted update;
/// every method that gives access for changes does so by itself.
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use latchwork::mutex::{LockError, Mutex, Robust};
/// use latchwork::region::{RegionOptions, Undo};
///
/// type Accounts = Undo<[AtomicU64; 2]>;
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let accounts = region.object("accounts", || {
///     Mutex::robust(Accounts::new([AtomicU64::new(100), AtomicU64::new(0)]))
/// })?;
/// let mut accounts = match accounts.lock() {
///     Err(LockError::OwnerDied(died)) => {
///         let mut accounts = died.make_consistent();
///         accounts.edit().roll_back();
///         accounts
///     }
///     other => other.unwrap(),
/// };
/// let mut update = accounts.edit().begin();
/// update.store(|accounts| &accounts[0], 70)?;
/// update.store(|accounts| &accounts[1], 30)?;
/// update.commit();
/// assert_eq!(accounts.get()[1].load(Relaxed), 30);
/// # drop(accounts);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Cost.* 16 bytes for each change that the log has room for; each logged store takes three more stores.
///
/// *Owner death.* If the owner dies before [`Transaction::commit`] has returned, the successor finds all changes or
/// none, after `roll_back`; if it dies later, all. A container of the region that moves the log first, or gives it back,
/// rolls it back before: an element of a [`Vec`], also as a part of a tuple, an array, a lock or a struct with
/// `#[derive(Shareable)]`. (An enum does not pass this on; behind a robust lock it cannot be.)
#[repr(C)]
pub struct Undo<T, const N: usize = 16> {
    count: AtomicUsize,
    place: AtomicUsize,
    records: [Record; N],
    data: T,
    pinned: PhantomPinned,
}

#[repr(C)]
struct Record {
    cell: AtomicUsize,
    before: AtomicU64,
}

// SAFETY: the data is Shareable; the records are addresses in the region and integers.
unsafe impl<T: Shareable, const N: usize> Shareable for Undo<T, N> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("latchwork::Undo", &[T::FINGERPRINT, N as u64]);
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}
// SAFETY: the data is TornSafe; records become valid by one store (see the module's documentation).
unsafe impl<T: TornSafe, const N: usize> TornSafe for Undo<T, N> {}
// SAFETY: the data is Relocatable; records are valid only at the address at which they were made.
unsafe impl<T: Relocatable, const N: usize> Relocatable for Undo<T, N> {
    const SETTLES: bool = true;
    unsafe fn settle(place: *mut Self) {
        // SAFETY: a log, of which all values of its words are valid, and its data. Records of the log may name cells
        // of logs in the data, hence the order.
        unsafe {
            (*place).roll_back();
            T::settle(&raw mut (*place).data);
        }
    }
}

/// Why a change could not be logged. The cell is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The update has more changes than the log has room for.
    #[error("the undo log has room for {capacity} changes at a time")]
    Full {
        /// The log's `N`.
        capacity: usize,
    },
    /// The cell, or its container, is not in the data, or not in the log's region: a successor could not restore it.
    #[error("the cell is not in the undo log's data, or that is in no region")]
    Outside,
    /// The container has no cell with this key.
    #[error("there is no cell of this key")]
    NoCell,
}

/// A container of cells, for [`Transaction::store_at`]: [`Vec<AtomicU64>`](super::Vec), by index, and
/// [`HashMap<K, AtomicU64>`](super::HashMap), by key.
pub trait Cells<Q: ?Sized>: sealed::Sealed<Q> {
    /// The cell of a key.
    fn cell(&self, key: &Q) -> Option<&AtomicU64>;
}

mod sealed {
    use super::{AtomicU64, Borrow, Hash, HashMap, Shareable, Vec};

    /// For each type of a key by itself: nobody else can say what the cell of a key of their own is.
    pub trait Sealed<Q: ?Sized> {}
    impl Sealed<usize> for Vec<AtomicU64> {}
    impl<K, Q> Sealed<Q> for HashMap<K, AtomicU64>
    where
        K: Shareable + Hash + Eq + Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
    }
}

impl Cells<usize> for Vec<AtomicU64> {
    fn cell(&self, index: &usize) -> Option<&AtomicU64> {
        self.get(*index)
    }
}

impl<K, Q> Cells<Q> for HashMap<K, AtomicU64>
where
    K: Shareable + Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    fn cell(&self, key: &Q) -> Option<&AtomicU64> {
        self.get(key)
    }
}

impl<T: Shareable, const N: usize> Undo<T, N> {
    /// Data with an empty log.
    #[must_use]
    pub const fn new(data: T) -> Self {
        const { assert!(N > 0, "an undo log needs room for a change") };
        let records = [const {
            Record {
                cell: AtomicUsize::new(0),
                before: AtomicU64::new(0),
            }
        }; N];
        Self {
            count: AtomicUsize::new(0),
            place: AtomicUsize::new(0),
            records,
            data,
            pinned: PhantomPinned,
        }
    }

    /// The current data. If the last owner died in an update that was not rolled back yet, some of its changes may be
    /// visible.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        &self.data
    }

    /// The data, mutable. Rolls back first. Changes made in this way are not logged.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.roll_back();
        &mut self.data
    }

    /// Begins an update. First rolls back an update that a dead owner left.
    #[inline]
    pub fn begin(&mut self) -> Transaction<'_, T, N> {
        self.roll_back();
        Transaction {
            undo: self,
            made_by: ProcessMark::own().ok(),
        }
    }
}

/// A forgotten transaction has left records. If the data is dropped in place, behind a guard, and the task is killed
/// in the middle, a successor finds the log there: it must not contain a record of a cell that no longer exists. Nor
/// may the records of a log that is assigned to this place be taken for records that were made here.
impl<T, const N: usize> Drop for Undo<T, N> {
    #[inline]
    fn drop(&mut self) {
        commit(&self.count, 0);
        if read(&self.place) != 0 {
            for record in &self.records {
                commit(&record.cell, 0);
            }
        }
        commit(&self.place, 0);
    }
}

impl<T, const N: usize> Undo<T, N> {
    /// Undoes the update that a dead owner did not commit. Returns whether there was one, which no container has rolled
    /// back meanwhile.
    #[inline]
    pub fn roll_back(&mut self) -> bool {
        read(&self.count) != 0
            && crate::atomic::unless_disabled!(UndoRollsBack, self.restore(), true)
    }

    #[cold]
    fn restore(&self) -> bool {
        // Invariant 3.
        let valid = read(&self.place) == ptr::from_ref(self).addr();
        let count = if valid { read(&self.count).min(N) } else { 0 };
        for record in self.records[..count].iter().rev() {
            if let Some(cell) = container::pointer::<AtomicU64>(read(&record.cell)) {
                // SAFETY: invariant 2: the cell exists. Relaxed, as for all cells: the lock orders them.
                unsafe { cell.as_ref().store(record.before.load(Relaxed), Relaxed) };
            }
        }
        commit(&self.count, 0);
        valid
    }

    /// Checks that a reference leads to a part of the data.
    #[inline]
    fn part_of_data<'a, C>(&self, part: &'a C) -> Result<&'a C, UndoError> {
        let data = ptr::from_ref(&self.data).addr();
        let offset = ptr::from_ref(part).addr().wrapping_sub(data);
        if offset <= size_of::<T>() && size_of::<C>() <= size_of::<T>() - offset {
            Ok(part)
        } else {
            Err(UndoError::Outside)
        }
    }

    /// Logs the value of a cell that invariant 2 allows, and stores another value in the cell.
    #[inline]
    fn change(&self, cell: &AtomicU64, value: u64) -> Result<(), UndoError> {
        let count = read(&self.count);
        let record = self
            .records
            .get(count)
            .ok_or(UndoError::Full { capacity: N })?;
        let address = container::address(NonNull::from(cell));
        if !self.is_in_same_region(address) {
            return Err(UndoError::Outside);
        }
        // Relaxed throughout: the lock that protects the log orders everything for other tasks.
        record.cell.store(address, Relaxed);
        record.before.store(cell.load(Relaxed), Relaxed);
        if count == 0 {
            self.place.store(ptr::from_ref(self).addr(), Relaxed);
        }
        commit(&self.count, count + 1);
        cell.store(value, Relaxed);
        compiler_fence(SeqCst);
        Ok(())
    }

    /// Whether the cell lies in the same region as the log.
    fn is_in_same_region(&self, cell: usize) -> bool {
        let log = ptr::from_ref(self).addr();
        let attached = Me::get().ok().and_then(|me| {
            me.attachments()
                .map(|attachment| attachment.base..attachment.end)
                .find(|region| region.contains(&log))
        });
        attached
            .or_else(|| Inner::containing(log).map(|region| region.addresses()))
            .is_some_and(|region| region.contains(&cell))
    }
}

/// An update in progress. If it is dropped without [`Self::commit`], it is rolled back. In the child of a fork it is the
/// parent's: a commit or a drop there aborts.
#[must_use = "an update that is dropped is rolled back"]
pub struct Transaction<'a, T, const N: usize> {
    undo: &'a mut Undo<T, N>,
    /// None if there was no memory for a mark.
    made_by: Option<ProcessMark>,
}

impl<T, const N: usize> Transaction<'_, T, N> {
    #[inline]
    fn assert_own(&self) {
        if self.made_by.is_some_and(|mark| !mark.is_own()) {
            crate::fatal(format_args!(
                "end of an update by a process that has not begun it (one inherited across fork is the parent's)"
            ))
        }
    }
}

impl<T, const N: usize> Transaction<'_, T, N> {
    /// The data, including the changes so far.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        &self.undo.data
    }

    /// Stores `value` in the cell that `pick` selects in the data, and logs the old value. For a cell in a container
    /// see [`Self::store_at`].
    ///
    /// # Errors
    /// [`UndoError::Full`]; [`UndoError::Outside`] if the cell is not in the bytes of the data itself. The update
    /// continues; drop it to cancel it.
    #[inline]
    pub fn store(
        &mut self,
        pick: impl for<'x> FnOnce(&'x T) -> &'x AtomicU64,
        value: u64,
    ) -> Result<(), UndoError> {
        let undo = &*self.undo;
        let cell = undo.part_of_data(pick(&undo.data))?;
        undo.change(cell, value)
    }

    /// Stores `value` in the cell of `key` in the container that `pick` selects in the data, and logs the old value.
    ///
    /// ```
    /// # use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// # use latchwork::mutex::{Mutex, Robust};
    /// # use latchwork::region::{HashMap, RegionOptions, String, Undo};
    /// type Stock = Undo<HashMap<String, AtomicU64>>;
    /// # let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
    /// # let stock = region.object("stock", || Mutex::robust(Stock::new(HashMap::new_in(&region))))?;
    /// # let mut stock = stock.lock().unwrap();
    /// stock.edit().get_pin_mut().edit().insert_str("nails", AtomicU64::new(100))?;
    /// let mut update = stock.edit().begin();
    /// update.store_at(|stock| stock, "nails", 90)?;
    /// update.commit();
    /// # drop(stock);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`UndoError::Full`], [`UndoError::NoCell`]; [`UndoError::Outside`] if the container is not in the bytes of the
    /// data itself, or belongs to another region. The update continues.
    #[inline]
    pub fn store_at<C: Cells<Q>, Q: ?Sized>(
        &mut self,
        pick: impl for<'x> FnOnce(&'x T) -> &'x C,
        key: &Q,
        value: u64,
    ) -> Result<(), UndoError>
    where
        // A container behind a lock could change while a record names its cell, if that lock's guard was leaked and its
        // owner died. No lock is TornSafe.
        T: TornSafe,
    {
        let undo = &*self.undo;
        let container = undo.part_of_data(pick(&undo.data))?;
        undo.change(container.cell(key).ok_or(UndoError::NoCell)?, value)
    }

    /// Makes all changes final, by one store.
    #[inline]
    pub fn commit(self) {
        self.assert_own();
        commit(&self.undo.count, 0);
    }

    /// Undoes all changes, as a drop does.
    pub fn roll_back(self) {}
}

impl<T, const N: usize> Drop for Transaction<'_, T, N> {
    #[inline]
    fn drop(&mut self) {
        self.assert_own();
        self.undo.roll_back();
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for Undo<T, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Undo")
            .field("pending", &read(&self.count))
            .field("data", &self.data)
            .finish()
    }
}

impl<T, const N: usize> fmt::Debug for Transaction<'_, T, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transaction")
            .field("changes", &read(&self.undo.count))
            .finish()
    }
}

/// Changes an [`Undo`] in its place: the result of [`Undo::edit`], and of `edit` of a robust lock's guard.
///
/// It has the methods that change an `Undo`, and derefs to the `Undo`.
pub struct UndoMut<'a, T, const N: usize = 16>(&'a mut Undo<T, N>);

editor!(UndoMut, Undo<T; N> => Undo<T, N>);

impl<T, const N: usize> UndoMut<'_, T, N> {
    /// Lends the editor, for [`Self::begin`], which consumes it.
    #[inline]
    pub fn as_mut(&mut self) -> UndoMut<'_, T, N> {
        UndoMut(self.0)
    }

    forward! { Undo: fn roll_back(&mut self) -> bool; }
}

impl<'a, T: Shareable, const N: usize> UndoMut<'a, T, N> {
    /// [`Undo::begin`].
    #[inline]
    pub fn begin(self) -> Transaction<'a, T, N> {
        self.0.begin()
    }

    forward! { Undo:
        /// For data that is `Unpin`.
        fn get_mut(&mut self) -> &mut T where T: Unpin;
    }

    /// The data, pinned: how to change containers in the data. Rolls back first. Changes made in this way are not
    /// logged.
    #[inline]
    pub fn get_pin_mut(&mut self) -> Pin<&mut T> {
        // SAFETY: the data moves only with the `Undo`, which is pinned; a `&mut T` is lent only if `T` is `Unpin`.
        unsafe { Pin::new_unchecked(self.0.get_mut()) }
    }
}
