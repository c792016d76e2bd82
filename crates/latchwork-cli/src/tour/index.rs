//! What the workers share: a word index in a region, and how a piece of text gets into it exactly
//! once, whoever is killed on the way.
//!
//! A piece's words are counted privately. Then, under the robust mutex: words that are new are put
//! in with a count of 0 (which changes nothing that anybody counts), and one transaction adds all
//! counts and sets the piece's "done" bit. A worker that dies before the commit has done nothing:
//! its successor rolls back, and its message is delivered again. One that dies after the commit,
//! but before it told the queue, has its message delivered again, too: the bit says that it is done.

use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{
    HashMap, Region, Shareable, StorageError, String as RegionString, TornSafe, Undo, UndoError,
    Vec as RegionVec,
};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::words::MAX_WORDS;

/// The log has room for every word of a piece, its "done" bits, and the totals.
const CHANGES: usize = MAX_WORDS + 4;

/// The index proper.
#[derive(Shareable, TornSafe)]
#[repr(C)]
pub(super) struct Index {
    words: HashMap<RegionString, AtomicU64>,
    /// A bit for each piece.
    done: RegionVec<AtomicU64>,
    /// Words counted, and bytes of text that they came from.
    pub(super) total: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// The index under its lock, with the means to change many words at a time or none.
pub(super) type Guarded = Mutex<Undo<Index, CHANGES>, Robust>;
type Held<'a> = RobustGuard<'a, Undo<Index, CHANGES>>;

/// What was found when the lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Clean,
    /// Its owner had died; whether changes of its were rolled back.
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

    /// Pieces that are in the index.
    pub(super) fn pieces(&self) -> u32 {
        self.done
            .iter()
            .map(|bits| bits.load(Relaxed).count_ones())
            .sum()
    }

    /// The words with their counts.
    pub(super) fn words(&self) -> impl Iterator<Item = (&str, u64)> {
        self.words
            .iter()
            .map(|(word, count)| (word.as_str(), count.load(Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}

/// Takes the lock; after a death, rolls back what its owner had not committed.
pub(super) fn lock(index: Pin<&Guarded>) -> Result<(Held<'_>, Found), IndexError> {
    match index.lock() {
        Ok(held) => Ok((held, Found::Clean)),
        Err(LockError::OwnerDied(died)) => {
            let mut held = died.make_consistent();
            let rolled_back = held.roll_back();
            Ok((held, Found::OwnerDied { rolled_back }))
        }
        Err(error) => Err(IndexError::Lock(error.to_string())),
    }
}

/// Puts a piece into the index, unless it is there. `halfway` is called in the middle of the
/// transaction, when some of it is changed, if the piece has a word at all. True if it was not there.
pub(super) fn add(
    held: &mut Held<'_>,
    piece: Piece<'_>,
    mut halfway: impl FnMut(),
) -> Result<bool, IndexError> {
    let index = held.get_mut();
    if index.is_done(piece.number) {
        return Ok(false);
    }
    for word in piece.counts.keys() {
        index
            .words
            .get_or_insert_str_with(word, || AtomicU64::new(0))?;
    }
    let mut change = held.begin();
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

/// What the workers tell the one who watches them.
#[derive(Shareable)]
#[repr(C)]
pub(super) struct Board {
    /// Whoever gets this piece first stops in the middle of it, in its critical section, to be
    /// killed, and enters itself as the victim: worker + 1.
    pub(super) trap: AtomicU32,
    pub(super) victim: AtomicU32,
    /// Pieces done, by worker.
    pub(super) pieces: [AtomicU32; MAX_WORKERS],
    /// Who took the index from a dead owner: worker + 1.
    pub(super) recovered_by: AtomicU32,
    pub(super) rolled_back: AtomicU32,
    /// Messages that came a second time, and those of them whose piece was done already.
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
