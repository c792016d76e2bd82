//! The bounds of the model, and its negative twins.

use super::{Fault, Robust};
use crate::explore;
use crate::section::TORN;

const SMALL: Robust = Robust {
    tasks: 3,
    rounds: 1,
    kills: 2,
    naps: true,
    is_old: false,
    fault: Fault::None,
};
const LARGE: [Robust; 2] = [
    Robust {
        tasks: 4,
        rounds: 1,
        kills: 3,
        ..SMALL
    },
    Robust {
        tasks: 4,
        rounds: 2,
        kills: 1,
        ..SMALL
    },
];

#[test]
fn each_wait_for_a_robust_mutex_ends() {
    explore::prove("robust mutex", &SMALL, &LARGE);
}

#[test]
fn each_wait_ends_on_kernels_that_pass_on_fewer_wake_ups() {
    let old = |model| Robust {
        is_old: true,
        ..model
    };
    explore::prove(
        "robust mutex, Linux before 6.2",
        &old(SMALL),
        &LARGE.map(old),
    );
}

#[test]
fn naps_are_needed_for_two_deaths_only() {
    let sleeps = |model| Robust {
        naps: false,
        ..model
    };
    explore::prove(
        "robust mutex without naps",
        &sleeps(SMALL),
        &LARGE.map(sleeps),
    );
}

#[test]
fn each_fault_of_a_robust_mutex_is_found() {
    let twin = Robust {
        naps: false,
        ..SMALL
    };
    for (fault, trouble) in [
        (Fault::LockUnannounced, explore::STUCK),
        (Fault::UnlockUnannounced, explore::STUCK),
        (Fault::SettlesBeforeWake, explore::STUCK),
        (Fault::TakerForgetsSleepers, explore::STUCK),
        (Fault::UnlockForgetsSleepers, explore::STUCK),
        (Fault::HidesDeath, TORN),
        (Fault::KernelSwallowsWake, explore::STUCK),
        (Fault::KernelForgetsSleepers, explore::STUCK),
        (Fault::NoExcuse, explore::STUCK),
    ] {
        let name = format!("robust mutex, {fault:?}");
        explore::expect(&name, &Robust { fault, ..twin }, trouble);
    }
    // A lock that no list names stays its dead owner's, however often its waiters look.
    let naps = Robust {
        naps: true,
        fault: Fault::LockUnannounced,
        ..twin
    };
    explore::expect("robust mutex, unannounced, naps", &naps, explore::ENDLESS);
    let old = Robust {
        is_old: true,
        ..twin
    };
    explore::expect(
        "robust mutex, before 6.2 without naps",
        &old,
        explore::STUCK,
    );
}
