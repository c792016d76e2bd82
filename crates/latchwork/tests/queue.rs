//! Messages in flight: whose they are, and what becomes of them. (`kill_queue` kills.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use latchwork::coproc::{Attributes, Coprocs, Outcome};
use latchwork::mutex::{LockError, Mutex};
use latchwork::queue::{Discipline, Message, Queue, QueueOptions, ReceiveError};
use latchwork::region::{DetachError, Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial, die, in_dying_thread};
use std::cell::RefCell;
use std::sync::OnceLock;
use std::thread;

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

fn queue(region: &Region) -> Queue<'_> {
    Queue::create(region, "queue", &QueueOptions::new(4, 8192)).unwrap()
}

/// The message comes, and comes once.
fn expect_delivery(queue: Queue<'_>, message: &[u8]) {
    let mut buffer = [0; 8192];
    let length = queue.receive(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], message);
    expect_empty(queue);
}

fn expect_empty(queue: Queue<'_>) {
    assert!(matches!(
        queue.try_receive(&mut [0; 8192]),
        Err(ReceiveError::Empty)
    ));
    assert!(queue.is_consistent().unwrap());
}

/// Whatever the living do not have is put back by their next look at a queue.
fn kill_a_task(region: &Region) {
    let mut victim = Child::fork(|| {
        region.join("victim").unwrap();
        die();
    });
    assert_eq!(victim.wait(), Exit::Signal(libc::SIGKILL));
    assert_eq!(region.sweep().unwrap().dead, ["victim"]);
}

#[test]
fn a_task_with_a_message_in_flight_cannot_leave() {
    let _trial = Trial::begin("a_task_with_a_message_in_flight_cannot_leave");
    let region = region();
    let queue = queue(&region);
    queue.send(b"precious").unwrap();
    let message = queue.receive_held().unwrap();
    let other = region.clone();
    let Err(DetachError::Holding {
        locks: 0,
        messages: 1,
        region: other,
    }) = other.detach()
    else {
        panic!("detached with a message in flight")
    };
    kill_a_task(&region);
    expect_empty(queue);
    assert_eq!(&*message, b"precious");
    message.give_back();
    other.detach().unwrap();
    expect_delivery(queue, b"precious");
    // None of these is in flight any more.
    for length in [1, 6000] {
        let message = &[7; 8192][..length];
        queue.send(message).unwrap();
        queue.receive_held().unwrap().done();
        queue.send(message).unwrap();
        expect_delivery(queue, message);
    }
    region.clone().detach().unwrap();
}

/// Nobody has noticed the death of the receiver that was given the message.
#[test]
fn a_queue_is_consistent_whether_or_not_a_death_was_noticed() {
    let trial = Trial::begin("a_queue_is_consistent_whether_or_not_a_death_was_noticed");
    let region = region();
    let options = QueueOptions::new(4, 8192).discipline(Discipline::Fifo);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    let mut receiver = Child::fork(|| drop(queue.receive_held().unwrap()));
    trial.wait_until(|| receiver.is_in_region_sleep());
    receiver.signal(libc::SIGSTOP);
    trial.wait_until(|| receiver.is_stopped());
    queue.send(b"given").unwrap();
    receiver.kill();
    assert!(queue.is_consistent().unwrap());
    expect_delivery(queue, b"given");
}

#[test]
fn a_message_of_a_thread_that_died_is_delivered_again() {
    let _trial = Trial::begin("a_message_of_a_thread_that_died_is_delivered_again");
    let region = region();
    let queue = queue(&region);
    for length in [3, 6000] {
        let message = &[5; 8192][..length];
        queue.send(message).unwrap();
        in_dying_thread(|| forget(queue.receive_held().unwrap()));
        expect_delivery(queue, message);
    }
}

#[test]
fn a_message_of_a_process_that_exits_is_delivered_again() {
    let _trial = Trial::begin("a_message_of_a_process_that_exits_is_delivered_again");
    let region = region();
    let queue = queue(&region);
    queue.send(b"job").unwrap();
    let mut child = Child::fork(|| {
        let _message = queue.receive_held().unwrap();
        std::process::exit(3)
    });
    assert_eq!(child.wait(), Exit::Code(3));
    expect_delivery(queue, b"job");
}

#[test]
fn a_message_of_a_coproc_that_returns_is_delivered_again() {
    fn forgetful(region: &Region, (): ()) -> i32 {
        forget(queue(region).receive_held().unwrap());
        7
    }
    let _trial = Trial::begin("a_message_of_a_coproc_that_returns_is_delivered_again");
    let region = region();
    let queue = queue(&region);
    // SAFETY: what this process owns in a region, the coprocs do not use.
    let coprocs = unsafe { Coprocs::new(&region) }.unwrap();
    queue.send(b"job").unwrap();
    let coproc = coprocs
        .spawn_value(forgetful, (), &Attributes::new())
        .unwrap();
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
    expect_delivery(queue, b"job");
}

/// Its thread is still its task then: nobody else has the message, or writes to it.
#[test]
fn a_message_outlives_its_threads_attachment_to_the_region() {
    struct Late(RefCell<Option<(Message<'static>, Queue<'static>)>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let Some((message, queue)) = self.0.borrow_mut().take() else {
                return;
            };
            let others = || {
                kill_a_task(REGION.get().unwrap());
                expect_empty(queue);
            };
            thread::scope(|scope| scope.spawn(others).join().unwrap());
            assert_eq!(&*message, b"precious");
            message.done();
        }
    }
    thread_local!(static LATE: Late = const { Late(RefCell::new(None)) });
    static REGION: OnceLock<Region> = OnceLock::new();

    let _trial = Trial::begin("a_message_outlives_its_threads_attachment_to_the_region");
    let region = REGION.get_or_init(region);
    let queue = queue(region);
    queue.send(b"precious").unwrap();
    let receiver = thread::spawn(move || {
        // Before the thread is anybody's task: it goes after that has ended.
        LATE.with(|_| ());
        let message = queue.receive_held().unwrap();
        LATE.with(|late| *late.0.borrow_mut() = Some((message, queue)));
    });
    receiver.join().unwrap();
    expect_empty(queue);
    assert_eq!(queue.redelivered(), 0);
    region.sweep().unwrap();
    expect_empty(queue);
}

#[test]
fn a_message_inherited_across_fork_is_the_parents() {
    let _trial = Trial::begin("a_message_inherited_across_fork_is_the_parents");
    let region = region();
    let queue = queue(&region);
    for join_first in [false, true] {
        for done in [false, true] {
            queue.send(b"job").unwrap();
            let mut message = Some(queue.receive_held().unwrap());
            let mut child = Child::fork(|| {
                if join_first {
                    region.join("child").unwrap();
                }
                let message = message.take().unwrap();
                if done {
                    message.done();
                } else {
                    message.give_back();
                }
            });
            assert_eq!(child.wait(), Exit::Signal(libc::SIGABRT));
            expect_empty(queue);
            assert_eq!(message.as_deref(), Some(&b"job"[..]));
            message.take().unwrap().done();
            expect_empty(queue);
        }
    }
}

/// Also the sweep of the region before an owner's death is reported.
#[test]
fn the_library_works_however_many_locks_its_user_holds() {
    let _trial = Trial::begin("the_library_works_however_many_locks_its_user_holds");
    let region = region();
    let queue = queue(&region);
    let lock = region.object("lock", || Mutex::robust(0_u64)).unwrap();
    let mut victim = Child::fork(|| {
        region.join("victim").unwrap();
        forget(lock.lock());
        die();
    });
    assert_eq!(victim.wait(), Exit::Signal(libc::SIGKILL));
    let locks: Vec<_> = (0..3000).map(|_| Box::pin(Mutex::robust(0_u8))).collect();
    let (spare, locks) = locks.split_last().unwrap();
    let mut held = Vec::new();
    for lock in locks {
        match lock.as_ref().lock() {
            Ok(guard) => held.push(guard),
            Err(LockError::TooManyHeld) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(held.len() < locks.len());
    let died = loop {
        match lock.lock() {
            Err(LockError::OwnerDied(died)) => break died,
            Err(LockError::TooManyHeld) => drop(held.pop().unwrap()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(region.sweep().unwrap().dead, Vec::<String>::new());
    for round in 0..300_u32 {
        queue.send(&round.to_ne_bytes()).unwrap();
        expect_delivery(queue, &round.to_ne_bytes());
    }
    // None of that was on the user's account.
    assert!(matches!(spare.as_ref().lock(), Err(LockError::TooManyHeld)));
    drop(died.make_consistent());
    drop(spare.as_ref().lock().unwrap());
}
