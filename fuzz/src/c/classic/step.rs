//! A directive with its arguments.

use arbitrary::Arbitrary;

/// An id: one that a call has returned, changed or not, or any number.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Id {
    Known(u8),
    Near(u8, i8),
    OtherClass(u8, u8),
    Any(u32),
    Zero,
}

/// Where a result goes.
#[derive(Arbitrary, Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    Variable,
    Null,
}

/// How many bytes a buffer is said to have.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Bytes {
    Few(u8),
    Many(u16),
    Most,
    Any(u64),
}

#[derive(Arbitrary, Debug)]
pub enum Step {
    SemaphoreCreate {
        name: u8,
        count: Count,
        attributes: u32,
        ceiling: u32,
        to: To,
    },
    SemaphoreIdent {
        name: u8,
        node: u32,
        to: To,
    },
    SemaphoreDelete(Id),
    SemaphoreObtain {
        id: Id,
        options: u32,
        timeout: u8,
    },
    SemaphoreRelease(Id),
    SemaphoreFlush(Id),
    SemaphoreSetPriority {
        id: Id,
        scheduler: Id,
        priority: u32,
        to: To,
    },
    EventSend {
        id: Id,
        events: u32,
        system: bool,
    },
    EventReceive {
        events: u32,
        options: u32,
        ticks: u8,
        to: To,
        system: bool,
    },
    Transient {
        id: Id,
        options: u32,
        what: u8,
    },
    QueueCreate {
        name: u8,
        count: Count,
        size: Bytes,
        attributes: u32,
        to: To,
    },
    QueueConstruct {
        name: u8,
        count: u8,
        size: u8,
        storage: Bytes,
        attributes: u32,
        null: u8,
    },
    QueueIdent {
        name: u8,
        node: u32,
        to: To,
    },
    QueueDelete(Id),
    Send {
        id: Id,
        size: Bytes,
        how: u8,
        to: To,
    },
    Receive {
        id: Id,
        options: u32,
        timeout: u8,
        to: To,
        buffer: To,
    },
    ReceiveInto {
        id: Id,
        room: u16,
        options: u32,
        timeout: u8,
        to: To,
        buffer: To,
    },
    Pending {
        id: Id,
        to: To,
    },
    Flush {
        id: Id,
        to: To,
    },
    TaskCreate {
        name: u8,
        priority: u32,
        stack: Bytes,
        modes: u32,
        to: To,
    },
    TaskIdent {
        name: u8,
        node: u32,
        to: To,
    },
    TaskStart {
        id: Id,
        to: To,
    },
    TaskDelete(Id),
    TaskSetPriority {
        id: Id,
        priority: u32,
        to: To,
    },
    TaskScheduler {
        id: Id,
        scheduler: Id,
        priority: u32,
        sets: bool,
        to: To,
    },
    TaskAffinity {
        id: Id,
        size: Bytes,
        set: u64,
        sets: bool,
        to: To,
    },
    WakeAfter(u8),
    Scheduler {
        id: Id,
        number: u32,
        size: Bytes,
        what: u8,
        to: To,
    },
    Ticks(u64),
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Count {
    Few(u8),
    Any(u32),
}

impl Count {
    pub fn get(self) -> u32 {
        match self {
            Self::Few(count) => count.into(),
            Self::Any(count) => count,
        }
    }
}
