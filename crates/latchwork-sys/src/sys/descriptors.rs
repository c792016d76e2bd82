//! Numbers of the descriptors that the library keeps.
#![cfg_attr(test, allow(unsafe_code))]

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;

/// Duplicates a descriptor: closed on exec, and none of 0, 1 and 2.
pub fn duplicate(descriptor: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3)
}

/// A new descriptor, by a number that is none of 0, 1 and 2. A program may run with one of these closed, and the kernel
/// gives the lowest number that is free; what the program then writes to its output would go into the library's file.
pub(super) fn above_standard(new: OwnedFd) -> Result<OwnedFd, Errno> {
    match new.as_raw_fd() {
        0..3 => duplicate(&new),
        _ => Ok(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_descriptor_is_none_of_the_standard_ones() {
        // SAFETY: a process of its own, whose descriptors nobody else uses.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let closed = (0..3).all(|number| unsafe { libc::close(number) } == 0);
            let made = || -> Result<bool, Errno> {
                let pair = super::super::sockets::pair()?;
                let made = [
                    super::super::memory::anonymous_file("latchwork-test")?,
                    super::super::event_fd::create()?,
                    pair.0,
                    pair.1,
                ];
                Ok(made.iter().all(|one| one.as_raw_fd() > 2))
            };
            let is_right = closed && made() == Ok(true);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
