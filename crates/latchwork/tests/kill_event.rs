//! Events, with senders and receivers that are killed.
#![cfg(not(loom))]

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::event::{EventSet, Events, InvalidTask};
use latchwork::region::{Region, TaskId};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Page, Storm, Trial, Worker};
use std::thread;

mod kill_support;
use kill_support::{region, region_for, warm_up};

const A: EventSet = EventSet::event(0);
const B: EventSet = EventSet::event(9);

/// Where a child writes who it is.
type Name = Page<AtomicU64>;

fn task(name: &AtomicU64) -> Option<TaskId> {
    TaskId::from_raw(name.load(SeqCst))
}

/// A child that receives, and its name; asleep.
fn receiver(trial: &Trial, region: &Region, name: &Name, receive: impl FnOnce()) -> Child {
    name.store(0, SeqCst);
    let child = Child::fork(|| {
        name.store(region.task_id().unwrap().to_raw(), SeqCst);
        receive();
    });
    trial.wait_until(|| name.load(SeqCst) != 0 && child.is_in_region_sleep());
    child
}

/// A sender is killed between its send and its wake, or anywhere else. The test sends the same after it:
/// if the sender had sent already, that makes no condition true that was not true before, so nobody but
/// the region wakes the receiver.
#[test]
fn a_receiver_is_woken_wherever_its_sender_is_killed() {
    let trial =
        Trial::begin("a_receiver_is_woken_wherever_its_sender_is_killed").across_namespaces();
    let region = region_for(&trial, "kill_event");
    let events = Events::new(&region);
    let name = Name::new();
    region.join("test").unwrap();
    for all in [false, true] {
        step::each_instruction_and_recovery(
            &trial,
            if all {
                "send, the last of all"
            } else {
                "send, any"
            },
            || {
                // A victim in another namespace cannot free what recoverers have claimed.
                region.sweep().unwrap();
                let child = receiver(&trial, &region, &name, || {
                    let received = if all {
                        events.receive_all(A | B)
                    } else {
                        events.receive_any(A | B)
                    };
                    assert!(received.unwrap().contains(A));
                });
                if all {
                    events.send(task(&name).unwrap(), B).unwrap();
                }
                child
            },
            |_, span| {
                region.join("stepped").unwrap();
                let to = task(&name).unwrap();
                span.run(|| events.send(to, A).unwrap());
            },
            |_| false,
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                });
            },
            |child, _| {
                // It may have received, and ended.
                let to = task(&name).unwrap();
                let sent = events.send(to, A);
                assert!(matches!(sent, Ok(()) | Err(InvalidTask(_))));
                child.succeed();
                match sent {
                    Ok(()) => "the receiver was still there, and received",
                    Err(_) => "the receiver had received, and ended",
                }
            },
        );
    }
}

/// The next task in the slot of a dead one has neither its events nor its wait.
fn begins_with_nothing(region: &Region, victim: TaskId) {
    let events = Events::new(region);
    region.sweep().unwrap();
    assert_eq!(events.send(victim, A), Err(InvalidTask(victim)));
    Child::fork(|| {
        assert_eq!(region.task_id().unwrap().slot(), victim.slot());
        assert!(events.pending().unwrap().is_empty());
        assert!(events.try_receive_any(EventSet::all()).is_err());
        // Not even what its predecessor waited for is left: nobody makes a system call for it.
        events.send(region.task_id().unwrap(), A | B).unwrap();
        assert_eq!(events.receive_all(A | B).unwrap(), A | B);
    })
    .succeed();
}

/// A receiver is killed: its events go with it, and its place's next task begins with none.
#[test]
fn an_heir_begins_with_nothing_wherever_a_receiver_is_killed() {
    let trial = Trial::begin("an_heir_begins_with_nothing_wherever_a_receiver_is_killed")
        .across_namespaces();
    let region = region_for(&trial, "kill_event");
    let events = Events::new(&region);
    let name = Name::new();
    region.join("test").unwrap();
    warm_up(&trial, &region, || {
        let _ = events.receive_any(A);
    });
    for asleep in [false, true] {
        step::each_instruction_and_recovery(
            &trial,
            if asleep { "receive, asleep" } else { "receive" },
            || {
                // The victim gets the first free place, and its heir the same.
                region.sweep().unwrap();
                name.store(0, SeqCst);
            },
            |(), span| {
                let me = region.task_id().unwrap();
                name.store(me.to_raw(), SeqCst);
                let events = Events::new(&region);
                events.send(me, B).unwrap();
                if !asleep {
                    events.send(me, A).unwrap();
                }
                span.run(|| events.receive_all(A | B).unwrap());
            },
            |()| events.send(task(&name).unwrap(), A).is_ok(),
            |_, span| {
                span.run(|| {
                    region.join("recoverer").unwrap();
                    region.sweep().unwrap();
                });
            },
            |(), point| {
                if point == Point::Finished {
                    return "received";
                }
                begins_with_nothing(&region, task(&name).unwrap());
                "the next task in the slot began with nothing"
            },
        );
    }
}

/// A receiver with a limit, which is killed. Its next one in the slot gets nothing of the event that it had.
#[test]
fn a_wait_for_events_that_ends_in_vain_takes_none_at_any_instruction() {
    let trial = Trial::begin("a_wait_for_events_that_ends_in_vain_takes_none_at_any_instruction")
        .across_namespaces();
    let region = region_for(&trial, "kill_event");
    let events = Events::new(&region);
    region.join("test").unwrap();
    let limit = Duration::from_millis(1);
    warm_up(&trial, &region, || {
        let _ = events.receive_any(A);
    });
    let name = Name::new();
    step::each_instruction_and_recovery(
        &trial,
        "receive in vain",
        || {
            region.sweep().unwrap();
            name.store(0, SeqCst);
        },
        |(), span| {
            let me = region.task_id().unwrap();
            name.store(me.to_raw(), SeqCst);
            events.send(me, B).unwrap();
            let received = span.run(|| events.receive_all_for(A | B, limit));
            assert!(received.is_err());
            assert_eq!(events.pending().unwrap(), B, "it has taken an event");
        },
        // The limit ends each of its sleeps.
        |()| {
            thread::sleep(limit);
            true
        },
        |_, span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
            });
        },
        |(), point| {
            if point == Point::Finished {
                return "ended in vain";
            }
            begins_with_nothing(&region, task(&name).unwrap());
            "the next task in the slot began with nothing"
        },
    );
}

/// Children send to their neighbours, and wait for events of theirs; the test replaces what is lost with
/// the killed.
#[test]
fn killed_senders_and_receivers_hang_nobody() {
    const SEATS: usize = 6;
    let trial = Trial::begin("killed_senders_and_receivers_hang_nobody");
    let region = region("kill_event");
    let events = Events::new(&region);
    region.join("test").unwrap();
    let names = Page::<[AtomicU64; SEATS]>::new();
    let progress = Page::<[AtomicU64; SEATS]>::new();
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        names[worker.seat].store(region.task_id().unwrap().to_raw(), SeqCst);
        loop {
            let received = if rng.bool() {
                events.receive_any(A | B)
            } else {
                events.receive_all(A | B)
            };
            assert!(!received.unwrap().is_empty());
            progress[worker.seat].fetch_add(1, SeqCst);
            for event in [A, B] {
                let neighbour = &names[(worker.seat + rng.usize(1..SEATS)) % SEATS];
                if let Some(neighbour) = task(neighbour) {
                    let _ = events.send(neighbour, event);
                }
            }
        }
    };
    let mut storm = Storm::start(&trial, SEATS, work);
    let kills = trial.times(200);
    while storm.kills() < kills {
        storm.kill();
        let before: Vec<u64> = progress.iter().map(|count| count.load(SeqCst)).collect();
        let mut round = 0_u32;
        storm.wait_until(|| {
            round += 1;
            if round.is_multiple_of(64) {
                for name in names.iter().filter_map(task) {
                    let _ = events.send(name, A | B);
                }
            }
            (0..SEATS).all(|seat| progress[seat].load(SeqCst) != before[seat])
        });
    }
    storm.finish();
}
