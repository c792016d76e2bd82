//! How a program says where an operation begins and ends.
//!
//! A mark is the system call `getpid`, with two arguments that the kernel ignores: [`MAGIC`], and which mark it is. So a
//! mark does nothing without a tracer, needs no library, and each language can make one. `crashtest.h` makes them in C.

use crate::Call;

/// The first argument of a mark.
pub const MAGIC: u64 = 0x6c77_6372_6173_6874;

/// What a program says of itself; the numbers are a mark's second argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The operation begins behind this mark.
    Begin = 1,
    /// The operation has ended.
    End = 2,
    /// The repair of what a killed operation has left begins.
    RecoveryBegin = 3,
    /// The repair has ended.
    RecoveryEnd = 4,
}

impl Mark {
    /// The mark that a system call is, if it is one.
    #[must_use]
    pub fn of(call: Call) -> Option<Self> {
        if call.number != libc::SYS_getpid as u64 || call.arguments[0] != MAGIC {
            return None;
        }
        [
            Self::Begin,
            Self::End,
            Self::RecoveryBegin,
            Self::RecoveryEnd,
        ]
        .into_iter()
        .find(|mark| *mark as u64 == call.arguments[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_with_both_arguments_is_a_mark() {
        let call = |number: i64, first, second| Call {
            number: number as u64,
            arguments: [first, second],
        };
        assert_eq!(
            Mark::of(call(libc::SYS_getpid, MAGIC, 3)),
            Some(Mark::RecoveryBegin)
        );
        for other in [
            call(libc::SYS_getppid, MAGIC, 1),
            call(libc::SYS_getpid, MAGIC + 1, 1),
            call(libc::SYS_getpid, MAGIC, 0),
            call(libc::SYS_getpid, MAGIC, 5),
        ] {
            assert_eq!(Mark::of(other), None);
        }
    }
}
