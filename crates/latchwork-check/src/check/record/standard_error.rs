//! Standard error, to which the checker writes reports, and messages that something could not be done.

use crate::check::record::report_fd::{ReportFd, ReportFile};
use crate::sys::introspect;
use core::fmt::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};

/// The file that standard error was when the checker began.
static ERRORS: ReportFd = ReportFd::new();

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
