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
        FutexWaitv, "futex_waitv", Some((5, 16)),
            "tasks that sleep in a region learn of another's death at once",
            "regions can be neither made nor attached: a newer kernel is needed";
        RobustList, "robust list", Some((2, 6)),
            "the death of a lock's owner is reported to the next one",
            "robust locks and regions cannot be used: let the sandbox allow get_robust_list";
        WipeOnFork, "MADV_WIPEONFORK", Some((4, 14)),
            "a forked child is never mistaken for its parent",
            "robust locks and regions cannot be used";
        SealedMemoryFile, "memfd_create, sealing", Some((3, 17)),
            "anonymous regions, which no peer can cut short",
            "anonymous regions cannot be made";
        PidNamespace, "PID namespace", Some((3, 8)),
            "regions are shared with processes of the same namespace; others are refused",
            "regions can be neither made nor attached: is /proc mounted?";
    }
    Optional {
        SharedMemoryDirectory, "/dev/shm", None,
            "named regions, as large as the free space allows; beyond, growth fails with an error",
            "named regions cannot be made: mount a tmpfs there; anonymous regions work";
        PublishUnnamed, "O_TMPFILE in /dev/shm", Some((3, 11)),
            "a named region appears complete or not at all, even if its creator is killed",
            "named regions cannot be made; anonymous regions work";
        MapFixedNoReplace, "MAP_FIXED_NOREPLACE", Some((4, 17)),
            "a region takes its address in one step, and never another mapping's",
            "the address is asked for as a hint, and checked";
        MemoryFileNoExec, "MFD_NOEXEC_SEAL", Some((6, 3)),
            "the memory of an anonymous region can never be executed",
            "a process that has the descriptor of an anonymous region could execute its memory";
        MemorySeal, "mseal", Some((6, 10)),
            "could keep a program from unmapping a region by mistake; no part uses it yet",
            "nothing changes: no part uses it yet";
        FutexLockPi2, "FUTEX_LOCK_PI2", Some((5, 14)),
            "deadlines of priority-inheriting locks do not move when the clock is set",
            "deadlines of priority-inheriting locks follow the real-time clock, and move with it";
        FutexRequeuePi, "FUTEX_CMP_REQUEUE_PI", Some((2, 6)),
            "a waiter of a condition variable with a priority-inheriting mutex is woken once, as the mutex's owner",
            "a waiter of a condition variable with a priority-inheriting mutex is woken by the previous waiter, once that owns the mutex; the kernel is asked to do it from Linux 7.1.1 on, and in 6.18 from 6.18.36 on";
        FutexPrivateHash, "private futex hash", Some((6, 16)),
            "waits on private locks do not collide with those of other programs",
            "waits of all programs share one hash table: collisions can delay a wake-up";
        FutexRobustUnlock, "FUTEX_ROBUST_UNLOCK", Some((7, 2)),
            "could end an unlock in one step of the kernel's; no part uses it yet",
            "nothing changes: an unlock announces itself until its wake-up is done";
        Membarrier, "membarrier", Some((4, 14)),
            "could spare the frequent side of a protocol its fence; no part uses it yet",
            "nothing changes: no part uses it yet";
        Rseq, "rseq", Some((4, 18)),
            "could show a waiter, without a system call, that the owner is preempted; no part uses it yet",
            "waiters spin for a bounded time, whether the owner runs or not";
        CloneIntoCgroup, "CLONE_INTO_CGROUP", Some((5, 7)),
            "could start a coproc inside its control group; no part uses it yet",
            "nothing changes: a coproc moves itself into its control group before it runs";
        PidFd, "pidfd, waitid(P_PIDFD)", Some((5, 4)),
            "coprocs are joined and signalled without fear of a reused PID",
            "coprocs cannot be started";
        TidAddress, "PR_GET_TID_ADDRESS", Some((3, 5)),
            "libc's record of the thread ID stays right in coprocs that share files with their parent",
            "libc's record of the thread ID may be stale in coprocs that share files with their parent";
    }
    Privilege {
        RealTime, "real-time policy", None,
            "ceilings and real-time coprocs set priorities that the scheduler knows",
            "priorities order waiters, but ceilings do not reach the scheduler";
        MrspHelping, "MrsP helping", None,
            "a preempted owner of a MrsP semaphore runs in the place of a waiter on another processor, if both are mirrored and each is bound to one processor; its own processor is not kept free meanwhile",
            "MrsP semaphores keep their order, ceilings and refusals by the recorded priorities; waiters sleep, and a preempted owner is not helped";
        CapSysNice, "CAP_SYS_NICE", None,
            "priorities and CPUs of other tasks can be changed, beyond the limits below",
            "priorities can be raised as far as the limits below allow";
        Cgroup, "cgroup v2, writable", Some((4, 5)),
            "coprocs can be given control groups below this one",
            "coprocs stay in this process's control group, unless an administrator delegates one";
    }
    Limit {
        LimitAddressSpace, "RLIMIT_AS", None,
            "a region's maximum counts in full from the first moment, however little is used",
            "unknown";
        LimitRealTimePriority, "RLIMIT_RTPRIO", None,
            "real-time priorities that a task may take by itself",
            "no real-time priority may be taken: raise `rtprio` in limits.conf";
        LimitNice, "RLIMIT_NICE", None,
            "nice values that a coproc may be started with",
            "a coproc can be made nicer, and never less nice";
        LimitProcesses, "RLIMIT_NPROC", None,
            "threads and coprocs of this user together; beyond, a start fails with an error",
            "unknown";
        LimitLockedMemory, "RLIMIT_MEMLOCK", None,
            "memory that real-time tasks may pin, regions included",
            "unknown";
        Overcommit, "overcommit", None,
            "growth of a region is an error where the system refuses memory; in modes 0 and 1 the OOM killer may come first",
            "unknown: is /proc mounted?";
    }
}
