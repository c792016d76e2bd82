//! The heap and the objects of a region.
#![allow(unsafe_code)]

use super::{Handle, Mapped, name};
use crate::failure::{Invalid, Number, call, call_often, failed, given, store};
use core::alloc::Layout;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use latchwork::region::{self, ObjectError};
use libc::ENOMEM;

/// A block, or null with `errno` set.
fn allocate(handle: Option<&Handle>, alignment: usize, bytes: usize) -> *mut c_void {
    let mut block = ptr::null_mut();
    let number = call_often(|| {
        let handle = given(handle)?;
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(Invalid("the alignment is no power of two up to 4096").into());
        }
        let Ok(layout) = Layout::from_size_align(bytes, alignment) else {
            return Err(Number(failed(ENOMEM, "no region has that many bytes")));
        };
        block = handle.region()?.allocate(layout)?.as_ptr().cast();
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
    if let (Some(handle), Some(block)) = (handle, NonNull::new(block))
        && let Ok(region) = handle.region()
    {
        // SAFETY: C uses the block no more; the heap finds what is no block, and ends the program. A thread that cannot
        // become a task of the region leaks the block.
        let _ = unsafe { region.deallocate(block.cast()) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_region_keep(handle: Option<&Handle>, block: *mut c_void) -> c_int {
    call_often(|| {
        let (handle, block) = (given(handle)?, given(NonNull::new(block))?);
        let region = handle.region()?;
        if !region.inner().has_block_at(block.addr().get(), 1) {
            return Err(Invalid("this is no block of the region").into());
        }
        // SAFETY: a block, as was checked; its owner, who calls this, does not free it meanwhile.
        unsafe { region.keep(block.cast()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_region_trim(handle: Option<&Handle>, freed: Option<&mut usize>) -> c_int {
    call(|| {
        store(freed, given(handle)?.region()?.trim()?);
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
        *stats = match &handle.mapped {
            Mapped::Attached(region) => {
                let now = region.heap_stats();
                HeapStats {
                    used_bytes: now.allocated_bytes as u64,
                    committed_bytes: now.committed_bytes as u64,
                    max_bytes: region.max_bytes(),
                }
            }
            Mapped::ReadOnly(observer) => {
                let now = observer.contents()?;
                HeapStats {
                    used_bytes: now.heap.allocated_bytes,
                    committed_bytes: now.heap.committed_bytes,
                    max_bytes: now.max_bytes,
                }
            }
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
        let found = handle
            .region()?
            .raw_object(name, fingerprint(kind), layout, fill)?;
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
        let kind = fingerprint(kind);
        let found = match &handle.mapped {
            Mapped::Attached(region) => region.find_raw_object(name, kind)?,
            Mapped::ReadOnly(observer) => observer.find_raw_object(name, kind)?,
        };
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
            let region = given(handle)?.region()?;
            region.remove_raw_object(name, fingerprint(kind), check)?;
        }
        Ok(())
    })
}
