//! The contestants: Latchwork's own, its rivals, and the system calls that measuring needs.

pub(crate) mod background;
pub(crate) mod code;
pub(crate) mod condvars;
pub(crate) mod dynamic;
mod error;
pub(crate) mod floor;
pub(crate) mod heap;
mod lock;
pub(crate) mod locks;
mod our_semaphores;
pub(crate) mod ours;
mod page;
pub(crate) mod process;
pub(crate) mod pthread;
pub(crate) mod queues;
mod raw;
pub(crate) mod rust;
pub(crate) mod rwlocks;
mod sched;
pub(crate) mod semaphore;
pub(crate) mod step;

use error::{broken, cvt, errno};
pub(crate) use lock::{Lock, RwLock, placed};
pub(crate) use page::SharedPage;
pub(crate) use raw::{Raw, RawLock};
#[cfg(test)]
pub(crate) use sched::yields_to_all;
pub(crate) use sched::{
    BELOW_CEILING, CEILING, burn, children_cpu_time, cpu_time, enter_fifo, libc_name, minor_faults,
    on_thread, pin_to, scheduler_class, sleep_until, voluntary_switches,
};
