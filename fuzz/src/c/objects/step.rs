//! A call with its arguments.

use super::ROOM;
use arbitrary::Arbitrary;

/// The words at the end of each step say which pointers are null: one bit for each.
#[derive(Arbitrary, Debug)]
pub enum Step {
    Create {
        bytes: u64,
        tasks: u32,
        names: u32,
        mode: u32,
        flags: u32,
        label: Vec<u8>,
        null: u8,
    },
    Attach {
        name: Vec<u8>,
        flags: u32,
        null: u8,
    },
    AttachFd {
        fd: i32,
        own: bool,
        flags: u32,
    },
    Ask {
        null: u8,
    },
    Join {
        name: Vec<u8>,
        null: u8,
    },
    Alloc {
        bytes: u64,
        align: u8,
        how: u8,
        null: u8,
    },
    Free {
        which: u8,
    },
    Keep {
        which: u8,
        shift: u16,
        null: u8,
    },
    Trim {
        null: u8,
    },
    Object {
        name: Vec<u8>,
        kind: u8,
        bytes: Size,
        null: u8,
    },
    Find {
        name: Vec<u8>,
        kind: u8,
        bytes: Size,
        null: u8,
    },
    Remove {
        name: Vec<u8>,
        kind: u8,
        bytes: Size,
        null: u8,
    },
    Queue {
        name: Vec<u8>,
        capacity: u32,
        longest: u32,
        order: u32,
        null: u8,
    },
    QueueEnd {
        closes: bool,
        null: u8,
    },
    State {
        null: u8,
    },
    Send {
        bytes: Size,
        priority: u32,
        time: (i64, i64),
        how: u8,
        null: u8,
    },
    Receive {
        room: u16,
        clock: i32,
        time: (i64, i64),
        tries: bool,
        null: u8,
    },
    Reserve {
        priority: u32,
        null: u8,
    },
    Hold {
        null: u8,
    },
    End {
        how: u8,
        bytes: Size,
        null: u8,
    },
    SendBlock {
        which: u8,
        bytes: Size,
        shift: u16,
        priority: u32,
        null: u8,
    },
    ReceiveBlock {
        null: u8,
    },
    Batch {
        bytes: [u8; 3],
        count: u8,
        priority: u32,
        null: u8,
    },
    HoldBatch {
        most: u8,
        gives_back: bool,
        null: u8,
    },
    Clear {
        null: u8,
    },
}

#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Size {
    Few(u8),
    Any(u64),
}

impl Size {
    pub fn get(self) -> usize {
        match self {
            Self::Few(bytes) => bytes.into(),
            Self::Any(bytes) => bytes as usize,
        }
    }

    /// A size that a buffer of this process may have: as many, or more than any queue takes.
    pub fn of_buffer(self) -> usize {
        match self.get() {
            bytes if bytes > 1 << 31 => bytes,
            bytes => bytes % (ROOM + 1),
        }
    }
}
