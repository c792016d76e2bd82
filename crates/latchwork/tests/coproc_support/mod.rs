//! What the tests of coprocs have in common.
#![allow(dead_code, missing_docs, unsafe_code)]

use core::time::Duration;
use latchwork::coproc::{Attributes, Coprocs, Options, StartError};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Watchdog};

/// A small anonymous region.
pub fn region() -> Region {
    RegionOptions::new()
        .max_bytes(8 << 20)
        .create_anonymous()
        .unwrap()
}

/// Starts a runtime.
pub fn start(region: &Region) -> Result<Coprocs, StartError> {
    start_with(region, &Options::new())
}

/// Starts a runtime.
pub fn start_with(region: &Region, options: &Options) -> Result<Coprocs, StartError> {
    // SAFETY: what the tests own in a region, their coprocs do not use; nor do they descriptors of the creator's.
    unsafe { Coprocs::with_options(region, options) }
}

/// Of attributes.
pub trait Copying {
    /// With a snapshot start.
    fn copying(self) -> Self;
}

impl Copying for Attributes {
    fn copying(self) -> Self {
        // SAFETY: as above.
        unsafe { self.snapshot() }
    }
}

/// Private and shared blocks of a region.
pub fn blocks(region: &Region) -> (usize, usize) {
    let stats = region.heap_stats();
    (stats.private_blocks, stats.shared_blocks)
}

/// Runs a test in a process of its own, with one thread, and under a watchdog.
pub fn isolated(test: impl FnOnce()) {
    let child = Child::fork(test);
    // After the fork: a thread that starts holds a lock of std's, in which the child's threads would
    // be stuck.
    let _watchdog = Watchdog::start("an isolated test".into());
    child.succeed();
}

/// Polls until something is so; the watchdog ends what never comes.
pub fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes whose parent is this one, with their states.
pub fn children() -> Vec<(u32, char)> {
    let me = std::process::id();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        status_of(pid)
            .filter(|(parent, _)| *parent == me)
            .map(|(_, state)| (pid, state))
    })
    .collect()
}

/// A process's parent and state.
pub fn status_of(pid: u32) -> Option<(u32, char)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Whether a process exists and is more than a zombie.
pub fn runs(pid: u32) -> bool {
    status_of(pid).is_some_and(|(_, state)| state != 'Z' && state != 'X')
}

/// What a file in a process's directory of `/proc` says.
pub fn proc_file(pid: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}
