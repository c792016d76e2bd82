//! Named regions that no process has any more: what `latchwork gc` removes.
//!
//! A region's file stays when its last process is killed. This tells living ones from what is left.
//!
//! ```
//! use latchwork::region::RegionOptions;
//! use latchwork::region::leftovers::{Outcome, remove_unused};
//!
//! let name = format!("example-leftover-{}", std::process::id());
//! let options = RegionOptions::new().max_bytes(4 << 20).unlink_at_last_detach(true);
//! let region = options.create_named(&name)?;
//! // A dry run: what would be removed?
//! let found = remove_unused(&[name], true)?;
//! assert_eq!(found[0].outcome, Outcome::InUse);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! **The proof** is an exclusive file lock (`flock`) on an opening of our own. Every process that
//! has a region holds a shared one on its opening, from before the name appears (creator), or from
//! before it looks at the file (attach), until its last descriptor of that opening is closed, by
//! whatever death. Locks know neither PID namespaces nor layouts, so the proof holds for regions
//! that this build, or this container, cannot otherwise judge.
//!
//! **Why a living region is never removed.** We remove the name only while we hold the exclusive
//! lock *and* have seen, under it, that the name still stands for the file that we locked.
//! 1. An attach that got its lock before us (shared, or exclusive while it looks at the file, which
//!    it then turns into a shared one in one step of the kernel's) makes ours fail.
//! 2. An attach that opened the file before we removed the name, and asks for its lock after us,
//!    waits until we close the file; only then it looks at the link count, finds 0, and reports
//!    that there is no such region. Nothing of the file is used before.
//! 3. The name cannot come to stand for another file between our look and our removal: as long as
//!    it stands for ours, a creation under it fails, and whoever else removes names of regions
//!    (another `gc`, the last detach) needs the lock that we have. Only a hand that removes or
//!    renames files without the lock could, and that hand can remove a living region by itself.
//!
//! A kill at any instruction leaves the name there or gone; the lock goes with us.

use super::create::{DIRECTORY, PREFIX, path_of};
use super::{AttachError, inspect};
use crate::sys::inspect::{self as sys, Place};
use crate::sys::memory::{self, FileLock};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What became of a file that is named like a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The file.
    pub path: PathBuf,
    /// Bytes of memory behind it, which its removal frees.
    pub memory_bytes: u64,
    /// What was found and done.
    pub outcome: Outcome,
    /// Why only the file lock could tell whether it is in use.
    pub caution: Option<Caution>,
}

/// What was found and done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody had it, and it is gone.
    Removed,
    /// Nobody has it; it would have been removed.
    Removable,
    /// Some process has it.
    InUse,
    /// It is not a region, whatever its name says, and was left alone.
    Foreign,
    /// It could not be looked at, or not be removed.
    Failed {
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        error: Errno,
    },
}

/// Why only the file lock could tell whether a region is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caution {
    /// Another build made it.
    OtherBuild {
        /// Its layout.
        fingerprint: u64,
    },
    /// Its tasks are of another PID namespace.
    OtherPidNamespace {
        /// That namespace.
        namespace: u64,
    },
    /// It is cut short or damaged: nobody could attach it.
    Damaged,
}

/// Removes the named regions that no process has, or only says which those are.
///
/// `only` names the regions to look at; if it is empty, all are. Files that are in use and files that
/// are not regions are left alone, and reported too. Waits for nobody; an attach that comes while its
/// file is being looked at waits for that moment.
///
/// # Errors
/// If `/dev/shm` cannot be listed.
pub fn remove_unused(only: &[String], dry_run: bool) -> Result<Vec<Leftover>, Errno> {
    if only.is_empty() {
        let mut names = sys::names(Path::new(DIRECTORY))?;
        names.sort();
        let named = names
            .iter()
            .filter(|name| name.to_string_lossy().starts_with(PREFIX));
        return Ok(named
            .filter_map(|name| look(&Path::new(DIRECTORY).join(name), dry_run))
            .collect());
    }
    Ok(only.iter().map(|name| look_for(name, dry_run)).collect())
}

/// As [`look`], where it is a failure if there is nothing.
fn look_for(name: &str, dry_run: bool) -> Leftover {
    let failed = |path, error| Leftover {
        path,
        memory_bytes: 0,
        outcome: Outcome::Failed {
            call: "open",
            error,
        },
        caution: None,
    };
    match path_of(name) {
        Ok(path) => look(&path, dry_run).unwrap_or_else(|| failed(path, Errno::NOENT)),
        Err(_) => failed(PathBuf::from(name), Errno::INVAL),
    }
}

/// `None` if it vanished meanwhile.
fn look(path: &Path, dry_run: bool) -> Option<Leftover> {
    let leftover = |memory_bytes, outcome, caution| {
        Some(Leftover {
            path: path.to_owned(),
            memory_bytes,
            outcome,
            caution,
        })
    };
    let place = match Place::at(path) {
        Err(Errno::NOENT) => return None,
        Err(error) => {
            return leftover(
                0,
                Outcome::Failed {
                    call: "open",
                    error,
                },
                None,
            );
        }
        Ok(place) => place,
    };
    let file = match place.open() {
        Err(Errno::NODEV) => return leftover(place.memory, Outcome::Foreign, None),
        Err(error) => {
            return leftover(
                place.memory,
                Outcome::Failed {
                    call: "open",
                    error,
                },
                None,
            );
        }
        Ok(file) => file,
    };
    let caution = match caution(&file, &place) {
        Ok(caution) => caution,
        Err(outcome) => return leftover(place.memory, outcome, None),
    };
    let outcome = match memory::lock_unused(&file) {
        Ok(FileLock::Taken) => remove(path, &place, dry_run)?,
        Ok(FileLock::Busy) => Outcome::InUse,
        Err(error) => Outcome::Failed {
            call: "flock",
            error,
        },
    };
    leftover(place.memory, outcome, caution)
}

/// What there is to say about a region that we can only judge by its lock; or why it is none.
fn caution(file: &rustix::fd::OwnedFd, place: &Place) -> Result<Option<Caution>, Outcome> {
    let identity = match inspect::identity(file) {
        Ok(identity) => identity,
        Err(AttachError::NotARegion) => return Err(Outcome::Foreign),
        Err(AttachError::System { call, error }) => return Err(Outcome::Failed { call, error }),
        Err(_) => return Ok(Some(Caution::Damaged)),
    };
    Ok(match identity.check(place.bytes, memory::page_bytes()) {
        Err(AttachError::OtherBuild { found, .. }) => {
            Some(Caution::OtherBuild { fingerprint: found })
        }
        Err(_) => Some(Caution::Damaged),
        Ok(_) => {
            let namespace = identity.pid_namespace;
            (memory::pid_namespace() != Ok(namespace))
                .then_some(Caution::OtherPidNamespace { namespace })
        }
    })
}

/// Under the exclusive lock on `locked`; see the module comment.
fn remove(path: &Path, locked: &Place, dry_run: bool) -> Option<Outcome> {
    if !Place::at(path).is_ok_and(|named| named.is(locked)) {
        return None;
    }
    if dry_run {
        return Some(Outcome::Removable);
    }
    Some(match memory::unlink(path) {
        Ok(()) => Outcome::Removed,
        Err(error) => Outcome::Failed {
            call: "unlink",
            error,
        },
    })
}
