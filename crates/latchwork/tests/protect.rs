//! Priority ceilings: what a task runs at, what it goes back to, and what it is refused.
//!
//! Real-time priorities need a privilege: without it, all but a few of these tests are skipped, and
//! say so.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use latchwork::mutex::{Mutex, Protect, ProtectFault};
use latchwork::sharing::Shared;
use latchwork_testkit::priority::{
    Now, OTHER, fair, fifo, in_thread, may_use_priorities, nice, now, round_robin, set_nice,
    thread_id, with_priorities,
};
use latchwork_testkit::{Child, Page, calls_in, count_calls, step};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

mod protect_support;
use protect_support::{inside, lock};

/// The system calls that set a thread's policy or priority.
const SETS: [libc::c_long; 3] = [
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];
/// Those that read them.
const READS: [libc::c_long; 3] = [
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getattr,
];

/// Whether this process could set its `RLIMIT_RTPRIO`, permanently.
fn limit_priorities(to: u64) -> bool {
    let limit = libc::rlimit {
        rlim_cur: to,
        rlim_max: to,
    };
    // SAFETY: the kernel reads the limit.
    unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const limit) == 0 }
}

#[test]
fn a_critical_section_runs_at_the_ceiling_and_restores_the_priority() {
    with_priorities(|_| {
        let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].map(fair);
        for before in
            ordinary
                .into_iter()
                .chain([fifo(10), round_robin(10), fifo(50), round_robin(50)])
        {
            for before in [before, before.flagged()] {
                in_thread(|| {
                    set_nice(5);
                    before.give(0);
                    let mutex = lock(50);
                    let raised = Now {
                        priority: 50,
                        policy: if before.priority == 0 {
                            before.policy & libc::SCHED_RESET_ON_FORK | libc::SCHED_FIFO
                        } else {
                            before.policy
                        },
                    };
                    for _ in 0..3 {
                        assert_eq!((inside(&mutex), nice()), (raised, 5));
                        assert_eq!((now(), nice()), (before, 5));
                    }
                });
            }
        }
    })
}

#[test]
fn held_locks_give_the_highest_ceiling_in_any_order_of_release() {
    with_priorities(|trial| {
        let mut random = trial.seed().rng(0);
        for own in [OTHER, fifo(20), round_robin(3)] {
            own.give(0);
            // A lock whose ceiling is the last own priority would not read the priority.
            Protect::priority_changed();
            let mutexes: Vec<_> = (0..12).map(|_| lock(random.u8(20..=99))).collect();
            let mut held: Vec<(u8, _)> = Vec::new();
            for _ in 0..2_000 {
                let wanted = &mutexes[random.usize(..mutexes.len())];
                if let Some(guard) = wanted.try_lock().unwrap() {
                    held.push((wanted.ceiling(), guard));
                } else if !held.is_empty() {
                    drop(held.swap_remove(random.usize(..held.len())));
                }
                let highest = held.iter().map(|(ceiling, _)| i32::from(*ceiling)).max();
                assert_eq!(now().priority, highest.unwrap_or(own.priority));
            }
            drop(held);
            assert_eq!(now(), own);
        }
    })
}

#[test]
fn the_priority_is_changed_only_when_the_highest_ceiling_changes() {
    with_priorities(|_| {
        fifo(10).give(0);
        let (low, middle, high) = (lock(30), lock(50), lock(70));
        let pair = |mutex: &Mutex<u32, Protect>| drop(mutex.lock().unwrap());
        [&low, &middle, &high].into_iter().for_each(pair);
        count_calls(&[SETS, READS].concat());
        // How often the body sets the policy or the priority, and how often it reads them.
        let calls = |body: &dyn Fn()| {
            let mut reads = 0;
            let sets = calls_in(&SETS, || reads = calls_in(&READS, body));
            (sets, reads)
        };
        assert_eq!(calls(&|| pair(&low)), (2, 2));
        let outer = middle.lock().unwrap();
        assert_eq!(calls(&|| pair(&low)), (0, 0));
        assert_eq!(calls(&|| pair(&lock(50))), (0, 0));
        assert_eq!(calls(&|| pair(&high)), (2, 2));
        assert_eq!(
            calls(&|| assert!(middle.try_lock().unwrap().is_none())),
            (0, 0)
        );
        drop(outer);
        // One whose own priority is the ceiling.
        fifo(50).give(0);
        Protect::priority_changed();
        pair(&middle);
        assert_eq!(calls(&|| (0..10).for_each(|_| pair(&middle))), (0, 0));
        // A task that declares that no other task changes its priority.
        fifo(10).give(0);
        Protect::priority_changed();
        let trusting = Protect::trust_priority().unwrap();
        assert_eq!(calls(&|| pair(&middle)), (2, 0));
        assert_eq!(now(), fifo(10));
        drop(trusting);
        assert_eq!(calls(&|| pair(&middle)), (2, 2));
    })
}

#[test]
fn a_change_between_critical_sections_is_restored_after_the_next() {
    with_priorities(|_| {
        fifo(10).give(0);
        let mutex = lock(50);
        for own in [
            fifo(30),
            round_robin(20),
            OTHER,
            fair(libc::SCHED_BATCH),
            fifo(5).flagged(),
            OTHER,
        ] {
            assert_eq!(inside(&mutex).priority, 50);
            own.give(0);
            assert_eq!(inside(&mutex).priority, 50);
            assert_eq!(now(), own);
        }
    })
}

#[test]
fn a_change_within_a_critical_section_is_not_undone() {
    with_priorities(|_| {
        let changes = [
            fifo(30),
            fifo(80),
            round_robin(50),
            round_robin(30),
            OTHER,
            fair(libc::SCHED_IDLE),
            fifo(10),
            fifo(50).flagged(),
        ];
        for own in [OTHER, fifo(10), round_robin(10)] {
            for change in changes {
                in_thread(|| {
                    own.give(0);
                    let mutex = lock(50);
                    let guard = mutex.lock().unwrap();
                    let boosted = now();
                    let me = thread_id();
                    in_thread(|| change.give(me));
                    drop(guard);
                    // A change to the priority of the boost counts as the boost; other changes with it
                    // are kept.
                    let expected = match change.priority {
                        50 if change.policy & !libc::SCHED_RESET_ON_FORK == boosted.policy => Now {
                            policy: own.policy | change.policy & libc::SCHED_RESET_ON_FORK,
                            ..own
                        },
                        50 if own.priority > 0 => Now {
                            priority: own.priority,
                            ..change
                        },
                        _ => change,
                    };
                    assert_eq!(now(), expected, "{own:?}, changed to {change:?}");
                    assert_eq!(inside(&lock(90)).priority, 90);
                    assert_eq!(now(), expected);
                });
            }
        }
    })
}

#[test]
fn locks_still_held_count_after_an_external_change() {
    with_priorities(|_| {
        fifo(10).give(0);
        let (low, high) = (lock(40), lock(60));
        let lower = low.lock().unwrap();
        let higher = high.lock().unwrap();
        fifo(20).give(0);
        drop(higher);
        assert_eq!(now(), fifo(40));
        let higher = high.lock().unwrap();
        OTHER.give(0);
        drop(lower);
        assert_eq!(
            now(),
            OTHER,
            "nothing to change, so the priority is not read"
        );
        drop(higher);
        assert_eq!(now(), OTHER);
        assert_eq!((inside(&high), now()), (fifo(60), OTHER));
    })
}

/// Also a change between the read of the priority and its change, which the lock cannot detect.
#[test]
fn an_external_change_at_any_instruction_leaves_no_boost() {
    with_priorities(|trial| {
        let task = Page::<AtomicU32>::new();
        let changes = [
            (OTHER, round_robin(7)),
            (OTHER, fifo(7)),
            (fifo(5), OTHER),
            (round_robin(5), fifo(7)),
        ];
        for (own, other) in changes {
            step::each_standstill(
                trial,
                &format!("a higher ceiling and back, made {other:?}"),
                || (),
                |(), span| {
                    own.give(0);
                    task.store(std::process::id(), Ordering::SeqCst);
                    let (low, high) = (lock(40), lock(60));
                    let lower = low.lock().unwrap();
                    span.run(|| {
                        drop(high.lock().unwrap());
                        drop(lower);
                    });
                },
                |()| other.give(task.load(Ordering::SeqCst) as i32),
                |(), point| {
                    let end = Now::of(task.load(Ordering::SeqCst) as i32);
                    // A change that was not detected is undone, as far as the lock writes it.
                    let due = [own, other];
                    assert!(
                        due.iter().any(|due| due.policy == end.policy)
                            && due.iter().any(|due| due.priority == end.priority),
                        "{own:?}, made {other:?} at {point:?}, ended as {end:?}"
                    );
                },
            );
        }
    })
}

#[test]
fn a_task_above_the_ceiling_is_refused() {
    with_priorities(|_| {
        let mutex = lock(50);
        fifo(51).give(0);
        let refused = ProtectFault::AboveCeiling {
            own: 51,
            ceiling: 50,
        };
        assert_eq!(mutex.lock().err(), Some(refused));
        assert_eq!(mutex.try_lock().err(), Some(refused));
        assert_eq!(mutex.lock_for(Duration::ZERO).err(), Some(refused));
        assert!(refused.to_string().contains("51") && refused.to_string().contains("50"));
        assert_eq!(now(), fifo(51));
        // What counts is the own priority, not that of a boost.
        fifo(10).give(0);
        let higher = lock(60);
        let _guard = higher.lock().unwrap();
        assert_eq!((now(), inside(&mutex)), (fifo(60), fifo(60)));
    })
}

#[test]
fn a_deadline_task_is_refused() {
    with_priorities(|_| {
        let become_deadline_task = || {
            let attributes: [u64; 6] = [48 | 6 << 32, 0, 0, 1_000_000, 100_000_000, 100_000_000];
            // SAFETY: the kernel reads a `sched_attr`: size and policy, flags, nice and priority, times.
            unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes.as_ptr(), 0) == 0 }
        };
        if !become_deadline_task() {
            println!("skipped: this system has no room for a SCHED_DEADLINE task");
            return;
        }
        let mutex = lock(50);
        assert_eq!(mutex.lock().err(), Some(ProtectFault::Deadline));
        assert_eq!(now().policy, libc::SCHED_DEADLINE);
        OTHER.give(0);
        let guard = mutex.lock().unwrap();
        assert!(become_deadline_task());
        assert_eq!(lock(60).lock().err(), Some(ProtectFault::Deadline));
        drop(guard);
        assert_eq!(now().policy, libc::SCHED_DEADLINE);
    })
}

#[test]
fn a_missing_privilege_is_reported_and_nothing_is_acquired() {
    with_priorities(|_| {
        fifo(10).give(0);
        Child::fork(|| {
            let (mutex, beyond) = (lock(50), lock(70));
            if !limit_priorities(60) {
                println!("skipped: a limit on priorities above that which is in force");
            }
            let guard = mutex.lock().unwrap();
            // SAFETY: no preconditions; this process has one thread.
            assert_eq!(unsafe { libc::setuid(65_534) }, 0);
            // The way back needs no privilege.
            drop(guard);
            assert_eq!(now(), fifo(10));
            if limit_priorities(60) {
                assert_eq!(inside(&mutex), fifo(50));
                let refused = ProtectFault::Permission {
                    ceiling: 70,
                    limit: 60,
                };
                assert_eq!(beyond.lock().err(), Some(refused));
                assert_eq!(now(), fifo(10));
            }
            assert!(limit_priorities(0));
            let refused = ProtectFault::Permission {
                ceiling: 50,
                limit: 0,
            };
            assert_eq!(mutex.lock().err(), Some(refused));
            assert_eq!(mutex.try_lock().err(), Some(refused));
            for part in ["CAP_SYS_NICE", "RLIMIT_RTPRIO of 50", "it is 0"] {
                assert!(refused.to_string().contains(part), "{refused}");
            }
            assert!(beyond.lock().is_err());
            assert_eq!(now(), fifo(10));
            fifo(5).give(0);
            assert!(
                lock(5).try_lock().unwrap().is_some(),
                "nothing to change, nothing to ask for"
            );
        })
        .succeed();
    })
}

#[test]
fn a_child_forked_in_a_critical_section_drops_the_boost_at_its_first_lock() {
    with_priorities(|_| {
        for own in [OTHER, fifo(10), round_robin(10)] {
            own.give(0);
            let (outer, other) = (lock(50), lock(40));
            let guard = outer.lock().unwrap();
            let child = || {
                assert_eq!(now().priority, 50);
                drop(other.lock().unwrap());
                assert_eq!(now(), own);
            };
            Child::fork(child).succeed();
            Child::clone_raw(child).succeed();
            Child::fork(|| {
                let robust = pin!(Mutex::robust(0));
                drop(robust.as_ref().lock().unwrap());
                assert_eq!(now(), own, "a lock of another kind serves as well");
            })
            .succeed();
            Child::fork(|| {
                fifo(30).give(0);
                drop(other.lock().unwrap());
                assert_eq!(now(), fifo(30), "not the boost any more");
            })
            .succeed();
            assert_eq!(now().priority, 50);
            drop(guard);
            assert_eq!(now(), own);
        }
    })
}

#[test]
fn a_panic_in_a_critical_section_restores_the_priority() {
    with_priorities(|_| {
        fifo(10).give(0);
        let mutex = lock(50);
        let panics = AssertUnwindSafe(|| {
            let _guard = mutex.lock().unwrap();
            resume_unwind(Box::new("inside"))
        });
        assert!(catch_unwind(panics).is_err());
        assert_eq!((now(), inside(&mutex)), (fifo(10), fifo(50)));
    })
}

#[test]
fn a_trusted_priority_detects_another_class_and_accepts_a_reported_change() {
    with_priorities(|_| {
        fifo(10).give(0);
        let mutex = lock(50);
        let trusted = Protect::trust_priority().unwrap();
        OTHER.give(0);
        assert_eq!((inside(&mutex), now()), (fifo(50), OTHER));
        fifo(20).give(0);
        Protect::priority_changed();
        assert_eq!((inside(&mutex), now()), (fifo(50), fifo(20)));
        drop(trusted);
        // A task at its ceiling.
        fifo(50).give(0);
        assert_eq!((inside(&mutex), inside(&mutex)), (fifo(50), fifo(50)));
        fifo(40).give(0);
        Protect::priority_changed();
        assert_eq!((inside(&mutex), now()), (fifo(50), fifo(40)));
        let guard = mutex.lock().unwrap();
        Protect::priority_changed();
        drop(guard);
        assert_eq!(now(), fifo(40));
    })
}

#[test]
fn processes_share_a_ceiling() {
    with_priorities(|_| {
        let mutex = latchwork_testkit::Mapped::new(Mutex::protect_shared(50, 0_u32));
        let add = || {
            for _ in 0..500 {
                let mut value = mutex.lock().unwrap();
                assert_eq!(now().priority, 50);
                *value += 1;
            }
            assert_eq!(now(), OTHER);
        };
        let children = [(); 2].map(|()| Child::fork(add));
        add();
        children.into_iter().for_each(Child::succeed);
        assert_eq!(*mutex.lock().unwrap(), 1_500);
    })
}

#[test]
fn an_unprivileged_task_can_set_and_read_ceilings() {
    let mutex = Mutex::protect(7, ());
    assert_eq!((mutex.set_ceiling(8), mutex.ceiling()), (7, 8));
    for wrong in [0, 100] {
        assert!(catch_unwind(|| Mutex::protect(wrong, ())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| mutex.set_ceiling(wrong))).is_err());
    }
    assert_eq!(mutex.ceiling(), 8);
    assert!(format!("{mutex:?}").contains("ceiling: 8"));
}

#[test]
fn the_size_is_as_promised_and_it_can_be_a_static() {
    static STATIC: Mutex<AtomicU32, Protect<Shared>> = Mutex::protect_shared(99, AtomicU32::new(3));
    assert_eq!((size_of::<Protect>(), align_of::<Protect>()), (8, 4));
    assert_eq!(size_of::<Mutex<u32, Protect>>(), 12);
    assert_eq!(STATIC.ceiling(), 99);
    if may_use_priorities("the_size_is_as_promised_and_it_can_be_a_static") {
        assert_eq!(STATIC.lock().unwrap().load(Ordering::Relaxed), 3);
    }
}
