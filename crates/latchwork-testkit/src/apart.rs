//! Children in PID namespaces of their own.
#![allow(unsafe_code)]

use crate::Seed;
use core::cell::RefCell;
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

thread_local! {
    /// Decides, for each child of this thread, whether it is forked into a PID namespace of its own; `None`: no child is.
    /// Other threads may run tests beside.
    static COIN: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
}

/// As long as it lives, half of the children of the thread that made it are forked into PID namespaces of their own. It is
/// dropped in that thread.
#[derive(Debug)]
pub(crate) struct Apart(());

impl Apart {
    /// `seed` decides which children these are.
    ///
    /// # Errors
    /// What the system says, if this process may not make PID namespaces, or not return to its own.
    pub(crate) fn begin(seed: Seed) -> Result<Self, Error> {
        // In a thread that ends: where the return is refused, its children would begin in the new namespace.
        let tried = std::thread::spawn(|| unshared(|| 1)).join();
        tried.expect("no panic")?;
        COIN.set(Some(seed.rng(0)));
        Ok(Self(()))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        COIN.set(None);
    }
}

/// Whether the next child of this thread is to be forked into a PID namespace of its own.
pub(crate) fn is_next_apart() -> bool {
    COIN.with_borrow_mut(|coin| coin.as_mut().is_some_and(fastrand::Rng::bool))
}

/// Forks a process that is the first one, and the only one, of a PID namespace.
///
/// # Panics
/// If this process may not make PID namespaces.
pub(crate) fn fork() -> i32 {
    // SAFETY: the caller takes care of what a fork leaves out.
    let forked = unshared(|| unsafe { libc::fork() });
    forked.unwrap_or_else(|error| panic!("a PID namespace: {error}"))
}

/// Runs `fork` while children of the calling thread begin in a new PID namespace. It returns 0 in the child.
fn unshared(fork: impl FnOnce() -> i32) -> Result<i32, Error> {
    let own = File::open("/proc/thread-self/ns/pid")?;
    // SAFETY: it changes nothing but where the children of the calling thread begin, and until the call below. (The thread
    // makes no threads meanwhile, which would fail.)
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return Err(Error::last_os_error());
    }
    let child = fork();
    if child == 0 {
        // Its own children begin in its own namespace.
        return Ok(0);
    }
    // SAFETY: the descriptor is open.
    match unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) } {
        0 => Ok(child),
        _ => Err(Error::last_os_error()),
    }
}

/// The parent of a process that is about to be forked.
pub(crate) enum Parent {
    /// In the PID namespace of the child, with this ID.
    Here(i32),
    /// In another one, where the child sees no ID of it.
    Outside(OwnedFd),
}

impl Parent {
    pub(crate) fn here() -> Self {
        // SAFETY: no preconditions.
        Self::Here(unsafe { libc::getpid() })
    }

    /// # Panics
    /// If the system has no file descriptor left.
    pub(crate) fn outside() -> Self {
        // SAFETY: a system call that makes a descriptor of a process, which is this one.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        assert!(fd >= 0, "pidfd_open: {}", Error::last_os_error());
        // SAFETY: it was made just now, and belongs to nobody else.
        Self::Outside(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// Whether it has died, as the child sees it.
    pub(crate) fn is_dead(&self) -> bool {
        match self {
            // SAFETY: no preconditions.
            Self::Here(id) => unsafe { libc::getppid() != *id },
            Self::Outside(fd) => {
                let mut poll = libc::pollfd {
                    fd: fd.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one local structure.
                unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Child, Page, Trial};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// The ID of a child, as it sees itself.
    fn id_of_a_child() -> u32 {
        let id = Page::<AtomicU32>::new();
        Child::fork(|| id.store(std::process::id(), SeqCst)).succeed();
        id.load(SeqCst)
    }

    #[test]
    fn some_children_are_first_in_a_namespace_and_others_are_not() {
        let trial = Trial::begin("some_children_are_first").across_namespaces();
        if !trial.is_across_namespaces() {
            return;
        }
        // (One in 2^63 seeds gives 64 equal coins.)
        let ids: Vec<u32> = (0..64).map(|_| id_of_a_child()).collect();
        assert!(ids.contains(&1) && ids.iter().any(|id| *id != 1), "{ids:?}");
        drop(trial);
        assert!((0..64).all(|_| id_of_a_child() != 1));
    }
}
