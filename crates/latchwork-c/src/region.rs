//! Regions: see `include/latchwork/region.h`.
//!
//! `Option<&T>` is a pointer of C's: null, or to a handle or variable that lives during the call.
#![allow(unsafe_code)]

use crate::cancel::Undisturbed;
use crate::failure::{Invalid, Number, call, failed, given, store};
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::region::{self, ObjectError, Region, RegionOptions};
use libc::{EBUSY, EIO, ENOMEM};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What a region needs in addition to the memory that a program may allocate: tables, and partly used spans.
pub(crate) const TABLES: u64 = 4 << 20;

/// `lw_region_t`
pub struct Handle {
    region: Region,
    /// How many queues are open by this handle.
    queues: AtomicU32,
}

impl Handle {
    /// A new handle, for C: it lives until it is [given up](Self::give_up).
    pub(crate) fn new(region: Region) -> NonNull<Self> {
        let queues = AtomicU32::new(0);
        NonNull::from(Box::leak(Box::new(Self { region, queues })))
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
    pub(crate) unsafe fn lend(this: NonNull<Self>) -> Lent {
        // SAFETY: by the contract the handle exists. Relaxed: nothing is handed over by the count's growth.
        unsafe { this.as_ref() }
            .queues
            .fetch_add(1, Ordering::Relaxed);
        Lent(this)
    }
}

/// A handle that something else uses, too.
pub(crate) struct Lent(NonNull<Handle>);

impl Lent {
    /// The region. It lives as long as the loan, for which `'static` stands.
    pub(crate) fn region(&self) -> &'static Region {
        // SAFETY: the handle is not given up while it is lent, and the users of the result end before the loan.
        &unsafe { self.0.as_ref() }.region
    }
}

// SAFETY: a handle is a `Region`, which threads may share, and an atomic.
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
    if given.flags & !(UNLINK_AT_LAST_DETACH | TRUST_ANY_OWNER) != 0 {
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
    options = options.unlink_at_last_detach(given.flags & UNLINK_AT_LAST_DETACH != 0);
    // SAFETY: the caller of C vouches for it, by the flag.
    Ok(unsafe { options.trust_any_owner(given.flags & TRUST_ANY_OWNER != 0) })
}

/// Stores a handle on the region that `open` returns.
///
/// # Safety
/// As for [`text`], for the label.
unsafe fn open(
    to: Option<&mut *mut Handle>,
    options: Option<&Options>,
    open: impl FnOnce(RegionOptions) -> Result<Region, Number>,
) -> c_int {
    call(|| {
        let to = given(to)?;
        // SAFETY: by the caller's contract.
        let region = open(unsafe { options_of(options) }?)?;
        *to = Handle::new(region).as_ptr();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_create(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe {
        open(to, options, |options| {
            Ok(match text(region)? {
                Some(name) => options.create_named(name)?,
                None => options.create_anonymous()?,
            })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe { open(to, options, |options| Ok(options.attach(name(region)?)?)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach_or_create(
    to: Option<&mut *mut Handle>,
    region: *const c_char,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: C passes strings that end in NUL: the name, and the label in the options.
    unsafe {
        open(to, options, |options| {
            Ok(options.attach_or_create(name(region)?)?)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_attach_fd(
    to: Option<&mut *mut Handle>,
    file: c_int,
    options: Option<&Options>,
) -> c_int {
    // SAFETY: the label in the options ends in NUL. The descriptor is borrowed for its duplication only, which fails for a
    // number that is none.
    unsafe {
        open(to, options, |options| {
            let file = (file >= 0).then(|| BorrowedFd::borrow_raw(file).try_clone_to_owned());
            match file.ok_or(Invalid("the descriptor is negative"))? {
                Ok(file) => Ok(options.attach_file(file)?),
                Err(error) => Err(Number(failed(error.raw_os_error().unwrap_or(EIO), error))),
            }
        })
    }
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
        // Another handle leaves, so that this one remains if that is refused.
        shared.region.clone().detach()?;
        // SAFETY: no queue uses it, and C uses no handle that it gives up.
        unsafe { Handle::give_up(handle) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_base(handle: Option<&Handle>) -> *mut c_void {
    handle.map_or(ptr::null_mut(), |handle| {
        handle.region.base().cast_mut().cast()
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_max_bytes(handle: Option<&Handle>) -> u64 {
    handle.map_or(0, |handle| handle.region.max_bytes())
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_fd(handle: Option<&Handle>) -> c_int {
    handle.map_or(-1, |handle| handle.region.file().as_raw_fd())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_join(handle: Option<&Handle>, task_name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: C passes null, or a string that ends in NUL.
        let name = unsafe { text(task_name) }?.unwrap_or_default();
        Ok(given(handle)?.region.join(name)?)
    })
}

/// A block, or null with `errno` set.
fn allocate(handle: Option<&Handle>, alignment: usize, bytes: usize) -> *mut c_void {
    let mut block = ptr::null_mut();
    let number = call(|| {
        let handle = given(handle)?;
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(Invalid("the alignment is no power of two up to 4096").into());
        }
        let Ok(layout) = Layout::from_size_align(bytes, alignment) else {
            return Err(Number(failed(ENOMEM, "no region has that many bytes")));
        };
        block = handle.region.allocate(layout)?.as_ptr().cast();
        Ok(())
    });
    if number != 0 {
        // SAFETY: the address of the thread's own `errno`.
        unsafe { *libc::__errno_location() = number };
    }
    block
}

/// As of `malloc`.
const ALIGNMENT: usize = 16;
const MAX_ALIGNMENT: usize = 4096;

#[unsafe(no_mangle)]
extern "C" fn lw_region_alloc(handle: Option<&Handle>, bytes: usize) -> *mut c_void {
    allocate(handle, ALIGNMENT, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_zalloc(handle: Option<&Handle>, bytes: usize) -> *mut c_void {
    let block = allocate(handle, ALIGNMENT, bytes);
    if !block.is_null() {
        // SAFETY: a block of that many bytes, which only the caller knows.
        unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    }
    block
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_aligned_alloc(
    handle: Option<&Handle>,
    alignment: usize,
    bytes: usize,
) -> *mut c_void {
    allocate(handle, alignment, bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_free(handle: Option<&Handle>, block: *mut c_void) {
    let _undisturbed = Undisturbed::begin();
    if let (Some(handle), Some(block)) = (handle, NonNull::new(block)) {
        // SAFETY: C uses the block no more; the heap finds what is no block, and ends the program. A thread that cannot
        // become a task of the region leaks the block.
        let _ = unsafe { handle.region.deallocate(block.cast()) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_keep(handle: Option<&Handle>, block: *mut c_void) -> c_int {
    call(|| {
        let (handle, block) = (given(handle)?, given(NonNull::new(block))?);
        if !handle.region.inner().has_block_at(block.addr().get(), 1) {
            return Err(Invalid("this is no block of the region").into());
        }
        // SAFETY: a block, as was checked; its owner, who calls this, does not free it meanwhile.
        unsafe { handle.region.keep(block.cast()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_trim(handle: Option<&Handle>, freed: Option<&mut usize>) -> c_int {
    call(|| {
        store(freed, given(handle)?.region.trim()?);
        Ok(())
    })
}

/// `struct lw_heap_stats`
#[repr(C)]
struct HeapStats {
    used_bytes: u64,
    committed_bytes: u64,
    max_bytes: u64,
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_heap_stats(
    handle: Option<&Handle>,
    stats: Option<&mut HeapStats>,
) -> c_int {
    call(|| {
        let (handle, stats) = (given(handle)?, given(stats)?);
        let now = handle.region.heap_stats();
        *stats = HeapStats {
            used_bytes: now.allocated_bytes as u64,
            committed_bytes: now.committed_bytes as u64,
            max_bytes: handle.region.max_bytes(),
        };
        Ok(())
    })
}

type Make = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// The alignment of an object: no other object has a part of its cache lines.
const OBJECT_ALIGNMENT: usize = 64;

/// The fingerprint of C's objects of a type.
fn fingerprint(kind: u64) -> u64 {
    region::fingerprint("C object", 0, OBJECT_ALIGNMENT, &[kind])
}

fn of_size(
    (object, found): (NonNull<u8>, usize),
    bytes: usize,
) -> Result<*mut c_void, ObjectError> {
    let object = object.as_ptr();
    if found == bytes && object.addr().is_multiple_of(OBJECT_ALIGNMENT) {
        Ok(object.cast())
    } else {
        Err(ObjectError::OtherType)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_object(
    handle: Option<&Handle>,
    object_name: *const c_char,
    kind: u64,
    bytes: usize,
    make: Option<Make>,
    argument: *mut c_void,
    object: Option<&mut *mut c_void>,
) -> c_int {
    call(|| {
        // SAFETY: C passes null, or a string that ends in NUL.
        let name = unsafe { name(object_name) }?;
        let (handle, object) = (given(handle)?, given(object)?);
        let Ok(layout) = Layout::from_size_align(bytes, OBJECT_ALIGNMENT) else {
            return Err(Number(failed(ENOMEM, "no region has that many bytes")));
        };
        let fill = |block: NonNull<u8>| {
            // SAFETY: a fresh block of that many bytes; C's function gets it, and the argument that belongs to it.
            unsafe {
                block.write_bytes(0, bytes);
                if let Some(make) = make {
                    make(block.as_ptr().cast(), argument);
                }
            }
        };
        let found = (handle.region).raw_object(name, fingerprint(kind), layout, fill)?;
        *object = of_size(found, bytes)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_find(
    handle: Option<&Handle>,
    object_name: *const c_char,
    kind: u64,
    bytes: usize,
    object: Option<&mut *mut c_void>,
) -> c_int {
    call(|| {
        // SAFETY: C passes null, or a string that ends in NUL.
        let name = unsafe { name(object_name) }?;
        let (handle, object) = (given(handle)?, given(object)?);
        let found = (handle.region).find_raw_object(name, fingerprint(kind))?;
        *object = of_size(found, bytes)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_remove(
    handle: Option<&Handle>,
    object_name: *const c_char,
    kind: u64,
    bytes: usize,
) -> c_int {
    call(|| {
        let check = |found| of_size(found, bytes).map(|_| || ());
        // SAFETY: C passes null, or a string that ends in NUL; and removes only an object that no task uses any more.
        unsafe {
            let name = name(object_name)?;
            (given(handle)?.region).remove_raw_object(name, fingerprint(kind), check)?;
        }
        Ok(())
    })
}
