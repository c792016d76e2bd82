//! The attributes of a coproc.
#![allow(unsafe_code)]

use super::SpawnError;
use super::confine::{self, Confinement, FileAccess, SystemCalls};
use crate::region::Orphans;
use crate::sys::process::Sharing;
use crate::sys::scheduling::{CpuMask, MAX_CPUS, Policy};
use crate::sys::sockets::MAX_DESCRIPTORS;
use crate::sys::{confine as rights, limits, proc_file, process, scheduling};
use crate::text::whole_characters;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a name that are kept.
pub(super) const NAME_BYTES: usize = 64;
/// The stack of a coproc that asks for no other.
pub(super) const STACK_BYTES: usize = 8 << 20;

/// How the kernel schedules a coproc: a policy and its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// `SCHED_OTHER`, the usual one.
    Other {
        /// −20 (most favoured) to 19 (least); a value below the creator's own needs a privilege.
        nice: i32,
    },
    /// `SCHED_BATCH`: as `Other`, but the kernel takes it to be CPU-bound.
    Batch {
        /// As for [`Self::Other`].
        nice: i32,
    },
    /// `SCHED_IDLE`: runs only when no other task wants the processor.
    Idle,
    /// `SCHED_FIFO`: runs before all tasks that are not real-time, until it blocks. Needs a privilege.
    Fifo {
        /// 1 (least) to 99.
        priority: i32,
    },
    /// `SCHED_RR`: as FIFO, with time slices among equal priorities. Needs a privilege.
    RoundRobin {
        /// 1 (least) to 99.
        priority: i32,
    },
}

/// The attributes of a coproc; by default those that its creator had when the runtime started.
///
/// If an attribute cannot be set, the spawn returns its name ([`SpawnError::Attribute`]), and the coproc runs nothing.
///
/// ```
/// use latchwork::coproc::{Attributes, Scheduling};
///
/// let attributes = Attributes::new()
///     .name("worker")
///     .scheduling(Scheduling::Batch { nice: 5 })
///     .affinity([0])
///     .cpu_time(60)
///     .die_with_parent();
/// # let _ = attributes;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "attributes do nothing until something is spawned with them"]
pub struct Attributes {
    name: Option<String>,
    plain: Plain,
    affinity: Option<Vec<usize>>,
    cgroup: Option<PathBuf>,
    descriptors: Vec<Arc<OwnedFd>>,
    confinement: Confinement,
    sharing: Option<Sharing>,
    pub(super) detached: bool,
}

impl Attributes {
    /// A clean start, joinable, with all attributes at their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name that ps, top and `/proc` show: 15 bytes in `comm`, up to 64 bytes in `cmdline` (as much as the
    /// program's own arguments leave room for), and 32 bytes in the region's task table.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The limit of the address space in bytes (`RLIMIT_AS`, soft and hard). What the creator has mapped counts, and so
    /// does the whole [maximum](crate::region::RegionOptions::max_bytes) of each region.
    pub fn address_space(mut self, bytes: u64) -> Self {
        self.plain.address_space = Some(bytes);
        self
    }

    /// The largest core file in bytes (`RLIMIT_CORE`, soft and hard); 0 for none.
    pub fn core_size(mut self, bytes: u64) -> Self {
        self.plain.core_size = Some(bytes);
        self
    }

    /// The limit of processor time in seconds, at least 1 (`RLIMIT_CPU`). The kernel sends SIGXCPU at the limit, and
    /// SIGKILL five seconds of processor time later: the hard limit lies above the soft one, since with equal limits
    /// the kernel kills without a warning.
    pub fn cpu_time(mut self, seconds: u64) -> Self {
        self.plain.cpu_time = Some(seconds);
        self
    }

    /// The size of the stack in bytes, rounded up to whole pages and to at least 64 KiB; the default is 8 MiB. A guard
    /// page lies below it.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.plain.stack_size = Some(bytes);
        self
    }

    /// The scheduling policy, with priority or niceness.
    pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.plain.scheduling = Some(scheduling);
        self
    }

    /// The processors that it may run on, by number, below 1024. If one of them does not exist, is offline or is not
    /// allowed to the creator, the whole set is refused.
    pub fn affinity(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.affinity = Some(cpus.into_iter().collect());
        self
    }

    /// The control group to place it in: the group's directory.
    pub fn cgroup(mut self, directory: impl AsRef<Path>) -> Self {
        self.cgroup = Some(directory.as_ref().to_owned());
        self
    }

    /// It will not be joined: a later spawn or join, or [`reap_ended`](super::reap_ended), reaps it after its end.
    /// Until then it is a zombie. (A [`Supervisor`](super::Supervisor) waits for it nevertheless.)
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// It is killed when its creator's process ends, by whatever cause. (Not when the creating *thread* ends, as with
    /// `PR_SET_PDEATHSIG`.) A second thread in the coproc watches the creator; so a coproc that becomes another program by
    /// `exec` is not killed any more.
    pub fn die_with_parent(mut self) -> Self {
        self.plain.die_with_parent = true;
        self
    }

    /// What happens to the blocks that only it knows, if it dies.
    pub fn orphans(mut self, policy: Orphans) -> Self {
        self.plain.orphans = policy;
        self
    }

    /// Passes a descriptor, closed on exec; may be called several times. [`descriptors`](super::descriptors) returns
    /// them in the coproc, in this order.
    pub fn descriptor(mut self, descriptor: impl Into<OwnedFd>) -> Self {
        self.descriptors.push(Arc::new(descriptor.into()));
        self
    }

    /// No `exec` gives it privileges, or what it starts (`PR_SET_NO_NEW_PRIVS`): programs with the set-user-ID bit run
    /// without. [`Self::files`] and [`Self::system_calls`] include it, since the kernel asks for it.
    pub fn no_new_privs(mut self) -> Self {
        self.plain.no_new_privs = true;
        self
    }

    /// The files that it may open (by a Landlock ruleset), and what it starts. A path that does not exist is an error.
    ///
    /// It needs Linux 6.2, with Landlock enabled; otherwise the spawn fails with ENOSYS or EOPNOTSUPP, unless the
    /// [best effort](Self::best_effort) is accepted.
    pub fn files(mut self, access: FileAccess) -> Self {
        self.confinement.files = Some(access);
        self
    }

    /// The system calls that it may make (by a seccomp filter for all its threads), and what it starts. The filter is
    /// the last step of the start, before its function.
    pub fn system_calls(mut self, calls: SystemCalls) -> Self {
        self.confinement.calls = Some(calls);
        self
    }

    /// What the kernel lacks of [`Self::files`] and [`Self::system_calls`] is left out, and is no error.
    pub fn best_effort(mut self) -> Self {
        self.confinement.best_effort = true;
        self
    }

    /// A snapshot start: the coproc is a copy of the calling thread, with the memory as it is now and all open
    /// descriptors. Its cost grows with the memory of the process. See [`Coprocs::snapshot`](super::Coprocs::snapshot)
    /// on what that means for a program with threads.
    ///
    /// # Safety
    /// As for [`Coprocs::new`](super::Coprocs::new): the coproc does not use what this process owns in shared memory
    /// when the coproc is started. (Its descriptors are open.)
    pub unsafe fn snapshot(mut self) -> Self {
        self.sharing.get_or_insert(Sharing::empty());
        self
    }

    /// Shares one table of descriptors with the creator: a descriptor that one opens or closes is open or closed in the
    /// other. Implies [`Self::snapshot`], as do the other two sharing attributes, since the kernel shares only with the
    /// process that is copied.
    ///
    /// When a coproc that shares descriptors dies, none is closed: readers of its pipes see no end-of-file, and `fcntl`
    /// locks stay.
    ///
    /// # Safety
    /// As for [`Self::snapshot`]; and the coproc closes no descriptor that an object in its creator owns: dropping the
    /// copy of an `OwnedFd` closes the original's descriptor.
    pub unsafe fn share_files(self) -> Self {
        self.share(Sharing::FILES)
    }

    /// Shares the working directory, the root and the umask with the creator, both ways. Implies [`Self::snapshot`].
    ///
    /// # Safety
    /// As for [`Self::snapshot`].
    pub unsafe fn share_fs(self) -> Self {
        self.share(Sharing::FS)
    }

    /// Shares the list of System V semaphore adjustments, as threads do: they are undone when the last sharing process
    /// ends. Implies [`Self::snapshot`].
    ///
    /// # Safety
    /// As for [`Self::snapshot`].
    pub unsafe fn share_sysv_undo(self) -> Self {
        self.share(Sharing::SYSV_UNDO)
    }

    fn share(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(self.sharing.unwrap_or(Sharing::empty()) | sharing);
        self
    }

    /// What to share in a snapshot start; `None` for a clean one.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        self.sharing
    }

    /// Whether a ready coproc of the pool can serve these attributes.
    pub(super) fn fit_for_pool(&self) -> bool {
        let Self {
            name: _,
            plain,
            affinity,
            cgroup,
            descriptors,
            confinement,
            sharing,
            detached: _,
        } = self;
        let orphans = plain.orphans;
        let default = Plain::default();
        *plain == Plain { orphans, ..default }
            && (affinity.is_none() && cgroup.is_none())
            && (descriptors.is_empty() && sharing.is_none() && !confinement.is_some())
    }

    pub(super) fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or("coproc")
    }

    /// The attributes in the form that the record holds for the coproc.
    pub(super) fn settings(&self) -> Result<Settings, SpawnError> {
        Ok(Settings {
            plain: self.plain,
            affinity: self.affinity.as_deref().map(mask).transpose()?,
            cgroup: self.cgroup.is_some(),
            files: self.confinement.files.is_some(),
            calls: self.confinement.calls.is_some(),
            opens_files: self.confinement.opens_files(),
            best_effort: self.confinement.best_effort,
            ..Settings::named(self.display_name())
        })
    }

    /// The descriptors to pass: the requested ones, those of the confinement, and that of the control group's list.
    pub(super) fn open(&self) -> Result<Vec<Arc<OwnedFd>>, SpawnError> {
        let cgroup = self.cgroup.as_deref().map(proc_file::open_cgroup);
        let cgroup = cgroup.transpose();
        let cgroup = cgroup.map_err(|error| Attribute::Cgroup.failed(error))?;
        let passed = self.descriptors.iter().cloned();
        let ruleset = self.confinement.ruleset();
        let ruleset = ruleset.map_err(|error| Attribute::Files.failed(error))?;
        let program = self.confinement.program();
        let program = program.map_err(|error| Attribute::SystemCalls.failed(error))?;
        let own = [ruleset, program, cgroup].into_iter().flatten();
        let descriptors = passed.chain(own.map(Arc::new));
        let descriptors: Vec<_> = descriptors.collect();
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(Attribute::Descriptor.failed(Errno::TOOBIG));
        }
        Ok(descriptors)
    }
}

fn mask(cpus: &[usize]) -> Result<CpuMask, SpawnError> {
    let mut mask = [0; MAX_CPUS / 64];
    for cpu in cpus {
        let word = mask
            .get_mut(cpu / 64)
            .ok_or_else(|| Attribute::Affinity.failed(Errno::INVAL))?;
        *word |= 1 << (cpu % 64);
    }
    Ok(mask)
}

/// The attributes that can fail. Their numbers are stored in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Attribute {
    Process,
    Region,
    StackSize,
    Cgroup,
    Affinity,
    Scheduling,
    Nice,
    CpuTime,
    CoreSize,
    AddressSpace,
    DieWithParent,
    Descriptor,
    NoNewPrivs,
    Files,
    SystemCalls,
}

impl Attribute {
    const NAMES: [(Self, &'static str); 15] = [
        (Self::Process, "process"),
        (Self::Region, "region"),
        (Self::StackSize, "stack_size"),
        (Self::Cgroup, "cgroup"),
        (Self::Affinity, "affinity"),
        (Self::Scheduling, "scheduling"),
        (Self::Nice, "nice"),
        (Self::CpuTime, "cpu_time"),
        (Self::CoreSize, "core_size"),
        (Self::AddressSpace, "address_space"),
        (Self::DieWithParent, "die_with_parent"),
        (Self::Descriptor, "descriptor"),
        (Self::NoNewPrivs, "no_new_privs"),
        (Self::Files, "files"),
        (Self::SystemCalls, "system_calls"),
    ];

    /// The error for an attribute by its number in a record.
    pub(super) fn error(number: u32, errno: u32) -> SpawnError {
        let error = Errno::from_raw_os_error(errno.cast_signed());
        let attribute = Self::NAMES
            .iter()
            .find(|(attribute, _)| *attribute as u32 == number);
        SpawnError::Attribute {
            attribute: attribute.map_or("unknown", |(_, name)| name),
            error,
        }
    }

    pub(super) fn failed(self, error: Errno) -> SpawnError {
        Self::error(self as u32, error.raw_os_error().cast_unsigned())
    }
}

/// The attributes that the caller gives as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct Plain {
    address_space: Option<u64>,
    core_size: Option<u64>,
    cpu_time: Option<u64>,
    stack_size: Option<usize>,
    scheduling: Option<Scheduling>,
    pub(super) die_with_parent: bool,
    no_new_privs: bool,
    pub(super) orphans: Orphans,
}

/// Attributes as plain data, for the record.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Settings {
    name: [u8; NAME_BYTES],
    name_length: usize,
    pub(super) plain: Plain,
    affinity: Option<CpuMask>,
    /// The last descriptor is the control group's list of members.
    pub(super) cgroup: bool,
    /// A descriptor before it is that of the filter of system calls, and one before that of the ruleset for files.
    pub(super) calls: bool,
    pub(super) files: bool,
    /// Whether the filter of system calls, if there is one, allows to open files.
    opens_files: bool,
    best_effort: bool,
}

impl Settings {
    /// The default settings with this name.
    pub(super) fn named(text: &str) -> Self {
        let mut name = [0; NAME_BYTES];
        let kept = whole_characters(text, NAME_BYTES);
        name[..kept.len()].copy_from_slice(kept.as_bytes());
        Self {
            name,
            name_length: kept.len(),
            plain: Plain::default(),
            affinity: None,
            cgroup: false,
            calls: false,
            files: false,
            opens_files: true,
            best_effort: false,
        }
    }

    pub(super) fn stack_bytes(&self) -> usize {
        self.plain.stack_size.unwrap_or(STACK_BYTES)
    }

    pub(super) fn name(&self) -> &str {
        str::from_utf8(&self.name[..self.name_length.min(NAME_BYTES)]).unwrap_or_default()
    }

    /// Sets all attributes that the kernel keeps, in the coproc. The limit that would disturb the coproc's own start
    /// (its address space) is set last.
    pub(super) fn apply(&self, cgroup: Option<BorrowedFd<'_>>) -> Result<(), (Attribute, Errno)> {
        let named = |attribute| move |error| (attribute, error);
        if let Some(members) = cgroup {
            proc_file::enter_cgroup(members).map_err(named(Attribute::Cgroup))?;
        }
        if let Some(mask) = &self.affinity {
            scheduling::set_affinity(mask).map_err(named(Attribute::Affinity))?;
        }
        let plain = &self.plain;
        if let Some(wanted) = plain.scheduling {
            let (policy, priority, nice) = match wanted {
                Scheduling::Other { nice } => (Policy::Other, 0, Some(nice)),
                Scheduling::Batch { nice } => (Policy::Batch, 0, Some(nice)),
                Scheduling::Idle => (Policy::Idle, 0, None),
                Scheduling::Fifo { priority } => (Policy::Fifo, priority, None),
                Scheduling::RoundRobin { priority } => (Policy::RoundRobin, priority, None),
            };
            scheduling::set_policy(policy, priority).map_err(named(Attribute::Scheduling))?;
            nice.map_or(Ok(()), scheduling::set_nice)
                .map_err(named(Attribute::Nice))?;
        }
        let limit = |attribute, value: Option<u64>, set: fn(u64) -> _| {
            value.map_or(Ok(()), set).map_err(named(attribute))
        };
        limit(Attribute::CpuTime, plain.cpu_time, limits::limit_cpu)?;
        limit(Attribute::CoreSize, plain.core_size, limits::limit_core)?;
        let set = limits::limit_address_space;
        limit(Attribute::AddressSpace, plain.address_space, set)
    }

    /// Gives up privileges and files, for this thread and those that it starts.
    pub(super) fn confine(
        &self,
        ruleset: Option<BorrowedFd<'_>>,
    ) -> Result<(), (Attribute, Errno)> {
        if self.plain.no_new_privs || self.files || self.calls {
            rights::give_up_privileges().map_err(|error| (Attribute::NoNewPrivs, error))?;
        }
        confine::apply(
            self.files,
            ruleset,
            self.best_effort,
            rights::restrict_files,
        )
        .map_err(|error| (Attribute::Files, error))
    }

    /// Gives up system calls, for all threads.
    pub(super) fn filter_calls(
        &self,
        program: Option<BorrowedFd<'_>>,
    ) -> Result<(), (Attribute, Errno)> {
        if !self.opens_files {
            rights::give_up_opening();
        }
        confine::apply(self.calls, program, self.best_effort, rights::filter_calls)
            .map_err(|error| (Attribute::SystemCalls, error))
    }

    pub(super) fn apply_name(&self, arguments: &core::ops::Range<usize>) {
        process::set_name(self.name().as_bytes());
        // SAFETY: this process's arguments; a coproc has none of its own to use.
        unsafe { proc_file::set_title(arguments, self.name().as_bytes()) };
    }
}
