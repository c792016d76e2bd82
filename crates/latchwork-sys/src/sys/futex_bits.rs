//! The bits of a futex word that the kernel knows: for inheriting futexes, and for words on a robust list.

/// The thread ID of the owner.
#[doc(hidden)]
pub const TID_MASK: u32 = 0x3fff_ffff;
/// In place of the ID of a thread that has ended, and for which no other one of its process stands. The kernel's highest ID
/// is far below it.
#[doc(hidden)]
pub const NO_THREAD: u32 = TID_MASK;
/// The owner died.
#[doc(hidden)]
pub const OWNER_DIED: u32 = 0x4000_0000;
/// A task sleeps on the word, or may.
#[doc(hidden)]
pub const WAITERS: u32 = 0x8000_0000;
