//! Regions: see `include/latchwork/region.h`.
//!
//! `Option<&T>` is a pointer of C's: null, or to a handle or variable that lives during the call.
#![allow(unsafe_code)]

mod contents;

use crate::failure::{Invalid, Number, call, failed, given};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::classic::Classic;
use latchwork::queue::Queue;
use latchwork::queue::spsc::Spsc;
use latchwork::region::{Observer, Region, RegionOptions};
use latchwork::semaphore::{CountingSemaphore, MrspSemaphore};
use libc::{EBUSY, EIO, EROFS};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What a region needs in addition to the memory that a program may allocate: tables, and partly used spans.
pub(crate) const TABLES: u64 = 4 << 20;

/// How a process has a region.
enum Mapped {
    Attached(Region),
    ReadOnly(Box<Observer>),
}

impl From<Region> for Mapped {
    fn from(region: Region) -> Self {
        Self::Attached(region)
    }
}

impl From<Observer> for Mapped {
    fn from(observer: Observer) -> Self {
        Self::ReadOnly(Box::new(observer))
    }
}

/// `lw_region_t`
pub struct Handle {
    mapped: Mapped,
    /// How many queues are open by this handle.
    queues: AtomicU32,
}

impl Handle {
    /// A new handle, for C: it lives until it is [given up](Self::give_up).
    pub(crate) fn new(region: Region) -> NonNull<Self> {
        Self::leak(region.into())
    }

    fn leak(mapped: Mapped) -> NonNull<Self> {
        let queues = AtomicU32::new(0);
        NonNull::from(Box::leak(Box::new(Self { mapped, queues })))
    }

    fn region(&self) -> Result<&Region, Number> {
        match &self.mapped {
            Mapped::Attached(region) => Ok(region),
            Mapped::ReadOnly(_) => Err(Number(failed(
                EROFS,
                "the region is mapped for reading only",
            ))),
        }
    }

    /// # Safety
    /// The handle is used by nothing any more.
    pub(crate) unsafe fn give_up(this: NonNull<Self>) {
        // SAFETY: `new` made it of a box; by the contract this is its last use.
        drop(unsafe { Box::from_raw(this.as_ptr()) });
    }

    /// A queue is opened by this handle, which C cannot give up as long as the result lives.
    ///
    /// # Safety
    /// The handle has not been given up.
    pub(crate) unsafe fn lend(this: NonNull<Self>) -> Result<(Lent, &'static Region), Number> {
        // SAFETY: by the contract the handle exists. It is not given up while it is lent, and the users of the region end
        // before the loan: that is what `'static` stands for.
        let handle: &'static Self = unsafe { this.as_ref() };
        let region = handle.region()?;
        // Relaxed: nothing is handed over by the count's growth.
        handle.queues.fetch_add(1, Ordering::Relaxed);
        Ok((Lent(this), region))
    }
}

/// A handle that something else uses, too.
pub(crate) struct Lent(NonNull<Handle>);

// SAFETY: a handle is a `Region` or an `Observer`, which threads may share, and an atomic.
unsafe impl Send for Lent {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the handle is not given up while it is lent. Release: pairs with the Acquire in `lw_region_detach`.
        unsafe { self.0.as_ref() }
            .queues
            .fetch_sub(1, Ordering::Release);
    }
}

/// `struct lw_region_options`
#[repr(C)]
struct Options {
    max_bytes: u64,
    max_tasks: u32,
    max_names: u32,
    mode: u32,
    flags: u32,
    address: *mut c_void,
    label: *const c_char,
}

const UNLINK_AT_LAST_DETACH: u32 = 1;
const TRUST_ANY_OWNER: u32 = 2;
const READ_ONLY: u32 = 4;
const ANY_PID_NAMESPACE: u32 = 8;
const CHECKED: u32 = 16;

/// A string of C's.
///
/// # Safety
/// `text` is null, or ends in NUL and stays unchanged during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Invalid> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's contract.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| Invalid("a string is not UTF-8"))
}

/// # Safety
/// As for [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char) -> Result<&'a str, Invalid> {
    // SAFETY: by the caller's contract.
    unsafe { text(name) }?.ok_or(Invalid("a name is NULL"))
}

/// # Safety
/// As for [`text`], for the label.
unsafe fn options_of(given: Option<&Options>) -> Result<RegionOptions, Invalid> {
    let mut options = RegionOptions::new();
    let Some(given) = given else {
        return Ok(options);
    };
    let known = UNLINK_AT_LAST_DETACH | TRUST_ANY_OWNER | READ_ONLY | ANY_PID_NAMESPACE | CHECKED;
    if given.flags & !known != 0 {
        return Err(Invalid("there is no such flag of a region"));
    }
    if given.max_bytes != 0 {
        options = options.max_bytes(given.max_bytes);
    }
    if given.max_tasks != 0 {
        // What is too large for 16 bits is refused as what is too large for a region.
        options = options.max_tasks(u16::try_from(given.max_tasks).unwrap_or(u16::MAX));
    }
    if given.max_names != 0 {
        options = options.max_names(given.max_names);
    }
    if given.mode != 0 {
        options = options.mode(given.mode);
    }
    if !given.address.is_null() {
        options = options.address(given.address.addr());
    }
    // SAFETY: by the caller's contract.
    if let Some(label) = unsafe { text(given.label) }? {
        options = options.label(label);
    }
    options = options
        .unlink_at_last_detach(given.flags & UNLINK_AT_LAST_DETACH != 0)
        .any_pid_namespace(given.flags & ANY_PID_NAMESPACE != 0);
    if given.flags & CHECKED != 0 {
        // What C's own objects contain is bytes to the library.
        options = options
            .holds_others()
            .holds::<Queue>()
            .holds::<CountingSemaphore>()
            .holds::<MrspSemaphore>()
            .holds::<Spsc>()
            .holds::<Classic>();
    }
    // SAFETY: the caller of C vouches for it, by the flag.
    Ok(unsafe { options.trust_any_owner(given.flags & TRUST_ANY_OWNER != 0) })
}

/// Stores a handle on a region: the one that `attach` returns, or with [`READ_ONLY`] `observe`.
///
/// # Safety
/// As for [`text`], for the label.
unsafe fn open(
    to: Option<&mut *mut Handle>,
    options: Option<&Options>,
    attach: impl FnOnce(RegionOptions) -> Result<Region, Number>,
    observe: impl FnOnce(RegionOptions) -> Result<Observer, Number>,
) -> c_int {
    call(|| {
        let to = given(to)?;
        // SAFETY: by the caller's contract.
        let regions = unsafe { options_of(options) }?;
        let reads_only = options.is_some_and(|options| options.flags & READ_ONLY != 0);
        *to = Handle::leak(if reads_only {
            observe(regions)?.into()
        } else {
            attach(regions)?.into()
        })
        .as_ptr();
        Ok(())
    })
}

/// A region that may have to be made.
fn cannot_be_made(_: RegionOptions) -> Result<Observer, Number> {
    let text = "a region for reading only is one that exists: LW_REGION_READ_ONLY is for lw_region_attach()";
    Err(Invalid(text).into())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_create(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe {
        let create = |options: RegionOptions| {
            Ok(match text(region)? {
                Some(name) => options.create_named(name)?,
                None => options.create_anonymous()?,
            })
        };
        open(to, options, create, cannot_be_made)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe {
        open(
            to,
            options,
            |options| Ok(options.attach(name(region)?)?),
            |options| Ok(options.observe(name(region)?)?),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach_or_create(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe {
        let attach = |options: RegionOptions| Ok(options.attach_or_create(name(region)?)?);
        open(to, options, attach, cannot_be_made)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach_fd(
    to: Option<&mut *mut Handle>,
    file: c_int,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: the label in the options ends in NUL.
    unsafe {
        open(
            to,
            options,
            |options| Ok(options.attach_file(duplicate(file)?)?),
            |options| Ok(options.observe_file(&duplicate(file)?)?),
        )
    }
}

fn duplicate(file: c_int) -> Result<OwnedFd, Number> {
    if file < 0 {
        return Err(Invalid("the descriptor is negative").into());
    }
    // SAFETY: it is borrowed for its duplication only, which fails for a number that is none.
    unsafe { BorrowedFd::borrow_raw(file) }
        .try_clone_to_owned()
        .map_err(|error| Number(failed(error.raw_os_error().unwrap_or(EIO), error)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_unlink(region: *const c_char) -> c_int {
    // SAFETY: C passes null, or a string that ends in NUL.
    call(|| Ok(RegionOptions::unlink(unsafe { name(region) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_detach(handle: *mut Handle) -> c_int {
    call(|| {
        let handle = given(NonNull::new(handle))?;
        // SAFETY: C has not given up the handle before.
        let shared = unsafe { handle.as_ref() };
        // Acquire: pairs with the Release of the last queue's close.
        if shared.queues.load(Ordering::Acquire) != 0 {
            return Err(Number(failed(EBUSY, "queues are open by this handle")));
        }
        if let Mapped::Attached(region) = &shared.mapped {
            // Another handle leaves, so that this one remains if that is refused.
            region.clone().detach()?;
        }
        // SAFETY: no queue uses it, and C uses no handle that it gives up.
        unsafe { Handle::give_up(handle) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_base(handle: Option<&Handle>) -> *mut c_void {
    let base = |handle: &Handle| match &handle.mapped {
        Mapped::Attached(region) => region.base(),
        Mapped::ReadOnly(observer) => observer.base(),
    };
    handle.map_or(ptr::null_mut(), |handle| base(handle).cast_mut().cast())
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_max_bytes(handle: Option<&Handle>) -> u64 {
    handle.map_or(0, |handle| match &handle.mapped {
        Mapped::Attached(region) => region.max_bytes(),
        Mapped::ReadOnly(observer) => observer.max_bytes(),
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_fd(handle: Option<&Handle>) -> c_int {
    handle.map_or(-1, |handle| match &handle.mapped {
        Mapped::Attached(region) => region.file().as_fd().as_raw_fd(),
        Mapped::ReadOnly(observer) => observer.file().as_raw_fd(),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_join(handle: Option<&Handle>, task_name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: C passes null, or a string that ends in NUL.
        let name = unsafe { text(task_name) }?.unwrap_or_default();
        Ok(given(handle)?.region()?.join(name)?)
    })
}
