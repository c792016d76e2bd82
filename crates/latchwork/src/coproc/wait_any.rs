//! Waiting for the first end of several coprocs.

use super::{Coproc, JoinError, reap};
use crate::time::Deadline;
use core::time::Duration;
use std::sync::Arc;

/// How many words the region's `park` can watch beside the life-words of all tasks.
const PARK_WORDS: usize = 8;

/// Waits until one of several coprocs has ended; returns its index, for [`Coproc::join`]. (A coproc that became another
/// program counts as ended: its join may take long.)
///
/// # Errors
/// [`JoinError::TimedOut`] once `deadline` has passed, or at once if `coprocs` is empty and there is no deadline;
/// [`JoinError::OtherProcess`] if another process has spawned one of them.
pub fn wait_any(coprocs: &[&Coproc], deadline: Option<Deadline>) -> Result<usize, JoinError> {
    if !coprocs.iter().all(|coproc| coproc.is_own()) {
        return Err(JoinError::OtherProcess);
    }
    let Some(first) = coprocs.first() else {
        deadline.inspect(|it| std::thread::sleep(it.remaining()));
        return Err(JoinError::TimedOut);
    };
    let inner = first.region().inner();
    let is_here = |coproc: &&Coproc| Arc::ptr_eq(coproc.region().inner(), inner);
    let one_region = coprocs.iter().all(is_here);
    let mut lives = Vec::with_capacity(coprocs.len());
    loop {
        let deaths = inner.deaths();
        lives.clear();
        let mut gone = None;
        for (index, coproc) in coprocs.iter().enumerate() {
            // As in `wait_until_gone`.
            let _ = coproc.region().inner().task();
            if let Some(life) = coproc.life_word() {
                lives.push(life);
            } else {
                coproc.settle();
                gone = gone.or(Some(index));
            }
        }
        if gone.is_some() || deadline.is_some_and(Deadline::has_passed) {
            return gone.ok_or(JoinError::TimedOut);
        }
        // Coprocs beyond these, and tasks of other regions, are checked every 10 ms.
        let watched = &lives[..lives.len().min(PARK_WORDS)];
        let check = Deadline::after(Duration::from_millis(10));
        let until = if one_region && watched.len() == lives.len() {
            deadline
        } else {
            Some(deadline.map_or(check, |deadline| deadline.min(check)))
        };
        let Ok(task) = inner.task() else {
            // The other coprocs are checked after each nap.
            reap::nap_beside(lives[0], until);
            continue;
        };
        inner.park_watching(task, watched, deaths, until);
    }
}
