//! Children in PID namespaces of their own.
#![allow(unsafe_code)]

use crate::Seed;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Decides, for each child, whether it is forked into a PID namespace of its own; `None`: no child is.
static COIN: Mutex<Option<fastrand::Rng>> = Mutex::new(None);

/// As long as it lives, half of the children of this process are forked into PID namespaces of their own.
#[derive(Debug)]
pub(crate) struct Apart(());

impl Apart {
    /// `seed` decides which children these are.
    ///
    /// # Errors
    /// What the system says, if this process may not make PID namespaces.
    pub(crate) fn begin(seed: Seed) -> Result<Self, Error> {
        unshared(|| 0)?;
        *coin() = Some(seed.rng(0));
        Ok(Self(()))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        *coin() = None;
    }
}

fn coin() -> MutexGuard<'static, Option<fastrand::Rng>> {
    COIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the next child is forked into a PID namespace of its own.
pub(crate) fn next_is_apart() -> bool {
    coin().as_mut().is_some_and(fastrand::Rng::bool)
}

/// Forks a process that is the first one, and the only one, of a PID namespace.
///
/// # Panics
/// If this process may not make PID namespaces.
pub(crate) fn fork_apart() -> i32 {
    // SAFETY: the caller takes care of what a fork leaves out.
    let forked = unshared(|| unsafe { libc::fork() });
    forked.unwrap_or_else(|error| panic!("a PID namespace: {error}"))
}

/// Runs `fork` while children of the calling thread begin in a new PID namespace.
fn unshared(fork: impl FnOnce() -> i32) -> Result<i32, Error> {
    let own = File::open("/proc/thread-self/ns/pid")?;
    // SAFETY: it changes nothing but where the children of the calling thread begin, and until the call below. (The thread
    // makes no threads meanwhile, which would fail.)
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return Err(Error::last_os_error());
    }
    let child = fork();
    // SAFETY: the descriptor is open. In the child of the fork it may fail: its children begin in its own namespace anyway.
    let again = unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) };
    assert!(again == 0 || child == 0, "the PID namespace from before");
    Ok(child)
}
