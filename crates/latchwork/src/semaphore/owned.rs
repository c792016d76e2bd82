//! Semaphores with an owner: binary ones, with nesting, with or without a protocol.
//!
//! | word | meaning | entered by |
//! | --- | --- | --- |
//! | key | free | release, no task waits: CAS, Release; creation |
//! | key + owner | owned, no task waits | obtain: CAS, Acquire |
//! | key + owner + `QUEUED` | owned, a task waits | a task that enters the queue, under the lock |
//! | key + owner + `DIED` (+ `QUEUED`) | owned; the owner must get a report of owner death, or has had a panic in an inner critical section | a hand-over from a dead owner, under the lock; release by a panic |
//! | any of these owned ones + `NESTED` | obtained again | its owner: CAS |
//! | key + `DIED` | free; the next owner must get a report of owner death | the same, no task waits |
//! | key + `DELETED` | a mutex with data (`priority_mutex.rs`) that is not recoverable | its owner, under the lock |
//!
//! Invariants
//! 1. While a task waits there is an owner, and the word has `QUEUED`: ownership changes under the lock only.
//! 2. The store of the word that names the heir commits a hand-over. The rest follows from the word: the heir, whose
//!    record says `WAITING` for this object, must get `GRANTED`.
//! 3. The word is without `NESTED` whenever the owner changes, and `nest` counts only while the word has it.
//!
//! *A dead owner* is detected by the next task that comes for the semaphore, and by all waiters: their sleeps end after a death (`region/park.rs`).
//! Under the lock the first waiter becomes the owner, and gets the report; if no task waits, the next task to obtain it
//! gets the report. Before it does, the region has settled what the dead task left.
//!
//! *A kill* during a hand-over: before the store of invariant 2 the links may lack the heir, and are rebuilt from the
//! records. After it, the next task that takes the lock grants to the heir; at the latest the heir itself does, for it
//! sleeps, and that sleep ends after the death.

use super::object::{DELETED, DIED, LOW, NESTED, QUEUED, is_of, key_of, owner_of, slot_of};
use super::wait::{AdaptiveSpin, acknowledge, cancel_wait, wait};
use super::{Access, AttachError, Caller, Core, Kind, Locked, Refusal, ReleaseError, TaskTable};
use super::{WaitLimit, Wake, deadlock, priority};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::atomic::unless_fault;
use crate::backoff::FIRST_POLLS;
use crate::region::wait_record::{GRANTED, STATE, WAITING, WaitRecord};

/// The result of a successful obtain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obtained {
    Clean,
    OwnerDied,
}

impl Obtained {
    /// What a task learns that has become the owner of the semaphore with this word.
    pub(super) fn from_word(word: u64) -> Self {
        match word & DIED {
            0 => Self::Clean,
            _ => Self::OwnerDied,
        }
    }
}

/// Takes the semaphore if it is free and no report is due. For kinds without a ceiling.
#[inline(always)]
pub(crate) fn obtain_free(core: &Core, key: u64, task: u64) -> bool {
    // Acquire: pairs with the releases.
    let order = unless_fault!(SemaphoreObtainRelaxed, Acquire, Relaxed);
    let obtained = core.word.compare_exchange(key, key | task, order, Relaxed);
    obtained.is_ok()
}

/// Releases the semaphore if no task waits and the caller has obtained it once. For kinds without a ceiling.
#[inline(always)]
pub(crate) fn release_free(core: &Core, key: u64, task: u64) -> bool {
    // Release: pairs with the Acquire of the next owner.
    let order = unless_fault!(SemaphoreReleaseRelaxed, Release, Relaxed);
    let released = core.word.compare_exchange(key | task, key, order, Relaxed);
    released.is_ok()
}

/// Obtains the semaphore in any state: the slow path.
#[cold]
pub(crate) fn obtain<T: TaskTable>(
    access: &Access<'_, T>,
    limit: WaitLimit,
) -> Result<Obtained, Refusal> {
    let (tasks, core, key, caller) = access.parts();
    let word = core.word.load(Relaxed);
    if !is_of(word, key) {
        return Err(Refusal::NoObject);
    }
    if owner_of(word) == caller.task {
        if core.form().has_data() {
            return Err(Refusal::Deadlock);
        }
        nest(core, word, 1);
        caller.record.standing.obtained();
        return Ok(Obtained::Clean);
    }
    let obtained = acquire(access, limit)?;
    if core.word.load(Relaxed) & NESTED != 0 {
        // Only a damaged word has `NESTED` here.
        change_flags(core, |word| word & !NESTED);
    }
    // A mutex with data counts as a lock of its thread.
    if !core.form().has_data() {
        caller.record.standing.obtained();
    }
    if core.form().kind() == Kind::Ceiling {
        priority::push_ceiling(tasks, core, caller);
    }
    if obtained == Obtained::OwnerDied {
        clear_owner_died(tasks, core);
    }
    // Last: while the record names the object, its ceiling counts.
    acknowledge(caller);
    Ok(obtained)
}

/// Clears `DIED`: the calling task, which owns the semaphore, is about to return the report of owner death.
pub(super) fn clear_owner_died<T: TaskTable>(tasks: &T, core: &Core) {
    // If this task dies before it returns the report, the next owner finds a dead owner again.
    change_flags(core, |word| word & !DIED);
    tasks.settle_deaths();
}

/// Changes flags of a semaphore that the calling task owns; meanwhile other tasks may set `QUEUED`.
fn change_flags(core: &Core, change: impl Fn(u64) -> u64) {
    // AcqRel: as in `update_queued_flag`.
    let _ = core
        .word
        .fetch_update(AcqRel, Relaxed, |word| Some(change(word)));
}

/// Counts one more, or one less, nested obtain of the owner, which has read `word`.
fn nest(core: &Core, word: u64, by: i32) {
    let before = match word & NESTED {
        0 => 0,
        // Relaxed, here and below: only the owner uses it.
        _ => core.nest.load(Relaxed),
    };
    let Some(now) = before.checked_add_signed(by) else {
        crate::fatal(format_args!(
            "a semaphore was obtained 2^32 times by its owner"
        ));
    };
    core.nest.store(now, Relaxed);
    if before == 0 {
        change_flags(core, |word| word | NESTED);
    } else if now == 0 {
        change_flags(core, |word| word & !NESTED);
    }
}

fn check_ceiling(core: &Core, caller: Caller<'_>) -> Result<(), Refusal> {
    if core.form().kind() != Kind::Ceiling {
        return Ok(());
    }
    let (own, ceiling) = (caller.priority(), core.ceiling.load(Relaxed));
    if own < ceiling {
        return Err(Refusal::AboveCeiling { own, ceiling });
    }
    Ok(())
}

fn acquire<T: TaskTable>(access: &Access<'_, T>, limit: WaitLimit) -> Result<Obtained, Refusal> {
    let (tasks, core, key, caller) = access.parts();
    let mut spin = AdaptiveSpin::new(core, limit);
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        let owner = owner_of(word);
        if word & LOW == key && owner == 0 {
            check_ceiling(core, caller)?;
            if obtain_free(core, key, caller.task) {
                spin.finish(true);
                return Ok(Obtained::Clean);
            }
            continue;
        }
        // A death is settled under the lock.
        if owner == 0 || !tasks.is_alive(owner) {
            break;
        }
        let polls = match limit {
            WaitLimit::Try => return Err(Refusal::WouldBlock),
            WaitLimit::Until(_) if priority::outranks_owner(access, owner) => FIRST_POLLS,
            WaitLimit::Until(_) => caller.polls_before_queue(),
        };
        if !spin.poll_again(polls, false) {
            break;
        }
    }
    spin.finish(false);
    let settled = match acquire_or_enqueue(access, limit)? {
        Acquisition::Owned(obtained) => return Ok(obtained),
        Acquisition::Queued(settled) => settled,
    };
    priority::donate(tasks, core, caller);
    if deadlock::completes_cycle(tasks, core, caller) {
        cancel_wait(access, Refusal::Deadlock)?;
    } else {
        wait(access, settled, limit.deadline())?;
    }
    // Acquire: the last owner's writes come with the grant, which was read with Acquire.
    Ok(Obtained::from_word(core.word.load(Relaxed)))
}

/// The result of an obtain under the object's lock.
pub(super) enum Acquisition {
    Owned(Obtained),
    /// The task waits. Contains the count of deaths that have been settled.
    Queued(u32),
}

/// The word of a semaphore that the calling task is about to release, if the task owns it.
pub(super) fn word_if_owned<T>(access: &Access<'_, T>) -> Result<u64, ReleaseError> {
    let word = access.core.word.load(Relaxed);
    if !is_of(word, access.key) {
        return Err(ReleaseError::Deleted);
    }
    if owner_of(word) != access.caller.task {
        return Err(ReleaseError::NotOwner);
    }
    Ok(word)
}

/// Releases the semaphore in any state: the slow path. `torn`: the next owner gets the report of owner death.
#[cold]
pub(crate) fn release<T: TaskTable>(
    access: &Access<'_, T>,
    torn: bool,
) -> Result<(), ReleaseError> {
    let (tasks, core, _, caller) = access.parts();
    let word = word_if_owned(access)?;
    // An inner release by a panic is remembered until the last one.
    let torn = torn || word & DIED != 0;
    // `nest` is 0 here in a damaged region alone.
    if word & NESTED != 0 && core.nest.load(Relaxed) != 0 {
        if torn {
            change_flags(core, |word| word | DIED);
        }
        nest(core, word, -1);
        caller.record.standing.released();
        return Ok(());
    }
    if core.form().kind() == Kind::Ceiling {
        priority::remove_ceiling(core, caller);
    }
    hand_over_or_free(access, torn)?;
    if !core.form().has_data() {
        caller.record.standing.released();
    }
    priority::lower_priority(tasks, core, caller);
    Ok(())
}

/// Ends a mutex with data, which the calling task owns: no task obtains it any more, and all waits end.
#[cold]
#[cfg(not(loom))]
pub(super) fn end_for_ever<T: TaskTable>(access: &Access<'_, T>) -> Result<(), ReleaseError> {
    let (tasks, core, key, caller) = access.parts();
    word_if_owned(access)?;
    if core.form().kind() == Kind::Ceiling {
        priority::remove_ceiling(core, caller);
    }
    let locked = Locked::new(tasks, core)?;
    let end = |word| key | DELETED | word & QUEUED;
    // Before this exchange a kill leaves a dead owner. After it the object has ended: see `recover`. AcqRel: as in
    // `update_queued_flag`.
    let _ = core
        .word
        .fetch_update(AcqRel, Relaxed, |word| Some(end(word)));
    locked.end_all_waits(crate::region::wait_record::DELETED);
    drop(locked);
    priority::lower_priority(tasks, core, caller);
    Ok(())
}

pub(super) fn hand_over_or_free<T: TaskTable>(
    access: &Access<'_, T>,
    torn: bool,
) -> Result<(), AttachError> {
    let (tasks, core, key, caller) = access.parts();
    if !torn && release_free(core, key, caller.task) {
        return Ok(());
    }
    let locked = Locked::new(tasks, core)?;
    let died = if torn { DIED } else { 0 };
    loop {
        if let Some((heir, wake)) = locked.hand_over(key, died) {
            let kind = core.form().kind();
            let inherits = kind == Kind::Inherit;
            let next = inherits.then(|| locked.first()).flatten();
            let next = next.map(|(_, record)| record.priority.load(Relaxed));
            drop(locked);
            if kind.has_ceiling() {
                // Before the heir runs. The heir does this itself, too, in case this task is killed first.
                priority::refresh(tasks, heir, false);
            } else if let Some(next) = next {
                priority::refresh_heir(tasks, heir, next);
            }
            unless_fault!(SemaphoreWakesNobody, wake.carry_out(), ());
            return Ok(());
        }
        let word = core.word.load(Relaxed);
        // Its Release pairs with the Acquire of the next owner.
        if core.replace(word, key | died) {
            return Ok(());
        }
    }
}

/// Takes the semaphore, or enters the calling task into the queue, under the lock.
pub(super) fn acquire_or_enqueue<T: TaskTable>(
    access: &Access<'_, T>,
    limit: WaitLimit,
) -> Result<Acquisition, Refusal> {
    let (tasks, core, key, caller) = access.parts();
    let locked = Locked::new(tasks, core)?;
    loop {
        let word = core.word.load(Relaxed);
        if !is_of(word, key) {
            return Err(Refusal::NoObject);
        }
        let owner = owner_of(word);
        if owner == 0 {
            check_ceiling(core, caller)?;
            // Its Acquire: as in `obtain_free`.
            if core.replace(word, word | caller.task) {
                return Ok(Acquisition::Owned(Obtained::from_word(word)));
            }
        } else if crate::atomic::unless_disabled!(SemaphoreTakesOver, !tasks.is_alive(owner), false)
        {
            locked.settle_dead_owner(word);
        } else if matches!(limit, WaitLimit::Try) {
            return Err(Refusal::WouldBlock);
        } else if locked.set_queued(word) {
            locked.enqueue(caller);
            return Ok(Acquisition::Queued(core.recovered.load(Relaxed)));
        }
    }
}

impl<T: TaskTable> Locked<'_, T> {
    /// Makes the first waiter the owner, if there is one.
    fn hand_over(&self, key: u64, died: u64) -> Option<(u64, Wake)> {
        let (slot, record) = self.first()?;
        self.remove(slot);
        let queued = if self.is_empty() { 0 } else { QUEUED };
        let heir = record.task.load(Relaxed);
        // Release: pairs with the Acquire of the task that obtains it next. SeqCst: ordered before the later reads, see
        // `priority.rs`.
        self.core.word.swap(key | heir | died | queued, SeqCst);
        self.flag_new_owner(record);
        Some((heir, Self::end_wait(record, GRANTED)))
    }

    /// The remaining waiters now donate to the new owner, whose record this is.
    fn flag_new_owner(&self, owner: &WaitRecord) {
        if self.core.form().kind() == Kind::Inherit && !self.is_empty() {
            priority::set_inherits(&owner.standing);
        }
    }

    /// Passes on the semaphore of a dead owner.
    pub(super) fn settle_dead_owner(&self, word: u64) {
        let core = self.core;
        let key = key_of(word);
        if let Some((_, wake)) = self.hand_over(key, DIED) {
            wake.carry_out();
        } else {
            // Outside the lock only the owner changes the word, and it is dead.
            core.word.store(key | DIED, Release);
        }
    }

    /// Settles what dead tasks left: see the heads of this file and of `wait_queue.rs`.
    pub(super) fn recover(&self) {
        let core = self.core;
        let word = core.word.load(Acquire);
        let owner = owner_of(word);
        let is_owned = core.form().kind().has_owner() && owner != 0 && word & DELETED == 0;
        if is_owned
            && let Some(record) = self.waiter(slot_of(owner))
            && record.task.load(Relaxed) == owner
            && record.word.load(Relaxed) & STATE == WAITING
        {
            // The heir of a hand-over that was cut short.
            crate::atomic::unless_disabled!(
                SemaphoreFinishesHandOver,
                Self::end_wait(record, GRANTED).carry_out(),
                ()
            );
        }
        crate::atomic::unless_disabled!(SemaphoreRebuildsLinks, self.rebuild_links(), ());
        if word & DELETED != 0 {
            self.end_all_waits(crate::region::wait_record::DELETED);
        } else {
            if is_owned && !self.tasks.is_alive(owner) {
                self.settle_dead_owner(word);
            } else if is_owned && let Some(record) = self.tasks.record(slot_of(owner)) {
                self.flag_new_owner(record);
            }
            self.update_queued_flag();
        }
    }
}
