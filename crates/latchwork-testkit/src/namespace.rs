//! PID namespaces, whose processes have the same IDs as those of the next one.
#![allow(unsafe_code)]

use crate::child::is_in_futex;
use crate::{Child, Exit, Page};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

/// A PID namespace that runs a closure of this process as its first process. Its forks are the second process, the third,
/// and so on, as in every namespace that is new. Dropping it kills all of its processes.
///
/// `/proc` stays that of the calling process, as in a namespace for which nobody has mounted another, or is one of its own.
pub struct Namespace {
    /// It makes the namespace, and lies outside.
    maker: Child,
    /// The ID of the first process, as the calling process sees it.
    init: Page<AtomicI32>,
}

impl Namespace {
    /// Whether this process may make PID namespaces, and mount `/proc` there; if not, why.
    ///
    /// # Errors
    /// What the system says.
    pub fn may_be_made() -> Result<(), String> {
        let refused = Page::<AtomicI32>::new();
        let mut child = Child::fork(|| {
            refused.store(
                unshare().and_then(|()| own_proc_works()).err().unwrap_or(0),
                SeqCst,
            )
        });
        child.wait();
        match refused.load(SeqCst) {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error).to_string()),
        }
    }

    /// Runs `body` as the first process of a new namespace.
    pub fn start(has_own_proc: bool, body: impl FnOnce()) -> Self {
        let init = Page::<AtomicI32>::new();
        let begun = Page::<AtomicBool>::new();
        let maker = Child::fork(|| {
            unshare().unwrap_or_else(|error| panic!("unshare: error {error}"));
            let mut first = Child::fork_outside(|| {
                begun.store(true, SeqCst);
                if has_own_proc {
                    mount_proc().unwrap_or_else(|error| panic!("mount: error {error}"));
                }
                body();
            });
            // (The maker ends after the first process, so the caller sees the ID before.)
            init.store(first.pid(), SeqCst);
            match first.wait() {
                Exit::Code(0) => {}
                // It was killed, or has reported its panic.
                // SAFETY: `_exit` has no preconditions.
                _ => unsafe { libc::_exit(1) },
            }
        });
        let mut namespace = Self { maker, init };
        // A maker that dies before the first process has asked for the signal of its death would leave it behind.
        while namespace.id() == 0 || !begun.load(SeqCst) {
            let ended = namespace.has_ended();
            assert!(!ended || begun.load(SeqCst), "the namespace was not made");
            std::thread::yield_now();
        }
        namespace
    }

    /// Kills the first process from outside, and with it the whole namespace; returns when all are dead.
    pub fn end(&mut self) {
        // SAFETY: the maker, which reaps it, has not ended; if it is about to, the ID is still that of the zombie, or free.
        unsafe { libc::kill(self.init.load(SeqCst), libc::SIGKILL) };
        self.maker.wait();
    }

    /// The ID of the first process outside.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.init.load(SeqCst).cast_unsigned()
    }

    /// The processes of the namespace that its first process has made, by their IDs outside.
    #[must_use]
    pub fn children(&self) -> Vec<i32> {
        let init = self.init.load(SeqCst);
        let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children"));
        let children = children.unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    /// Whether its first process sleeps in a futex system call at this moment.
    #[must_use]
    pub fn is_in_futex(&self) -> bool {
        is_in_futex(&format!("/proc/{}", self.id()))
    }

    /// Whether its first process has ended by itself.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        self.maker.try_wait().is_some()
    }

    /// Waits for the end of the first process, which must be regular.
    ///
    /// # Panics
    /// If it panicked or was killed.
    pub fn succeed(self) {
        let id = self.id();
        assert!(self.has_succeeded(), "namespace of process {id}");
    }

    /// Waits for the end of the first process; whether it was regular.
    #[must_use]
    pub fn has_succeeded(mut self) -> bool {
        self.maker.wait() == Exit::Code(0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.end();
        }
    }
}

/// The next child of the calling process is the first of a new PID namespace, with mounts of its own.
fn unshare() -> Result<(), i32> {
    let error = || {
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EPERM)
    };
    let spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    // SAFETY: the calling process has one thread, and lets no other process rely on its namespaces.
    let done =
        unsafe { libc::unshare(spaces) == 0 || libc::unshare(spaces | libc::CLONE_NEWUSER) == 0 };
    if done { Ok(()) } else { Err(error()) }
}

fn own_proc_works() -> Result<(), i32> {
    let mounted = Page::<AtomicI32>::new();
    Child::fork_outside(|| mounted.store(mount_proc().err().unwrap_or(0), SeqCst)).wait();
    match mounted.load(SeqCst) {
        0 => Ok(()),
        error => Err(error),
    }
}

fn mount_proc() -> Result<(), i32> {
    let none = core::ptr::null();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings end with NUL. The mounts are those of this namespace alone.
    let done = unsafe {
        libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
            && libc::mount(
                c"proc".as_ptr(),
                c"/proc".as_ptr(),
                c"proc".as_ptr(),
                0,
                none.cast(),
            ) == 0
    };
    if done {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EPERM))
}
