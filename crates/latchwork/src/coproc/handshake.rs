//! The creator's wait for a new coproc: until its attributes are set and its function runs, or until it is refused.

use super::attributes::Attribute;
use super::error::SpawnError;
use super::record::{self, Ref};
use super::zygote::{EXISTENCE_CHECK, Zygote};
use crate::atomic::Ordering;
use crate::sys::{futex, process};
use crate::time::Deadline;

/// Why a coproc has not started.
pub(super) enum Unstarted {
    /// The zygote died before it made the process.
    Unmade,
    Refused(SpawnError),
}

/// Waits until a coproc runs or is refused; kills it if that takes longer than `timeout`.
pub(super) fn handshake(
    record: &Ref,
    zygote: Option<&Zygote>,
    timeout: Option<Deadline>,
) -> Result<(), Unstarted> {
    let inner = record.region.inner();
    loop {
        let zygote_life = zygote.map(|zygote| inner.life_word(zygote.task));
        let made = record.pid.load(Ordering::Acquire);
        match record.state() {
            record::STARTED | record::DONE => return Ok(()),
            record::FAILED => {
                // Relaxed: written before `FAILED`, which was read with Acquire.
                let (code, detail) = (
                    record.code.load(Ordering::Relaxed),
                    record.detail.load(Ordering::Relaxed),
                );
                return Err(Unstarted::Refused(Attribute::error(code, detail)));
            }
            _ => {}
        }
        if made == 0 && matches!(zygote_life, Some(None)) {
            return Err(Unstarted::Unmade);
        }
        let state = futex::shared_word(&record.state, record::REQUESTED);
        let check = Some(Deadline::after(EXISTENCE_CHECK));
        let ended = match zygote_life.flatten() {
            Some((word, value)) => {
                futex::wait_many(&[state, futex::shared_word(word, value)], check)
            }
            None => futex::wait_many(&[state], check),
        };
        if ended != futex::Wait::TimedOut || made == 0 || record.state() != record::REQUESTED {
            continue;
        }
        if record.has_ended() && record.state() == record::REQUESTED {
            return Err(Unstarted::Refused(SpawnError::Died));
        }
        if timeout.is_some_and(Deadline::has_passed) {
            let _ = process::kill_child(made);
            return Err(Unstarted::Refused(SpawnError::Stuck));
        }
    }
}
