//! The header of a cell, and the values of its state. (`cells.rs` says what they mean.)

use super::rank::Key;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, compiler_fence};
use crate::region::heap::Owner;
use core::num::NonZero;

pub(super) const FREE: u64 = 0;
pub(super) const WRITING: u64 = 1;
pub(super) const READY: u64 = 2;
pub(super) const READING: u64 = 3;
pub(super) const BOARD: u64 = 4;
pub(super) const KIND: u64 = 7;
/// The message is a block of the heap.
pub(super) const BLOCK: u64 = 8;
/// The message belongs to a deleted queue.
pub(super) const LATE: u64 = 16;

pub(super) fn owned(kind: u64, owner: Owner) -> u64 {
    u64::from(owner.generation()) << 32 | u64::from(owner.slot()) << 16 | kind
}

pub(super) fn owner_in(state: u64) -> Option<Owner> {
    NonZero::new((state >> 32) as u32)
        .map(|generation| Owner::new((state >> 16) as u16, generation))
}

/// The header before a message's bytes.
#[repr(C, align(16))]
pub(super) struct Cell {
    pub(super) state: AtomicU64,
    pub(super) sequence: AtomicU64,
    pub(super) length: AtomicUsize,
    /// The address of the message's block, or 0.
    pub(super) block: AtomicUsize,
    pub(super) rank: AtomicU32,
    /// How often the message was handed to a receiver.
    pub(super) deliveries: AtomicU32,
    /// The next cell of a batch, from 1; 0: none. Used only by the batch's receiver or sender.
    pub(super) next: AtomicU32,
    /// Of a board: the number of tasks that have not read it yet.
    pub(super) readers: AtomicU32,
}

impl Cell {
    pub(super) fn key(&self) -> Key {
        (self.rank.load(Relaxed), self.sequence.load(Relaxed))
    }

    /// Whether the cell has neither a message nor a block.
    pub(super) fn is_free(&self) -> bool {
        self.kind() == FREE && self.block.load(Relaxed) == 0
    }

    pub(super) fn kind(&self) -> u64 {
        self.state.load(Relaxed) & KIND
    }

    /// Stores the state; the compiler moves no other access across the store.
    #[inline]
    pub(super) fn set(&self, state: u64) {
        compiler_fence(crate::atomic::Ordering::SeqCst);
        self.state.store(state, Relaxed);
        compiler_fence(crate::atomic::Ordering::SeqCst);
    }
}
