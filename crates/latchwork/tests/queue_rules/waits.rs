//! Who waits: broadcasts, order, deadlines, and who waits by a descriptor.

use super::{drained, expect, ordered, queue, receiver, receiver_until, region};
use core::time::Duration;
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Discipline, QueueOptions, ReceiveError, Wait, WatchError};
use latchwork::region::{AttachError, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};

#[test]
fn a_broadcast_reaches_all_waiters_and_no_other_task() {
    let trial = Trial::begin("a_broadcast_reaches_all_waiters_and_no_other_task");
    let region = region();
    let mut spoken = vec![7; 6000];
    for discipline in [Discipline::Racing, Discipline::Fifo, Discipline::Priority] {
        let queue = ordered(&region, discipline);
        for length in [1, 6000] {
            spoken[0] = length as u8;
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 0);
            assert!(queue.is_empty());
            // More than the queue holds.
            let waiting: Vec<_> = (0..6).map(|_| receiver(&trial, queue)).collect();
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 6);
            assert_eq!(queue.broadcast(&spoken[..length]).unwrap(), 0);
            assert_eq!(queue.len(), 0);
            // It takes no room from others.
            for _ in 0..4 {
                queue.try_send(b"x").unwrap();
            }
            assert_eq!(queue.flush().unwrap(), 4);
            waiting
                .into_iter()
                .for_each(|child| expect(child, i32::from(length as u8)));
            assert!(queue.is_consistent().unwrap());
        }
    }
}

/// A board that all readers left, by whatever way, is free again.
#[test]
fn a_broadcast_to_tasks_that_are_killed_leaves_nothing() {
    let trial = Trial::begin("a_broadcast_to_tasks_that_are_killed_leaves_nothing");
    let region = region();
    let queue = queue(&region, 1);
    for length in [1, 6000] {
        let mut waiting: Vec<_> = (0..3).map(|_| receiver(&trial, queue)).collect();
        waiting.iter().for_each(|child| trial.stop_asleep(child));
        assert_eq!(queue.broadcast(&[5; 6000][..length]).unwrap(), 3);
        assert_eq!(waiting[0].kill(), Exit::Signal(libc::SIGKILL));
        assert_eq!(waiting[1].kill(), Exit::Signal(libc::SIGKILL));
        region.sweep().unwrap();
        waiting[2].signal(libc::SIGCONT);
        assert_eq!(waiting[2].wait(), Exit::Code(5));
        assert!(queue.is_consistent().unwrap());
        let late = receiver(&trial, queue);
        assert_eq!(queue.broadcast(&[6; 6000][..length]).unwrap(), 1);
        expect(late, 6);
    }
}

#[test]
fn receivers_that_wait_in_order_are_served_in_order() {
    let trial = Trial::begin("receivers_that_wait_in_order_are_served_in_order");
    let region = region();
    let queue = ordered(&region, Discipline::Fifo);
    let waiting: Vec<_> = (0..4).map(|_| receiver(&trial, queue)).collect();
    for number in 1..=4_u8 {
        queue.send(&[number]).unwrap();
        // It belongs to who waits: nothing is pending, and nobody who comes now gets it.
        assert_eq!(queue.len(), 0);
        assert!(matches!(queue.try_receive_held(), Err(ReceiveError::Empty)));
        assert_eq!(queue.flush().unwrap(), 0);
    }
    for (child, number) in waiting.into_iter().zip(1..) {
        expect(child, number);
    }
}

#[test]
fn a_message_for_a_task_that_is_killed_goes_to_the_next_in_order() {
    let trial = Trial::begin("a_message_for_a_task_that_is_killed_goes_to_the_next_in_order");
    let region = region();
    let queue = ordered(&region, Discipline::Fifo);
    let mut first = receiver(&trial, queue);
    let second = receiver(&trial, queue);
    trial.stop_asleep(&first);
    queue.send(&[1]).unwrap();
    queue.send(&[2]).unwrap();
    expect(second, 2);
    let third = receiver(&trial, queue);
    first.kill();
    expect(third, 1);
    assert!(queue.is_empty());
}

#[test]
fn a_wait_that_times_out_leaves_nothing_behind() {
    let trial = Trial::begin("a_wait_that_times_out_leaves_nothing_behind");
    let region = region();
    for discipline in [Discipline::Racing, Discipline::Fifo, Discipline::Priority] {
        let queue = ordered(&region, discipline);
        let hasty = receiver_until(&trial, queue, Wait::at_most(Duration::from_millis(100)));
        let patient = receiver(&trial, queue);
        expect(hasty, 201);
        assert_eq!(queue.broadcast(&[3]).unwrap(), 1);
        expect(patient, 3);
        queue.send(&[4]).unwrap();
        assert_eq!(drained(queue), [[4]]);
        assert!(matches!(
            queue.receive_for(&mut [], Duration::from_millis(1)),
            Err(ReceiveError::TimedOut)
        ));
    }
}

/// Whether a descriptor is readable within some time.
fn is_readable(watch: &impl std::os::fd::AsFd, milliseconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let mut polled = [PollFd::new(watch, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}

#[test]
fn a_watched_queue_is_readable_while_it_has_messages() {
    let trial = Trial::begin("a_watched_queue_is_readable_while_it_has_messages");
    let region = region();
    let queue = queue(&region, 4);
    let watch = queue.watch().unwrap();
    assert!(!watch.clear());
    for _ in 0..20 {
        // From another process.
        Child::fork(|| {
            queue.send(b"1").unwrap();
            queue.send(b"2").unwrap();
        })
        .succeed();
        trial.wait_until(|| is_readable(&watch, 1000));
        watch.clear();
        // Something is left.
        trial.wait_until(|| is_readable(&watch, 1000));
        assert_eq!(drained(queue), [b"1", b"2"]);
        // It may have been signalled once more meanwhile; then there is nothing.
        trial.wait_until(|| {
            watch.clear();
            !is_readable(&watch, 0)
        });
    }
    queue.delete().unwrap();
    trial.wait_until(|| is_readable(&watch, 1000));
    drop(watch);
}

/// The thread that watches needs a slot of its own.
#[test]
fn a_queue_that_its_thread_cannot_watch_is_not_watched() {
    let options = RegionOptions::new().max_bytes(4 << 20).max_tasks(1);
    let region = options.create_anonymous().unwrap();
    let watched = queue(&region, 2).watch().map(drop);
    let is_full =
        |error: &WatchError| matches!(error, WatchError::Attach(AttachError::TaskTableFull { .. }));
    assert!(watched.as_ref().is_err_and(is_full), "{watched:?}");
    let ring = Spsc::create(&region, "ring", &QueueOptions::new(2, 8)).unwrap();
    let watched = ring.watch().map(drop);
    assert!(watched.as_ref().is_err_and(is_full), "{watched:?}");
}

#[test]
fn flush_wakes_senders_and_no_receivers() {
    let trial = Trial::begin("flush_wakes_senders_and_no_receivers");
    let region = region();
    let queue = queue(&region, 2);
    let waiting = receiver(&trial, queue);
    assert_eq!(queue.flush().unwrap(), 0);
    // It looks around now and then, and sleeps on.
    trial.wait_until(|| waiting.is_in_futex());
    queue.send(&[9]).unwrap();
    expect(waiting, 9);
    queue.send(b"1").unwrap();
    queue.send(b"2").unwrap();
    let senders = [0, 1].map(|_| Child::fork(|| queue.send(b"3").unwrap()));
    for sender in &senders {
        trial.wait_until(|| sender.is_in_futex());
    }
    assert_eq!(queue.flush().unwrap(), 2);
    senders.into_iter().for_each(Child::succeed);
    assert_eq!(drained(queue), [b"3", b"3"]);
}

#[test]
fn a_watch_that_a_fork_inherited_is_dropped_without_its_thread() {
    let trial = Trial::begin("a_watch_that_a_fork_inherited_is_dropped_without_its_thread");
    let region = region();
    let queue = queue(&region, 4);
    let mut watch = Some(queue.watch().unwrap());
    Child::fork(|| drop(watch.take())).succeed();
    queue.send(b"1").unwrap();
    trial.wait_until(|| is_readable(&watch.as_ref().unwrap(), 1000));
}
