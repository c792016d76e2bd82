//! Sweeping: cleaning up after dead tasks.
//!
//! Under the region's robust sweep lock, for each slot whose life-word is `OWNER_DIED`:
//! 1. count the death and wake all watchers of the life-word (invariant 3 of the task table);
//! 2. wait until the kernel has walked the task's whole robust list, and the other tasks that die with it have died,
//!    too;
//! 3. settle the task's heap: finish or undo its intent, free or keep its blocks, orphan its spans;
//! 4. mark the claim as swept, and advance the generation;
//! 5. set tail and life-word to 0: the slot is free; end the claim.
//!
//! A kill before the life-word is 0 leaves it at `OWNER_DIED`: the next sweep repeats all steps, each of which is idempotent.
//! (A generation may be skipped.) After that, the marked claim says that the slot is free.
//!
//! *Why this wait?* What is on the list must stay unchanged until the walk is finished: see the [task
//! table](super::task_table). Moreover, a SIGKILL ends the threads of a process one by one: a thread to which the dead
//! task had passed a reference to its box or guard may still have locks there. So a sweep waits for the other tasks of a
//! process that is being killed (except threads that are not tasks of the region).
//!
//! `/proc` says which processes are being killed. It says nothing about processes of another PID namespace, and may not be
//! readable, or may hide a process. Then a sweep supposes that the whole process is being killed, unless the dead task's thread
//! has ended by itself. (If only that thread ended, by a bare system call, the sweep waits until [`WAIT_LIMIT`].)
//!
//! The wait takes a few thousand instructions of the kernel. If the dead task's list is broken (a pthread mutex in
//! memory that was unmapped, more locks than the kernel walks), its tail is never marked. After [`WAIT_LIMIT`] the
//! sweep goes on, but keeps the private blocks of all tasks that it settles, since any of them may have lent the dead task a
//! place for a lock: memory is lost, but no lock. The same holds if other tasks of the process live on.
#![allow(unsafe_code)]

use super::heap::{OnDeath, Owner};
use super::task_table::{Life, Orphans, Slot, life_of};
use super::{AttachError, Inner, Region, lookout};
use crate::atomic::Ordering;
use crate::mutex::in_region::RawError;
use crate::sys::cancellation::Undisturbed;
use crate::sys::futex::{self, Sharing};
use crate::sys::futex_bits::NO_THREAD;
use crate::sys::running::no_such_task;
use crate::sys::{introspect, proc_file, thread};
use crate::task::Me;
use crate::time::Deadline;
use core::time::Duration;

#[cfg(all(test, not(loom)))]
mod tests;

/// How long a sweep waits for the kernel and for dying tasks.
const WAIT_LIMIT: Duration = Duration::from_secs(1);
/// How long a thread that finds no dead task waits for one of which nobody can say whether it is being killed.
const UNASKED_WAIT: Duration = Duration::from_millis(20);
/// How often it checks whether a living task is being killed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Whom a thread asks whether a task is being killed.
#[derive(Clone, Copy)]
enum Ask {
    /// `/proc`. A process that it hides is supposed to go on.
    Proc,
    /// The same, beside the death of another task of the process. If that is hidden, it is being killed, unless the dead task's
    /// thread has `ended` by itself.
    ProcClosely { ended: bool },
    /// Nobody: `/proc` says nothing of the process, which may be being killed.
    Nobody,
}

/// The result of a [sweep](Region::sweep).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The names of the dead tasks, as they were in the table.
    pub dead: Vec<String>,
}

impl Region {
    /// Detects the tasks that died and cleans up after them: blocks that only they knew, incomplete heap operations,
    /// their slots. Returns their names.
    ///
    /// The library does this by itself whenever a thread waits for a dead task or joins it, acquires a dead task's
    /// lock, or attaches the region; call this to have it done at once. It also frees the slots of threads of the caller's PID
    /// namespace that were killed while they joined the region or left it; else only a thread of that namespace that finds
    /// no other slot takes such a slot. The robust mutexes that a dead task held
    /// report the owner death themselves, and messages that it was receiving are delivered again.
    ///
    /// The kernel does not mark the death of a task that becomes another program by a call of `exec` in another thread than
    /// its process's first. This call notices it, as does a thread that finds the task table full; a thread that joins looks
    /// for it at a few tasks, each thread at others.
    ///
    /// # Errors
    /// If the calling thread cannot be a task of the region: see [`AttachError`].
    pub fn sweep(&self) -> Result<Swept, AttachError> {
        let mut swept = Swept::default();
        let me = Me::get()?;
        // A thread that joins sweeps, too.
        if self.inner.attached_task(me).is_none() {
            self.inner.attach_thread(me, &mut swept)?;
        }
        crate::atomic::unless_disabled!(SweepFreesClaims, self.inner.free_abandoned(me), ());
        swept.dead.append(&mut self.inner.sweep_all()?.dead);
        Ok(swept)
    }
}

impl Inner {
    /// Whether a task died whose slot was not swept yet.
    pub fn has_unswept(&self) -> bool {
        let mut slots = self.used_slots().iter();
        slots.any(|slot| slot.life() == Life::Dead)
    }

    pub fn sweep(&self) -> Result<Swept, AttachError> {
        if !self.has_unswept() {
            return Ok(Swept::default());
        }
        self.sweep_after(|| {})
    }

    /// Frees the slots whose claimants, threads of this PID namespace, were killed while they joined or left. The threads of
    /// other namespaces cannot do it, not even those that find the table full of such slots.
    fn free_abandoned(&self, me: Me) {
        let Ok(thread) = self.claimant(me) else {
            return;
        };
        let reserve = &self.slots()[self.max_tasks()..];
        for slot in self.used_slots().iter().chain(reserve) {
            slot.free_abandoned(thread);
        }
    }

    /// Settles all deaths after `first`, which runs under the sweep lock.
    pub(super) fn sweep_after(&self, first: impl FnOnce()) -> Result<Swept, AttachError> {
        let mut swept = Swept::default();
        let _undisturbed = Undisturbed::begin();
        let lock = &self.header().sweep_lock;
        match lock.lock_raw_with_naps() {
            Ok(_) => {
                // A dead sweeper's work is repeated below: the slots that it was sweeping are still marked.
                crate::atomic::unless_disabled!(
                    SweeperTakesOver,
                    // SAFETY: this thread holds the lock.
                    unsafe { lock.mark_raw_consistent() },
                    ()
                );
            }
            Err(RawError::Deadlock) => return Ok(swept),
            Err(RawError::Unavailable(error)) => return Err(error.into()),
            // The library never makes this lock unusable; a malicious file may claim it.
            Err(_) => return Err(AttachError::Damaged("its sweep lock is unusable")),
        }
        first();
        self.settle_deaths(&mut swept);
        // SAFETY: this thread locked it above.
        unsafe { lock.unlock_raw() };
        Ok(swept)
    }

    /// Settles all deaths, as the only thread that does.
    pub(super) fn settle_deaths(&self, swept: &mut Swept) {
        let (dead, lists_walked) = self.wait_for_dead_tasks();
        for index in dead {
            swept.dead.push(self.slots()[index].name());
            self.recover_slot(index as u16, lists_walked);
        }
    }

    /// Whether a task has left, or is dead and settled. Until then other threads of its process may live, and the kernel may write
    /// for them into what the task had.
    pub fn has_ended(&self, owner: Owner) -> bool {
        let slot = self.slots().get(usize::from(owner.slot()));
        slot.is_none_or(|slot| {
            // The life-word is read first, as in `is_alive`.
            let life = slot.life();
            // Relaxed: as there. A task that was killed as it left has ended its generation already, and its death is yet to be
            // settled. (Or it is another one's.)
            let is_other = || slot.generation.load(Ordering::Relaxed) != owner.generation();
            life == Life::Free || (life != Life::Dead && is_other())
        })
    }

    /// For a thread that has slept on the life-word of a task that is gone: settles its death, if it died. The kernel may have
    /// woken this thread alone, so if it cannot be a task, it passes the wake-up on.
    pub fn settle(&self, task: Owner) {
        // A task of another PID namespace with the same thread ID may have taken the slot, and died.
        let may_be_another = self.spans_pid_namespaces() && self.has_unswept();
        if (!self.has_ended(task) || may_be_another)
            && self.sweep().is_err()
            && let Some(slot) = self.slots().get(usize::from(task.slot()))
        {
            futex::wake(&raw const slot.life.word, 1, Sharing::Shared);
        }
    }

    /// Counts the deaths, and waits until the dead tasks' robust lists are walked. Returns their slots, and whether the
    /// kernel has walked all of their lists.
    fn wait_for_dead_tasks(&self) -> (Vec<usize>, bool) {
        let slots = self.used_slots();
        let until = Deadline::after(WAIT_LIMIT);
        let is_dead = |index: &usize| slots[*index].life() == Life::Dead;
        let mut dead: Vec<usize> = (0..slots.len()).filter(is_dead).collect();
        let mut is_listed = vec![false; slots.len()];
        for index in &dead {
            is_listed[*index] = true;
        }
        let mut lists_walked = true;
        let mut next = 0;
        while let Some(slot) = dead.get(next).map(|index| &slots[*index]) {
            next += 1;
            // Release: pairs with the Acquire in `deaths`: a task that sees the count sees the death.
            crate::atomic::unless_disabled!(
                SweepCountsDeath,
                {
                    self.header().deaths.fetch_add(1, Ordering::Release);
                },
                ()
            );
            // Relaxed: only a statistic.
            self.header().died.fetch_add(1, Ordering::Relaxed);
            crate::atomic::unless_disabled!(
                SweepWakesWatchers,
                {
                    futex::wake(&slot.life.word, u32::MAX, Sharing::Shared);
                },
                ()
            );
            // Once for all that died together. (The number of slots that are used may grow in this moment.)
            if next == dead.len() && !lookout::each_watches_all(self.max_tasks()) {
                futex::wake(&raw const self.header().deaths, u32::MAX, Sharing::Shared);
            }
            lists_walked &= crate::atomic::unless_disabled!(
                SweepWaitsForKernel,
                slot.wait_until_list_walked(until),
                true
            );
            // Asked once, if the process has other tasks at all.
            let mut can_ask = None;
            // Relaxed: the life-word's Acquire has ordered it.
            let ended = slot.ended.load(Ordering::Relaxed) != 0;
            for (index, other) in slots.iter().enumerate() {
                if other.is_alive()
                    && slot.is_of_process_of(other)
                    && let can_ask = *can_ask.get_or_insert_with(|| self.can_ask_about(slot))
                    && (can_ask || !ended)
                {
                    let ask = match can_ask {
                        true => Ask::ProcClosely { ended },
                        false => Ask::Nobody,
                    };
                    lists_walked &= crate::atomic::unless_disabled!(
                        SweepWaitsForOtherThreads,
                        self.wait_if_being_killed(other, ask, until),
                        true
                    );
                }
                if !is_listed[index] && other.life() == Life::Dead {
                    is_listed[index] = true;
                    dead.push(index);
                }
            }
        }
        (dead, lists_walked)
    }

    /// Waits for the deaths of tasks that are being killed at this moment, as far as they belong to this PID namespace. (What a
    /// region that spans namespaces contains is on no robust list: its locks pass on only when their owner's slot is dead, and
    /// a sweep waits for the others of that process.)
    fn outlast_killed_tasks(&self) {
        let Ok(me) = Me::get() else { return };
        let own = thread::process_id();
        let is_of_other_process = |slot: &&Slot| {
            // Relaxed: a task's process never changes.
            self.is_here(slot, me) && slot.process.load(Ordering::Relaxed) != own
        };
        let mut others = self.living_slots().filter(is_of_other_process).peekable();
        // The answer is the same for all of them.
        let Some(can_ask) = others.peek().map(|slot| self.can_ask_about(slot)) else {
            return;
        };
        let (ask, limit) = match can_ask {
            true => (Ask::Proc, WAIT_LIMIT),
            false => (Ask::Nobody, UNASKED_WAIT),
        };
        let until = Deadline::after(limit);
        for slot in others {
            if !self.wait_if_being_killed(slot, ask, until) {
                break;
            }
        }
    }

    /// Whether `/proc` tells this process whether the process of a slot's task is being killed. It does not if that is of
    /// another PID namespace, if the numbers in `/proc` are those of another one, or if `/proc` cannot be read (it is not
    /// mounted, or a filter of system calls forbids to open files).
    fn can_ask_about(&self, slot: &Slot) -> bool {
        let is_here = Me::get().is_ok_and(|me| self.is_here(slot, me));
        is_here && introspect::shows_own_ids()
    }

    /// If a living task of another process is being killed, waits for its death; `false` if that takes too long. A task about
    /// which this process cannot ask may be being killed.
    fn wait_if_being_killed(&self, slot: &Slot, ask: Ask, until: Deadline) -> bool {
        let is_here = Me::get().is_ok_and(|me| self.is_here(slot, me));
        loop {
            // Acquire: as for `life`.
            let word = slot.life.word.load(Ordering::Acquire);
            let Life::Alive(tid) = life_of(word) else {
                return true;
            };
            // It has ended, and its slot stays as long as its process.
            if tid == NO_THREAD {
                return true;
            }
            // Relaxed: a task sets it after its life-word, and does not change it.
            let process = slot.process.load(Ordering::Relaxed);
            if is_here && process == thread::process_id() {
                return true;
            }
            // The kernel has walked its list, or never will.
            let has_gone = || no_such_task(tid) || no_such_task(process);
            let goes_on = match ask {
                Ask::Proc => proc_file::is_ending_in(process, tid) != Some(true),
                Ask::ProcClosely { ended } => {
                    let is_ending = proc_file::is_surely_ending_in(process, tid);
                    // A thread that is not there has ended, unless the whole process is hidden.
                    let is_hidden = || !(has_gone() || introspect::shows_process(process));
                    is_ending.map_or_else(|| ended || !is_hidden(), |is_ending| !is_ending)
                }
                Ask::Nobody => is_here && has_gone(),
            };
            if goes_on {
                return true;
            }
            if until.has_passed() {
                return false;
            }
            let poll = Deadline::after(POLL_INTERVAL).min(until);
            futex::wait(&slot.life.word, word, Sharing::Shared, Some(poll));
        }
    }

    /// Settles the heap of a dead task and frees its slot. `lists_walked`: the kernel no longer reads the task's
    /// private blocks.
    fn recover_slot(&self, index: u16, lists_walked: bool) {
        let slot = &self.slots()[usize::from(index)];
        let asked = slot.orphans.load(Ordering::Relaxed) == Orphans::Keep as u8;
        let keeps = crate::atomic::unless_disabled!(SweepFreesBlocks, asked, true);
        let policy = if keeps || !lists_walked {
            OnDeath::Keep
        } else {
            OnDeath::Free
        };
        crate::atomic::unless_disabled!(
            SweepSettlesHeap,
            // SAFETY: the slot's task is dead, and the sweep lock admits one recoverer.
            unsafe { self.heap.recover(self.owner_of(index), policy) },
            ()
        );
        crate::atomic::unless_disabled!(SweepEndsLookout, self.header().lookout.leaves(index), ());
        crate::atomic::unless_disabled!(SweepFreesSlot, slot.free_swept(), ());
    }

    /// Releases the heap of a living task that leaves: the blocks that it allocated stay, since others may use them,
    /// and belong to no task.
    pub(super) fn release_heap(&self, index: u16) {
        let lock = &self.header().sweep_lock;
        let locked = lock.lock_raw_with_naps();
        if locked.is_ok() {
            // SAFETY: this thread holds the lock.
            unsafe { lock.mark_raw_consistent() };
        }
        // SAFETY: the calling thread is the slot's task, and does not use the heap meanwhile.
        unsafe { self.heap.recover(self.owner_of(index), OnDeath::Keep) };
        if locked.is_ok() {
            // SAFETY: this thread locked it above.
            unsafe { lock.unlock_raw() };
        }
    }
}

impl Slot {
    /// Waits until the kernel has walked the robust list of the dead task; `false` if that takes too long.
    fn wait_until_list_walked(&self, until: Deadline) -> bool {
        let tail = &self.tail.word;
        loop {
            // Before the check: a later change of the word ends the wait.
            let word = tail.load(Ordering::Relaxed);
            if self.is_list_walked() {
                return true;
            }
            if until.has_passed() {
                return false;
            }
            futex::wait(tail, word, Sharing::Shared, Some(until));
        }
    }
}

/// Called when a robust lock has passed on from a dead owner. If the lock lies in a region, the dead task's heap
/// intents are settled before any task touches the protected data: an intent is decided by reading a location that
/// the lock protects.
///
/// If no task is dead, the owner was killed while a thread's locks passed to its keeper, or has panicked: tasks to which it
/// has lent the data may be about to die, too.
///
/// `may_be_unmarked`: a waiter may have found out by itself that the owner's thread is gone. Then the owner's task is marked
/// first: one system call for each living task of this PID namespace.
pub(super) fn after_owner_death(lock: usize, may_be_unmarked: bool) {
    if let Some(inner) = Inner::containing(lock) {
        let has_vanished = may_be_unmarked && inner.any_has_vanished();
        if !has_vanished && !inner.has_unswept() {
            inner.outlast_killed_tasks();
        }
        // A thread that can be no task (it runs its last destructors, for instance) cannot sweep. Then it cannot use the heap,
        // either, and changes no word by which an intent is decided.
        crate::atomic::unless_disabled!(
            OwnerDeathSweeps,
            {
                let _ = match has_vanished {
                    true => inner.sweep_all(),
                    false => inner.sweep(),
                };
            },
            ()
        );
    }
}
