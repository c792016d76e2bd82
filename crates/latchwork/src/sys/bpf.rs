//! Programs in the kernel: loading one, having it run, and sharing memory with it.
//!
//! By `bpf(2)` itself: the instructions are a dozen, and stand in [`program`].
#![allow(unsafe_code)]

pub(crate) mod program;
pub(crate) mod types;

use super::errno::{done, last_error};
use crate::atomic::AtomicU64;
use core::ffi::{CStr, c_int, c_long, c_uint};
use core::ptr;
use program::Instruction;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// What the program writes of one processor, in a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot(pub(crate) AtomicU64);

/// The instructions need a licence that the kernel takes for compatible with its own.
const LICENCE: &CStr = c"Dual MIT/GPL";
const NAME: [u8; 16] = *b"latchwork\0\0\0\0\0\0\0";
/// `BPF_LINK_TYPE_RAW_TRACEPOINT`.
const RAW_TRACEPOINT_LINK: u32 = 1;

/// The part of `union bpf_attr` that `BPF_MAP_CREATE` reads.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    node: u32,
    name: [u8; 16],
}

/// `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    returned: u32,
    data: [u32; 2],
    data_addresses: [u64; 2],
    repeat: u32,
    duration: u32,
    context: [u32; 2],
    context_addresses: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

/// `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct TracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

/// `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    descriptor: u32,
    bytes: u32,
    info: u64,
}

fn address<T: ?Sized>(of: &T) -> u64 {
    ptr::from_ref(of).expose_provenance() as u64
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

/// # Safety
/// `attributes` are those of `command`, and what they point to is as the kernel expects it.
unsafe fn call<A>(command: c_int, attributes: &mut A) -> Result<c_long> {
    // SAFETY: by the caller's contract. The kernel takes a shorter structure for one that ends in
    // zeroes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_mut(attributes),
            size_of::<A>() as c_uint,
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    Ok(result)
}

/// # Safety
/// As for [`call`]; the command returns a new descriptor.
unsafe fn open<A>(command: c_int, attributes: &mut A) -> Result<OwnedFd> {
    // SAFETY: by the caller's contract. Descriptors of `bpf` close on exec.
    unsafe { call(command, attributes).map(|new| OwnedFd::from_raw_fd(new as c_int)) }
}

/// Memory for `slots` processors, zeroed, that programs and processes can share.
pub(crate) fn create_map(slots: u32) -> Result<OwnedFd> {
    const BPF_MAP_CREATE: c_int = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let mut attributes = MapCreate {
        kind: BPF_MAP_TYPE_ARRAY,
        key_bytes: size_of::<u32>() as u32,
        value_bytes: size_of::<Slot>() as u32,
        entries: slots,
        flags: BPF_F_MMAPABLE,
        inner_map: 0,
        node: 0,
        name: NAME,
    };
    // SAFETY: nothing is pointed to.
    unsafe { open(BPF_MAP_CREATE, &mut attributes) }
}

/// The slots of a map, in this process and the children of its forks; and for good.
pub(crate) fn map_slots(map: BorrowedFd<'_>, slots: u32) -> Result<&'static [Slot]> {
    let count = slots as usize;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
    let memory = unsafe {
        rustix::mm::mmap(
            ptr::null_mut(),
            count * size_of::<Slot>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            map,
            0,
        )?
    };
    // SAFETY: mapped with this length, aligned to pages, zeroed, and never unmapped but by
    // `unmap_slots`; slots are atomic.
    Ok(unsafe { core::slice::from_raw_parts(memory.cast(), count) })
}

/// Makes slots read-only.
pub(crate) fn protect_slots(slots: &'static [Slot]) -> Result<()> {
    let memory = slots.as_ptr().cast_mut().cast();
    // SAFETY: a mapping of `map_slots`, which nobody writes to any more.
    unsafe { rustix::mm::mprotect(memory, size_of_val(slots), MprotectFlags::READ) }
}

/// Gives slots back.
///
/// # Safety
/// Nobody uses them any more.
pub(crate) unsafe fn unmap_slots(slots: &'static [Slot]) {
    // SAFETY: by the contract; a failure would only leak them.
    let _ = unsafe { rustix::mm::munmap(slots.as_ptr().cast_mut().cast(), size_of_val(slots)) };
}

/// Loads a program for a raw tracepoint. The kernel has checked it then.
pub(crate) fn load(instructions: &[Instruction]) -> Result<OwnedFd> {
    const BPF_PROG_LOAD: c_int = 5;
    const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
    let mut attributes = ProgramLoad {
        kind: BPF_PROG_TYPE_RAW_TRACEPOINT,
        count: instructions.len() as u32,
        instructions: address(instructions),
        licence: address(LICENCE),
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
    };
    // SAFETY: so many instructions stand there, and a string that ends.
    unsafe { open(BPF_PROG_LOAD, &mut attributes) }
}

/// Has a program run at each switch of tasks, on every processor, until the last copy of the descriptor
/// is closed.
pub(crate) fn at_each_switch(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    const BPF_RAW_TRACEPOINT_OPEN: c_int = 17;
    let mut attributes = TracepointOpen {
        name: address(c"sched_switch"),
        program: number(program),
        padding: 0,
    };
    // SAFETY: the name is a string that ends.
    unsafe { open(BPF_RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// Runs a program once, in an interrupt of that processor. `ENXIO`: it is not online.
pub(crate) fn run_on(program: BorrowedFd<'_>, cpu: u32) -> Result<()> {
    const BPF_PROG_TEST_RUN: c_int = 10;
    const BPF_F_TEST_RUN_ON_CPU: u32 = 1;
    let mut attributes = TestRun {
        program: number(program),
        flags: BPF_F_TEST_RUN_ON_CPU,
        cpu,
        ..TestRun::default()
    };
    // SAFETY: nothing is pointed to.
    done(unsafe { call(BPF_PROG_TEST_RUN, &mut attributes)? })
}

/// How the kernel names what [`at_each_switch`] made; fails for any other descriptor.
pub(crate) fn link_id(link: BorrowedFd<'_>) -> Result<u32> {
    const BPF_OBJ_GET_INFO_BY_FD: c_int = 15;
    let mut info = [0_u32; 16];
    let mut attributes = GetInfo {
        descriptor: number(link),
        bytes: size_of_val(&info) as u32,
        info: ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    // SAFETY: the kernel writes at most so many bytes.
    unsafe { call(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)? };
    let [kind, id, ..] = info;
    if kind == RAW_TRACEPOINT_LINK {
        Ok(id)
    } else {
        Err(Errno::INVAL)
    }
}

/// Processors that this system may ever have, by the largest number of one.
pub(crate) fn possible_cpus() -> Result<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    last_of(&list)
        .and_then(|last| last.checked_add(1))
        .ok_or(Errno::INVAL)
}

/// The last number of a list such as `0-3,8-11`.
fn last_of(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_list_is_found() {
        assert_eq!(last_of("0\n"), Some(0));
        assert_eq!(last_of("0-1\n"), Some(1));
        assert_eq!(last_of("0-3,8,10-11\n"), Some(11));
        assert_eq!(last_of("\n"), None);
        assert!(possible_cpus().is_ok_and(|cpus| cpus > 0));
    }

    #[test]
    fn attributes_lie_as_in_the_kernels_header() {
        use core::mem::offset_of;
        assert_eq!(offset_of!(MapCreate, name), 28);
        assert_eq!(offset_of!(ProgramLoad, name), 48);
        assert_eq!(offset_of!(TestRun, context), 40);
        assert_eq!(offset_of!(TestRun, flags), 64);
        assert_eq!(offset_of!(TestRun, cpu), 68);
        assert_eq!(offset_of!(GetInfo, info), 8);
    }
}
