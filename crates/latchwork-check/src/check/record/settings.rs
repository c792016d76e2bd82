//! The settings: what is checked, and where findings go. `configure.rs` makes them.
#![allow(unsafe_code)]

use super::layout::zero;
use super::rule::Rule;
use super::standard_error::{ReportFd, ReportFile, complain};
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sys::helper::{self, Helper};
use crate::sys::{board as memory, introspect};
use core::ffi::CStr;
use core::ptr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

/// Nothing is checked.
pub(crate) const OFF: u32 = 1;
/// See the head of this file, here and below.
pub(crate) const FATAL: u32 = 2;
pub(crate) const REFUSE: u32 = 4;
pub(crate) const QUIET: u32 = 8;
pub(crate) const EXIT: u32 = 16;
pub(crate) const HINTS: u32 = 32;

/// The variable has been read.
pub(crate) const READ: u32 = 1 << 31;

pub(crate) static FLAGS: AtomicU32 = AtomicU32::new(0);
/// The rules that are not reported, a bit for each.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Longer waits, and longer holds, are reported; and waits for a task of lower priority. See [`limit`].
pub(crate) static LONG_WAIT: AtomicU64 = AtomicU64::new(10_000_000_000);
pub(crate) static LONG_HOLD: AtomicU64 = AtomicU64::new(0);
pub(crate) static INVERSION: AtomicU64 = AtomicU64::new(1_000_000);
static JSON: ReportFd = zero();
/// Suppressed IDs, in an arena; those that do not fit are dropped.
static SUPPRESSED: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static SUPPRESSIONS: AtomicU32 = AtomicU32::new(0);
const MOST_SUPPRESSIONS: usize = 4096;

static JSON_PATH: Path = Path::none();
static HELPER_PATH: Path = Path::none();
static HELPER: Helper = Helper::new();
/// The file to which the lock order is appended.
pub(crate) static ORDER: Path = Path::none();

/// A path that was given, in an arena; a relative path is stored after the directory in which the program began.
pub(crate) struct Path(AtomicPtr<u8>);

impl Path {
    const BYTES: usize = 4096;

    const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Stores the path. Returns whether there was room for it.
    pub(crate) fn keep(&self, path: &str) -> bool {
        let Ok(memory) = memory::arena(Self::BYTES) else {
            return false;
        };
        // SAFETY: a fresh arena of that size, known only to this function until its address is stored.
        let room = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), Self::BYTES) };
        let directory = match path.starts_with('/') {
            true => 0,
            false => introspect::write_directory(room),
        };
        // The last byte stays zero, and ends the path.
        let end = directory + path.len();
        let Some(rest) = room[..Self::BYTES - 1].get_mut(directory..end) else {
            return false;
        };
        rest.copy_from_slice(path.as_bytes());
        // Release: pairs with the Acquire in `as_c_str`.
        self.0.store(memory.as_ptr(), Ordering::Release);
        true
    }

    /// The path with its terminating zero.
    fn as_c_str(&self) -> Option<&'static CStr> {
        let memory = self.0.load(Ordering::Acquire);
        if memory.is_null() {
            return None;
        }
        // SAFETY: the arena has that size and stays mapped; the bytes that were not written are zero.
        let room = unsafe { core::slice::from_raw_parts(memory, Self::BYTES) };
        CStr::from_bytes_until_nul(room).ok()
    }

    pub(crate) fn get(&self) -> Option<&'static str> {
        self.as_c_str()?.to_str().ok()
    }
}

/// Whether a flag is set. Relaxed, here and below: settings are made before they are used.
#[inline]
pub(crate) fn has(flag: u32) -> bool {
    FLAGS.load(Ordering::Relaxed) & flag != 0
}

/// Sets or clears a flag.
pub(crate) fn set(flag: u32, on: bool) {
    if on {
        FLAGS.fetch_or(flag, Ordering::Relaxed);
    } else {
        FLAGS.fetch_and(!flag, Ordering::Relaxed);
    }
}

/// Breaches of this rule are not reported from now on.
pub fn leave_out(rule: Rule) {
    LEFT_OUT.fetch_or(1 << rule as u32, Ordering::Relaxed);
}

pub(crate) fn is_left_out(rule: Rule) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) & 1 << rule as u32 != 0
}

/// Findings with this ID are not reported from now on.
///
/// The ID is the last number of the last line of a report. At most 4,096 are kept.
pub fn suppress(id: u64) {
    if SUPPRESSED.load(Ordering::Acquire).is_null() {
        let Ok(memory) = memory::arena(MOST_SUPPRESSIONS * 8) else {
            return;
        };
        // Release: pairs with the Acquire above. (If two threads do this at the same time, one page leaks.)
        SUPPRESSED.store(memory.as_ptr().cast(), Ordering::Release);
    }
    let place = SUPPRESSIONS.fetch_add(1, Ordering::Relaxed) as usize;
    if let Some(place) = suppressed().get(place) {
        place.store(id, Ordering::Relaxed);
    }
}

fn suppressed() -> &'static [AtomicU64] {
    let memory = SUPPRESSED.load(Ordering::Acquire);
    if memory.is_null() {
        return &[];
    }
    // SAFETY: an arena of that many words, which stays mapped.
    unsafe { core::slice::from_raw_parts(memory, MOST_SUPPRESSIONS) }
}

pub(crate) fn is_suppressed(id: u64) -> bool {
    let count = SUPPRESSIONS.load(Ordering::Relaxed) as usize;
    let mut all = suppressed().iter().take(count);
    all.any(|suppressed| suppressed.load(Ordering::Relaxed) == id)
}

/// Findings are appended to this file from now on. Returns whether it could be opened.
pub(crate) fn append_json_to(path: &str) -> bool {
    JSON_PATH.keep(path) && open_json(JSON.descriptor()).is_some()
}

/// The helper program is at this path.
pub(crate) fn choose_helper(path: &str) {
    HELPER_PATH.keep(path);
    if let Some(path) = HELPER_PATH.as_c_str() {
        HELPER.choose(path);
    }
}

/// Opens the file for JSON in place of the descriptor `before`, unless another thread has done so.
fn open_json(before: Option<u32>) -> Option<ReportFile> {
    let file = introspect::append_to(JSON_PATH.get()?)?;
    if JSON.keep(before, file.as_raw_fd().cast_unsigned()) {
        let _kept = file.into_raw_fd();
    }
    JSON.get()
}

/// The file for JSON. It is reopened if the program has closed it, even if its number names another file now.
pub(crate) fn json() -> Option<ReportFile> {
    let descriptor = JSON.descriptor()?;
    let file = JSON.at(descriptor).or_else(|| open_json(Some(descriptor)));
    if file.is_none() && JSON.forget(descriptor) {
        complain(format_args!(
            "LATCHWORK_CHECK: the file for findings was closed, and cannot be reopened: no further findings are written to it"
        ));
    }
    file.or_else(|| JSON.get())
}

/// Makes the helper program write a report to a descriptor, with names that this process cannot look up. Returns
/// whether it did.
pub(crate) fn convey(report: &[u8], json: bool, to: BorrowedFd<'_>) -> bool {
    let arguments = [c"symbolise", c"--json"];
    let arguments = &arguments[..1 + usize::from(json)];
    HELPER_PATH
        .as_c_str()
        .is_some_and(|path| helper::convey(&HELPER, path, arguments, report, to) == Ok(true))
}

/// A limit in nanoseconds; 0 for none.
#[inline]
pub(crate) fn limit(limit: &AtomicU64) -> u64 {
    limit.load(Ordering::Relaxed)
}
