//! Faults of tasks of several PID namespaces. Each process is the first of its namespace, so all IDs are equal.
#![allow(unsafe_code)]

use crate::at;
use crate::kinds::plain;
use crate::run::{Row, fault, harmless, name_thread};
use latchwork::check::{self, Checked, Finding, PlaceText, Rule};
use latchwork::mutex::{Protocol, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::{Namespace, Page};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::scope;

type Lock = Checked<WaitWake<Shared>>;

#[derive(Shareable)]
#[repr(C)]
struct Common {
    locks: [Lock; 2],
}

fn common() -> Region {
    let options = RegionOptions::new()
        .max_bytes(2 << 20)
        .any_pid_namespace(true);
    let region = options.create_anonymous().unwrap();
    let make = || Common {
        locks: ["a", "b"].map(|name| Checked::named(name, WaitWake::new())),
    };
    let _ = region.object("common", make).unwrap();
    region
}

/// How far the two have come.
struct Turn<'a>(&'a AtomicU32);

impl Turn<'_> {
    fn is(&self, step: u32) -> bool {
        self.0.load(SeqCst) == step
    }

    fn wait(&self, step: u32) {
        while !self.is(step) {
            std::thread::yield_now();
        }
    }

    fn end(&self, step: u32) {
        self.0.store(step + 1, SeqCst);
    }
}

/// Runs both, each in a namespace of its own. The first has turn 0, in which the second does not exist yet, and the second
/// turn 1. Turn 2 ends when the first sleeps, and turn 4 when the second does, if it `sleeps`.
fn in_two_namespaces(first: fn(&Common, &Turn<'_>), second: fn(&Common, &Turn<'_>), sleeps: bool) {
    let region = common();
    let page = Page::<AtomicU32>::new();
    let turn = Turn(&page);
    let start = |name: &str, body: fn(&Common, &Turn<'_>)| {
        Namespace::start(true, || {
            assert_eq!(std::process::id(), 1);
            name_thread(name);
            let common = region.object("common", || unreachable!()).unwrap();
            body(&common, &turn);
        })
    };
    let mut one = start("one", first);
    while turn.is(0) {
        assert!(!one.has_ended());
        std::thread::yield_now();
    }
    let two = start("two", second);
    turn.wait(2);
    while !one.is_in_futex() {
        assert!(!one.has_ended());
        std::thread::yield_now();
    }
    turn.end(2);
    if sleeps {
        turn.wait(4);
        while !two.is_in_futex() {
            std::thread::yield_now();
        }
        turn.end(4);
    }
    two.succeed();
    one.succeed();
}

fn holds_a_and_wants_b(common: &Common, turn: &Turn<'_>) {
    let _ = at!("a", common.locks[0].acquire());
    turn.end(0);
    turn.wait(2);
    let _ = at!("b", common.locks[1].acquire());
    // SAFETY: both taken.
    unsafe {
        common.locks[1].release();
        common.locks[0].release();
    }
}

/// Where each process has a region of its own: free in address spaces of 39 bits, too.
const AT: usize = 1 << 38;

/// A region of the calling process alone. All processes have it at the same address.
fn own() -> Region {
    let options = RegionOptions::new().max_bytes(2 << 20);
    let region = options.address(AT).create_anonymous().unwrap();
    let make = || Checked::named("own", WaitWake::new());
    let _: Pin<&Lock> = region.object("own", make).unwrap();
    region
}

/// One waits for its own lock, which another of its threads has, and two has the lock at this address of its own region.
fn waits_at_an_address_of_its_own(common: &Common, turn: &Turn<'_>) {
    let region = own();
    let own: &Lock = &region.object("own", || unreachable!()).unwrap();
    let is_held = AtomicU32::new(0);
    scope(|scope| {
        let holder = scope.spawn(|| {
            let _ = own.acquire();
            is_held.store(1, SeqCst);
            turn.wait(5);
            // SAFETY: taken.
            unsafe { own.release() };
        });
        Turn(&is_held).wait(1);
        let _ = common.locks[0].acquire();
        turn.end(0);
        turn.wait(2);
        let _ = own.acquire();
        // SAFETY: both taken.
        unsafe {
            own.release();
            common.locks[0].release();
        }
        holder.join().unwrap();
    });
}

/// The child takes locks, and makes some, as its parent has done. Both have the ID 1.
fn forks_a_first_process() {
    let outer = Namespace::start(true, || {
        let taken = plain("taken");
        let _ = taken.acquire();
        let inner = Namespace::start(true, || {
            assert_eq!(std::process::id(), 1);
            let made = plain("made");
            for _ in 0..2 {
                let _ = made.acquire();
                // SAFETY: taken.
                unsafe { made.release() };
            }
        });
        inner.succeed();
        // SAFETY: taken.
        unsafe { taken.release() };
    });
    outer.succeed();
}

static REPORTS: AtomicU32 = AtomicU32::new(0);

/// `/proc` has other IDs than this process knows, so it is not asked what the owner does, nor where another process's code is.
fn says_only_what_it_can_know(finding: &Finding) {
    let names = finding.tasks.iter().map(|task| task.name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["releases", "owner"]);
    assert!(finding.tasks.iter().all(|task| task.does.is_empty()));
    let is_named = |place: &PlaceText| place.contains("check_faults");
    assert!(finding.stack.iter().any(is_named), "{:?}", finding.stack);
    REPORTS.fetch_add(1, SeqCst);
}

fn reports_where_proc_shows_other_ids() {
    let body = || {
        name_thread("releases");
        check::set_reporter(Some(says_only_what_it_can_know));
        let lock = plain("lock");
        let step = AtomicU32::new(0);
        scope(|scope| {
            let owner = scope.spawn(|| {
                name_thread("owner");
                let _ = lock.acquire();
                step.store(1, SeqCst);
                Turn(&step).wait(2);
                // SAFETY: taken.
                unsafe { lock.release() };
            });
            Turn(&step).wait(1);
            // SAFETY: a breach of a rule, which the checker is to refuse.
            unsafe { lock.release() };
            step.store(2, SeqCst);
            owner.join().unwrap();
        });
        assert_eq!(REPORTS.load(SeqCst), 1);
    };
    Namespace::start(false, body).succeed();
}

pub fn rows() -> Vec<Row> {
    if let Err(error) = Namespace::may_be_made() {
        println!("skipped: faults in several PID namespaces: these cannot be made here: {error}");
        return Vec::new();
    }
    vec![
        fault(
            "cycle through two PID namespaces",
            Rule::NoDeadlock,
            &[("one@elsewhere", "a", "b"), ("two", "b", "a")],
            || {
                in_two_namespaces(
                    holds_a_and_wants_b,
                    |common, turn| {
                        let _ = at!("b", common.locks[1].acquire());
                        turn.end(1);
                        turn.wait(3);
                        let _ = at!("a", common.locks[0].acquire());
                    },
                    false,
                );
            },
        ),
        fault(
            "unlock of a lock that a task of another PID namespace owns",
            Rule::OwnerUnlocks,
            &[("two", "", "a"), ("one@elsewhere", "a", "")],
            || {
                in_two_namespaces(
                    |common, turn| {
                        let _ = at!("a", common.locks[0].acquire());
                        turn.end(0);
                        loop {
                            std::thread::park();
                        }
                    },
                    |common, _| {
                        crate::run::mark("a", line!() + 2);
                        // SAFETY: a breach of a rule, which the checker is to refuse.
                        unsafe { common.locks[0].release() };
                    },
                    false,
                );
            },
        ),
        harmless("waits for tasks of another PID namespace", || {
            in_two_namespaces(
                holds_a_and_wants_b,
                |common, turn| {
                    let _ = common.locks[1].acquire();
                    turn.end(1);
                    turn.wait(3);
                    // SAFETY: taken.
                    unsafe { common.locks[1].release() };
                    let _ = common.locks[0].acquire();
                    // SAFETY: taken.
                    unsafe { common.locks[0].release() };
                },
                false,
            );
        }),
        harmless(
            "locks of two regions at one address, of two PID namespaces",
            || {
                let second = |common: &Common, turn: &Turn<'_>| {
                    let region = own();
                    let own: &Lock = &region.object("own", || unreachable!()).unwrap();
                    let _ = own.acquire();
                    turn.end(1);
                    turn.wait(3);
                    turn.end(3);
                    let _ = common.locks[0].acquire();
                    // SAFETY: both taken.
                    unsafe {
                        common.locks[0].release();
                        own.release();
                    }
                };
                in_two_namespaces(waits_at_an_address_of_its_own, second, true);
            },
        ),
        harmless(
            "a first process that the first of another PID namespace forks",
            forks_a_first_process,
        ),
        harmless(
            "a report where /proc shows the IDs of another PID namespace",
            reports_where_proc_shows_other_ids,
        ),
    ]
}
