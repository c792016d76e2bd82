//! Libraries that are unloaded: the loader frees the memory of their variables without a call that could be
//! intercepted. A library that is loaded there next has locks of its own at the same addresses.
//!
//! Which libraries a `dlclose` has unloaded is known only when it has returned. Other threads may use the memory by
//! then, and have locks of their own in it. So the locks of all modules are listed before the call, each with its
//! generation, and afterwards only those are forgotten that have not been initialised since. A lock that a destructor
//! of the library uses for the first time is not on the list, and stays known. Mutexes and reader/writer locks that are
//! made at its address later are recognised as others by their marks (`layout.rs`), all objects by a call that
//! initialises them.
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

/// The modules that are loaded.
struct Modules {
    places: Vec<Range<usize>>,
    /// How many found no room in that list.
    missed: usize,
}

/// The loader calls this under its lock. The program's allocator may take locks under which other threads call the
/// loader, so nothing is allocated here.
unsafe extern "C" fn note(module: *mut dl_phdr_info, _: size_t, modules: *mut c_void) -> c_int {
    // SAFETY: `dl_iterate_phdr` below calls this, with a module and the pointer that it was given.
    let (module, modules) = unsafe { (&*module, &mut *modules.cast::<Modules>()) };
    if modules.places.len() < modules.places.capacity() {
        modules.places.push(place(module));
    } else {
        modules.missed += 1;
    }
    0
}

/// The places of all modules that are loaded. Without memory some are missing, and their unloading is not noticed.
fn places() -> Vec<Range<usize>> {
    /// Modules that other threads may load meanwhile.
    const MORE: usize = 8;
    let mut modules = Modules {
        places: Vec::new(),
        missed: 0,
    };
    loop {
        // SAFETY: `note` gets a pointer to a list, as it expects.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut modules).cast()) };
        let all = modules.places.len() + modules.missed;
        if modules.missed == 0 {
            return modules.places;
        }
        let places = core::mem::take(&mut modules.places);
        modules.missed = 0;
        if modules.places.try_reserve(all + MORE).is_err() {
            return places;
        }
    }
}

/// A lock in a module.
struct Known {
    module: usize,
    address: usize,
    generation: u32,
}

/// The locks in modules, as far as there is memory to list them.
fn locks_in(places: &[Range<usize>]) -> Vec<Known> {
    let mut known = Vec::new();
    for (module, place) in places.iter().enumerate() {
        hook::locks_in(place.clone(), |address, generation| {
            if known.try_reserve(1).is_ok() {
                known.push(Known {
                    module,
                    address,
                    generation,
                });
            }
        });
    }
    known
}

unsafe extern "C" fn close(library: *mut c_void, at: usize) -> c_int {
    if !checked::this_thread() {
        // SAFETY: the program's own call, here and below.
        return unsafe { real::dlclose(library) };
    }
    let (before, locks) = keeping_errno(|| {
        let before = places();
        let locks = locks_in(&before);
        (before, locks)
    });
    // SAFETY: the program's own call.
    let result = unsafe { real::dlclose(library) };
    keeping_errno(|| {
        let after = places();
        for lock in locks {
            if !after.contains(&before[lock.module]) {
                hook::freed_meanwhile(lock.address, lock.generation, site(at));
            }
        }
    });
    result
}
