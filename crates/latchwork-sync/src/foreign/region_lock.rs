//! Region locks for a C interface.
#![allow(unsafe_code)]

use super::{Awake, Blocking, ErrorNumber, ForeignLock, robust_status};
use crate::mutex::{Acquired, InRegion, RawError, RegionProtocol};
use crate::task::NotATask;
use libc::{EAGAIN, EINVAL, EMFILE, EPERM, EXDEV, c_int};

impl ErrorNumber for NotATask {
    fn error_number(self) -> c_int {
        match self {
            Self::NoRegion => EINVAL,
            Self::TaskTableFull { .. } | Self::Validating => EAGAIN,
            Self::TooManyAttachments => EMFILE,
            Self::ThreadEnding => EPERM,
            Self::OtherPidNamespace { .. } | Self::UnknownPidNamespace => EXDEV,
            Self::Task(error) => error.error_number(),
        }
    }
}

impl<P: RegionProtocol> ForeignLock for InRegion<P> {
    fn lock(&self, blocking: Blocking) -> c_int {
        let taken = self.acquire_plain(blocking.wait_mode());
        let died = taken
            .map(|taken| taken == Acquired::OwnerDied)
            .map_err(RawError::from);
        robust_status(died, ForeignLock::address(self), blocking)
    }

    unsafe fn unlock(&self) -> c_int {
        if self.release_plain() { 0 } else { EPERM }
    }

    fn lock_again(&self, _: &Awake<'_>) -> c_int {
        self.lock(Blocking::Forever)
    }

    fn is_locked(&self) -> bool {
        InRegion::is_locked(self)
    }

    fn is_owned_by_me(&self) -> bool {
        self.held_by_me().is_some()
    }

    fn consistent(&self) -> c_int {
        if self.repair_plain() { 0 } else { EINVAL }
    }

    fn unlock_inconsistent(&self) -> c_int {
        if self.release_plain_inconsistent() {
            0
        } else {
            EPERM
        }
    }
}
