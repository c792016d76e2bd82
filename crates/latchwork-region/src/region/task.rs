//! The calling thread as a task of a region: it becomes one at its first use, and leaves when it ends.
//!
//! To attach, the thread begins a use of the region (`lifetime.rs`: with the file lock, which this process may have given
//! up), claims a free slot and occupies it (which puts the slot's life-word and tail on its robust list), initialises the
//! slot, records the attachment, and sweeps the region. If all slots are taken, it attaches in one of the reserve first,
//! sweeps, and leaves that for a slot that has become free. The slot's wait record and inbox are reused only after other
//! tasks have finished writing to them on behalf of the previous task. To leave, the thread releases its heap, forgets the
//! attachment, and vacates the slot. There are two exceptions:
//!
//! | a thread that ends with | its slot | so that |
//! | --- | --- | --- |
//! | locks of the region that guards acquired, messages in flight, reservations, ends of rings | passes to the process's keeper: the task lives as long as the process | nothing changes what the thread may have lent to others |
//! | semaphores, or locks of the C interface, which lend nothing | is left to the kernel: the end of the thread counts as the task's death | the waiters get them |
#![allow(unsafe_code)]

use super::header::FLAG_ANY_PID_NAMESPACE;
use super::heap::{Owner, TaskRef};
use super::sweep::Swept;
use super::task_table::{Life, Orphans, Slot, Thread, Unused};
use super::{AttachError, Inner, wait_record};
use crate::atomic::{Ordering, fence};
use crate::sys::cancellation::Undisturbed;
use crate::sys::futex::{self, Sharing};
use crate::task::{Attachment, AttachmentParts, Me, NotATask};
use crate::time::Deadline;
use core::num::NonZero;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::sync::Arc;

#[cfg(all(test, not(loom)))]
mod tests;

/// How long a thread waits for a slot of the reserve, and how often it looks.
const RESERVE_WAIT: Duration = Duration::from_secs(1);
const RESERVE_POLL: Duration = Duration::from_millis(1);

/// In how many slots beyond those that one sleep can watch a newcomer still wakes all sleepers.
const KILLED_HERE: usize = 16;

/// The calling thread in its slot.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Task<'r> {
    pub slot: &'r Slot,
    owner: Owner,
}

impl Task<'_> {
    /// Slot and generation, which identify this task for ever.
    #[inline]
    pub fn owner(self) -> Owner {
        self.owner
    }

    #[inline]
    pub(super) fn heap_task(&self) -> TaskRef<'_> {
        // SAFETY: the slot belongs to this task, which runs on the calling thread.
        unsafe { TaskRef::new(self.owner(), &self.slot.heap) }
    }
}

impl Inner {
    pub(super) fn owner_of(&self, index: u16) -> Owner {
        // Relaxed: the reader is the slot's own task, or has read its life-word with Acquire before.
        let generation = self.slots()[usize::from(index)]
            .generation
            .load(Ordering::Relaxed);
        Owner::new(
            index,
            NonZero::new(generation).unwrap_or(NonZero::<u32>::MIN),
        )
    }

    /// Whether the calling thread is this task. It is not in the child of a fork. It still is in a thread that is
    /// about to end, after it has forgotten its attachments.
    pub fn is_me(&self, owner: Owner) -> bool {
        let slot = &self.slots()[usize::from(owner.slot())];
        // The life-word decides (a thread that is known here has an ID other than 0).
        let is_its = |me: Me| {
            // Also in a region of one namespace: a fork may have begun another.
            let thread = self.claimant(me);
            slot.life() == Life::Alive(me.tid())
                && thread.is_ok_and(|thread| thread.namespace == slot.namespace())
        };
        Me::get().is_ok_and(is_its) && self.is_alive(owner)
    }

    /// Whether the task in a slot belongs to the PID namespace of the calling thread: then its thread ID and its process ID
    /// mean here what they mean there.
    pub(super) fn is_here(&self, slot: &Slot, me: Me) -> bool {
        // In other regions all tasks do.
        !self.spans_pid_namespaces()
            || crate::atomic::unless_disabled!(
                NumbersAskedOnlyHere,
                slot.namespace() == me.namespace(),
                true
            )
    }

    /// Whether it is for tasks of any PID namespace.
    pub fn spans_pid_namespaces(&self) -> bool {
        self.identity.flags & FLAG_ANY_PID_NAMESPACE != 0
    }

    /// The calling thread as it claims slots.
    pub(super) fn claimant(&self, me: Me) -> Result<Thread, NotATask> {
        let here = me.namespace();
        let region = self.identity.pid_namespace;
        let namespace = match here {
            0 => return Err(NotATask::UnknownPidNamespace),
            _ if self.spans_pid_namespaces() || u64::from(here) == region => here,
            _ => {
                return Err(NotATask::OtherPidNamespace {
                    region,
                    here: here.into(),
                });
            }
        };
        Ok(Thread {
            namespace,
            id: me.tid(),
        })
    }

    /// Whether a task is still alive.
    #[inline]
    pub fn is_alive(&self, owner: Owner) -> bool {
        let is_its = |slot: &Slot| {
            // The life-word is read first: its Acquire orders the read of the generation after it.
            slot.is_alive() && slot.generation.load(Ordering::Relaxed) == owner.generation()
        };
        let slot = self.slots().get(usize::from(owner.slot()));
        slot.is_some_and(is_its)
    }

    /// The calling thread as a task, attached at its first use.
    #[inline]
    pub fn task(self: &Arc<Self>) -> Result<Task<'_>, AttachError> {
        match self.first_attached_task() {
            Some(task) => Ok(task),
            None => self.task_slow(),
        }
    }

    /// [`Self::task`] for a thread whose first attachment, if it has one, is not to this region.
    #[inline(never)]
    fn task_slow(self: &Arc<Self>) -> Result<Task<'_>, AttachError> {
        let me = Me::get()?;
        match self.attached_task(me) {
            Some(task) => Ok(task),
            None => Ok(self.attach_thread(me, &mut Swept::default())?),
        }
    }

    /// The calling thread as a task, if it is one already.
    #[inline]
    pub fn attached_task(&self, me: Me) -> Option<Task<'_>> {
        let base = self.base().addr().get();
        let mut attachments = me.attachments();
        let attachment = attachments.find(|attachment| attachment.base == base)?;
        Some(self.task_of(&attachment))
    }

    /// The task of this slot and generation.
    ///
    /// # Safety
    /// The task is the calling thread.
    pub unsafe fn task_named(&self, owner: Owner) -> Task<'_> {
        let slot = &self.slots()[usize::from(owner.slot())];
        Task { slot, owner }
    }

    /// The fast path of [`Self::task`], with one comparison: `None` if the thread's first attachment is to another
    /// region.
    #[inline(always)]
    pub fn first_attached_task(&self) -> Option<Task<'_>> {
        let attachment = Me::current_or_none().first_attachment()?;
        (attachment.base == self.base().addr().get()).then(|| self.task_of(&attachment))
    }

    /// The task of an attachment to this region.
    #[inline]
    pub(super) fn task_of(&self, attachment: &Attachment) -> Task<'_> {
        // SAFETY: an attachment refers to a slot of the region that it names, and its tag is an owner.
        let (slot, owner) = unsafe {
            (
                attachment.slot.cast().as_ref(),
                Owner::from_raw(attachment.tag).unwrap_unchecked(),
            )
        };
        Task { slot, owner }
    }

    #[cold]
    pub(super) fn attach_thread(
        self: &Arc<Self>,
        me: Me,
        swept: &mut Swept,
    ) -> Result<Task<'_>, NotATask> {
        let _undisturbed = Undisturbed::begin();
        if me.is_ending() {
            return Err(NotATask::ThreadEnding);
        }
        let thread = self.claimant(me)?;
        detach_unused(me);
        if !me.can_attach() {
            return Err(NotATask::TooManyAttachments);
        }
        self.use_by_task_begins()?;
        let index = self.claim(me, thread, swept);
        let full = NotATask::TaskTableFull {
            tasks: self.max_tasks(),
        };
        let index = index.ok_or(full).inspect_err(|_| self.use_ends())?;
        Ok(self.begin(me, index, swept))
    }

    /// Claims a slot that is not of the reserve.
    fn claim(self: &Arc<Self>, me: Me, thread: Thread, swept: &mut Swept) -> Option<usize> {
        let (free, reserve) = self.slots().split_at(self.max_tasks());
        if let Some(index) = self.claim_one(free, thread) {
            return Some(index);
        }
        let index = self.claim_in_reserve(reserve, thread)?;
        let visitor = self.begin(me, self.max_tasks() + index, swept);
        // It may have found what dead tasks left only after it took a slot.
        let index = self.claim_one(free, thread);
        self.leave_reserve(me, visitor.slot);
        index
    }

    /// Claims a slot of the reserve. Others leave it soon.
    fn claim_in_reserve(&self, reserve: &[Slot], thread: Thread) -> Option<usize> {
        let until = Deadline::after(RESERVE_WAIT);
        loop {
            let dead = || {
                let mut slots = reserve.iter();
                slots.position(|slot| slot.claim_for(thread, Unused::Dead))
            };
            let found = self.claim_one(reserve, thread).or_else(dead);
            if found.is_some() || until.has_passed() {
                return found;
            }
            crate::sys::thread::sleep_until(Deadline::after(RESERVE_POLL));
        }
    }

    /// Leaves a slot of the reserve, as a task that has only swept. Whatever locks the thread holds without being a task, it
    /// keeps them.
    fn leave_reserve(&self, me: Me, slot: &Slot) {
        let base = self.base().addr().get();
        let mut attachments = me.attachments();
        let Some(attachment) = attachments.find(|attachment| attachment.base == base) else {
            return;
        };
        // SAFETY: the life-word is on the list until `vacate` below. This thread attached just now, and is in no operation
        // that relies on the attachment. The context is what `begin` made with `Arc::into_raw`; the caller has the region.
        unsafe {
            me.forget(base);
            drop(Arc::from_raw(
                attachment.context.cast::<Self>().as_ptr().cast_const(),
            ));
            slot.vacate(me);
        }
    }

    /// The number of tasks that the region is for. Further slots are a reserve.
    pub fn max_tasks(&self) -> usize {
        usize::from(self.identity.max_tasks)
    }

    /// Makes the calling thread the task in a slot that it has claimed.
    fn begin(self: &Arc<Self>, me: Me, index: usize, swept: &mut Swept) -> Task<'_> {
        let slot = &self.slots()[index];
        // A generation of 0 would mean no owner; a fresh slot gets its first generation here, before any task can have named it.
        if slot.generation.load(Ordering::Relaxed) == 0 {
            slot.generation.store(1, Ordering::Relaxed);
        }
        // Before the slot lives: a killed task has left its record, and the time of its beginning.
        slot.check.end();
        let now = crate::sys::clock::since_boot();
        slot.attached_at.store(now, Ordering::Relaxed);
        slot.occupy(me);
        slot.set_process(crate::sys::thread::process_id());
        let others = self.used_slots().iter();
        for other in others.filter(|other| !ptr::eq(*other, slot)) {
            slot.note_shared_process(other);
        }
        slot.orphans.store(Orphans::Free as u8, Ordering::Relaxed);
        slot.ended.store(0, Ordering::Relaxed);
        let owner = self.owner_of(index as u16);
        slot.events.user.begin(owner.generation());
        slot.events.system.begin(owner.generation());
        slot.set_name(&crate::sys::thread::name());
        let priority = crate::sys::scheduling::own_priority().unwrap_or(0);
        self.wait_for_writers(slot);
        // A new task has no messages and waits for none.
        slot.messages.store(0, Ordering::Relaxed);
        slot.inbox.reset();
        slot.wait.init(owner.raw(), wait_record::recorded(priority));
        let addresses = self.addresses();
        let attachment = AttachmentParts {
            base: addresses.start,
            end: addresses.end,
            slot: NonNull::from(slot).cast(),
            life: slot.life.link(),
            tail: slot.tail.link(),
            tag: owner.raw(),
            // SAFETY: `into_raw` never returns null; `detach_thread` takes the count back.
            context: unsafe {
                NonNull::new_unchecked(Arc::into_raw(Arc::clone(self)).cast_mut()).cast()
            },
            // SAFETY: a slot of a region, which the attachment keeps mapped.
            lends: |slot| unsafe { slot.cast::<Slot>().as_ref() }.messages() != 0,
            detach: detach_thread,
        };
        // SAFETY: `occupy_slot` has put the slot's life-word and tail on the list; the slot and the context are those of
        // this attachment.
        unsafe { me.attach(attachment) };
        // Release: pairs with the Acquire fence of a task that has read this identity in a lock's word, and asks whether its
        // task is gone. No lock call of this task comes before this fence; so these need no Release.
        fence(Ordering::Release);
        // A successor of a dead task then finds a settled state, with messages in their places and free slots. If this thread
        // cannot sweep, others will.
        let sweep = || match index < self.max_tasks() {
            true => self.sweep_some(owner),
            // The table is full.
            false => self.sweep_all(),
        };
        if let Ok(mut found) =
            crate::atomic::unless_disabled!(JoinerSweeps, sweep(), Ok(Swept::default()))
        {
            swept.dead.append(&mut found.dead);
        }
        Task { slot, owner }
    }

    /// Includes a slot in the slots that are checked for dead tasks, before it has a task, so that the death of a
    /// task that is killed in its first instructions is detected, too.
    fn use_slot(&self, slot: &Slot) {
        let used = (self.index_of(slot) + 1).min(self.max_tasks()) as u32;
        // Release: pairs with the Acquire in `park`. Sleepers that watch all tasks did not watch this slot so far. (In a table of
        // more slots than one sleep can watch there are none of these; a few slots more, in case tasks were killed here.)
        let before = self.header().slots_used.fetch_max(used, Ordering::Release);
        // As long as no task has lived in the slot, whoever raised the number may have been killed before it woke them.
        let is_new = before < used
            || crate::atomic::unless_disabled!(JoinerWakesAgain, slot.is_unlived(), false);
        if is_new && before as usize <= futex::WAIT_MANY_MAX + KILLED_HERE {
            let used = &raw const self.header().slots_used;
            futex::wake(used, u32::MAX, Sharing::Shared);
        }
    }

    /// Claims one of these slots; returns its index among them.
    fn claim_one(&self, slots: &[Slot], thread: Thread) -> Option<usize> {
        let claim = |which: Unused| {
            slots.iter().position(|slot| {
                (which == Unused::Abandoned || !slot.is_claimed()) && {
                    self.use_slot(slot);
                    slot.claim_for(thread, which)
                }
            })
        };
        claim(Unused::Free).or_else(|| {
            crate::atomic::unless_disabled!(
                JoinerTakesAbandonedSlot,
                claim(Unused::Abandoned),
                None
            )
        })
    }

    /// The number of slots that were ever used, without the reserve.
    #[inline]
    pub fn slots_used(&self) -> u16 {
        // Acquire: pairs with the Release of `use_slot`.
        let used = self.header().slots_used.load(Ordering::Acquire) as usize;
        used.min(self.max_tasks()) as u16
    }

    /// The slots that were ever used, without the reserve.
    pub(super) fn used_slots(&self) -> &[Slot] {
        &self.slots()[..usize::from(self.slots_used())]
    }

    /// The slots that have a living task.
    pub(super) fn living_slots(&self) -> impl Iterator<Item = &Slot> {
        self.used_slots().iter().filter(|slot| slot.is_alive())
    }

    /// The thread of the living task in a slot, by its ID in the PID namespace of the calling thread; `None` if it belongs to
    /// another one.
    pub fn thread_in(&self, slot: u16) -> Option<u32> {
        let slot = self.slots().get(usize::from(slot))?;
        match slot.life() {
            Life::Alive(tid) if self.is_here(slot, Me::get().ok()?) => Some(tid),
            _ => None,
        }
    }

    /// Whether a living task belongs to another PID namespace than the calling thread.
    pub fn has_tasks_elsewhere(&self) -> bool {
        Me::get().is_ok_and(|me| self.living_slots().any(|slot| !self.is_here(slot, me)))
    }

    fn index_of(&self, slot: &Slot) -> usize {
        (ptr::from_ref(slot).addr() - self.slots().as_ptr().addr()) / size_of::<Slot>()
    }

    /// The number of robust locks of this region that the calling thread holds.
    pub(super) fn locks_held(&self, me: Me) -> usize {
        let named = me.locks_in_region(self.base().addr().get()) as usize;
        me.locks_within(&self.addresses()) + named
    }
}

/// Ends the calling thread's attachments to regions of which this process has no handle any more. If containers still
/// use one of them, the thread becomes a task of it again.
fn detach_unused(me: Me) {
    if me.relies_on_attachment() {
        return;
    }
    let unused = |attachment: &Attachment| {
        // SAFETY: an attachment's context is its region, which it keeps mapped.
        let inner: &Inner = unsafe { attachment.context.cast().as_ref() };
        // Relaxed: if a handle is made meanwhile, the thread may or may not have left; both are fine.
        inner.handles.load(Ordering::Relaxed) == 0
            && inner.locks_held(me) == 0
            && !inner.task_of(attachment).slot.has_obligations()
    };
    while let Some(attachment) = me.attachments().find(unused) {
        // SAFETY: this thread's attachment, which the callback forgets.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
}

/// # Safety
/// `context` came from an attachment of the calling thread in `slot`, and is not used again.
unsafe fn detach_thread(context: NonNull<()>, slot: NonNull<()>) {
    // SAFETY: `attach_thread` made it with `Arc::into_raw`.
    let inner = unsafe { Arc::from_raw(context.cast::<Inner>().as_ptr()) };
    // SAFETY: a slot of this region, which `inner` keeps mapped.
    let slot: &Slot = unsafe { slot.cast().as_ref() };
    let Ok(me) = Me::get() else { return };
    inner.release_heap(inner.index_of(slot) as u16);
    let holds = inner.locks_held(me) != 0 || slot.has_obligations();
    let base = inner.base().addr().get();
    let lends = me.lends_in_region(base) || me.lends_within(&inner.addresses());
    if slot.messages() != 0 || lends {
        slot.stay();
    } else {
        // Relaxed: a sweep reads it after it has read the mark that the kernel sets at the thread's end.
        slot.ended.store(1, Ordering::Relaxed);
    }
    // SAFETY: the life-word is on the list until `vacate` below. This thread is in no operation that relies on the
    // attachment: it ends, or has left it.
    unsafe { me.forget(base) };
    // Otherwise the keeper gets the slot, or the kernel ends this life. The memory that the kernel's walk reaches is still
    // mapped then: the life-word is on a list, which the registry checks before it unmaps anything.
    if !holds {
        inner.header().lookout.leaves(inner.index_of(slot) as u16);
        // SAFETY: the calling thread occupies the slot, and has forgotten the attachment.
        unsafe { slot.vacate(me) };
    }
    inner.use_ends();
}
