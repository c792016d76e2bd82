//! The features that the library asks for, and the form of an answer.

/// Something that a system may have, allow or limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "`Finding::used_for` says what each is good for"
)]
pub enum Feature {
    FutexWaitv,
    RobustList,
    WipeOnFork,
    SealedMemoryFile,
    PidNamespace,
    SharedMemoryDirectory,
    PublishUnnamed,
    MapFixedNoReplace,
    MemoryFileNoExec,
    MemorySeal,
    FutexLockPi2,
    FutexRequeuePi,
    FutexPrivateHash,
    FutexRobustUnlock,
    Membarrier,
    Rseq,
    CloneIntoCgroup,
    PidFd,
    TidAddress,
    RealTime,
    MrspHelping,
    CapSysNice,
    Cgroup,
    LimitAddressSpace,
    LimitRealTimePriority,
    LimitNice,
    LimitProcesses,
    LimitLockedMemory,
    Overcommit,
}

/// How much depends on a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Regions and robust locks do not work without it.
    Required,
    /// Without it the library does something in another way, or not at all.
    Optional,
    /// What the process is allowed to do.
    Privilege,
    /// How much the process may take.
    Limit,
}

/// Whether a feature is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It is available and permitted.
    Available,
    /// The kernel, or the C library, does not have it.
    Missing,
    /// Permissions, a sandbox or a limit forbid it.
    NotPermitted,
    /// The system gave an answer that means none of these.
    Unknown,
}

/// The result for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The feature.
    pub feature: Feature,
    /// Its name, unique, such as `futex_waitv`.
    pub name: &'static str,
    /// How much depends on it.
    pub group: Group,
    /// The first Linux with it, major and minor; `None` where that does not matter.
    pub since: Option<(u16, u16)>,
    /// Whether it is available.
    pub status: Status,
    /// A figure, path or error that goes with the status; may be empty.
    pub value: String,
    /// Its use, as a sentence about what the user gets.
    pub used_for: &'static str,
    /// What happens without it.
    pub fallback: &'static str,
}

impl Finding {
    /// The consequence for the user.
    #[must_use]
    pub fn consequence(&self) -> &'static str {
        if self.status == Status::Available {
            self.used_for
        } else {
            self.fallback
        }
    }
}
