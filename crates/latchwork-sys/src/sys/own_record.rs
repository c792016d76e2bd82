//! Where a thread finds its record: one pointer for each thread, two instructions away. Beside it are
//! statistics of the thread's latest waits, also for a thread without a record.
//!
//! `thread_local!` in a library compiles to the general access to such a variable. In a program the linker
//! leaves four instructions of it, two of them loads of which one depends on the other (in a shared library, a
//! call). A lock's compare-and-swap lets no load pass it, so each access is waited for, twice in a pair of lock
//! and unlock. So the variable is defined here by hand, with the initial-exec model: one load of its offset and
//! one relative to the thread pointer.
//!
//! What `each_thread.rs` says of where that is done, and of the constraints, applies to this variable, too, except that
//! it does not begin with zeros. The C interface's inline functions access it by that model: so in builds for C it is
//! defined by hand with musl, too, and a shared library of that build cannot be loaded with `dlopen` there.
#![allow(unsafe_code)]

use super::each_thread::each_thread;
use super::thread::RECORD_BYTES;
use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;

/// Statistics of a thread's latest waits for locks, over all locks.
pub struct Habits {
    pub crowd: Crowd,
    /// Locks stolen (acquired past the queue) since the thread last queued.
    pub steals: Cell<u32>,
    /// The coarse time from which the thread yields again, since a yield has lasted long.
    pub yields_from: Cell<u64>,
    /// The thread had `SCHED_DEADLINE` when a yield was long.
    pub never_yields: Cell<bool>,
    /// Waits for a peer in which the thread has yielded at once, since it last tried not to.
    pub turns: Cell<u8>,
    /// Further waits that make no long polls, since long polls were in vain.
    pub short_polls: Cell<u8>,
    /// How many long polls in a row were in vain, up to a limit.
    pub poll_doubt: Cell<u8>,
    /// Further waits for region locks that begin with a long nap, since a sleep ended by its time limit beside another owner.
    pub long_waits: Cell<u32>,
    /// For locks by their addresses.
    pub accounts: [Account; PLACES],
}

/// The latest waits for the locks of one place that are not yet added to what the process has learned.
pub struct Account {
    /// Of which group of locks the waits were, and how they were made; see `backoff/learned.rs`.
    pub group: Cell<u32>,
    pub state: Cell<u32>,
    pub waits: Cell<u32>,
    /// Waits without a sleep.
    pub without_sleep: Cell<u32>,
    /// Ticks from the end of a wait to the beginning of the next.
    pub worked: Cell<u32>,
    /// Ticks lost to polls and sleeps.
    pub lost: Cell<u32>,
    /// The processor's time counter at the end of the latest wait.
    pub ended: Cell<u64>,
}

/// How often a thread finds its locks held by others (a collision), and what it does then.
pub struct Crowd {
    /// Collisions until the end of the phase.
    pub left: Cell<u32>,
    pub phase: Cell<Phase>,
    /// Whether the latest interval between two polls ended with a yield.
    pub has_yielded: Cell<bool>,
    /// Waits of the phase that ended with a yield: the owner ran then, and released the lock.
    pub by_yield: Cell<u32>,
    /// The thread's count of sleeps at the beginning of the phase.
    pub sleeps: Cell<u64>,
    /// How often in a row rests did not pay.
    pub doubt: Cell<u32>,
    /// The processor's time counter at the beginning of the phase.
    pub began: Cell<u64>,
    /// Ticks of waits in the phase.
    pub waited: Cell<u64>,
}

/// What a thread does at a collision, before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It counts.
    Counts,
    /// It rests.
    Rests,
    /// Nothing: rests did not pay.
    Declines,
}

/// The number of entries by which a thread distinguishes locks.
pub const PLACES: usize = 8;

each_thread! {
    static HABITS: Habits = Habits { crowd: Crowd { left: Cell::new(0), phase: Cell::new(Phase::Counts), has_yielded: Cell::new(false), by_yield: Cell::new(0), sleeps: Cell::new(0), doubt: Cell::new(0), began: Cell::new(0), waited: Cell::new(0) }, steals: Cell::new(0), yields_from: Cell::new(0), never_yields: Cell::new(false), turns: Cell::new(0), short_polls: Cell::new(0), poll_doubt: Cell::new(0), long_waits: Cell::new(0), accounts: [const { Account { group: Cell::new(0), state: Cell::new(0), waits: Cell::new(0), without_sleep: Cell::new(0), worked: Cell::new(0), lost: Cell::new(0), ended: Cell::new(0) } }; PLACES] };
}

/// Runs a function with the calling thread's statistics.
#[inline]
pub fn with_habits<R>(use_them: impl FnOnce(&Habits) -> R) -> R {
    HABITS.with(use_them)
}

/// The record of a thread that has none: zeros.
#[repr(C, align(64))]
struct NoRecord(UnsafeCell<[u8; RECORD_BYTES]>);
// SAFETY: no code writes it.
unsafe impl Sync for NoRecord {}
static NO_RECORD: NoRecord = NoRecord(UnsafeCell::new([0; RECORD_BYTES]));

/// The pointer that [`get`] returns in a thread that has set none.
#[inline]
pub fn no_record() -> NonNull<u8> {
    NonNull::from(&NO_RECORD).cast()
}

#[cfg(all(
    any(target_env = "gnu", all(target_env = "musl", feature = "foreign")),
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod variable {
    use super::{NO_RECORD, NonNull};
    use core::arch::{asm, global_asm};

    macro_rules! name {
        () => {
            crate::sys::each_thread::symbol!(record)
        };
    }

    /// The variable's name in the C header: part of a fixed interface, and visible to the linker.
    #[cfg(feature = "foreign")]
    macro_rules! name_for_c {
        () => {
            concat!(
                ".globl lw_this_task\n",
                ".type lw_this_task,%object\n",
                ".size lw_this_task,8\n",
                "lw_this_task:\n"
            )
        };
    }
    #[cfg(not(feature = "foreign"))]
    macro_rules! name_for_c {
        () => {
            ""
        };
    }

    // The initial value in each thread.
    global_asm!(
        concat!(".pushsection .tdata.", name!(), ",\"awT\",%progbits"),
        ".p2align 3",
        concat!(".globl ", name!()),
        concat!(".hidden ", name!()),
        concat!(".type ", name!(), ",%object"),
        concat!(".size ", name!(), ",8"),
        name_for_c!(),
        concat!(name!(), ": .quad {no_record}"),
        ".popsection",
        no_record = sym NO_RECORD,
    );

    #[inline(always)]
    pub fn get() -> NonNull<u8> {
        let record: *mut u8;
        // SAFETY: reads the calling thread's copy of the variable. (No function continues in another thread
        // than it began in, so the compiler may merge two reads, unless memory is written in between.)
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                concat!("mov {record}, qword ptr [rip + ", name!(), "@GOTTPOFF]"),
                "mov {record}, qword ptr fs:[{record}]",
                record = out(reg) record,
                options(pure, readonly, nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                concat!("adrp {record}, :gottprel:", name!()),
                concat!("ldr {record}, [{record}, :gottprel_lo12:", name!(), "]"),
                "mrs {pointer}, tpidr_el0",
                "ldr {record}, [{pointer}, {record}]",
                record = out(reg) record,
                pointer = out(reg) _,
                options(pure, readonly, nostack, preserves_flags),
            );
            // SAFETY: the value is `&NO_RECORD`, or the argument of `set`: never null.
            NonNull::new_unchecked(record)
        }
    }

    /// Sets the pointer that [`get`] returns in this thread.
    ///
    /// # Safety
    /// It points at `RECORD_BYTES` of a record, all zeros at first, which stay mapped until another pointer is set.
    pub unsafe fn set(record: NonNull<u8>) {
        // SAFETY: writes the calling thread's copy of the variable.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                concat!("mov {offset}, qword ptr [rip + ", name!(), "@GOTTPOFF]"),
                "mov qword ptr fs:[{offset}], {record}",
                offset = out(reg) _,
                record = in(reg) record.as_ptr(),
                options(nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                concat!("adrp {offset}, :gottprel:", name!()),
                concat!("ldr {offset}, [{offset}, :gottprel_lo12:", name!(), "]"),
                "mrs {pointer}, tpidr_el0",
                "str {record}, [{pointer}, {offset}]",
                offset = out(reg) _,
                pointer = out(reg) _,
                record = in(reg) record.as_ptr(),
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(
    any(target_env = "gnu", all(target_env = "musl", feature = "foreign")),
    not(miri),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod variable {
    use super::{NonNull, no_record};
    use core::cell::Cell;

    thread_local! {
        static RECORD: Cell<Option<NonNull<u8>>> = const { Cell::new(None) };
    }

    #[inline]
    pub fn get() -> NonNull<u8> {
        RECORD.with(Cell::get).unwrap_or_else(no_record)
    }

    /// Sets the pointer that [`get`] returns in this thread.
    ///
    /// # Safety
    /// It points at `RECORD_BYTES` of a record, all zeros at first, which stay mapped until another pointer is set.
    pub unsafe fn set(record: NonNull<u8>) {
        RECORD.with(|cell| cell.set(Some(record)));
    }
}

pub use variable::{get, set};
