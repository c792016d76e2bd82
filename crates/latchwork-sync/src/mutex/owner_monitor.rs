//! Whether the owner of a lock runs, as far as one of its waiters can know: for the top waiter of a throughput mutex (also of
//! one in a region, which knows the owner's thread by its slot), and
//! for a task that waits for a writer of a reader/writer lock.
//!
//! *How it knows.* The owner's CPU clock is read twice, for 280 ns each time: a thread whose clock has not advanced does not
//! run. The clock can be read within the thread's process only. Another method for threads of other processes (for
//! instance a word that the owner itself writes) would go into [`OwnerMonitor::has_run`], and no caller would change.

#[cfg(not(loom))]
use crate::sys::running;

/// The owner and its CPU clock, as of the latest check.
#[derive(Default)]
pub(crate) struct OwnerMonitor {
    seen: (u32, u64),
}

impl OwnerMonitor {
    /// Whether the owner `tid` has had a processor since the check before; `None`: that is unknown, since it is a thread of
    /// another process, or has ended. The first check of an owner answers "yes": only a second reading of its clock shows
    /// whether the clock advances. (In a model waiters do not poll for an owner that runs.)
    #[cfg_attr(loom, expect(unused_variables))]
    pub(crate) fn has_run(&mut self, tid: u32) -> Option<bool> {
        #[cfg(loom)]
        return None;
        #[cfg(not(loom))]
        running::cpu_time(tid)
            .map(|time| core::mem::replace(&mut self.seen, (tid, time)) != (tid, time))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::thread;
    use core::time::Duration;

    #[test]
    fn a_thread_that_runs_is_told_from_one_that_does_not_and_from_a_foreign_one() {
        let mut monitor = OwnerMonitor::default();
        let me = thread::thread_id();
        assert_eq!(monitor.has_run(me), Some(true));
        while monitor.has_run(me) != Some(true) {}
        assert_eq!(
            OwnerMonitor::default().has_run(1).is_some(),
            std::process::id() == 1
        );

        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(thread::thread_id()).unwrap();
                let _ = ended.recv();
            });
            let other = told.recv().unwrap();
            // It sleeps soon, and its clock stands still from then on.
            while monitor.has_run(other) != Some(false) {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(end);
        });
    }
}
