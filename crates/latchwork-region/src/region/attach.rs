//! Attaching a region: the checks before any of its contents is used.
//!
//! Nothing in a file is trusted before it was checked. The identity is read with `pread`, not through a mapping, and
//! the copy is kept. The sizes in the tables are checked against their bounds when they are mapped. If this process
//! is the only one that has the file, its contents can change no more, and they are validated closely: no task may be
//! alive; no lock may be held; the state left by dead tasks must be one that this library can have left; and after
//! the sweep, no block may belong to a task, and the heap must be sound.
//!
//! A file that other processes have cannot be validated like that, since it changes all the time. Nor would it help:
//! a process that may write it can do so after the validation. The file must therefore belong to this process's
//! effective user (see [`RegionOptions::trust_any_owner`](super::RegionOptions::trust_any_owner)): the kernel then
//! guarantees that only that user, root, and users admitted by its mode have written it.
//!
//! Processes attach a file one after the other. Otherwise one that finds the file lock taken could not tell whether a
//! process uses the region, or only validates it, and refuses it then.
//!
//! A checked attach goes on to the objects (`validate.rs`), and is refused if another process has the file.
#![allow(unsafe_code)]

use super::error::system;
use super::header::{FLAG_ANY_PID_NAMESPACE, Identity, Layout};
use super::registry::{self, RegistryLock};
use super::sweep::Swept;
use super::task_table::{Life, Slot};
use super::validate::{self, Expected};
use super::{AttachError, CreateError, Inner, Region};
use crate::atomic::Ordering;
use crate::sys::memory::{self, Attaching, FileLock, FileStatus, Mapping};
use crate::sys::thread;
use crate::time::Deadline;
use core::time::Duration;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::PathBuf;

/// How long an attach waits for others to end; then it fails.
const ATTACHING: Duration = Duration::from_secs(10);
/// How often it checks that.
const ATTACHING_CHECK: Duration = Duration::from_millis(1);

/// Attaches the region in a file that was opened for this purpose only.
pub(super) fn attach(
    file: OwnedFd,
    path: Option<PathBuf>,
    trusts_any_owner: bool,
    expected: Option<&Expected>,
) -> Result<Region, AttachError> {
    // Before any lock: anybody may keep a file of their own locked for as long as they like. (What is checked does not change.)
    check_owner(&file, trusts_any_owner)?;
    let _attaching = wait_for_others(&file)?;
    // From here on `gc` leaves the file alone. A process that gets the exclusive lock is the only
    // one that has the region, and can validate it closely.
    let try_exclusive = || memory::lock_unused(&file).map_err(system("flock"));
    let mut is_exclusive = try_exclusive()? == FileLock::Taken;
    if !is_exclusive {
        // Another process may have had the exclusive lock, for a moment: `gc`, or a last user that left. Nobody else is
        // attaching the file, and so nobody validates it. A process that has the lock now uses the region, or is such a one
        // again.
        memory::lock_in_use(&file).map_err(system("flock"))?;
        is_exclusive = try_exclusive()? == FileLock::Taken;
    }
    if !is_exclusive {
        if expected.is_some() {
            return Err(AttachError::InUse);
        }
        // The failed attempt has released it. Whoever gets the lock before this process does not validate the file either.
        memory::lock_in_use(&file).map_err(system("flock"))?;
    }
    let candidate = Candidate {
        file,
        path,
        is_exclusive,
    };
    let (identity, layout, status) = candidate.identity()?;
    RegistryLock::prepare().map_err(system("mmap"))?;
    // Threads that become tasks ask for it later, perhaps without a `/proc`.
    crate::sys::namespaces::own();
    // The registry's lock comes after the file lock: the holder of a file lock may wait for the registry's, never the
    // other way round.
    let registry_lock = RegistryLock::lock();
    match candidate.existing_mapping(&identity, &status)? {
        // Containers have kept it mapped, while others may have had it.
        Some(_) if expected.is_some() => Err(AttachError::InUse),
        Some(region) => Ok(region),
        None => candidate.map(identity, layout, expected, &registry_lock),
    }
}

/// Checks that the file can be a region, and is one of a user that the caller trusts.
fn check_owner(file: &OwnedFd, trusts_any_owner: bool) -> Result<(), AttachError> {
    let status = memory::file_status(file).map_err(system("fstat"))?;
    if !status.regular {
        return Err(AttachError::NotARegion);
    }
    if !trusts_any_owner && !memory::is_own_user(status.user) {
        return Err(AttachError::Permission);
    }
    Ok(())
}

/// Waits until no other process is attaching the file: one that validates it may refuse it, and those that have waited for
/// its end have to validate it, too. For some time only, since a process that can read the file could be in the way for
/// ever. After that it is an error: without this lock, an attach could take the shared file lock of another that waits for
/// a use of the region, and use a file that was refused.
fn wait_for_others(file: &OwnedFd) -> Result<Attaching, AttachError> {
    let until = Deadline::after(ATTACHING);
    loop {
        if let Some(begun) = Attaching::begin(file).map_err(system("fcntl"))? {
            return Ok(begun);
        }
        if until.has_passed() {
            return Err(AttachError::Validating);
        }
        thread::sleep_until(Deadline::after(ATTACHING_CHECK).min(until));
    }
}

/// A file that may be a region.
struct Candidate {
    file: OwnedFd,
    path: Option<PathBuf>,
    /// No other process has it.
    is_exclusive: bool,
}

impl Candidate {
    fn status(&self) -> Result<FileStatus, AttachError> {
        let status = memory::file_status(&self.file).map_err(system("fstat"))?;
        // The file was unlinked after we opened it and before we locked it.
        if self.path.is_some() && status.links == 0 {
            return Err(AttachError::NotFound);
        }
        Ok(status)
    }

    fn identity(&self) -> Result<(Identity, Layout, FileStatus), AttachError> {
        let status = self.status()?;
        let mut bytes = [0; size_of::<Identity>()];
        if memory::read_at(&self.file, &mut bytes, 0).map_err(system("pread"))? < bytes.len() {
            return Err(AttachError::NotARegion);
        }
        let identity = Identity::parse(bytes);
        let layout = identity.check(status.bytes, memory::page_bytes())?;
        let own_namespace =
            memory::pid_namespace().map_err(|_| AttachError::UnknownPidNamespace)?;
        let spans = identity.flags & FLAG_ANY_PID_NAMESPACE != 0;
        if identity.pid_namespace != own_namespace && !spans {
            return Err(AttachError::OtherPidNamespace {
                region: identity.pid_namespace,
                here: own_namespace,
            });
        }
        Ok((identity, layout, status))
    }

    /// Another handle on the existing mapping, if this process has the region.
    fn existing_mapping(
        &self,
        identity: &Identity,
        status: &FileStatus,
    ) -> Result<Option<Region>, AttachError> {
        let Some(inner) = Inner::containing(identity.base as usize) else {
            return Ok(None);
        };
        let mapped = memory::file_status(&*inner.file).map_err(system("fstat"))?;
        if !mapped.is_same_file(status) {
            return Ok(None);
        }
        // Its lock may have been released, if containers kept the mapping after its last use.
        memory::lock_in_use(&self.file).map_err(system("flock"))?;
        memory::lock_in_use(&*inner.file).map_err(system("flock"))?;
        self.status()?;
        Ok(Some(Region::new(inner)))
    }

    fn map(
        self,
        identity: Identity,
        layout: Layout,
        expected: Option<&Expected>,
        registry_lock: &RegistryLock,
    ) -> Result<Region, AttachError> {
        let base = identity.base as usize;
        registry::complete_removals(&(base..base + layout.total), registry_lock);
        registry::unmap_retained(registry_lock);
        let mapping =
            Mapping::shared_at(&self.file, base, layout.total).map_err(|error| match error {
                Errno::EXIST => AttachError::AddressTaken { base },
                error => system("mmap")(error),
            })?;
        // A sparse file has the size but not the memory; touching it must not end in SIGBUS.
        memory::allocate(&self.file, 0, layout.heap as u64).map_err(system("fallocate"))?;
        let named = self.path.is_some();
        let inner = Inner::new(self.file, mapping, identity, layout, self.path);
        let spans = inner.heap.committed();
        let (committed, _) = layout.range(spans, 0);
        // The size is read after `committed`: another task may have grown the file meanwhile.
        let status = memory::file_status(&*inner.file).map_err(system("fstat"))?;
        if spans > layout.heap_layout.max_spans || committed > status.bytes {
            return Err(AttachError::Truncated {
                bytes: status.bytes,
                needed: committed,
            });
        }
        if status.sparse {
            inner.fill_used().map_err(system("fallocate"))?;
        }
        // Relaxed: it only grows, to at most the number of slots.
        if inner.header().slots_used.load(Ordering::Relaxed) as usize > inner.max_tasks() {
            return Err(AttachError::Damaged("more tasks were in it than can be"));
        }
        if self.is_exclusive {
            inner.validate()?;
            if let Some(expected) = expected {
                validate::check(&inner, expected)?;
            }
            memory::lock_in_use(&*inner.file).map_err(system("flock"))?;
            // The kernel releases one lock before it takes the other: in between the name may have been removed.
            let status = memory::file_status(&*inner.file).map_err(system("fstat"))?;
            if named && status.links == 0 {
                return Err(AttachError::NotFound);
            }
        }
        inner
            .register(registry_lock)
            .ok_or(AttachError::TooManyRegions)
    }
}

impl Inner {
    /// Closely validates a region that no other process has.
    fn validate(&self) -> Result<(), AttachError> {
        let damaged = |what| Err(AttachError::Damaged(what));
        let header = self.header();
        self.slots().iter().for_each(Slot::end_if_stranded);
        self.end_vanished();
        if self.slots().iter().any(Slot::is_alive) {
            return damaged("a task is alive although no process uses the region");
        }
        // No task lives. An attacker could have named one that is still to come as the owner of a lock.
        header.sweep_lock.end_ownership();
        header.grow_lock.end_ownership();
        header.names_lock.end_ownership();
        let used = usize::from(self.slots_used());
        for (index, slot) in self.slots().iter().enumerate() {
            // The slot's thread no longer exists.
            slot.tail.word.store(0, Ordering::Relaxed);
            slot.wait.standing.lock.end_ownership();
            slot.wait.lending.lock.end_ownership();
            slot.wait.clear_wait();
            slot.inbox.reset();
            if slot.life() == Life::Free || index >= used {
                // No sweep reaches it.
                slot.heap.forget();
            }
            if !self.heap.is_plausible(&slot.heap) {
                return damaged("a task's heap record leads out of the region");
            }
        }
        // Nobody else uses the region: the lock need not be held. (If its owner died with it, the next one takes it over.)
        self.settle_deaths(&mut Swept::default());
        for slot in self.slots() {
            slot.heap.forget();
            slot.make_free();
        }
        self.heap.forget_intents();
        if self.heap.check().is_err() || self.heap.check_settled().is_err() {
            return damaged("the heap is corrupt");
        }
        let lost = |entry: &super::names::Entry| {
            entry.is_in_use() && self.block(entry.object(), entry.bytes()).is_none()
        };
        if self.entries().iter().any(lost) {
            return damaged("a name leads to no object");
        }
        // Objects recompute their derived state at the next death. The number is not simply the next one: an attacker
        // could have written that it was settled already.
        let deaths = crate::sys::clock::since_boot() as u32 | 1;
        header.deaths.fetch_add(deaths, Ordering::Release);
        Ok(())
    }
}

impl From<CreateError> for AttachError {
    fn from(error: CreateError) -> Self {
        let (call, error) = match error {
            CreateError::Name(error) => return Self::Name(error),
            CreateError::TooManyRegions => return Self::TooManyRegions,
            CreateError::UnknownPidNamespace => return Self::UnknownPidNamespace,
            CreateError::AddressTaken(base) => return Self::AddressTaken { base },
            CreateError::OutOfMemory(error) => ("fallocate", error),
            CreateError::System { call, error } => (call, error),
            CreateError::NoAddress(_) => ("mmap", Errno::NOMEM),
            CreateError::Exists => ("linkat", Errno::EXIST),
            CreateError::Capacity { .. } => ("capacity check", Errno::INVAL),
        };
        Self::System { call, error }
    }
}
