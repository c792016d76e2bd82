//! The live view: what each task of the system waits for, and who owns it, in unprepared programs.
//!
//! | source | information |
//! | --- | --- |
//! | `/proc/PID/task/TID/syscall` | the word that a blocked thread sleeps on, and how |
//! | `/proc/PID/mem` | the bytes around it: what the word belongs to, and its owner |
//! | `get_robust_list` | the robust locks that a thread holds, even without waiters |
//! | `/proc/PID/maps` | the file behind a word, which identifies it in other processes; the module of a static |
//! | `/proc/PID/task/TID/stat`, `schedstat`, `sched` | priority, own and lent; whether and when it ran |
//! | the regions' tables | semaphores, queues, events: owners, and waiters in their order |
//!
//! The first three need a debugger's permissions: the same user, or `CAP_SYS_PTRACE`. Everything is only read; no
//! process is stopped or waited for, and nothing is written: a view does no harm, even if it is killed.
//!
//! What is read is not of one instant, and may be arbitrary: every number is bounded before it is used, and every
//! address leads to a read that can fail. Cycles of waits are read twice (see `graph/cycle.rs`).
//!
//! If the kernel blocks access to a process's address space (the process sleeps uninterruptibly in a page fault, say),
//! a view may have to wait, as `ps` does.
//!
//! *Not visible:* locks without waiters that are not robust; readers of a pthread reader/writer lock; the task that
//! would signal a condition variable or a semaphore; locks of green threads.

mod checked;
mod clock;
mod gather;
mod graph;
mod maps;
mod memory;
mod observer;
mod picture;
mod program;
mod region_mutex;
mod regions;
mod robust;
mod sleep;
mod symbols;
mod thread;
mod word;

pub(crate) use maps::{Mapping, Maps};
pub(crate) use observer::Observer;
#[cfg(test)]
pub(crate) use picture::Waiter;
pub(crate) use picture::{
    Absence, DEAD, Key, Kind, Location, Lock, Module, Picture, Report, Role, Spot, State, Task,
    UnseenOwner,
};
pub(crate) use program::{Program, demangled};
pub(crate) use symbols::Symbols;
pub(crate) use thread::own_namespace;

/// Takes one view of the whole system, as far as the caller's permissions allow.
pub(crate) fn view() -> Picture {
    Observer::default().view()
}
