//! Coprocs that were made ahead: they have joined the region, and sleep until there is work.
#![allow(unsafe_code)]

use super::child::BURST_GAP;
use super::{Chain, Ref, Request, Zygote, reap::abandon, record, zygote::BATCH};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::time::Deadline;
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct Pool {
    size: usize,
    /// Ready, or being made.
    members: VecDeque<Ref>,
    /// A spawn before this time belongs to a burst.
    burst: Option<Deadline>,
    /// Members may be woken ahead, since there is another processor for them.
    wakes_ahead: bool,
}

impl Pool {
    pub(super) fn new(size: usize, wakes_ahead: bool) -> Self {
        Self {
            size,
            members: VecDeque::with_capacity(size),
            burst: None,
            wakes_ahead,
        }
    }

    /// Assigns `request` to a ready coproc; `None` if none is ready.
    pub(super) fn take(&mut self, request: &Request) -> Option<Ref> {
        for _ in 0..self.members.len() {
            let member = self.members.pop_front()?;
            match is_ready(&member) {
                Some(true) => {
                    // SAFETY: the member is ready, so the request is the creator's to write; the coproc reads it after
                    // `ASSIGNED`.
                    unsafe { *member.request() = request.clone() };
                    let Some(before) = assign(&member) else {
                        // The member closed meanwhile.
                        abandon(member, false);
                        continue;
                    };
                    if before == record::READY {
                        member.wake();
                    }
                    self.wake_next();
                    return Some(member);
                }
                Some(false) => self.members.push_back(member),
                None => abandon(member, false),
            }
        }
        None
    }

    /// In a burst, wakes the member that will be taken next. A member that is not asleep yet misses this wake-up and
    /// sleeps; a member that is not taken goes back to sleep.
    fn wake_next(&mut self) {
        let in_burst = self.burst.is_some_and(|burst| !burst.has_passed());
        if in_burst
            && let Some(next) = self.members.front()
            && next.state() == record::READY
        {
            next.wake();
        }
        self.burst = self.wakes_ahead.then(|| Deadline::after(BURST_GAP));
    }

    /// Whether at least half of the members are missing.
    pub(super) fn is_low(&self) -> bool {
        self.members.len() * 2 <= self.size && self.size != 0
    }

    /// Requests as many members as are missing.
    pub(super) fn refill(&mut self, zygote: &Zygote, creator: u32, chain: &Arc<Chain>) {
        let missing = 0..self.size - self.members.len();
        // Without memory, or without a zygote, the pool stays empty, and spawns are clean ones.
        let add = |_| chain.add(Request::without_call(creator, true)).ok();
        let mut records: Vec<Ref> = missing.map_while(add).collect();
        let messages = records.chunks(BATCH);
        let sent = messages.take_while(|message| zygote.request(message, &[]).is_ok());
        let sent: usize = sent.map(<[Ref]>::len).sum();
        for record in records.drain(sent..) {
            // SAFETY: no other process knows the record, or ever will: its message was not sent.
            unsafe { record.free() };
        }
        self.members.extend(records);
    }

    /// Removes the members that have died. Returns how many are ready, and how many are being made.
    pub(super) fn count(&mut self) -> (usize, usize) {
        let (mut ready, mut coming) = (0, 0);
        for _ in 0..self.members.len() {
            let Some(member) = self.members.pop_front() else {
                break;
            };
            match is_ready(&member) {
                Some(true) => ready += 1,
                Some(false) => coming += 1,
                None => {
                    abandon(member, false);
                    continue;
                }
            }
            self.members.push_back(member);
        }
        (ready, coming)
    }

    /// Frees the members that a dead zygote did not make.
    pub(super) fn free_unmade(&mut self) {
        self.members.retain(|member| {
            let made = member.pid.load(Acquire) != 0;
            if !made {
                // SAFETY: no process knows the record, or ever will: the zygote is dead.
                unsafe { member.free() };
            }
            made
        });
    }

    /// Makes all members end, also those that are being made.
    pub(super) fn close(&self) {
        self.members.iter().for_each(|member| member.close());
    }

    /// Gives up all members, which were closed. The zygote is gone.
    pub(super) fn give_up(&mut self) {
        self.free_unmade();
        for member in self.members.drain(..) {
            abandon(member, true);
        }
    }
}

/// Assigns work to a member. Returns its state before, or `None` if it has closed.
fn assign(member: &Ref) -> Option<u32> {
    let assign = |state| matches!(state, record::READY | record::AWAKE).then_some(record::ASSIGNED);
    // AcqRel: the Release pairs with the Acquire of `Record::state` in the coproc.
    let assigned = member.state.fetch_update(AcqRel, Relaxed, assign);
    assigned.ok()
}

/// Whether a member is ready, rather than being made; `None` if it has died, or its making has failed.
fn is_ready(member: &Ref) -> Option<bool> {
    let lives = |task| member.region.inner().life_word(task).is_some();
    match member.state() {
        record::REQUESTED => (!member.ended_unstarted()).then_some(false),
        record::READY | record::AWAKE => member.task().is_some_and(lives).then_some(true),
        _ => None,
    }
}
