//! Reading files and processes of others without changing them.
//!
//! A path is first opened with `O_PATH`, which has no effect on what it names, be it a FIFO, a device or a file
//! under a lease. Only a regular file is then opened again for reading, and it is never mapped.

use super::cancellation::Undisturbed;
use super::errno;
use super::introspect::{Mapping, fields_after_name};
use core::ops::Range;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A file at a path, not open for reading.
#[derive(Debug)]
pub struct Place {
    file: OwnedFd,
    pub device: u64,
    pub inode: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The number of its bytes that have memory allocated.
    pub memory: u64,
    pub regular: bool,
}

impl Place {
    /// The file at `path`. A symbolic link is not followed.
    pub fn at(path: &Path) -> Result<Self> {
        Self::open_path(path, OFlags::NOFOLLOW)
    }

    /// The file that a descriptor of a process refers to.
    pub fn of_descriptor(process: u32, descriptor: u32) -> Result<Self> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        Self::open_path(Path::new(&path), OFlags::empty())
    }

    /// The file that a descriptor of the calling process refers to. (`/proc` may be that of another PID namespace.)
    pub fn of(file: impl AsFd) -> Result<Self> {
        Self::open_path(&own(file), OFlags::empty())
    }

    fn open_path(path: &Path, flags: OFlags) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&file)?;
        let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
        Ok(Self {
            file,
            device: status.st_dev,
            inode: status.st_ino,
            bytes: u64::try_from(status.st_size).unwrap_or(0),
            memory: blocks.saturating_mul(512),
            regular: FileType::from_raw_mode(status.st_mode) == FileType::RegularFile,
        })
    }

    /// Opens this file for reading; `NODEV` if it is not a regular one.
    pub fn open(&self) -> Result<OwnedFd> {
        if !self.regular {
            return Err(Errno::NODEV);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(CWD, own(&self.file), flags, Mode::empty())
    }

    /// Whether both are one file.
    pub fn is(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The path of a descriptor of the calling process.
fn own(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// The names in a directory.
pub fn names(directory: &Path) -> Result<Vec<OsString>> {
    let _undisturbed = Undisturbed::begin();
    let entries = std::fs::read_dir(directory).map_err(|error| errno::number(&error))?;
    Ok(entries.flatten().map(|entry| entry.file_name()).collect())
}

fn numbers(directory: &Path) -> Result<Vec<u32>> {
    Ok(names(directory)?
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// The visible processes of this PID namespace.
pub fn processes() -> Result<Vec<u32>> {
    numbers(Path::new("/proc"))
}

/// The descriptors of a process that are open for reading and writing, and the targets of their links.
pub fn descriptors(process: u32) -> Result<Vec<(u32, PathBuf)>> {
    let _undisturbed = Undisturbed::begin();
    let directory = PathBuf::from(format!("/proc/{process}/fd"));
    let open = |number: u32| {
        let link = directory.join(number.to_string());
        // The link's mode shows the descriptor's access mode.
        let mode = Mode::from_raw_mode(rustix::fs::lstat(&link).ok()?.st_mode);
        mode.contains(Mode::RUSR | Mode::WUSR).then_some(())?;
        Some((number, std::fs::read_link(link).ok()?))
    };
    Ok(numbers(&directory)?.into_iter().filter_map(open).collect())
}

/// A range of a process's memory that others may have mapped, too.
#[derive(Clone, Debug)]
pub struct Memory {
    pub addresses: Range<u64>,
    /// Device and inode, which anonymous shared memory has, too.
    pub file: (u64, u64),
    /// The offset in the file at which the range begins.
    pub offset: u64,
}

/// The shared mappings of a process.
pub fn shared_memory(process: u32) -> Result<Vec<Memory>> {
    let _undisturbed = Undisturbed::begin();
    let maps =
        std::fs::read(format!("/proc/{process}/maps")).map_err(|error| errno::number(&error))?;
    // Paths may be any bytes.
    let lines = maps.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(parse_shared).collect())
}

fn parse_shared(line: &[u8]) -> Option<Memory> {
    let mapping = Mapping::parse(line.utf8_chunks().next()?.valid())?;
    mapping.is_shared.then_some(Memory {
        addresses: mapping.start..mapping.end,
        file: (mapping.device, mapping.inode),
        offset: mapping.offset,
    })
}

/// When a thread started, in nanoseconds since boot, rounded down to the kernel's tick; `None` if there is no
/// such thread, or only its exit status is left.
pub fn thread_started(process: u32, thread: u32) -> Option<u64> {
    let (started, is_gone) = started(&format!("/proc/{process}/task/{thread}/stat"))?;
    (!is_gone).then_some(started)
}

/// As [`thread_started`], for a process; also if only its exit status is left.
pub(super) fn process_started(process: u32) -> Option<u64> {
    Some(started(&format!("/proc/{process}/stat"))?.0)
}

/// The start in such a file, and whether only an exit status is left.
fn started(path: &str) -> Option<(u64, bool)> {
    const START_TIME_AFTER_STATE: usize = 18;
    let _undisturbed = Undisturbed::begin();
    let stat = std::fs::read(path).ok()?;
    let mut fields = fields_after_name(&stat)?;
    let is_gone = matches!(fields.next()?, "Z" | "X");
    let ticks: u64 = fields.nth(START_TIME_AFTER_STATE)?.parse().ok()?;
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some((ticks.saturating_mul(tick), is_gone))
}
