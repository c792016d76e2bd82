//! Robust locks that are checked: `Robust<Checked<P>>`.
//!
//! The robust lock keeps libc's 40 bytes, so it carries no tag: what its memory was before, the checker knows only
//! by its address. A call that would close a circle of waits fails with
//! [`LockError::Deadlock`](crate::mutex::LockError::Deadlock), as a robust lock's own check for recursion does.

use super::checked::{Checked, Reports};
use super::kinds::Checkable;
use crate::hook::Site;
use crate::mutex::{Patience, RawError, Slow};
use crate::sys::robust_list::{Head, Node};
use crate::task::Me;

impl<P: Slow + Checkable> Slow for Checked<P, Reports> {
    const MARK: usize = P::MARK;
    const HIDES_STATE: bool = P::HIDES_STATE;
    const CHECKED: bool = true;

    fn take(node: &Node, me: Me, patience: Patience) -> Result<(), RawError<P::Fault>> {
        P::take(node, me, patience)
    }

    fn free(node: &Node, head: &Head, before: usize) {
        P::free(node, head, before);
    }

    fn pass_on(node: &Node) {
        P::pass_on(node);
    }

    fn enter(node: &Node, patience: Patience) -> Result<(), RawError<P::Fault>> {
        P::enter(node, patience)
    }

    fn ceiling(node: &Node) -> u8 {
        P::ceiling(node)
    }

    fn leave(ceiling: u8) {
        P::leave(ceiling);
    }

    fn tell_wants(lock: usize, timed: bool, site: Site) -> bool {
        told::wants::<P>(lock, timed, site)
    }

    fn tell_taken(lock: usize, tried: bool, site: Site) {
        told::taken::<P>(lock, tried, site);
    }

    fn tell_gave_up(lock: usize) {
        told::gave_up::<P>(lock);
    }

    fn tell_releasing(lock: usize) {
        told::releasing::<P>(lock);
    }
}

/// What robust locks tell.
pub(crate) mod told {
    use crate::check::tell;
    use crate::hook::{How, Kind, Lock, Mode, Site, Traits, Verdict};
    use crate::mutex::Protocol;

    /// Whether it must not wait.
    pub(crate) fn wants<P: Protocol + ?Sized>(lock: usize, timed: bool, site: Site) -> bool {
        tell::wants(at::<P>(lock), Mode::Exclusive, timed, site) == Verdict::Deadlock
    }

    pub(crate) fn taken<P: Protocol + ?Sized>(lock: usize, tried: bool, site: Site) {
        let how = if tried { How::Tried } else { How::Locked };
        tell::taken(at::<P>(lock), Mode::Exclusive, how, site);
    }

    pub(crate) fn gave_up<P: Protocol + ?Sized>(lock: usize) {
        tell::gave_up(at::<P>(lock));
    }

    pub(crate) fn releasing<P: Protocol + ?Sized>(lock: usize) {
        // A guard that does not hold it aborts, whatever is said here.
        let _ = tell::releasing(at::<P>(lock), Site::UNKNOWN);
    }

    fn at<P: Protocol + ?Sized>(address: usize) -> Lock {
        let traits = P::TRAITS.union(Traits::ROBUST).union(Traits::SHARED);
        Lock::new(address, Kind::Mutex).with(traits)
    }
}
