//! Short paths, and the lines of small files, without allocation.

use crate::sys::cancellation::Undisturbed;
use core::ffi::CStr;
use core::fmt::{self, Write};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Result;

/// A path of /proc, or any short one.
pub(super) struct Path {
    bytes: [u8; 256],
    pub(super) length: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays 0.
        let room = self.bytes.len() - 1 - self.length;
        if text.len() > room {
            return Err(fmt::Error);
        }
        self.bytes[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Path {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; 256],
        length: 0,
    };

    pub(super) fn new(path: fmt::Arguments<'_>) -> Result<Self> {
        let mut this = Self::EMPTY;
        fmt::write(&mut this, path).map_err(|_| rustix::io::Errno::NAMETOOLONG)?;
        Ok(this)
    }

    pub(super) fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Opens the file for reading.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        open(CStr::from_bytes_until_nul(&self.bytes).map_err(|_| rustix::io::Errno::INVAL)?)
    }
}

/// Opens a file for reading. NONBLOCK: a module's path may lead to a FIFO by now.
pub(in crate::sys) fn open(path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Calls `is_last` for the lines of a file until it returns true. Leaves out lines that are longer than 1024 bytes.
pub(super) fn each_line(path: &Path, mut is_last: impl FnMut(&str) -> bool) {
    let _undisturbed = Undisturbed::begin();
    let Ok(file) = path.open() else { return };
    let mut buffer = [0; 1024];
    let mut filled = 0;
    // Whether the buffer begins within a line that is left out.
    let mut is_within = false;
    while let Ok(more) = rustix::io::read(&file, &mut buffer[filled..]) {
        filled += more;
        let mut from = 0;
        while let Some(length) = buffer[from..filled].iter().position(|byte| *byte == b'\n') {
            let line = str::from_utf8(&buffer[from..from + length]);
            if !core::mem::take(&mut is_within) && line.is_ok_and(&mut is_last) {
                return;
            }
            from += length + 1;
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
        if more == 0 {
            return;
        }
        if filled == buffer.len() {
            (filled, is_within) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_left_out() {
        let file = std::env::temp_dir().join(format!("latchwork-lines-{}", std::process::id()));
        for bytes in [0, 1022, 1023, 1024, 1025, 5000] {
            std::fs::write(&file, format!("first\n{}\nlast\n", "x".repeat(bytes))).unwrap();
            let mut lines = Vec::new();
            let path = Path::new(format_args!("{}", file.display())).unwrap();
            each_line(&path, |line| {
                lines.push(line.len());
                line == "last"
            });
            let expected = [5, bytes, 4];
            let is_left_out = lines == [5, 4] && bytes > 1000;
            assert!(lines == expected || is_left_out, "{bytes}: {lines:?}");
        }
        std::fs::remove_file(file).unwrap();
    }
}
