//! Ending a misused program: one line on standard error, then abort.

use core::fmt::{self, Write};

struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Prints `latchwork: <message>` on standard error and aborts.
///
/// For misuse that would otherwise corrupt memory or hang silently. Neither allocates nor unwinds (it may run under any
/// lock, and below C frames), and prints in one write, so that the lines of several processes do not mix.
#[cold]
pub fn fatal(message: fmt::Arguments<'_>) -> ! {
    let mut line = Line {
        bytes: [0; 256],
        length: 0,
    };
    let _ = write!(line, "latchwork: {message}");
    let length = line.length.min(line.bytes.len() - 1);
    line.bytes[length] = b'\n';
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..=length]);
    std::process::abort()
}
