//! Creating regions, and the options for creating and attaching them.
//!
//! A creation takes these steps: a file without a name (`memfd_create`, `O_TMPFILE`); memory for header and tables;
//! the shared file lock that marks the file as in use; the mapping, at a free address; the header; an entry in the
//! registry. A named region is then published by one `linkat`. A kill before that leaves nothing, since the kernel
//! frees a file without a name together with its last descriptor and mapping.
#![allow(unsafe_code)]

use super::attach::attach;
use super::error;
use super::header::{self, Header, Identity, Layout, MAX_BYTES, MAX_NAMES, MAX_TASKS, MIN_BYTES};
use super::heap::SPAN_BYTES;
use super::registry::{self, RegistryLock};
use super::validate::{Expected, KnownContent};
use super::{AttachError, CreateError, Inner, NameError, Region};
use crate::atomic::Ordering;
use crate::sys::memory::{self, Mapping};
use crate::text::whole_characters;
use core::ops::{Range, RangeInclusive};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The directory of named regions' files.
pub(super) const DIRECTORY: &str = "/dev/shm";
/// The prefix of named regions' file names.
pub(super) const PREFIX: &str = "latchwork-";
/// Into how many places the address range for regions is divided. A process can have half as many regions, if each needs
/// one place (4 GiB with 47 bits, 128 MiB with 42, 16 MiB with 39).
const PLACES: usize = 8192;

/// Options for creating or attaching a region.
///
/// ```
/// use latchwork::region::RegionOptions;
///
/// let region = RegionOptions::new().max_bytes(64 << 20).max_tasks(32).label("example").create_anonymous()?;
/// assert_eq!(region.label(), "example");
/// # Ok::<(), latchwork::region::CreateError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `create_…` or `attach…` is called"]
pub struct RegionOptions {
    max_bytes: u64,
    max_tasks: u16,
    max_names: u32,
    mode: u32,
    label: String,
    address: Option<usize>,
    unlink_at_last_detach: bool,
    trust_any_owner: bool,
    any_pid_namespace: bool,
    expected: Option<Expected>,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            max_tasks: 256,
            max_names: 1024,
            mode: 0o600,
            label: String::new(),
            address: None,
            unlink_at_last_detach: false,
            trust_any_owner: false,
            any_pid_namespace: false,
            expected: None,
        }
    }
}

impl RegionOptions {
    /// The defaults: at most 256 MiB, 256 tasks and 1024 names; accessible to this user only.
    pub fn new() -> Self {
        Self::default()
    }

    /// The maximum size of the heap in bytes, 1 MiB to 1 TiB. Only address space, and memory of about 0.2 % for
    /// tables, are taken at once; the heap takes further memory as it grows.
    ///
    /// The whole maximum counts against `RLIMIT_AS`.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The maximum number of tasks (threads of all processes together) at a time, 1 to 16,384.
    pub fn max_tasks(mut self, tasks: u16) -> Self {
        self.max_tasks = tasks;
        self
    }

    /// The maximum number of named objects, 1 to 1,048,576. A directory that is fuller than four fifths is searched more slowly.
    pub fn max_names(mut self, names: u32) -> Self {
        self.max_names = names;
        self
    }

    /// Permission bits of a named region's file; the default is 0600. Other users whom they admit must [trust its
    /// owner](Self::trust_any_owner) explicitly.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The name that `latchwork ps` shows for an anonymous region. At most 63 bytes are kept, in whole characters.
    pub fn label(mut self, label: &str) -> Self {
        whole_characters(label, header::LABEL_BYTES - 1).clone_into(&mut self.label);
        self
    }

    /// The base address, a multiple of 64 KiB. By default a free address is chosen.
    pub fn address(mut self, address: usize) -> Self {
        self.address = Some(address);
        self
    }

    /// Removes a named region's name when the last process that has it mapped detaches or exits in an orderly way
    /// (after a kill, `latchwork gc` does). Forks and coprocs made in the meantime also have the region mapped,
    /// whether they use it or not, and so does a runtime's server process. By default the name stays.
    ///
    /// It also stays if the last process exits while another of its threads is a task of the region, or a handle is in use,
    /// such as one in a static; or if it is the child of a fork by a task of the region. And it stays if the last process is a
    /// runtime's server process, which has all regions that its creator had attached when the runtime started: the library ends
    /// it by SIGKILL. `latchwork gc` then removes the name.
    pub fn unlink_at_last_detach(mut self, unlink: bool) -> Self {
        self.unlink_at_last_detach = unlink;
        self
    }

    /// Creates a region for tasks of any PID namespace: containers that share its file can share it. By default, a region is
    /// for the namespace in which it was created.
    ///
    /// Such a region has no locks that name a thread by its ID: [`Robust`](crate::mutex::Robust),
    /// [`Inherit`](crate::mutex::Inherit), [`Throughput`](crate::mutex::Throughput) and what contains one of them cannot be
    /// made in it. [`InRegion`](crate::mutex::InRegion) takes their place. A task of another namespace has no thread ID here:
    /// its priority in the kernel cannot be changed, and the checker's reports leave it out.
    pub fn any_pid_namespace(mut self, any: bool) -> Self {
        self.any_pid_namespace = any;
        self
    }

    /// Also attaches regions that another user owns. By default that is refused, to root as well.
    ///
    /// # Safety
    /// Every region attached with these options was made by this library on behalf of a user who may run code as
    /// the calling user, and only this library writes it as long as it is attached. A region holds pointers, and the
    /// owner of its file can store any pointer there. (Any user can be the first to create a given name in
    /// `/dev/shm`.) See [what safety rests on](super#what-safety-rests-on).
    pub unsafe fn trust_any_owner(mut self, trust: bool) -> Self {
        self.trust_any_owner = trust;
        self
    }

    /// Attaches only after a validation of everything: beside header, task table, heap and names, as always, also of what
    /// the objects hold. So a file that was damaged, or that somebody has written into, is an error, and is no crash
    /// later. The types of its objects must be [declared](Self::holds).
    ///
    /// It takes a time and an amount of memory in proportion to the size of the region. (So a map is refused whose entries
    /// are all far from their places, as those of more than 500 keys of one hash may be.) It works on a region that no
    /// process has: the contents of another one change meanwhile ([`AttachError::InUse`]). Once it is attached, its peers
    /// are trusted with what they write, as always. It has no effect on creations.
    ///
    /// ```
    /// use latchwork::mutex::{InRegion, Mutex};
    /// use latchwork::region::{AttachError, RegionOptions, Vec};
    ///
    /// type Log = Mutex<Vec<u64>, InRegion>;
    /// let options = RegionOptions::new().checked().holds::<Log>();
    /// match options.attach("no-such-log") {
    ///     Ok(region) => println!("{}", region.find::<Log>("log")?.lock()?.len()),
    ///     Err(AttachError::Unsound(what)) => eprintln!("{}, at {:#x}", what.what, what.offset),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checked(mut self) -> Self {
        self.expected.get_or_insert_default();
        self
    }

    /// Declares a type of named objects for a [checked attach](Self::checked), which this asks for: one that derives
    /// [`Validate`](super::Validate), or a queue, a semaphore, or RTEMS's classic interface. A checked attach refuses
    /// a region with an object of another type ([`AttachError::UnknownType`]).
    pub fn holds<T: KnownContent>(mut self) -> Self {
        let contents = &mut self.expected.get_or_insert_default().contents;
        contents.push(T::content());
        self
    }

    /// Accepts objects of types that were not declared in a [checked attach](Self::checked), which this asks for: of
    /// these, only the block is validated. A program that then uses such an object trusts what made the file.
    pub fn holds_others(mut self) -> Self {
        self.expected.get_or_insert_default().accepts_others = true;
        self
    }

    pub(super) fn trusts_any_owner(&self) -> bool {
        self.trust_any_owner
    }

    /// Creates a region without a name. It is for this process, for copies of this process that are made later, and for
    /// processes that are passed its [file](Region::file). A fork is such a copy, and so is a snapshot coproc; a clean
    /// coproc is a copy of the process as it was when the coproc's runtime started.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_anonymous(&self) -> Result<Region, CreateError> {
        let label = if self.label.is_empty() {
            "anonymous"
        } else {
            &self.label
        };
        let file = memory::anonymous_file(&format!("{PREFIX}{}", label.replace(['\0', '/'], "_")))
            .map_err(system("memfd_create"))?;
        let region = self.create(file, label, None)?;
        memory::close_seals(region.file()).map_err(system("fcntl(F_ADD_SEALS)"))?;
        Ok(region)
    }

    /// Creates a region that unrelated programs find by its name. The name appears in one step, when the region is
    /// complete: no process can find an incomplete region, even after a kill.
    ///
    /// # Errors
    /// [`CreateError::Exists`] if the name is taken; see [`CreateError`].
    pub fn create_named(&self, name: &str) -> Result<Region, CreateError> {
        let path = path_of(name)?;
        let file = memory::unnamed_file(Path::new(DIRECTORY), self.mode)
            .map_err(system("open(O_TMPFILE)"))?;
        let region = self.create(file, name, Some(path.clone()))?;
        match memory::publish_file(region.file(), &path) {
            Ok(()) => Ok(region),
            Err(Errno::EXIST) => Err(CreateError::Exists),
            Err(error) => Err(system("linkat")(error)),
        }
    }

    /// Attaches a named region, at the address that its creator chose.
    ///
    /// The file must have been made by this library, and only this library may write it: see [what safety rests
    /// on](super#what-safety-rests-on).
    ///
    /// # Errors
    /// See [`AttachError`]: the file is validated before any of its contents is used.
    pub fn attach(&self, name: &str) -> Result<Region, AttachError> {
        let path = path_of(name)?;
        let file = memory::open_file(&path, true).map_err(|error| match error {
            Errno::NOENT => AttachError::NotFound,
            Errno::ACCESS | Errno::PERM => AttachError::Permission,
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => AttachError::NotARegion,
            error => error::system("open")(error),
        })?;
        attach(
            file,
            Some(path),
            self.trust_any_owner,
            self.expected.as_ref(),
        )
    }

    /// Attaches the region of this name, or creates it if there is none.
    ///
    /// # Errors
    /// As for [`Self::attach`] and [`Self::create_named`].
    pub fn attach_or_create(&self, name: &str) -> Result<Region, AttachError> {
        loop {
            match self.attach(name) {
                Err(AttachError::NotFound) => {}
                other => return other,
            }
            match self.create_named(name) {
                Ok(region) => return Ok(region),
                Err(CreateError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes the name of a region, whether or not processes have it attached: these keep it, and the memory is freed
    /// when the last of them is gone. For regions that no process has any more see [`remove_unused`].
    ///
    /// # Errors
    /// [`AttachError::NotFound`], [`AttachError::Name`], [`AttachError::Permission`].
    ///
    /// [`remove_unused`]: super::leftovers::remove_unused
    pub fn unlink(name: &str) -> Result<(), AttachError> {
        memory::unlink(&path_of(name)?).map_err(|error| match error {
            Errno::NOENT => AttachError::NotFound,
            Errno::ACCESS | Errno::PERM => AttachError::Permission,
            error => AttachError::System {
                call: "unlink",
                error,
            },
        })
    }

    /// Attaches a region by its memory file, as passed from another process.
    ///
    /// The file must have been made by this library, and only this library may write it: see [what safety rests
    /// on](super#what-safety-rests-on).
    ///
    /// The file is opened once more, through `/proc`, for which this process needs permission: a file lock marks the
    /// region as in use, and such a lock belongs to an open file description. That of the passed descriptor is the
    /// sender's.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach_file(&self, file: OwnedFd) -> Result<Region, AttachError> {
        let status = memory::file_status(&file).map_err(error::system("fstat"))?;
        if !status.regular {
            return Err(AttachError::NotARegion);
        }
        let own = memory::open_again(&file).map_err(|error| match error {
            Errno::ACCESS | Errno::PERM => AttachError::Permission,
            // The file is open: what does not exist is `/proc`.
            Errno::NOENT => AttachError::UnknownPidNamespace,
            error => error::system("open(/proc/thread-self/fd)")(error),
        })?;
        attach(own, None, self.trust_any_owner, self.expected.as_ref())
    }

    fn flags(&self) -> u16 {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        flag(
            self.unlink_at_last_detach,
            header::FLAG_UNLINK_AT_LAST_DETACH,
        ) | flag(self.any_pid_namespace, header::FLAG_ANY_PID_NAMESPACE)
    }

    fn create(
        &self,
        file: OwnedFd,
        label: &str,
        path: Option<PathBuf>,
    ) -> Result<Region, CreateError> {
        in_range("max_bytes", self.max_bytes, MIN_BYTES..=MAX_BYTES)?;
        in_range("max_tasks", self.max_tasks.into(), 1..=MAX_TASKS.into())?;
        in_range("max_names", self.max_names.into(), 1..=MAX_NAMES.into())?;
        let layout = Layout::new(self.max_bytes, self.max_tasks, self.max_names)
            .ok_or(CreateError::NoAddress(self.max_bytes as usize))?;
        let committed = layout.heap as u64;
        memory::allocate(&file, 0, committed).map_err(CreateError::OutOfMemory)?;
        memory::lock_in_use(&file).map_err(system("flock"))?;
        let pid_namespace =
            memory::pid_namespace().map_err(|_| CreateError::UnknownPidNamespace)?;
        RegistryLock::prepare().map_err(system("mmap"))?;
        // Threads that become tasks ask for it later, perhaps without a `/proc`.
        crate::sys::namespaces::own();
        let lock = RegistryLock::lock();
        registry::unmap_retained(&lock);
        let mapping = self.map(&file, layout.total, &lock)?;
        let base = mapping.base();
        let mut stored = [0; header::LABEL_BYTES];
        let kept = label.len().min(header::LABEL_BYTES - 1);
        stored[..kept].copy_from_slice(&label.as_bytes()[..kept]);
        let identity = Identity {
            magic: header::MAGIC,
            version: header::VERSION,
            max_tasks: self.max_tasks,
            flags: self.flags(),
            fingerprint: header::FINGERPRINT,
            base: base.addr().get() as u64,
            max_bytes: self.max_bytes,
            pid_namespace,
            max_names: self.max_names,
            creator: crate::sys::thread::process_id(),
            label: stored,
            number: memory::random_number(),
        };
        // SAFETY: the first pages are committed, writable and zero, and no other process knows them yet. Zero is the
        // valid initial state of all tables and locks.
        unsafe {
            let header = base.cast::<Header>().as_ptr();
            (&raw mut (*header).identity).write(identity);
            (*header).committed.store(committed, Ordering::Relaxed);
        }
        Inner::new(file, mapping, identity, layout, path)
            .register(&lock)
            .ok_or(CreateError::TooManyRegions)
    }

    fn map(
        &self,
        file: &OwnedFd,
        bytes: usize,
        lock: &RegistryLock,
    ) -> Result<Mapping, CreateError> {
        if let Some(address) = self.address {
            let window = 0x1_0000..memory::address_window().end << 1;
            if !address.is_multiple_of(SPAN_BYTES) || !window.contains(&address) {
                return Err(CreateError::Capacity {
                    what: "address (a multiple of 64 KiB)",
                    given: address as u64,
                    min: window.start as u64,
                    max: window.end as u64,
                });
            }
            registry::complete_removals(&(address..address + bytes), lock);
            return Mapping::shared_at(file, address, bytes).map_err(|error| match error {
                Errno::EXIST => CreateError::AddressTaken(address),
                error => system("mmap")(error),
            });
        }
        let random =
            crate::sys::clock::since_boot() ^ (u64::from(crate::sys::thread::process_id()) << 32);
        for address in places(memory::address_window(), bytes, random) {
            match Mapping::shared_at(file, address, bytes) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOMEM) => break,
                other => return other.map_err(system("mmap")),
            }
        }
        Err(CreateError::NoAddress(bytes))
    }
}

/// The places for a region of this size, each once, in an order that the number decides: so regions of several processes
/// rarely need the same addresses, and a process finds a place as long as one is free.
fn places(window: Range<usize>, bytes: usize, random: u64) -> impl Iterator<Item = usize> {
    let distance = window.len() / PLACES;
    let mixed = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let (first, stride) = ((mixed >> 33) as usize, (mixed >> 48) as usize | 1);
    (0..PLACES)
        // An odd stride leads to each of a power of two.
        .map(move |number| (first + number * stride) % PLACES)
        .map(move |place| window.start + place * distance)
        .filter(move |address| address + bytes <= window.end)
}

fn in_range(what: &'static str, given: u64, range: RangeInclusive<u64>) -> Result<(), CreateError> {
    let (min, max) = (*range.start(), *range.end());
    let error = CreateError::Capacity {
        what,
        given,
        min,
        max,
    };
    range.contains(&given).then_some(()).ok_or(error)
}

fn system(call: &'static str) -> impl Fn(Errno) -> CreateError {
    move |error| CreateError::System { call, error }
}

/// The path of a named region's file.
pub(super) fn path_of(name: &str) -> Result<PathBuf, NameError> {
    let max = header::LABEL_BYTES - 1;
    if name.is_empty() || name.len() > max || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(NameError { max });
    }
    Ok(Path::new(DIRECTORY).join(format!("{PREFIX}{name}")))
}

#[cfg(test)]
mod tests {
    use super::super::region_id::MAX_REGIONS;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_address_space_has_more_places_than_a_process_can_have_regions() {
        for start in [1 << 37, 1 << 40, 1 << 45] {
            for random in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let all: HashSet<_> = places(start..2 * start, SPAN_BYTES, random).collect();
                assert!(all.len() == PLACES && PLACES > MAX_REGIONS);
                assert!(all.iter().all(|place| place % (16 << 20) == 0));
                let last = places(start..2 * start, start, random);
                assert_eq!(last.collect::<Vec<_>>(), [start]);
            }
        }
    }
}
