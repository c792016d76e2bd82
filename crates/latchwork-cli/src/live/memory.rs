//! The memory of another process, through `/proc/PID/mem`.
//!
//! The descriptor refers to the address space that the process had when it was opened: if the process ends, or becomes
//! another program, reads return nothing. The process is not stopped, and nothing is written.

use core::ops::Range;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// A readable address space.
#[derive(Debug)]
pub(crate) struct Memory {
    file: Rc<File>,
    /// What is read of it.
    part: Range<u64>,
}

impl Memory {
    /// Fails if the caller may not trace the process.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let file = Rc::new(File::open(format!("/proc/{pid}/mem"))?);
        // Higher addresses are the kernel's, and would be negative offsets.
        let part = 0..1 << 63;
        Ok(Self { file, part })
    }

    /// The same, of which only this part is read, if one is given.
    pub(crate) fn within(&self, part: Option<Range<u64>>) -> Self {
        let file = Rc::clone(&self.file);
        let part = part.unwrap_or_else(|| self.part.clone());
        Self { file, part }
    }

    /// `N` bytes from an address, if all of them are there.
    pub(crate) fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(address, &mut bytes).map(|()| bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Option<u32> {
        self.read(address).map(u32::from_ne_bytes)
    }

    /// Fills the buffer, if all of it is there.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        let end = address.checked_add(buffer.len() as u64)?;
        if address < self.part.start || end > self.part.end {
            return None;
        }
        self.file.read_exact_at(buffer, address).ok()
    }
}

/// A field of bytes that were read; 0 beyond their end.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_ne_bytes(*field))
}

/// As [`u32_at`].
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u64::from_ne_bytes(*field))
}
