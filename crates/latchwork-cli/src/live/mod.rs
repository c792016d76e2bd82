//! The live view: which tasks of the system wait for what, and who has it, in programs that nobody prepared.
//!
//! | from | comes |
//! | --- | --- |
//! | `/proc/PID/task/TID/syscall` | the word that a blocked thread sleeps on, and how |
//! | `/proc/PID/mem` | the bytes around: what the word is part of, and its owner |
//! | `get_robust_list` | the robust locks that a thread holds, also where nobody waits |
//! | `/proc/PID/maps` | the file behind a word, by which a chain goes on in other processes; the module of a static |
//! | `/proc/PID/task/TID/stat`, `schedstat`, `sched` | priority, own and lent; whether and when it ran |
//! | the regions' tables | semaphores, queues, events: owners, and who waits in which order |
//!
//! The first three need what a debugger needs: the same user, or `CAP_SYS_PTRACE`. All of it is read, nobody is
//! stopped or waited for, and nothing is written: a look harms nobody, whenever it is killed.
//!
//! What is read is not of one instant, and may be anything: every number is bounded before it is used, every address
//! leads to a read that can fail. Cycles of waits are looked at twice (see `graph.rs`).
//!
//! A process that the kernel keeps from giving up its address space (it sleeps uninterruptibly in a page fault, say)
//! can make a look wait, as it does `ps`.
//!
//! *Cannot be seen:* locks that nobody waits for and that are not robust; readers of a pthread reader/writer lock;
//! who would signal a condition variable or a semaphore; locks of green threads.

mod checked;
mod clock;
mod gather;
mod graph;
mod maps;
mod memory;
mod observer;
mod picture;
mod program;
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
    Key, Kind, Lock, Module, Picture, Place, Report, Role, Spot, State, Task,
};
pub(crate) use program::{Program, demangled};
pub(crate) use symbols::Symbols;

/// Looks at the whole system once, as far as the caller may.
pub(crate) fn look() -> Picture {
    Observer::default().look()
}
