//! The mutual-exclusion locks that scenarios compare: every scenario takes its contestants from this list.

use std::io;

use latchwork::check::Checked;
use latchwork::mutex::{Inherit, InheritPlain, Mutex, Throughput, WaitWake};
use latchwork::sharing::{Private, Shared};
use latchwork::spin::Spin;
use libc::c_int;

use super::dynamic::{self, Functions};
use super::our_semaphores::{Counting, Kind, Mirrored, Mrsp, Owned};
use super::ours::{KeptProtect, PROTECT_CEILING};
use super::pthread::{self, Attributes};
use super::{BELOW_CEILING, CEILING, Lock, Raw, floor, on_thread, placed, semaphore};
use crate::contestant::{Absent, Contestant};

/// A lock that scenarios compare with others.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The Debian package that provides it.
    package: Option<&'static str>,
    /// The priority in SCHED_FIFO of its task, if the scenario does not set one.
    pub(crate) priority: Option<c_int>,
    /// Whether it refuses tasks without a real-time priority.
    pub(crate) real_time_only: bool,
    make: Make,
}

/// How a lock is made.
#[derive(Clone, Copy)]
enum Make {
    WaitWake,
    Throughput,
    ThroughputCounted,
    CheckedWaitWake,
    CheckedThroughput,
    Inherit,
    InheritPlain,
    Protect,
    KeptProtect,
    Robust,
    RobustInherit,
    RobustProtect,
    RobustThroughput,
    InRegion,
    InRegionThroughput,
    Glibc(Attributes),
    Std,
    ParkingLot,
    Nsync,
    Absl,
    ReadWrite,
    Semaphore(Kind),
    PosixSem,
    SysVSem { undo: bool },
    TwoRmw,
    Spinning,
    Futex,
    PriorityCalls,
    Spin,
    HandOff,
}

impl Peer {
    const fn new(name: &'static str, make: Make) -> Self {
        Self {
            name,
            package: None,
            priority: None,
            real_time_only: false,
            make,
        }
    }

    const fn glibc(name: &'static str, attributes: Attributes) -> Self {
        Self::new(name, Make::Glibc(attributes))
    }

    const fn library(name: &'static str, package: &'static str, make: Make) -> Self {
        Self {
            package: Some(package),
            ..Self::new(name, make)
        }
    }

    const fn real_time_only(self) -> Self {
        Self {
            real_time_only: true,
            ..self
        }
    }

    const fn at(self, priority: c_int) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }
}

pub(crate) const WAIT_WAKE: &Peer = &Peer::new("latchwork wait-wake", Make::WaitWake);
pub(crate) const THROUGHPUT: &Peer = &Peer::new("latchwork throughput", Make::Throughput);
/// The same with counters, which have a cost.
const THROUGHPUT_COUNTED: &Peer = &Peer::new("latchwork throughput", Make::ThroughputCounted);
pub(crate) const SPIN: &Peer = &Peer::new("latchwork spinlock", Make::Spin);
pub(crate) const CHECKED_WAIT_WAKE: &Peer =
    &Peer::new("latchwork checked wait-wake", Make::CheckedWaitWake);
pub(crate) const CHECKED_THROUGHPUT: &Peer =
    &Peer::new("latchwork checked throughput", Make::CheckedThroughput);
pub(crate) const INHERIT: &Peer = &Peer::new("latchwork inherit", Make::Inherit);
pub(crate) const INHERIT_PLAIN: &Peer = &Peer::new("latchwork inherit-plain", Make::InheritPlain);
/// At the priorities of glibc's, though it also works for ordinary tasks.
pub(crate) const PROTECT: &Peer = &Peer::new("latchwork protect", Make::Protect).at(BELOW_CEILING);
pub(crate) const PROTECT_AT_CEILING: &Peer =
    &Peer::new("latchwork protect-at-ceiling", Make::Protect).at(CEILING);
pub(crate) const PROTECT_KEPT: &Peer =
    &Peer::new("latchwork protect-kept", Make::KeptProtect).at(BELOW_CEILING);
pub(crate) const ROBUST: &Peer = &Peer::new("latchwork robust", Make::Robust);
pub(crate) const ROBUST_INHERIT: &Peer =
    &Peer::new("latchwork robust-inherit", Make::RobustInherit);
pub(crate) const ROBUST_PROTECT: &Peer =
    &Peer::new("latchwork robust-protect", Make::RobustProtect).at(BELOW_CEILING);
pub(crate) const ROBUST_THROUGHPUT: &Peer =
    &Peer::new("latchwork robust-throughput", Make::RobustThroughput);

pub(crate) const IN_REGION: &Peer = &Peer::new("latchwork in-region", Make::InRegion);
pub(crate) const IN_REGION_THROUGHPUT: &Peer =
    &Peer::new("latchwork in-region-throughput", Make::InRegionThroughput);

pub(crate) const SEMAPHORE_COUNTING: &Peer = &Peer::new(
    "latchwork semaphore-counting",
    Make::Semaphore(Kind::Counting),
);
pub(crate) const SEMAPHORE_BINARY: &Peer =
    &Peer::new("latchwork semaphore-binary", Make::Semaphore(Kind::Binary));
pub(crate) const SEMAPHORE_INHERIT: &Peer = &Peer::new(
    "latchwork semaphore-inherit",
    Make::Semaphore(Kind::Inherit),
);
/// With recorded priorities only: no system calls.
pub(crate) const SEMAPHORE_CEILING: &Peer = &Peer::new(
    "latchwork semaphore-ceiling",
    Make::Semaphore(Kind::Ceiling),
);
/// The same: no helping happens.
pub(crate) const SEMAPHORE_MRSP: &Peer =
    &Peer::new("latchwork semaphore-mrsp", Make::Semaphore(Kind::Mrsp));
/// The kernel knows the priorities, in these three.
pub(crate) const SEMAPHORE_INHERIT_MIRRORED: &Peer = &Peer::new(
    "latchwork semaphore-inherit-mirrored",
    Make::Semaphore(Kind::MirroredInherit),
)
.at(BELOW_CEILING);
pub(crate) const SEMAPHORE_CEILING_MIRRORED: &Peer = &Peer::new(
    "latchwork semaphore-ceiling-mirrored",
    Make::Semaphore(Kind::MirroredCeiling),
)
.at(BELOW_CEILING);
pub(crate) const SEMAPHORE_MRSP_MIRRORED: &Peer = &Peer::new(
    "latchwork semaphore-mrsp-mirrored",
    Make::Semaphore(Kind::MirroredMrsp),
)
.at(BELOW_CEILING);

pub(crate) const GLIBC: &Peer = &Peer::glibc("glibc normal", Attributes::NORMAL);
pub(crate) const GLIBC_ADAPTIVE: &Peer = &Peer::glibc(
    "glibc adaptive",
    Attributes {
        adaptive: true,
        ..Attributes::NORMAL
    },
);
pub(crate) const GLIBC_ROBUST: &Peer = &Peer::glibc(
    "glibc robust",
    Attributes {
        robust: true,
        ..Attributes::NORMAL
    },
);
pub(crate) const GLIBC_PI: &Peer = &Peer::glibc(
    "glibc PI",
    Attributes {
        inherit: true,
        ..Attributes::NORMAL
    },
);
pub(crate) const GLIBC_ROBUST_PI: &Peer = &Peer::glibc(
    "glibc robust-PI",
    Attributes {
        robust: true,
        inherit: true,
        ..Attributes::NORMAL
    },
);
pub(crate) const GLIBC_PP: &Peer = &Peer::glibc("glibc PP", WITH_CEILING)
    .at(BELOW_CEILING)
    .real_time_only();
pub(crate) const GLIBC_PP_AT_CEILING: &Peer = &Peer::glibc("glibc PP-at-ceiling", WITH_CEILING)
    .at(CEILING)
    .real_time_only();
const WITH_CEILING: Attributes = Attributes {
    ceiling: Some(CEILING),
    ..Attributes::NORMAL
};
pub(crate) const GLIBC_RWLOCK: &Peer = &Peer::new("glibc rwlock", Make::ReadWrite);
pub(crate) const GLIBC_SEM: &Peer = &Peer::new("glibc sem", Make::PosixSem);

pub(crate) const STD: &Peer = &Peer::new("std", Make::Std);
pub(crate) const PARKING_LOT: &Peer = &Peer::new("parking_lot", Make::ParkingLot);
pub(crate) const NSYNC: &Peer = &Peer::library("nsync", "libnsync1", Make::Nsync);
pub(crate) const ABSL: &Peer = &Peer::library("absl", "libabsl-dev", Make::Absl);
pub(crate) const SYSV: &Peer = &Peer::new("sysv-sem", Make::SysVSem { undo: false });
pub(crate) const SYSV_UNDO: &Peer = &Peer::new("sysv-sem-undo", Make::SysVSem { undo: true });

pub(crate) const TWO_RMW: &Peer = &Peer::new("floor two-rmw", Make::TwoRmw);
pub(crate) const SPINNING: &Peer = &Peer::new("floor spinning", Make::Spinning);
pub(crate) const HAND_OFF: &Peer = &Peer::new("floor hand-off", Make::HandOff);
pub(crate) const FUTEX: &Peer = &Peer::new("floor futex", Make::Futex);
pub(crate) const PRIORITY_CALLS: &Peer =
    &Peer::new("floor priority-calls", Make::PriorityCalls).at(BELOW_CEILING);

/// The mutexes that most scenarios compare: those of others, and ours.
pub(crate) const MUTEXES: [&Peer; 9] = [
    GLIBC,
    STD,
    PARKING_LOT,
    WAIT_WAKE,
    THROUGHPUT,
    INHERIT,
    ROBUST,
    IN_REGION,
    IN_REGION_THROUGHPUT,
];

/// An operation with a lock of any type, so that code is compiled for each type.
pub(crate) trait Visitor {
    type Output;

    /// `make` makes locks, each of which must be placed before its use.
    fn visit<L: Lock>(
        self,
        make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
    ) -> Self::Output;
}

/// The users of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    Threads,
    Processes,
}

impl Peer {
    /// The same lock with counters, if it can count.
    pub(crate) fn counted(&self) -> Option<&'static Self> {
        matches!(self.make, Make::Throughput).then_some(THROUGHPUT_COUNTED)
    }

    /// Calls `visitor` with the lock, or returns the reason why there is none.
    pub(crate) fn visit<V: Visitor>(
        &self,
        between: Between,
        visitor: V,
    ) -> Result<V::Output, String> {
        let shared = between == Between::Processes;
        Ok(match self.make {
            Make::WaitWake if shared => visitor.visit(|| Ok(Mutex::shared(0))),
            Make::WaitWake => visitor.visit(|| Ok(Mutex::new(0))),
            Make::Throughput if shared => {
                visitor.visit(|| Ok(Mutex::from_raw(Throughput::<Shared>::new(), 0)))
            }
            Make::Throughput => visitor.visit(|| Ok(Mutex::throughput(0))),
            Make::ThroughputCounted if shared => {
                visitor.visit(|| Ok(Mutex::from_raw(Throughput::<Shared, _>::counted(), 0)))
            }
            Make::ThroughputCounted => {
                visitor.visit(|| Ok(Mutex::from_raw(Throughput::<Private, _>::counted(), 0)))
            }
            Make::CheckedWaitWake if shared => {
                visitor.visit(|| Ok(Mutex::from_raw(Checked::new(WaitWake::<Shared>::new()), 0)))
            }
            Make::CheckedWaitWake => {
                visitor.visit(|| Ok(Mutex::from_raw(Checked::new(WaitWake::<Private>::new()), 0)))
            }
            Make::CheckedThroughput => visitor.visit(|| {
                Ok(Mutex::from_raw(
                    Checked::new(Throughput::<Private>::new()),
                    0,
                ))
            }),
            Make::Inherit if shared => {
                visitor.visit(|| Ok(Mutex::from_raw(Inherit::<Shared>::new(), 0)))
            }
            Make::Inherit => visitor.visit(|| Ok(Mutex::inherit(0))),
            Make::InheritPlain if shared => {
                visitor.visit(|| Ok(Mutex::from_raw(InheritPlain::<Shared>::new(), 0)))
            }
            Make::InheritPlain => visitor.visit(|| Ok(Mutex::inherit_plain(0))),
            Make::Protect if shared => {
                visitor.visit(|| Ok(Mutex::protect_shared(PROTECT_CEILING, 0)))
            }
            Make::Protect => visitor.visit(|| Ok(Mutex::protect(PROTECT_CEILING, 0))),
            Make::Robust => visitor.visit(|| Ok(Mutex::robust(0))),
            Make::RobustInherit => visitor.visit(|| Ok(Mutex::robust_inherit(0))),
            Make::RobustProtect => visitor.visit(|| Ok(Mutex::robust_protect(PROTECT_CEILING, 0))),
            Make::RobustThroughput => visitor.visit(|| Ok(Mutex::robust_throughput(0))),
            Make::InRegion => visitor.visit(|| Ok(Mutex::in_region(0))),
            Make::InRegionThroughput => visitor.visit(|| Ok(Mutex::in_region_throughput(0))),
            Make::Glibc(attributes) => {
                let attributes = Attributes {
                    shared,
                    ..attributes
                };
                visitor.visit(move || Ok(Raw::new(pthread::Mutex::new(attributes))))
            }
            Make::Semaphore(Kind::Counting) => visitor.visit(|| Counting::new().map(Raw::new)),
            Make::Semaphore(kind @ Kind::Mrsp) => {
                visitor.visit(move || Mrsp::new(kind).map(Raw::new))
            }
            Make::Semaphore(kind @ Kind::MirroredMrsp) => {
                visitor.visit(move || Mrsp::new(kind).map(Mirrored).map(Raw::new))
            }
            Make::Semaphore(kind @ (Kind::MirroredInherit | Kind::MirroredCeiling)) => {
                visitor.visit(move || Owned::new(kind).map(Mirrored).map(Raw::new))
            }
            Make::Semaphore(kind) => visitor.visit(move || Owned::new(kind).map(Raw::new)),
            Make::PosixSem if shared => {
                visitor.visit(|| Ok(Raw::new(semaphore::Posix::<true>::new())))
            }
            Make::PosixSem => visitor.visit(|| Ok(Raw::new(semaphore::Posix::<false>::new()))),
            Make::SysVSem { undo } => {
                visitor.visit(move || semaphore::SysV::new(undo).map(Raw::new))
            }
            Make::TwoRmw => visitor.visit(|| Ok(Raw::new(floor::TwoRmw::default()))),
            Make::Spinning => visitor.visit(|| Ok(Raw::new(floor::Spinning::default()))),
            Make::Futex if shared => {
                visitor.visit(|| Ok(Raw::new(floor::Futex::<true>::default())))
            }
            Make::Futex => visitor.visit(|| Ok(Raw::new(floor::Futex::<false>::default()))),
            Make::PriorityCalls => visitor.visit(|| Ok(Raw::new(floor::PriorityCalls))),
            Make::Spin => visitor.visit(|| Ok(Mutex::from_raw(Spin::new(), 0))),
            Make::KeptProtect
            | Make::ReadWrite
            | Make::Std
            | Make::ParkingLot
            | Make::Nsync
            | Make::Absl
            | Make::HandOff
                if shared =>
            {
                return Err("it is for the threads of one process".into());
            }
            Make::KeptProtect => visitor.visit(|| Ok(KeptProtect::new())),
            Make::ReadWrite => visitor.visit(|| Ok(pthread::ReadWrite::<false>::new())),
            Make::HandOff => visitor.visit(|| Ok(Raw::new(floor::HandOff::default()))),
            Make::Std => visitor.visit(|| Ok(std::sync::Mutex::new(0))),
            Make::ParkingLot => visitor.visit(|| Ok(parking_lot::Mutex::new(0))),
            Make::Nsync => {
                let functions = Functions::nsync()?;
                visitor.visit(move || {
                    Ok(Raw::new(dynamic::Mutex::<{ dynamic::NSYNC_WORDS }>::new(
                        functions,
                    )))
                })
            }
            Make::Absl => {
                let functions = Functions::absl()?;
                visitor.visit(move || {
                    Ok(Raw::new(dynamic::Mutex::<{ dynamic::ABSL_WORDS }>::new(
                        functions,
                    )))
                })
            }
        })
    }

    /// This peer as a contestant: available, or the reason why not.
    pub(crate) fn contestant(&self) -> Contestant {
        // A checked lock is always available, and to try it would begin to observe the process.
        if matches!(self.make, Make::CheckedWaitWake | Make::CheckedThroughput) {
            return Contestant::ready(self.name);
        }
        let tried = self.visit(Between::Threads, Try(self.priority));
        Contestant {
            name: self.name,
            absent: tried.and_then(|tried| tried).err().map(|reason| Absent {
                reason,
                package: self.package,
            }),
        }
    }
}

/// Locks and unlocks once.
struct Try(Option<c_int>);

impl Visitor for Try {
    type Output = Result<(), String>;

    fn visit<L: Lock>(
        self,
        make: impl Fn() -> io::Result<L> + Send + Sync + 'static,
    ) -> Self::Output {
        let place = make().and_then(placed).map_err(|error| error.to_string())?;
        let check = || {
            let _enlisted = L::enlist()?;
            place.pin().check()
        };
        on_thread(self.0, None, check).map_err(|error| match self.0 {
            None => error.to_string(),
            Some(_) => format!(
                "{error}; it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of {CEILING}, for SCHED_FIFO"
            ),
        })
    }
}
