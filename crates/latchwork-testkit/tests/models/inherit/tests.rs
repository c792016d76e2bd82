//! The bounds of the model, and its negative twins.

use super::kernel::DEADLOCK;
use super::{Fault, Inherit, LOST, TWICE};
use crate::explore;
use crate::section::TWO;

const SMALL: Inherit = Inherit {
    tasks: 3,
    rounds: 1,
    kills: 2,
    gives_up: true,
    unlisted: false,
    fault: Fault::None,
};
const LARGE: Inherit = Inherit {
    tasks: 4,
    rounds: 2,
    kills: 3,
    ..SMALL
};

#[test]
fn each_wait_for_a_robust_mutex_with_inheritance_ends() {
    explore::prove("robust mutex with inheritance", &SMALL, &[LARGE]);
}

#[test]
fn each_wait_ends_although_no_list_names_the_lock() {
    let unlisted = |model| Inherit {
        unlisted: true,
        ..model
    };
    let name = "robust mutex with inheritance, unlisted";
    explore::prove(name, &unlisted(SMALL), &[unlisted(LARGE)]);
}

#[test]
fn each_fault_of_inheritance_is_found() {
    for (fault, trouble) in [
        (Fault::UnlockIgnoresSleepers, explore::STUCK),
        (Fault::HidesDeath, LOST),
        (Fault::KeepsOwnerDied, TWICE),
        (Fault::RecordIsForgotten, explore::STUCK),
        (Fault::KilledHeirLeaves, explore::STUCK),
        (Fault::ThiefKeepsWord, TWO),
        (Fault::AttachesToDead, explore::STUCK),
        (Fault::LoserKeepsWord, DEADLOCK),
        (Fault::WalkComparesNothing, TWO),
        (Fault::MarksAnyWord, TWO),
    ] {
        let twin = Inherit {
            // A listed lock's owner is never searched for when it is gone.
            unlisted: matches!(fault, Fault::MarksAnyWord | Fault::AttachesToDead),
            // That one comes again. (If it was killed, a death would be lost.)
            rounds: 1 + u8::from(fault == Fault::LoserKeepsWord),
            kills: if fault == Fault::LoserKeepsWord { 0 } else { 2 },
            fault,
            ..SMALL
        };
        let name = format!("robust mutex with inheritance, {fault:?}");
        explore::expect(&name, &twin, trouble);
    }
}
