//! Models of the completion: `src/completion.rs` under the model checker.
//!
//! Properties: no completion is lost (a lost one ends as loom's deadlock), and what the completer
//! wrote before, the waiter sees; and nobody accesses the completion when it may be gone. Every model has
//! a negative twin.
//!
//! Left out: `reset`, more than two waiters.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::completion::Completion;
use latchwork::model::{SOON, Scene};
use latchwork::negative_twin;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::{self, JoinHandle};

struct Shared {
    done: Completion,
    data: UnsafeCell<u32>,
}

// SAFETY: the data is written before the completion and read after it; that is what is checked.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            done: Completion::new_in(),
            data: UnsafeCell::new(0),
        })
    }

    fn write(&self) {
        // SAFETY: nobody reads before the completion; loom reports it otherwise.
        self.data.with_mut(|data| unsafe { *data = 7 });
    }

    fn read(&self) -> u32 {
        // SAFETY: read after the completion.
        self.data.with(|data| unsafe { *data })
    }

    fn waiter(shared: &Arc<Self>) -> JoinHandle<()> {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            shared.done.wait();
            assert_eq!(shared.read(), 7);
        })
    }
}

fn one_waits() {
    let shared = Shared::new();
    let waiter = Shared::waiter(&shared);
    shared.write();
    shared.done.complete();
    waiter.join().unwrap();
    assert!(!shared.done.is_done());
}

fn two_wait_for_a_token_each() {
    let shared = Shared::new();
    let waiters = [Shared::waiter(&shared), Shared::waiter(&shared)];
    shared.write();
    shared.done.complete();
    shared.done.complete();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

fn two_wait_for_all() {
    let shared = Shared::new();
    let waiters = [Shared::waiter(&shared), Shared::waiter(&shared)];
    shared.write();
    shared.done.complete_all();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
    assert!(shared.done.is_done());
}

fn one_of_two_gives_up() {
    let shared = Shared::new();
    let patient = Shared::waiter(&shared);
    let hasty = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.done.wait_until(SOON))
    };
    shared.write();
    shared.done.complete();
    if hasty.join().unwrap() {
        shared.done.complete();
    }
    patient.join().unwrap();
    assert!(!shared.done.is_done());
}

/// A completion that its last waiter frees.
struct Brief {
    done: core::cell::UnsafeCell<Completion>,
    waiting: AtomicU32,
}

// SAFETY: that nobody accesses it when it is freed is what is checked.
unsafe impl Sync for Brief {}
// SAFETY: as above.
unsafe impl Send for Brief {}

impl Brief {
    fn new(waiters: u32) -> Arc<Self> {
        Arc::new(Self {
            done: core::cell::UnsafeCell::new(Completion::new_in()),
            waiting: AtomicU32::new(waiters),
        })
    }

    fn done(&self) -> &Completion {
        // SAFETY: freed after the last waiter has returned only.
        unsafe { &*self.done.get() }
    }

    fn waiter(brief: &Arc<Self>) -> JoinHandle<()> {
        let brief = Arc::clone(brief);
        thread::spawn(move || {
            brief.done().wait();
            if brief.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
                // SAFETY: all waiters have returned; loom reports who is not through with it.
                unsafe { (*brief.done.get()).end() };
            }
        })
    }
}

fn one_frees_at_once() {
    let brief = Brief::new(1);
    let waiter = Brief::waiter(&brief);
    brief.done().complete();
    waiter.join().unwrap();
}

fn the_last_of_two_frees() {
    let brief = Brief::new(2);
    let waiters = [Brief::waiter(&brief), Brief::waiter(&brief)];
    brief.done().complete();
    brief.done().complete();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

fn the_last_of_all_frees() {
    let brief = Brief::new(2);
    let waiters = [Brief::waiter(&brief), Brief::waiter(&brief)];
    brief.done().complete_all();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().unwrap());
}

#[test]
fn a_waiter_that_has_returned_may_free_it() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(None, one_frees_at_once);
    }
}

#[test]
fn the_last_of_two_waiters_may_free_it() {
    Scene::default().explore(Some(3), the_last_of_two_frees);
    Scene::default().explore(Some(3), the_last_of_all_frees);
}

#[test]
fn no_completion_is_lost_with_one_waiter() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(None, one_waits);
    }
}

#[test]
fn two_tokens_release_two_waiters() {
    for spurious in [0, 1] {
        Scene {
            spurious,
            ..Scene::default()
        }
        .explore(Some(3), two_wait_for_a_token_each);
    }
}

#[test]
fn complete_all_releases_two_waiters() {
    Scene::default().explore(Some(3), two_wait_for_all);
}

#[test]
fn a_waiter_that_gives_up_takes_no_token_with_it() {
    Scene::default().explore(Some(3), one_of_two_gives_up);
}

negative_twin!(
    twin_completion_without_release_is_detected,
    CompleteRelaxed,
    "Causality violation",
    None,
    one_waits
);

negative_twin!(
    twin_completer_that_skips_a_single_waiter_is_detected,
    CompleterSkipsSingleWaiter,
    "deadlock",
    None,
    one_waits
);

negative_twin!(
    twin_completer_that_reads_again_is_detected,
    CompleterReadsAgain,
    "Causality violation",
    None,
    one_frees_at_once
);

negative_twin!(
    twin_completer_of_all_that_reads_again_is_detected,
    CompleterReadsAgain,
    "Causality violation",
    Some(3),
    the_last_of_all_frees
);
