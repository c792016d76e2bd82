//! The features that the library asks for, the meaning of each for a user, and the form of an answer.

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

/// The enum of the features, and the form in which the table below gives each: its variant, its name, the first Linux
/// with it, its use, and what happens without it.
macro_rules! features {
    ($($group:ident {
        $($feature:ident, $name:literal, $since:expr, $used_for:literal, $fallback:literal;)+
    })+) => {
        /// Something that a system may have, allow or limit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[doc = concat!("`", $name, "`: ", $used_for)] $feature,)+)+
        }

        /// The findings for all features, by the status and value that `ask` has for each.
        pub(super) fn findings(ask: impl Fn(Feature) -> (Status, String)) -> Vec<Finding> {
            let finding = |feature, name, group, since, used_for, fallback| {
                let (status, value) = ask(feature);
                Finding { feature, name, group, since, status, value, used_for, fallback }
            };
            vec![$($(
                finding(Feature::$feature, $name, Group::$group, $since, $used_for, $fallback),
            )+)+]
        }
    };
}

features! {
    Required {
        RobustList, "robust list", Some((2, 6)),
            "the death of a lock's owner is reported to the next owner",
            "robust locks and regions cannot be used: let the sandbox allow get_robust_list";
        WipeOnFork, "MADV_WIPEONFORK", Some((4, 14)),
            "a forked child is never mistaken for its parent",
            "robust locks and regions cannot be used";
        SealedMemoryFile, "memfd_create, sealing", Some((3, 17)),
            "anonymous regions (regions without a name) can be made, and no process can shorten them",
            "anonymous regions cannot be made";
        PidNamespace, "PID namespace", Some((3, 8)),
            "regions are shared with processes of the same namespace, and those made for any namespace (any_pid_namespace) with those of others, where region locks work, and neither robust locks nor kernel priorities do",
            "regions can be neither made nor attached: is /proc mounted?";
    }
    Optional {
        FutexWaitv, "futex_waitv", Some((5, 16)),
            "a task that sleeps in a region learns of the death of another task when it happens",
            "a task that sleeps in a region wakes 20 times a second to learn of the death of another task; a container's seccomp profile may refuse the call though the kernel has it";
        SharedMemoryDirectory, "/dev/shm", None,
            "named regions can be made; when the free space is used up, their growth fails with an error",
            "named regions cannot be made (mount a tmpfs at this path); anonymous regions work";
        PublishUnnamed, "O_TMPFILE in /dev/shm", Some((3, 11)),
            "a named region appears complete or not at all, even if its creator is killed",
            "named regions cannot be made; anonymous regions work";
        MapFixedNoReplace, "MAP_FIXED_NOREPLACE", Some((4, 17)),
            "a region takes its address in one step, and never replaces another mapping",
            "the kernel gets the address of a region as a hint, and the library checks the result";
        MemoryFileNoExec, "MFD_NOEXEC_SEAL", Some((6, 3)),
            "the memory of an anonymous region can never be executed",
            "a process that has the descriptor of an anonymous region could execute its memory";
        FutexLockPi2, "FUTEX_LOCK_PI2", Some((5, 14)),
            "deadlines of priority-inheriting locks do not move when the clock is set",
            "deadlines of priority-inheriting locks follow the real-time clock, and move with it";
        FutexRequeuePi, "FUTEX_CMP_REQUEUE_PI", Some((2, 6)),
            "a waiter of a condition variable with a priority-inheriting mutex is woken once, as the mutex's owner",
            "a waiter of a condition variable with a priority-inheriting mutex is woken by the previous waiter, when that waiter owns the mutex; Latchwork uses this call from Linux 7.1.1 on, and in 6.18 from 6.18.36 on";
        FutexPrivateHash, "private futex hash", Some((6, 16)),
            "waits on private locks do not collide with those of other programs",
            "waits of all programs share one hash table: collisions can delay a wake-up";
        PidFd, "pidfd, waitid(P_PIDFD)", Some((5, 4)),
            "joins and signals reach the right coproc even if a process ID is used again",
            "coprocs cannot be started";
        TidAddress, "place of the thread ID", None,
            "libc's record of the thread ID stays right in coprocs that share files with their parent",
            "libc's record of the thread ID may be stale in coprocs that share files with their parent";
    }
    Privilege {
        RealTime, "real-time policy", None,
            "owners of mutexes with a ceiling, and real-time coprocs, run at real-time priorities",
            "mutexes with a ceiling cannot be locked; semaphores serve waiters by priority, but the scheduler does not know these priorities";
        MrspHelping, "MrsP helping", None,
            "a preempted owner of a MrsP semaphore runs on the processor of a waiter, if the kernel knows the priorities of both and each is bound to one processor; the owner's own processor is not kept free meanwhile",
            "MrsP semaphores use the priorities that Latchwork has recorded; waiters sleep, and a preempted owner is not helped";
        CapSysNice, "CAP_SYS_NICE", None,
            "priorities and processors of all tasks can be changed; the limits of priorities below do not apply",
            "priorities can be raised only as far as the limits below allow";
        Cgroup, "cgroup v2, writable", Some((4, 5)),
            "coprocs can be given control groups below this one",
            "coprocs stay in this process's control group, unless an administrator delegates one";
    }
    Limit {
        LimitAddressSpace, "RLIMIT_AS", None,
            "the maximum size of a region counts in full, however little of it is used",
            "unknown";
        LimitRealTimePriority, "RLIMIT_RTPRIO", None,
            "the real-time priorities that a task may take",
            "no real-time priority may be taken: raise `rtprio` in limits.conf";
        LimitNice, "RLIMIT_NICE", None,
            "the nice values with which a coproc may be started",
            "the nice value of a coproc can be raised, but not lowered";
        LimitProcesses, "RLIMIT_NPROC", None,
            "the number of threads and coprocs of this user; a start that exceeds it fails with an error",
            "unknown";
        LimitLockedMemory, "RLIMIT_MEMLOCK", None,
            "the memory, regions included, that a process may lock (keep from being swapped out)",
            "unknown";
        Overcommit, "overcommit", None,
            "if the system refuses memory, the growth of a region fails with an error; in modes 0 and 1, the OOM killer may end a process before that",
            "unknown: is /proc mounted?";
    }
}
