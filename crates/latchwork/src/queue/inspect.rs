//! A region's message queues, as read from outside: see [`region::inspect`](crate::region::inspect).
#![allow(unsafe_code)]

use super::head::{Fixed, Head};
use super::{
    Discipline, handle::FINGERPRINT, ring::Ring, sleepers::Sleepers, spsc::handle as spsc,
};
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::region::inspect::{AnyBytes, Contents, TaskState, TaskWait};
use core::mem::offset_of;
use std::collections::HashMap;

/// A message queue of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Its name.
    pub name: String,
    /// Its address in every task.
    pub address: u64,
    /// The number of messages that fit.
    pub capacity: u32,
    /// The largest size of a message, in bytes.
    pub max_message: u32,
    /// The number of messages that are ready to be received.
    pub ready: u32,
    /// The number of messages that are being written, that receivers have in hand, or that are on their way to waiting
    /// receivers.
    pub in_flight: u32,
    /// The number of messages that came back from receivers that died or gave them back.
    pub redelivered: u64,
    /// The order in which waiting receivers are served; `None` for a ring, which has one receiver.
    pub discipline: Option<Discipline>,
    /// The slots of the tasks that wait for a message, in order of arrival. Living tasks only.
    pub receivers: Vec<u16>,
    /// Of a ring: slot and generation of the tasks that have the sending and the receiving end.
    pub ends: [Option<(u16, u32)>; 2],
}

/// The event for which a task sleeps on a word of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueWait {
    /// A message.
    Message,
    /// Room for a message.
    Room,
    /// Any change.
    Change,
}

// SAFETY: all fields are numbers, but for the node of a lock, whose links are not followed in a copy.
unsafe impl AnyBytes for Head {}
// SAFETY: all fields are numbers.
unsafe impl AnyBytes for spsc::Head {}

/// A region's queues and rings, as a method of its [`Contents`].
pub trait QueueReports {
    /// The region's queues and rings.
    #[must_use]
    fn queues(&self) -> Vec<QueueReport>;
}

impl QueueReports for Contents {
    fn queues(&self) -> Vec<QueueReport> {
        let mut waiting: HashMap<u64, Vec<(u64, u16)>> = HashMap::new();
        for task in &self.tasks {
            if let Some(TaskWait::Message { queue, arrival }) = task.waits_for
                && task.state != TaskState::Unswept
            {
                let tasks = waiting.entry(queue).or_default();
                tasks.push((arrival, task.slot));
            }
        }
        let report = |object: &crate::region::inspect::ObjectReport| {
            let (name, address) = (object.name.clone(), object.address);
            match object.fingerprint {
                FINGERPRINT => {
                    let receivers = waiting.remove(&address).unwrap_or_default();
                    queue(self, name, address, receivers)
                }
                spsc::FINGERPRINT => ring(self, name, address),
                _ => None,
            }
        };
        self.objects.iter().filter_map(report).collect()
    }
}

fn queue(
    contents: &Contents,
    name: String,
    address: u64,
    mut receivers: Vec<(u64, u16)>,
) -> Option<QueueReport> {
    let core = contents
        .read::<Head>(address)
        .filter(|core| core.is_alive())?;
    let (sending, receiving) = (&core.sending, &core.receiving);
    // If the queue is in use, these values are of different moments.
    let lane = |put: &AtomicU32, taken: &AtomicU32| {
        put.load(Relaxed)
            .wrapping_sub(taken.load(Relaxed))
            .min(core.capacity())
    };
    let on_lane = lane(&sending.sent, &receiving.taken);
    let ready = receiving.ready_count.load(Relaxed).saturating_add(on_lane);
    let freed = lane(&receiving.freed, &sending.fetched);
    let free = sending.stash_count.load(Relaxed).saturating_add(freed);
    let accounted = free.saturating_add(ready);
    let in_order = core.discipline() != 0;
    // The cells that may be neither free nor ready; the spare cells of a racing queue count only if they are
    // boards.
    let (spares, given) = (&core.fixed.spares, &core.fixed.given);
    let others = if in_order { spares } else { given }.load(Relaxed);
    let most = core.capacity().saturating_add(others);
    receivers.sort_unstable();
    Some(QueueReport {
        name,
        address,
        capacity: core.capacity(),
        max_message: core.max_message(),
        ready: ready.min(most),
        in_flight: most.saturating_sub(accounted),
        redelivered: receiving.redelivered.load(Relaxed),
        discipline: Some(Discipline::of_code(core.discipline())),
        receivers: receivers.into_iter().map(|(_, slot)| slot).collect(),
        ends: [None; 2],
    })
}

fn ring(contents: &Contents, name: String, address: u64) -> Option<QueueReport> {
    let core = contents
        .read::<spsc::Head>(address)
        .filter(|core| core.is_alive())?;
    let end = |claim: u64| (claim != 0).then_some(((claim >> 16) as u16, (claim >> 32) as u32));
    Some(QueueReport {
        name,
        address,
        capacity: core.capacity(),
        max_message: core.max_message(),
        ready: core.ring.length(),
        in_flight: 0,
        redelivered: 0,
        discipline: None,
        receivers: Vec::new(),
        ends: [0, 1].map(|side| end(core.claims[side].load(Relaxed))),
    })
}

impl QueueReport {
    /// The addresses of the words on which tasks sleep for the queue, and what they wait for there.
    #[must_use]
    pub fn sleep_words(&self) -> Vec<(u64, QueueWait)> {
        let fixed = offset_of!(Head, fixed);
        let words = if self.discipline.is_some() {
            [
                (fixed + offset_of!(Fixed, receivers), QueueWait::Message),
                (fixed + offset_of!(Fixed, senders), QueueWait::Room),
                (fixed + offset_of!(Fixed, watchers), QueueWait::Change),
            ]
            .map(|(sleepers, wait)| (sleepers + Sleepers::WORD, wait))
            .to_vec()
        } else {
            let sleepers = offset_of!(spsc::Head, ring) + Ring::SLEEPERS;
            vec![
                (sleepers, QueueWait::Room),
                (sleepers + size_of::<u32>(), QueueWait::Message),
            ]
        };
        let at = |(offset, wait)| (self.address.wrapping_add(offset as u64), wait);
        words.into_iter().map(at).collect()
    }
}
