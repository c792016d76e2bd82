//! Libraries that are unloaded: the loader frees the memory of their variables without a call that could be
//! intercepted. A library that is loaded there next has locks of its own at the same addresses.
#![allow(unsafe_code)]

use crate::entry::entry;
use crate::take::site;
use crate::{checked, real};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use latchwork::check::hook;
use latchwork_interpose::errno::keeping_errno;
use libc::{dl_phdr_info, size_t};

entry! {
    dlclose 1 close;
}

/// The address range of a module.
fn place(module: &dl_phdr_info) -> Range<usize> {
    // SAFETY: the loader's program-header table, of that length.
    let headers =
        unsafe { core::slice::from_raw_parts(module.dlpi_phdr, module.dlpi_phnum.into()) };
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let begin = |header: &libc::Elf64_Phdr| module.dlpi_addr as usize + header.p_vaddr as usize;
    let ends = loaded
        .clone()
        .map(|header| begin(header) + header.p_memsz as usize);
    loaded.map(begin).min().unwrap_or(0)..ends.max().unwrap_or(0)
}

unsafe extern "C" fn note(module: *mut dl_phdr_info, _: size_t, places: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` below calls this, with a module and the pointer that it was given.
    let (module, places) = unsafe { (&*module, &mut *places.cast::<Vec<Range<usize>>>()) };
    // Without memory, a module is missing from the list, and its unloading is not noticed.
    if places.try_reserve(1).is_ok() {
        places.push(place(module));
    }
    0
}

/// All modules that are loaded.
fn places() -> Vec<Range<usize>> {
    let mut places = Vec::new();
    // SAFETY: `note` gets a pointer to a list, as it expects.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut places).cast()) };
    places
}

unsafe extern "C" fn close(library: *mut c_void, at: usize) -> c_int {
    if !checked::this_thread() {
        // SAFETY: the program's own call, here and below.
        return unsafe { real::dlclose(library) };
    }
    let before = keeping_errno(places);
    // SAFETY: the program's own call.
    let result = unsafe { real::dlclose(library) };
    keeping_errno(|| {
        let after = places();
        for place in before {
            if !after.contains(&place) {
                hook::freed(place, site(at));
            }
        }
    });
    result
}
