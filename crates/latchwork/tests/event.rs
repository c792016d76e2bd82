//! Events: one test per rule. (`kill_event` kills.)
#![allow(unsafe_code)]
#![cfg(not(loom))]

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::classic::{self, Classic, ClassicOptions, Status};
use latchwork::coproc::{Attributes, Coprocs, Outcome};
use latchwork::event::{EventSet, Events, InvalidTask, ReceiveError, TryReceiveError};
use latchwork::region::{Region, RegionOptions, TaskId};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::sync::mpsc;
use std::thread;

use latchwork_testkit::ThreadId;

const A: EventSet = EventSet::event(0);
const B: EventSet = EventSet::event(7);
const C: EventSet = EventSet::event(31);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

fn passed() -> Deadline {
    Deadline::from_nanoseconds(0)
}

/// Runs `receive` in a thread that is asleep as `send` is called with its ID; then `send` must wake it.
fn while_asleep<T: Send>(
    trial: &Trial,
    region: &Region,
    receive: impl FnOnce() -> T + Send,
    send: impl FnOnce(TaskId, &ThreadId),
) -> T {
    let thread_id = ThreadId::default();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            thread_id.set();
            tell.send(region.task_id().unwrap()).unwrap();
            receive()
        });
        let task = told.recv().unwrap();
        trial.wait_until(|| thread_id.is_in_futex());
        send(task, &thread_id);
        receiver.join().unwrap()
    })
}

#[test]
fn events_accumulate_and_are_not_counted() {
    let region = region();
    let events = Events::new(&region);
    let me = region.task_id().unwrap();
    events.send(me, A).unwrap();
    events.send(me, B).unwrap();
    events.send(me, A).unwrap();
    assert_eq!(events.pending().unwrap(), A | B);
    assert_eq!(events.receive_any(A | B | C).unwrap(), A | B);
    assert_eq!(events.pending().unwrap(), EventSet::empty());
}

#[test]
fn pending_clears_nothing() {
    let region = region();
    let events = Events::new(&region);
    events.send(region.task_id().unwrap(), C).unwrap();
    assert_eq!(events.pending().unwrap(), C);
    assert_eq!(events.pending().unwrap(), C);
}

#[test]
fn only_the_wanted_events_are_received_and_cleared() {
    let region = region();
    let events = Events::new(&region);
    events.send(region.task_id().unwrap(), A | B | C).unwrap();
    assert_eq!(events.receive_any(A).unwrap(), A);
    assert_eq!(events.receive_all(B).unwrap(), B);
    assert_eq!(events.pending().unwrap(), C);
}

#[test]
fn all_waits_for_all_and_any_for_one() {
    let region = region();
    let events = Events::new(&region);
    events.send(region.task_id().unwrap(), A).unwrap();
    assert!(matches!(
        events.receive_all_until(A | B, passed()),
        Err(ReceiveError::TimedOut)
    ));
    assert_eq!(events.receive_any_until(A | B, passed()).unwrap(), A);
}

#[test]
fn a_miss_without_waiting_tells_what_is_there_and_clears_nothing() {
    let region = region();
    let events = Events::new(&region);
    events.send(region.task_id().unwrap(), A | C).unwrap();
    let Err(TryReceiveError::Unsatisfied { present }) = events.try_receive_all(A | B) else {
        panic!("received what is not there")
    };
    assert_eq!(present, A);
    let Err(TryReceiveError::Unsatisfied { present }) = events.try_receive_any(B) else {
        panic!("received what is not there")
    };
    assert_eq!(present, EventSet::empty());
    assert_eq!(events.pending().unwrap(), A | C);
    assert_eq!(events.try_receive_all(A | C).unwrap(), A | C);
}

#[test]
fn an_empty_set_is_received_at_once() {
    let region = region();
    let events = Events::new(&region);
    let none = EventSet::empty();
    assert_eq!(events.receive_any(none).unwrap(), none);
    assert_eq!(events.receive_all(none).unwrap(), none);
    assert_eq!(events.try_receive_any(none).unwrap(), none);
}

#[test]
fn system_events_are_a_set_of_their_own() {
    let region = region();
    let (user, system) = (Events::new(&region), Events::system(&region));
    let me = region.task_id().unwrap();
    system.send(me, EventSet::TRANSIENT).unwrap();
    assert_eq!(user.pending().unwrap(), EventSet::empty());
    user.send(me, A).unwrap();
    assert_eq!(
        system.receive_any(EventSet::all()).unwrap(),
        EventSet::TRANSIENT
    );
    assert_eq!(user.receive_any(EventSet::all()).unwrap(), A);
}

#[test]
fn a_sleeper_is_woken_by_any() {
    let trial = Trial::begin("a_sleeper_is_woken_by_any");
    let region = region();
    let events = Events::new(&region);
    let received = while_asleep(
        &trial,
        &region,
        || events.receive_any(A | B).unwrap(),
        |task, _| {
            events.send(task, C).unwrap();
            events.send(task, B).unwrap();
        },
    );
    assert_eq!(received, B);
}

#[test]
fn a_sleeper_is_woken_by_the_last_of_all() {
    let trial = Trial::begin("a_sleeper_is_woken_by_the_last_of_all");
    let region = region();
    let events = Events::new(&region);
    let received = while_asleep(
        &trial,
        &region,
        || {
            let received = events.receive_all(A | B).unwrap();
            (received, events.pending().unwrap())
        },
        |task, thread| {
            events.send(task, A | C).unwrap();
            // It sleeps on, or sleeps again.
            trial.wait_until(|| thread.is_in_futex());
            events.send(task, B).unwrap();
        },
    );
    assert_eq!(received, (A | B, C));
}

/// What a receiver has, and what is pending, once it runs again: it is stopped from before the sends until
/// after them.
fn while_stopped(
    trial: &Trial,
    receive: impl FnOnce(&Events<'_>) -> EventSet,
    sends: &[EventSet],
) -> (EventSet, EventSet) {
    let region = region();
    let events = Events::new(&region);
    let name = Page::<[AtomicU64; 2]>::new();
    let child = Child::fork(|| {
        name[0].store(region.task_id().unwrap().to_raw(), SeqCst);
        let received = receive(&events).bits();
        let left = events.pending().unwrap().bits();
        name[1].store(u64::from(received) << 32 | u64::from(left), SeqCst);
    });
    trial.wait_until(|| name[0].load(SeqCst) != 0);
    trial.stop_asleep(&child);
    let to = TaskId::from_raw(name[0].load(SeqCst)).unwrap();
    for set in sends {
        events.send(to, *set).unwrap();
    }
    child.signal(libc::SIGCONT);
    child.succeed();
    let result = name[1].load(SeqCst);
    let set = |bits| EventSet::from_bits_retain(bits);
    (set((result >> 32) as u32), set(result as u32))
}

/// What comes after the send that satisfies a receiver stays pending, whenever the receiver runs.
#[test]
fn a_send_takes_the_events_that_it_satisfies_a_receiver_with() {
    let trial = Trial::begin("a_send_takes_the_events_that_it_satisfies_a_receiver_with");
    let none = EventSet::empty();
    for (all, wanted, sends, received, left) in [
        (false, A | B, &[A, B][..], A, B),
        (false, A | B, &[B, A | B, B], B, A | B),
        (false, A, &[A, A], A, A),
        (false, A | B, &[C, A | C, A], A, A | C),
        (true, A | B, &[A, B], A | B, none),
        (true, A | B, &[A, A, B, A], A | B, A),
        (true, A, &[B, A | B, A], A, A | B),
    ] {
        let got = while_stopped(
            &trial,
            |events| {
                if all {
                    events.receive_all(wanted).unwrap()
                } else {
                    events.receive_any(wanted).unwrap()
                }
            },
            sends,
        );
        assert_eq!(got, (received, left), "all {all}, {wanted:?}, {sends:?}");
    }
}

/// The same with threads, as they come.
#[test]
fn events_that_are_sent_one_after_the_other_are_not_merged() {
    let trial = Trial::begin("events_that_are_sent_one_after_the_other_are_not_merged");
    let region = region();
    let events = Events::new(&region);
    for (first, second) in [(A, B), (A, A)] {
        for _ in 0..trial.times(300) {
            let received = while_asleep(
                &trial,
                &region,
                || events.receive_any(A | B).unwrap(),
                |task, _| {
                    events.send(task, first).unwrap();
                    // It may have received the first one and have ended.
                    let _ = events.send(task, second);
                },
            );
            assert_eq!(received, first);
        }
    }
}

#[test]
fn a_sleeper_times_out_and_takes_nothing() {
    let region = region();
    let events = Events::new(&region);
    events.send(region.task_id().unwrap(), A).unwrap();
    let deadline = Deadline::after(Duration::from_millis(3));
    assert!(matches!(
        events.receive_all_until(A | B, deadline),
        Err(ReceiveError::TimedOut)
    ));
    assert!(deadline.has_passed());
    assert_eq!(events.pending().unwrap(), A);
}

#[test]
fn a_receiver_sees_what_its_senders_wrote() {
    let trial = Trial::begin("a_receiver_sees_what_its_senders_wrote");
    let region = region();
    let events = Events::new(&region);
    let me = region.task_id().unwrap();
    let data = [const { AtomicU64::new(0) }; 4];
    for round in 1..=trial.times(2000) {
        thread::scope(|scope| {
            for number in 0..2 {
                let data = &data[number as usize];
                scope.spawn(move || {
                    data.store(round, core::sync::atomic::Ordering::Relaxed);
                    events.send(me, EventSet::event(number)).unwrap();
                });
            }
            let both = EventSet::event(0) | EventSet::event(1);
            assert_eq!(events.receive_all(both).unwrap(), both);
            for data in &data[..2] {
                assert_eq!(data.load(core::sync::atomic::Ordering::Relaxed), round);
            }
        });
        trial.progress();
    }
}

#[test]
fn sending_fails_to_a_task_that_has_left() {
    let region = region();
    let events = Events::new(&region);
    let gone = thread::scope(|scope| scope.spawn(|| region.task_id().unwrap()).join().unwrap());
    assert!(!region.has_task(gone));
    assert_eq!(events.send(gone, A), Err(InvalidTask(gone)));
    // Another one has its place now.
    let me = region.task_id().unwrap();
    assert_eq!(me.slot(), gone.slot());
    assert_eq!(events.send(gone, A), Err(InvalidTask(gone)));
    assert_eq!(events.pending().unwrap(), EventSet::empty());
}

#[test]
fn sending_fails_to_a_task_that_was_killed() {
    let trial = Trial::begin("sending_fails_to_a_task_that_was_killed");
    let region = region();
    let events = Events::new(&region);
    region.join("test").unwrap();
    let id = Page::<AtomicU64>::new();
    let mut victim = Child::fork(|| {
        id.store(region.task_id().unwrap().to_raw(), SeqCst);
        let _ = events.receive_any(A);
    });
    trial.wait_until(|| id.load(SeqCst) != 0 && victim.is_in_futex());
    let victim_id = TaskId::from_raw(id.load(SeqCst)).unwrap();
    events.send(victim_id, B).unwrap();
    assert_eq!(victim.kill(), Exit::Signal(libc::SIGKILL));
    assert_eq!(events.send(victim_id, A), Err(InvalidTask(victim_id)));
    region.sweep().unwrap();
    assert_eq!(events.send(victim_id, A), Err(InvalidTask(victim_id)));
    // Its heir begins with nothing.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(region.task_id().unwrap().slot(), victim_id.slot());
            assert_eq!(events.pending().unwrap(), EventSet::empty());
        });
    });
}

#[test]
fn numbers_that_name_nobody_are_found_out() {
    let region = region();
    let events = Events::new(&region);
    let me = region.task_id().unwrap();
    for raw in [
        1,
        u64::MAX,
        me.to_raw() | 1,
        me.to_raw() + (1 << 32),
        0xffff << 16,
    ] {
        let task = TaskId::from_raw(raw).unwrap();
        assert_eq!(events.send(task, A), Err(InvalidTask(task)), "{raw:#x}");
    }
    assert_eq!(TaskId::from_raw(me.to_raw()), Some(me));
}

#[test]
fn a_coproc_and_its_parent_send_each_other_events() {
    let trial = Trial::begin("a_coproc_and_its_parent_send_each_other_events");
    fn answer(region: &Region, parent: TaskId) -> i32 {
        let events = Events::new(region);
        let id = region.object("id", || AtomicU64::new(0)).unwrap();
        id.store(region.task_id().unwrap().to_raw(), SeqCst);
        events.send(parent, A).unwrap();
        for _ in 0..100 {
            assert_eq!(events.receive_any(A | B).unwrap(), B);
            events.send(parent, B).unwrap();
        }
        7
    }
    let region = region();
    let events = Events::new(&region);
    // SAFETY: what this process owns in a region, the coprocs do not use.
    let coprocs = unsafe { Coprocs::new(&region) }.unwrap();
    let coproc = coprocs
        .spawn_value(answer, region.task_id().unwrap(), &Attributes::new())
        .unwrap();
    assert_eq!(events.receive_all(A).unwrap(), A);
    let other = region.find::<AtomicU64>("id").unwrap().load(SeqCst);
    let other = TaskId::from_raw(other).unwrap();
    for _ in 0..100 {
        events.send(other, B).unwrap();
        assert_eq!(events.receive_any(B).unwrap(), B);
        trial.progress();
    }
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
}

#[test]
fn the_child_of_a_fork_has_events_of_its_own() {
    let _trial = Trial::begin("the_child_of_a_fork_has_events_of_its_own");
    let region = region();
    let events = Events::new(&region);
    let parent = region.task_id().unwrap();
    events.send(parent, A).unwrap();
    Child::fork(|| {
        assert_ne!(region.task_id().unwrap(), parent);
        assert_eq!(events.pending().unwrap(), EventSet::empty());
        events.send(parent, B).unwrap();
    })
    .succeed();
    assert_eq!(events.pending().unwrap(), A | B);
}

#[test]
fn classic_checks_come_in_rtems_order() {
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new()).unwrap();
    let mut out = 77;
    // No place for the answer: whatever else is wrong.
    assert_eq!(
        rtems.event_receive(0, classic::NO_WAIT, 0, None),
        Status::InvalidAddress
    );
    let me = rtems.task_self();
    assert_eq!(rtems.event_send(me, 0b101), Status::Successful);
    // Reading never blocks and clears nothing.
    for _ in 0..2 {
        let status = rtems.event_receive(0, classic::WAIT, 0, Some(&mut out));
        assert_eq!((status, out), (Status::Successful, 0b101));
    }
    let miss = classic::NO_WAIT | classic::EVENT_ALL;
    let status = rtems.event_receive(0b110, miss, 0, Some(&mut out));
    assert_eq!((status, out), (Status::Unsatisfied, 0b100));
    out = 77;
    let status = rtems.event_receive(0b110, classic::WAIT, 1, Some(&mut out));
    assert_eq!((status, out), (Status::Timeout, 77));
    let any = classic::WAIT | classic::EVENT_ANY;
    let status = rtems.event_receive(0b110, any, 0, Some(&mut out));
    assert_eq!((status, out), (Status::Successful, 0b100));
    let status = rtems.event_receive(classic::ALL_EVENTS, any, 0, Some(&mut out));
    assert_eq!((status, out), (Status::Successful, 0b001));
}

#[test]
fn classic_sends_fail_with_invalid_id_alone() {
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new()).unwrap();
    let me = rtems.task_self();
    assert_eq!(rtems.event_send(classic::SELF, 0), Status::Successful);
    for id in [1, me + 1, me ^ 0x7_0000, !0] {
        assert_eq!(rtems.event_send(id, 1), Status::InvalidId, "{id:#x}");
        assert_eq!(rtems.event_system_send(id, 1), Status::InvalidId);
    }
    let gone = thread::scope(|scope| {
        let id = scope.spawn(|| rtems.task_self());
        id.join().unwrap()
    });
    assert_eq!(rtems.event_send(gone, 1), Status::InvalidId);
}

#[test]
fn classic_system_events_are_a_set_of_their_own() {
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new()).unwrap();
    let mut out = 0;
    let transient = classic::EVENT_SYSTEM_TRANSIENT;
    assert_eq!(transient, 1 << 31);
    assert_eq!(
        rtems.event_system_send(classic::SELF, transient),
        Status::Successful
    );
    let status = rtems.event_receive(0, 0, 0, Some(&mut out));
    assert_eq!((status, out), (Status::Successful, 0));
    let status = rtems.event_system_receive(transient, 0, 0, Some(&mut out));
    assert_eq!((status, out), (Status::Successful, transient));
}
