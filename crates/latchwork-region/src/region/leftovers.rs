//! Named regions that no process uses any more: what `latchwork gc` removes.
//!
//! A region's file stays when its last process is killed. This module distinguishes unused regions from regions in use.
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
//! **The proof** is an exclusive file lock (`flock`) on an open file description of our own. Every process that has a
//! region holds a shared lock on its description, from before the name appears (creator), or from before it reads the
//! file (attach), until its last descriptor of that description is closed, however the process ends. File locks do
//! not depend on PID namespaces or layouts, so the proof also holds for regions that this build, or this container,
//! cannot otherwise judge.
//!
//! **Why a region in use is never removed.** We remove the name only while we hold the exclusive lock *and* have
//! checked, under it, that the name still refers to the file that we locked.
//! 1. An attach that got its lock before us makes ours fail. (It has a shared lock, or an exclusive one while it
//!    validates the file, which it then converts to a shared one.)
//! 2. An attach that opened the file before we removed the name, and asks for its lock after us, waits until we close
//!    the file. Only then it reads the link count, finds 0, and reports that there is no such region. It uses nothing
//!    of the file before.
//! 3. The name cannot come to refer to another file between our check and our removal. As long as it refers to ours,
//!    a creation under it fails, and every other remover of regions' names (another `gc`, the last detach) needs the
//!    lock that we hold. Only a program that removes or renames files without the lock could do so, and such a
//!    program can remove a region in use by itself.
//!
//! A kill at any instruction leaves the name present or removed; the kernel releases the lock.

use super::create::path_of;
use super::{AttachError, inspect};
use crate::sys::inspect::Place;
use crate::sys::memory::{self, FileLock};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The result for a file with a region's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the file's memory, which its removal frees.
    pub memory_bytes: u64,
    /// The finding and the action.
    pub outcome: Outcome,
    /// Why only the file lock could show whether it is in use.
    pub caution: Option<Caution>,
}

/// The finding and the action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// No process had it, and it was removed.
    Removed,
    /// No process has it; without `dry_run` it would have been removed.
    Removable,
    /// A process has it.
    InUse,
    /// It is not a region, despite its name, and was left alone.
    Foreign,
    /// There is no region of the name that was asked for.
    Missing,
    /// It could not be read, or not be removed.
    Failed {
        /// The call that failed.
        call: &'static str,
        /// The error that the kernel returned.
        error: Errno,
    },
}

/// Why only the file lock could show whether a region is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caution {
    /// Another build made it.
    OtherBuild {
        /// The fingerprint of its layout.
        fingerprint: u64,
    },
    /// Its tasks belong to another PID namespace.
    OtherPidNamespace {
        /// That namespace.
        namespace: u64,
    },
    /// It is truncated or damaged: no process could attach it.
    Damaged,
}

/// Removes the named regions that no process has, or only reports them if `dry_run`.
///
/// `only` selects regions by name; if it is empty, all are examined. Files that are in use and files that are not
/// regions are left alone, and reported too. The function waits for no other process; an attach that comes while its
/// file is being examined waits for that moment.
///
/// # Errors
/// If `/dev/shm` cannot be listed.
pub fn remove_unused(only: &[String], dry_run: bool) -> Result<Vec<Leftover>, Errno> {
    if only.is_empty() {
        let files = inspect::named_files()?;
        let examined = files.iter().filter_map(|path| examine(path, dry_run));
        return Ok(examined.collect());
    }
    let named = only.iter().map(|name| examine_name(name, dry_run));
    Ok(named.collect())
}

fn failed(call: &'static str) -> impl Fn(Errno) -> Outcome {
    move |error| Outcome::Failed { call, error }
}

/// Like [`examine`], but also reports that there is no file.
fn examine_name(name: &str, dry_run: bool) -> Leftover {
    let path = path_of(name).ok();
    let found = path.as_ref().and_then(|path| examine(path, dry_run));
    found.unwrap_or_else(|| Leftover {
        path: path.unwrap_or_else(|| PathBuf::from(name)),
        memory_bytes: 0,
        outcome: Outcome::Missing,
        caution: None,
    })
}

/// Examines one file; `None` if it vanished meanwhile.
fn examine(path: &Path, dry_run: bool) -> Option<Leftover> {
    let (memory_bytes, judged) = match Place::at(path) {
        Err(Errno::NOENT) => return None,
        Err(error) => (0, Err(failed("open")(error))),
        Ok(place) => (place.memory, judge(path, &place, dry_run)),
    };
    let (outcome, caution) = judged.unwrap_or_else(|outcome| (Some(outcome), None));
    Some(Leftover {
        path: path.to_owned(),
        memory_bytes,
        outcome: outcome?,
        caution,
    })
}

/// The outcome, if the file still has its name, and the caution; or the outcome for a file that cannot be judged by
/// its lock.
fn judge(
    path: &Path,
    place: &Place,
    dry_run: bool,
) -> Result<(Option<Outcome>, Option<Caution>), Outcome> {
    let file = place.open().map_err(|error| match error {
        Errno::NODEV => Outcome::Foreign,
        // It is opened through its descriptor, so there is no `/proc`.
        Errno::NOENT => failed("open in /proc")(Errno::NOENT),
        error => failed("open")(error),
    })?;
    let caution = caution(&file, place)?;
    let outcome = match memory::lock_unused(&file) {
        Ok(FileLock::Taken) => remove(path, place, dry_run),
        Ok(FileLock::Busy) => Some(Outcome::InUse),
        Err(error) => Some(failed("flock")(error)),
    };
    Ok((outcome, caution))
}

/// The caution for a region that can only be judged by its lock; or the outcome for a file that is no region.
fn caution(file: &rustix::fd::OwnedFd, place: &Place) -> Result<Option<Caution>, Outcome> {
    let identity = match inspect::identity(file) {
        Ok(identity) => identity,
        Err(AttachError::NotARegion) => return Err(Outcome::Foreign),
        Err(AttachError::System { call, error }) => return Err(failed(call)(error)),
        Err(_) => return Ok(Some(Caution::Damaged)),
    };
    let namespace = identity.pid_namespace;
    Ok(match identity.check(place.bytes, memory::page_bytes()) {
        Err(AttachError::OtherBuild { found, .. }) => {
            Some(Caution::OtherBuild { fingerprint: found })
        }
        Err(_) => Some(Caution::Damaged),
        Ok(_) if memory::pid_namespace() == Ok(namespace) => None,
        Ok(_) => Some(Caution::OtherPidNamespace { namespace }),
    })
}

/// Removes the name, under the exclusive lock on `locked`; see the module's documentation.
fn remove(path: &Path, locked: &Place, dry_run: bool) -> Option<Outcome> {
    if !Place::at(path).is_ok_and(|named| named.is(locked)) {
        return None;
    }
    if dry_run {
        return Some(Outcome::Removable);
    }
    Some(memory::unlink(path).map_or_else(failed("unlink"), |()| Outcome::Removed))
}
