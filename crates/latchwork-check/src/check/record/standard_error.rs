//! Standard error, to which the checker writes reports, and messages that something could not be done; and the
//! descriptors that the checker keeps for reports.
//!
//! A program may close all descriptors that it finds, and get the same
//! numbers for files of its own, also between two steps of a report. A report is therefore written to a duplicate, whose
//! file is compared *after* the duplication: no other code knows the duplicate's number.
#![allow(unsafe_code)]

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::check::record::layout::{plain, zero};
use crate::sys::cancellation::Undisturbed;
use crate::sys::introspect;
use core::fmt::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// A descriptor, and the file that it refers to.
pub(crate) struct ReportFd {
    /// The descriptor plus 1; 0 for none. Released when it is set: the file is known before.
    descriptor: AtomicU32,
    /// Device and inode.
    file: [AtomicU64; 2],
}

plain!(ReportFd);

/// The file of a [`ReportFd`], for one report.
pub(crate) enum ReportFile {
    Duplicate(OwnedFd),
    /// No duplicate could be made: the process has as many descriptors as it may have.
    Kept(BorrowedFd<'static>),
}

impl AsFd for ReportFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Duplicate(file) => file.as_fd(),
            Self::Kept(file) => *file,
        }
    }
}

impl ReportFd {
    /// Keeps `descriptor` in place of `before`; `false` if another thread has replaced or forgotten `before` meanwhile.
    pub(crate) fn keep(&self, before: Option<u32>, descriptor: u32) -> bool {
        for (known, now) in self.file.iter().zip(introspect::identity(descriptor)) {
            known.store(now, Ordering::Relaxed);
        }
        self.replace(before, Some(descriptor))
    }

    /// Keeps no descriptor in place of `before`; `false` as in [`Self::keep`].
    pub(crate) fn forget(&self, before: u32) -> bool {
        self.replace(Some(before), None)
    }

    fn replace(&self, before: Option<u32>, after: Option<u32>) -> bool {
        let word = |descriptor: Option<u32>| descriptor.map_or(0, |descriptor| descriptor + 1);
        let (before, after) = (word(before), word(after));
        // Release: pairs with `descriptor`.
        self.descriptor
            .compare_exchange(before, after, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// The descriptor that is kept, whether or not it still refers to the file.
    pub(crate) fn descriptor(&self) -> Option<u32> {
        // Acquire: pairs with `replace`.
        self.descriptor.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether a descriptor refers to the file.
    fn is_at(&self, descriptor: u32) -> bool {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let known = self.file.each_ref().map(load);
        // Zeros mean that the descriptor is closed.
        known != [0; 2] && introspect::identity(descriptor) == known
    }

    /// The file, if the descriptor that is kept still refers to it.
    pub(crate) fn get(&self) -> Option<ReportFile> {
        self.descriptor().and_then(|descriptor| self.at(descriptor))
    }

    /// The file, if this descriptor refers to it.
    pub(crate) fn at(&self, descriptor: u32) -> Option<ReportFile> {
        if let Some(duplicate) = introspect::duplicate_number(descriptor) {
            return self
                .is_at(duplicate.as_raw_fd().cast_unsigned())
                .then_some(ReportFile::Duplicate(duplicate));
        }
        // SAFETY: the descriptor is open: it refers to the file. It is the checker's own, which nothing closes but a
        // program that closes all that it finds, or the program's standard error. If such a program closes it now, the
        // write fails, or reaches the file that the program opens at this moment; no memory is affected.
        self.is_at(descriptor)
            .then(|| ReportFile::Kept(unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) }))
    }
}

/// The file that standard error was when the checker began.
static ERRORS: ReportFd = zero();

/// The program's standard error.
const STANDARD_ERROR: u32 = 2;

/// Keeps a duplicate of the current standard error for reports, in case the program replaces that descriptor later.
pub(crate) fn keep() {
    if ERRORS.descriptor().is_some() {
        return;
    }
    match introspect::duplicate(std::io::stderr()) {
        Some(own) if ERRORS.keep(None, own.as_raw_fd().cast_unsigned()) => {
            let _kept = own.into_raw_fd();
        }
        Some(_) => {}
        None => _ = ERRORS.keep(None, STANDARD_ERROR),
    }
}

/// The file for text.
pub(crate) fn errors() -> Option<ReportFile> {
    keep();
    // The program may have closed the duplicate, and kept its own descriptor.
    ERRORS.get().or_else(|| ERRORS.at(STANDARD_ERROR))
}

pub(crate) fn write_errors(room: &mut [u8], text: fmt::Arguments<'_>) {
    let _undisturbed = Undisturbed::begin();
    if let Some(file) = errors() {
        introspect::write(file, render(room, text).as_bytes());
    }
}

/// Writes on standard error that something could not be done.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let mut room = [0; 256];
    write_errors(&mut room, format_args!("latchwork: {text}\n"));
}

struct Buffer<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = crate::text::whole_characters(text, self.room.len() - self.length);
        self.room[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// Formats a text, cut off at the end of the buffer.
pub(crate) fn render<'r>(room: &'r mut [u8], text: fmt::Arguments<'_>) -> &'r str {
    let mut buffer = Buffer { room, length: 0 };
    let _ = fmt::write(&mut buffer, text);
    // Only whole characters were stored.
    str::from_utf8(&buffer.room[..buffer.length]).unwrap_or_default()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{ReportFd, zero};
    use crate::sys::introspect;
    use std::fs::{File, read_to_string};
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn a_report_goes_to_the_file_whoever_has_the_number_meanwhile() {
        let folder = latchwork_testkit::Leftover::folder("report-fd");
        let [own, foreign] = ["own", "foreign"].map(|name| folder.path().join(name));
        let number = File::create(&own).unwrap().into_raw_fd();
        let descriptor = number.cast_unsigned();
        let kept = zero::<ReportFd>();
        assert!(kept.keep(None, descriptor));
        assert!(!kept.keep(None, descriptor), "another thread was faster");
        let file = kept.get().unwrap();
        let other = File::create(&foreign).unwrap();
        // SAFETY: the number is this test's own.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        introspect::write(&file, b"a report");
        assert_eq!(read_to_string(&own).unwrap(), "a report");
        assert_eq!(read_to_string(&foreign).unwrap(), "");
        assert!(kept.get().is_none());
        assert!(!kept.forget(descriptor + 1));
        assert!(kept.forget(descriptor) && kept.descriptor().is_none());
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}
