//! Events that are sent by signal handlers, to the thread that they interrupt and to others.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::event::{EventSet, Events, TryReceiveError};
use latchwork::region::{Region, RegionOptions, TaskId};
use latchwork_testkit::Trial;
use std::process::abort;
use std::sync::OnceLock;
use std::thread;

use latchwork_testkit::ThreadId;

const SIGNALLED: EventSet = EventSet::event(4);
const OTHER: EventSet = EventSet::event(5);

static REGION: OnceLock<Region> = OnceLock::new();
static TARGET: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU32 = AtomicU32::new(0);
static TAKEN: AtomicU32 = AtomicU32::new(0);

fn region() -> &'static Region {
    REGION.get_or_init(|| {
        RegionOptions::new()
            .max_bytes(4 << 20)
            .create_anonymous()
            .unwrap()
    })
}

extern "C" fn send(_: libc::c_int) {
    let (Some(region), Some(task)) = (REGION.get(), TaskId::from_raw(TARGET.load(SeqCst))) else {
        abort()
    };
    if Events::new(region).send(task, SIGNALLED).is_err() {
        abort();
    }
    SENT.fetch_add(1, SeqCst);
}

/// Takes what it has sent to the interrupted thread.
extern "C" fn send_and_take(signal: libc::c_int) {
    send(signal);
    let Some(region) = REGION.get() else { abort() };
    match Events::new(region).try_receive_any(SIGNALLED) {
        Ok(_) => TAKEN.fetch_add(1, SeqCst),
        Err(TryReceiveError::Unsatisfied { .. }) => 0,
        Err(_) => abort(),
    };
}

fn install(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all-zero is a valid sigaction; the handler does what handlers may.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
    }
}

#[test]
fn a_handler_wakes_the_task_that_it_interrupts() {
    let trial = Trial::begin("a_handler_wakes_the_task_that_it_interrupts");
    install(send);
    let id = ThreadId::default();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            TARGET.store(region().task_id().unwrap().to_raw(), SeqCst);
            id.set();
            Events::new(region()).receive_all(SIGNALLED).unwrap()
        });
        trial.wait_until(|| id.is_in_futex());
        id.signal(libc::SIGUSR1);
        assert_eq!(receiver.join().unwrap(), SIGNALLED);
    });
}

#[test]
fn a_handler_in_a_thread_that_is_no_task_wakes_a_task() {
    let trial = Trial::begin("a_handler_in_a_thread_that_is_no_task_wakes_a_task");
    install(send);
    let (receiver_id, id) = (ThreadId::default(), ThreadId::default());
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            TARGET.store(region().task_id().unwrap().to_raw(), SeqCst);
            receiver_id.set();
            Events::new(region()).receive_any(SIGNALLED).unwrap()
        });
        trial.wait_until(|| receiver_id.is_in_futex());
        let sent = SENT.load(SeqCst);
        let (id, trial) = (&id, &trial);
        let bystander = scope.spawn(move || {
            id.set();
            trial.wait_until(|| SENT.load(SeqCst) != sent);
        });
        trial.wait_until(|| id.is_set());
        id.signal(libc::SIGUSR1);
        bystander.join().unwrap();
        assert_eq!(receiver.join().unwrap(), SIGNALLED);
    });
}

/// A handler at any point of a receive or a send: each of its events is received.
#[test]
fn no_event_is_lost_wherever_the_handler_interrupts() {
    let trial = Trial::begin("no_event_is_lost_wherever_the_handler_interrupts");
    storm(&trial, send, false);
}

/// The handler changes the set under the hands of the interrupted receive.
#[test]
fn a_handler_may_take_events_wherever_it_interrupts() {
    let trial = Trial::begin("a_handler_may_take_events_wherever_it_interrupts");
    storm(&trial, send_and_take, true);
}

fn storm(trial: &Trial, handler: extern "C" fn(libc::c_int), takes: bool) {
    install(handler);
    let id = ThreadId::default();
    let received = AtomicU32::new(0);
    let events = Events::new(region());
    SENT.store(0, SeqCst);
    TAKEN.store(0, SeqCst);
    let rounds = trial.times(2000) as u32;
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let me = region().task_id().unwrap();
            TARGET.store(me.to_raw(), SeqCst);
            id.set();
            loop {
                let got = events.receive_any(SIGNALLED | OTHER).unwrap();
                if got.contains(SIGNALLED) {
                    received.fetch_add(1, SeqCst);
                }
                if got.contains(OTHER) {
                    return;
                }
            }
        });
        trial.wait_until(|| id.is_set());
        for round in 1..=rounds {
            id.signal(libc::SIGUSR1);
            trial.wait_until(|| SENT.load(SeqCst) == round);
            // One at a time, so that none is sent twice before it is received.
            trial.wait_until(|| received.load(SeqCst) + TAKEN.load(SeqCst) == round);
        }
        let task = TaskId::from_raw(TARGET.load(SeqCst)).unwrap();
        events.send(task, OTHER).unwrap();
        worker.join().unwrap();
    });
    assert!(takes || TAKEN.load(SeqCst) == 0);
}
