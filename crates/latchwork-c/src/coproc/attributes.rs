//! The attributes and flags of `coproc_create`.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_long, c_uint};
use latchwork::coproc::{Attributes, FileAccess, Scheduling, SystemCalls};
use libc::{E2BIG, EBADF, EINVAL, ENOTSUP, cpu_set_t, rlim_t, size_t};
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

/// The flags of `coproc.h`.
pub(super) mod flag {
    pub(crate) const NOTIFY_PARENT: i32 = 0x0001;
    pub(crate) const SHARE_FS: i32 = 0x0002;
    pub(crate) const DETACHED: i32 = 0x0004;
    pub(crate) const SHARE_SYSVSEM: i32 = 0x0008;
    pub(crate) const SET_AS_SIZE: i32 = 0x0010;
    pub(crate) const SET_CORE_SIZE: i32 = 0x0020;
    pub(crate) const SET_CPU_TIME: i32 = 0x0040;
    pub(crate) const SET_STACK_SIZE: i32 = 0x0080;
    pub(crate) const SET_SCHED: i32 = 0x0100;
    pub(crate) const SET_CPU_AFFINITY: i32 = 0x0200;
    pub(crate) const SNAPSHOT: i32 = 0x0400;
    pub(crate) const DIE_WITH_PARENT: i32 = 0x0800;
    pub(crate) const SET: i32 = 0x03f0;
    pub(crate) const ALL: i32 = 0x0fff;
}

#[repr(C)]
pub(super) struct CoprocAttributes {
    address_space_size: rlim_t,
    core_file_size: rlim_t,
    cpu_time: rlim_t,
    stack_size: rlim_t,
    scheduling_policy: c_int,
    scheduling_param: c_int,
    cpu_affinity_mask: cpu_set_t,
}

/// What the library of 2009 did not have.
#[repr(C)]
pub(super) struct CoprocExtras {
    cgroup: *const c_char,
    descriptors: *const c_int,
    descriptor_count: size_t,
    confinement: c_uint,
    readable: *const *const c_char,
    writable: *const *const c_char,
    calls: *const c_long,
    call_count: size_t,
}

/// The flags of `confinement`.
mod confine {
    pub(super) const NO_NEW_PRIVS: u32 = 1;
    pub(super) const FILES: u32 = 2;
    pub(super) const CALLS: u32 = 4;
    pub(super) const DENIED_KILLS: u32 = 8;
    pub(super) const BEST_EFFORT: u32 = 16;
    pub(super) const ALL: u32 = 31;
}

/// The paths of a list that ends in NULL.
///
/// # Safety
/// The list is null, or ends in NULL, and contains strings, all of which live during the call.
unsafe fn paths<'a>(list: *const *const c_char) -> impl Iterator<Item = &'a OsStr> {
    let mut place = list;
    core::iter::from_fn(move || {
        if place.is_null() {
            return None;
        }
        // SAFETY: not behind the end: that was null.
        let text = unsafe { *place };
        if text.is_null() {
            return None;
        }
        // SAFETY: the list has an element more, since this one is not its end.
        place = unsafe { place.add(1) };
        // SAFETY: the caller passes strings.
        Some(OsStr::from_bytes(
            unsafe { CStr::from_ptr(text) }.to_bytes(),
        ))
    })
}

/// Adds what the coproc may not do.
///
/// # Safety
/// As for [`with_extras`].
unsafe fn confined(
    mut attributes: Attributes,
    extras: &CoprocExtras,
) -> Result<Attributes, (&'static CStr, c_int)> {
    let has = |flag| extras.confinement & flag != 0;
    let kills_without_filter = has(confine::DENIED_KILLS) && !has(confine::CALLS);
    if extras.confinement & !confine::ALL != 0 || kills_without_filter {
        return Err((c"confinement", EINVAL));
    }
    if has(confine::NO_NEW_PRIVS) {
        attributes = attributes.no_new_privs();
    }
    if has(confine::FILES) {
        // SAFETY: by the caller's contract.
        let (readable, writable) = unsafe { (paths(extras.readable), paths(extras.writable)) };
        let files = readable.fold(FileAccess::none(), FileAccess::read);
        attributes = attributes.files(writable.fold(files, FileAccess::write));
    }
    if has(confine::CALLS) {
        if extras.calls.is_null() && extras.call_count != 0 {
            return Err((c"system_calls", EINVAL));
        }
        let mut calls = SystemCalls::library();
        for place in 0..extras.call_count {
            // SAFETY: the caller's array has that many numbers.
            calls = calls.allow([unsafe { *extras.calls.add(place) }]);
        }
        attributes = attributes.system_calls(match has(confine::DENIED_KILLS) {
            true => calls.denied_kills(),
            false => calls,
        });
    }
    if has(confine::BEST_EFFORT) {
        attributes = attributes.best_effort();
    }
    Ok(attributes)
}

/// Adds them. An error is that of the attribute whose name comes with it.
///
/// # Safety
/// The pointers are null or as `coproc.h` says.
pub(super) unsafe fn with_extras(
    mut attributes: Attributes,
    extras: &CoprocExtras,
) -> Result<Attributes, (&'static CStr, c_int)> {
    if !extras.cgroup.is_null() {
        // SAFETY: the caller passes a string.
        let path = unsafe { CStr::from_ptr(extras.cgroup) };
        attributes = attributes.cgroup(OsStr::from_bytes(path.to_bytes()));
    }
    let failed = |error| (DESCRIPTORS, error);
    if extras.descriptor_count > MAX_DESCRIPTORS {
        return Err(failed(E2BIG));
    }
    for place in 0..extras.descriptor_count {
        if extras.descriptors.is_null() {
            return Err(failed(EINVAL));
        }
        // SAFETY: the caller's array has that many numbers.
        let number = unsafe { *extras.descriptors.add(place) };
        if number < 0 {
            return Err(failed(EBADF));
        }
        // SAFETY: the caller keeps it open during the call. If it is not open, the kernel refuses to copy it.
        let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
        let copy = copy.map_err(|error| failed(error.raw_os_error().unwrap_or(EBADF)))?;
        attributes = attributes.descriptor(copy);
    }
    // SAFETY: the same contract.
    unsafe { confined(attributes, extras) }
}

const DESCRIPTORS: &CStr = c"descriptors";
/// More are not even copied; the start of a coproc with a control group refuses this many, too.
const MAX_DESCRIPTORS: usize = 32;

pub(super) fn attributes_of(
    name: Option<&CStr>,
    set: Option<&CoprocAttributes>,
    flags: c_int,
) -> Result<Attributes, c_int> {
    if flags & !flag::ALL != 0 || flags & flag::SET != 0 && set.is_none() {
        return Err(EINVAL);
    }
    if flags & flag::NOTIFY_PARENT != 0 {
        return Err(ENOTSUP);
    }
    let mut attributes = Attributes::new();
    if let Some(name) = name {
        attributes = attributes.name(&name.to_string_lossy());
    }
    if let Some(set) = set {
        let wants = |flag| flags & flag != 0;
        if wants(flag::SET_AS_SIZE) {
            attributes = attributes.address_space(set.address_space_size);
        }
        if wants(flag::SET_CORE_SIZE) {
            attributes = attributes.core_size(set.core_file_size);
        }
        if wants(flag::SET_CPU_TIME) {
            attributes = attributes.cpu_time(set.cpu_time);
        }
        if wants(flag::SET_STACK_SIZE) {
            attributes = attributes.stack_size(set.stack_size as usize);
        }
        if wants(flag::SET_SCHED) {
            attributes = attributes.scheduling(scheduling_of(set)?);
        }
        if wants(flag::SET_CPU_AFFINITY) {
            let mask = &set.cpu_affinity_mask;
            // SAFETY: all numbers are below the size of the set.
            let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, mask) };
            attributes = attributes.affinity((0..libc::CPU_SETSIZE as usize).filter(is_in));
        }
    }
    if flags & flag::DIE_WITH_PARENT != 0 {
        attributes = attributes.die_with_parent();
    }
    if flags & flag::SNAPSHOT != 0 {
        // SAFETY: a program in C is responsible for which copied objects its coprocs use.
        attributes = unsafe { attributes.snapshot() };
    }
    if flags & flag::SHARE_SYSVSEM != 0 {
        // SAFETY: a program in C is responsible for which copied objects its coprocs use.
        attributes = unsafe { attributes.share_sysv_undo() };
    }
    if flags & flag::SHARE_FS != 0 {
        // SAFETY: by its manual page, the program's coprocs close no descriptor that belongs to their creator.
        attributes = unsafe { attributes.share_fs().share_files() };
    }
    Ok(attributes)
}

fn scheduling_of(set: &CoprocAttributes) -> Result<Scheduling, c_int> {
    let param = set.scheduling_param;
    Ok(match set.scheduling_policy {
        libc::SCHED_OTHER => Scheduling::Other { nice: param },
        libc::SCHED_BATCH => Scheduling::Batch { nice: param },
        libc::SCHED_IDLE => Scheduling::Idle,
        libc::SCHED_FIFO => Scheduling::Fifo { priority: param },
        libc::SCHED_RR => Scheduling::RoundRobin { priority: param },
        _ => return Err(EINVAL),
    })
}

/// The names of attributes in C.
pub(super) fn c_name_of(attribute: &str) -> Option<&'static CStr> {
    Some(match attribute {
        "address_space" => c"address_space_size",
        "core_size" => c"core_file_size",
        "cpu_time" => c"cpu_time",
        "stack_size" => c"stack_size",
        "scheduling" => c"scheduling_policy",
        "nice" => c"scheduling_param",
        "affinity" => c"cpu_affinity_mask",
        "name" => c"coproc_name",
        "region" => c"shm_max_size",
        "cgroup" => c"cgroup",
        "descriptor" => DESCRIPTORS,
        "no_new_privs" => c"confinement",
        "files" => c"files",
        "system_calls" => c"system_calls",
        "process" => return None,
        _ => c"flags",
    })
}
