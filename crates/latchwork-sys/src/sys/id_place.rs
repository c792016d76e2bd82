//! Where the C library keeps a thread's ID: `glibc.rs` and `musl.rs`.
//!
//! A raw clone has to write the new process's ID there, since the C library would otherwise take the parent's for its own:
//! its mutexes that know their owner then have the wrong one.
#![allow(unsafe_code)]

#[cfg(not(target_env = "musl"))]
mod glibc;
#[cfg(target_env = "musl")]
mod musl;

#[cfg(not(target_env = "musl"))]
use glibc as library;
#[cfg(target_env = "musl")]
use musl as library;

/// The word in which the C library keeps the calling thread's ID, or null if it was not found. It has the same distance
/// from the thread pointer in each thread of the process.
///
/// This takes the loader's lock.
pub fn place_of_id() -> *mut u32 {
    library::place_of_id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn each_way_finds_the_same_word() {
        std::thread::spawn(|| {
            let found = place_of_id();
            let thread: *mut u32 = ptr::with_exposed_provenance_mut(super::super::thread::handle());
            let id = super::super::thread::thread_id();
            // SAFETY: a word of the calling thread, which nothing changes meanwhile.
            assert_eq!(unsafe { found.as_ref() }, Some(&id));
            if let Some(distance) = library::described() {
                assert_eq!(found, thread.wrapping_byte_add(distance));
            }
            #[cfg(not(target_env = "musl"))]
            if id >= library::RARE {
                assert_eq!(found, library::search(thread, id));
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
                    let (place, distance) = (place_of_id(), library::described());
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
