//! One processor for the tracer and the traced.
#![allow(unsafe_code)]

/// Binds the calling thread, and the processes that it starts, to one processor: since tracer and traced run in turns,
/// this is several times faster. Dropping it undoes this for the calling thread.
pub struct Pinned {
    before: libc::cpu_set_t,
}

impl core::fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Pinned").finish_non_exhaustive()
    }
}

impl Default for Pinned {
    fn default() -> Self {
        Self::new()
    }
}

impl Pinned {
    /// Binds it to the processor on which it runs. If the system refuses, stepping is slow.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid cpu_set_t; the calls read and write local variables.
        unsafe {
            let mut before: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&before), &raw mut before);
            let mut here: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
            libc::sched_setaffinity(0, size_of_val(&here), &raw const here);
            Self { before }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: reads a field of this value.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.before), &raw const self.before) };
    }
}
