//! The state word of a span: its kind and its owner.
//!
//! | kind    | owner               | meaning                                             |
//! | ------- | ------------------- | --------------------------------------------------- |
//! | FREE    | –                   | free (the word is 0)                                |
//! | INIT    | claimer             | becomes SMALL; its bitmaps are not valid yet        |
//! | SMALL   | task, or 0 = orphan | blocks of one class                                 |
//! | HEAD    | task, or 0          | first span of a large block; the block is live      |
//! | PART    | – (names its head)  | a further span of a large block                     |
//! | TRANSIT | claimer or freer    | first span of a run that is being built or dismantled; marked (with the shared flag): a span that is being trimmed or refilled |
//! | HOLLOW  | –                   | free, and without memory (`free_spans`)                 |
//!
//! | from → to        | made by            | by                    |
//! | ---------------- | ------------------ | --------------------- |
//! | FREE → INIT      | any task           | CAS                   |
//! | INIT → SMALL     | its owner          | store (commit)        |
//! | INIT → FREE      | the recoverer of its owner | store         |
//! | SMALL → FREE     | its owner, when no block is allocated | store |
//! | SMALL own → orphan or adopter | the recoverer of its owner | store |
//! | SMALL orphan → own | any task, the recoverer | CAS            |
//! | FREE → HEAD      | any task, runs of one span | CAS (commit)  |
//! | FREE → TRANSIT   | any task, longer runs | CAS                |
//! | FREE → PART      | owner of the TRANSIT head that it names | CAS |
//! | TRANSIT → HEAD   | its owner          | store (commit)        |
//! | HEAD → HEAD, other owner or shared flag | the recoverer; a task that links, keeps or takes the block | CAS |
//! | HEAD → TRANSIT   | the task that frees it | CAS (commit)      |
//! | PART → FREE      | owner of the TRANSIT head that it names | store |
//! | TRANSIT → FREE   | its owner, when no PART names it | store   |
//! | FREE, HOLLOW → TRANSIT marked | any task | CAS                |
//! | TRANSIT marked → HOLLOW | its owner | store                    |
//! | TRANSIT marked → FREE | its owner, once there is memory | store |
//!
//! "Its owner" includes the one recoverer of a dead owner. A PART needs no owner. While its head is not FREE, no
//! other run can have that head, so the recoverer knows from the named head which parts belong to it, even if a part
//! was already freed and taken by another run.

use super::task::Owner;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Free = 0,
    Init = 1,
    Small = 2,
    Head = 3,
    Part = 4,
    Transit = 5,
    Hollow = 6,
}

/// A packed span state: kind in bits 0..4, class (or "one span") in 4..12, the shared flag of a large block in 12,
/// owner in 16..64 as in [`Owner`]. A PART has the index of its head in 32..64 instead of an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

const DETAIL_SHIFT: u32 = 4;
const DETAIL: u64 = 0xff << DETAIL_SHIFT;
const SHARED: u64 = 1 << 12;
const OWNER: u64 = !0xffff;

impl State {
    pub(super) const FREE: Self = Self(0);
    pub(super) const HOLLOW: Self = Self(Kind::Hollow as u64);

    /// A span that is being trimmed or refilled.
    pub(super) fn hollowing(owner: Owner) -> Self {
        Self::transit(1, owner).with_shared(true)
    }

    pub(super) fn init(owner: Owner) -> Self {
        Self(Kind::Init as u64 | owner.raw())
    }

    pub(super) fn small(class: usize, owner: Option<Owner>) -> Self {
        let owner = owner.map_or(0, Owner::raw);
        Self(Kind::Small as u64 | (class as u64) << DETAIL_SHIFT | owner)
    }

    /// A private large block of `spans` spans.
    pub(super) fn head(spans: u32, owner: Owner) -> Self {
        Self(Kind::Head as u64 | u64::from(spans == 1) << DETAIL_SHIFT | owner.raw())
    }

    pub(super) fn part(head: u32) -> Self {
        Self(Kind::Part as u64 | u64::from(head) << 32)
    }

    /// The head of a run of `spans` that is not a block yet, or no longer.
    pub(super) fn transit(spans: u32, owner: Owner) -> Self {
        Self(Kind::Transit as u64 | u64::from(spans == 1) << DETAIL_SHIFT | owner.raw())
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Option<Kind> {
        Some(match self.0 & 0xf {
            0 => Kind::Free,
            1 => Kind::Init,
            2 => Kind::Small,
            3 => Kind::Head,
            4 => Kind::Part,
            5 => Kind::Transit,
            6 => Kind::Hollow,
            _ => return None,
        })
    }

    /// Whether this is a small span of `owner`.
    pub(super) fn is_small_of(self, owner: Owner) -> bool {
        self.0 & !DETAIL == owner.raw() | Kind::Small as u64
    }

    pub(super) fn is_orphan(self) -> bool {
        self.0 & !DETAIL == Kind::Small as u64
    }

    pub(super) fn is_owned_by(self, owner: Owner) -> bool {
        self.0 & OWNER == owner.raw() && self.0 & 0xf != Kind::Part as u64
    }

    /// The class of a small span.
    #[inline(always)]
    pub(super) fn class(self) -> usize {
        ((self.0 & DETAIL) >> DETAIL_SHIFT) as usize
    }

    /// Whether a HEAD or TRANSIT is a run of one span.
    pub(super) fn is_single(self) -> bool {
        self.class() == 1
    }

    pub(super) fn owner(self) -> Option<Owner> {
        Owner::from_raw(self.0 & OWNER)
    }

    pub(super) fn with_owner(self, owner: Option<Owner>) -> Self {
        Self(self.0 & !OWNER | owner.map_or(0, Owner::raw))
    }

    pub(super) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    pub(super) fn with_shared(self, shared: bool) -> Self {
        Self(self.0 & !SHARED | if shared { SHARED } else { 0 })
    }

    /// The head that a PART names.
    pub(super) fn head_of_part(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
