//! A counter behind a descriptor, which poll and epoll report as readable while it is not 0.

use super::descriptors::above_standard;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Creates a counter at 0. Neither of the operations below blocks.
pub fn create() -> Result<OwnedFd, Errno> {
    above_standard(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes it readable.
pub fn signal(counter: impl AsFd) {
    // The write fails only if the counter is full, and then it is readable.
    let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
}

/// Makes it unreadable; returns whether it was readable.
pub fn clear(counter: impl AsFd) -> bool {
    rustix::io::read(counter, &mut [0; 8]).is_ok()
}
