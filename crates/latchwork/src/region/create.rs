//! Making and attaching regions.
#![allow(unsafe_code)]

use super::header::{self, Header, Identity, Layout};
use super::heap::{GrowError, Heap, SPAN_BYTES, TaskHeaps};
use super::task_table::{Life, Slot};
use super::{AttachError, CreateError, Inner, NameError, Region};
use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::mutex::RawError;
use crate::sys::memory::{self, FileLock};
use core::ptr::NonNull;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where named regions live.
pub(super) const DIRECTORY: &str = "/dev/shm";
/// What the files of named regions begin with.
pub(super) const PREFIX: &str = "latchwork-";
/// Bytes by which a region grows at least, and the step that it is committed in.
const GROW_BYTES: usize = 1 << 20;
const ADDRESS_STEP: usize = 4 << 30;

/// How a region is to be made or attached.
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
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RegionOptions {
    /// 256 MiB at most, 256 tasks, 1024 names, accessible to this user only.
    pub fn new() -> Self {
        Self {
            max_bytes: 256 << 20,
            max_tasks: 256,
            max_names: 1024,
            mode: 0o600,
            label: String::new(),
            address: None,
            unlink_at_last_detach: false,
        }
    }

    /// The most bytes that the heap can grow to, 1 MiB to 1 TiB. Only address space and about
    /// 0.2 % for tables are taken at once; memory follows as the heap grows.
    ///
    /// Against an `RLIMIT_AS` the whole maximum counts.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The most tasks (threads of all processes together) at a time, 1 to 4096.
    pub fn max_tasks(mut self, tasks: u16) -> Self {
        self.max_tasks = tasks;
        self
    }

    /// The most named objects, 1 to 65,536.
    pub fn max_names(mut self, names: u32) -> Self {
        self.max_names = names;
        self
    }

    /// Permission bits of a named region's file; the default is 0600.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// What `latchwork ps` calls an anonymous region. At most 63 bytes are kept.
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// The base address, a multiple of 64 KiB. By default a free one is chosen.
    pub fn address(mut self, address: usize) -> Self {
        self.address = Some(address);
        self
    }

    /// Removes a named region's name when the last process that has it mapped detaches or dies in
    /// good order (after a kill, `latchwork gc` does). By default the name stays.
    pub fn unlink_at_last_detach(mut self, unlink: bool) -> Self {
        self.unlink_at_last_detach = unlink;
        self
    }

    /// Makes a region without a name, for this process, its coprocs and forks, and whoever is
    /// passed its [file](Region::file).
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

    /// Makes a region that unrelated programs find by its name. The name appears in one step, when
    /// the region is complete: nobody ever finds half of it, even after a kill.
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
            Err(error) => Err(CreateError::System {
                call: "linkat",
                error,
            }),
        }
    }

    /// Attaches a named region, at the address that its creator chose.
    ///
    /// # Errors
    /// See [`AttachError`]: the file is validated before anything of it is used.
    pub fn attach(&self, name: &str) -> Result<Region, AttachError> {
        self.attach_path(&path_of(name)?)
    }

    /// Attaches the region of this name, or makes it if there is none.
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

    /// Attaches a region by its memory file, as passed from another process.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach_file(&self, file: OwnedFd) -> Result<Region, AttachError> {
        attach(file, None)
    }

    fn attach_path(&self, path: &Path) -> Result<Region, AttachError> {
        let file = memory::open_file(path, true).map_err(|error| match error {
            Errno::NOENT => AttachError::NotFound,
            Errno::ACCESS | Errno::PERM => AttachError::Permission,
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => AttachError::NotARegion,
            error => AttachError::System {
                call: "open",
                error,
            },
        })?;
        attach(file, Some(path.to_owned()))
    }

    fn create(
        &self,
        file: OwnedFd,
        label: &str,
        path: Option<PathBuf>,
    ) -> Result<Region, CreateError> {
        if !crate::sys::futex::has_wait_many() {
            return Err(CreateError::Kernel(WAITV));
        }
        in_range(
            "max_bytes",
            self.max_bytes,
            header::MIN_BYTES,
            header::MAX_BYTES,
        )?;
        in_range(
            "max_tasks",
            self.max_tasks.into(),
            1,
            header::MAX_TASKS.into(),
        )?;
        in_range(
            "max_names",
            self.max_names.into(),
            1,
            header::MAX_NAMES.into(),
        )?;
        let layout = Layout::new(self.max_bytes, self.max_tasks, self.max_names)
            .ok_or(CreateError::NoAddress(self.max_bytes as usize))?;
        let committed = layout.heap as u64;
        memory::allocate(&file, 0, committed).map_err(CreateError::OutOfMemory)?;
        memory::lock_in_use(&file).map_err(system("flock"))?;
        let base = self.map(&file, layout.total)?;
        let pid_namespace = memory::pid_namespace().map_err(system("stat(/proc/self/ns/pid)"))?;
        let mut stored = [0; header::LABEL_BYTES];
        let kept = label.len().min(header::LABEL_BYTES - 1);
        stored[..kept].copy_from_slice(&label.as_bytes()[..kept]);
        let identity = Identity {
            magic: header::MAGIC,
            version: header::VERSION,
            max_tasks: self.max_tasks,
            flags: if self.unlink_at_last_detach {
                header::FLAG_UNLINK_AT_LAST_DETACH
            } else {
                0
            },
            fingerprint: header::FINGERPRINT,
            base: base.addr().get() as u64,
            max_bytes: self.max_bytes,
            pid_namespace,
            max_names: self.max_names,
            creator: crate::sys::thread::process_id(),
            label: stored,
        };
        // SAFETY: the first pages are committed, writable, zero, and nobody else knows them yet.
        // Zero is right for all the tables; only the robust nodes of the header are more.
        unsafe {
            let header = base.cast::<Header>().as_ptr();
            (&raw mut (*header).identity).write(identity);
            (&raw mut (*header).grow_lock).write(crate::mutex::Robust::new());
            (&raw mut (*header).sweep_lock).write(crate::mutex::Robust::new());
            (&raw mut (*header).names_lock).write(crate::mutex::Robust::new());
            (*header).committed.store(committed, Ordering::Relaxed);
        }
        let region = finish(file, base, layout, path).ok_or(CreateError::TooManyRegions)?;
        Ok(region)
    }

    fn map(&self, file: &OwnedFd, bytes: usize) -> Result<NonNull<u8>, CreateError> {
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
            return memory::map_shared_at(file, address, bytes).map_err(|error| match error {
                Errno::EXIST => CreateError::AddressTaken(address),
                error => CreateError::System {
                    call: "mmap",
                    error,
                },
            });
        }
        let window = memory::address_window();
        let places = (window.end - window.start) / ADDRESS_STEP;
        // Different regions want different addresses, so that one process can have many of them.
        let mut seed =
            crate::sys::clock::since_boot() ^ (u64::from(crate::sys::thread::process_id()) << 32);
        for _ in 0..64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let address = window.start + ((seed >> 33) as usize % places) * ADDRESS_STEP;
            if address + bytes > window.end {
                continue;
            }
            match memory::map_shared_at(file, address, bytes) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOMEM) => return Err(CreateError::NoAddress(bytes)),
                other => return other.map_err(system("mmap")),
            }
        }
        Err(CreateError::NoAddress(bytes))
    }
}

const WAITV: &str = "futex_waitv (Linux 5.16)";

fn in_range(what: &'static str, given: u64, min: u64, max: u64) -> Result<(), CreateError> {
    if (min..=max).contains(&given) {
        Ok(())
    } else {
        Err(CreateError::Capacity {
            what,
            given,
            min,
            max,
        })
    }
}

fn system(call: &'static str) -> impl Fn(Errno) -> CreateError {
    move |error| CreateError::System { call, error }
}

/// The file of a named region.
pub(super) fn path_of(name: &str) -> Result<PathBuf, NameError> {
    let max = header::LABEL_BYTES - 1;
    if name.is_empty() || name.len() > max || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(NameError { max });
    }
    Ok(Path::new(DIRECTORY).join(format!("{PREFIX}{name}")))
}

fn attach(file: OwnedFd, path: Option<PathBuf>) -> Result<Region, AttachError> {
    let system = |call| move |error| AttachError::System { call, error };
    if !crate::sys::futex::has_wait_many() {
        return Err(AttachError::Kernel(WAITV));
    }
    // First of all: from here on `gc` leaves the file alone. Who gets the exclusive lock is the
    // only process that has the region, and can look at it more closely.
    let alone = memory::lock_unused(&file).map_err(system("flock"))? == FileLock::Taken;
    if !alone {
        memory::lock_in_use(&file).map_err(system("flock"))?;
    }
    let status = memory::file_status(&file).map_err(system("fstat"))?;
    if !status.regular {
        return Err(AttachError::NotARegion);
    }
    // It was unlinked between our opening it and locking it.
    if path.is_some() && status.links == 0 {
        return Err(AttachError::NotFound);
    }
    let mut bytes = [0; size_of::<Identity>()];
    if memory::read_at(&file, &mut bytes, 0).map_err(system("pread"))? < bytes.len() {
        return Err(AttachError::NotARegion);
    }
    let identity = Identity::parse(bytes);
    let layout = identity.check(status.bytes, memory::page_bytes())?;
    let here = memory::pid_namespace().map_err(system("stat(/proc/self/ns/pid)"))?;
    if identity.pid_namespace != here {
        return Err(AttachError::OtherPidNamespace {
            region: identity.pid_namespace,
            here,
        });
    }
    let base = identity.base as usize;
    // Attached already: another handle on the same mapping.
    if let Some(inner) = Inner::containing(base)
        && memory::file_status(&inner.file)
            .map_err(system("fstat"))?
            .is_same_file(&status)
    {
        return Ok(Region::new(inner));
    }
    let mapped = memory::map_shared_at(&file, base, layout.total).map_err(|error| match error {
        Errno::EXIST => AttachError::AddressTaken { base },
        error => AttachError::System {
            call: "mmap",
            error,
        },
    })?;
    // A sparse file has the size but not the memory; touching it must not end in SIGBUS.
    memory::allocate(&file, 0, layout.heap as u64).map_err(system("fallocate"))?;
    let region = finish(file, mapped, layout, path).ok_or(AttachError::TooManyRegions)?;
    let committed = layout.heap as u64 + region.inner.heap.committed() as u64 * SPAN_BYTES as u64;
    // The size after that look: meanwhile another task may have made the file grow.
    let status = memory::file_status(&region.inner.file).map_err(system("fstat"))?;
    if region.inner.heap.committed() > layout.heap_layout.max_spans || committed > status.bytes {
        return Err(AttachError::Truncated {
            bytes: status.bytes,
            needed: committed,
        });
    }
    if status.sparse {
        memory::allocate(&region.inner.file, 0, committed).map_err(system("fallocate"))?;
    }
    if alone {
        validate(&region)?;
        memory::lock_in_use(&region.inner.file).map_err(system("flock"))?;
        // The kernel gives up one lock before it takes the other: in between the name may have gone.
        let status = memory::file_status(&region.inner.file).map_err(system("fstat"))?;
        if region.path().is_some() && status.links == 0 {
            return Err(AttachError::NotFound);
        }
    }
    Ok(region)
}

/// Looks closely at a region that nobody else has: every lock must be free or its owner dead, and
/// the heap must be sound.
fn validate(region: &Region) -> Result<(), AttachError> {
    let header = region.inner.header();
    let locks = [&header.grow_lock, &header.sweep_lock, &header.names_lock];
    let held = locks.iter().any(|lock| lock.owner().is_some())
        || region
            .inner
            .slots()
            .iter()
            .any(|slot| matches!(slot.life(), Life::Alive(_)));
    if held {
        return Err(AttachError::Damaged(
            "a lock is held although no process has the region",
        ));
    }
    for slot in region.inner.slots() {
        if slot.life() == Life::Free {
            // A cache, which its next task would believe.
            slot.heap.reset();
        }
        if !region.inner.heap.is_plausible(&slot.heap) {
            return Err(AttachError::Damaged(
                "a task's heap record leads out of the region",
            ));
        }
    }
    region.sweep()?;
    region
        .inner
        .heap
        .check()
        .map_err(|_| AttachError::Damaged("the heap is corrupt"))
}

impl From<CreateError> for AttachError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Kernel(what) => Self::Kernel(what),
            CreateError::Name(error) => Self::Name(error),
            CreateError::TooManyRegions => Self::TooManyRegions,
            CreateError::AddressTaken(base) => Self::AddressTaken { base },
            CreateError::OutOfMemory(error) => Self::System {
                call: "fallocate",
                error,
            },
            CreateError::System { call, error } => Self::System { call, error },
            CreateError::NoAddress(_) => Self::System {
                call: "mmap",
                error: Errno::NOMEM,
            },
            CreateError::Exists => Self::System {
                call: "linkat",
                error: Errno::EXIST,
            },
            CreateError::Capacity { .. } => Self::System {
                call: "capacity check",
                error: Errno::INVAL,
            },
        }
    }
}

/// Wraps a mapping into a handle; `None`, and the mapping undone, when there are too many.
fn finish(
    file: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
    path: Option<PathBuf>,
) -> Option<Region> {
    let tasks = TaskHeaps {
        // SAFETY: the layout places the slots inside the mapping.
        first: unsafe {
            base.add(layout.slots + core::mem::offset_of!(Slot, heap))
                .cast()
        },
        stride: size_of::<Slot>(),
    };
    let grower = Grower {
        base,
        descriptor: file.as_raw_fd(),
        layout,
    };
    // SAFETY: tables and data lie in the mapping as the layout says; the tables were zero at
    // creation; the mapping outlives the heap, which `Inner` holds beside it.
    let heap = unsafe {
        Heap::from_raw(
            base.add(layout.heap_tables),
            base.add(layout.heap),
            layout.heap_layout,
            tasks,
            Box::new(move |heap, spans| grower.grow(heap, spans)),
        )
    };
    let inner = Arc::new(Inner {
        file,
        base,
        layout,
        path,
        heap,
        uses: AtomicUsize::new(0),
        lasting: AtomicBool::new(false),
    });
    crate::task::set_owner_death_hook(super::sweep::after_owner_death);
    crate::sleep::set_hook(super::park::sleep);
    inner.register().then(|| Region::new(inner))
}

/// What the heap calls when it has no free span.
struct Grower {
    base: NonNull<u8>,
    descriptor: i32,
    layout: Layout,
}

// SAFETY: the base is only used as the address of the header, which consists of atomics and locks.
unsafe impl Send for Grower {}
// SAFETY: as above.
unsafe impl Sync for Grower {}

impl Grower {
    /// Commits memory for `spans` more spans, under the region's lock.
    ///
    /// A kill leaves at most memory that is committed and not yet counted; the next growth counts
    /// it (`fallocate` over committed memory does nothing).
    fn grow(&self, heap: &Heap, spans: u32) -> Result<(), GrowError> {
        // SAFETY: the mapping begins with the header.
        let header: &Header = unsafe { self.base.cast().as_ref() };
        // SAFETY: the lock lies in the mapping, which outlives this call.
        match unsafe { header.grow_lock.lock_raw(None) } {
            Ok(_) => header.grow_lock.mark_consistent(),
            Err(RawError::Deadlock) => crate::fatal(format_args!(
                "a region's heap was used by a signal handler that interrupted its growth"
            )),
            Err(_) => return Err(GrowError),
        }
        let before = heap.committed();
        let max = self.layout.heap_layout.max_spans;
        let step = spans.max((GROW_BYTES / SPAN_BYTES) as u32).max(before / 4);
        let wanted = before.saturating_add(step).min(max);
        let result = self.commit(header, before, wanted).or_else(|_| {
            // Not for the growth that was wished for, perhaps for what is needed.
            self.commit(header, before, before.saturating_add(spans).min(max))
        });
        if let Ok(committed) = result {
            heap.publish_committed(committed);
        }
        // SAFETY: locked above.
        unsafe { header.grow_lock.unlock_raw() };
        result.map(|_| ()).map_err(|_| GrowError)
    }

    fn commit(&self, header: &Header, before: u32, after: u32) -> Result<u32, Errno> {
        let offset = (self.layout.heap + before as usize * SPAN_BYTES) as u64;
        let bytes = (after - before) as u64 * SPAN_BYTES as u64;
        // SAFETY: the descriptor is the region's file, which `Inner` keeps open beside this heap.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        if bytes > 0 {
            memory::allocate(file, offset, bytes)?;
        }
        // Relaxed: for the inspector.
        header.committed.store(offset + bytes, Ordering::Relaxed);
        Ok(after)
    }
}

/// Removes the name of a region unless some process still uses it. `own` is our descriptor of the
/// file, to be closed by the caller.
pub(super) fn unlink_if_unused(path: &Path, own: BorrowedFd<'_>) {
    // A fresh opening: the locks of ours and of our forks' opening would not conflict with it.
    let Ok(file) = memory::open_file(path, true) else {
        return;
    };
    let Ok(ours) = memory::file_status(own) else {
        return;
    };
    let still_ours = |status: rustix::io::Result<memory::FileStatus>| {
        status.is_ok_and(|named| named.is_same_file(&ours))
    };
    if !still_ours(memory::file_status(&file)) {
        return;
    }
    // Ours is given up first; the caller has seen that no fork of ours, which would share it, is a
    // task any more.
    // task any more. Under the exclusive lock the name is compared once more: until then `gc` could
    // have removed it, and somebody made a new region under it.
    if memory::release(own).is_ok()
        && memory::lock_unused(&file) == Ok(FileLock::Taken)
        && still_ours(memory::open_file(path, false).and_then(|file| memory::file_status(&file)))
    {
        let _ = memory::unlink(path);
    }
}
