//! Message queues beside programs that spin: every task sends a message of 64 bytes to one queue, and then receives one.

use std::io;

use super::workload::{TaskRun, Workload};
use crate::contestant::{Absent, Contestant};
use crate::measure::Sampler;
use crate::peers::queues::{self, MessageQueue, Receives, Sends};
use crate::plan::Plan;

pub(super) const BASE: &str = "posix-mq";
const BYTES: usize = 64;

struct Peer {
    name: &'static str,
    absent: fn() -> Option<Absent>,
    sampler: fn(Workload) -> Sampler,
}

const fn peer<M: MessageQueue>(name: &'static str) -> Peer {
    Peer {
        name,
        absent: absent::<M>,
        sampler: sampler::<M>,
    }
}

const PEERS: &[Peer] = &[
    peer::<queues::Copied>("latchwork queue"),
    peer::<queues::PosixMq>(BASE),
    peer::<queues::MutexCond>("mutex+cond"),
    peer::<queues::Pipe>("pipe"),
    peer::<queues::SeqPacket>("unix-seqpacket"),
    peer::<queues::Boost>("boost-queue"),
];

fn absent<M: MessageQueue>() -> Option<Absent> {
    let error = M::make(BYTES).err()?;
    Some(Absent {
        reason: error.to_string(),
        package: M::PACKAGE,
    })
}

pub(super) fn contestants() -> impl Iterator<Item = Contestant> {
    PEERS.iter().map(|peer| Contestant {
        name: peer.name,
        absent: (peer.absent)(),
    })
}

/// The queues that `plan` wants, with the base if it wants any.
pub(super) fn samplers(plan: &Plan, workload: Workload) -> Vec<(&'static str, Sampler)> {
    let wanted = PEERS.iter().any(|peer| plan.names(peer.name));
    let peers = PEERS.iter().filter(|peer| {
        wanted && (peer.name == BASE || plan.names(peer.name)) && (peer.absent)().is_none()
    });
    peers
        .map(|peer| (peer.name, (peer.sampler)(workload)))
        .collect()
}

fn sampler<M: MessageQueue>(workload: Workload) -> Sampler {
    Box::new(move || {
        let queue = M::make(BYTES)?;
        workload.measure(&|run: &mut TaskRun<'_>| {
            let ends = || -> io::Result<_> { Ok((queue.sender()?, queue.receiver()?)) };
            let (mut sender, mut receiver) = ends().inspect_err(|_| run.start.give_up())?;
            let (message, mut buffer) = ([7; BYTES], [0; BYTES]);
            // No task waits for ever: each that waits to send is followed by receivers of what is in the queue.
            run.work(|| {
                sender.send(&message, 1)?;
                receiver.receive(&mut buffer, 1)
            })
        })
    })
}
