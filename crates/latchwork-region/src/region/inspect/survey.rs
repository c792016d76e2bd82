//! Finding the regions of the system: by name, and through the descriptors of processes.

use super::{Opening, RegionReport, identity, region_name, report};
use crate::region::create::{DIRECTORY, PREFIX};
use crate::sys::inspect::{self as sys, Place};
use rustix::io::Errno;
use std::collections::hash_map::{Entry, HashMap};
use std::path::{Path, PathBuf};

/// The regions of the system that the caller can see.
#[derive(Debug)]
#[non_exhaustive]
pub struct Survey {
    /// Named regions first, each kind sorted by name.
    pub regions: Vec<RegionReport>,
    /// The number of processes whose descriptors the caller may not read: their anonymous regions are missing.
    pub hidden_processes: usize,
}

/// The prefix of the link of a memory file's descriptor; [`PREFIX`] and the label follow.
const MEMORY_FILE: &str = "/memfd:";
/// The suffix of the link of a descriptor whose file has no name (any more).
const NAMELESS: &str = " (deleted)";

/// Finds regions: the files under `/dev/shm` with a region's name, and those that processes have open. A file that
/// several processes have open is reported once.
///
/// The survey neither waits for a task nor disturbs one. Regions that vanish meanwhile are left out.
#[must_use]
pub fn survey() -> Survey {
    let mut reports = Reports::new();
    for path in named_files().unwrap_or_default() {
        if let Ok(place) = Place::at(&path) {
            let entry = reports.entry((place.device, place.inode));
            entry.or_insert_with(|| report(&place, region_name(&path), Some(path)));
        }
    }
    let mut hidden_processes = 0;
    for process in sys::processes().unwrap_or_default() {
        match sys::descriptors(process) {
            Ok(descriptors) => add_process(&mut reports, process, &descriptors),
            Err(Errno::ACCESS | Errno::PERM) => hidden_processes += 1,
            // The process has ended.
            Err(_) => {}
        }
    }
    let mut regions: Vec<_> = reports.into_values().collect();
    regions.sort_by(|a, b| {
        (a.path.is_none(), &a.name, a.file).cmp(&(b.path.is_none(), &b.name, b.file))
    });
    Survey {
        regions,
        hidden_processes,
    }
}

/// The files with a region's name, sorted.
pub(in crate::region) fn named_files() -> Result<Vec<PathBuf>, Errno> {
    let mut names = sys::names(Path::new(DIRECTORY))?;
    names.retain(|name| name.to_string_lossy().starts_with(PREFIX));
    names.sort();
    let paths = names.iter().map(|name| Path::new(DIRECTORY).join(name));
    Ok(paths.collect())
}

/// The reports by the device and inode of the file.
type Reports = HashMap<(u64, u64), RegionReport>;

fn add_process(reports: &mut Reports, process: u32, descriptors: &[(u32, PathBuf)]) {
    for &(descriptor, ref target) in descriptors {
        let Some(name) = candidate(target) else {
            continue;
        };
        let Ok(place) = Place::of_descriptor(process, descriptor) else {
            continue;
        };
        let report = match reports.entry((place.device, place.inode)) {
            Entry::Occupied(known) => known.into_mut(),
            // A name proves nothing, and the creator of a named region has it open without a name.
            Entry::Vacant(_) if !place.open().is_ok_and(|file| identity(&file).is_ok()) => continue,
            Entry::Vacant(new) => new.insert(report(&place, name, None)),
        };
        report.openings.push(Opening {
            process,
            descriptor,
        });
    }
}

/// The name of a file that may be a region, from the link of a descriptor.
fn candidate(target: &Path) -> Option<String> {
    let target = target.to_string_lossy();
    let target = target.strip_suffix(NAMELESS).unwrap_or(&target);
    if let Some(name) = target.strip_prefix(MEMORY_FILE) {
        return name.strip_prefix(PREFIX).map(str::to_owned);
    }
    let name = target.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
    // The link of a file that was opened before it had a name keeps its number.
    (name.starts_with(PREFIX) || name.starts_with('#')).then(|| region_name(Path::new(name)))
}
