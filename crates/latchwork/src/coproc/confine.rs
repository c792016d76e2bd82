//! Least privilege: which files a coproc may use, and which system calls.
//!
//! *Where it is applied.* The creator makes the Landlock ruleset and the filter's program, and passes both as descriptors,
//! since a coproc that starts must not allocate more than it has to. The coproc applies the ruleset before it starts a
//! thread of the library's (the one that watches its parent), so that this one is restricted, too; and the filter as the
//! last step of its start, for all its threads.
//!
//! *Denied system calls* fail with ENOSYS, as on a kernel without them: the C library and std then use what they use on
//! older kernels. So glibc makes threads by `clone`, whose flags a filter can read, and not by `clone3`, whose flags it
//! cannot.

use crate::sys::confine::{INSTRUCTION_BYTES, MAX_INSTRUCTIONS};
use crate::sys::memory;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files that a coproc may open: see [`Attributes::files`](super::Attributes::files). What is not listed is denied.
///
/// A directory stands for all that is beneath it. What the coproc has open already stays open: its region, descriptors 0
/// to 2, and those that are passed to it.
///
/// ```
/// use latchwork::coproc::{Attributes, FileAccess};
///
/// let files = FileAccess::none().read("/etc").write("/var/log");
/// let attributes = Attributes::new().files(files);
/// # let _ = attributes;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until it is an attribute"]
pub struct FileAccess {
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

impl FileAccess {
    /// No file can be opened.
    pub fn none() -> Self {
        Self::default()
    }

    /// Files here may be read and executed, and directories listed.
    pub fn read(mut self, path: impl AsRef<Path>) -> Self {
        self.readable.push(path.as_ref().to_owned());
        self
    }

    /// Files here may be read, written, made, renamed and removed.
    pub fn write(mut self, path: impl AsRef<Path>) -> Self {
        self.writable.push(path.as_ref().to_owned());
        self
    }

    /// The ruleset; `None` if the kernel has none and that is accepted.
    fn ruleset(&self, best_effort: bool) -> Result<Option<OwnedFd>, Errno> {
        let level = match best_effort {
            true => CompatLevel::BestEffort,
            false => CompatLevel::HardRequirement,
        };
        // Of the third version (Linux 6.2): the first that can forbid to truncate a file. From the fifth on, calls by
        // `ioctl` to devices are denied, too, where the kernel can.
        let all = AccessFs::from_all(ABI::V3);
        let mut ruleset = Ruleset::default()
            .set_compatibility(level)
            .handle_access(all)
            .and_then(|ruleset| {
                ruleset
                    .set_compatibility(CompatLevel::BestEffort)
                    .handle_access(AccessFs::IoctlDev)
            })
            .and_then(Ruleset::create)
            .map_err(errno_of)?;
        let readable = self
            .readable
            .iter()
            .map(|path| (path, AccessFs::from_read(ABI::V3)));
        let writable = self.writable.iter().map(|path| (path, all));
        for (path, access) in readable.chain(writable) {
            let place = PathFd::new(path).map_err(|error| match error {
                landlock::PathFdError::OpenCall { source, .. } => errno_of_io(&source),
                _ => Errno::INVAL,
            })?;
            let is_directory = std::fs::metadata(path).is_ok_and(|found| found.is_dir());
            let access = match is_directory {
                true => access,
                // What means something for directories only is refused for a file.
                false => access & AccessFs::from_file(ABI::V3),
            };
            ruleset = ruleset
                .add_rule(PathBeneath::new(place, access))
                .map_err(errno_of)?;
        }
        Ok(ruleset.into())
    }
}

fn errno_of_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The kernel's error in one of Landlock's; without one, the kernel lacks what was asked for.
fn errno_of(error: RulesetError) -> Errno {
    let mut source: Option<&dyn core::error::Error> = Some(&error);
    while let Some(one) = source {
        if let Some(error) = one.downcast_ref::<std::io::Error>() {
            return errno_of_io(error);
        }
        source = one.source();
    }
    Errno::OPNOTSUPP
}

/// The system calls that a coproc may make: see [`Attributes::system_calls`](super::Attributes::system_calls). Another one
/// fails with ENOSYS, or ends the coproc.
///
/// ```
/// use latchwork::coproc::{Attributes, SystemCalls};
///
/// let calls = SystemCalls::library().allow([libc::SYS_openat, libc::SYS_lseek]);
/// let attributes = Attributes::new().system_calls(calls);
/// # let _ = attributes;
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is an attribute"]
pub struct SystemCalls {
    allowed: BTreeSet<i64>,
    /// What the library needs in part: threads (`clone`, and no new process), the own limits (`prlimit64`, to read them).
    in_part: BTreeSet<i64>,
    kills: bool,
}

/// What the library needs in a coproc, and std and the C library for memory, threads, clocks and the end of the process.
/// Nothing of it opens a file or makes a process.
const LIBRARY: &[libc::c_long] = &[
    // Waits.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_sched_yield,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    libc::SYS_eventfd2,
    libc::SYS_membarrier,
    // Memory, and the region's growth.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_fallocate,
    libc::SYS_fstat,
    libc::SYS_flock,
    // Descriptors that it has.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fcntl,
    // Threads, and the own process.
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getattr,
    libc::SYS_getpriority,
    libc::SYS_prctl,
    libc::SYS_getrandom,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals, and an abort.
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Priorities and processors of the library's own protocols.
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
];

impl SystemCalls {
    /// What the library needs, and threads; no file can be opened, and no process made. `tgkill` and the calls for
    /// priorities reach any process that the user of this one may reach.
    pub fn library() -> Self {
        Self {
            allowed: LIBRARY.iter().copied().collect(),
            in_part: [libc::SYS_clone, libc::SYS_prlimit64].into(),
            kills: false,
        }
    }

    /// These, by their numbers (`SYS_…` of the crate `libc`), and no others. The coproc needs at least `exit_group`, and,
    /// with [`Self::denied_kills`], what the library calls as the coproc starts and ends: without that, the spawn fails with
    /// [`SpawnError::Died`](super::SpawnError::Died), or the coproc is killed at its end.
    pub fn only(calls: impl IntoIterator<Item = libc::c_long>) -> Self {
        Self {
            allowed: calls.into_iter().collect(),
            in_part: BTreeSet::new(),
            kills: false,
        }
    }

    /// These, too.
    pub fn allow(mut self, calls: impl IntoIterator<Item = libc::c_long>) -> Self {
        self.allowed.extend(calls);
        self
    }

    /// These no more.
    pub fn forbid(mut self, calls: impl IntoIterator<Item = libc::c_long>) -> Self {
        for call in calls {
            self.allowed.remove(&call);
            self.in_part.remove(&call);
        }
        self
    }

    /// A denied system call kills the coproc, by SIGSYS, in place of an error. (With glibc, a new thread then needs
    /// `clone3` allowed.)
    pub fn denied_kills(mut self) -> Self {
        self.kills = true;
        self
    }

    fn program(&self) -> Result<BpfProgram, seccompiler::Error> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = self
            .allowed
            .iter()
            .map(|call| (*call, Vec::new()))
            .collect();
        let thread = libc::CLONE_THREAD as u64;
        let is = |argument, length, value| {
            SeccompCondition::new(argument, length, SeccompCmpOp::Eq, value)
        };
        let flags = SeccompCmpOp::MaskedEq(thread);
        let only_if = [
            // A new thread, and no new process.
            (
                libc::SYS_clone,
                vec![SeccompCondition::new(
                    0,
                    SeccompCmpArgLen::Dword,
                    flags,
                    thread,
                )?],
            ),
            // The limits of this process are read.
            (
                libc::SYS_prlimit64,
                vec![
                    is(0, SeccompCmpArgLen::Dword, 0)?,
                    is(2, SeccompCmpArgLen::Qword, 0)?,
                ],
            ),
        ];
        for (call, conditions) in only_if {
            if !self.in_part.contains(&call) {
                continue;
            }
            let rule = SeccompRule::new(conditions)?;
            rules.entry(call).or_insert_with(|| vec![rule]);
        }
        let denied = match self.kills {
            true => SeccompAction::KillProcess,
            false => SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        };
        let arch = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?;
        Ok(BpfProgram::try_from(filter)?)
    }

    /// The program in a file, as the kernel reads it.
    fn file(&self) -> Result<OwnedFd, Errno> {
        let program = self.program().map_err(|_| Errno::INVAL)?;
        if program.len() > MAX_INSTRUCTIONS {
            return Err(Errno::TOOBIG);
        }
        let mut bytes = Vec::with_capacity(program.len() * INSTRUCTION_BYTES);
        for one in &program {
            bytes.extend_from_slice(&one.code.to_ne_bytes());
            bytes.extend_from_slice(&[one.jt, one.jf]);
            bytes.extend_from_slice(&one.k.to_ne_bytes());
        }
        let file = memory::anonymous_file("latchwork-filter")?;
        memory::write_all(&file, &bytes)?;
        Ok(file)
    }
}

/// What [`Attributes`](super::Attributes) say of this.
#[derive(Clone, Debug, Default)]
pub(super) struct Confinement {
    pub(super) files: Option<FileAccess>,
    pub(super) calls: Option<SystemCalls>,
    pub(super) best_effort: bool,
}

impl Confinement {
    pub(super) fn is_some(&self) -> bool {
        self.files.is_some() || self.calls.is_some()
    }

    /// Whether the system calls that are allowed include the one that opens files.
    pub(super) fn opens_files(&self) -> bool {
        let calls = self.calls.as_ref();
        calls.is_none_or(|calls| calls.allowed.contains(&libc::SYS_openat))
    }

    /// The ruleset to pass, if there is one.
    pub(super) fn ruleset(&self) -> Result<Option<OwnedFd>, Errno> {
        let Some(files) = &self.files else {
            return Ok(None);
        };
        let ruleset = files.ruleset(self.best_effort)?;
        // Without Landlock: a file in the ruleset's place, which the kernel refuses as it would refuse that.
        let passed = ruleset.map_or_else(|| memory::anonymous_file("latchwork-files"), Ok);
        passed.map(Some)
    }

    /// The program of the filter to pass, if there is one.
    pub(super) fn program(&self) -> Result<Option<OwnedFd>, Errno> {
        self.calls.as_ref().map(SystemCalls::file).transpose()
    }
}

/// Applies a confinement that was asked for. With `best_effort`, a kernel that lacks it is no error. A descriptor that is
/// missing is one in any case: nothing would be confined.
pub(super) fn apply<'a>(
    is_asked_for: bool,
    descriptor: Option<BorrowedFd<'a>>,
    best_effort: bool,
    step: impl FnOnce(BorrowedFd<'a>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if !is_asked_for {
        return Ok(());
    }
    match step(descriptor.ok_or(Errno::BADF)?) {
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) if best_effort => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::confine::filter_calls;
    use rustix::fd::AsFd;

    #[test]
    fn a_best_effort_accepts_what_the_kernel_lacks_and_no_missing_or_empty_program() {
        let file = memory::anonymous_file("latchwork-empty").unwrap();
        let lacks = |_: BorrowedFd<'_>| Err(Errno::NOSYS);
        for best_effort in [false, true] {
            assert_eq!(apply(false, None, best_effort, lacks), Ok(()));
            assert_eq!(apply(true, None, best_effort, lacks), Err(Errno::BADF));
            let empty = apply(true, Some(file.as_fd()), best_effort, filter_calls);
            assert_eq!(empty, Err(Errno::BADF));
        }
        let lacking = |best_effort| apply(true, Some(file.as_fd()), best_effort, lacks);
        assert_eq!((lacking(false), lacking(true)), (Err(Errno::NOSYS), Ok(())));
    }
}
