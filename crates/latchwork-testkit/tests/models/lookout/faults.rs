//! Lookouts with a fault, each of which the model finds.

use super::{Fault, Lookout, UNSEEN, UNTOLD};
use crate::explore;

#[test]
fn each_fault_of_a_lookout_is_found() {
    for (fault, tasks, kills, successors) in [
        (Fault::ForgetsAge, 3, 1, 0),
        (Fault::QuitsInSilence, 4, 1, 0),
        (Fault::IgnoresFreePost, 4, 1, 0),
        (Fault::ChecksLate, 3, 1, 0),
        (Fault::IgnoresLookout, 4, 1, 0),
        (Fault::SweepKeepsPost, 3, 2, 1),
        (Fault::SleepsForEver, 3, 1, 0),
        (Fault::TellsWatchersOnly, 4, 1, 0),
    ] {
        let twin = Lookout {
            tasks,
            // Sleeps that are all shorter than `LIMIT` then notice no death that only a stopped lookout would.
            stops: u8::from(fault == Fault::ForgetsAge),
            fault,
            kills,
            successors,
        };
        let trouble = match fault {
            Fault::TellsWatchersOnly => UNTOLD,
            _ => UNSEEN,
        };
        explore::expect(&format!("lookout, {fault:?}"), &twin, trouble);
    }
}
