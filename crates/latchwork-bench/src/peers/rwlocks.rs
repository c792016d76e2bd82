//! The reader/writer locks that scenarios compare.

use super::pthread::ReadWrite;
use super::{RwLock, SharedPage};
use latchwork::rwlock::{self, ReadersFirst, RegionRwLock, RobustRwLock, WritersFirst};
use latchwork::sharing::Private;
use std::io;

/// A reader/writer lock that scenarios compare with others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    WritersFirst,
    ReadersFirst,
    Robust,
    InRegion,
    Glibc,
    GlibcWritersFirst,
    Std,
    ParkingLot,
}

pub(crate) const ALL: &[Peer] = &[
    Peer::WritersFirst,
    Peer::ReadersFirst,
    Peer::Robust,
    Peer::InRegion,
    Peer::Glibc,
    Peer::GlibcWritersFirst,
    Peer::Std,
    Peer::ParkingLot,
];

/// See [`super::locks::Visitor`].
pub(crate) trait Visitor {
    type Output;

    fn visit<L: RwLock>(self, make: impl Fn() -> L + Send + Sync + 'static) -> Self::Output;
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WritersFirst => "latchwork rwlock",
            Self::ReadersFirst => "latchwork rwlock-readers-first",
            Self::Robust => "latchwork rwlock-robust",
            Self::InRegion => "latchwork rwlock-in-region",
            Self::Glibc => "glibc rwlock",
            Self::GlibcWritersFirst => "glibc rwlock-writers-first",
            Self::Std => "std",
            Self::ParkingLot => "parking_lot",
        }
    }

    pub(crate) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
        match self {
            Self::WritersFirst => {
                visitor.visit(|| rwlock::RwLock::<_, Private, WritersFirst>::new_in(0))
            }
            Self::ReadersFirst => {
                visitor.visit(|| rwlock::RwLock::<_, Private, ReadersFirst>::new_in(0))
            }
            Self::Robust => visitor.visit(|| RobustRwLock::<_>::new(0)),
            Self::InRegion => visitor.visit(|| RegionRwLock::<_>::in_region(0)),
            Self::Glibc => visitor.visit(ReadWrite::<false>::new),
            Self::GlibcWritersFirst => visitor.visit(ReadWrite::<true>::new),
            Self::Std => visitor.visit(|| std::sync::RwLock::new(0)),
            Self::ParkingLot => visitor.visit(|| parking_lot::RwLock::new(0)),
        }
    }
}

/// Places a lock at its final address.
pub(crate) fn placed<L: RwLock>(lock: L) -> io::Result<SharedPage<L>> {
    let place = match L::region()? {
        Some(region) => SharedPage::new_in(lock, region)?,
        None => SharedPage::new(lock)?,
    };
    place.pin().settle()?;
    Ok(place)
}
