//! What the workers share: a word index in a region, with a protocol that adds each piece of text exactly once,
//! whichever worker is killed.
//!
//! A piece's words are counted privately. Then, under the robust mutex: new words are inserted with a count of 0 (which
//! changes no count), and one transaction adds all counts and sets the piece's "done" bit. A worker that dies before
//! the commit has changed nothing: the next owner rolls back, and the piece's message is delivered again. If a worker
//! dies after the commit, but before it has acknowledged the message, the message is delivered again, too: the bit
//! shows that the piece is done.

use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{
    HashMap, PinnedFields, Region, Shareable, StorageError, String as RegionString, TornSafe, Undo,
    UndoError, Vec as RegionVec,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::words::MAX_WORDS;

/// Room in the log for every word of a piece, its "done" bit, and the totals.
const CHANGES: usize = MAX_WORDS + 4;

/// The index proper.
#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
pub(super) struct Index {
    #[pin]
    words: HashMap<RegionString, AtomicU64>,
    /// A bit for each piece.
    #[pin]
    done: RegionVec<AtomicU64>,
    /// Words counted, and bytes of text that they came from.
    pub(super) total: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// The index under its lock, with a log that makes changes of many words atomic.
pub(super) type Guarded = Mutex<Undo<Index, CHANGES>, Robust>;
type Held<'a> = RobustGuard<'a, Undo<Index, CHANGES>>;

/// The state in which the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Clean,
    /// Its owner had died; says whether its changes were rolled back.
    OwnerDied {
        rolled_back: bool,
    },
}

/// Why a piece could not be put into the index.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("the index cannot be locked: {0}")]
    Lock(String),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Undo(#[from] UndoError),
}

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) number: u32,
    pub(super) bytes: u64,
    pub(super) counts: &'a std::collections::HashMap<String, u64>,
}

impl Index {
    /// An empty index for `pieces` pieces.
    pub(super) fn new(region: &Region, pieces: usize) -> Result<Guarded, StorageError> {
        let mut done = RegionVec::with_capacity_in(pieces / 64 + 1, region)?;
        for _ in 0..=pieces / 64 {
            done.push(AtomicU64::new(0)).map_err(StorageError::from)?;
        }
        let index = Self {
            words: HashMap::new_in(region),
            done,
            total: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        Ok(Mutex::robust(Undo::new(index)))
    }

    fn is_done(&self, piece: u32) -> bool {
        self.done[piece as usize / 64].load(Relaxed) & 1 << (piece % 64) != 0
    }

    /// How many pieces are in the index.
    pub(super) fn pieces(&self) -> u32 {
        self.done
            .iter()
            .map(|bits| bits.load(Relaxed).count_ones())
            .sum()
    }

    /// The words with their counts.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&str, u64)> {
        self.words
            .iter()
            .map(|(word, count)| (word.as_str(), count.load(Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}

/// Acquires the lock; after owner death, rolls back what the owner had not committed.
pub(super) fn lock(index: Pin<&Guarded>) -> Result<(Held<'_>, Found), IndexError> {
    match index.lock() {
        Ok(held) => Ok((held, Found::Clean)),
        Err(LockError::OwnerDied(died)) => {
            let mut held = died.make_consistent();
            let rolled_back = held.edit().roll_back();
            Ok((held, Found::OwnerDied { rolled_back }))
        }
        Err(error) => Err(IndexError::Lock(error.to_string())),
    }
}

/// Adds a piece to the index, unless it is there. `halfway` is called in the middle of the transaction, when some words
/// are changed, if the piece has any word. Returns true if the piece was not there.
pub(super) fn add(
    held: &mut Held<'_>,
    piece: Piece<'_>,
    mut halfway: impl FnMut(),
) -> Result<bool, IndexError> {
    let mut guarded = held.edit();
    let index = guarded.get_pin_mut();
    if index.is_done(piece.number) {
        return Ok(false);
    }
    let mut words = index.words_mut().edit();
    for word in piece.counts.keys() {
        words.get_or_insert_str_with(word, || AtomicU64::new(0))?;
    }
    let mut change = guarded.begin();
    let middle = piece.counts.len().saturating_sub(1) / 2;
    let mut sum = 0;
    for (step, (word, count)) in piece.counts.iter().enumerate() {
        sum += count;
        let Some(cell) = change.get().words.get(word.as_str()) else {
            continue;
        };
        let new = cell.load(Relaxed) + count;
        change.store_at(|index| &index.words, word.as_str(), new)?;
        if step == middle {
            halfway();
        }
    }
    let place = piece.number as usize / 64;
    let bits = change.get().done[place].load(Relaxed) | 1 << (piece.number % 64);
    change.store_at(|index| &index.done, &place, bits)?;
    let (total, bytes) = (
        change.get().total.load(Relaxed) + sum,
        change.get().bytes.load(Relaxed) + piece.bytes,
    );
    change.store(|index| &index.total, total)?;
    change.store(|index| &index.bytes, bytes)?;
    change.commit();
    Ok(true)
}

/// What the workers publish for the tour.
#[derive(Shareable)]
#[repr(C)]
pub(super) struct Board {
    /// The first worker that gets this piece stops in the middle of it, in its critical section, in order to be killed,
    /// and enters itself as the victim: worker + 1.
    pub(super) trap: AtomicU32,
    pub(super) victim: AtomicU32,
    /// Pieces done, by worker.
    pub(super) pieces: [AtomicU32; MAX_WORKERS],
    /// The worker that acquired the index from a dead owner: worker + 1.
    pub(super) recovered_by: AtomicU32,
    pub(super) rolled_back: AtomicU32,
    /// Messages that were delivered a second time, and those of them whose piece was done already.
    pub(super) redelivered: AtomicU32,
    pub(super) done_already: AtomicU32,
}

/// The most workers.
pub(super) const MAX_WORKERS: usize = 64;

impl Board {
    pub(super) fn new(trap: u32) -> Self {
        Self {
            trap: AtomicU32::new(trap),
            victim: AtomicU32::new(0),
            pieces: [const { AtomicU32::new(0) }; MAX_WORKERS],
            recovered_by: AtomicU32::new(0),
            rolled_back: AtomicU32::new(0),
            redelivered: AtomicU32::new(0),
            done_already: AtomicU32::new(0),
        }
    }
}

const _: () = {
    const fn shareable<T: Shareable>() {}
    const fn torn_safe<T: TornSafe>() {}
    shareable::<Guarded>();
    torn_safe::<Undo<Index, CHANGES>>();
};
