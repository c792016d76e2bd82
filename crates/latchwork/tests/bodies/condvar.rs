//! What every condition variable must do: bodies over any that is a [`Contestant`], for the tests of this crate, and for
//! those of the interface to C and C++.
#![allow(unsafe_code)]

use super::condvar_support::{Contestant, asleep, settled};
use super::lock_support::{Mapped, ThreadId};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Seed, Trial};
use std::thread;

pub const ROUNDS: u64 = 2000;

pub fn play(contestant: &impl Contestant, parity: u64) {
    for _ in 0..ROUNDS {
        contestant.wait_while(None, |number| number % 2 != parity, |number| *number += 1);
        contestant.change(false, |_| ());
    }
}

pub fn two_tasks_take_turns<C: Contestant>() {
    let contestant = settled::<C>();
    thread::scope(|scope| {
        scope.spawn(|| play(&*contestant, 0));
        play(&*contestant, 1);
    });
    assert!(contestant.wait_while(None, |number| number != 2 * ROUNDS, |_| ()));
}

pub fn two_processes_take_turns<C: Contestant>() {
    if !C::SHARED {
        return;
    }
    let _trial = Trial::begin("two_processes_take_turns");
    let contestant = Mapped::new(C::make());
    contestant.settle();
    let child = Child::fork(|| play(&*contestant, 0));
    play(&*contestant, 1);
    child.succeed();
    assert!(contestant.wait_while(None, |number| number != 2 * ROUNDS, |_| ()));
}

/// Each notification of one reaches somebody: as many tokens as takers, whoever comes when.
pub fn each_token_finds_a_taker<C: Contestant>() {
    const TAKERS: u64 = 4;
    let contestant = settled::<C>();
    thread::scope(|scope| {
        for _ in 0..TAKERS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    contestant.wait_while(None, |tokens| tokens == 0, |tokens| *tokens -= 1);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                (0..ROUNDS * TAKERS / 2)
                    .for_each(|_| contestant.change(false, |tokens| *tokens += 1))
            });
        }
    });
    assert!(contestant.wait_while(None, |tokens| tokens != 0, |_| ()));
}

pub fn a_broadcast_releases_everybody<C: Contestant>() {
    let contestant = settled::<C>();
    for round in 1..=50 {
        let ids: [ThreadId; 6] = Default::default();
        thread::scope(|scope| {
            for id in &ids {
                let contestant = &contestant;
                scope.spawn(move || {
                    id.set();
                    contestant.wait_while(None, |number| number != round, |_| ());
                });
            }
            // In some rounds all sleep, in the others they are on their way.
            if round % 5 == 0 {
                asleep(&ids);
            }
            contestant.change(true, |number| *number = round);
        });
    }
}

pub fn a_timed_wait_ends_at_its_deadline_and_not_before<C: Contestant>() {
    let contestant = settled::<C>();
    assert!(!contestant.wait_while(Some(Deadline::from_nanoseconds(1)), |_| true, |_| ()));
    let soon = Deadline::after(Duration::from_millis(3));
    assert!(!contestant.wait_while(Some(soon), |_| true, |_| ()));
    assert!(soon.has_passed());
    let id = ThreadId::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            let far = Deadline::after(Duration::from_secs(3600));
            assert!(contestant.wait_while(Some(far), |number| number == 0, |_| ()));
        });
        while !id.is_in_futex() {
            thread::yield_now();
        }
        contestant.change(false, |number| *number = 1);
    });
}

/// Wherever it sleeps by then: it comes back with the mutex.
pub fn a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it<C: Contestant>() {
    let contestant = settled::<C>();
    let deadline = Deadline::after(Duration::from_millis(30));
    let ids: [ThreadId; 4] = Default::default();
    thread::scope(|scope| {
        for id in &ids {
            let contestant = &contestant;
            scope.spawn(move || {
                id.set();
                let mut looks = 0;
                contestant.wait_while(
                    Some(deadline),
                    |_| {
                        looks += 1;
                        looks == 1
                    },
                    |number| *number += 1,
                );
            });
        }
        // On a busy machine some may be back by then.
        while !deadline.has_passed() && !ids.iter().all(ThreadId::is_in_futex) {
            thread::yield_now();
        }
        contestant.change_and(
            true,
            |number| *number += 1,
            || {
                while !deadline.has_passed() {
                    thread::sleep(Duration::from_millis(1));
                }
            },
        );
    });
    assert!(contestant.wait_while(None, |number| number != 5, |_| ()));
}

pub static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Tokens are given and taken; some takers give up, all are interrupted, and notifications of one and
/// of all are mixed. At the end every taker has what it wants.
pub fn no_token_is_lost_among_deadlines_and_signals<C: Contestant>() {
    const TAKERS: u64 = 6;
    const EACH: u64 = 400;
    let seed = Seed::from_env();
    // SAFETY: a handler that does one atomic operation.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()),
            0
        );
    }
    let contestant = settled::<C>();
    let ids: [ThreadId; TAKERS as usize] = Default::default();
    thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS)
            .map(|taker| {
                let (contestant, id) = (&contestant, &ids[taker as usize]);
                let mut rng = seed.rng(taker);
                scope.spawn(move || {
                    id.set();
                    let mut taken = 0;
                    while taken < EACH {
                        let soon = (taker % 2 == 0)
                            .then(|| Deadline::after(Duration::from_micros(rng.u64(..60))));
                        let got = contestant.wait_while(
                            soon,
                            |tokens| tokens == 0,
                            |tokens| *tokens -= 1,
                        );
                        taken += u64::from(got);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut rng = seed.rng(TAKERS);
            let mut left = TAKERS * EACH;
            while left > 0 {
                let given = rng.u64(1..=left.min(4));
                left -= given;
                contestant.change(given > 1 || rng.bool(), |tokens| *tokens += given);
            }
        });
        let mut rng = seed.rng(TAKERS + 1);
        while !takers.iter().all(|taker| taker.is_finished()) {
            let taker = rng.usize(..takers.len());
            if ids[taker].is_set() && !takers[taker].is_finished() {
                ids[taker].signal(libc::SIGUSR1);
            }
            thread::sleep(Duration::from_micros(50));
        }
    });
    assert!(contestant.wait_while(None, |tokens| tokens != 0, |_| ()));
}

macro_rules! conformance {
    ($($module:ident: $contestant:ty;)*) => {$(
        mod $module {
            use super::*;
            conformance!(@ $contestant; two_tasks_take_turns two_processes_take_turns each_token_finds_a_taker
                a_broadcast_releases_everybody a_timed_wait_ends_at_its_deadline_and_not_before
                a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it
                no_token_is_lost_among_deadlines_and_signals);
        }
    )*};
    (@ $contestant:ty; $($body:ident)*) => {$(
        #[test]
        fn $body() {
            if <$contestant>::is_permitted(stringify!($body)) {
                let _watchdog = Watchdog::start(concat!(stringify!($body), " of ", stringify!($contestant)).into());
                super::$body::<$contestant>();
            }
        }
    )*};
}
