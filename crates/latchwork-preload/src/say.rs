//! Lines on standard error, each in one write, without memory of the allocator's. (Both interposers include
//! this file.)
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// What standard error is when the program begins: device and file. A program may close it, and get the
/// same number for a file of its own.
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

/// Remembers what standard error is.
pub(crate) fn prepare() {
    for (known, now) in ERRORS.iter().zip(identity()) {
        // Relaxed: set before there is a second thread, as a rule, and to the same.
        known.store(now, Ordering::Relaxed);
    }
}

pub(crate) struct Text<const SIZE: usize> {
    bytes: [u8; SIZE],
    length: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; SIZE],
            length: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What does not fit is left out.
impl<const SIZE: usize> Write for Text<SIZE> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Writes to standard error, if that is still what it was.
pub(crate) fn bytes(bytes: &[u8]) {
    let known = ERRORS.each_ref().map(|word| word.load(Ordering::Relaxed));
    if identity() != known {
        return;
    }
    // SAFETY: writes what it is given. (By the bare call: libc's is a cancellation point.)
    unsafe { libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len()) };
}

/// `latchwork: <message>` on standard error.
#[allow(dead_code, reason = "one of the two interposers has such lines")]
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let mut text = Text::<512>::new();
    // It fails at nothing.
    let _ = writeln!(text, "latchwork: {message}");
    crate::errno::keeping_errno(|| bytes(text.bytes()));
}
