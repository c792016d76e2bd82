//! The parameters of a row, and the words that its JSON uses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The parameters of a row; absent ones do not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// The length of the critical section, in pause instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// The number of named objects of a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// The number of regions that a process has mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<u32>,
    /// Size of a message, block or private array, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where the tasks may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The kind of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The scheduling class of the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched: Option<Sched>,
    /// Resident memory of the creating process, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_mib: Option<u64>,
    /// How many of 1,024 critical sections sleep for a microsecond instead of computing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleeps: Option<u32>,
    /// The share of readers, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_pct: Option<u32>,
    /// The direction in which messages flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The variant of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<Variant>,
    /// Whether lock checking was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Switch>,
    /// How many other programs spin at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<u32>,
    /// The quota of a control group for all tasks together, in per cent of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_pct: Option<u32>,
}

/// Implements `Display` with the word that the JSON uses.
macro_rules! words {
    ($type:ty { $($variant:ident => $word:literal),* $(,)? }) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $word),* })
            }
        }
    };
}

/// The unit of a row's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Operations in a second, of all tasks together.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// Bytes.
    Bytes,
    /// Machine instructions.
    Instructions,
}
words!(Unit {
    Ns => "ns",
    Us => "us",
    OpsPerSecond => "ops/s",
    Bytes => "bytes",
    Instructions => "instructions",
});

impl Unit {
    /// All units.
    pub const ALL: [Self; 5] = [
        Self::Ns,
        Self::Us,
        Self::OpsPerSecond,
        Self::Bytes,
        Self::Instructions,
    ];

    /// The better direction for a figure in this unit.
    #[must_use]
    pub fn better(self) -> Better {
        match self {
            Self::OpsPerSecond => Better::Higher,
            Self::Ns | Self::Us | Self::Bytes | Self::Instructions => Better::Lower,
        }
    }
}

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better: times.
    Lower,
    /// More is better: rates.
    Higher,
}
words!(Better { Lower => "lower", Higher => "higher" });

/// Where the tasks of a row may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All on one CPU.
    SameCpu,
    /// Each on a CPU of its own.
    DifferentCpu,
    /// Wherever the scheduler puts them.
    Free,
}
words!(Placement { SameCpu => "same-cpu", DifferentCpu => "different-cpu", Free => "free" });

/// The kind of a row's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Threads of one process.
    Threads,
    /// Forked processes.
    Processes,
    /// Coprocs.
    Coprocs,
}
words!(Kind { Threads => "threads", Processes => "processes", Coprocs => "coprocs" });

/// The scheduling class of the tasks of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sched {
    /// SCHED_OTHER.
    Other,
    /// SCHED_FIFO.
    Fifo,
}
words!(Sched { Other => "other", Fifo => "fifo" });

/// The direction in which messages flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In one direction, as fast as possible.
    Stream,
    /// Round trips, one at a time.
    RoundTrip,
}
words!(Mode { Stream => "stream", RoundTrip => "round-trip" });

/// The variants of a scenario that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// heap: a block is freed before the next is allocated.
    Pair,
    /// heap: 64 blocks are allocated, then freed in reverse.
    Batch,
    /// call-overhead: some instructions lie between a pair and the next.
    Apart,
    /// spawn: only as long as the pool of ready coprocs lasts.
    PoolLasts,
    /// spawn: continuously, including the refills of the pool.
    Sustained,
    /// inversion: only the high-priority task and the low-priority one.
    Undisturbed,
    /// inversion: with a load of medium priority.
    Disturbed,
    /// message-throughput: the sender computes each byte, the receiver adds up all of them.
    Computed,
    /// check-overhead: sysbench, threads that use thousands of mutexes, with work in between.
    SysbenchMutex,
    /// check-overhead: sysbench, threads that use few mutexes, without other work.
    SysbenchContended,
    /// check-overhead: sysbench, threads that yield in their critical sections.
    SysbenchThreads,
    /// check-overhead: memcached, with eight clients.
    Memcached,
    /// check-overhead: Redis, with eight clients.
    Redis,
    /// check-overhead: Python, with threads that use a queue.
    Python,
    /// check-overhead: SQLite's shell, sorting with helper threads.
    Sqlite,
    /// check-overhead: stress-ng's mutexes.
    StressMutex,
    /// check-overhead: stress-ng's semaphores.
    StressSem,
    /// message-throughput: all tasks but one send.
    ManyToOne,
    /// message-throughput: all tasks but one receive.
    OneToMany,
    /// message-throughput: half of the tasks send, half receive.
    ManyToMany,
    /// footprint: the lock itself.
    Size,
    /// footprint: the code of the fast paths.
    Text,
    /// footprint: the instructions in that code.
    Instructions,
    /// footprint: the instructions executed, those of libraries included.
    Executed,
    /// footprint: code and constants of a whole program.
    ProgramText,
    /// footprint: initialised data of a whole program.
    ProgramData,
    /// footprint: zeroed data of a whole program.
    ProgramBss,
    /// fine-grained: an event that a task sends to itself.
    EventSelf,
    /// fine-grained: events of many tasks to one.
    EventManyToOne,
    /// fine-grained: a mutex for each task.
    PrivateMutex,
    /// fine-grained: one mutex for all tasks.
    ContestedMutex,
    /// fine-grained: a message that a task sends to itself.
    MessageSelf,
    /// fine-grained: messages of many tasks to one.
    MessageManyToOne,
    /// busy: a message sent, and one received.
    Message,
    /// region-scale: a thread joins a region, and leaves it.
    JoinAndLeave,
    /// region-scale: a dead task is settled.
    Sweep,
    /// region-scale: from the kill of a lock's owner until a waiter has the lock.
    Recovery,
    /// region-scale: a waiter's processor time while it sleeps.
    Asleep,
    /// region-scale: a named object is looked up.
    Find,
    /// region-scale: a named object is made and removed.
    MakeAndRemove,
    /// region-scale: a named semaphore is made and deleted.
    MakeSemaphore,
    /// region-scale: all regions of the system are inspected, as by `latchwork ps`.
    Survey,
    /// region-scale: a region is made and dropped.
    MakeRegion,
}
words!(Variant {
    Pair => "pair",
    Batch => "batch",
    Apart => "apart",
    PoolLasts => "pool-lasts",
    Sustained => "sustained",
    Undisturbed => "undisturbed",
    Disturbed => "disturbed",
    Computed => "computed",
    SysbenchMutex => "sysbench-mutex",
    SysbenchContended => "sysbench-contended",
    SysbenchThreads => "sysbench-threads",
    Memcached => "memcached",
    Redis => "redis",
    Python => "python",
    Sqlite => "sqlite",
    StressMutex => "stress-mutex",
    StressSem => "stress-sem",
    ManyToOne => "many-to-one",
    OneToMany => "one-to-many",
    ManyToMany => "many-to-many",
    Size => "size",
    Text => "text",
    Instructions => "instructions",
    Executed => "executed",
    ProgramText => "program-text",
    ProgramData => "program-data",
    ProgramBss => "program-bss",
    EventSelf => "event-self",
    EventManyToOne => "event-many-to-one",
    PrivateMutex => "private-mutex",
    ContestedMutex => "contested-mutex",
    MessageSelf => "message-self",
    MessageManyToOne => "message-many-to-one",
    Message => "message",
    JoinAndLeave => "join-and-leave",
    Sweep => "sweep",
    Recovery => "recovery",
    Asleep => "asleep",
    Find => "find",
    MakeAndRemove => "make-and-remove",
    MakeSemaphore => "make-semaphore",
    Survey => "survey",
    MakeRegion => "make-region",
});

/// Whether a feature was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}
words!(Switch { On => "on", Off => "off" });
