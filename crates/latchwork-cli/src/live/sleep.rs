//! The words that a thread sleeps on, from `/proc/PID/task/TID/syscall`.
//!
//! *Restarted calls.* A thread that was stopped, or frozen, in a wait with a time limit continues in `restart_syscall`
//! afterwards. The kernel makes the thread execute the same instruction again, with another number in place of the
//! call's; the registers still contain the arguments of the first call. `restart_syscall` also continues sleeps and
//! polls. So its registers are used only if `wchan` says that the thread sleeps for a futex or, if that cannot be read,
//! if the thread's robust list announces the same word. (An announcement alone is not enough: a signal handler may
//! sleep while the code that it interrupted waits for a robust lock.) If neither is known, the wait is omitted.

use super::memory::{Memory, u32_at, u64_at};
use super::robust;
use super::thread::{self, Thread};

/// A word that a thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub(crate) address: u64,
    pub(crate) call: Call,
    /// Whether the kernel identifies the word by its address in this process, not by its file.
    pub(crate) private: bool,
    /// The expected value of the sleep. Meaningless where the kernel passes the word on.
    pub(crate) expected: u32,
    /// Whether the sleep has a time limit: it may be one of several for the same thing.
    pub(crate) is_limited: bool,
}

impl Sleep {
    /// Whether both sleep by the same call on the same word.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let essence = |sleep: &Self| (sleep.address, sleep.call, sleep.private);
        essence(self) == essence(other)
    }
}

/// How it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Until it is woken.
    Wait,
    /// As one of several words.
    WaitMany,
    /// Until the kernel makes it the word's owner.
    LockPi,
    /// Until it is woken, or requeued to a word that the kernel passes on.
    RequeuePi,
}

const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAIT_REQUEUE_PI: u64 = 11;
const FUTEX_LOCK_PI2: u64 = 13;
const FUTEX_PRIVATE: u64 = 128;
const FUTEX_COMMAND: u64 = 127;
/// For the newer calls: the size of the word, where 2 means 32 bits.
const FUTEX2_SIZE: u64 = 3;
const FUTEX2_U32: u64 = 2;
/// The most words of one call.
const WAITV_MOST: u64 = 128;
const WAITV_BYTES: usize = 24;
const SYS_FUTEX_WAIT: i64 = 455;

/// The words that a thread sleeps on; empty if it runs or does something else.
pub(crate) fn of(pid: u32, thread: &Thread, memory: &Memory) -> Vec<Sleep> {
    let line = thread.call.as_deref().unwrap_or_default();
    let mut words = parse(line, Some(memory));
    if !words.is_empty()
        && number(line) == Some(libc::SYS_restart_syscall)
        && !thread::sleeps_for_futex(pid, thread.tid)
    {
        let announced = robust::list(thread.tid, memory).and_then(|list| list.announced);
        words.retain(|word| Some(word.address) == announced);
    }
    words
}

/// The system call of a line of `syscall`.
fn number(line: &str) -> Option<i64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The words of a line of `syscall`. For a restarted call, only if it is a futex wait.
fn parse(line: &str, memory: Option<&Memory>) -> Vec<Sleep> {
    let Some(number) = number(line) else {
        return Vec::new();
    };
    let fields = line.split_ascii_whitespace().skip(1);
    let arguments: Vec<u64> = fields
        .map_while(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok())
        .collect();
    let Some(&[address, second, third, fourth, fifth]) = arguments.first_chunk() else {
        return Vec::new();
    };
    match number {
        // Of the futex waits, only these two are continued by `restart_syscall`.
        libc::SYS_restart_syscall
            if !matches!(second & FUTEX_COMMAND, FUTEX_WAIT | FUTEX_WAIT_BITSET) =>
        {
            Vec::new()
        }
        libc::SYS_futex | libc::SYS_restart_syscall => {
            let call = match second & FUTEX_COMMAND {
                FUTEX_WAIT | FUTEX_WAIT_BITSET => Call::Wait,
                FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Call::LockPi,
                FUTEX_WAIT_REQUEUE_PI => Call::RequeuePi,
                _ => return Vec::new(),
            };
            vec![Sleep {
                address,
                call,
                private: second & FUTEX_PRIVATE != 0,
                expected: third as u32,
                is_limited: fourth != 0,
            }]
        }
        SYS_FUTEX_WAIT if fourth & FUTEX2_SIZE == FUTEX2_U32 => vec![Sleep {
            address,
            call: Call::Wait,
            private: fourth & FUTEX_PRIVATE != 0,
            expected: second as u32,
            is_limited: fifth != 0,
        }],
        libc::SYS_futex_waitv => memory
            .and_then(|memory| many(memory, address, second, fourth != 0))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn many(memory: &Memory, array: u64, count: u64, is_limited: bool) -> Option<Vec<Sleep>> {
    let count = usize::try_from(count.min(WAITV_MOST)).ok()?;
    let mut bytes = vec![0; count * WAITV_BYTES];
    memory.fill(array, &mut bytes)?;
    let word = |entry: &[u8]| {
        let flags = u64::from(u32_at(entry, 16));
        (flags & FUTEX2_SIZE == FUTEX2_U32).then(|| Sleep {
            address: u64_at(entry, 8),
            call: Call::WaitMany,
            private: flags & FUTEX_PRIVATE != 0,
            expected: u64_at(entry, 0) as u32,
            is_limited,
        })
    };
    Some(bytes.chunks_exact(WAITV_BYTES).filter_map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_private_word_is_read() {
        let line = format!(
            "{} 0x7f10 0x189 0x2 0x0 0x0 0xffffffff 0x7ffc 0x7f00",
            libc::SYS_futex
        );
        assert_eq!(
            parse(&line, None),
            [Sleep {
                address: 0x7f10,
                call: Call::Wait,
                private: true,
                expected: 2,
                is_limited: false,
            }]
        );
    }

    #[test]
    fn a_wait_that_was_stopped_and_goes_on_is_read() {
        let arguments = "0x7f10 0x0 0x80000007 0x7fe0 0x0 0x0 0x7ffc 0x7f00";
        let [first, restarted] = [libc::SYS_futex, libc::SYS_restart_syscall]
            .map(|number| parse(&format!("{number} {arguments}"), None));
        assert!(first[0].is_limited, "{first:?}");
        assert_eq!(restarted, first);
    }

    #[test]
    fn other_system_calls_give_no_sleep() {
        for line in [
            "running",
            "",
            "-1 0x7ffc 0x7f00",
            "0 0x0 0x1 0x2 0x3",
            "202",
            "x y",
        ] {
            assert!(parse(line, None).is_empty(), "{line}");
        }
        let wake = format!("{} 0x7f10 0x81 0x1 0x0 0x0 0x0 0x0 0x0", libc::SYS_futex);
        assert!(parse(&wake, None).is_empty());
        // The kernel does not continue such a wait.
        let lock = libc::SYS_restart_syscall;
        let lock = format!("{lock} 0x7f10 0x86 0x0 0x7fe0 0x0 0x0 0x0 0x0");
        assert!(parse(&lock, None).is_empty());
    }
}
