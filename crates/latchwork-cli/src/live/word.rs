//! Determines the lock that a futex word belongs to, from the system call that a thread sleeps in and the bytes around
//! the word.
//!
//! A word does not contain its kind, so each kind is recognised by conditions that must hold for it (its owner is an
//! existing thread, its kind field is valid, its counts agree with a sleeping thread), the strictest kind first. A word
//! that fits none is a plain word, and so is the one on which a waiter of parking_lot sleeps, since that lies in the
//! waiter's thread and not in the lock. The layouts are glibc's 64-bit ones, and this library's.
//!
//! | kind | recognised by |
//! | --- | --- |
//! | end of a thread | the word is the ID of a thread of the process, and that is the expected value |
//! | pthread mutex | owner at +8, kind at +16, both in agreement with word and call; also one that `run --mutex` has replaced |
//! | robust mutex of this library | the same shape, with the state at +4 and no owner at +8 |
//! | word with an owner | the call is one by which the kernel passes words on, or the word names a thread and has the waiters bit |
//! | pthread condition variable | counts of waiters and the sequence, before the word |
//! | pthread reader/writer lock | the readers' word, the writer, and the flags around |
//! | POSIX semaphore | the value is 0, the count of waiters is not |
//! | mutex without an owner | the expected value is 2, as in wait-wake mutexes, std's and glibc's internal locks |

use super::memory::{Memory, u32_at, u64_at};
use super::sleep::{Call, Sleep};
use latchwork::check::hook;
use latchwork::semaphore::inspect::SemaphoreKind as S;

pub(crate) const TID_MASK: u32 = 0x3fff_ffff;
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
pub(crate) const WAITERS: u32 = 0x8000_0000;

/// Bits of a pthread mutex's kind.
const ROBUST: u32 = 16;
const INHERIT: u32 = 32;
const CEILING: u32 = 64;
const PROCESS_SHARED: u32 = 128;
/// All valid bits of a kind, elision included.
const KIND: u32 = 0x3ff;
/// Flags in the kind of a mutex that `run --mutex` has replaced; the latter says that another word is its lock.
const REPLACED: u32 = 0x400 | SECOND_WORD;
const SECOND_WORD: u32 = 0x800;
/// Where that word lies.
const SECOND: u64 = 24;
/// The bits in which a robust lock of this library says what becomes of it when its thread ends.
const AT_END: u32 = 0x1c00;
/// The size of a pthread mutex in bytes.
const MUTEX: usize = 40;
/// The highest state of a robust mutex of this library.
const MOST_STATE: u32 = 2;
/// The most waiters of a plausible lock: a higher count means that it is something else.
const MOST_WAITERS: u64 = 1 << 22;

/// The kind of object that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pthread mutex, by its protocol.
    Pthread {
        robust: bool,
        inherit: bool,
        ceiling: bool,
    },
    PthreadRwLock,
    PthreadCondvar,
    PosixSemaphore,
    ThreadEnd,
    /// A robust mutex of this library.
    Robust,
    /// A word that the kernel passes on, and that names its owner.
    PiWord,
    /// A word that names its owner, such as the throughput mutex's.
    OwnedWord,
    /// A mutex that does not name its owner.
    Mutex,
    Word,
    /// A mutex of a region that names a task of the region.
    InRegion,
    /// A lock that protects a region's own tables.
    RegionLock,
    /// A region's semaphore.
    Semaphore(S),
    /// A region's mutex that serves by recorded priority.
    PriorityMutex,
    /// A region's message queue.
    Queue,
    /// The events that a task of a region waits for.
    Events,
    /// The kind that a checked program publishes; and whether the owner is lent the priority of its waiters.
    Checked(hook::Kind, bool),
}

/// What a thread that sleeps on a word waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Exclusive access.
    Exclusive,
    /// Shared access, as a reader.
    Shared,
    /// An event.
    Event,
    /// For a message.
    Message,
    /// For room for a message.
    Room,
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Held,
    /// By so many readers, which are not recorded.
    Read(u32),
    /// The owner died, and no task has acquired it since.
    OwnerDied,
    /// Released without repair, which is permanent.
    Unusable,
    /// The count: so many tasks may obtain it.
    Count(u64),
    /// The number of messages, and the capacity.
    Depth {
        messages: u32,
        capacity: u32,
    },
    /// Nothing is known.
    Unknown,
}

/// The object that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classified {
    /// Where it begins.
    pub(crate) base: u64,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    /// Its ID in the PID namespace of its users; of a region lock the owner's slot.
    pub(crate) owner: Option<u32>,
    pub(crate) role: Role,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pthread {
                robust,
                inherit,
                ceiling,
            } => match (robust, inherit, ceiling) {
                (false, false, false) => "pthread mutex",
                (false, true, _) => "pthread PI mutex",
                (false, false, true) => "pthread ceiling mutex",
                (true, false, false) => "pthread robust mutex",
                (true, true, _) => "pthread robust PI mutex",
                (true, false, true) => "pthread robust ceiling mutex",
            },
            Self::PthreadRwLock => "pthread rwlock",
            Self::PthreadCondvar => "pthread condvar",
            Self::PosixSemaphore => "POSIX semaphore",
            Self::ThreadEnd => "end of a thread",
            Self::Robust => "robust mutex",
            Self::PiWord => "PI futex",
            Self::OwnedWord => "futex with owner",
            Self::Mutex => "mutex that records no owner",
            Self::Word => "futex",
            Self::InRegion => "region mutex",
            Self::RegionLock => "lock of a region's tables",
            Self::Semaphore(S::Counting) => "counting semaphore",
            Self::Semaphore(S::SimpleBinary) => "simple binary semaphore",
            Self::Semaphore(S::Binary) => "binary semaphore",
            Self::Semaphore(S::Ceiling) => "ceiling semaphore",
            Self::Semaphore(S::Inherit) => "inheriting semaphore",
            Self::Semaphore(_) => "semaphore",
            Self::PriorityMutex => "priority mutex",
            Self::Queue => "message queue",
            Self::Events => "events",
            Self::Checked(kind, _) => kind.name(),
        }
    }

    /// Whether a task that waits for it waits for an owner, if one is recorded.
    pub(crate) fn is_lock(self) -> bool {
        if let Self::Checked(kind, _) = self {
            return kind.has_owner() || kind == hook::Kind::Join;
        }
        !matches!(
            self,
            Self::PthreadCondvar
                | Self::PosixSemaphore
                | Self::Word
                | Self::Queue
                | Self::Events
                | Self::Semaphore(S::Counting | S::SimpleBinary)
        )
    }

    /// Whether the other of two kinds that were determined for one object is the more specific one.
    pub(crate) fn is_less_specific_than(self, other: Self) -> bool {
        let weight = |kind: Self| match kind {
            Self::Word => 0,
            Self::Mutex => 1,
            Self::Checked(..) => 2,
            Self::OwnedWord | Self::PiWord => 3,
            _ => 4,
        };
        weight(self) < weight(other)
    }
}

/// Classifies the word of a sleeping thread. `is_thread` says whether a number is the ID of a thread that could own what
/// that thread waits for.
pub(crate) fn classify(
    sleep: &Sleep,
    memory: &Memory,
    is_thread: &dyn Fn(u32) -> bool,
) -> Classified {
    let at = sleep.address;
    let word = memory.u32(at).unwrap_or(0);
    let plain = Classified {
        base: at,
        kind: Kind::Word,
        state: State::Unknown,
        owner: None,
        role: Role::Event,
    };
    match sleep.call {
        Call::LockPi => pthread_mutex(at, sleep.private, memory, is_thread)
            .filter(|found| matches!(found.kind, Kind::Pthread { inherit: true, .. }))
            .or_else(|| own_robust(at, memory, word))
            .unwrap_or_else(|| owned(at, Kind::PiWord, word)),
        Call::RequeuePi => condvar(sleep, memory).unwrap_or(plain),
        Call::Wait | Call::WaitMany => {
            let tid = word & TID_MASK;
            if word == sleep.expected && word == tid && !sleep.private && is_thread(word) {
                return Classified {
                    kind: Kind::ThreadEnd,
                    state: State::Held,
                    owner: Some(word),
                    ..plain
                };
            }
            let robust = sleep.expected & WAITERS != 0;
            let mutex = pthread_mutex(at, sleep.private, memory, is_thread)
                .or_else(|| by_second_word(sleep, memory, is_thread))
                .filter(|found| matches!(found.kind, Kind::Pthread { robust: r, inherit: false, .. } if r == robust));
            if let Some(found) = mutex {
                return found;
            }
            if robust {
                if let Some(found) = own_robust(at, memory, word) {
                    return found;
                }
                if sleep.expected & TID_MASK != 0 && is_thread(sleep.expected & TID_MASK) {
                    return owned(at, Kind::OwnedWord, word);
                }
            }
            condvar(sleep, memory)
                .or_else(|| rwlock(sleep, memory, is_thread))
                .or_else(|| semaphore(sleep, memory))
                .unwrap_or(if sleep.expected == 2 {
                    Classified {
                        kind: Kind::Mutex,
                        state: if word == 0 { State::Free } else { State::Held },
                        role: Role::Exclusive,
                        ..plain
                    }
                } else {
                    plain
                })
        }
    }
}

/// Classifies a lock on a thread's robust list.
pub(crate) fn classify_held(at: u64, memory: &Memory) -> Option<Classified> {
    let word = memory.u32(at)?;
    pthread_mutex(at, false, memory, &|_| true)
        .or_else(|| pthread_mutex(at, true, memory, &|_| true))
        .filter(|found| matches!(found.kind, Kind::Pthread { robust: true, .. }))
        .or_else(|| own_robust(at, memory, word))
}

fn owned(base: u64, kind: Kind, word: u32) -> Classified {
    let (state, owner) = by_word(word);
    Classified {
        base,
        kind,
        state,
        owner,
        role: Role::Exclusive,
    }
}

/// The state and owner in a word of the kernel's format.
fn by_word(word: u32) -> (State, Option<u32>) {
    match word & TID_MASK {
        0 if word & OWNER_DIED != 0 => (State::OwnerDied, None),
        0 => (State::Free, None),
        TID_MASK => (State::Unusable, None),
        tid => (State::Held, Some(tid)),
    }
}

fn pthread_mutex(
    at: u64,
    private: bool,
    memory: &Memory,
    is_thread: &dyn Fn(u32) -> bool,
) -> Option<Classified> {
    /// glibc's owner value for a robust mutex that is unrecoverable, or still inconsistent.
    const INCONSISTENT: u32 = 0x7fff_ffff;
    const NOT_RECOVERABLE: u32 = 0x7fff_fffe;
    let bytes: [u8; MUTEX] = memory.read(at)?;
    let (word, owner, kind) = (u32_at(&bytes, 0), u32_at(&bytes, 8), u32_at(&bytes, 16));
    let (robust, inherit, ceiling) = (kind & ROBUST != 0, kind & INHERIT != 0, kind & CEILING != 0);
    let by_kernel = robust || inherit;
    // A replaced mutex is a plain one.
    let is_plain = kind & (ROBUST | INHERIT | CEILING | PROCESS_SHARED) == 0;
    let known = if is_plain { KIND | REPLACED } else { KIND };
    if kind & !known != 0
        || (inherit && ceiling)
        || (!robust && private != (kind & PROCESS_SHARED == 0))
    {
        return None;
    }
    let (state, tid) = match owner {
        _ if by_kernel && word & TID_MASK == 0 => by_word(word),
        NOT_RECOVERABLE if by_kernel => (State::Unusable, None),
        INCONSISTENT if by_kernel => by_word(word),
        // A nested robust lock of this library has no owner field here.
        owner if by_kernel && owner != word & TID_MASK && robust => return None,
        // The kernel has just made another thread the owner, which has not stored its ID yet.
        _ if by_kernel => by_word(word),
        owner => (State::Held, Some(owner)),
    };
    // An owner that has ended is accepted if all other conditions hold.
    let has_users = u32_at(&bytes, 12) >= 1;
    let is_whole = has_users && word != 0 && bytes[24..].iter().all(|byte| *byte == 0);
    if !by_kernel && !tid.is_some_and(|tid| is_thread(tid) || (is_whole && is_id(tid))) {
        return None;
    }
    Some(Classified {
        base: at,
        kind: Kind::Pthread {
            robust,
            inherit,
            ceiling,
        },
        state,
        owner: tid,
        role: Role::Exclusive,
    })
}

/// A replaced mutex whose lock is another word.
fn by_second_word(
    sleep: &Sleep,
    memory: &Memory,
    is_thread: &dyn Fn(u32) -> bool,
) -> Option<Classified> {
    let base = sleep.address.checked_sub(SECOND)?;
    let kind = memory.u32(base.checked_add(16)?)?;
    let mutex = pthread_mutex(base, sleep.private, memory, is_thread);
    mutex.filter(|_| kind & SECOND_WORD != 0)
}

/// Whether the number is a possible thread ID.
fn is_id(tid: u32) -> bool {
    (1..=1 << 22).contains(&tid)
}

fn own_robust(at: u64, memory: &Memory, word: u32) -> Option<Classified> {
    let bytes: [u8; MUTEX] = memory.read(at)?;
    let is_ours = u32_at(&bytes, 16) & !AT_END == ROBUST && u32_at(&bytes, 4) <= MOST_STATE;
    is_ours.then(|| {
        let found = owned(at, Kind::Robust, word);
        match u32_at(&bytes, 4) {
            MOST_STATE => Classified {
                state: State::Unusable,
                ..found
            },
            _ => found,
        }
    })
}

/// `wseq`, `g1_start`, `g_refs[2]`, `g_size[2]`, `g1_orig_size`, `wrefs`, `g_signals[2]`; threads sleep on the last
/// two.
fn condvar(sleep: &Sleep, memory: &Memory) -> Option<Classified> {
    const SIGNALS: u64 = 40;
    (0..2u64).find_map(|group| {
        let base = sleep.address.checked_sub(SIGNALS + 4 * group)?;
        let bytes: [u8; 48] = memory.read(base)?;
        let (sequence, start) = (u64_at(&bytes, 0) >> 1, u64_at(&bytes, 8) >> 1);
        let flags = u32_at(&bytes, 36);
        let waiters = u64::from(flags >> 3);
        let in_groups = [16, 20].map(|at| u64::from(u32_at(&bytes, at) >> 1));
        let fits = (1..MOST_WAITERS).contains(&waiters)
            && sequence >= waiters
            && start <= sequence
            // glibc 2.41 and later do not count them.
            && (in_groups == [0, 0] || in_groups[group as usize] > 0)
            && in_groups.iter().sum::<u64>() <= waiters
            && (flags & 1 == 0) == sleep.private;
        fits.then_some(Classified {
            base,
            kind: Kind::PthreadCondvar,
            state: State::Unknown,
            owner: None,
            role: Role::Event,
        })
    })
}

/// `readers`, `writers`, `wrphase_futex`, `writers_futex`, two unused words, `cur_writer`, `shared`, …, `flags` at +48.
/// Threads sleep on the third and the fourth.
fn rwlock(sleep: &Sleep, memory: &Memory, is_thread: &dyn Fn(u32) -> bool) -> Option<Classified> {
    const WRITE_PHASE: u32 = 1;
    const WRITE_LOCKED: u32 = 2;
    const READERS_SHIFT: u32 = 3;
    const MOST_FLAGS: u32 = 2;
    // The expected value is 0 or 1, plus the flag for sleepers.
    if sleep.expected & !1 != 2 {
        return None;
    }
    [8, 12].into_iter().find_map(|offset| {
        let base = sleep.address.checked_sub(offset)?;
        let bytes: [u8; 56] = memory.read(base)?;
        let (readers, writer) = (u32_at(&bytes, 0), u32_at(&bytes, 24));
        let shared = u32_at(&bytes, 28);
        let fits = u64_at(&bytes, 16) == 0
            && u64_at(&bytes, 40) == 0
            && u32_at(&bytes, 48) <= MOST_FLAGS
            && shared <= 1
            && (shared == 0) == sleep.private
            && readers != 0
            && (writer == 0 || is_thread(writer));
        let written = readers & (WRITE_PHASE | WRITE_LOCKED) == WRITE_PHASE | WRITE_LOCKED;
        fits.then_some(Classified {
            base,
            kind: Kind::PthreadRwLock,
            state: match readers >> READERS_SHIFT {
                _ if written => State::Held,
                0 => State::Free,
                readers => State::Read(readers),
            },
            owner: Some(writer).filter(|writer| written && *writer != 0),
            // Readers wait for the phase to change; so does one of the writers, for which this is only a guess.
            role: if offset == 12 || !written {
                Role::Exclusive
            } else {
                Role::Shared
            },
        })
    })
}

/// The value, the number of waiters, `private`, unused.
fn semaphore(sleep: &Sleep, memory: &Memory) -> Option<Classified> {
    let bytes: [u8; 16] = memory.read(sleep.address)?;
    let waiters = u64::from(u32_at(&bytes, 4));
    let fits = sleep.expected == 0
        && (1..MOST_WAITERS).contains(&waiters)
        && u32_at(&bytes, 8) == if sleep.private { 0 } else { PROCESS_SHARED }
        && u32_at(&bytes, 12) == 0;
    fits.then(|| Classified {
        base: sleep.address,
        kind: Kind::PosixSemaphore,
        state: State::Count(u32_at(&bytes, 0).into()),
        owner: None,
        role: Role::Event,
    })
}

#[cfg(test)]
mod tests;
