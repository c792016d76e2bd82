//! All comparisons. A new scenario gets its own here; `tests.rs` checks that their contestants exist.

use super::contestants::{
    GLIBC_PI, GLIBC_ROBUST, INHERIT, OTHER_PLAIN, OTHER_QUEUES, PLAIN, PROGRAM, PROTOCOLS, QUEUES,
    REGION, ROBUST, WAIT_WAKE,
};
use super::{Question, Role, Who};
use crate::result::{Better, Kind, Mode, Params, Placement, Variant};

fn any(_: &Params) -> bool {
    true
}

fn same(params: &Params) -> Params {
    params.clone()
}

/// A comparison of ours with others, of the rows' own figures, in all cases.
const fn question(
    scenario: &'static str,
    about: &'static str,
    ours: Who,
    theirs: Who,
    which: fn(&Params) -> bool,
) -> Question {
    Question {
        scenario,
        about,
        ours,
        theirs,
        which,
        key: same,
        extra: None,
        role: Role::Verdict,
    }
}

/// The price of a feature.
const fn price(
    scenario: &'static str,
    about: &'static str,
    with: Who,
    without: Who,
    which: fn(&Params) -> bool,
) -> Question {
    let mut question = question(scenario, about, with, without, which);
    question.role = Role::Price;
    question
}

/// The same, by a further figure.
const fn by(mut question: Question, name: &'static str, better: Better) -> Question {
    question.extra = Some((name, better));
    question
}

/// The same, between rows with different parameters.
const fn across(mut question: Question, key: fn(&Params) -> Params) -> Question {
    question.key = key;
    question
}

fn is_on(params: &Params, placement: Placement) -> bool {
    params.placement == Some(placement)
}

fn without_case(params: &Params) -> Params {
    Params {
        case: None,
        ..params.clone()
    }
}

fn without_kind(params: &Params) -> Params {
    Params {
        kind: None,
        ..params.clone()
    }
}

fn computes(params: &Params) -> bool {
    params.sleeps.is_none_or(|sleeps| sleeps == 0)
}

fn sleeps(params: &Params) -> bool {
    !computes(params)
}

fn is_between_two(params: &Params) -> bool {
    params.tasks.is_none() && params.case.is_none()
}

fn is_size(params: &Params) -> bool {
    params.case == Some(Variant::Size)
}

fn is_executed(params: &Params) -> bool {
    params.case == Some(Variant::Executed)
}

fn is_small(params: &Params) -> bool {
    params.size.is_some_and(|size| size <= 4096)
}

fn is_large(params: &Params) -> bool {
    !is_small(params)
}

fn is_one_mutex(params: &Params) -> bool {
    params.case == Some(Variant::ContestedMutex)
}

fn is_message(params: &Params) -> bool {
    let cases = [Variant::MessageSelf, Variant::MessageManyToOne];
    params.case.is_some_and(|case| cases.contains(&case))
}

/// All comparisons, in the order of the table.
pub(in crate::report::html) static QUESTIONS: &[Question] = &[
    question(
        "call-overhead",
        "free mutex: lock and unlock",
        PLAIN,
        OTHER_PLAIN,
        any,
    ),
    question(
        "call-overhead",
        "free robust mutex: lock and unlock",
        ROBUST,
        GLIBC_ROBUST,
        any,
    ),
    question(
        "call-overhead",
        "free mutex of a region, against a robust one",
        REGION,
        GLIBC_ROBUST,
        any,
    ),
    question(
        "call-overhead",
        "free mutex with priority inheritance",
        INHERIT,
        GLIBC_PI,
        any,
    ),
    question(
        "call-overhead",
        "free robust mutex with priority inheritance",
        Who::Named(&["latchwork robust-inherit"]),
        Who::Named(&["glibc robust-PI"]),
        any,
    ),
    question(
        "call-overhead",
        "free mutex with a priority ceiling",
        Who::Named(&["latchwork protect"]),
        Who::Named(&["glibc PP"]),
        any,
    ),
    question(
        "call-overhead",
        "free semaphore: obtain and release",
        Who::Named(&["latchwork semaphore-counting"]),
        Who::Named(&["glibc sem", "sysv-sem"]),
        any,
    ),
    question(
        "wait-wakeup",
        "hand a lock over on one CPU",
        PLAIN,
        OTHER_PLAIN,
        |params| is_on(params, Placement::SameCpu),
    ),
    question(
        "wait-wakeup",
        "hand a lock over between CPUs",
        PLAIN,
        OTHER_PLAIN,
        |params| is_on(params, Placement::DifferentCpu),
    ),
    question(
        "wait-wakeup",
        "hand a robust lock over",
        ROBUST,
        GLIBC_ROBUST,
        any,
    ),
    question(
        "wait-wakeup",
        "hand a lock with priority inheritance over",
        INHERIT,
        GLIBC_PI,
        any,
    ),
    question(
        "inversion",
        "longest delay of a high-priority task, disturbed by a load",
        PROTOCOLS,
        Who::Named(&["glibc PI", "glibc PP"]),
        |params| params.case == Some(Variant::Disturbed),
    ),
    question(
        "donation",
        "an owner inherits a waiter's priority",
        Who::Ours,
        Who::Others,
        any,
    ),
    question(
        "broadcast",
        "wake all waiters of a condition",
        Who::Ours,
        Who::Others,
        any,
    ),
    question(
        "message-throughput",
        "stream of messages between processes",
        QUEUES,
        OTHER_QUEUES,
        |params| is_between_two(params) && params.mode == Some(Mode::Stream),
    ),
    question(
        "message-throughput",
        "round trip between CPUs",
        QUEUES,
        OTHER_QUEUES,
        |params| {
            is_between_two(params)
                && params.mode == Some(Mode::RoundTrip)
                && !is_on(params, Placement::SameCpu)
        },
    ),
    question(
        "message-throughput",
        "round trip on one CPU",
        QUEUES,
        OTHER_QUEUES,
        |params| {
            is_between_two(params)
                && params.mode == Some(Mode::RoundTrip)
                && is_on(params, Placement::SameCpu)
        },
    ),
    question(
        "message-throughput",
        "messages among several processes",
        QUEUES,
        OTHER_QUEUES,
        |params| params.tasks.is_some(),
    ),
    question(
        "futex-lock",
        "contended mutex: operations per second",
        PLAIN,
        OTHER_PLAIN,
        computes,
    ),
    by(
        question(
            "futex-lock",
            "contended mutex: operations per CPU second",
            PLAIN,
            OTHER_PLAIN,
            computes,
        ),
        "ops_per_cpu_second",
        Better::Higher,
    ),
    by(
        question(
            "futex-lock",
            "contended mutex: share of the slowest task",
            Who::Named(&["latchwork throughput"]),
            OTHER_PLAIN,
            any,
        ),
        "slowest_pct",
        Better::Higher,
    ),
    question(
        "futex-lock",
        "contended mutex whose owners sleep",
        PLAIN,
        OTHER_PLAIN,
        sleeps,
    ),
    question(
        "futex-lock",
        "contended mutex with priority inheritance",
        INHERIT,
        GLIBC_PI,
        computes,
    ),
    question(
        "futex-rwlock",
        "contended reader/writer lock",
        Who::Ours,
        Who::Others,
        any,
    ),
    question(
        "fine-grained",
        "one mutex for all tasks",
        WAIT_WAKE,
        OTHER_PLAIN,
        is_one_mutex,
    ),
    question(
        "fine-grained",
        "messages to oneself, and of many to one",
        QUEUES,
        OTHER_QUEUES,
        is_message,
    ),
    across(
        question(
            "context-switch",
            "context switch of coprocs, against processes",
            Who::Kind(Kind::Coprocs),
            Who::Kind(Kind::Processes),
            any,
        ),
        without_kind,
    ),
    across(
        question(
            "spawn",
            "start and join a process",
            Who::Named(&["latchwork coproc-clean", "latchwork coproc-pooled"]),
            Who::Named(&["fork", "posix_spawn"]),
            |params| params.case != Some(Variant::PoolLasts),
        ),
        without_case,
    ),
    across(
        question(
            "spawn",
            "start a process with a copy of the memory",
            Who::Named(&["latchwork coproc-snapshot"]),
            Who::Named(&["fork"]),
            any,
        ),
        without_case,
    ),
    question(
        "heap",
        "allocate and free up to 4 KiB",
        Who::Ours,
        Who::Others,
        is_small,
    ),
    question(
        "heap",
        "allocate and free more than 4 KiB",
        Who::Ours,
        Who::Others,
        is_large,
    ),
    question(
        "vfs",
        "files made under one mutex: loops per second",
        PLAIN,
        OTHER_PLAIN,
        any,
    ),
    by(
        question(
            "vfs",
            "files made under one mutex: loops per CPU time",
            PLAIN,
            OTHER_PLAIN,
            any,
        ),
        "loops_per_cpu_percent",
        Better::Higher,
    ),
    question(
        "vfs",
        "files made under one semaphore: loops per second",
        Who::Named(&["latchwork semaphore-counting"]),
        Who::Named(&["glibc sem", "sysv-sem"]),
        any,
    ),
    question(
        "check-overhead",
        "unmodified programs with throughput mutexes",
        Who::Named(&["program --mutex=tp"]),
        PROGRAM,
        any,
    ),
    question(
        "footprint",
        "size of a mutex",
        WAIT_WAKE,
        OTHER_PLAIN,
        is_size,
    ),
    question(
        "footprint",
        "size of a robust mutex",
        Who::Named(&["latchwork robust"]),
        GLIBC_ROBUST,
        is_size,
    ),
    question(
        "footprint",
        "instructions of a free lock and unlock",
        WAIT_WAKE,
        OTHER_PLAIN,
        is_executed,
    ),
    question(
        "rt-latency",
        "lateness of a wait with a deadline",
        Who::Ours,
        Who::Others,
        any,
    ),
    question(
        "busy",
        "busy machine: 99th percentile of an operation",
        Who::Ours,
        Who::Others,
        any,
    ),
    by(
        question(
            "busy",
            "busy machine: operations per CPU second",
            Who::Ours,
            Who::Others,
            any,
        ),
        "ops_per_cpu_second",
        Better::Higher,
    ),
    price(
        "call-overhead",
        "a robust mutex (survives its owner's death)",
        ROBUST,
        WAIT_WAKE,
        any,
    ),
    price(
        "call-overhead",
        "a mutex of a region",
        REGION,
        WAIT_WAKE,
        any,
    ),
    price(
        "call-overhead",
        "priority inheritance",
        INHERIT,
        WAIT_WAKE,
        any,
    ),
    price(
        "call-overhead",
        "a priority ceiling",
        Who::Named(&["latchwork protect"]),
        WAIT_WAKE,
        any,
    ),
    price(
        "check-overhead",
        "the checker, on a free mutex",
        Who::Named(&["latchwork checked wait-wake"]),
        WAIT_WAKE,
        |params| params.tasks == Some(1),
    ),
    price(
        "check-overhead",
        "the checker, on a whole program",
        Who::Named(&["program --check"]),
        PROGRAM,
        any,
    ),
    price(
        "footprint",
        "a robust mutex, in bytes",
        Who::Named(&["latchwork robust"]),
        WAIT_WAKE,
        is_size,
    ),
];
