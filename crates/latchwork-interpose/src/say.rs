//! Lines on standard error, each in one write, without allocating.
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// The identity of standard error when the program begins: device and file. A program may close it, and get the same
/// number for a file of its own.
static ERRORS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn identity() -> [u64; 2] {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes the status, or leaves the zeros.
    let status = unsafe {
        libc::fstat(2, status.as_mut_ptr());
        status.assume_init()
    };
    [status.st_dev, status.st_ino]
}

/// Records the identity of standard error.
pub fn prepare() {
    for (known, now) in ERRORS.iter().zip(identity()) {
        // Relaxed: usually set before there is a second thread, and every thread would store the same.
        known.store(now, Ordering::Relaxed);
    }
}

/// A text that is assembled before it is written.
#[derive(Debug)]
pub struct Text<const SIZE: usize> {
    bytes: [u8; SIZE],
    length: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    /// An empty text.
    #[expect(
        clippy::new_without_default,
        reason = "a text of nothing is not a default"
    )]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; SIZE],
            length: 0,
        }
    }

    /// The bytes so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Text that does not fit is dropped.
impl<const SIZE: usize> Write for Text<SIZE> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Writes to standard error, if that is still the same file.
pub fn bytes(bytes: &[u8]) {
    let known = ERRORS.each_ref().map(|word| word.load(Ordering::Relaxed));
    if identity() != known {
        return;
    }
    // A pipe without a reader, or a file-size limit, must not kill the program by a signal: SIGPIPE and SIGXFSZ are
    // blocked meanwhile. (The calls are made directly, since libc's are cancellation points.)
    // SAFETY: all signal sets are made here, and the kernel only reads the bytes given.
    unsafe {
        let (mut writes, mut news, mut pending, mut before) = core::mem::zeroed();
        libc::sigemptyset(&raw mut writes);
        libc::sigemptyset(&raw mut news);
        libc::sigpending(&raw mut pending);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::sigaddset(&raw mut writes, signal);
            if libc::sigismember(&raw const pending, signal) == 0 {
                libc::sigaddset(&raw mut news, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const writes, &raw mut before);
        let written = libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len());
        if written < 0 {
            let now: libc::timespec = core::mem::zeroed();
            let none = core::ptr::null_mut::<libc::siginfo_t>();
            // The size of the kernel's signal sets.
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const news,
                none,
                &raw const now,
                8,
            );
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
}

/// `latchwork: <message>` on standard error.
pub fn line(message: fmt::Arguments<'_>) {
    let mut text = Text::<512>::new();
    // Writing to a `Text` cannot fail.
    let _ = writeln!(text, "latchwork: {message}");
    crate::errno::keeping_errno(|| bytes(text.bytes()));
}
