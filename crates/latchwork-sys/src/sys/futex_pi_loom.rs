//! The priority-inheriting futex as a loom model: the documented contract, and nothing more.
//!
//! A word has kernel state while a task sleeps for it: its owner, and its sleepers, oldest first. Each call is
//! one step (the model's lock stands for the kernel's). Within the contract the [scene](crate::model::Scene)
//! chooses: the first calls that would sleep return as if the owner were just exiting; a word is passed to the
//! oldest or the newest sleeper (the kernel prefers real-time tasks, in whichever order they came); and a
//! deadline may pass at any moment. Priorities themselves are not modelled. Sleeps with a time-out of their own
//! end only when a lock is [buried](end_naps).

use super::futex::Sharing;
use super::futex_pi::Pi;
use crate::atomic::{AtomicU32, Ordering, fence};
use crate::model::task::Me;
use crate::model::{scene, step};
use crate::sys::futex_bits::{OWNER_DIED, TID_MASK, WAITERS};
use crate::time::Deadline;
use core::ptr;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;

/// The ID of the task in a model that has a real-time policy: number 3.
const REAL_TIME: u32 = 4;

struct Sleeper {
    tid: u32,
    word: Place,
    condvar: Arc<Condvar>,
}

impl Sleeper {
    /// The calling task, for a word.
    fn new(word: &AtomicU32) -> Self {
        Self {
            tid: Me::current_or_none().tid(),
            word: Place(ptr::from_ref(word)),
            condvar: Arc::new(Condvar::new()),
        }
    }
}

/// The address of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(*const AtomicU32);

// SAFETY: a model keeps its locks until all tasks have ended; the word is an atomic.
#[allow(unsafe_code)]
unsafe impl Send for Place {}

/// A task that sleeps until it is requeued.
struct Early {
    sleeper: Sleeper,
    target: Place,
}

#[derive(Default)]
struct Kernel {
    /// The owner of each word that has sleepers.
    owners: Vec<(Place, u32)>,
    /// Oldest first. A sleeper is removed when it is passed a word or gives up.
    sleepers: Vec<Sleeper>,
    /// Oldest first. A sleeper is removed when it is requeued or gives up.
    early: Vec<Early>,
    dead: Vec<u32>,
    /// How often an exiting owner has been simulated.
    exits: usize,
}

loom::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

fn kernel() -> MutexGuard<'static, Kernel> {
    // A model that has failed already poisons it.
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a call.
fn enter() -> MutexGuard<'static, Kernel> {
    step();
    let kernel = kernel();
    fence(Ordering::SeqCst);
    kernel
}

impl Kernel {
    fn owner(&self, place: Place) -> Option<u32> {
        let state = self.owners.iter().find(|state| state.0 == place);
        state.map(|state| state.1)
    }

    /// The word for which a task sleeps.
    fn blocked(&self, tid: u32) -> Option<Place> {
        let sleeper = self.sleepers.iter().find(|sleeper| sleeper.tid == tid);
        sleeper.map(|sleeper| sleeper.word)
    }

    /// The place of a task among those that sleep until they are requeued.
    fn early_of(&self, tid: u32) -> Option<usize> {
        self.early.iter().position(|other| other.sleeper.tid == tid)
    }

    /// Whether a task that is about to sleep would wait for itself. (Unlike in the real kernel, no other task
    /// queues between this check and the caller's queueing.)
    fn closes_circle(&self, tid: u32) -> bool {
        let mut last = tid;
        while let Some(owner) = self.blocked(last).and_then(|place| self.owner(place)) {
            if owner == tid {
                return true;
            }
            last = owner;
        }
        false
    }

    /// Removes a sleeper, and the state of its word with the last one.
    fn remove(&mut self, index: usize) -> Sleeper {
        let gone = self.sleepers.remove(index);
        if !self.sleepers.iter().any(|other| other.word == gone.word) {
            self.owners.retain(|state| state.0 != gone.word);
        }
        gone
    }

    /// Makes the next sleeper the owner, with these bits beside its ID; returns whether there is one.
    fn pass_on(&mut self, place: Place, word: &AtomicU32, bits: u32) -> bool {
        let Some(next) = scene().next(&self.sleepers, |sleeper| sleeper.word == place) else {
            return false;
        };
        let heir = self.remove(next);
        word.for_kernel()
            .swap(heir.tid | WAITERS | bits, Ordering::SeqCst);
        for state in &mut self.owners {
            if state.0 == place {
                state.1 = heir.tid;
            }
        }
        heir.condvar.notify_one();
        true
    }
}

/// The part before a sleep: returns the owner to wait for, or the reason not to sleep.
fn attach(kernel: &mut Kernel, word: &AtomicU32, me: u32) -> Result<u32, Pi> {
    let place = Place(ptr::from_ref(word));
    let cell = word.for_kernel();
    let exchange = |old, new| cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    loop {
        let value = cell.load(Ordering::SeqCst);
        let owner = value & TID_MASK;
        if owner == me {
            return Err(Pi::Deadlock);
        }
        if let Some(known) = kernel.owner(place) {
            // A dying owner's successor is not chosen yet: it will be one of the sleepers.
            let is_dying = owner == 0 && value & OWNER_DIED != 0;
            return if is_dying {
                Ok(known)
            } else if known == owner {
                Ok(owner)
            } else {
                Err(Pi::Inconsistent)
            };
        }
        if owner == 0 {
            if exchange(value, value & OWNER_DIED | me).is_ok() {
                return Err(Pi::Done);
            }
        } else if exchange(value, value | WAITERS).is_ok() {
            if owner == TID_MASK || kernel.dead.contains(&owner) {
                return Err(Pi::OwnerGone);
            }
            if kernel.exits < scene().spurious {
                kernel.exits += 1;
                return Err(Pi::Again);
            }
            return Ok(owner);
        }
    }
}

/// Puts a task to sleep for a word and returns `Ok(false)`. `Ok(true)`: the task owns the word at once. `Err`:
/// the reason not to sleep.
fn enqueue(kernel: &mut Kernel, word: &AtomicU32, sleeper: Sleeper) -> Result<bool, Pi> {
    let tid = sleeper.tid;
    let owner = match attach(kernel, word, tid) {
        Ok(owner) => owner,
        Err(Pi::Done) => return Ok(true),
        Err(ended) => return Err(ended),
    };
    let place = sleeper.word;
    if kernel.owner(place).is_none() {
        kernel.owners.push((place, owner));
    }
    kernel.sleepers.push(sleeper);
    if kernel.closes_circle(tid) {
        let last = kernel.sleepers.len() - 1;
        kernel.remove(last);
        return Err(Pi::Deadlock);
    }
    Ok(false)
}

pub fn lock_pi(word: &AtomicU32, _: Sharing, deadline: Option<Deadline>) -> Pi {
    let mut kernel = enter();
    let sleeper = Sleeper::new(word);
    let condvar = Arc::clone(&sleeper.condvar);
    match enqueue(&mut kernel, word, sleeper) {
        Ok(true) => Pi::Done,
        Ok(false) => sleep(kernel, &condvar, word, deadline),
        Err(ended) => ended,
    }
}

/// Sleeps until the calling task is on no queue, or its deadline has passed; then it may own `word`.
fn sleep(
    mut kernel: MutexGuard<'static, Kernel>,
    condvar: &Condvar,
    word: &AtomicU32,
    deadline: Option<Deadline>,
) -> Pi {
    let me = Me::current_or_none().tid();
    if deadline.is_some() {
        // The deadline passes here: a task that runs now finds this task asleep, and may requeue it or pass the word
        // to it.
        drop(kernel);
        kernel = self::kernel();
        if let Some(at) = kernel.early_of(me) {
            kernel.early.remove(at);
            return Pi::TimedOut;
        }
        if let Some(at) = kernel.sleepers.iter().position(|other| other.tid == me) {
            kernel.remove(at);
            return Pi::TimedOut;
        }
    }
    while kernel.blocked(me).is_some() || kernel.early_of(me).is_some() {
        kernel = condvar.wait(kernel).unwrap_or_else(PoisonError::into_inner);
    }
    if word.for_kernel().load(Ordering::SeqCst) & TID_MASK == me {
        Pi::Done
    } else {
        // The end of its own time-out removed it.
        Pi::TimedOut
    }
}

pub fn can_requeue() -> bool {
    true
}

pub fn wait_requeue_pi(
    word: &AtomicU32,
    expected: u32,
    target: &AtomicU32,
    _: Sharing,
    deadline: Option<Deadline>,
) -> Pi {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) != expected {
        return Pi::Again;
    }
    let sleeper = Sleeper::new(word);
    let condvar = Arc::clone(&sleeper.condvar);
    kernel.early.push(Early {
        sleeper,
        target: Place(ptr::from_ref(target)),
    });
    sleep(kernel, &condvar, target, deadline)
}

/// # Safety
/// As for `sys/futex_pi_linux.rs`.
#[allow(unsafe_code)]
pub unsafe fn cmp_requeue_pi(
    word: &AtomicU32,
    expected: u32,
    target: *const AtomicU32,
    others: u32,
    _: Sharing,
) -> Result<usize, Pi> {
    let mut kernel = enter();
    if word.for_kernel().load(Ordering::SeqCst) != expected {
        return Err(Pi::Again);
    }
    let (place, goal) = (Place(ptr::from_ref(word)), Place(target));
    let mut sent = 0;
    while sent <= others as usize {
        let is_here = |early: &Early| early.sleeper.word == place;
        let Some(next) = scene().next(&kernel.early, is_here) else {
            break;
        };
        // Linux would refuse; but no caller may ask for it.
        assert!(
            kernel.early[next].target == goal,
            "sent to a word that it does not wait for"
        );
        let mut sleeper = kernel.early.remove(next).sleeper;
        sleeper.word = goal;
        let condvar = Arc::clone(&sleeper.condvar);
        // SAFETY: by the caller's contract: a task sleeps for it.
        match enqueue(&mut kernel, unsafe { &*target }, sleeper) {
            Ok(true) => condvar.notify_one(),
            Ok(false) => {}
            // Linux would leave it where it was until its time-out; here the time-out ends at once.
            Err(ended) => {
                condvar.notify_one();
                while let Some(at) = kernel.early.iter().position(is_here) {
                    kernel.early.remove(at).sleeper.condvar.notify_one();
                }
                return Err(ended);
            }
        }
        sent += 1;
    }
    Ok(sent)
}

pub fn trylock_pi(word: &AtomicU32, _: Sharing) -> Pi {
    step();
    let me = Me::current_or_none().tid();
    attach(&mut kernel(), word, me).err().unwrap_or(Pi::Again)
}

/// # Safety
/// As for `sys/futex_pi_linux.rs`.
#[allow(unsafe_code)]
pub unsafe fn unlock_pi(word: *const AtomicU32, _: Sharing) -> Pi {
    step();
    let me = Me::current_or_none().tid();
    // SAFETY: by the caller's contract.
    let word = unsafe { &*word };
    fence(Ordering::SeqCst);
    // Read before the kernel's lock is taken, as in Linux.
    let value = word.for_kernel().load(Ordering::SeqCst);
    if value & TID_MASK != me {
        return Pi::NotOwner;
    }
    let mut kernel = kernel();
    let place = Place(ptr::from_ref(word));
    if kernel.owner(place).is_some() {
        match word.for_kernel().load(Ordering::SeqCst) {
            now if now == value => {}
            now if now & TID_MASK == value => return Pi::Again,
            _ => return Pi::Inconsistent,
        }
    }
    if kernel.pass_on(place, word, 0) {
        return Pi::Done;
    }
    let freed = word
        .for_kernel()
        .compare_exchange(value, 0, Ordering::SeqCst, Ordering::SeqCst);
    freed.map_or(Pi::Again, |_| Pi::Done)
}

/// The kernel's handling of a task that has died (`exit_pi_state_list`).
pub fn handle_task_exit(tid: u32) {
    let mut kernel = kernel();
    kernel.dead.push(tid);
    for (place, _) in kernel
        .owners
        .clone()
        .into_iter()
        .filter(|state| state.1 == tid)
    {
        // SAFETY: a model keeps its locks until all tasks have ended.
        #[allow(unsafe_code)]
        let word = unsafe { &*place.0 };
        kernel.pass_on(place, word, OWNER_DIED);
    }
}

/// The sleepers' own time-outs pass: each task that sleeps for this word checks it.
pub fn end_naps(word: &AtomicU32) {
    let place = Place(ptr::from_ref(word));
    let mut kernel = kernel();
    while let Some(at) = kernel.sleepers.iter().position(|other| other.word == place) {
        kernel.remove(at).condvar.notify_one();
    }
}

pub fn is_real_time() -> bool {
    Me::current_or_none().tid() == REAL_TIME
}

pub fn let_others_run() {
    loom::thread::yield_now();
}
