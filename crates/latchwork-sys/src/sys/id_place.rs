//! Where the C library keeps a thread's ID.
//!
//! Until glibc 2.42 the kernel knows the word: it clears the word when the thread ends. From 2.43 on the kernel clears
//! another word, the state by which threads are joined, whose values are 0 to 3. A thread with the ID 2 is common in a
//! container, so that equal values prove nothing there. glibc describes its threads for debuggers, the place of the ID
//! included, by symbols that all versions since 2.3.3 have. The other ways are for programs that are linked statically.
#![allow(unsafe_code)]

use core::ptr;

/// The largest value of a state by which threads are joined.
const LARGEST_STATE: u32 = 3;

/// Below this ID a thread's other words are likely to have the same value by chance.
const RARE: u32 = 1024;

/// How many bytes of a thread are searched. A thread of glibc's is longer.
const SEARCHED: usize = 1024;

/// The word in which the C library keeps the calling thread's ID, or null if it was not found. It has the same distance
/// from the thread pointer in each thread of the process.
///
/// This takes the loader's lock.
pub fn place_of_id() -> *mut u32 {
    let id = super::thread::thread_id();
    let thread: *mut u32 = ptr::with_exposed_provenance_mut(super::thread::handle());
    if let Some(distance) = described() {
        let place = thread.wrapping_byte_add(distance);
        // SAFETY: glibc says that the ID is there.
        if unsafe { place.read_volatile() } == id {
            return place;
        }
    }
    let kernels = kernels_word().unwrap_or(ptr::null_mut());
    // SAFETY: the kernel will write this word of the C library's when the thread ends, so it is mapped and aligned.
    if id > LARGEST_STATE && !kernels.is_null() && unsafe { kernels.read_volatile() } == id {
        return kernels;
    }
    if id < RARE {
        ptr::null_mut()
    } else {
        search(thread, id)
    }
}

/// How far from the beginning of a thread the ID lies, as glibc describes it.
fn described() -> Option<usize> {
    /// What a field's symbol refers to (`db_desc_t` of glibc).
    #[repr(C)]
    struct Field {
        bits: u32,
        elements: u32,
        offset: u32,
    }
    const BITS: u32 = 32;
    // SAFETY: the name ends in NUL. A symbol of this name is a field's description, which is never written.
    let field = unsafe {
        let name = c"_thread_db_pthread_tid";
        let field = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<Field>();
        if field.is_null() {
            // Clears the error of a failed look-up, which the program must not see.
            libc::dlerror();
        }
        field.as_ref()
    }?;
    (field.bits == BITS && field.elements == 1).then_some(field.offset as usize)
}

/// The word that the kernel clears when the calling thread ends.
fn kernels_word() -> Option<*mut u32> {
    let mut address: *mut u32 = ptr::null_mut();
    // SAFETY: the kernel writes only `address`.
    let answer = unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut address, 0, 0, 0) };
    (answer == 0).then_some(address)
}

/// Finds the ID in a thread, if one word alone has it.
fn search(thread: *mut u32, id: u32) -> *mut u32 {
    let mut found = (0..SEARCHED / size_of::<u32>())
        // SAFETY: the address is inside the thread.
        .map(|index| unsafe { thread.add(index) })
        // SAFETY: the address is inside the thread, and aligned.
        .filter(|address| unsafe { address.read_volatile() } == id);
    match (found.next(), found.next()) {
        (Some(address), None) => address,
        _ => ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_finds_the_same_word() {
        std::thread::spawn(|| {
            let found = place_of_id();
            let thread: *mut u32 = ptr::with_exposed_provenance_mut(super::super::thread::handle());
            let id = super::super::thread::thread_id();
            // SAFETY: a word of the calling thread, which nothing changes meanwhile.
            assert_eq!(unsafe { found.as_ref() }, Some(&id));
            if let Some(distance) = described() {
                assert_eq!(found, thread.wrapping_byte_add(distance));
            }
            if id >= RARE {
                assert_eq!(found, search(thread, id));
            }
        })
        .join()
        .unwrap();
    }

    /// Threads with the IDs 1, 2, 3… of a new PID namespace, one of which is the state by which threads are joined.
    #[test]
    fn a_thread_with_a_tiny_id_is_not_mistaken() {
        // SAFETY: the child makes a namespace for its own child, and ends without the test program's handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no other process relies on the namespaces of this one.
            if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
                println!("skipped: no PID namespace can be made");
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
            for _ in 0..5 {
                // SAFETY: as above; in the child only this thread exists, and it allocates nothing.
                let (inner, mut status) = (unsafe { libc::fork() }, 0);
                if inner == 0 {
                    let (place, distance) = (place_of_id(), described());
                    let thread = super::super::thread::handle();
                    let right = distance.is_none_or(|distance| place.addr() == thread + distance);
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(i32::from(!right)) };
                }
                // SAFETY: the kernel writes only `status`.
                unsafe { libc::waitpid(inner, &raw mut status, 0) };
                if status != 0 {
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(1) };
                }
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: the kernel writes only `status`.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
