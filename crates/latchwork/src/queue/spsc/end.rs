//! A claimed end of a ring: what the sender and the receiver have in common. Flush, creation and deletion of a ring, which
//! claim its ends.
#![allow(unsafe_code)]

use super::super::{ControlError, QueueError, Wait, error::Failure, ring::Side};
use super::handle::{ClaimError, Spsc, layout};
use crate::atomic::Ordering::{self, Relaxed};
use crate::hook::{Kind, Misuse, Site, Waiting};
use crate::region::{AttachError, ObjectError, Parked, Task};
use crate::{backoff::ExponentialBackoff, region::heap::Owner};
use core::{fmt, marker::PhantomData, mem::ManuallyDrop};

/// A claimed end.
pub(super) struct End<'r> {
    pub(super) queue: Spsc<'r>,
    side: Side,
    owner: Owner,
    /// This side's index. No other task changes that.
    pub(super) mine: u32,
    /// The other side's index, as last read.
    others: u32,
    not_send: PhantomData<*const ()>,
}

impl<'r> Spsc<'r> {
    /// Claims an end of a ring that has not been deleted.
    pub(super) fn end(&self, side: Side) -> Result<End<'r>, ClaimError> {
        // Else the claim could meet one of the next ring, which would fail.
        if !self.is_alive() {
            return Err(ClaimError::Deleted);
        }
        let end = End::claim(*self, side)?;
        // While the end is claimed, only a deletion changes the life after this.
        if end.check_life().is_err() {
            return Err(ClaimError::Deleted);
        }
        Ok(end)
    }

    /// [`Receiver::flush`](super::Receiver::flush) for a ring whose receiving end is free.
    ///
    /// # Errors
    /// [`ClaimError::Taken`]: the task that has the end can flush; [`ClaimError::Deleted`], [`ClaimError::Attach`].
    pub fn flush(&self) -> Result<u32, ClaimError> {
        Ok(self.receiver()?.flush())
    }

    /// Deletes the ring. Its messages are dropped; a task that waits at it, or uses it later through an end or a
    /// handle, gets an error that reports the deletion. A message that is held in place stays valid.
    ///
    /// The name is free at once; the memory of the messages is freed when no task has an end any more. A few hundred
    /// bytes stay for the next ring, of any name and options; old handles do not become valid by that.
    ///
    /// A kill leaves the ring as it was, or deleted; in the second case name and memory are freed when another ring is
    /// created after the death was detected.
    ///
    /// # Errors
    /// [`ControlError::Deleted`], [`ControlError::Attach`].
    #[track_caller]
    pub fn delete(&self) -> Result<(), ControlError> {
        let site = Site::caller();
        // If the caller dies before it has woken the sleepers, they notice its death: so it must be a task.
        self.inner().task()?;
        if !self.core.ring.begin_life_after(self.life) {
            self.report().misused(Misuse::AfterEnd, site);
            return Err(ControlError::Deleted);
        }
        self.report().ends(site);
        self.inner().release_name(self.core);
        self.clear_away();
        Ok(())
    }

    /// Creates a ring in a head that has none, and is [over](Self::is_over). Under the lock of the region's names.
    pub(super) fn begin(self, (capacity, max_message): (u32, u32)) -> Result<Self, QueueError> {
        let task = self.inner().task()?;
        let layout = layout(capacity, max_message).ok_or(QueueError::Capacity {
            capacity,
            max_message,
        })?;
        let core = self.core;
        let body = self.inner().alloc_block(task, layout);
        let body = body.map_err(ObjectError::from)?;
        core.capacity.store(capacity, Relaxed);
        core.max_message.store(max_message, Relaxed);
        // SAFETY: a fresh block of the layout; zero is a valid length and byte. The lock of the names protects the
        // word.
        unsafe {
            body.write_bytes(0, layout.size());
            self.inner().publish_block(task, body, &core.body);
        }
        core.ring.begin_life_after(self.life);
        Ok(Self::at(self.region, core))
    }

    /// Whether a ring may begin in the head: there is none, and no living task has an end. Drops the remaining
    /// messages, and frees the body. Under the lock of the region's names.
    pub(super) fn is_over(&self) -> bool {
        if self.core.is_alive() {
            return false;
        }
        let claim = |side| End::claim(*self, side).map(ManuallyDrop::new);
        let Ok(sender) = claim(Side::Sender) else {
            return false;
        };
        let receiver = claim(Side::Receiver);
        let is_over = receiver.is_ok();
        if let Ok(mut receiver) = receiver {
            let left = receiver.refresh();
            receiver.advance(left);
            if !self.has_sound_body() {
                self.core.body.store(0, Relaxed);
            } else if let Ok(task) = self.inner().task() {
                // SAFETY: the lock of the names protects the word; a task that used the body would have an end, and
                // both ends are claimed here.
                unsafe { self.inner().retire_block(task, &self.core.body) };
            }
            receiver.free();
        }
        sender.free();
        is_over && self.core.body.load(Relaxed) == 0
    }

    /// Frees the body of a deleted ring if no task has an end any more. If this fails now, the next creation of a ring
    /// that looks at this one frees it, and the first one after a death in any case.
    pub(super) fn clear_away(&self) {
        self.inner().with_directory_lock(|| {
            self.is_over();
        });
    }
}

impl<'r> End<'r> {
    pub(super) fn claim(queue: Spsc<'r>, side: Side) -> Result<Self, ClaimError> {
        let inner = queue.inner();
        let task = inner.task()?;
        let claim = &queue.core.claims[side as usize];
        // Acquire: pairs with the Release in `Ring::give_up`. (The writes of a dead task are ordered by its index.)
        let mut found = claim.load(Ordering::Acquire);
        loop {
            let is_taken = Owner::from_raw(found).is_some_and(|owner| {
                crate::atomic::unless_disabled!(RingTakesOverEnd, inner.is_alive(owner), true)
            });
            if is_taken {
                return Err(ClaimError::Taken);
            }
            // Until the dead task is settled, the kernel may write into its place, for another thread of its process.
            if Owner::from_raw(found).is_some_and(|owner| !inner.has_ended(owner)) {
                crate::atomic::unless_disabled!(RingAwaitsProcess, drop(inner.sweep()), ());
            }
            let mine = task.owner().raw();
            match claim.compare_exchange(found, mine, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        // The end is the task's as long as it is a task of the region.
        task.slot.message_taken();
        let ring = &queue.core.ring;
        Ok(Self {
            queue,
            side,
            owner: task.owner(),
            mine: ring.index(side),
            others: ring.index(side.other()),
            not_send: PhantomData,
        })
    }

    /// Gives up the claim; returns whether the handle's ring has been deleted.
    pub(super) fn free(&self) -> bool {
        let core = self.queue.core;
        let claim = &core.claims[self.side as usize];
        let is_deleted = core.ring.give_up(claim, self.queue.life);
        self.queue.inner().slots()[usize::from(self.owner.slot())].message_finished();
        is_deleted
    }

    /// Whether the handle's ring still lives.
    #[inline]
    pub(super) fn check_life(&self) -> Result<(), Failure> {
        let alive = self.queue.is_alive();
        alive.then_some(()).ok_or(Failure::Deleted)
    }

    /// The same check for a call that has not waited: a use after the ring's end is also reported to the checker.
    #[inline]
    fn check_use(&self, site: Site) -> Result<(), Failure> {
        self.check_life()
            .inspect_err(|_| self.queue.report().misused(Misuse::AfterEnd, site))
    }

    /// The task that has the end, which must be the calling one.
    #[inline]
    fn task(&self) -> Result<Task<'r>, AttachError> {
        let task = self.queue.inner().task()?;
        if task.owner() != self.owner {
            used_by_another_task();
        }
        Ok(task)
    }

    /// Aborts if the end is not the calling task's. For changes of places that were taken before.
    #[inline]
    pub(super) fn assert_mine(&self) {
        if !self.queue.inner().is_me(self.owner) {
            used_by_another_task();
        }
    }

    /// What is available to this side: messages, or room for them, as far as it knows.
    #[inline]
    fn available(&self) -> u32 {
        match self.side {
            Side::Receiver => self.others.wrapping_sub(self.mine),
            Side::Sender => {
                let used = self.mine.wrapping_sub(self.others);
                self.queue.core.capacity().saturating_sub(used)
            }
        }
    }

    /// Reads the other side's index; returns what is available.
    #[inline]
    pub(super) fn refresh(&mut self) -> u32 {
        self.others = self.queue.core.ring.index(self.side.other());
        self.available()
    }

    /// Waits until something is available; returns how much.
    #[inline]
    #[track_caller]
    pub(super) fn wait(&mut self, wait: Wait) -> Result<u32, Failure> {
        let task = self.task()?;
        self.check_use(Site::caller())?;
        match self.available() {
            0 => self.wait_slowly(task, wait),
            left => Ok(left),
        }
    }

    #[cold]
    #[track_caller]
    fn wait_slowly(&mut self, task: Task<'r>, wait: Wait) -> Result<u32, Failure> {
        let left = self.refresh();
        if left > 0 {
            return Ok(left);
        }
        if wait == Wait::Not {
            return Err(Failure::Refused);
        }
        let turns = Some(&task.slot.takes_turns);
        if ExponentialBackoff::None.poll(self.queue.max_message(), turns, || {
            self.refresh() > 0 || self.check_life().is_err()
        }) {
            self.check_life()?;
            return Ok(self.available());
        }
        let inner = self.queue.inner();
        let (ring, site) = (&self.queue.core.ring, Site::caller());
        loop {
            // Read before the ring is checked: see `park`.
            let deaths = inner.deaths();
            ring.announce_sleep(self.side);
            let mut timed_out = false;
            if self.refresh() == 0 && self.check_life().is_ok() {
                let words = [(ring.sleep_word(self.side), 1)];
                let object = core::ptr::from_ref(self.queue.core).addr();
                let timed = wait.deadline().is_some();
                let waiting = Waiting::begin_at(Kind::Queue, object, timed, site);
                waiting.report_if_alone_at(&words);
                timed_out = inner.park(task, &words, deaths, wait.deadline()).0 == Parked::TimedOut;
            }
            // A signal handler may have forked: the end is the parent's.
            self.assert_mine();
            ring.end_sleep(self.side);
            self.check_life()?;
            match self.refresh() {
                0 if timed_out => return Err(Failure::TimedOut),
                0 => {}
                left => return Ok(left),
            }
        }
    }

    /// This side has finished this many more places.
    #[inline]
    pub(super) fn advance(&mut self, count: u32) {
        self.mine = self.mine.wrapping_add(count);
        self.queue.core.ring.advance(self.side, self.mine);
    }
}

#[cold]
#[inline(never)]
fn used_by_another_task() -> ! {
    crate::fatal(format_args!(
        "an end of a ring was used by a task that does not have it (one inherited across fork is the parent's)"
    ))
}

impl fmt::Debug for End<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(formatter)
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let inner = self.queue.inner();
        // In the child of a fork the end is the parent's.
        if inner.is_me(self.owner) && self.free() {
            self.queue.clear_away();
        }
    }
}
