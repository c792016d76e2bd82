//! The sides of the comparisons that several of them have.

use super::Who;

pub(super) const PLAIN: Who = Who::Named(&["latchwork wait-wake", "latchwork throughput"]);
pub(super) const OTHER_PLAIN: Who = Who::Named(&[
    "glibc normal",
    "glibc adaptive",
    "std",
    "parking_lot",
    "nsync",
    "absl",
]);
pub(super) const WAIT_WAKE: Who = Who::Named(&["latchwork wait-wake"]);
pub(super) const INHERIT: Who = Who::Named(&["latchwork inherit", "latchwork inherit-plain"]);
pub(super) const GLIBC_PI: Who = Who::Named(&["glibc PI"]);
pub(super) const ROBUST: Who = Who::Named(&["latchwork robust", "latchwork robust-throughput"]);
pub(super) const REGION: Who =
    Who::Named(&["latchwork in-region", "latchwork in-region-throughput"]);
pub(super) const GLIBC_ROBUST: Who = Who::Named(&["glibc robust"]);
pub(super) const QUEUES: Who = Who::Named(&["latchwork queue", "latchwork queue-in-c"]);
pub(super) const OTHER_QUEUES: Who = Who::Named(&[
    "posix-mq",
    "mutex+cond",
    "mutex+sem",
    "pipe",
    "unix-seqpacket",
    "boost-queue",
]);
pub(super) const PROTOCOLS: Who = Who::Named(&[
    "latchwork inherit",
    "latchwork protect",
    "latchwork semaphore-inherit-mirrored",
    "latchwork semaphore-ceiling-mirrored",
    "latchwork semaphore-mrsp-mirrored",
]);

pub(super) const PROGRAM: Who = Who::Named(&["program as it is"]);
