//! One line on standard error: of a fault that the program goes on with, or of misuse that ends it.

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
/// For misuse that would otherwise corrupt memory or hang silently. As [`warn`], and it does not unwind (it may run
/// below C frames).
#[cold]
pub fn fatal(message: fmt::Arguments<'_>) -> ! {
    warn(message);
    #[cfg(all(target_env = "musl", not(loom)))]
    super::signals::abort_by_kernel_ids();
    std::process::abort()
}

/// Prints `latchwork: <message>` on standard error, of at most 255 bytes.
///
/// It does not allocate (it may run under any lock), changes no `errno`, and prints in one write, so that the lines of
/// several processes do not mix. A failure to write is ignored.
#[cold]
pub fn warn(message: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 256],
        length: 0,
    };
    let _ = write!(line, "latchwork: {message}");
    let length = line.length.min(line.bytes.len() - 1);
    line.bytes[length] = b'\n';
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..=length]);
}
