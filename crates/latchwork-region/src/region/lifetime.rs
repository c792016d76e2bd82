//! How long a region stays mapped in this process, and named: until its last use ends.
//!
//! A *use* is a handle, or a thread of this process that is a task of the region. The last use to end removes the
//! region's name, if that was asked for. The mapping may stay longer: containers outside the region keep it
//! (`container/borrowed.rs`), and so do robust lists that lead into it (`registry.rs`).
#![allow(unsafe_code)]

use super::registry::{self, RegistryLock};
use super::{Inner, Region, header};
use crate::atomic::Ordering;
use crate::sys::cancellation::Undisturbed;
use crate::sys::confine::may_open;
use crate::sys::memory::{self, FileLock};
use crate::sys::thread;
use crate::task::NotATask;
use crate::time::Deadline;
use core::mem::ManuallyDrop;
use core::time::Duration;
use rustix::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// How long a thread waits for another process that validates the file, before its use fails: whoever may read the file could
/// hold its lock for ever.
const VALIDATING: Duration = Duration::from_secs(10);
/// How often it checks that.
const VALIDATING_CHECK: Duration = Duration::from_millis(1);

impl Inner {
    /// The region of this process that contains an address.
    pub(crate) fn containing(address: usize) -> Option<Arc<Self>> {
        registry::find(address)
    }

    /// Makes the region findable, and returns a handle on it; `None` if there are too many regions.
    pub(super) fn register(self: Arc<Self>, lock: &RegistryLock) -> Option<Region> {
        registry::register(&self, lock).then(|| Region::new(self))
    }

    pub(super) fn use_begins(&self) {
        // Relaxed: the caller has a use already, or the only reference.
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread is about to become a task. A container outside the region may have brought it here after the last use had
    /// ended, and had given up the file lock. Another process may be validating the file then. It would refuse the file if
    /// this thread claimed a slot, or would reset the slot of a living task; so the lock comes first, and without it there is
    /// no use. Once a use exists, this process has the lock: the first thread that comes to an unused region begins its use
    /// as it gets the lock, and others wait for it, too.
    ///
    /// The file lock is only tried under the registry's: an attach in this process that has the file lock waits for the
    /// registry's.
    pub(super) fn use_by_task_begins(&self) -> Result<(), NotATask> {
        let one_more = |uses: usize| (uses > 0).then(|| uses + 1);
        // Relaxed, here and below: the registry's lock orders this with the end of the last use.
        let joins_others = || {
            self.uses
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
        };
        let until = Deadline::after(VALIDATING);
        let begins_first = || {
            let _lock = RegistryLock::lock();
            // An error says of no other process that it has the lock: a filter of system calls may refuse the question.
            let begins = memory::try_lock_in_use(&*self.file) != Ok(FileLock::Busy);
            if begins {
                self.uses.fetch_add(1, Ordering::Relaxed);
            }
            begins
        };
        while !joins_others() && !begins_first() {
            if until.has_passed() {
                return Err(NotATask::Validating);
            }
            thread::sleep_until(Deadline::after(VALIDATING_CHECK).min(until));
        }
        Ok(())
    }

    pub(super) fn use_ends(&self) {
        // AcqRel: the last user sees what the others did.
        if self.uses.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let unlink = self.identity.flags & header::FLAG_UNLINK_AT_LAST_DETACH != 0;
        // Living tasks do not matter: the process gives up its file lock before it looks for another process's. If several
        // detach at once, the last to look finds none.
        if unlink && let Some(path) = &self.path {
            let _lock = RegistryLock::lock();
            // Acquire: another thread may have attached the region again.
            if self.uses.load(Ordering::Acquire) == 0 {
                let _ = unlink_if_unused(self, path);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _undisturbed = Undisturbed::begin();
        crate::hook::freed(|| self.addresses());
        // SAFETY: the mapping is not used again. No handle and no attachment is left, references borrow from handles,
        // and everything else that could refer to the region keeps it mapped for ever.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        registry::unregister(self, mapping);
        // SAFETY: this is its last use.
        drop(unsafe { ManuallyDrop::take(&mut self.file) });
    }
}

/// Removes the name of a region that this process uses no longer, unless another process has the region mapped.
fn unlink_if_unused(inner: &Inner, path: &Path) -> rustix::io::Result<()> {
    if !may_open() {
        return Ok(());
    }
    let _undisturbed = Undisturbed::begin();
    // A fresh open file description: our own lock would not conflict with that of forks, which share the description.
    let fresh = memory::open_file(path, true)?;
    let ours = memory::file_status(&*inner.file)?;
    let is_ours =
        |file: &OwnedFd| memory::file_status(file).is_ok_and(|status| status.is_same_file(&ours));
    if !is_ours(&fresh) {
        return Ok(());
    }
    // This process drops its references to the old description, the mapping and the descriptor. The kernel releases
    // the old lock when no process has the old description any more; a fork that has the region mapped still has it.
    // (An explicit unlock would release it for all of them.)
    let alone = inner.mapping.renew(&fresh).is_ok()
        && memory::replace(&inner.file, &fresh).is_ok()
        && memory::lock_unused(&fresh) == Ok(FileLock::Taken);
    // Under the exclusive lock the name is compared once more: `gc` could have removed it meanwhile, and another
    // process made a new region under it.
    if alone && memory::open_file(path, false).is_ok_and(|named| is_ours(&named)) {
        let _ = memory::unlink(path);
    }
    // Unlock explicitly: the file may stay open for long, if containers keep the mapping, and no attach must wait for
    // this lock.
    memory::release(&fresh)
}
