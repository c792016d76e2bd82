//! What every condition variable must do: bodies over any that is a [`Contestant`], for the tests of the library, and for
//! those of its interface to C and C++. `condvar_conformance!` makes a test of each.
#![allow(unsafe_code)]

use crate::{Child, Mapped, Seed, ThreadId, Trial};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork_sys::time::Deadline;
use std::thread;

/// How often each task changes the number.
pub const ROUNDS: u64 = 2000;

/// A number, and waiting for it to change.
pub trait Contestant: Sync {
    /// Whether processes can share it.
    const SHARED: bool;
    /// Whether the system lets this process use it; if not, prints which test is skipped.
    fn is_permitted(_test: &str) -> bool {
        true
    }
    /// With the number 0.
    fn make() -> Self;
    /// Called where it will stay, before its first use.
    fn settle(&self) {}
    /// Changes the number, and notifies one waiter, or all; then runs `rest`, under the lock if it
    /// notifies under the lock.
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce());
    /// Changes the number, and notifies one waiter, or all.
    fn change(&self, all: bool, change: impl FnOnce(&mut u64)) {
        self.change_and(all, change, || ());
    }
    /// Waits while `condition` holds, until the deadline; then leaves the number changed by `then`.
    /// Returns false if the deadline passed first.
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        condition: impl FnMut(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool;
}

/// A contestant at its final place.
pub fn settled<C: Contestant>() -> Box<C> {
    let contestant = Box::new(C::make());
    contestant.settle();
    contestant
}

/// Returns when all these threads sleep.
pub fn asleep(threads: &[ThreadId]) {
    threads.iter().for_each(ThreadId::wait_until_in_futex);
}

/// One of two players: waits until the number has its parity, and adds one.
pub fn play(contestant: &impl Contestant, parity: u64) {
    for _ in 0..ROUNDS {
        contestant.wait_while(None, |number| number % 2 != parity, |number| *number += 1);
        contestant.change(false, |_| ());
    }
}

/// Two threads of one process.
pub fn two_tasks_take_turns<C: Contestant>() {
    let contestant = settled::<C>();
    thread::scope(|scope| {
        scope.spawn(|| play(&*contestant, 0));
        play(&*contestant, 1);
    });
    assert!(contestant.wait_while(None, |number| number != 2 * ROUNDS, |_| ()));
}

/// Two processes.
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

/// Each notification of one reaches a waiter: there are as many tokens as takers, in any order.
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

/// Six waiters, asleep or about to sleep.
pub fn a_broadcast_releases_every_waiter<C: Contestant>() {
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
            // In some rounds all sleep, in the others they are about to.
            if round % 5 == 0 {
                asleep(&ids);
            }
            contestant.change(true, |number| *number = round);
        });
    }
}

/// A timed wait returns no earlier than its deadline.
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
        id.wait_until_in_futex();
        contestant.change(false, |number| *number = 1);
    });
}

/// A waiter that was released in time returns with the mutex, however late.
pub fn a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it<C: Contestant>() {
    let contestant = settled::<C>();
    let deadline = Deadline::after(Duration::from_millis(30));
    let ids: [ThreadId; 4] = Default::default();
    thread::scope(|scope| {
        for id in &ids {
            let contestant = &contestant;
            scope.spawn(move || {
                id.set();
                let mut checks = 0;
                let was_released = contestant.wait_while(
                    Some(deadline),
                    |_| {
                        checks += 1;
                        checks == 1
                    },
                    |number| *number += 1,
                );
                // On a slow machine it may have come after the deadline.
                if !was_released {
                    contestant.change(false, |number| *number += 1);
                }
            });
        }
        // On a busy machine some may have returned already.
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

/// Signals that were handled.
pub static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Tokens are given and taken; some takers time out, all are interrupted by signals, and notifications of one and of all
/// are mixed. At the end every taker has its tokens.
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

/// Makes a module for each contestant, with a test for each body.
#[macro_export]
macro_rules! condvar_conformance {
    ($($module:ident: $contestant:ty;)*) => {$(
        mod $module {
            use super::*;
            $crate::condvar_conformance!(@ $contestant; two_tasks_take_turns two_processes_take_turns each_token_finds_a_taker
                a_broadcast_releases_every_waiter a_timed_wait_ends_at_its_deadline_and_not_before
                a_waiter_that_was_released_and_cannot_have_the_mutex_in_time_waits_for_it
                no_token_is_lost_among_deadlines_and_signals);
        }
    )*};
    (@ $contestant:ty; $($body:ident)*) => {$(
        #[test]
        fn $body() {
            if <$contestant as $crate::bodies::condvar::Contestant>::is_permitted(stringify!($body)) {
                let _watchdog = $crate::Watchdog::start(concat!(stringify!($body), " of ", stringify!($contestant)).into());
                $crate::bodies::condvar::$body::<$contestant>();
            }
        }
    )*};
}
