//! The memory of another process, through `/proc/PID/mem`.
//!
//! The descriptor refers to the address space that the process had when it was opened: if the process ends, or becomes
//! another program, reads return nothing. The process is not stopped, and nothing is written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A readable address space.
#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    /// Fails if the caller may not trace the process.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// `N` bytes from an address, if all of them are there.
    pub(crate) fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        // Higher addresses are the kernel's, and would be negative offsets.
        address.checked_add(N as u64).filter(|end| *end < 1 << 63)?;
        self.0.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Option<u32> {
        self.read(address).map(u32::from_ne_bytes)
    }

    /// Fills as much of the buffer as is mapped.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        address
            .checked_add(buffer.len() as u64)
            .filter(|end| *end < 1 << 63)?;
        self.0.read_exact_at(buffer, address).ok()
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
