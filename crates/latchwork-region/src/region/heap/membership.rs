//! Where the cache of its owner has a small span: the values of [`Desc::membership`](super::layout::Desc::membership).

/// In no list: full, or just adopted.
pub(super) const NONE: u32 = 0;
/// The span from which its class allocates.
pub(super) const CURRENT: u32 = 1;
/// In its class's list of spans with free blocks.
pub(super) const LISTED: u32 = 2;
