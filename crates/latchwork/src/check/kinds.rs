//! What the checker calls the protocols of this crate.

use crate::hook::{Kind, Traits};
use crate::mutex::throughput::Counting;
use crate::mutex::{
    Inherit, InheritPlain, Protect, Protocol, RawLock, Sliced, Throughput, WaitWake,
};
use crate::sharing::Sharing;
use crate::spin::Spin;
use crate::sys::futex::Sharing as Flag;

/// A protocol that can be [checked](super::Checked).
pub trait Checkable: Protocol {
    /// What reports call it.
    const KIND: Kind = Kind::Mutex;
    /// What the checker has to know of it.
    const TRAITS: Traits;
}

const fn traits_of<S: Sharing>(traits: Traits) -> Traits {
    match S::FLAG {
        Flag::Private => traits,
        Flag::Shared => traits.union(Traits::SHARED),
    }
}

impl<S: Sharing> Checkable for WaitWake<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::empty());
}

impl<S: Sharing, C: Counting> Checkable for Throughput<S, C> {
    const TRAITS: Traits = traits_of::<S>(Traits::empty());
}

impl<S: Sharing> Checkable for Inherit<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::LENDS);
}

impl<S: Sharing> Checkable for InheritPlain<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::LENDS);
}

impl<S: Sharing> Checkable for Protect<S> {
    const TRAITS: Traits = traits_of::<S>(Traits::LENDS);
}

impl Checkable for Spin {
    const KIND: Kind = Kind::Spin;
    const TRAITS: Traits = Traits::SHARED;
}

impl<P: Checkable + RawLock> Checkable for Sliced<P> {
    const KIND: Kind = P::KIND;
    const TRAITS: Traits = P::TRAITS;
}
