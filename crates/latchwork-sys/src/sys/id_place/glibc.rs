//! Where glibc keeps a thread's ID.
//!
//! Until glibc 2.42 the kernel knows the word: it clears the word when the thread ends. From 2.43 on the kernel clears
//! another word, the state by which threads are joined, whose values are 0 to 3. A thread with the ID 2 is common in a
//! container, so that equal values prove nothing there. glibc describes its threads for debuggers, the place of the ID
//! included, by symbols that all versions since 2.3.3 have. The other ways are for programs that are linked statically.

use core::ptr;

/// The largest value of a state by which threads are joined.
const LARGEST_STATE: u32 = 3;

/// Below this ID a thread's other words are likely to have the same value by chance.
pub(super) const RARE: u32 = 1024;

/// How many bytes of a thread are searched. A thread of glibc's is longer.
const SEARCHED: usize = 1024;

/// See [`super::place_of_id`].
pub(super) fn place_of_id() -> *mut u32 {
    let id = super::super::thread::thread_id();
    let thread: *mut u32 = ptr::with_exposed_provenance_mut(super::super::thread::handle());
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
pub(super) fn described() -> Option<usize> {
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
pub(super) fn search(thread: *mut u32, id: u32) -> *mut u32 {
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
